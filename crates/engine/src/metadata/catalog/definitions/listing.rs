//! The streams of a table in order, a page at a time, and the keys of streams.
//!
//! Invariants, concurrency: as in [`super`]; the lock is released before keys are passed on.

use super::Catalog;
use crate::Result;
use crate::common::ids::{Sequence, StreamId, TableId};
use crate::metadata::catalog::{KeyMatch, StreamIndex, StreamRecord, TagFilter, Walk};
use std::collections::HashMap;

impl Catalog {
    /// Visits key bytes of at most `limit` matching streams of a table after `after`, ascending, as
    /// seen by a snapshot with this sequence.
    #[allow(
        clippy::too_many_arguments,
        reason = "a page of a walk: what, where, how far, for whom"
    )]
    pub(crate) fn stream_keys_after(
        &self,
        index: &dyn StreamIndex,
        table: TableId,
        after: &[u8],
        having: &TagFilter,
        limit: usize,
        at: Sequence,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        if limit == 0 {
            return Ok(());
        }
        let mut failed = None;
        let mut look = |key: &[u8]| match having.look(key) {
            Ok(look) => look,
            Err(error) => {
                failed.get_or_insert(error);
                KeyMatch::Not(Walk::End)
            }
        };
        // Pending ones first: a commit in between moves them to the metadata, so each stream is
        // seen at least once.
        let mut pending: Vec<Box<[u8]>> = {
            let state = self.state.read();
            let pending = state.pending_keys.iter().map(|p| &*p.0);
            let dropped_later = state.dropped.iter().filter(|(s, _)| *s > at);
            let mut records: Vec<&StreamRecord> = pending
                .chain(dropped_later.map(|(_, r)| r))
                .filter(|r| r.table == table && *r.key > *after && look(&r.key) == KeyMatch::Match)
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
        index.walk_keys(table, after, &mut |key, id| {
            let found = match look(key) {
                KeyMatch::Match => !self.is_dropped(id),
                KeyMatch::Not(Walk::Next) => false,
                KeyMatch::Not(walk) => return walk,
            };
            if !found {
                return Walk::Next;
            }
            while left > 0
                && let Some(before) = pending.next_if(|pending| **pending < *key)
            {
                each(&before);
                left -= 1;
            }
            // Committed in between: the stream is in the metadata and among the pending ones.
            pending.next_if(|pending| **pending == *key);
            if left > 0 {
                each(key);
                left -= 1;
            }
            if left > 0 { Walk::Next } else { Walk::End }
        })?;
        for key in pending.take(left) {
            each(&key);
        }
        match failed {
            Some(error) => Err(index.unreadable_key(error)),
            None => Ok(()),
        }
    }

    /// At most `limit` streams of a table from a number on, by number, as seen by a snapshot with
    /// this sequence: of a dropped stream and its successors, which share one name, the first. Also
    /// returns the number to continue from, if there may be more.
    pub(crate) fn streams_by_number(
        &self,
        index: &dyn StreamIndex,
        table: TableId,
        first: StreamId,
        limit: usize,
        at: Sequence,
    ) -> Result<(Vec<StreamRecord>, Option<StreamId>)> {
        let later = |(s, r): &&(Sequence, StreamRecord)| *s > at && r.table == table;
        // Pending ones first: a commit in between moves them to the metadata, so each stream is
        // seen at least once.
        let mut records: Vec<StreamRecord> = {
            let state = self.state.read();
            let pending = state.pending_keys.iter().map(|p| &*p.0);
            let dropped = state.dropped.iter().filter(later).map(|(_, r)| r);
            let mut records: Vec<&StreamRecord> = pending
                .filter(|r| r.table == table)
                .chain(dropped)
                .filter(|r| r.id >= first)
                .collect();
            if records.len() > limit {
                records.select_nth_unstable_by_key(limit, |r| r.id);
                records.truncate(limit);
            }
            records.into_iter().cloned().collect()
        };
        let mut found = 0;
        index.streams_from(first, &mut |record| {
            if found == limit {
                return false;
            }
            if record.table == table && !self.is_dropped(record.id) {
                found += 1;
                records.push(record);
            }
            true
        })?;
        records.sort_unstable_by_key(|r| r.id);
        records.dedup_by_key(|r| r.id);
        records.truncate(limit);
        let last = records.last().filter(|_| records.len() == limit);
        let next = last.and_then(|r| r.id.0.checked_add(1)).map(StreamId);
        let state = self.state.read();
        if state.dropped.iter().any(|d| later(&d)) {
            let mut seen: HashMap<&[u8], StreamId> = HashMap::new();
            for (_, record) in state.dropped.iter().filter(later) {
                let known = seen.entry(&record.key).or_insert(record.id);
                *known = record.id.min(*known);
            }
            records.retain(|r| seen.get(&*r.key).is_none_or(|first| *first >= r.id));
        }
        drop(state);
        Ok((records, next))
    }

    /// The key bytes of a stream, from any source.
    pub(crate) fn stream_key_of(
        &self,
        index: &dyn StreamIndex,
        stream: StreamId,
    ) -> Result<Option<Box<[u8]>>> {
        if let Some(record) = index.streams(&[stream])?.pop() {
            return Ok(Some(record.key));
        }
        Ok(self.stream_keys(index, &[stream])?.remove(&stream))
    }

    /// The key bytes of streams.
    pub(crate) fn stream_keys(
        &self,
        index: &dyn StreamIndex,
        streams: &[StreamId],
    ) -> Result<HashMap<StreamId, Box<[u8]>>> {
        // Pending ones first: a commit in between moves them to the metadata, so each stream is
        // seen at least once.
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
            // Dropped, but some of its events have not been reached by the delete.
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
