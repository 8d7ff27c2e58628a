//! A consistent view of a database, or of several as if they were one.
//!
//! All reads of data go through a snapshot. This module defines the meaning of each read; the
//! modules below answer it for one database and for several.
//!
//! Invariants: a snapshot never changes. Of one database the only overhead of a call is a branch on
//! the kind of snapshot.
//! Concurrency: snapshots are shared freely between threads.

mod buckets;
mod handles;
mod rows;
mod streams;

pub use rows::Scan;

use super::across::AcrossSnapshot;
use super::single::SingleSnapshot;
use crate::core::{Core, ReplayMemory};
use crate::{Error, Result};
use std::sync::Arc;

/// A consistent view of everything acknowledged before it was opened, over all shards; it never
/// changes. While a snapshot is open, the files and the events in memory that it sees are pinned;
/// where snapshots together pin many events, these move to files. An open snapshot costs space on
/// the disk, and writers nothing.
///
/// A snapshot of several databases ([`crate::Across`]) shows the union of their tables and streams.
#[derive(Debug)]
pub struct Snapshot {
    kind: SnapshotKind,
}

#[derive(Debug)]
enum SnapshotKind {
    Single(SingleSnapshot),
    Across(AcrossSnapshot),
}

impl Snapshot {
    pub(crate) fn open(core: Arc<Core>) -> Snapshot {
        Snapshot {
            kind: SnapshotKind::Single(SingleSnapshot::open(core)),
        }
    }

    /// A snapshot of several databases.
    pub(super) fn across(all: AcrossSnapshot) -> Snapshot {
        Snapshot {
            kind: SnapshotKind::Across(all),
        }
    }

    /// The view of one database, for a comparison of two; `invalid` for a view of several.
    pub(super) fn single(&self) -> Result<&SingleSnapshot> {
        match &self.kind {
            SnapshotKind::Single(one) => Ok(one),
            SnapshotKind::Across(_) => Err(Error::invalid(
                "states of several databases cannot be compared: compare each database separately",
            )),
        }
    }

    /// The view of one database, by value; `invalid` for a view of several.
    pub(super) fn into_single(self) -> Result<SingleSnapshot> {
        match self.kind {
            SnapshotKind::Single(one) => Ok(one),
            SnapshotKind::Across(_) => Err(Error::invalid(
                "expected a snapshot of one database, found one of several: use its parts instead",
            )),
        }
    }

    /// The memory for replays of the database, or of the first of several.
    pub(super) fn replay_memory(&self) -> Option<Arc<ReplayMemory>> {
        let core = match &self.kind {
            SnapshotKind::Single(one) => Some(&one.core),
            SnapshotKind::Across(all) => all.first_core(),
        };
        core.map(|core| Arc::clone(&core.replays))
    }

    /// The same view without the parts that are known and cannot be read
    /// ([`crate::Across::set_unreadable`]): answers about all streams leave them out. For requests
    /// that allow a partial answer (`partial=allow`), whose answers then name
    /// [`Snapshot::unreadable_parts`].
    #[must_use]
    pub fn allowing_partial(self) -> Snapshot {
        match self.kind {
            SnapshotKind::Single(_) => self,
            SnapshotKind::Across(all) => Snapshot::across(all.allowing_partial()),
        }
    }

    /// Names of the parts that are known and cannot be read, with the reasons.
    #[must_use]
    pub fn unreadable_parts(&self) -> Vec<(Arc<str>, Arc<str>)> {
        match &self.kind {
            SnapshotKind::Single(_) => Vec::new(),
            SnapshotKind::Across(all) => all.unreadable_parts(),
        }
    }

    /// Checks that no known part is unreadable. For lists of tables
    /// ([`Snapshot::table_names`] has the tables of the parts that can be read), and for programs
    /// that need everything; reads of all streams of a table check it themselves.
    ///
    /// # Errors
    /// `elsewhere` with the names of the unreadable parts and the reasons.
    pub fn require_whole(&self) -> Result<()> {
        match &self.kind {
            SnapshotKind::Single(_) => Ok(()),
            SnapshotKind::Across(all) => all.require_whole(),
        }
    }

    /// The number of the newest record that the snapshot sees. Of several databases: a number that
    /// no other snapshot of this process has.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        match &self.kind {
            SnapshotKind::Single(one) => one.sequence(),
            SnapshotKind::Across(all) => all.sequence(),
        }
    }

    /// Number of the definitions (tables, fields and streams) among the snapshots of the same open
    /// database: equal numbers mean equal definitions. `None` while definitions were being changed,
    /// which says nothing about equality. For programs that prepare something per table. Of several
    /// databases the number differs from the number of every single database, and grows with every
    /// change.
    #[must_use]
    pub fn definitions(&self) -> Option<u64> {
        match &self.kind {
            SnapshotKind::Single(one) => one.definitions(),
            SnapshotKind::Across(all) => all.definitions(),
        }
    }
}
