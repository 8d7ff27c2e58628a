//! Writer of one stream's events in one partition: its inputs and its outputs.
//!
//! [`super::store_stream`] decides the method of storing; [`super::append`] and
//! [`super::late_merge`] carry it out.

use super::cutter::SharedLeaves;
use crate::Result;
use crate::common::counters::Counters;
use crate::common::ids::SegmentId;
use crate::metadata::catalog::Table;
use crate::storage::segment::pyramid::PyramidTarget;
use crate::storage::segment::{GroupWriter, LeafEntry, Store, StreamDelta, StreamState};
use headwater_codec::leaf::EncodingCache;
use headwater_late::MergeScope;
use headwater_types::{Level, Rows};

/// Context that all streams of a partition share.
pub(crate) struct StoreContext<'a> {
    pub(crate) store: &'a Store,
    pub(crate) segment: SegmentId,
    pub(crate) table: &'a Table,
    pub(crate) top: Level,
    pub(crate) scope: MergeScope,
    /// Events of a full leaf: the table's setting, or fewer if the policy requires it.
    pub(crate) leaf_events: usize,
    /// Stored events rewritten per late event, up to which a merge is done at once; above it the
    /// events become a late run.
    pub(crate) rewrite_per_late: f64,
    pub(crate) late_runs_max: usize,
    /// Leaves are cut full from the left, as in the papers; otherwise evenly.
    pub(crate) exact_cut: bool,
    pub(crate) bucket_events: u32,
    pub(crate) counters: &'a Counters,
}

/// Output of leaves.
pub(crate) struct GroupOutput<'a> {
    pub(crate) group: &'a mut GroupWriter,
    pub(crate) encodings: &'a mut EncodingCache,
    pub(crate) shared: &'a mut SharedLeaves,
}

/// Stores events of one stream in one partition.
pub(crate) struct StreamWriter<'a, 'g> {
    pub(crate) context: &'a StoreContext<'a>,
    pub(crate) out: GroupOutput<'g>,
    /// State of the stream in the partition so far.
    pub(crate) state: &'a StreamState,
    /// The job stores later events of the stream in another partition: no events will be appended
    /// here any more, unless the later ones are deleted.
    pub(crate) is_last: bool,
    /// Changes to that state. The delta names the stream.
    pub(crate) delta: &'a mut StreamDelta,
}

impl StoreContext<'_> {
    pub(super) fn leaf_events(&self) -> usize {
        self.leaf_events.max(1)
    }

    /// All rows of a stream's leaf, every field.
    pub(super) fn rows_of(&self, leaf: &LeafEntry) -> Result<Rows> {
        let all = 0..leaf.count as usize;
        self.store.leaf_rows(self.segment, leaf, all, self.table)
    }

    pub(super) fn target(&self) -> PyramidTarget<'_> {
        PyramidTarget {
            store: self.store,
            segment: self.segment,
            table: self.table,
            top: self.top,
            bucket_events: self.bucket_events,
        }
    }
}
