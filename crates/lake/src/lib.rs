//! The lake: the tables of a database as Apache Iceberg tables of Parquet files, which other
//! programs read without our code.
//!
//! Purpose: [`write()`] brings the tables in a [`LakeLocation`], a folder or a bucket, to the state
//! of the database, day by day; [`status`] reports present and missing days; [`verify`] compares; a
//! [`Catalog`] finds tables by name.
//!
//! Invariants: a reader of a table sees the rows of each day as of one instant of the database,
//! each row once; rows of the database that are missing in the lake are reported. The state of the
//! lake is stored only in the tables themselves.
//!
//! Concurrency: concurrent writes of one table are safe; one of them wins, the others start again
//! from the new state. A database is read concurrently with the process that owns it.
//!
//! Failure: a write that ends at any step leaves the tables in the old or the new state, and
//! possibly unnamed files, which a later write removes.
#![allow(
    clippy::disallowed_methods,
    reason = "a lake consists of files of others' formats that its user names, not of a database"
)]

mod avro;
mod bounds;
mod bucket;
mod catalog;
mod columns;
mod datafile;
mod day;
mod error;
mod folder;
mod lengths;
mod location;
mod manifest;
mod metadata;
mod names;
mod plan;
mod report;
mod rollup;
mod rows;
mod status;
mod steps;
mod sweep;
mod table;
mod verify;
mod write;

pub use catalog::{Catalog, CatalogTable, CatalogTables, Loaded, OWN_NAMESPACE, folder_of_edge};
pub use day::Day;
pub use error::{LakeError, Result};
pub use location::LakeLocation;
pub use names::folder_of;
pub use report::{
    Blocked, Difference, Missing, Status, Swept, TableStatus, TableVerified, TableWritten,
    Verified, Written,
};
pub use status::status;
pub use steps::Steps;
pub use verify::{data_files, verify};
pub use write::{SnapshotSource, WriteOptions, write};
