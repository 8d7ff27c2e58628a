//! `CREATE TABLE` and `DROP TABLE`.

use super::blocking;
use super::types::{Declared, TableSettings, column_name, declared};
use crate::answer::{Answer, ObjectKind, Outcome};
use crate::columns::TIME;
use crate::error::{Error, Result};
use crate::names::{table_name, unknown_table};
use crate::session::Session;
use datafusion::sql::sqlparser::ast;
use headwater::{Duplicates, FieldSpec, IndexPolicy, TableSpec};

/// Checks column options; options that only repeat the properties of a stream are accepted.
pub(super) fn check_options(column: &ast::ColumnDef, what: Declared) -> Result<()> {
    for option in &column.options {
        let fine = match option.option {
            ast::ColumnOption::Null => what != Declared::Time,
            ast::ColumnOption::NotNull => what == Declared::Time,
            _ => false,
        };
        if !fine {
            return Err(Error::unsupported(format!(
                "column `{}` cannot be {}",
                column.name, option.option
            ))
            .with_hint("time is never NULL; tags and fields can always be NULL"));
        }
    }
    Ok(())
}

fn spec(create: ast::CreateTable) -> Result<(TableSpec, TableSettings, bool)> {
    let mut spec = TableSpec::new(table_name(&create.name)?);
    if create.query.is_some() || create.like.is_some() || create.clone.is_some() {
        return Err(Error::unsupported_statement(
            "CREATE TABLE AS, LIKE and CLONE are not supported",
        )
        .with_hint("create the table with its columns, then INSERT INTO … SELECT"));
    }
    if create.or_replace || create.temporary || create.external || !create.constraints.is_empty() {
        return Err(Error::unsupported_statement(
            "CREATE TABLE supports neither OR REPLACE, nor TEMPORARY, nor constraints",
        ));
    }
    let mut timed = false;
    for column in &create.columns {
        let what = declared(&column.data_type)?;
        check_options(column, what)?;
        let name = column_name(&column.name);
        let twice = spec.fields.iter().any(|f| f.name == name) || spec.tags.contains(&name);
        if twice || (name == TIME && timed) {
            return Err(Error::invalid(format!(
                "column `{name}` is specified more than once"
            )));
        }
        match what {
            Declared::Time if name == TIME => timed = true,
            Declared::Time => {
                return Err(Error::invalid(format!(
                    "the column of timestamps must be named `{TIME}`, found `{name}`"
                ))
                .with_hint("store further timestamps as BIGINT or TEXT"));
            }
            _ if name == TIME => {
                return Err(Error::type_mismatch(format!(
                    "`{TIME}` must be a TIMESTAMP"
                )));
            }
            Declared::Tag => spec.tags.push(name),
            Declared::Field(field_type) => spec.fields.push(FieldSpec { name, field_type }),
        }
    }
    let options = match &create.table_options {
        ast::CreateTableOptions::None => &[][..],
        ast::CreateTableOptions::With(options) => options,
        other => {
            return Err(Error::syntax(format!(
                "settings of a table belong in WITH (…), found {other}"
            )));
        }
    };
    let settings = TableSettings::of(options)?;
    spec.retention = settings.retention.flatten();
    spec.raw_for = settings.raw_for.flatten();
    // Without a tag all rows are of one stream, and rows of one instant may differ: unless the
    // statement says otherwise, all are retained.
    spec.duplicates = settings.duplicates.unwrap_or(match spec.tags.is_empty() {
        true => Duplicates::Keep,
        false => Duplicates::Last,
    });
    spec.leaf_events = settings.leaf_events;
    Ok((spec, settings, create.if_not_exists))
}

/// Error: the session may not do this to the table.
pub(super) fn forbidden(what: &str, table: &str) -> Error {
    Error::forbidden(format!("this session may not {what} table `{table}`"))
}

pub(super) async fn run(session: &Session, create: ast::CreateTable) -> Result<Answer> {
    let (spec, settings, if_not_exists) = spec(create)?;
    let db = session.query.database()?.clone();
    if !session.access.manages(&spec.name) && !session.access.all() {
        return Err(forbidden("create", &spec.name));
    }
    blocking(move || {
        let exists = db.tables().iter().any(|t| t.name == spec.name);
        if exists && if_not_exists {
            return Ok(());
        }
        if exists {
            return Err(Error::table_exists(format!(
                "table `{}` already exists",
                spec.name
            )));
        }
        db.create_table(&spec)?;
        if let Some(policy) = settings.index_policy(IndexPolicy::default()) {
            db.set_index_policy(&spec.name, &policy)?;
        }
        Ok(())
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Created(ObjectKind::Table)))
}

/// Drops tables.
pub(super) async fn drop(
    session: &Session,
    names: &[ast::ObjectName],
    if_exists: bool,
) -> Result<Answer> {
    let db = session.query.database()?.clone();
    let names: Vec<String> = names.iter().map(table_name).collect::<Result<_>>()?;
    let running = session.begin()?;
    let mut found = Vec::new();
    for name in names {
        let manages = session.access.all() || session.access.manages(&name);
        match running.view.table(&name)? {
            Some(_) if manages => found.push(name),
            Some(_) => return Err(forbidden("drop", &name)),
            None if if_exists => {}
            None => return Err(unknown_table(&name)),
        }
    }
    blocking(move || {
        for name in found {
            db.drop_table(&name)?;
        }
        Ok(())
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Dropped(ObjectKind::Table)))
}
