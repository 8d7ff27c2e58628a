//! Statements of a session: each supported kind, and a clear refusal of every other.
//!
//! Invariants: only statements that are named here are planned or run; a change of the database is
//! checked against the session's access first.

mod alter;
mod copy;
mod create;
mod delete;
mod indexes;
mod insert;
mod order;
mod parameter_types;
mod refuse;
mod returning;
mod select;
mod setting;
mod show;
mod snapshots;
mod types;
mod using;
mod views;
mod watches;
mod zone;

pub use copy::CopyIn;
pub(crate) use indexes::described as described_indexes;
pub(crate) use views::described as described_views;
pub use watches::{Look, Watch};

use crate::answer::{Answer, Done, Made, Stored};
use crate::complexity::{self, Counted};
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::parsed::{Kind, Parsed};
use crate::placeholders::Written;
use crate::plans::{Described, PlanKey};
use crate::rewrites::{
    self,
    names::{self, Labels},
};
use crate::session::{Extension, Session, no_columns};
use crate::syntax::{self, About, AboutWatch};
use crate::view::View;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, ParserInput, Statement as Parse};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;
use std::sync::Arc;

/// Properties of a statement that are known without running it.
pub(crate) struct Shape {
    pub(crate) parameters: Vec<DataType>,
    pub(crate) schema: SchemaRef,
    pub(crate) done: Done,
    /// The logical plan with the key for which it is valid, if it can be cached.
    pub(crate) meaning: Option<(PlanKey, LogicalPlan)>,
}

impl Shape {
    fn new(parameters: Vec<DataType>, schema: SchemaRef, done: Done) -> Shape {
        Shape {
            parameters,
            schema,
            done,
            meaning: None,
        }
    }
}

/// Rights of a session, evaluated once per statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// The session may read some data.
    Reads,
    /// The session may only write.
    WritesOnly,
}

impl Rights {
    /// Evaluates the rights of a session, and refuses a reading statement, by its first word, if
    /// the session has no rights to read.
    fn of(session: &Session, sql: &str) -> Result<Rights> {
        match session.access.asks() {
            true => Ok(Rights::Reads),
            false if changes(sql) => Ok(Rights::WritesOnly),
            false => Err(asks_nothing()),
        }
    }
}

/// Refuses a reading statement, by its first word, if the session has no rights to read.
pub(crate) fn may_run(session: &Session, sql: &str) -> Result<()> {
    Rights::of(session, sql).map(drop)
}

/// Parses a statement of a session.
pub(crate) async fn read(session: &Session, sql: &str) -> Result<Parsed> {
    may_run(session, sql)?;
    session.check_length(sql)?;
    let (text, extension) = (sql.to_owned(), session.extension.clone());
    let read = async move { parse(&text, extension.as_deref()) };
    session
        .planned(sql.len() > complexity::LONG_TEXT, read)
        .await
}

/// Progress of a statement.
pub(crate) enum Step {
    /// The statement runs; its answer.
    Ran(Answer),
    /// A parsed statement that is not a query, or that needs a thread of its own to be planned.
    Read(Box<Parsed>, Parameters),
}

/// Parses a statement, and runs it on the same thread if it is a query.
pub(crate) async fn read_and_run(
    session: &Session,
    view: Arc<View>,
    sql: &str,
    parameters: Parameters,
) -> Result<Step> {
    let rights = Rights::of(session, sql)?;
    session.check_length(sql)?;
    let (text, own) = (sql.to_owned(), session.clone());
    let work = async move {
        let statement = parse(&text, own.extension.as_deref())?;
        if statement.is_large() || !matches!(statement.kind, Kind::Select(_)) {
            return Ok(Step::Read(Box::new(statement), parameters));
        }
        check_rights(rights, &statement)?;
        let (labels, count) = (statement.labels, statement.written.count);
        let Kind::Select(parsed) = statement.kind else {
            return Err(Error::internal("a query that is none"));
        };
        let request = select::RunRequest {
            labels: &labels,
            text: Some(&text),
            parameters,
            count,
            done: Done::Select,
            view,
        };
        let ran = select::run(&own, parsed, request).await?;
        Ok(Step::Ran(ran))
    };
    session
        .planned(sql.len() > complexity::LONG_TEXT, work)
        .await
}

