//! The streams of a table in order, a page at a time, and the keys of streams.
//!
//! Invariants, concurrency: as in [`super`]; the lock is not held while keys are handed out.

use super::Catalog;
use crate::Result;
use crate::catalog::{StreamIndex, StreamRecord};
use crate::ids::{Sequence, StreamId, TableId};
use std::collections::HashMap;

impl Catalog {
    /// Hands out key bytes of at most `limit` streams of a table behind `after`, rising, as a
    /// snapshot with this sequence sees them.
    pub(crate) fn stream_keys_after(
        &self,
        index: &dyn StreamIndex,
        table: TableId,
        after: &[u8],
        limit: usize,
        at: Sequence,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        // Pending ones first: a commit in between moves them to the metadata, never away from both.
        let mut pending: Vec<Box<[u8]>> = {
            let state = self.state.read();
            let pending = state.pending_keys.iter().map(|p| &*p.0);
            let dropped_later = state.dropped.iter().filter(|(s, _)| *s > at);
            let mut records: Vec<&StreamRecord> = pending
                .chain(dropped_later.map(|(_, r)| r))
                .filter(|r| r.table == table && *r.key > *after)
                .collect();
            if records.len() > limit {
                records.select_nth_unstable_by(limit, |a, b| a.key.cmp(&b.key));
                records.truncate(limit);
            }
            records.into_iter().map(|r| r.key.clone()).collect()
        };
        pending.sort_unstable();
        pending.dedup();
        let mut pending = pending.into_iter().peekable();
        let mut left = limit;
        let mut is_dropped = |id: StreamId| self.is_dropped(id);
        index.stream_keys_after(table, after, &mut is_dropped, &mut |key| {
            while left > 0
                && let Some(before) = pending.next_if(|pending| **pending < *key)
            {
                each(&before);
                left -= 1;
            }
            // Committed in between: it is in both.
            pending.next_if(|pending| **pending == *key);
            if left > 0 {
                each(key);
                left -= 1;
            }
            left > 0
        })?;
        for key in pending.take(left) {
            each(&key);
        }
        Ok(())
    }

    /// The key bytes of streams.
    pub(crate) fn stream_keys(
        &self,
        index: &dyn StreamIndex,
        streams: &[StreamId],
    ) -> Result<HashMap<StreamId, Box<[u8]>>> {
        // Pending ones first: a commit in between moves them to the metadata, never away from both.
        let mut keys: HashMap<StreamId, Box<[u8]>> = HashMap::with_capacity(streams.len());
        let mut pending = self.pending_keys(streams);
        let mut missing = Vec::new();
        for stream in streams {
            match pending.remove(stream) {
                Some(key) => drop(keys.insert(*stream, key)),
                None => missing.push(*stream),
            }
        }
        for record in index.streams(&missing)? {
            keys.insert(record.id, record.key);
        }
        if keys.len() < streams.len() {
            // Gone, and yet there are events that a delete has not reached.
            let dropped = index.dropped()?.into_iter().map(|(_, record)| record);
            for record in self.pending_dropped().into_iter().chain(dropped) {
                if streams.contains(&record.id) {
                    keys.insert(record.id, record.key);
                }
            }
        }
        Ok(keys)
    }
}
