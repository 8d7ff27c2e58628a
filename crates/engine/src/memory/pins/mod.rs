//! Pins: stored chunks that open snapshots still see, and their files when there are many.
//!
//! Invariants: a chunk that a job took from memory is kept only for a snapshot that sees it, and
//! only its rows with sequences that some snapshot sees; so a snapshot pins at most the content of
//! memory when it was taken. Pinned chunks count separately from memory for events: writers never
//! wait for a snapshot. Beyond a share of the budget they move to files, which are removed with the
//! last snapshot that needs them. Concurrency: pinned chunks are listed under the shard's lock;
//! files are written and read without it. Failure: without space the chunks stay in memory, and
//! writers get `full` from their own writes; another error of writing latches. A file that cannot
//! be read, or has other bytes, is an error of that read.

mod file;

pub(crate) use file::{PinnedChunkFile, PinnedChunkFiles, PinnedChunkLocation, remove_leftovers};

use crate::Result;
use crate::common::ids::Sequence;
use crate::memory::chunk::Chunk;
use headwater_types::ClosedRange;
use std::sync::Arc;

/// A snapshot's view of a shard: a version of it, and records up to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotPoint {
    pub(crate) version: u64,
    pub(crate) sequence: Sequence,
}

/// Sequence of a snapshot that is not set yet: it may see all records.
const UNSET: Sequence = Sequence(u64::MAX);

/// The open snapshots of a shard, by version.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenSnapshots(Vec<SnapshotPoint>);

impl OpenSnapshots {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a snapshot of the newest version. Its sequence is set later.
    pub(crate) fn open(&mut self, version: u64) {
        self.0.push(SnapshotPoint {
            version,
            sequence: UNSET,
        });
    }

    /// Sets the sequence of a snapshot that was opened with this version.
    pub(crate) fn set_sequence(&mut self, version: u64, sequence: Sequence) {
        let unset = SnapshotPoint {
            version,
            sequence: UNSET,
        };
        self.replace(unset, Some(sequence));
    }

    pub(crate) fn close(&mut self, closed: SnapshotPoint) {
        self.replace(closed, None);
    }

    /// Of equal ones, any.
    fn replace(&mut self, wanted: SnapshotPoint, by: Option<Sequence>) {
        let Some(at) = self.0.iter().rposition(|o| *o == wanted) else {
            debug_assert!(false, "a snapshot that is not open");
            return;
        };
        match (by, self.0.get_mut(at)) {
            (Some(sequence), Some(open)) => open.sequence = sequence,
            _ => drop(self.0.remove(at)),
        }
    }

    /// The newest sequence seen by a snapshot to which a chunk is visible, if it sees any of the
    /// chunk: a snapshot of a version from `born` on, below `gone`.
    pub(crate) fn newest(&self, born: u64, gone: u64, first: Sequence) -> Option<Sequence> {
        let see = self.0.iter().filter(|o| o.version < gone);
        see.filter(|o| o.version >= born && o.sequence >= first)
            .map(|o| o.sequence)
            .max()
    }
}

/// The rows of a chunk, in memory or in a file.
#[derive(Clone, Debug)]
pub(crate) enum PinnedRows {
    Memory(Arc<Chunk>),
    File(PinnedChunkLocation),
}

impl PinnedRows {
    /// The chunk, read from the file if necessary. Do not call under a lock.
    pub(crate) fn chunk(self) -> Result<Arc<Chunk>> {
        match self {
            PinnedRows::Memory(chunk) => Ok(chunk),
            PinnedRows::File(place) => place.read(),
        }
    }
}

/// A chunk that a job took from memory, for readers with older versions.
#[derive(Debug)]
pub(crate) struct PinnedChunk {
    /// Readers of this version and newer ones do not see it.
    removed_in: u64,
    /// Readers of versions older than this do not see it either.
    born: u64,
    span: ClosedRange,
    first_sequence: Sequence,
    rows: PinnedRows,
}

/// Memory of a pinned chunk in addition to its rows, which may be in a file.
pub(crate) const PINNED_CHUNK_BYTES: usize = size_of::<PinnedChunk>();

impl PinnedChunk {
    /// The visible rows, for open snapshots, of a chunk that version `gone` takes out of memory;
    /// `None` without any.
    pub(crate) fn new(
        chunk: &Arc<Chunk>,
        removed_in: u64,
        open: &OpenSnapshots,
    ) -> Option<PinnedChunk> {
        let newest = open.newest(chunk.born, removed_in, chunk.first_sequence)?;
        let chunk = visible_part(chunk, newest)?;
        Some(PinnedChunk {
            removed_in,
            born: chunk.born,
            span: chunk.span,
            first_sequence: chunk.first_sequence,
            rows: PinnedRows::Memory(chunk),
        })
    }

