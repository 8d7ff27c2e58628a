//! What clients of PostgreSQL ask a database about itself: `pg_catalog`, `information_schema`, their functions, and the
//! parts of PostgreSQL's SQL that the planner does not know.
//!
//! Purpose: `psql`, drivers, and tools ask before they show or send anything. Their questions are answered by ordinary
//! tables, made anew for each statement from the tables the session sees, and by functions. What the planner cannot take as
//! it is, `rewrite` turns into what it can.
//!
//! Invariants: nothing here names a table or column that the session does not see, since everything is made from
//! [`Listing::tables`]. A rewritten statement means the same.
//! Concurrency: no locks; a listing is asked anew for each statement.
//! Failure: what is not understood is left as it is, and the planner says what is wrong with it.

mod catalog;
mod columns;
mod functions;
mod information;
mod names;
mod rewrite;
mod schema;
#[cfg(test)]
mod tests;
mod types;
mod variables;

pub use functions::functions;
pub use rewrite::Rewritten;
#[cfg(test)]
use rewrite::rewrite;
pub use schema::{Listing, Shown, schemas};
pub use types::PgType;
pub use variables::{VariableError, Variables};
