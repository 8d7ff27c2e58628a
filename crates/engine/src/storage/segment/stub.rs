//! The head of the file of a segment whose rows were freed: the remaining ranges, and their
//! locations. `maintenance/jobs/free_rows` decides what remains.
//!
//! Invariants: ranges are sorted, disjoint, and below the length that the segment had when it was
//! freed; bytes after that length are at the end of the file, as they were appended. Failure: other
//! bytes are refused; memory is bounded by the bytes that exist. Format: docs/format/stub.md.

use crate::common::ids::SegmentId;
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::ByteRange;
use headwater_types::byte_range::joined;
use headwater_types::invariant::wide;

/// The magic; its last byte is the version.
pub(crate) const STUB_MAGIC: [u8; 8] = *b"HWSTUB\x00\x01";
/// Bytes of every head: magic, segment, length, bytes of the head.
pub(crate) const STUB_FRONT_BYTES: u64 = 28;
const CRC_BYTES: usize = 4;

/// The remaining ranges of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StubHead {
    pub(crate) id: SegmentId,
    /// Committed bytes of the segment when its rows were freed.
    pub(crate) base: u64,
    /// The remaining ranges, sorted and disjoint.
    pub(crate) ranges: Vec<ByteRange>,
}

impl StubHead {
    /// A head for ranges in any order, which may touch or overlap.
    pub(crate) fn new(id: SegmentId, base: u64, mut ranges: Vec<ByteRange>) -> StubHead {
        ranges.retain(|range| !range.is_empty());
        StubHead {
            id,
            base,
            ranges: joined(ranges),
        }
    }

    /// Number of remaining bytes.
    pub(crate) fn remaining_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.len()).sum()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut list = Vec::new();
        list.put_varint(wide(self.ranges.len()));
        let mut end = 0u64;
        for range in &self.ranges {
            list.put_varint(range.start().saturating_sub(end));
            list.put_varint(range.len());
            end = range.end();
        }
        let bytes = STUB_FRONT_BYTES.saturating_add(wide(list.len() + CRC_BYTES));
        let mut out = STUB_MAGIC.to_vec();
        out.put_u64(self.id.0);
        out.put_u64(self.base);
        // A list of more than 4 GiB would belong to a segment of petabytes.
        out.put_u32(u32::try_from(bytes).unwrap_or(u32::MAX));
        out.extend_from_slice(&list);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// The length of the head that starts with these [`STUB_FRONT_BYTES`] bytes.
    pub(crate) fn head_bytes(front: &[u8]) -> Result<u64, DecodeError> {
        let mut cursor = Cursor::new(front);
        if cursor.take(STUB_MAGIC.len(), "stub magic")? != STUB_MAGIC {
            return Err(DecodeError {
                expected: "the magic of a stub of version 1",
                offset: 0,
            });
        }
        cursor.u64("segment")?;
        cursor.u64("length of the segment")?;
        Ok(u64::from(cursor.u32("length of the head")?))
    }

    /// Decodes exactly the bytes of a head.
    pub(crate) fn decode(bytes: &[u8]) -> Result<StubHead, DecodeError> {
        let at = bytes.len().saturating_sub(CRC_BYTES);
        let (body, trailer) = bytes.split_at(at);
        if Cursor::new(trailer).u32("stub checksum")? != crc32c(body) {
            return Err(DecodeError {
                expected: "the head of a stub with a valid checksum",
                offset: at,
            });
        }
        if StubHead::head_bytes(body)? != wide(bytes.len()) {
            return Err(DecodeError {
                expected: "a head of the declared length",
                offset: STUB_MAGIC.len(),
            });
        }
        let mut cursor = Cursor::new(body);
        cursor.take(STUB_MAGIC.len(), "stub magic")?;
        let id = SegmentId(cursor.u64("segment")?);
        let base = cursor.u64("length of the segment")?;
        cursor.u32("length of the head")?;
        let count = cursor.varint_up_to(wide(cursor.remaining()), "number of ranges")?;
        let mut ranges = Vec::with_capacity(count);
        let mut end = 0u64;
        for _ in 0..count {
            let gap = cursor.varint("gap before a range")?;
            let bytes = cursor.varint("length of a range")?;
            let offset = end.checked_add(gap);
            let next = offset.and_then(|offset| offset.checked_add(bytes));
            let (Some(offset), Some(next)) = (offset, next.filter(|next| *next <= base)) else {
                return Err(cursor.expected("a range within the segment"));
            };
            if bytes == 0 || (gap == 0 && !ranges.is_empty()) {
                return Err(cursor.expected("ranges that do not touch"));
            }
            ranges.push(ByteRange::new(offset, next));
            end = next;
        }
        cursor.finish()?;
        Ok(StubHead { id, base, ranges })
    }
}

