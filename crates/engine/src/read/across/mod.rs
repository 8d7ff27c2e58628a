//! Several databases read as one: tables are the union of their tables, and a stream is read from
//! the parts that own it.
//!
//! Invariants: one instant of a stream is read from at most one part: the first by rank with rows
//! at it, of a stream with [`Owners`] the first of its owners. Data of another part at that instant
//! is not shown and is reported ([`AcrossSnapshot::conflicts`]). Where no owner of a stretch is
//! among the parts, reads of the stretch fail as `elsewhere`. Streams are known by the names under
//! which they are shown ([`AddedTags`]). Otherwise an answer equals the answer of a
//! single database with the same rows. Concurrency: immutable; parts and the catalog over them are
//! shared with the caches that retain them. Failure: as for a snapshot of one database; the first
//! error of a part is the error.

mod catalog;
mod index;
mod keeper;
mod lists;
mod merged;
mod merged_stream;
mod overlaps;
mod owners;
mod part;
mod reading;
mod row_merge;
mod scan;
mod several;
mod stream;
mod table_queries;
mod tables;
mod unreadable;

pub(crate) use keeper::{Change, Keeper};
pub use lists::{Conflict, ConflictBounds, Conflicts};
pub use owners::{Owned, Owners};
pub(crate) use scan::AcrossScan;

use crate::core::Core;
use crate::read::handle::StreamHandle;
use crate::{Error, ErrorKind, Result};
use catalog::{CatalogAcross, TableAcross};
use headwater_types::StreamName;
use overlaps::Overlaps;
use parking_lot::Mutex;
use part::{DatabasePart, DatabaseParts};
use std::collections::BTreeMap;
use std::sync::Arc;
use stream::StreamAcross;
use unreadable::UnreadableParts;

/// Stretches that were determined, by table, key, and the numbers of the parts that are merged.
type KnownOverlaps = BTreeMap<(String, Arc<[u8]>, Arc<[u32]>), Arc<Overlaps>>;

/// A view of several databases as if they were one.
#[derive(Clone, Debug)]
pub(crate) struct AcrossSnapshot {
    parts: Arc<DatabaseParts>,
    catalog: Arc<CatalogAcross>,
    /// The stretches of streams that several parts have.
    overlaps: Arc<Mutex<KnownOverlaps>>,
    /// Parts that are known and cannot be read.
    unreadable: Arc<UnreadableParts>,
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
        let found = self.catalog.table(name);
        found.or_else(|error| self.require_whole().and(Err(error)))
    }

    /// A table of which all streams are looked at.
    fn whole_table(&self, name: &str) -> Result<&TableAcross> {
        self.require_whole()?;
        self.table(name)
    }

    /// As `Snapshot::require_whole`.
    pub(in crate::read) fn require_whole(&self) -> Result<()> {
        self.unreadable.error().map_or(Ok(()), Err)
    }

    /// As `Snapshot::unreadable_parts`.
    pub(in crate::read) fn unreadable_parts(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.unreadable.all()
    }

    /// The same without the parts that cannot be read.
    pub(in crate::read) fn allowing_partial(self) -> AcrossSnapshot {
        if self.unreadable.is_empty() {
            return self;
        }
        AcrossSnapshot {
            unreadable: Arc::default(),
            // What is cached by it must not serve answers that may not be partial.
            definitions: None,
            number: keeper::new_number(),
            ..self
        }
    }

    fn part(&self, number: u32) -> Result<&DatabasePart> {
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
            "the database that owns stream `{stream}` at this time is not on this node; query the node where it is written"
        ),
    )
}
