//! The most recently folded pages, unpacked.
//!
//! Invariants: at most so many pages; a page is there once. Concurrency: one lock, held for a
//! search of a few entries. Failure: none.

use super::super::index::PageNumber;
use super::super::state::StreamState;
use crate::common::ids::{SegmentId, StreamId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// A version of a page, by the offset of the newest footer that changed it.
pub(super) type PageKey = (SegmentId, PageNumber, u64);

/// The same, of one of the stores that share a cache.
pub(super) type StorePage = (u64, PageKey);

/// The streams of a page, sorted.
pub(super) type Streams = Arc<Vec<(StreamId, Arc<StreamState>)>>;

/// A few pages, unpacked.
#[derive(Debug)]
pub(super) struct FreshPages {
    count_max: usize,
    pages: Mutex<VecDeque<(StorePage, Streams)>>,
}

impl FreshPages {
    pub(super) fn new(count_max: usize) -> FreshPages {
        FreshPages {
            count_max,
            pages: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: StorePage) -> Option<Streams> {
        let pages = self.pages.lock();
        let (_, streams) = pages.iter().find(|(k, _)| *k == key)?;
        Some(Arc::clone(streams))
    }

    /// Inserts a page; returns the evicted one.
    pub(super) fn put(&self, key: StorePage, streams: Streams) -> Option<(StorePage, Streams)> {
        let mut pages = self.pages.lock();
        if pages.iter().any(|(k, _)| *k == key) {
            // Two readers have folded the page at the same time.
            return None;
        }
        pages.push_back((key, streams));
        if pages.len() > self.count_max {
            pages.pop_front()
        } else {
            None
        }
    }

    /// Removes the pages of a segment.
    pub(super) fn forget(&self, store: u64, id: SegmentId) {
        let is_of = |(of, (segment, ..)): &StorePage| (*of, *segment) == (store, id);
        self.pages.lock().retain(|(key, _)| !is_of(key));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(segment: u64, page: PageNumber, version: u64) -> StorePage {
        (0, (SegmentId(segment), page, version))
    }

    #[test]
    fn the_first_page_makes_room_and_is_handed_back() {
        let fresh = FreshPages::new(2);
        let of = |stream: u32| Arc::new(vec![(StreamId(stream), Arc::default())]);
        let keys = [key(7, 0, 64), key(7, 1, 64), key(7, 1, 99), key(8, 1, 64)];
        assert!(fresh.put(keys[0], of(0)).is_none());
        assert!(fresh.put(keys[1], of(1)).is_none());
        // The same page once more: nothing is evicted.
        assert!(fresh.put(keys[0], of(5)).is_none());
        let streams = fresh.get(keys[0]).unwrap();
        assert!(matches!(streams[..], [(StreamId(0), _)]));
        // Another version of a page is another entry.
        assert_eq!(fresh.put(keys[2], of(2)).unwrap().0, keys[0]);
        assert!(fresh.get(keys[0]).is_none() && fresh.get(keys[1]).is_some());
        assert_eq!(fresh.put(keys[3], of(3)).unwrap().0, keys[1]);
        fresh.forget(0, SegmentId(7));
        assert!(fresh.get(keys[2]).is_none() && fresh.get(keys[3]).is_some());
    }
}
