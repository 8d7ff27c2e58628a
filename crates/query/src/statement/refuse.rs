//! Parts of statements that the SQL library parses and then ignores, or interprets differently.
//!
//! Invariant: a part of a statement is never silently ignored.

use crate::error::{Error, Result};
use crate::functions::check_pattern;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Select, Statement, TableFactor,
    Value, Visit, Visitor,
};
use std::ops::ControlFlow;

/// Error: a kind of statement is not supported.
pub(super) fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::unsupported_statement(format!("{what} is not supported"))
}

/// Refuses parts that would be ignored.
pub(super) fn left_out(statement: &Statement) -> Result<()> {
    match statement.visit(&mut LeftOut) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct LeftOut;

impl Visitor for LeftOut {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        // Locks are not implemented.
        if !query.locks.is_empty() {
            return ControlFlow::Break(unsupported("SELECT … FOR UPDATE"));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        if !select.connect_by.is_empty() {
            let error = unsupported("CONNECT BY");
            return ControlFlow::Break(error.with_hint("WITH RECURSIVE does the same"));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Table {
            sample: Some(_), ..
        }
        | TableFactor::Derived {
            sample: Some(_), ..
        } = table
        {
            let error = unsupported("TABLESAMPLE");
            return ControlFlow::Break(error.with_hint("WHERE random() < 0.1 takes a tenth"));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        if let Some(pattern) = pattern_of_to_char(expr)
            && let Err(error) = check_pattern(pattern)
        {
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    }
}

/// The pattern of `to_char(…, 'pattern')`, if it is a literal.
fn pattern_of_to_char(expr: &Expr) -> Option<&str> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let name = function.name.0.last()?.as_ident()?;
    if !["to_char", "date_format"]
        .iter()
        .any(|n| name.value.eq_ignore_ascii_case(n))
    {
        return None;
    }
    let FunctionArguments::List(arguments) = &function.args else {
        return None;
    };
    match arguments.args.get(1)? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}
