//! Queries over many streams of a Headwater database: InfluxQL, OpenTSDB's queries, and the
//! evaluator that they share with the HTTP routes and SQL's grouped queries.
//!
//! The evaluator splits the readable streams into bins of time, folds the engine's aggregates of
//! each stream into the bins of its group, looks up the first and the last value if requested, and
//! stops when the budget is exhausted or the client no longer waits.
//!
//! ```
//! use headwater::{Batch, Database, Options, StreamName, Timestamp};
//! use headwater_ask::{Budget, CancelToken, Deadline, Unrestricted, influxql};
//! let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(Options::new(dir.path().join("db")))?;
//! let mut batch = Batch::new();
//! let pump = StreamName::new("pumps", [("id", "p1")]);
//! batch.stream(&pump).row(60_000_000_000, [("pressure", 4.5.into())]).unwrap();
//! db.commit(batch)?;
//! let budget = Budget::new(Deadline::NEVER, CancelToken::default());
//! let snapshot = db.snapshot()?;
//! let now = Timestamp::from_nanos(120_000_000_000);
//! let evaluator = influxql::Evaluator::new(&snapshot, &Unrestricted, &budget, now);
//! let answers = evaluator.evaluate("SELECT mean(pressure) FROM pumps GROUP BY id")?;
//! let json = influxql::json(&answers, influxql::Form::default());
//! assert!(String::from_utf8(json).unwrap().contains("[[\"1970-01-01T00:00:00Z\",4.5]]"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: independent of HTTP, DataFusion and any async runtime; every loop over streams,
//! chunks or rows checks the [`Budget`], so that a query ends at its deadline, when it is too
//! large, and soon after its client disconnected; only streams that the client may read are
//! visited. Concurrency: the calling thread executes the query, and may wait for the disk; callers
//! with a runtime call from a thread for blocking work. Failure: an [`Error`] with a
//! [`QueryErrorKind`], whose code is stable. Pages: docs/http/influxql.md, docs/http/opentsdb.md,
//! docs/aggregates.md.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

mod access;
mod budget;
mod databases;
mod error;
mod fold;
pub mod influxql;
pub mod opentsdb;
mod streams;
mod values;
mod windows;

pub use access::{Access, Unrestricted};
pub use budget::{Budget, CancelGuard, CancelToken, Deadline, MEMORY_BYTES, Memory};
pub use databases::{DATABASE_BYTES_MAX, DATABASES_MAX, Databases, Names, Space};
pub use error::{Error, QueryErrorKind, Result};
pub use fold::{Bucket, Buckets, End, EndOf, EndValue, Fold, Meter};
pub use windows::Windows;
