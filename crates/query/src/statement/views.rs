//! Views: named queries, which are used in statements like tables.
//!
//! The database stores the statements that created them, separated by semicolons, in its note
//! `views`. If a statement names a view, its query is parsed again and replaces the name, so that
//! each session reads through it only the data that it may see.
//!
//! Invariants: a view whose query cannot be planned with the tables that a session sees does not
//! exist for it. A table hides a view of its name. Plans with a view are not cached, since the view
//! may change. Concurrency: changes are serialised in a process, and only the owner of a database
//! makes them.

use super::create::forbidden;
use super::parser::offset_of;
use super::refuse::unsupported;
use super::{blocking, parse, show as shown, split};
use crate::answer::{Answer, ObjectKind, Outcome};
use crate::complexity;
use crate::descriptions::ViewDescription;
use crate::error::{Code, Error, Result};
use crate::names::{table_name, unknown_table};
use crate::parsed::StatementKind;
use crate::rewrites::names;
use crate::session::{Running, Session};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    self, CreateView, Ident, ObjectName, ObjectNamePart, Query, TableAlias, TableAliasColumnDef,
    TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::pin::Pin;
use std::sync::Arc;

/// The note that holds the statements.
pub(super) const NOTE: &str = "views";
/// Maximum nesting depth of views.
const DEPTH_MAX: usize = 16;

/// The statements that created the views, by the views' names.
type Texts = BTreeMap<String, String>;

fn decode_note(note: Option<Vec<u8>>) -> Result<Texts> {
    let Some(note) = note else {
        return Ok(Texts::new());
    };
    let wrong = |why: String| Error::corrupt(format!("the note `{NOTE}` is damaged: {why}"));
    let text = String::from_utf8(note).map_err(|why| wrong(why.to_string()))?;
    let statements = split(&text).map_err(|why| wrong(why.message))?;
    let named = statements
        .into_iter()
        .map(|text| Ok((name_of(&text)?, text)));
    named.collect()
}

/// The name of the view that a statement creates.
fn name_of(text: &str) -> Result<String> {
    name_in(text).map(|(name, _)| name)
}

/// The name of the view that a statement creates, and its byte range.
fn name_in(text: &str) -> Result<(String, Range<usize>)> {
    let tokens = complexity::tokens(text)?;
    let words = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut behind = words
        .skip_while(|token| !crate::syntax::words::is_keyword(token, "VIEW"))
        .skip(1)
        .skip_while(|token| {
            ["IF", "NOT", "EXISTS"]
                .iter()
                .any(|w| crate::syntax::words::is_keyword(token, w))
        });
    let offset = |at: Location| offset_of(text, (at.line, at.column));
    let mut found: Option<(String, Range<usize>)> = None;
    while let Some(token) = behind.next() {
        if let Token::Word(word) = &token.token {
            let name = match word.quote_style {
                Some(_) => word.value.clone(),
                None => word.value.to_lowercase(),
            };
            let first = found.map_or_else(|| offset(token.span.start), |(_, place)| place.start);
            found = Some((name, first..offset(token.span.end)));
        }
        // A schema before the name.
        let next = behind.next();
        if next.is_none_or(|token| token.token != Token::Period) {
            break;
        }
    }
    found.ok_or_else(|| Error::internal("a view without a name"))
}

/// The names of tables that a statement reads, and the names defined by `WITH`.
#[derive(Default)]
struct Named {
    tables: BTreeSet<String>,
    common: BTreeSet<String>,
}

impl Visitor for Named {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let common = query.with.iter().flat_map(|with| &with.cte_tables);
        let names = common
            .map(|common| ObjectName(vec![ObjectNamePart::Identifier(common.alias.name.clone())]));
        self.common
            .extend(names.filter_map(|name| table_name(&name).ok()));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name, args: None, ..
        } = factor
            && let Ok(name) = table_name(name)
        {
            self.tables.insert(name);
        }
        ControlFlow::Continue(())
    }
}

impl Named {
    fn of(what: &impl Visit) -> Named {
        let mut named = Named::default();
        // The visitor never stops early.
        let _ = Visit::visit(what, &mut named);
        named
    }

