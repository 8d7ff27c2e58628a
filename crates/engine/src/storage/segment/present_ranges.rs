//! Files of segments with missing ranges: the bytes that are present.
//!
//! Invariant: bytes that are reported as present can be read. Concurrency: shared by all readers.

use crate::common::ids::{SegmentId, ShardIndex, TableId};
use headwater_types::{ByteRange, ClosedRange, Timestamp};
use std::fmt::Debug;

/// A range of a segment that is needed and missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedRange {
    /// The segment.
    pub segment: u64,
    /// Offset of the range.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

impl MissedRange {
    /// Describes a missing range of a segment.
    pub(crate) fn of(segment: SegmentId, range: ByteRange) -> MissedRange {
        MissedRange {
            segment: segment.0,
            offset: range.start(),
            bytes: range.len(),
        }
    }
}

/// The present ranges of copied segments.
pub(crate) trait PresentRanges: Debug + Send + Sync {
    /// The missing parts of a range of a segment, sorted and disjoint.
    fn missing(&self, segment: SegmentId, range: ByteRange) -> Vec<ByteRange>;

    /// The missing ranges of header, footers and checkpoints.
    fn missing_frame(&self, segment: SegmentId) -> Vec<ByteRange>;

    /// True when a newer version of the segment's contents is known, but not shown yet.
    fn is_older(&self, segment: SegmentId) -> bool;

    /// The first instant in a range from which on newer contents of a table's shard are known,
    /// where no segment is shown yet.
    fn left_out(&self, table: TableId, shard: ShardIndex, range: &ClosedRange)
    -> Option<Timestamp>;

    /// Records a read of a segment whose frame is missing.
    fn missed_frame(&self, segment: SegmentId);

    /// True when the reads of this thread are on behalf of a reader for which missing ranges are
    /// fetched.
    fn has_reader(&self) -> bool;

    /// Records ranges that a read of this thread needs, without having met them yet.
    fn missed_too(&self, ranges: &[MissedRange]);
}
