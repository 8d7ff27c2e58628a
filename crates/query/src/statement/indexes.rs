//! `CREATE INDEX`, `DROP INDEX` and `SHOW INDEXES`.
//!
//! Invariants: an index does not change answers, so a session that manages a table may create and
//! drop its indexes; a session sees an index when it sees its table and all its fields. Failure: a
//! clause that is not supported is refused by name.

use super::create::forbidden;
use super::refuse::unsupported;
use super::types::column_name;
use super::{blocking, show};
use crate::answer::{Answer, ObjectKind, Outcome};
use crate::descriptions::IndexDescription;
use crate::error::{Error, Result};
use crate::names::{table_name, unknown_table};
use crate::session::Session;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast;
use headwater::{IndexInfo, IndexSpec};
use std::sync::Arc;

/// Syntax of `CREATE INDEX`.
const FORMS: &str = "CREATE INDEX [IF NOT EXISTS] name ON table (field, …)";

/// Refuses unsupported clauses of a statement.
fn refuse_parts(create: &ast::CreateIndex) -> Result<()> {
    let refused = |what: &str| Err(unsupported(format!("{what} of an index")).with_hint(FORMS));
    if create.unique {
        let error = unsupported("CREATE UNIQUE INDEX");
        return Err(error.with_hint("rows of one stream and time are always one row"));
    }
    match create.using {
        None | Some(ast::IndexType::BTree) => {}
        Some(ref other) => return refused(&format!("the kind {other}")),
    }
    if create.predicate.is_some() {
        return refused("a condition");
    }
    if !create.include.is_empty() {
        return refused("INCLUDE");
    }
    if create.nulls_distinct.is_some() {
        return refused("NULLS DISTINCT");
    }
    let options = [
        create.with.is_empty(),
        create.index_options.is_empty(),
        create.alter_options.is_empty(),
    ];
    if options != [true; 3] {
        return refused("an option");
    }
    Ok(())
}

/// The field of an index column.
fn field(column: &ast::IndexColumn) -> Result<String> {
    let by = &column.column;
    let options = &by.options;
    // Ascending, any order of nulls: one index serves both directions, and does not contain absent
    // values.
    if options.asc == Some(false) || column.operator_class.is_some() || by.with_fill.is_some() {
        return Err(unsupported(format!("`{column}` in an index")).with_hint(FORMS));
    }
    match &by.expr {
        ast::Expr::Identifier(name) => Ok(column_name(name)),
        other => Err(
            Error::unsupported(format!("an index must be on fields, not on `{other}`"))
                .with_hint(FORMS),
        ),
    }
}

/// A generated name for an unnamed index, as in PostgreSQL.
fn generated_name(table: &str, fields: &[String], known: &[IndexInfo]) -> String {
    let plain = format!("{table}_{}_idx", fields.join("_"));
    let mut name = plain.clone();
    let mut number = 0;
    while known.iter().any(|index| index.name == name) {
        number += 1;
        name = format!("{plain}{number}");
    }
    name
}

/// Creates an index. A background job fills it.
pub(super) async fn create(session: &Session, create: ast::CreateIndex) -> Result<Answer> {
    refuse_parts(&create)?;
    let table = table_name(&create.table_name)?;
    let fields: Vec<String> = create.columns.iter().map(field).collect::<Result<_>>()?;
    let given = create.name.as_ref().map(table_name).transpose()?;
    let db = session.query.database()?.clone();
    let running = session.begin()?;
    let Some(view) = running.view.table(&table)? else {
        return Err(unknown_table(&table));
    };
    if !session.access.all() && !session.access.manages(&table) {
        return Err(forbidden("change", &table));
    }
    for name in &fields {
        if !view.fields.iter().any(|(known, _)| known == name) {
            return Err(match view.role(name) {
                None => Error::unknown_column(format!("there is no column `{name}`")),
                Some(_) => Error::unsupported(format!("`{name}` is not a field"))
                    .with_hint("conditions on tags and time need no index"),
            });
        }
    }
    let if_not_exists = create.if_not_exists;
    blocking(move || {
        let known = db.indexes();
        let name = given.unwrap_or_else(|| generated_name(&table, &fields, &known));
        if known.iter().any(|index| index.name == name) {
            if if_not_exists {
                return Ok(());
            }
            return Err(Error::index_exists(format!(
                "index `{name}` already exists"
            )));
        }
        Ok(db.create_index(&IndexSpec {
            name,
            table,
            fields,
        })?)
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Created(ObjectKind::Index)))
}

/// Whether the session sees an index.
fn is_visible(session: &Session, view: &crate::view::View, index: &IndexInfo) -> Result<bool> {
    if session.access.all() {
        return Ok(true);
    }
    let Some(table) = view.table(&index.table)? else {
        return Ok(false);
    };
    let visible = |field: &String| table.fields.iter().any(|(known, _)| known == field);
    Ok(index.fields.iter().all(visible))
}

