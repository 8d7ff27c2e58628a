//! Numbers for new segments.
//!
//! Invariants: ascending, never reused, also over openings: a commit names the next one.

use crate::common::ids::SegmentId;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct SegmentIds(AtomicU64);

impl SegmentIds {
    pub(crate) fn new(next: u64) -> SegmentIds {
        SegmentIds(AtomicU64::new(next))
    }

    /// The id of the next new segment.
    pub(crate) fn next(&self) -> SegmentId {
        SegmentId(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn take(&self) -> SegmentId {
        self.take_many(1)
    }

    /// The first of `count` consecutive ids.
    pub(crate) fn take_many(&self, count: u16) -> SegmentId {
        SegmentId(self.0.fetch_add(u64::from(count), Ordering::Relaxed))
    }
}
