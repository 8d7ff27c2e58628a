//! Queries of PostgreSQL's clients about the database itself: `pg_catalog`, `information_schema`,
//! their functions, and a session's settings.
//!
//! Purpose: `psql`, drivers, and tools query the catalog before they show or send data. Their
//! queries are answered by ordinary tables, made for each statement from the tables the session
//! sees, and by functions. `rewrite` turns statements that the planner does not accept into
//! equivalent ones that it accepts.
//!
//! Invariants: the catalog does not contain a table or column that the session does not see, since
//! everything is made from [`Listing::tables`], [`Listing::views`] and [`Listing::indexes`].
//! Concurrency: no locks; a listing is read again for each statement. Failure: a statement that
//! cannot be parsed is unchanged, and the planner reports the error.

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
pub use listing::{Listing, ShownIndex, ShownTable, ShownView};
pub use schema::schemas;
pub use types::PgType;
pub(crate) use types::{modifier, vector};
pub use variables::{VariableError, Variables};
