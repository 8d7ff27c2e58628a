//! What a session may say: each kind of statement, and a clear refusal of every other.
//!
//! Invariants: nothing is planned or run that is not named here; what changes the database asks the session's access first.

mod alter;
mod copy;
mod create;
mod delete;
mod insert;
mod refuse;
mod select;
mod setting;
mod show;
mod types;
mod zone;

pub use copy::CopyIn;

use crate::answer::{Answer, Done};
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::plans::PlanKey;
use crate::prepared::Described;
use crate::session::{Extension, Session, no_columns};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, Statement as Parse};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

/// A statement that was read.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    /// As it was written.
    text: String,
    kind: Kind,
}

impl Parsed {
    /// The statement as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// What is known of a statement without running it.
pub(crate) struct Shape {
    pub(crate) parameters: Vec<DataType>,
    pub(crate) schema: SchemaRef,
    pub(crate) done: Done,
    /// What it means to the planner, and for whom, where that lasts.
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

#[derive(Clone, Debug)]
enum Kind {
    /// `SELECT`, `VALUES`, `WITH`.
    Select(Parse),
    Explain(Parse),
    Describe(ast::ObjectName),
    ShowTables(Option<ast::ShowStatementFilterPosition>),
    ShowColumns(Parse),
    ShowSetting(String),
    Set(String, String),
    Reset(String),
    Insert(Box<ast::Insert>),
    Delete(Box<ast::Delete>),
    Create(Box<ast::CreateTable>),
    Alter(Box<ast::AlterTable>),
    Drop {
        names: Vec<ast::ObjectName>,
        if_exists: bool,
    },
}

/// How deep brackets and sub-queries may be nested.
const DEPTH_MAX: usize = 50;
/// How many operators may stand in a row: a chain of them becomes a tree as deep as it is long. Comparisons count between
/// connectives.
const CHAIN_MAX: usize = 500;
/// Longer chains and more brackets within each other than these are planned on a stack of their own.
const SHALLOW_CHAIN: usize = 16;
const SHALLOW_BRACKETS: usize = 8;

fn tokens(sql: &str) -> Result<Vec<datafusion::sql::sqlparser::tokenizer::TokenWithSpan>> {
    Tokenizer::new(&PostgreSqlDialect {}, sql)
        .tokenize_with_location()
        .map_err(|error| {
            let place = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
            Error::syntax(error.message)
                .located(place(error.location.line).zip(place(error.location.column)))
        })
}

/// Operators that follow each other within a pair of brackets.
#[derive(Clone, Copy, Default)]
struct Chain {
    connectives: usize,
    comparisons: usize,
}

/// What a word or sign does to the chain it stands in.
enum Link {
    Opens,
    Closes,
    Ends,
    Connects,
    Compares,
    Nothing,
}

fn link(token: &Token) -> Link {
    match token {
        Token::LParen | Token::LBracket => Link::Opens,
        Token::RParen | Token::RBracket => Link::Closes,
        Token::Comma | Token::SemiColon => Link::Ends,
        Token::Word(word) if word.quote_style.is_none() => {
            match word.value.to_ascii_uppercase().as_str() {
                "AND" | "OR" | "UNION" | "EXCEPT" | "INTERSECT" | "JOIN" => Link::Connects,
                "NOT" | "LIKE" | "ILIKE" | "SIMILAR" | "IS" | "IN" | "BETWEEN" => Link::Compares,
                _ => Link::Nothing,
            }
        }
        Token::Word(_)
        | Token::Number(..)
        | Token::Char(_)
        | Token::SingleQuotedString(_)
        | Token::Whitespace(_)
        | Token::Period
        | Token::EOF => Link::Nothing,
        Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq => {
            Link::Compares
        }
        _ => Link::Connects,
    }
}

/// True when a statement is to be planned on a deep stack; what would be too deep for that too is refused.
pub(crate) fn is_deep(sql: &str) -> Result<bool> {
    let mut chains = vec![Chain::default()];
    let mut deep = false;
    for token in tokens(sql)? {
        let link = link(&token.token);
        match link {
            Link::Opens => chains.push(Chain::default()),
            Link::Closes if chains.len() > 1 => {
                chains.pop();
            }
            _ => {}
        }
        let Some(chain) = chains.last_mut() else {
            continue;
        };
        match link {
            Link::Ends => *chain = Chain::default(),
            Link::Connects => {
                chain.connectives += 1;
                chain.comparisons = 0;
            }
            Link::Compares => chain.comparisons += 1,
            _ => {}
        }
        let length = chain.connectives.max(chain.comparisons);
        if length > CHAIN_MAX {
            let place = |n: u64| u32::try_from(n).ok();
            let at = place(token.span.start.line).zip(place(token.span.start.column));
            let error =
                Error::too_large(format!("more than {CHAIN_MAX} operators follow each other"));
            return Err(error
                .with_hint("write a long list of alternatives as IN (…)")
                .located(at));
        }
        deep |= length > SHALLOW_CHAIN || chains.len() > SHALLOW_BRACKETS;
    }
    Ok(deep)
}

/// Reads one statement.
pub(crate) fn parse(sql: &str, extension: Option<&dyn Extension>) -> Result<Parsed> {
    let mut statements = DFParserBuilder::new(sql)
        .with_dialect(&PostgreSqlDialect {})
        .with_recursion_limit(DEPTH_MAX)
        .build()?
        .parse_statements()?;
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
    zone::call_by_name(&mut statement);
    Ok(Parsed {
        text: sql.to_owned(),
        kind: kind(statement)?,
    })
}

fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::unsupported_statement(format!("{what} is not supported"))
}

/// The first words of a statement, to name it.
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
        ast::Statement::ShowVariable { variable } => Kind::ShowSetting(setting::shown(&variable)),
        ast::Statement::Set(set) => {
            let (name, value) = setting::assignment(set)?;
            Kind::Set(name, value)
        }
        ast::Statement::Insert(insert) => Kind::Insert(Box::new(insert)),
        ast::Statement::Delete(delete) => Kind::Delete(Box::new(delete)),
        ast::Statement::CreateTable(create) => Kind::Create(Box::new(create)),
        ast::Statement::AlterTable(alter) => Kind::Alter(Box::new(alter)),
        ast::Statement::Drop {
            object_type: ast::ObjectType::Table,
            names,
            if_exists,
            ..
        } => Kind::Drop { names, if_exists },
        ast::Statement::Update(_) => {
            return Err(unsupported("UPDATE").with_hint(
                "insert a row with the same tags and time: the newer value of a field wins",
            ));
        }
        other => return Err(unsupported(beginning(&other))),
    })
}

