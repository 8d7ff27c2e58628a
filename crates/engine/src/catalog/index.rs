//! What the catalog asks of whoever holds the streams that it does not: the metadata.

use super::streams::StreamRecord;
use super::table::Table;
use crate::Result;
use crate::ids::{Sequence, StreamId, TableId};

/// Streams as of the newest commit.
pub(crate) trait StreamIndex {
    /// The stream behind key bytes.
    fn find_stream(&self, key: &[u8]) -> Result<Option<StreamId>>;

    /// Records of these streams; those not there are left out.
    fn streams(&self, ids: &[StreamId]) -> Result<Vec<StreamRecord>>;

    /// Records of all streams of a table, in order of their keys.
    fn streams_of(&self, table: TableId) -> Result<Vec<StreamRecord>>;

    /// Hands out key bytes of the streams of a table behind `after`, in order and without those
    /// that are left out, until `each` says false.
    fn stream_keys_after(
        &self,
        table: TableId,
        after: &[u8],
        is_left_out: &mut dyn FnMut(StreamId) -> bool,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()>;

    /// Streams dropped, each with the sequence of its end, as far as they have not been forgotten.
    fn dropped(&self) -> Result<Vec<(Sequence, StreamRecord)>>;
}

/// The definitions that the metadata hold, for the catalog at an opening.
#[derive(Debug)]
pub(crate) struct SavedDefinitions {
    pub(crate) tables: Vec<Table>,
    pub(crate) next_stream: u32,
    /// Streams dropped, each with the sequence of its end.
    pub(crate) dropped: Vec<(Sequence, StreamRecord)>,
    pub(crate) stream_counts: Vec<(TableId, u64)>,
    pub(crate) tag_keys: Vec<(TableId, String)>,
}
