//! Interface of the catalog to the metadata, which contain the streams that are not in the catalog.

use super::streams::StreamRecord;
use super::table::Table;
use super::tag_filter::Walk;
use crate::common::ids::{Sequence, StreamId, TableId};
use crate::{Error, Result};
use headwater_codec::DecodeError;
use std::sync::Arc;

/// Streams as of the newest commit.
pub(crate) trait StreamIndex {
    /// The stream with these key bytes.
    fn find_stream(&self, key: &[u8]) -> Result<Option<StreamId>>;

    /// Records of these streams; missing ones are left out.
    fn streams(&self, ids: &[StreamId]) -> Result<Vec<StreamRecord>>;

    /// Records of all streams of a table, in order of their keys.
    fn streams_of(&self, table: TableId) -> Result<Vec<StreamRecord>>;

    /// Passes key bytes of the streams of a table after `after` to `each`, in order, with the
    /// streams' numbers; `each` returns the next step of the walk.
    fn walk_keys(
        &self,
        table: TableId,
        after: &[u8],
        each: &mut dyn FnMut(&[u8], StreamId) -> Walk,
    ) -> Result<()>;

    /// Passes records of streams of all tables from a number on to `each`, by number, until it
    /// returns false.
    fn streams_from(
        &self,
        first: StreamId,
        each: &mut dyn FnMut(StreamRecord) -> bool,
    ) -> Result<()>;

    /// The error for key bytes that cannot be read.
    fn unreadable_key(&self, error: DecodeError) -> Error;

    /// Streams dropped, each with the sequence of its end, unless they have been forgotten.
    fn dropped(&self) -> Result<Vec<(Sequence, StreamRecord)>>;
}

/// The definitions in the metadata, for the catalog at an opening.
#[derive(Debug)]
pub(crate) struct SavedDefinitions {
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) next_stream: u32,
    /// Streams dropped, each with the sequence of its end.
    pub(crate) dropped: Vec<(Sequence, StreamRecord)>,
    pub(crate) stream_counts: Vec<(TableId, u64)>,
    pub(crate) tag_keys: Vec<(TableId, String)>,
}
