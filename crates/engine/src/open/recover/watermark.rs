//! Time up to which a stream is in order, by memory and stored rows.

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
                // The watermark only decides how writers sort new events; stored rows may be
                // elsewhere.
                return Ok(None);
            }
            Arc::clone(&state.partitions)
        };
        stored_watermark(self.store, &partitions, stream, table)
    }
}