/// Parses one statement.
pub(crate) fn parse(sql: &str, extension: Option<&dyn Extension>) -> Result<Parsed> {
    let tokens = complexity::tokens(sql)?;
    let weight = complexity::weigh_tokens(sql, &tokens)?;
    let named = syntax::about(&tokens)?.map(Kind::Snapshots);
    let named = match named {
        Some(named) => Some(named),
        None => syntax::about_watch(sql, &tokens)?.map(Kind::Watches),
    };
    if let Some(named) = named {
        return Ok(Parsed {
            text: sql.to_owned(),
            weight,
            kind: named,
            labels: Labels::default(),
            written: Written::default(),
        });
    }
    let mut written = Written::of_tokens(&tokens);
    let tokens = syntax::rewrite(tokens)?;
    let mut statements = weight.reading(|| {
        DFParserBuilder::new(ParserInput::Tokens(tokens))
            .with_dialect(&Counted)
            .with_recursion_limit(complexity::DEPTH_MAX)
            .build()?
            .parse_statements()
    })?;
    let Some(mut statement) = statements.pop_front() else {
        return Err(Error::syntax("there is no statement"));
    };
    if !statements.is_empty() {
        return Err(Error::syntax(
            "there are several statements: send one at a time",
        ));
    }
    if let (Parse::Statement(statement), Some(extension)) = (&mut statement, extension) {
        extension.rewrite(statement)?;
    }
    let returning = match &mut statement {
        Parse::Statement(inner) => match inner.as_mut() {
            ast::Statement::Insert(insert) => returning::take(insert),
            _ => None,
        },
        _ => None,
    };
    let labels = match &statement {
        Parse::Statement(statement) => {
            written.look_at(statement);
            Labels::of(statement)
        }
        _ => Labels::default(),
    };
    using::columns_of_both_sides(&mut statement)?;
    rewrites::reword(&mut statement)?;
    zone::call_by_name(&mut statement);
    order::plain_keys(&mut statement);
    let mut kind = kind(statement)?;
    if let (Kind::Insert(_, request), Some(query)) = (&mut kind, returning) {
        *request = Some(Box::new(parse(&query, extension)?));
    }
    Ok(Parsed {
        text: sql.to_owned(),
        weight,
        kind,
        labels,
        written,
    })
}

fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::unsupported_statement(format!("{what} is not supported"))
}

/// The first words of a statement, for messages.
fn beginning(statement: &impl std::fmt::Display) -> String {
    let text = statement.to_string();
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default().to_uppercase();
    match (first.as_str(), words.next()) {
        ("CREATE" | "DROP" | "ALTER" | "SHOW" | "SET" | "START", Some(second)) => {
            format!("{first} {}", second.to_uppercase())
        }
        _ => first,
    }
}

