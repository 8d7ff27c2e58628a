//! Several databases read as one: tables are the union of their tables, and a stream is read from
//! the part that owns it.
//!
//! Invariants: one instant of a stream is read from at most one part, as [`Owners`] and the order
//! of the parts determine; data of another part at that instant is not shown and is reported
//! ([`AcrossSnapshot::conflicts`]). Where the owner of a stretch is not among the parts, reads of
//! the stretch fail as `elsewhere`. Otherwise an answer equals the answer of a single database with
//! the same rows. Concurrency: immutable; parts and the catalog over them are shared with the
//! caches that retain them. Failure: as for a snapshot of one database; the first error of a part
//! is the error.

mod catalog;
mod index;
mod keeper;
mod lists;
mod merged;
mod owners;
mod part;
mod scan;
mod stream;
mod tables;
mod whole;

pub(crate) use keeper::{Change, Keeper};
pub use lists::Conflict;
pub use owners::{Owned, Owners};
pub(crate) use scan::AcrossScan;

use crate::core::Core;
use crate::read::handle::StreamHandle;
use crate::{Error, ErrorKind, Result};
use catalog::{CatalogAcross, TableAcross};
use headwater_types::StreamName;
use part::{Part, Parts};
use std::sync::Arc;
use stream::StreamAcross;

/// A view of several databases as if they were one.
#[derive(Clone, Debug)]
pub(crate) struct AcrossSnapshot {
    parts: Arc<Parts>,
    catalog: Arc<CatalogAcross>,
    /// Number of this snapshot, unique in the process.
    number: u64,
    definitions: Option<u64>,
}

impl AcrossSnapshot {
    pub(in crate::read) fn sequence(&self) -> u64 {
        self.number
    }

    pub(in crate::read) fn definitions(&self) -> Option<u64> {
        self.definitions
    }

    /// The database of the first part.
    pub(in crate::read) fn first_core(&self) -> Option<&Arc<Core>> {
        self.parts.iter().next().map(|part| &part.snapshot.core)
    }

    fn table(&self, name: &str) -> Result<&TableAcross> {
        self.catalog.table(name)
    }

    fn part(&self, number: u32) -> Result<&Part> {
        let part = self.parts.get(number);
        part.ok_or_else(|| Error::internal("a stream of a part that is not there"))
    }

    /// A stream to read.
    pub(in crate::read) fn stream<'a>(&'a self, name: &'a StreamName) -> Result<StreamAcross<'a>> {
        StreamAcross::find(self, name, None)
    }

    /// A stream to read that was looked up before.
    pub(in crate::read) fn stream_again<'a>(
        &'a self,
        handle: &'a StreamHandle,
    ) -> Result<StreamAcross<'a>> {
        StreamAcross::find(self, handle.name(), Some(handle))
    }
}

/// The error for a stretch of time whose owner is not among the parts.
fn owner_elsewhere(stream: &StreamName) -> Error {
    Error::new(
        ErrorKind::Elsewhere,
        format!(
            "the database that stream `{stream}` belongs to at this time is not here; ask where it is written"
        ),
    )
}
