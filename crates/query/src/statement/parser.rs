//! Reading statements: a text is split at its semicolons, parsed, and rewritten to the forms that
//! the planner takes.
//!
//! Invariants: a statement that is not named here is refused with its first words. Concurrency:
//! plain functions. Failure: an error says what is not supported, and what to use instead.

use super::refuse::unsupported;
use super::{indexes, order, refuse, setting, using, zone};
use crate::complexity::{self, Counted};
use crate::error::{Error, Result};
use crate::extension::Extension;
use crate::parsed::{Parsed, StatementKind};
use crate::placeholders::Written;
use crate::rewrites::{self, names::Labels};
use crate::syntax;
use datafusion::sql::parser::{DFParserBuilder, ParserInput, Statement as Parse};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

/// Parses one statement.
pub(crate) fn parse(sql: &str, extension: Option<&dyn Extension>) -> Result<Parsed> {
    let tokens = complexity::tokens(sql)?;
    let weight = complexity::weigh_tokens(sql, &tokens)?;
    let named = syntax::about(&tokens)?.map(StatementKind::Snapshots);
    let named = match named {
        Some(named) => Some(named),
        None => syntax::about_watch(sql, &tokens)?.map(StatementKind::Watches),
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
        return Err(Error::syntax("the statement is empty"));
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
            ast::Statement::Insert(insert) => take_returning(insert),
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
    if let (StatementKind::Insert(_, request), Some(query)) = (&mut kind, returning) {
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

/// Removes `RETURNING` from a statement, as a query over the table it writes.
fn take_returning(insert: &mut ast::Insert) -> Option<String> {
    let items = insert.returning.take()?;
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    // Only this list can use the table's alias.
    let alias = insert.table_alias.take();
    let alias = alias.map_or_else(String::new, |own| format!(" AS {}", own.alias));
    Some(format!(
        "SELECT {} FROM {}{alias}",
        items.join(", "),
        insert.table
    ))
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

/// The kind of a statement; an error for statements that are not supported.
fn kind(statement: Parse) -> Result<StatementKind> {
    let sql = match statement {
        Parse::Statement(sql) => sql,
        Parse::Explain(ref explain) => {
            return match &*explain.statement {
                Parse::Statement(inner) if matches!(**inner, ast::Statement::Query(_)) => {
                    refuse::left_out(inner)?;
                    Ok(StatementKind::Explain(statement))
                }
                other => Err(unsupported(format!("EXPLAIN of {}", beginning(other)))),
            };
        }
        Parse::Reset(reset) => {
            let datafusion::sql::parser::ResetStatement::Variable(name) = reset;
            return Ok(StatementKind::Reset(setting::name(&name)));
        }
        Parse::CopyTo(_) => {
            return Err(unsupported("COPY … TO a file of the server")
                .with_hint("export with `headwater export` or /api/v1/export"));
        }
        Parse::CreateExternalTable(_) => {
            return Err(unsupported("CREATE EXTERNAL TABLE")
                .with_hint("read files with `headwater import`"));
        }
    };
    refuse::left_out(&sql)?;
    Ok(match *sql {
        ast::Statement::Query(_) => StatementKind::Select(Parse::Statement(sql)),
        ast::Statement::ExplainTable { table_name, .. } => StatementKind::Describe(table_name),
        ast::Statement::ShowTables { show_options, .. } => {
            StatementKind::ShowTables(show_options.filter_position)
        }
        ast::Statement::ShowColumns { .. } => StatementKind::ShowColumns(Parse::Statement(sql)),
        ast::Statement::ShowVariable { variable } => match indexes::shown(&variable) {
            Some(table) => StatementKind::ShowIndexes(table),
            None => StatementKind::ShowSetting(setting::shown(&variable)),
        },
        ast::Statement::Set(set) => {
            let (name, value) = setting::assignment(set)?;
            StatementKind::Set(name, value)
        }
        ast::Statement::Insert(insert) => StatementKind::Insert(Box::new(insert), None),
        ast::Statement::Delete(delete) => StatementKind::Delete(Box::new(delete)),
        ast::Statement::CreateTable(create) => StatementKind::Create(Box::new(create)),
        ast::Statement::AlterTable(alter) => StatementKind::Alter(Box::new(alter)),
        ast::Statement::CreateIndex(create) => StatementKind::CreateIndex(Box::new(create)),
        ast::Statement::CreateView(view) => StatementKind::CreateView(Box::new(view)),
        ast::Statement::ShowViews { .. } => StatementKind::ShowViews,
        ast::Statement::Drop {
            object_type:
                object @ (ast::ObjectType::Table | ast::ObjectType::View | ast::ObjectType::Index),
            names,
            if_exists,
            ..
        } => dropping(object, names, if_exists),
        ast::Statement::Update(_) => {
            return Err(unsupported("UPDATE").with_hint(
                "insert a row with the same tags and time: it replaces the values of its fields",
            ));
        }
        other => return Err(unsupported(beginning(&other))),
    })
}

/// A statement that drops tables, views or indexes.
fn dropping(
    object: ast::ObjectType,
    names: Vec<ast::ObjectName>,
    if_exists: bool,
) -> StatementKind {
    match object {
        ast::ObjectType::View => StatementKind::DropView { names, if_exists },
        ast::ObjectType::Index => StatementKind::DropIndex { names, if_exists },
        _ => StatementKind::Drop { names, if_exists },
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
