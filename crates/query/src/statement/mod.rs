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
mod parser;
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
pub(crate) use parser::{parse, split};
pub(crate) use views::described as described_views;
pub use watches::{Look, Watch};

use crate::answer::{Answer, ObjectKind, Outcome, Stored};
use crate::complexity;
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::parsed::{Parsed, StatementKind};
use crate::plan_cache::{DescribedStatement, PlanKey};
use crate::rewrites::names::{self, Labels};
use crate::session::{Session, no_columns};
use crate::syntax::{About, AboutWatch};
use crate::view::View;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// Properties of a statement that are known without running it.
pub(crate) struct Shape {
    pub(crate) parameters: Vec<DataType>,
    pub(crate) schema: SchemaRef,
    pub(crate) outcome: Outcome,
    /// The logical plan with the key for which it is valid, if it can be cached.
    pub(crate) generic_plan: Option<(PlanKey, LogicalPlan)>,
}

impl Shape {
    fn new(parameters: Vec<DataType>, schema: SchemaRef, outcome: Outcome) -> Shape {
        Shape {
            parameters,
            schema,
            outcome,
            generic_plan: None,
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
        match session.access.may_query() {
            true => Ok(Rights::Reads),
            false if changes(sql) => Ok(Rights::WritesOnly),
            false => Err(no_right_to_read()),
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
        if statement.is_large() || !matches!(statement.kind, StatementKind::Select(_)) {
            return Ok(Step::Read(Box::new(statement), parameters));
        }
        check_rights(rights, &statement)?;
        let (labels, count) = (statement.labels, statement.written.count);
        let StatementKind::Select(parsed) = statement.kind else {
            return Err(Error::internal("a query that is none"));
        };
        let request = select::RunRequest {
            labels: &labels,
            text: Some(&text),
            parameters,
            count,
            outcome: Outcome::Select,
            view,
        };
        let ran = select::run(&own, parsed, request).await?;
        Ok(Step::Ran(ran))
    };
    session
        .planned(sql.len() > complexity::LONG_TEXT, work)
        .await
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
pub(crate) fn no_right_to_read() -> Error {
    Error::forbidden("this session has no right to read anything, and so cannot run queries")
        .with_hint("give the token a rule to read, see `headwater token create`")
}

/// Refuses a statement that reads if the session has no rights to read.
fn check_may_read(session: &Session, statement: &Parsed) -> Result<()> {
    let rights = match session.access.may_query() {
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
        StatementKind::Insert(insert, None) if rows(insert) => Ok(()),
        StatementKind::Delete(_)
        | StatementKind::Create(_)
        | StatementKind::Alter(_)
        | StatementKind::Drop { .. }
        | StatementKind::DropView { .. }
        | StatementKind::CreateIndex(_)
        | StatementKind::DropIndex { .. }
        | StatementKind::Snapshots(About::Create { .. } | About::Drop { .. })
        | StatementKind::Watches(AboutWatch::Drop { .. })
        | StatementKind::Set(..)
        | StatementKind::Reset(_) => Ok(()),
        _ => Err(no_right_to_read()),
    }
}

/// Runs a statement.
pub(crate) async fn run(
    session: &Session,
    statement: Parsed,
    parameters: Parameters,
) -> Result<Answer> {
    check_may_read(session, &statement)?;
    let large = statement.is_large();
    let own = session.clone();
    let count = statement.written.count;
    match statement.kind {
        StatementKind::Select(parsed) => {
            let text = Some(statement.text);
            let query = (parsed, statement.labels, text, Outcome::Select);
            run_query(session, large, query, (parameters, count)).await
        }
        StatementKind::Explain(parsed) => {
            let query = (parsed, Labels::default(), None, Outcome::Explained);
            run_query(session, large, query, (parameters, count)).await
        }
        StatementKind::ShowColumns(parsed) => {
            let query = (parsed, Labels::default(), None, Outcome::Shown);
            run_query(session, large, query, (parameters, count)).await
        }
        StatementKind::Insert(insert, Some(returning)) => {
            let begun = own.clone();
            let begin = async move {
                returning::begin(&begun, *insert, *returning, (parameters, count)).await
            };
            let held = returning::buffer(session.planned(large, begin).await?).await?;
            let ask = async move { returning::plan_returning(&own, held).await };
            let (held, answer) = session.planned(large, ask).await?;
            returning::finish(held, answer).await
        }
        StatementKind::Insert(insert, None) => {
            let begin = async move { insert::begin(&own, *insert, (parameters, count)).await };
            insert::finish(session.planned(large, begin).await?).await
        }
        StatementKind::Delete(delete) => {
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
    (parsed, labels, text, outcome): (Parse, Labels, Option<String>, Outcome),
    (parameters, count): (Parameters, usize),
) -> Result<Answer> {
    let own = session.clone();
    let run = async move {
        let request = select::RunRequest {
            labels: &labels,
            text: text.as_deref(),
            parameters,
            count,
            outcome,
            view: Arc::new(own.view()?),
        };
        select::run(&own, parsed, request).await
    };
    session.planned(large, run).await
}

/// Runs a statement that neither reads nor writes rows: definitions, settings, lists.
async fn run_utility(
    session: &Session,
    kind: StatementKind,
    text: String,
    large: bool,
) -> Result<Answer> {
    let own = session.clone();
    match kind {
        StatementKind::Describe(name) => show::describe(session, &name),
        StatementKind::ShowTables(filter) => show::tables(session, filter),
        StatementKind::ShowSetting(name) => setting::show(session, &name),
        StatementKind::Set(name, value) => setting::set(session, &name, Some(&value)),
        StatementKind::Reset(name) => setting::set(session, &name, None),
        StatementKind::Create(create) => create::run(session, *create).await,
        StatementKind::Alter(alter) => alter::run(session, *alter).await,
        StatementKind::Drop { names, if_exists } => create::drop(session, &names, if_exists).await,
        StatementKind::CreateView(view) => {
            let create = async move { views::create(&own, &view, text).await };
            session.planned(large, create).await
        }
        StatementKind::DropView { names, if_exists } => {
            views::drop(session, &names, if_exists).await
        }
        StatementKind::CreateIndex(index) => indexes::create(session, *index).await,
        StatementKind::DropIndex { names, if_exists } => {
            indexes::drop(session, &names, if_exists).await
        }
        StatementKind::ShowIndexes(table) => indexes::list(session, table).await,
        StatementKind::Snapshots(about) => snapshots::run(session, about).await,
        StatementKind::Watches(about) => watches::run(session, about, text).await,
        StatementKind::ShowViews => {
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
    described: Arc<DescribedStatement>,
    parameters: Parameters,
) -> Result<Answer> {
    match &described.statement.kind {
        StatementKind::Select(_) => {
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
    check_may_read(session, statement)?;
    let shown = |schema| Ok(Shape::new(Vec::new(), schema, Outcome::Shown));
    let nothing = |done| Ok(Shape::new(Vec::new(), no_columns(), done));
    let written = &statement.written;
    let none = &Labels::default();
    let asking = |labels, text, outcome| select::DescribeRequest {
        labels,
        text,
        types,
        written,
        outcome,
    };
    match &statement.kind {
        StatementKind::Select(parsed) => {
            let request = asking(
                &statement.labels,
                Some(statement.text.as_str()),
                Outcome::Select,
            );
            select::describe(session, parsed.clone(), request).await
        }
        StatementKind::Explain(parsed) => {
            let request = asking(none, None, Outcome::Explained);
            select::describe(session, parsed.clone(), request).await
        }
        StatementKind::ShowColumns(parsed) => {
            select::describe(session, parsed.clone(), asking(none, None, Outcome::Shown)).await
        }
        StatementKind::Insert(insert, None) => {
            insert::describe(session, insert, types, written).await
        }
        StatementKind::Insert(insert, Some(returning)) => {
            let mut shape = insert::describe(session, insert, types, written).await?;
            let columns = returning::columns(session, returning.as_ref().clone()).await?;
            let schema = columns.schema().inner();
            shape.schema = names::without_marks(schema).unwrap_or_else(|| Arc::clone(schema));
            shape.outcome = Outcome::Returned(Stored::default());
            Ok(shape)
        }
        StatementKind::Delete(delete) => delete::describe(session, delete, types, written).await,
        StatementKind::Describe(_) => shown(show::describe_schema()),
        StatementKind::ShowTables(_) => shown(show::tables_schema()),
        StatementKind::ShowSetting(name) => shown(setting::schema(name)),
        StatementKind::Set(..) | StatementKind::Reset(_) => nothing(Outcome::Set),
        StatementKind::Create(_) => nothing(Outcome::Created(ObjectKind::Table)),
        StatementKind::CreateView(_) => nothing(Outcome::Created(ObjectKind::View)),
        StatementKind::CreateIndex(_) => nothing(Outcome::Created(ObjectKind::Index)),
        StatementKind::Alter(_) => nothing(Outcome::Altered),
        StatementKind::Drop { .. } => nothing(Outcome::Dropped(ObjectKind::Table)),
        StatementKind::DropView { .. } => nothing(Outcome::Dropped(ObjectKind::View)),
        StatementKind::DropIndex { .. } => nothing(Outcome::Dropped(ObjectKind::Index)),
        StatementKind::ShowIndexes(_) => shown(indexes::schema()),
        StatementKind::Snapshots(About::Show) => shown(snapshots::schema()),
        StatementKind::Snapshots(About::Create { .. }) => {
            nothing(Outcome::Created(ObjectKind::Snapshot))
        }
        StatementKind::Snapshots(About::Drop { .. }) => {
            nothing(Outcome::Dropped(ObjectKind::Snapshot))
        }
        StatementKind::ShowViews => shown(views::schema()),
        StatementKind::Watches(AboutWatch::Show) => shown(watches::schema()),
        StatementKind::Watches(AboutWatch::Create(_)) => {
            nothing(Outcome::Created(ObjectKind::Watch))
        }
        StatementKind::Watches(AboutWatch::Drop { .. }) => {
            nothing(Outcome::Dropped(ObjectKind::Watch))
        }
        StatementKind::Text => Err(Error::internal("a statement was described by its text")),
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