fn unknown(name: &str) -> Error {
    let error = Error::unknown_index(format!("there is no index `{name}`"));
    error.with_hint("SHOW INDEXES lists them")
}

/// Drops all named indexes, or none of them.
pub(super) async fn drop(
    session: &Session,
    names: &[ast::ObjectName],
    if_exists: bool,
) -> Result<Answer> {
    let names: Vec<String> = names.iter().map(table_name).collect::<Result<_>>()?;
    let db = session.query.database()?.clone();
    let running = session.begin()?;
    let known = db.indexes();
    let mut found = Vec::new();
    for name in names {
        let index = known.iter().find(|index| index.name == name);
        let visible = match index {
            Some(index) => is_visible(session, &running.view, index)?.then_some(index),
            None => None,
        };
        let Some(index) = visible else {
            if if_exists {
                continue;
            }
            return Err(unknown(&name));
        };
        if !session.access.all() && !session.access.manages(&index.table) {
            return Err(forbidden("change", &index.table));
        }
        if !found.contains(&name) {
            found.push(name);
        }
    }
    blocking(move || {
        for name in found {
            match db.drop_index(&name) {
                // Another session dropped it first.
                Err(e) if e.kind() == headwater::ErrorKind::NotFound => return Err(unknown(&name)),
                dropped => dropped?,
            }
        }
        Ok(())
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Dropped(ObjectKind::Index)))
}

/// The table of `SHOW INDEXES`, if any; the outer `None` for another `SHOW`.
pub(super) fn shown(variable: &[ast::Ident]) -> Option<Option<String>> {
    let is = |word: &ast::Ident, text: &str| {
        word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text)
    };
    let (first, rest) = variable.split_first()?;
    if !["indexes", "index", "indices"].iter().any(|w| is(first, w)) {
        return None;
    }
    match rest {
        [] => Some(None),
        [from, table] if is(from, "from") || is(from, "on") => Some(Some(column_name(table))),
        _ => None,
    }
}

pub(super) fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![
        text("index_name"),
        text("table_name"),
        text("fields"),
        number("entries"),
        number("bytes"),
        number("partitions"),
        number("partitions_complete"),
        text("origin"),
        text("state"),
    ]))
}

/// The indexes that the session sees, by name.
pub(crate) fn described(session: &Session) -> Result<Vec<IndexDescription>> {
    let known = session.query.source().indexes();
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let view = session.view()?;
    let mut visible = Vec::new();
    for index in known {
        if is_visible(session, &view, &index)? {
            let progress = &index.progress;
            visible.push(IndexDescription {
                complete: progress.partitions_complete == progress.partitions,
                name: index.name,
                table: index.table,
                fields: index.fields,
            });
        }
    }
    Ok(visible)
}

/// The indexes, by name.
pub(super) async fn list(session: &Session, table: Option<String>) -> Result<Answer> {
    let running = session.begin()?;
    if let Some(name) = &table
        && running.view.table(name)?.is_none()
    {
        return Err(unknown_table(name));
    }
    let query = session.query.clone();
    let known = blocking(move || Ok(query.source().indexes())).await?;
    let mut visible = Vec::new();
    for index in known {
        let wanted = table.as_ref().is_none_or(|table| *table == index.table);
        if wanted && is_visible(session, &running.view, &index)? {
            visible.push(index);
        }
    }
    let texts = |of: &dyn Fn(&IndexInfo) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(visible.iter().map(of)))
    };
    let numbers = |of: &dyn Fn(&IndexInfo) -> u64| -> ArrayRef {
        let clamped = |index: &IndexInfo| i64::try_from(of(index)).unwrap_or(i64::MAX);
        Arc::new(Int64Array::from_iter_values(visible.iter().map(clamped)))
    };
    let columns = vec![
        texts(&|index| index.name.clone()),
        texts(&|index| index.table.clone()),
        texts(&|index| index.fields.join(", ")),
        numbers(&|index| index.entries),
        numbers(&|index| index.bytes),
        numbers(&|index| index.progress.partitions),
        numbers(&|index| index.progress.partitions_complete),
        texts(&|index| match index.automatic {
            true => "automatic".to_owned(),
            false => "created by CREATE INDEX".to_owned(),
        }),
        texts(&|index| {
            let is_whole = index.progress.partitions_complete == index.progress.partitions;
            match (is_whole, index.over_budget) {
                (true, _) => "complete".to_owned(),
                (false, true) => "over budget".to_owned(),
                (false, false) => "being made".to_owned(),
            }
        }),
    ];
    let batch = RecordBatch::try_new(schema(), columns);
    show::answer(batch.map_err(|e| Error::internal(e.to_string()))?)
}