/// The contents of a head, with the locations of the remaining ranges.
#[derive(Debug)]
pub(super) struct StubLayout {
    pub(super) base: u64,
    /// The remaining ranges, sorted, each with its location in the file.
    ranges: Vec<(ByteRange, u64)>,
    /// Start of the bytes in the file that were appended since.
    pub(super) tail_at: u64,
}

impl StubLayout {
    pub(super) fn of(head: &StubHead) -> StubLayout {
        let mut place = wide(head.encode().len());
        let mut ranges = Vec::with_capacity(head.ranges.len());
        for range in &head.ranges {
            ranges.push((*range, place));
            place = place.saturating_add(range.len());
        }
        StubLayout {
            base: head.base,
            ranges,
            tail_at: place,
        }
    }

    /// Location in the file of the bytes from an offset below the base on; `None` = freed.
    pub(super) fn find(&self, offset: u64) -> Option<ByteRange> {
        let at = self.ranges.partition_point(|(r, _)| r.start() <= offset);
        let (range, place) = self.ranges.get(at.checked_sub(1)?)?;
        let inside = offset - range.start();
        (inside < range.len()).then(|| ByteRange::at(place + inside, range.end() - offset))
    }

    /// The freed parts of a range, sorted and disjoint.
    pub(super) fn missing(&self, range: ByteRange) -> Vec<ByteRange> {
        let end = range.end().min(self.base);
        let mut out = Vec::new();
        let mut at = range.start();
        for (stays, _) in &self.ranges {
            if stays.end() <= at {
                continue;
            }
            if stays.start() >= end {
                break;
            }
            if at < stays.start() {
                out.push(ByteRange::new(at, stays.start()));
            }
            at = stays.end();
        }
        if at < end {
            out.push(ByteRange::new(at, end));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Makes ranges from their offsets and lengths.
    fn ranges<const N: usize>(all: [(u64, u64); N]) -> Vec<ByteRange> {
        all.map(|(offset, len)| ByteRange::at(offset, len)).into()
    }

    fn head() -> StubHead {
        let stays = [(900, 100), (0, 64), (300, 10), (310, 5), (300, 10)];
        StubHead::new(SegmentId(7), 1000, ranges(stays))
    }

    #[test]
    fn a_head_comes_back_and_a_bad_one_is_refused() {
        let head = head();
        assert_eq!(head.ranges, ranges([(0, 64), (300, 15), (900, 100)]));
        let bytes = head.encode();
        crate::golden::check("stub", &bytes);
        assert_eq!(StubHead::decode(&bytes).unwrap(), head);
        assert_eq!(StubHead::head_bytes(&bytes).unwrap(), wide(bytes.len()));
        for len in 0..bytes.len() {
            assert!(StubHead::decode(&bytes[..len]).is_err(), "{len}");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(StubHead::decode(&other).is_err(), "{at}");
        }
        let beyond = StubHead {
            base: 999,
            ..head.clone()
        };
        assert!(StubHead::decode(&beyond.encode()).is_err());
        let touching = StubHead {
            ranges: ranges([(0, 10), (10, 10)]),
            ..head
        };
        assert!(StubHead::decode(&touching.encode()).is_err());
    }

    #[test]
    fn what_stays_is_found_and_the_rest_is_missing() {
        let layout = StubLayout::of(&head());
        let first = wide(head().encode().len());
        let in_file = |from, len| Some(ByteRange::at(first + from, len));
        assert_eq!(layout.find(0), in_file(0, 64));
        assert_eq!(layout.find(63), in_file(63, 1));
        assert_eq!(layout.find(64), None);
        assert_eq!(layout.find(310), in_file(74, 5));
        assert_eq!(layout.find(999), in_file(178, 1));
        assert_eq!(layout.tail_at, first + 179);
        let missing = |offset, len| layout.missing(ByteRange::at(offset, len));
        assert_eq!(missing(0, 1000), ranges([(64, 236), (315, 585)]));
        assert_eq!(missing(100, 10), ranges([(100, 10)]));
        assert_eq!(missing(305, 20), ranges([(315, 10)]));
        assert_eq!(missing(950, 500), []);
        assert_eq!(missing(2000, 5), []);
    }
}
