//! Missing ranges of a source that is a copy itself, as reported for a range of a segment.
//!
//! Concurrency: plain data.

use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::ByteRange;
use headwater_types::invariant::wide;

/// Prospect of a missing range of a source that is a copy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// The source does not subscribe to it, and may never have it.
    Never,
    /// The source fetches it on request.
    OnRequest,
    /// The source subscribes to it, and reports when it has it.
    Subscribed,
}

/// A missing range in a segment of a source that is a copy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// The missing bytes, at least one.
    pub range: ByteRange,
    /// Prospect of the range.
    pub outlook: Outlook,
}

pub(crate) fn put(segment: u64, stretch: ByteRange, holes: &[MissingRange], out: &mut Vec<u8>) {
    out.put_varint(segment);
    out.put_varint(stretch.start());
    out.put_varint(stretch.end());
    out.put_varint(wide(holes.len()));
    for hole in holes {
        out.put_varint(hole.range.start());
        out.put_varint(hole.range.end());
        out.put_u8(match hole.outlook {
            Outlook::Never => 0,
            Outlook::OnRequest => 1,
            Outlook::Subscribed => 2,
        });
    }
}

/// A segment, a range of it, and its missing ranges.
type Read = (u64, ByteRange, Vec<MissingRange>);

pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Read, DecodeError> {
    let segment = cursor.varint("segment")?;
    let from = cursor.varint("the start of a span")?;
    let until = cursor.varint("the end of a span")?;
    let Some(stretch) = ByteRange::checked(from, until) else {
        return Err(cursor.expected("a span that starts no later than it ends"));
    };
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of missing ranges")?;
    let (mut holes, mut at) = (Vec::new(), stretch.start());
    for _ in 0..count {
        let from = cursor.varint("the start of a missing range")?;
        let until = cursor.varint("the end of a missing range")?;
        let outlook = match cursor.u8("the fate of a missing range")? {
            0 => Outlook::Never,
            1 => Outlook::OnRequest,
            2 => Outlook::Subscribed,
            _ => return Err(cursor.expected("a number from 0 to 2")),
        };
        let range = ByteRange::checked(from, until).filter(|range| !range.is_empty());
        let Some(range) = range.filter(|r| at <= r.start() && r.end() <= stretch.end()) else {
            return Err(
                cursor.expected("missing ranges in ascending order, disjoint, within their span")
            );
        };
        at = range.end();
        holes.push(MissingRange { range, outlook });
    }
    Ok((segment, stretch, holes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a range of a segment with missing ranges; true if it is valid.
    fn is_read(stretch: (u64, u64), holes: &[(u64, u64)]) -> bool {
        let mut out = Vec::new();
        for number in [1, stretch.0, stretch.1, wide(holes.len())] {
            out.put_varint(number);
        }
        for (from, until) in holes {
            out.put_varint(*from);
            out.put_varint(*until);
            out.put_u8(0);
        }
        read(&mut Cursor::new(&out)).is_ok()
    }

    #[test]
    fn a_stretch_that_ends_before_it_begins_is_none() {
        assert!(is_read((100, 100), &[]));
        assert!(!is_read((101, 100), &[]));
        assert!(!is_read((u64::MAX, 0), &[]));
    }

    #[test]
    fn holes_that_do_not_fit_together_are_none() {
        let read_back = |holes: &[(u64, u64)]| is_read((5, 100), holes);
        assert!(read_back(&[(5, 9), (9, 10), (99, 100)]));
        for wrong in [
            &[(4, 9)][..],
            &[(10, 10)],
            &[(10, 9)],
            &[(10, 30), (29, 31)],
            &[(90, 101)],
        ] {
            assert!(!read_back(wrong), "{wrong:?}");
        }
    }
}