fn kind(statement: Parse) -> Result<Kind> {
    let sql = match statement {
        Parse::Statement(sql) => sql,
        Parse::Explain(ref explain) => {
            return match &*explain.statement {
                Parse::Statement(inner) if matches!(**inner, ast::Statement::Query(_)) => {
                    refuse::left_out(inner)?;
                    Ok(Kind::Explain(statement))
                }
                other => Err(unsupported(format!("EXPLAIN of {}", beginning(other)))),
            };
        }
        Parse::Reset(reset) => {
            let datafusion::sql::parser::ResetStatement::Variable(name) = reset;
            return Ok(Kind::Reset(setting::name(&name)));
        }
        Parse::CopyTo(_) => {
            return Err(unsupported("COPY … TO a file of the server")
                .with_hint("export with `headwater export` or /api/v1/export"));
        }
        Parse::CreateExternalTable(_) => {
            return Err(unsupported("CREATE EXTERNAL TABLE")
                .with_hint("read files in with `headwater import`"));
        }
    };
    refuse::left_out(&sql)?;
    Ok(match *sql {
        ast::Statement::Query(_) => Kind::Select(Parse::Statement(sql)),
        ast::Statement::ExplainTable { table_name, .. } => Kind::Describe(table_name),
        ast::Statement::ShowTables { show_options, .. } => {
            Kind::ShowTables(show_options.filter_position)
        }
        ast::Statement::ShowColumns { .. } => Kind::ShowColumns(Parse::Statement(sql)),
        ast::Statement::ShowVariable { variable } => match indexes::shown(&variable) {
            Some(table) => Kind::ShowIndexes(table),
            None => Kind::ShowSetting(setting::shown(&variable)),
        },
        ast::Statement::Set(set) => {
            let (name, value) = setting::assignment(set)?;
            Kind::Set(name, value)
        }
        ast::Statement::Insert(insert) => Kind::Insert(Box::new(insert), None),
        ast::Statement::Delete(delete) => Kind::Delete(Box::new(delete)),
        ast::Statement::CreateTable(create) => Kind::Create(Box::new(create)),
        ast::Statement::AlterTable(alter) => Kind::Alter(Box::new(alter)),
        ast::Statement::CreateIndex(create) => Kind::CreateIndex(Box::new(create)),
        ast::Statement::CreateView(view) => Kind::CreateView(Box::new(view)),
        ast::Statement::ShowViews { .. } => Kind::ShowViews,
        ast::Statement::Drop {
            object_type:
                object @ (ast::ObjectType::Table | ast::ObjectType::View | ast::ObjectType::Index),
            names,
            if_exists,
            ..
        } => dropping(object, names, if_exists),
        ast::Statement::Update(_) => {
            return Err(unsupported("UPDATE").with_hint(
                "insert a row with the same tags and time: the newer value of a field wins",
            ));
        }
        other => return Err(unsupported(beginning(&other))),
    })
}

/// A statement that drops tables, views or indexes.
fn dropping(object: ast::ObjectType, names: Vec<ast::ObjectName>, if_exists: bool) -> Kind {
    match object {
        ast::ObjectType::View => Kind::DropView { names, if_exists },
        ast::ObjectType::Index => Kind::DropIndex { names, if_exists },
        _ => Kind::Drop { names, if_exists },
    }
}

/// Whether a statement only changes data, by its first word, and does not read.
pub(crate) fn changes(sql: &str) -> bool {
    let word = sql
        .trim_start()
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    [
        "INSERT", "DELETE", "CREATE", "ALTER", "DROP", "SET", "RESET",
    ]
    .iter()
    .any(|changes| word.eq_ignore_ascii_case(changes))
}

/// Error: the session has no rights to read.
pub(crate) fn asks_nothing() -> Error {
    Error::forbidden(
        "this session may read nothing, so it runs no statement that asks for something",
    )
    .with_hint("give the token a rule to read, see `headwater token create`")
}

/// Refuses a statement that reads if the session has no rights to read.
fn check_asking(session: &Session, statement: &Parsed) -> Result<()> {
    let rights = match session.access.asks() {
        true => Rights::Reads,
        false => Rights::WritesOnly,
    };
    check_rights(rights, statement)
}

/// Refuses a parsed statement that reads if the session may only write.
fn check_rights(rights: Rights, statement: &Parsed) -> Result<()> {
    if rights == Rights::Reads {
        return Ok(());
    }
    let rows = |insert: &ast::Insert| {
        let source = insert.source.as_deref().map(|query| &*query.body);
        matches!(source, Some(ast::SetExpr::Values(_)))
    };
    match &statement.kind {
        Kind::Insert(insert, None) if rows(insert) => Ok(()),
        Kind::Delete(_)
        | Kind::Create(_)
        | Kind::Alter(_)
        | Kind::Drop { .. }
        | Kind::DropView { .. }
        | Kind::CreateIndex(_)
        | Kind::DropIndex { .. }
        | Kind::Snapshots(About::Create { .. } | About::Drop { .. })
        | Kind::Watches(AboutWatch::Drop { .. })
        | Kind::Set(..)
        | Kind::Reset(_) => Ok(()),
        _ => Err(asks_nothing()),
    }
}