    /// Names that are neither tables nor queries of the statement.
    fn unknown(&self, running: &Running) -> Result<Vec<String>> {
        let mut unknown = Vec::new();
        for name in self.tables.difference(&self.common) {
            if running.view.table(name)?.is_none() {
                unknown.push(name.clone());
            }
        }
        Ok(unknown)
    }
}

/// A view, ready for insertion into a statement.
#[derive(Clone)]
struct Expanded {
    query: Box<Query>,
    columns: Vec<Ident>,
}

/// Replaces the names of views.
struct Putting<'a>(&'a BTreeMap<String, Expanded>);

impl Putting<'_> {
    /// `SELECT * FROM view`, with the view's query in place of its name.
    fn whole(name: &str, view: &Expanded) -> Parse {
        let ident = Ident::with_quote('"', name);
        let table = ObjectName(vec![ObjectNamePart::Identifier(ident)]);
        let mut query = crate::rewrites::all_of_table(table);
        let views = BTreeMap::from([(name.to_owned(), view.clone())]);
        // The visitor never stops early.
        let _ = VisitMut::visit(&mut query, &mut Putting(&views));
        Parse::Statement(Box::new(ast::Statement::Query(Box::new(query))))
    }
}

impl VisitorMut for Putting<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let found = table_name(name)
            .ok()
            .and_then(|name| Some((self.0.get(&name)?, name)));
        if let Some((view, name)) = found {
            let columns = view.columns.iter().map(|name| TableAliasColumnDef {
                name: name.clone(),
                data_type: None,
            });
            let given = alias.take();
            let alias = given.unwrap_or_else(|| TableAlias {
                explicit: true,
                name: Ident::with_quote('"', name),
                columns: Vec::new(),
                at: None,
            });
            let alias = match alias.columns.is_empty() {
                true => TableAlias {
                    columns: columns.collect(),
                    ..alias
                },
                false => alias,
            };
            *factor = TableFactor::Derived {
                lateral: false,
                subquery: view.query.clone(),
                alias: Some(alias),
                sample: None,
            };
        }
        ControlFlow::Continue(())
    }
}

type Expanding<'a> = Pin<Box<dyn Future<Output = Result<BTreeMap<String, Expanded>>> + Send + 'a>>;

