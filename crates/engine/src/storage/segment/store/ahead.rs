//! Read-ahead of leaves.
//!
//! Invariants: a reader receives the result of a normal read of the leaf, errors included, and no
//! other reader sees these errors. With the first leaf of a read nothing else is requested; the
//! further the read continues, the more is requested ahead, up to the setting. Pending requests
//! take at most the memory passed to [`ReadAhead::new`]; a leaf that does not fit is not requested,
//! and its reader reads it. Concurrency: the owner of a request completes it. A request that no
//! reader reaches stays on the list of pending ones until the device has answered, and no thread
//! waits for it. Failure: a request that cannot be made is left out: the reader meets the error
//! itself.

use super::{FileOffset, Store};
use crate::common::error::Damage;
use crate::common::ids::SegmentId;
use crate::storage::fast_index::RepeatKind;
use crate::storage::read_stats;
use crate::storage::segment::LeafEntry;
use crate::{Error, Result};
use headwater_io::Completion;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits of read-ahead, and its pending requests.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Maximum number of leaves ahead of one read.
    depth: usize,
    bytes_max: u64,
    bytes: AtomicU64,
    /// Requests that no reader reached, and that are pending at the device.
    abandoned: Mutex<Vec<PendingRead>>,
}

#[derive(Debug)]
struct PendingRead {
    completion: Completion<Vec<u8>>,
    bytes: u64,
}

/// A leaf that was requested.
#[derive(Debug)]
pub(crate) struct LeafAhead {
    location: FileOffset,
    /// `None` = the request was completed.
    request: Option<PendingRead>,
    from: Arc<ReadAhead>,
}

impl ReadAhead {
    /// Requests up to `depth` leaves ahead of each read, together at most `bytes_max` bytes.
    pub(crate) fn new(depth: usize, bytes_max: usize) -> ReadAhead {
        ReadAhead {
            depth,
            bytes_max: u64::try_from(bytes_max).unwrap_or(u64::MAX),
            bytes: AtomicU64::new(0),
            abandoned: Mutex::new(Vec::new()),
        }
    }

    /// Reserves bytes, if they fit.
    fn reserve(&self, bytes: u64) -> bool {
        self.forget_answered();
        let room = |used: u64| {
            let with_it = used.checked_add(bytes)?;
            (with_it <= self.bytes_max).then_some(with_it)
        };
        let reserved = self
            .bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, room);
        reserved.is_ok()
    }

    fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Drops abandoned requests that have been answered.
    fn forget_answered(&self) {
        let Some(mut left) = self.abandoned.try_lock() else {
            return;
        };
        left.retain(|request| {
            let is_answered = request.completion.is_done();
            if is_answered {
                self.release(request.bytes);
            }
            !is_answered
        });
    }
}

impl Drop for LeafAhead {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.from.abandoned.lock().push(request);
        }
    }
}

/// The read-ahead of one read of consecutive leaves.
#[derive(Debug, Default)]
pub(crate) struct AheadOfReader {
    /// Requests for the next leaves that were considered; `None` = the reader reads the leaf.
    begun: VecDeque<Option<LeafAhead>>,
    /// Number of leaves that were read.
    read: usize,
}

impl AheadOfReader {
    /// Advances to the next leaf: returns its request, and requests some of the leaves after it.
    /// `leaves` starts with the next leaf; `None` = the leaf will not be read.
    pub(crate) fn go_on<'a>(
        &mut self,
        store: &Store,
        leaves: impl Iterator<Item = Option<(SegmentId, &'a LeafEntry)>>,
    ) -> Option<LeafAhead> {
        let ahead = store.ahead.as_ref()?;
        // The first leaf is read alone: many reads end there.
        let wanted = match self.read {
            0 => 1,
            read => read.saturating_mul(2).saturating_add(1),
        };
        self.read = self.read.saturating_add(1);
        let thought_of = self.begun.len();
        // The leaf itself is read by its reader.
        let wanted = wanted.min(ahead.depth);
        for (place, leaf) in leaves.take(wanted).enumerate().skip(thought_of) {
            let request = match leaf {
                Some((id, entry)) if place > 0 => store.request_ahead(ahead, id, entry),
                _ => None,
            };
            self.begun.push_back(request);
        }
        self.begun.pop_front().flatten()
    }
}

