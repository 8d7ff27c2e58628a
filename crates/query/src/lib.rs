//! SQL over snapshots of a Headwater database: Apache DataFusion plans and computes, the engine
//! reads.
//!
//! A [`Query`] is made once per database, a [`Session`] per connection; [`Session::run`] runs a
//! statement. Tables are measurements: a column `time`, a dictionary column per tag, a column per
//! field. Ranges of time, conditions on tags and fields, and limits are pushed down to the engine,
//! which evaluates them better than a general executor.
//!
//! Invariants: a statement reads one snapshot, and of it only the data that the session's
//! [`Access`] permits; memory, time and rows are bounded by [`Limits`], most closely if the
//! program's allocator is [`Counting`]; files are never read or written. Concurrency: statements
//! run on the caller's tokio runtime (with its timers on), or on [`Threads`] of their own; the
//! engine is read on the runtime's threads for blocking work. Dropping an answer ends its
//! statement. Failure: every error is an [`Error`] with a stable code. Manual: `docs/sql.md`.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

mod aggregates;
mod answer;
mod asof;
mod cancel;
mod catalog;
mod columns;
mod complexity;
mod decimal;
mod descriptions;
mod entry;
mod error;
mod extension;
mod functions;
mod gapfill;
mod guards;
mod leaf_plan;
mod left_out;
mod limits;
mod names;
mod nodes;
mod parameters;
mod parsed;
mod pattern;
mod placeholders;
mod plan_cache;
mod planner;
mod prepared;
mod pyramid;
mod rewrites;
mod rules;
mod runs;
mod session;
mod settings;
mod slots;
mod source;
mod statement;
mod statement_texts;
mod stop;
mod syntax;
mod table;
mod text;
mod threads;
pub mod value_texts;
mod view;
mod zones;

pub use aggregates::is_aggregate;
pub use answer::{Answer, ObjectKind, Outcome, Stored, done_row};
pub use catalog::{CATALOG, SCHEMA};
pub use columns::{tag_type, time_type};
pub use complexity::{Counted, measure_least};
pub use decimal::{Decimal, decimal};
pub use descriptions::{IndexDescription, ViewDescription};
pub use error::{CODES, Code, Error, Result};
pub use extension::Extension;
pub use guards::Counting;
pub use headwater_ask::{Access, Unrestricted};
pub use headwater_wire::zone::Zone;
pub use left_out::LeftOut;
pub use limits::Limits;
pub use parameters::Parameters;
pub use placeholders::parameters_in;
pub use prepared::Prepared;
pub use rewrites::first_select;
pub use rewrites::names::{column_name, type_name};
pub use session::{ColumnDescription, ColumnKind, Query, Session, TableDescription};
pub use slots::{Holder, NoSlot, Owner, Slot, Slots};
pub use source::Snapshots;
pub use statement::{CopyIn, Look, Watch};
pub use statement_texts::{StatementText, is_obvious, statements};
pub use threads::Threads;

pub use arrow;
pub use datafusion;
