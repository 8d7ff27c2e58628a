//! Files of segments with holes: which of their bytes are here.
//!
//! Invariant: what is said to be here can be read.
//! Concurrency: shared by all readers.

use crate::common::ids::SegmentId;
use std::fmt::Debug;

/// A range of a segment that is needed and not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedRange {
    /// The segment.
    pub segment: u64,
    /// Where the range begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// What is here of segments that are copied.
pub(crate) trait Here: Debug + Send + Sync {
    /// The parts of a range of a segment that are not here, by offset: offset and length of each.
    fn missing(&self, segment: SegmentId, offset: u64, bytes: u64) -> Vec<(u64, u64)>;

    /// Of header, footers and checkpoints what is not here.
    fn missing_frame(&self, segment: SegmentId) -> Vec<(u64, u64)>;

    /// True when a newer version of what the segment holds is known, and not shown yet.
    fn is_older(&self, segment: SegmentId) -> bool;

    /// Somebody read a segment of which the frame is not here.
    fn missed_frame(&self, segment: SegmentId);
}
