//! InfluxQL: `SELECT`, `EXPLAIN`, `SHOW …`, statements that remove data, and the statements that
//! clients send before a write.
//!
//! [`parse`] reads a text into [`Statement`]s; the server evaluates them. [`Statement`]s print as
//! text that reads back to the same statements.
//!
//! Invariants: no text makes the reader panic; nesting, also of subqueries, statements and
//! operators are bounded ([`STATEMENTS_MAX`], [`NESTING_MAX`], [`OPERATORS_MAX`]), so that a caller
//! that walks an [`Expression`] may recurse. Failure: the first mistake ends the reading and is
//! returned as a [`ParseError`] with its position, the found text and the expected text. Page:
//! docs/http/influxql.md.

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
    Cast, CreateDatabase, Dimension, Expression, Fill, IntoTarget, KeyFilter, Literal,
    MeasurementName, Operator, Policy, Removal, Select, SelectField, SelectSource, Show, ShowKind,
    Source, Statement, WildcardKind,
};
pub use error::ParseError;
pub use parameters::{ParameterError, Parameters};
pub use parser::{NESTING_MAX, OPERATORS_MAX, STATEMENTS_MAX, parse};