/// Runs a statement.
pub(crate) async fn run(
    session: &Session,
    statement: Parsed,
    parameters: Parameters,
) -> Result<Answer> {
    check_asking(session, &statement)?;
    let large = statement.is_large();
    let own = session.clone();
    let count = statement.written.count;
    match statement.kind {
        Kind::Select(parsed) => {
            let text = Some(statement.text);
            let query = (parsed, statement.labels, text, Done::Select);
            run_query(session, large, query, (parameters, count)).await
        }
        Kind::Explain(parsed) => {
            let query = (parsed, Labels::default(), None, Done::Explained);
            run_query(session, large, query, (parameters, count)).await
        }
        Kind::ShowColumns(parsed) => {
            let query = (parsed, Labels::default(), None, Done::Shown);
            run_query(session, large, query, (parameters, count)).await
        }
        Kind::Insert(insert, Some(returning)) => {
            let begun = own.clone();
            let begin = async move {
                returning::begin(&begun, *insert, *returning, (parameters, count)).await
            };
            let held = returning::buffer(session.planned(large, begin).await?).await?;
            let ask = async move { returning::ask(&own, held).await };
            let (held, answer) = session.planned(large, ask).await?;
            returning::finish(held, answer).await
        }
        Kind::Insert(insert, None) => {
            let begin = async move { insert::begin(&own, *insert, (parameters, count)).await };
            insert::finish(session.planned(large, begin).await?).await
        }
        Kind::Delete(delete) => {
            let begin = async move { delete::begin(&own, *delete, (parameters, count)).await };
            delete::finish(session.planned(large, begin).await?).await
        }
        _ if !parameters.values().is_empty() => Err(Error::parameters(
            "a statement of this kind has no parameters",
        )),
        kind => run_utility(session, kind, statement.text, large).await,
    }
}

/// Runs a statement that reads, with the labels of its columns, the text for caching its plan, and
/// its kind of answer.
async fn run_query(
    session: &Session,
    large: bool,
    (parsed, labels, text, done): (Parse, Labels, Option<String>, Done),
    (parameters, count): (Parameters, usize),
) -> Result<Answer> {
    let own = session.clone();
    let run = async move {
        let request = select::RunRequest {
            labels: &labels,
            text: text.as_deref(),
            parameters,
            count,
            done,
            view: Arc::new(own.view()?),
        };
        select::run(&own, parsed, request).await
    };
    session.planned(large, run).await
}

/// Runs a statement that neither reads nor writes rows: definitions, settings, lists.
async fn run_utility(session: &Session, kind: Kind, text: String, large: bool) -> Result<Answer> {
    let own = session.clone();
    match kind {
        Kind::Describe(name) => show::describe(session, &name),
        Kind::ShowTables(filter) => show::tables(session, filter),
        Kind::ShowSetting(name) => setting::show(session, &name),
        Kind::Set(name, value) => setting::set(session, &name, Some(&value)),
        Kind::Reset(name) => setting::set(session, &name, None),
        Kind::Create(create) => create::run(session, *create).await,
        Kind::Alter(alter) => alter::run(session, *alter).await,
        Kind::Drop { names, if_exists } => create::drop(session, &names, if_exists).await,
        Kind::CreateView(view) => {
            let create = async move { views::create(&own, &view, text).await };
            session.planned(large, create).await
        }
        Kind::DropView { names, if_exists } => views::drop(session, &names, if_exists).await,
        Kind::CreateIndex(index) => indexes::create(session, *index).await,
        Kind::DropIndex { names, if_exists } => indexes::drop(session, &names, if_exists).await,
        Kind::ShowIndexes(table) => indexes::list(session, table).await,
        Kind::Snapshots(about) => snapshots::run(session, about).await,
        Kind::Watches(about) => watches::run(session, about, text).await,
        Kind::ShowViews => {
            let show = async move { views::show(&own).await };
            session.planned(true, show).await
        }
        _ => Err(Error::internal("a kind of statement without its work")),
    }
}

/// Runs a statement that was parsed before.
pub(crate) async fn run_described(
    session: &Session,
    view: Arc<View>,
    described: Arc<Described>,
    parameters: Parameters,
) -> Result<Answer> {
    match &described.statement.kind {
        Kind::Select(_) => {
            let large = described.statement.is_large();
            let own = session.clone();
            let run =
                async move { select::run_described(&own, view, &described, parameters).await };
            session.planned(large, run).await
        }
        _ => {
            let mut statement = described.statement.clone();
            statement.written.count = described.parameters.len();
            run(session, statement, parameters).await
        }
    }
}

