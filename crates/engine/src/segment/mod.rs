//! Segments: one append-only file per partition, a list of groups of leaves, bucket blocks and a
//! footer.
//!
//! Invariants (law 4): bytes below a committed length never change while the file exists, and it
//! exists while a snapshot names it; a segment's state is the fold of its footers; ids are never
//! used twice.
//! Format: docs/format/segment.md.

mod columns;
mod covers;
mod format;
mod group;
mod index;
mod page;
pub(crate) mod pyramid;
mod recent;
mod state;
mod store;

pub(crate) use columns::LeafColumns;
pub(crate) use covers::Covers;
pub(crate) use format::{
    BlockEntry, Cover, FOOTER_MAGIC, Footer, GROUP_STREAMS, HEADER_BYTES, LeafEntry, Replaces,
    SegmentHeader, StreamDelta,
};
pub(crate) use group::{FinishedGroup, GroupWriter};
#[cfg(any(test, fuzzing))]
pub(crate) use index::index_agrees;
pub(crate) use index::{ChangedPages, SegmentState};
pub(crate) use state::{Fold, StreamState, Sums};
pub(crate) use store::{BlockPart, LeafCaching, PageCursor, Partition, SegmentFile, Store};
