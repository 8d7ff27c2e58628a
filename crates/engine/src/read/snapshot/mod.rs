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
/// changes. While it is open the files it sees stay, and so do the events in memory it sees, which
/// go to files where snapshots together pin many: it costs space on the disk, and writers nothing.
///
/// One of several databases ([`crate::Across`]) shows the union of their tables and streams.
#[derive(Debug)]
pub struct Snapshot {
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    Single(SingleSnapshot),
    Across(AcrossSnapshot),
}

impl Snapshot {
    pub(crate) fn open(core: Arc<Core>) -> Snapshot {
        Snapshot {
            seen: Seen::Single(SingleSnapshot::open(core)),
        }
    }

    /// Of several databases.
    pub(super) fn across(all: AcrossSnapshot) -> Snapshot {
        Snapshot {
            seen: Seen::Across(all),
        }
    }

    /// The view of one database that it is, for a comparison of two.
    pub(super) fn single(&self) -> Result<&SingleSnapshot> {
        match &self.seen {
            Seen::Single(one) => Ok(one),
            Seen::Across(_) => Err(Error::invalid(
                "of several databases states cannot be compared: compare those of each",
            )),
        }
    }

    /// The view of one database that it is.
    pub(super) fn into_single(self) -> Result<SingleSnapshot> {
        match self.seen {
            Seen::Single(one) => Ok(one),
            Seen::Across(_) => Err(Error::invalid(
                "a part is a snapshot of one database; found one of several: put its parts instead",
            )),
        }
    }

    /// The memory for replays of the database, or of the first of several.
    pub(super) fn replay_memory(&self) -> Option<Arc<ReplayMemory>> {
        let core = match &self.seen {
            Seen::Single(one) => Some(&one.core),
            Seen::Across(all) => all.first_core(),
        };
        core.map(|core| Arc::clone(&core.replays))
    }

    /// The number of the newest record it sees. Of several databases: a number that no other
    /// snapshot of this process has.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        match &self.seen {
            Seen::Single(one) => one.sequence(),
            Seen::Across(all) => all.sequence(),
        }
    }

    /// Number that identifies the tables, fields and streams among the snapshots of the same open
    /// database: where it is the same, they are the same. `None` when they were being changed; that
    /// says nothing. For programs that prepare something per table. Of several databases it is a
    /// number that no single one has, and it rises with every change.
    #[must_use]
    pub fn definitions(&self) -> Option<u64> {
        match &self.seen {
            Seen::Single(one) => one.definitions(),
            Seen::Across(all) => all.definitions(),
        }
    }
}
