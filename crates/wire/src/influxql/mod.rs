//! InfluxQL: `SELECT`, `EXPLAIN`, `SHOW …`, what removes, and the statements clients send before
//! they write.
//!
//! A text is read into [`Statement`]s by [`parse`]; what they mean is the server's business.
//! [`Statement`]s print as text that reads back to the same statements.
//!
//! Invariants: no text makes the reader panic; nesting, also of subqueries, statements and
//! operators are bounded ([`STATEMENTS_MAX`], [`NESTING_MAX`], [`OPERATORS_MAX`]), so that a caller
//! that walks an [`Expression`] may recurse.
//! Failure: the first mistake ends the reading and comes back as a [`ParseError`] that says where
//! it is, what was found and what was expected.
//! Page: docs/http/influxql.md.

mod ast;
mod error;
mod expression;
mod lexer;
mod parameters;
mod parser;
mod print;
mod select;
mod show;
#[cfg(test)]
mod tests;

pub use ast::{
    Cast, CreateDatabase, Dimension, Expression, Fill, KeyFilter, Literal, MeasurementName,
    Operator, Policy, Removal, Select, SelectField, SelectSource, Show, ShowWhat, Source,
    Statement, Target, WildcardKind,
};
pub use error::ParseError;
pub use parameters::{ParameterError, Parameters};
pub use parser::{NESTING_MAX, OPERATORS_MAX, STATEMENTS_MAX, parse};
