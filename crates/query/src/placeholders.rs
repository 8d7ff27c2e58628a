//! The parameters `$1`, `$2`, … of a statement as they are written in it.
//!
//! Invariant: every parameter in the text counts, even if the planner drops its expression.

use crate::complexity;
use crate::error::{Error, Result};
use datafusion::sql::sqlparser::ast::{self, visit_expressions};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// The parameters of a statement, including those whose expressions the planner drops.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// The highest parameter number.
    pub(crate) count: usize,
    /// Parameters in casts, with the types.
    pub(crate) casts: Vec<(usize, ast::DataType)>,
}

impl Written {
    /// Parameters in the tokens of a statement.
    pub(crate) fn of_tokens(tokens: &[TokenWithSpan]) -> Written {
        Written {
            count: numbers(tokens).max().unwrap_or(0),
            casts: Vec::new(),
        }
    }

    /// Adds the types of casts.
    pub(crate) fn look_at(&mut self, statement: &ast::Statement) {
        if self.count == 0 {
            return;
        }
        let walked: ControlFlow<()> = visit_expressions(statement, |expr| {
            if let ast::Expr::Cast {
                expr, data_type, ..
            } = expr
                && let Some(at) = placeholder(expr)
            {
                self.casts.push((at, data_type.clone()));
            }
            ControlFlow::Continue(())
        });
        debug_assert!(walked.is_continue());
    }
}

fn placeholder(expr: &ast::Expr) -> Option<usize> {
    match expr {
        ast::Expr::Nested(inner) => placeholder(inner),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Placeholder(name) => position(name).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The numbers of the parameters `$1`, `$2`, … in a text.
#[must_use]
pub fn parameters_in(sql: &str) -> BTreeSet<usize> {
    let tokens = complexity::tokens(sql).unwrap_or_default();
    numbers(&tokens).collect()
}

fn numbers(tokens: &[TokenWithSpan]) -> impl Iterator<Item = usize> {
    tokens.iter().filter_map(|token| match &token.token {
        Token::Placeholder(name) => position(name).ok(),
        _ => None,
    })
}

/// The number of a parameter by its name.
pub(crate) fn position(name: &str) -> Result<usize> {
    let number = name.strip_prefix('$').and_then(|n| n.parse().ok());
    number
        .filter(|n| (1..=65_535).contains(n))
        .ok_or_else(|| Error::parameters(format!("parameters are $1, $2, …; found {name}")))
}