/// The types of a statement's parameters and the columns of its answer.
pub(crate) async fn describe(
    session: &Session,
    statement: &Parsed,
    types: &[Option<DataType>],
) -> Result<Shape> {
    check_asking(session, statement)?;
    let shown = |schema| Ok(Shape::new(Vec::new(), schema, Done::Shown));
    let nothing = |done| Ok(Shape::new(Vec::new(), no_columns(), done));
    let written = &statement.written;
    let none = &Labels::default();
    let asking = |labels, text, done| select::DescribeRequest {
        labels,
        text,
        types,
        written,
        done,
    };
    match &statement.kind {
        Kind::Select(parsed) => {
            let request = asking(
                &statement.labels,
                Some(statement.text.as_str()),
                Done::Select,
            );
            select::describe(session, parsed.clone(), request).await
        }
        Kind::Explain(parsed) => {
            let request = asking(none, None, Done::Explained);
            select::describe(session, parsed.clone(), request).await
        }
        Kind::ShowColumns(parsed) => {
            select::describe(session, parsed.clone(), asking(none, None, Done::Shown)).await
        }
        Kind::Insert(insert, None) => insert::describe(session, insert, types, written).await,
        Kind::Insert(insert, Some(returning)) => {
            let mut shape = insert::describe(session, insert, types, written).await?;
            let columns = returning::columns(session, returning.as_ref().clone()).await?;
            let schema = columns.schema().inner();
            shape.schema = names::without_marks(schema).unwrap_or_else(|| Arc::clone(schema));
            shape.done = Done::Returned(Stored::default());
            Ok(shape)
        }
        Kind::Delete(delete) => delete::describe(session, delete, types, written).await,
        Kind::Describe(_) => shown(show::describe_schema()),
        Kind::ShowTables(_) => shown(show::tables_schema()),
        Kind::ShowSetting(name) => shown(setting::schema(name)),
        Kind::Set(..) | Kind::Reset(_) => nothing(Done::Set),
        Kind::Create(_) => nothing(Done::Created(Made::Table)),
        Kind::CreateView(_) => nothing(Done::Created(Made::View)),
        Kind::CreateIndex(_) => nothing(Done::Created(Made::Index)),
        Kind::Alter(_) => nothing(Done::Altered),
        Kind::Drop { .. } => nothing(Done::Dropped(Made::Table)),
        Kind::DropView { .. } => nothing(Done::Dropped(Made::View)),
        Kind::DropIndex { .. } => nothing(Done::Dropped(Made::Index)),
        Kind::ShowIndexes(_) => shown(indexes::schema()),
        Kind::Snapshots(About::Show) => shown(snapshots::schema()),
        Kind::Snapshots(About::Create { .. }) => nothing(Done::Created(Made::Snapshot)),
        Kind::Snapshots(About::Drop { .. }) => nothing(Done::Dropped(Made::Snapshot)),
        Kind::ShowViews => shown(views::schema()),
        Kind::Watches(AboutWatch::Show) => shown(watches::schema()),
        Kind::Watches(AboutWatch::Create(_)) => nothing(Done::Created(Made::Watch)),
        Kind::Watches(AboutWatch::Drop { .. }) => nothing(Done::Dropped(Made::Watch)),
        Kind::Text => Err(Error::internal("a statement was described by its text")),
    }
}

/// Runs work that may wait for I/O outside of the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::internal(format!(
            "a statement's work ended: {error}"
        ))),
    }
}

/// Byte offset of a line and a column in a text, both from 1.
pub(crate) fn offset_of(text: &str, (line, column): (u64, u64)) -> usize {
    let mut at = (1, 1);
    for (offset, c) in text.char_indices() {
        if at >= (line, column) {
            return offset;
        }
        at = match c {
            '\n' => (at.0 + 1, 1),
            _ => (at.0, at.1 + 1),
        };
    }
    text.len()
}