/// Runs a statement.
pub(crate) async fn run(
    session: &Session,
    statement: Parsed,
    parameters: Parameters,
) -> Result<Answer> {
    let none = |parameters: &Parameters| {
        if parameters.values().is_empty() {
            return Ok(());
        }
        Err(Error::parameters(
            "a statement of this kind has no parameters",
        ))
    };
    match statement.kind {
        Kind::Select(parsed) => {
            let text = Some(statement.text.as_str());
            select::run(session, parsed, text, parameters, Done::Select).await
        }
        Kind::Explain(parsed) => {
            select::run(session, parsed, None, parameters, Done::Explained).await
        }
        Kind::ShowColumns(parsed) => {
            select::run(session, parsed, None, parameters, Done::Shown).await
        }
        Kind::Insert(insert) => insert::run(session, *insert, parameters).await,
        Kind::Delete(delete) => delete::run(session, *delete, parameters).await,
        other => {
            none(&parameters)?;
            match other {
                Kind::Describe(name) => show::describe(session, &name),
                Kind::ShowTables(filter) => show::tables(session, filter),
                Kind::ShowSetting(name) => setting::show(session, &name),
                Kind::Set(name, value) => setting::set(session, &name, Some(&value)),
                Kind::Reset(name) => setting::set(session, &name, None),
                Kind::Create(create) => create::run(session, *create).await,
                Kind::Alter(alter) => alter::run(session, *alter).await,
                Kind::Drop { names, if_exists } => create::drop(session, &names, if_exists).await,
                _ => Err(Error::internal("a kind of statement without its work")),
            }
        }
    }
}

/// Runs a statement that was read before.
pub(crate) async fn run_described(
    session: &Session,
    described: &Described,
    parameters: Parameters,
) -> Result<Answer> {
    match &described.statement.kind {
        Kind::Select(parsed) => {
            select::run_described(session, parsed.clone(), described, parameters).await
        }
        _ => run(session, described.statement.clone(), parameters).await,
    }
}

