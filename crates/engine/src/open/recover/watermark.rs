//! Up to where a stream is in order, by what memory knows and what is stored.

use super::Replayer;
use crate::Result;
use crate::common::ids::{StreamId, TableId};
use crate::core::shard::Shard;
use crate::storage::partitions::stored_watermark;
use headwater_types::Timestamp;
use std::sync::Arc;

impl Replayer<'_> {
    pub(super) fn watermark(
        &self,
        shard: &Shard,
        stream: StreamId,
        table: TableId,
    ) -> Result<Option<Timestamp>> {
        let partitions = {
            let state = shard.state.lock();
            if let Some(watermark) = state.known_watermark(stream) {
                return Ok(watermark);
            }
            if self.tail.is_some() {
                // It says only how writers sort what comes; what is stored may be elsewhere.
                return Ok(None);
            }
            Arc::clone(&state.partitions)
        };
        stored_watermark(self.store, &partitions, stream, table)
    }
}
