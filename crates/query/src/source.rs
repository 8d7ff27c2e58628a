//! Source of the data of statements: a database, a read-only one, or several.
//!
//! Invariant: among several databases, everything that belongs to a single database is from the own
//! one.

use crate::error::{Error, Result};
use headwater::{Database, IndexInfo, Reader, Snapshot, SnapshotInfo};
use std::sync::Arc;

/// Source of the data.
pub(crate) enum Source {
    Database(Database),
    Reader(Reader),
    /// A database that statements may change, and the snapshots that they read: its own and others.
    Across(Database, Arc<dyn Snapshots>),
}

/// Takes snapshots of all data to be read.
pub trait Snapshots: Send + Sync {
    /// A snapshot of the present state.
    ///
    /// # Errors
    /// When a database is closed, or its data cannot be read.
    fn snapshot(&self) -> headwater::Result<Snapshot>;
}

impl Source {
    /// The current snapshot.
    pub(crate) fn snapshot(&self) -> headwater::Result<Snapshot> {
        match self {
            Source::Database(db) => db.snapshot(),
            Source::Reader(reader) => Ok(reader.snapshot()),
            Source::Across(_, snapshots) => snapshots.snapshot(),
        }
    }

    /// The named snapshots.
    pub(crate) fn snapshots(&self) -> Vec<SnapshotInfo> {
        match self {
            Source::Database(db) | Source::Across(db, _) => db.snapshots(),
            Source::Reader(reader) => reader.snapshots(),
        }
    }

    /// The state of a named snapshot.
    pub(crate) fn snapshot_named(&self, name: &str) -> headwater::Result<Snapshot> {
        match self {
            Source::Database(db) | Source::Across(db, _) => db.snapshot_named(name),
            Source::Reader(reader) => reader.snapshot_named(name),
        }
    }

    /// The indexes, by name.
    pub(crate) fn indexes(&self) -> Vec<IndexInfo> {
        match self {
            Source::Database(db) | Source::Across(db, _) => db.indexes(),
            Source::Reader(reader) => reader.indexes(),
        }
    }

    /// A note of the database.
    pub(crate) fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(match self {
            Source::Database(db) | Source::Across(db, _) => db.note(name)?,
            Source::Reader(reader) => reader.note(name)?,
        })
    }

    /// The database, for statements that change it.
    pub(crate) fn database(&self) -> Result<&Database> {
        match self {
            Source::Database(db) | Source::Across(db, _) => Ok(db),
            Source::Reader(_) => Err(Error::read_only("the database is open for reading only")
                .with_hint("on the command line, --write opens it as its owner; while a server owns it, send the statement there")),
        }
    }
}