/// The named views that exist for the session.
fn views<'a>(
    running: &'a Running,
    texts: &'a Texts,
    names: Vec<String>,
    depth: usize,
) -> Expanding<'a> {
    Box::pin(async move {
        let mut found = BTreeMap::new();
        let kept = names
            .into_iter()
            .filter_map(|name| Some((texts.get(&name)?, name)));
        for (text, name) in kept {
            if depth >= DEPTH_MAX {
                return Err(Error::too_large(format!(
                    "view `{name}` refers to itself, or is nested in more than {DEPTH_MAX} others"
                )));
            }
            let mut view = read(text)?;
            let inner = Named::of(&view.query).unknown(running)?;
            let inner = views(running, texts, inner, depth + 1).await?;
            let _ = VisitMut::visit(&mut view.query, &mut Putting(&inner));
            let query = ast::Statement::Query(Box::new(view.query.as_ref().clone()));
            match running.resolve(Parse::Statement(Box::new(query))).await {
                Ok(_) => {
                    found.insert(name, view);
                }
                Err(why) if matches!(why.kind(), Code::UnknownTable | Code::UnknownColumn) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(found)
    })
}

/// The view that a stored statement creates.
fn read(text: &str) -> Result<Expanded> {
    match parse(text, None)?.kind {
        StatementKind::CreateView(view) => Ok(Expanded {
            columns: view.columns.into_iter().map(|column| column.name).collect(),
            query: view.query,
        }),
        _ => Err(Error::corrupt(format!(
            "the stored definitions of views (note `{NOTE}`) are damaged: expected CREATE VIEW, found another statement"
        ))),
    }
}

/// Replaces the names of views by their queries; true when there was at least one.
pub(super) async fn expand<T: Visit + VisitMut>(
    session: &Session,
    running: &Running,
    what: &mut T,
) -> Result<bool> {
    let names = Named::of(what).unknown(running)?;
    if names.is_empty() {
        return Ok(false);
    }
    let texts = decode_note(session.note(NOTE)?)?;
    let found = views(running, &texts, names, 0).await?;
    if found.is_empty() {
        return Ok(false);
    }
    let _ = VisitMut::visit(what, &mut Putting(&found));
    Ok(true)
}

/// [`expand`] for a statement of the planner.
pub(super) async fn expand_statement(
    session: &Session,
    running: &Running,
    statement: &mut Parse,
) -> Result<bool> {
    match statement {
        Parse::Statement(statement) => expand(session, running, &mut **statement).await,
        Parse::Explain(explain) => match &mut *explain.statement {
            Parse::Statement(statement) => expand(session, running, &mut **statement).await,
            _ => Ok(false),
        },
        _ => Ok(false),
    }
}

static CHANGING: Mutex<()> = Mutex::new(());

/// Changes the stored views.
async fn change(
    session: &Session,
    work: impl FnOnce(&mut Texts, &headwater::Database) -> Result<()> + Send + 'static,
) -> Result<()> {
    let db = session.query.database()?.clone();
    blocking(move || {
        let _one_at_a_time = CHANGING.lock();
        let mut texts = decode_note(db.note(NOTE)?)?;
        work(&mut texts, &db)?;
        let all: Vec<String> = texts.into_values().collect();
        let text = all.join(";\n");
        db.set_note(NOTE, Some(text.as_bytes()).filter(|text| !text.is_empty()))?;
        Ok(())
    })
    .await
}

fn check(view: &CreateView) -> Result<()> {
    let plain = !(view.materialized || view.temporary || view.secure || view.or_alter)
        && view.cluster_by.is_empty()
        && view.comment.is_none()
        && view.to.is_none()
        && view.params.is_none()
        && matches!(view.options, ast::CreateTableOptions::None)
        && view.columns.iter().all(|column| column.data_type.is_none());
    match plain {
        true => Ok(()),
        false => Err(
            unsupported("CREATE VIEW with more than a name, columns and a query")
                .with_hint("CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(columns)] AS SELECT …"),
        ),
    }
}

/// `CREATE VIEW`; its text is stored unchanged.
pub(super) async fn create(session: &Session, view: &CreateView, text: String) -> Result<Answer> {
    check(view)?;
    let name = table_name(&view.name)?;
    session.query.database()?;
    if !session.access.manages(&name) && !session.access.all() {
        return Err(forbidden("create", &name));
    }
    let mut texts = decode_note(session.note(NOTE)?)?;
    texts.insert(name.clone(), text.clone());
    let running = session.begin()?;
    // Planned as it will be read: a view that reads itself would be infinite.
    let made = views(&running, &texts, vec![name.clone()], 0).await?;
    if !made.contains_key(&name) {
        let mut query = view.query.clone();
        expand(session, &running, &mut query).await?;
        let query = ast::Statement::Query(query);
        running.resolve(Parse::Statement(Box::new(query))).await?;
        return Err(Error::internal("a view that can and cannot be planned"));
    }
    let (replaces, tolerates) = (view.or_replace, view.if_not_exists);
    change(session, move |texts, db| {
        let exists = |what: &str| Error::table_exists(format!("{what} `{name}` already exists"));
        if db.tables().iter().any(|table| table.name == name) {
            return Err(exists("table"));
        }
        match texts.contains_key(&name) {
            true if tolerates => return Ok(()),
            true if !replaces => return Err(exists("view")),
            _ => {}
        }
        texts.insert(name, text);
        Ok(())
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Created(ObjectKind::View)))
}

/// `ALTER VIEW … RENAME TO`; false if the view does not exist. Views that read it by its old name
/// are not changed.
pub(super) async fn rename(session: &Session, old: &str, new: &str) -> Result<bool> {
    if !decode_note(session.note(NOTE)?)?.contains_key(old) {
        return Ok(false);
    }
    for name in [old, new] {
        if !session.access.manages(name) && !session.access.all() {
            return Err(forbidden("change", name));
        }
    }
    let (old, new) = (old.to_owned(), new.to_owned());
    change(session, move |texts, db| {
        if texts.contains_key(&new) || db.tables().iter().any(|table| table.name == new) {
            return Err(Error::table_exists(format!("`{new}` already exists")));
        }
        let Some(mut text) = texts.remove(&old) else {
            return Err(unknown_table(&old));
        };
        let (_, place) = name_in(&text)?;
        text.replace_range(place, &Ident::with_quote('"', new.as_str()).to_string());
        texts.insert(new, text);
        Ok(())
    })
    .await?;
    Ok(true)
}

/// `DROP VIEW`.
pub(super) async fn drop(
    session: &Session,
    names: &[ObjectName],
    if_exists: bool,
) -> Result<Answer> {
    let names: Vec<String> = names.iter().map(table_name).collect::<Result<_>>()?;
    for name in &names {
        if !session.access.manages(name) && !session.access.all() {
            return Err(forbidden("drop", name));
        }
    }
    change(session, move |texts, _| {
        for name in names {
            if texts.remove(&name).is_none() && !if_exists {
                return Err(unknown_table(&name));
            }
        }
        Ok(())
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Dropped(ObjectKind::View)))
}

/// The query of a view in the statement that created it: the text after `AS`.
fn definition(text: &str) -> Result<String> {
    let mut deep = 0;
    let mut seen = false;
    let tokens = complexity::tokens(text)?;
    let query = tokens.iter().find(|token| {
        deep += crate::syntax::words::bracket_depth(token);
        let found = seen && !matches!(token.token, Token::Whitespace(_));
        seen |= deep == 0 && crate::syntax::words::is_keyword(token, "AS");
        found
    });
    let at = query.map(|token| (token.span.start.line, token.span.start.column));
    let offset = at.map_or(0, |at| offset_of(text, at));
    let query = text.split_at_checked(offset).map_or("", |(_, query)| query);
    Ok(query.trim().to_owned())
}

/// Descriptions of the views that exist for the session, by name.
pub(crate) fn described(session: &Session) -> Result<Vec<ViewDescription>> {
    let texts = decode_note(session.note(NOTE)?)?;
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let own = session.clone();
    session.planned_at_once(move || {
        let running = own.begin()?;
        let names = texts.keys().cloned().collect();
        // Tables are in memory, so that this does not wait.
        let found = views(&running, &texts, names, 0)
            .now_or_never()
            .ok_or_else(|| Error::internal("the planning of views waited"))??;
        let mut described = Vec::new();
        for (name, view) in &found {
            let whole = Putting::whole(name, view);
            let planned = running
                .resolve(whole)
                .now_or_never()
                .ok_or_else(|| Error::internal("the planning of a view waited"))??;
            let schema = names::without_marks(planned.schema().inner())
                .unwrap_or_else(|| Arc::clone(planned.schema().inner()));
            let columns = schema.fields().iter();
            let columns = columns.map(|field| (field.name().clone(), field.data_type().clone()));
            described.push(ViewDescription {
                columns: columns.collect(),
                definition: definition(texts.get(name).map_or("", String::as_str))?,
                name: name.clone(),
            });
        }
        Ok(described)
    })
}

pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("view_name", DataType::Utf8, false),
        Field::new("definition", DataType::Utf8, false),
    ]))
}

/// `SHOW VIEWS`: the views that exist for the session.
pub(super) async fn show(session: &Session) -> Result<Answer> {
    let running = session.begin()?;
    let texts = decode_note(session.note(NOTE)?)?;
    let names = texts.keys().cloned().collect();
    let found = views(&running, &texts, names, 0).await?;
    let shown = texts.iter().filter(|(name, _)| found.contains_key(*name));
    let (names, texts): (Vec<&str>, Vec<&str>) = shown
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .unzip();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(names)),
        Arc::new(StringArray::from(texts)),
    ];
    let rows = RecordBatch::try_new(schema(), columns);
    shown::answer(rows.map_err(|why| Error::internal(why.to_string()))?)
}
