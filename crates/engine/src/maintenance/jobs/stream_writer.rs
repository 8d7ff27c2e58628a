//! Writer of one stream's events in one partition: its inputs and its outputs.
//!
//! The method of storing is decided in [`super::store_stream`], and carried out in
//! [`super::append`] and [`super::late_merge`].

use super::cutter::SharedLeaves;
use crate::Result;
use crate::common::counters::Counters;
use crate::common::ids::SegmentId;
use crate::metadata::catalog::Table;
use crate::storage::segment::pyramid::PyramidTarget;
use crate::storage::segment::{GroupWriter, LeafEntry, Store, StreamDelta, StreamState};
use headwater_codec::leaf::EncodeHints;
use headwater_late::MergeScope;
use headwater_types::{Level, Rows};

/// Context that all streams of a partition share.
pub(crate) struct StoreContext<'a> {
    pub(crate) store: &'a Store,
    pub(crate) segment: SegmentId,
    pub(crate) table: &'a Table,
    pub(crate) top: Level,
    pub(crate) scope: MergeScope,
    /// Events of a full leaf: the table's, or fewer if the policy says so.
    pub(crate) leaf_events: usize,
    /// Rewriting up to this many stored events per late event is done at once; more waits in a late
    /// run.
    pub(crate) rewrite_per_late: f64,
    pub(crate) late_runs_max: usize,
    /// Leaves are cut full from the left, as in the papers; otherwise evenly.
    pub(crate) exact_cut: bool,
    pub(crate) bucket_events: u32,
    pub(crate) counters: &'a Counters,
}

/// Where leaves go.
pub(crate) struct GroupOutput<'a> {
    pub(crate) group: &'a mut GroupWriter,
    pub(crate) hints: &'a mut EncodeHints,
    pub(crate) shared: &'a mut SharedLeaves,
}

/// Stores events of one stream in one partition.
pub(crate) struct StreamWriter<'a, 'g> {
    pub(crate) context: &'a StoreContext<'a>,
    pub(crate) out: GroupOutput<'g>,
    /// State of the stream in the partition so far.
    pub(crate) state: &'a StreamState,
    /// The job stores later events of the stream in another partition: nothing will be appended
    /// here any more, unless these are deleted.
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
