//! Segments: one append-only file per partition, a list of groups of leaves, bucket blocks and a
//! footer.
//!
//! Invariants (law 4): bytes below a committed length never change while the file exists, and the
//! file exists while a snapshot refers to it; a segment's state is the fold of its footers; ids are
//! never reused. Format: docs/format/segment.md.

mod change;
mod checkpoint;
mod close;
mod columns;
mod covers;
mod directory;
mod file;
mod format;
mod group;
mod index;
mod layout;
mod page;
mod paging;
mod present_ranges;
pub(crate) mod pyramid;
mod recent;
mod shown_stretch;
mod state;
mod store;
mod stream_contents;
mod stub;
mod stubs;

#[cfg(fuzzing)]
pub(crate) use checkpoint::decodes_again as checkpoint_decodes_again;
pub(crate) use close::{ClosedGroup, GroupEnd, close, close_new};
pub(crate) use columns::LeafColumns;
pub(crate) use covers::Covers;
pub(crate) use file::{SegmentFile, marker_name};
#[cfg(test)]
pub(crate) use format::CheckpointLocation;
pub(crate) use format::{
    BlockEntry, CheckpointNote, Cover, FOOTER_MAGIC, Footer, GROUP_STREAMS, HEADER_BYTES,
    LeafEntry, Replaces, SegmentHeader, StreamDelta,
};
pub(crate) use group::{FinishedGroup, GroupWriter};
#[cfg(test)]
pub(crate) use index::encode_divided;
#[cfg(any(test, fuzzing))]
pub(crate) use index::index_agrees;
pub(crate) use index::{ChangedPages, SegmentState};
pub(crate) use paging::Paging;
pub use present_ranges::MissedRange;
pub(crate) use present_ranges::PresentRanges;
pub(crate) use shown_stretch::ShownStretch;
pub(crate) use state::{Fold, StreamState, Sums};
pub use store::ReadCache;
pub(crate) use store::{
    AheadOfReader, BlockPart, LeafAhead, LeafCaching, PageCursor, Partition, ReadAhead, Store,
    StoreCache, Totals, TotalsKey, TypedFields, named,
};
pub(crate) use stream_contents::StreamContents;
pub(crate) use stub::StubHead;
pub(crate) use stubs::{StubFiles, stub_name, stub_of};