impl Store {
    /// Sets the read-ahead.
    pub(crate) fn with_read_ahead(mut self, ahead: Option<ReadAhead>) -> Store {
        self.ahead = ahead.map(Arc::new);
        self
    }

    /// Requests a leaf, unless it is in memory or in the fast tier, or the device may not have it.
    fn request_ahead(
        &self,
        ahead: &Arc<ReadAhead>,
        id: SegmentId,
        entry: &LeafEntry,
    ) -> Option<LeafAhead> {
        let location = FileOffset(id, entry.offset);
        let newest = self.repeats.get(RepeatKind::Newest);
        let is_near = newest.is_some_and(|kept| kept.up_to(id).is_some());
        // In a copy the misses of reads are recorded: a request ahead must not cause one.
        if is_near || self.here.is_some() || self.has_leaf(location) {
            return None;
        }
        let bytes = u64::from(entry.bytes);
        let len = usize::try_from(entry.bytes).ok()?;
        let file = self.open_file(id).ok()?;
        if !ahead.reserve(bytes) {
            return None;
        }
        Some(LeafAhead {
            location,
            request: Some(PendingRead {
                completion: file.submit_read(entry.offset, vec![0; len]),
                bytes,
            }),
            from: Arc::clone(ahead),
        })
    }

    /// The bytes of a leaf that was requested ahead. `None` = the request is for another leaf.
    pub(super) fn arrived(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        mut ahead: LeafAhead,
    ) -> Result<Option<Arc<[u8]>>> {
        if ahead.location != FileOffset(id, entry.offset) {
            return Ok(None);
        }
        let Some(PendingRead { completion, bytes }) = ahead.request.take() else {
            return Ok(None);
        };
        let answer = completion.wait();
        ahead.from.release(bytes);
        let read = answer.map_err(|error| self.read_failed(id, entry.offset, bytes, error))?;
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        read_stats::bytes(bytes);
        Ok(Some(read.into()))
    }

    /// The error for bytes of a segment that could not be read.
    pub(super) fn read_failed(
        &self,
        id: SegmentId,
        offset: u64,
        bytes: u64,
        error: io::Error,
    ) -> Error {
        let path = self.path(id);
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::damage(Damage {
                file: path,
                offset,
                expected: format!("{bytes} committed bytes"),
                found: "the end of the file".into(),
            }),
            _ => Error::io("read", &path, error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pending_leaf(
        ahead: &Arc<ReadAhead>,
        bytes: u64,
    ) -> (LeafAhead, headwater_io::Completer<Vec<u8>>) {
        assert!(ahead.reserve(bytes));
        let (completion, medium) = Completion::pending();
        let leaf = LeafAhead {
            location: FileOffset(SegmentId(1), 0),
            request: Some(PendingRead { completion, bytes }),
            from: Arc::clone(ahead),
        };
        (leaf, medium)
    }

    #[test]
    fn what_nobody_came_to_takes_its_room_until_the_medium_answered() {
        let ahead = Arc::new(ReadAhead::new(4, 100));
        let (first, medium) = pending_leaf(&ahead, 60);
        assert!(!ahead.reserve(60), "there is no room for two");
        drop(first);
        assert!(!ahead.reserve(60), "the medium still has it");
        medium.complete(Ok(vec![0; 60]));
        assert!(ahead.reserve(60));
        ahead.release(60);
        assert_eq!(ahead.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_never_reserve_more_than_there_is() {
        let ahead = Arc::new(ReadAhead::new(4, 1_000));
        std::thread::scope(|scope| {
            for thread in 0..16_u64 {
                let ahead = &ahead;
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = (thread * 37 + round) % 200 + 1;
                        if !ahead.reserve(bytes) {
                            continue;
                        }
                        assert!(ahead.bytes.load(Ordering::Acquire) <= 1_000);
                        let (completion, medium) = Completion::pending();
                        let leaf = LeafAhead {
                            location: FileOffset(SegmentId(thread), round),
                            request: Some(PendingRead { completion, bytes }),
                            from: Arc::clone(ahead),
                        };
                        drop(leaf);
                        medium.complete(Ok(Vec::new()));
                    }
                });
            }
        });
        ahead.forget_answered();
        assert_eq!(ahead.bytes.load(Ordering::Relaxed), 0);
        assert!(ahead.abandoned.lock().is_empty());
    }
}
