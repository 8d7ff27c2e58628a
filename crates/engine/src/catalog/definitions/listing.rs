//! The streams of a table in order, a page at a time.
//!
//! Invariants, concurrency: as in [`super`]; the lock is not held while keys are handed out.

use super::Catalog;
use crate::Result;
use crate::catalog::StreamRecord;
use crate::ids::{Sequence, StreamId, TableId};
use crate::meta::Meta;

impl Catalog {
    /// Hands out key bytes of at most `limit` streams of a table behind `after`, rising, as a snapshot with this sequence sees them.
    pub(crate) fn stream_keys_after(
        &self,
        meta: &Meta,
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
        meta.stream_keys_after(table, after, &mut is_dropped, &mut |key| {
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
}
