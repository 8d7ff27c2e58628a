//! Reads ranges of a pinned state for a copy.
//!
//! Invariant: only bytes below the committed lengths of the state are read. Failure: an error is
//! one of the source's own; a range that cannot be sent is told as that.

use crate::replication::message::{PIECE_MAX, SegmentRange};
use headwater_engine::{ErrorKind, PinnedState, Result};
use headwater_types::ByteRange;
use headwater_types::invariant::wide;

/// Parts of a range that may be read.
pub(super) enum RangeLookup {
    /// Present parts, as ranges, and missing ranges.
    Readable(Vec<SegmentRange>, Vec<ByteRange>),
    /// The range will not be available any more.
    Unavailable,
    /// Reason why a range is not granted.
    Refused(String),
}

pub(super) fn look(held: &PinnedState, piece: &SegmentRange) -> Result<RangeLookup> {
    if piece.bytes > PIECE_MAX {
        return Ok(RangeLookup::Refused(format!(
            "a piece of {} bytes is requested; at most {PIECE_MAX} are allowed",
            piece.bytes
        )));
    }
    let missing = held.missing(piece.segment, piece.offset, u64::from(piece.bytes));
    let missing = match missing {
        Ok(missing) => missing,
        Err(error) => {
            return match error.kind() {
                ErrorKind::Invalid | ErrorKind::NotFound => {
                    Ok(RangeLookup::Refused(error.to_string()))
                }
                ErrorKind::Gone => Ok(RangeLookup::Unavailable),
                _ => Err(error),
            };
        }
    };
    let end = piece.range().end();
    let mut here = Vec::new();
    let mut at = piece.offset;
    for hole in missing.iter().copied().chain([ByteRange::new(end, end)]) {
        if at < hole.start() {
            assert!(hole.start() <= end, "a range behind the requested one");
            here.push(SegmentRange {
                segment: piece.segment,
                offset: at,
                bytes: u32::try_from(hole.start() - at).unwrap_or(piece.bytes),
            });
        }
        at = hole.end();
    }
    Ok(RangeLookup::Readable(here, missing))
}

/// Result of reading a range.
pub(super) enum PieceRead {
    Bytes(Vec<u8>),
    /// The device does not have the range any more.
    Damaged,
    /// The range was freed since it was looked up.
    Freed,
}

/// Reads a present range from the device.
pub(super) fn read(held: &PinnedState, piece: &SegmentRange) -> Result<PieceRead> {
    match held.read(piece.segment, piece.offset, piece.bytes) {
        Err(error) => match error.kind() {
            ErrorKind::Corrupt => Ok(PieceRead::Damaged),
            ErrorKind::Elsewhere | ErrorKind::Gone => Ok(PieceRead::Freed),
            _ => Err(error),
        },
        Ok(bytes) => {
            let (read, piece) = (wide(bytes.len()), u64::from(piece.bytes));
            assert_eq!(read, piece, "another length than the piece's");
            Ok(PieceRead::Bytes(bytes))
        }
    }
}
