//! Segments: one append-only file per partition, a list of groups of leaves, bucket blocks and a footer.
//!
//! Invariants (law 4): bytes below a committed length never change while the file exists, and it exists while a snapshot
//! names it; a segment's state is the fold of its footers; ids are never used twice.
//! Format: docs/format/segment.md.

mod directory;
mod format;
mod group;
pub(crate) mod pyramid;
mod state;
mod states;
mod store;

pub(crate) use format::{
    BlockEntry, Cover, FOOTER_MAGIC, Footer, GROUP_STREAMS, HEADER_BYTES, LeafEntry, Replaces,
    SegmentHeader, StreamDelta,
};
pub(crate) use group::{FinishedGroup, GroupWriter};
pub(crate) use state::{SegmentState, StreamState};
pub(crate) use store::{Partition, SegmentFile, Store};
