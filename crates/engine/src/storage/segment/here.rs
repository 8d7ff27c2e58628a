//! Files of segments with missing ranges: which of their bytes are here.
//!
//! Invariant: bytes that are reported to be here can be read.
//! Concurrency: shared by all readers.

use crate::common::ids::SegmentId;
use headwater_types::ByteRange;
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

impl MissedRange {
    /// Describes a range of a segment that was missed.
    pub(crate) fn of(segment: SegmentId, range: ByteRange) -> MissedRange {
        MissedRange {
            segment: segment.0,
            offset: range.start(),
            bytes: range.len(),
        }
    }
}

/// The ranges of copied segments that are here.
pub(crate) trait Here: Debug + Send + Sync {
    /// The parts of a range of a segment that are not here; they rise and are apart.
    fn missing(&self, segment: SegmentId, range: ByteRange) -> Vec<ByteRange>;

    /// The missing ranges of header, footers and checkpoints.
    fn missing_frame(&self, segment: SegmentId) -> Vec<ByteRange>;

    /// True when a newer version of the segment's contents is known, and not shown yet.
    fn is_older(&self, segment: SegmentId) -> bool;

    /// Records that a segment was read whose frame is not here.
    fn missed_frame(&self, segment: SegmentId);
}