    /// Bytes of rows in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.rows {
            PinnedRows::Memory(chunk) => chunk.bytes,
            PinnedRows::File(_) => 0,
        }
    }

    /// The span of its rows.
    pub(crate) fn span(&self) -> ClosedRange {
        self.span
    }

    /// Its rows, if a reader of this version sees any that may be in a range.
    pub(crate) fn visible_to(&self, version: u64, range: &ClosedRange) -> Option<&PinnedRows> {
        (self.span.overlaps(range) && self.born <= version && version < self.removed_in)
            .then_some(&self.rows)
    }

    /// Drops rows that no open snapshot sees any more, after `closed` was closed. False when no
    /// rows are left.
    pub(crate) fn keep(&mut self, open: &OpenSnapshots, closed: SnapshotPoint) -> bool {
        let saw = self.born <= closed.version
            && closed.version < self.removed_in
            && self.first_sequence <= closed.sequence;
        if !saw {
            return true;
        }
        let Some(newest) = open.newest(self.born, self.removed_in, self.first_sequence) else {
            return false;
        };
        if let PinnedRows::Memory(chunk) = &mut self.rows
            && let Some(part) = visible_part(chunk, newest)
        {
            *chunk = part;
        }
        true
    }

    /// The file of its rows, if any: to be dropped without a lock.
    pub(crate) fn into_file(self) -> Option<Arc<PinnedChunkFile>> {
        match self.rows {
            PinnedRows::Memory(_) => None,
            PinnedRows::File(place) => Some(place.into_file()),
        }
    }

    pub(crate) fn in_memory(&self) -> Option<&Arc<Chunk>> {
        match &self.rows {
            PinnedRows::Memory(chunk) => Some(chunk),
            PinnedRows::File(_) => None,
        }
    }

    /// Records that the rows of `chunk` are in a file now.
    pub(crate) fn moved(&mut self, chunk: &Arc<Chunk>, place: &PinnedChunkLocation) {
        if matches!(&self.rows, PinnedRows::Memory(mine) if Arc::ptr_eq(mine, chunk)) {
            self.rows = PinnedRows::File(place.clone());
        }
    }
}

/// The rows of a chunk up to a sequence. Later rows are not visible to the snapshots.
fn visible_part(chunk: &Arc<Chunk>, newest: Sequence) -> Option<Arc<Chunk>> {
    if chunk.last_sequence <= newest {
        return Some(Arc::clone(chunk));
    }
    chunk.select(chunk.born, |_, sequence| sequence <= newest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::memory::chunk::Sequences;
    use headwater_types::Rows;

    fn chunk(sequences: &[u64], born: u64) -> Arc<Chunk> {
        let rows = Rows {
            times: (0..sequences.len() as i64).collect(),
            columns: Vec::new(),
        };
        let sequences = sequences.iter().map(|s| Sequence(*s)).collect();
        Chunk::new(rows, Sequences::Many(sequences), born).unwrap()
    }

    fn open(snapshots: &[(u64, u64)]) -> OpenSnapshots {
        let mut open = OpenSnapshots::default();
        for (version, sequence) in snapshots {
            open.open(*version);
            open.set_sequence(*version, Sequence(*sequence));
        }
        open
    }

    #[test]
    fn of_a_chunk_only_what_some_snapshot_sees_is_kept() {
        let rows = |pinned: Option<PinnedChunk>| pinned.map(|p| p.in_memory().unwrap().len());
        let all = chunk(&[3, 4, 9], 0);
        assert_eq!(rows(PinnedChunk::new(&all, 7, &open(&[]))), None);
        assert_eq!(rows(PinnedChunk::new(&all, 7, &open(&[(1, 2)]))), None);
        assert_eq!(rows(PinnedChunk::new(&all, 7, &open(&[(1, 4)]))), Some(2));
        assert_eq!(
            rows(PinnedChunk::new(&all, 7, &open(&[(1, 2), (6, 9)]))),
            Some(3)
        );
        // A chunk that version 5 split from another one exists for newer readers only.
        let cut = chunk(&[3, 4, 9], 5);
        assert_eq!(rows(PinnedChunk::new(&cut, 7, &open(&[(4, 9)]))), None);
        assert_eq!(
            rows(PinnedChunk::new(&cut, 7, &open(&[(4, 9), (5, 3)]))),
            Some(1)
        );
        // A snapshot that is just being opened may see everything.
        let mut opening = open(&[(1, 2)]);
        opening.open(6);
        assert_eq!(rows(PinnedChunk::new(&all, 7, &opening)), Some(3));
    }

    #[test]
    fn what_a_closed_snapshot_alone_saw_is_let_go_of() {
        let mut snapshots = open(&[(1, 3), (6, 9)]);
        let mut pinned = PinnedChunk::new(&chunk(&[3, 4, 9], 0), 7, &snapshots).unwrap();
        let mut close = |version, sequence| {
            let closed = SnapshotPoint {
                version,
                sequence: Sequence(sequence),
            };
            snapshots.close(closed);
            let kept = pinned.keep(&snapshots, closed);
            kept.then(|| pinned.in_memory().unwrap().len())
        };
        assert_eq!(close(6, 9), Some(1));
        assert_eq!(close(1, 3), None);
        assert!(snapshots.is_empty());
    }
}