/// Splits a text of several statements at its semicolons.
pub(crate) fn split(sql: &str) -> Result<Vec<String>> {
    // Positions are sorted, so that each character is visited once.
    let mut at = (1, 1);
    let mut chars = sql.char_indices();
    let mut offset = |line: u64, column: u64| -> usize {
        while at < (line, column) {
            match chars.next() {
                Some((_, '\n')) => at = (at.0 + 1, 1),
                Some(_) => at.1 += 1,
                None => return sql.len(),
            }
        }
        sql.len() - chars.as_str().len()
    };
    let mut out = Vec::new();
    let mut from = 0;
    let mut empty = true;
    for token in complexity::tokens(sql)? {
        match token.token {
            Token::SemiColon => {
                let to = offset(token.span.start.line, token.span.start.column);
                if !empty {
                    out.push(sql.get(from..to).unwrap_or_default().trim().to_owned());
                }
                from = to + 1;
                empty = true;
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => empty = false,
        }
    }
    if !empty {
        out.push(sql.get(from..).unwrap_or_default().trim().to_owned());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_text_is_cut_where_statements_end() {
        let text = "SELECT 'a;b' -- c;\n ; ;\nSELECT \"ä;\" /* ; */; SELECT 3";
        assert_eq!(
            split(text).unwrap(),
            ["SELECT 'a;b' -- c;", "SELECT \"ä;\" /* ; */", "SELECT 3"]
        );
        assert!(split(" ;; -- nothing\n").unwrap().is_empty());
        assert_eq!(split("SELECT 'open").unwrap_err().code, "syntax_error");
        let many = "SELECT 'ä';".repeat(50_000);
        assert_eq!(split(&many).unwrap().len(), 50_000);
    }

    #[test]
    fn other_statements_are_refused_by_name() {
        for (sql, name) in [
            ("UPDATE t SET a = 1", "UPDATE"),
            ("CREATE SEQUENCE s", "CREATE SEQUENCE"),
            ("COPY (SELECT 1) TO '/tmp/x.csv'", "COPY"),
            (
                "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
                "CREATE EXTERNAL TABLE",
            ),
            ("TRUNCATE t", "TRUNCATE"),
            ("BEGIN", "BEGIN"),
            ("EXPLAIN INSERT INTO t VALUES (1)", "EXPLAIN of INSERT"),
        ] {
            let error = parse(sql, None).unwrap_err();
            assert_eq!(error.code, "unsupported_statement", "{sql}");
            assert!(error.message.starts_with(name), "{sql}: {}", error.message);
        }
    }

    #[test]
    fn what_would_be_left_out_is_refused() {
        for (sql, name) in [
            ("SELECT * FROM t FOR UPDATE", "SELECT … FOR UPDATE"),
            (
                "SELECT * FROM (SELECT * FROM t FOR UPDATE) s",
                "SELECT … FOR UPDATE",
            ),
            ("SELECT a FROM t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
            (
                "EXPLAIN SELECT a FROM t TABLESAMPLE BERNOULLI (1)",
                "TABLESAMPLE",
            ),
            (
                "INSERT INTO u SELECT * FROM t TABLESAMPLE SYSTEM (10)",
                "TABLESAMPLE",
            ),
            ("SELECT a FROM t CONNECT BY PRIOR a = b", "CONNECT BY"),
        ] {
            let error = parse(sql, None).unwrap_err();
            assert_eq!(error.code, "unsupported_statement", "{sql}");
            assert!(error.message.starts_with(name), "{sql}: {}", error.message);
        }
        // PostgreSQL's patterns would be returned unchanged.
        let error = parse("SELECT a, To_Char(time, 'YYYY-MM-DD') FROM t", None).unwrap_err();
        assert_eq!(error.code, "invalid_value");
        assert!(error.message.contains("found 'YYYY-MM-DD'"), "{error}");
        for sql in [
            "SELECT to_char(time, '%Y-%m-%d') FROM t",
            "SELECT to_char(time, pattern) FROM t",
            "SELECT 'YYYY' FROM t AS final",
        ] {
            assert!(parse(sql, None).is_ok(), "{sql}");
        }
    }
}
