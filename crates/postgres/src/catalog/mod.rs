//! Queries of PostgreSQL's clients about the database itself: `pg_catalog`, `information_schema`,
//! their functions, and a session's settings.
//!
//! Purpose: `psql`, drivers, and tools ask before they show or send anything. Their queries are
//! answered by ordinary tables, made for each statement from the tables the session sees, and by
//! functions. `rewrite` turns statements that the planner cannot take into ones that it can.
//!
//! Invariants: nothing here names a table or column that the session does not see, since everything
//! is made from [`Listing::tables`], [`Listing::views`] and [`Listing::indexes`].
//! Concurrency: no locks; a listing is read again for each statement.
//! Failure: a statement that is not understood stays as it is, and the planner says what is wrong
//! with it.

pub(crate) mod columns;
mod format;
mod functions;
mod information_schema;
mod listing;
pub(crate) mod names;
mod pg_catalog;
mod relation_functions;
mod relations;
mod rows;
mod schema;
mod types;
mod udf;
pub(crate) mod variables;

pub use functions::functions;
pub use listing::{Listing, Shown, ShownIndex, ShownView};
pub use schema::schemas;
pub use types::PgType;
pub(crate) use types::{modifier, vector};
pub use variables::{VariableError, Variables};