/// The types of a statement's parameters and the columns of its answer.
pub(crate) async fn describe(
    session: &Session,
    statement: &Parsed,
    types: &[Option<DataType>],
) -> Result<Shape> {
    let shown = |schema| Ok(Shape::new(Vec::new(), schema, Done::Shown));
    let nothing = |done| Ok(Shape::new(Vec::new(), no_columns(), done));
    let text = Some(statement.text.as_str());
    match &statement.kind {
        Kind::Select(statement) => {
            select::describe(session, statement.clone(), text, types, Done::Select).await
        }
        Kind::Explain(statement) => {
            select::describe(session, statement.clone(), None, types, Done::Explained).await
        }
        Kind::ShowColumns(statement) => {
            select::describe(session, statement.clone(), None, types, Done::Shown).await
        }
        Kind::Insert(insert) => insert::describe(session, insert, types).await,
        Kind::Delete(delete) => delete::describe(session, delete, types).await,
        Kind::Describe(_) => shown(show::describe_schema()),
        Kind::ShowTables(_) => shown(show::tables_schema()),
        Kind::ShowSetting(name) => shown(setting::schema(name)),
        Kind::Set(..) | Kind::Reset(_) => nothing(Done::Set),
        Kind::Create(_) => nothing(Done::Created),
        Kind::Alter(_) => nothing(Done::Altered),
        Kind::Drop { .. } => nothing(Done::Dropped),
    }
}

/// Does what may wait for I/O away from the runtime's threads.
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

/// The table that a name means: the last part; the parts before must be the catalog and schema there are.
pub(crate) fn table_name(name: &ast::ObjectName) -> Result<String> {
    let mut parts = Vec::new();
    for part in &name.0 {
        match part.as_ident() {
            Some(ident) if ident.quote_style.is_some() => parts.push(ident.value.clone()),
            Some(ident) => parts.push(ident.value.to_lowercase()),
            None => return Err(Error::syntax(format!("`{name}` is no name of a table"))),
        }
    }
    let known = [crate::CATALOG, crate::SCHEMA];
    let before = parts.len().saturating_sub(1);
    let right = match before {
        0 => true,
        1 => parts.first().is_some_and(|p| p == crate::SCHEMA),
        2 => parts.iter().take(2).eq(known.iter()),
        _ => false,
    };
    match parts.pop() {
        Some(table) if right => Ok(table),
        _ => Err(unknown_table(&name.to_string())),
    }
}

pub(crate) fn unknown_table(name: &str) -> Error {
    Error::unknown_table(format!("there is no table `{name}`"))
}

/// Takes a text of several statements apart at its semicolons.
pub(crate) fn split(sql: &str) -> Result<Vec<String>> {
    let mut starts = vec![0usize];
    for (offset, _) in sql.match_indices('\n') {
        starts.push(offset + 1);
    }
    let offset = |at: Location| -> usize {
        let line = usize::try_from(at.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let start = starts.get(line).copied().unwrap_or(sql.len());
        let column = usize::try_from(at.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let rest = sql.get(start..).unwrap_or_default();
        start
            + rest
                .char_indices()
                .nth(column)
                .map_or(rest.len(), |(o, _)| o)
    };
    let mut out = Vec::new();
    let mut from = 0;
    let mut empty = true;
    for token in tokens(sql)? {
        match token.token {
            Token::SemiColon => {
                let to = offset(token.span.start);
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
    }

    #[test]
    fn what_would_be_too_deep_is_refused_before_it_is_planned() {
        let chain = format!("SELECT 1{}", " + 1".repeat(501));
        assert_eq!(is_deep(&chain).unwrap_err().code, "too_large");
        let chain = format!("SELECT 1{}", " = 1".repeat(501));
        assert_eq!(is_deep(&chain).unwrap_err().code, "too_large");
        let nested = format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000));
        assert_eq!(parse(&nested, None).unwrap_err().code, "too_large");
        let list = format!("SELECT 1 IN (1{})", ", -1".repeat(5_000));
        assert_eq!(is_deep(&list), Ok(false));
        assert!(parse(&list, None).is_ok());
        assert_eq!(is_deep(&format!("SELECT 1{}", " + 1".repeat(17))), Ok(true));
    }

    #[test]
    fn other_statements_are_refused_by_name() {
        for (sql, name) in [
            ("UPDATE t SET a = 1", "UPDATE"),
            ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
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
        // PostgreSQL's patterns would come back as they are.
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
