//! Missing ranges of a source that is a copy itself, as they are reported for a stretch of a
//! segment.
//!
//! Concurrency: plain data.

use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::wide;

/// Prospect of a range that a source lacks which is a copy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// The source does not subscribe to it, and may never have it.
    Never,
    /// The source fetches it on request.
    OnRequest,
    /// The source subscribes to it, and reports when it has it.
    Comes,
}

/// A missing range of a segment of a source that is a copy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LackingPart {
    /// The first byte.
    pub from: u64,
    /// The first byte behind it.
    pub until: u64,
    /// Prospect of the range.
    pub outlook: Outlook,
}

pub(crate) fn put(
    segment: u64,
    (from, until): (u64, u64),
    holes: &[LackingPart],
    out: &mut Vec<u8>,
) {
    for number in [segment, from, until, wide(holes.len())] {
        out.put_varint(number);
    }
    for hole in holes {
        out.put_varint(hole.from);
        out.put_varint(hole.until);
        out.put_u8(match hole.outlook {
            Outlook::Never => 0,
            Outlook::OnRequest => 1,
            Outlook::Comes => 2,
        });
    }
}

/// A segment, a stretch of it, and its missing ranges.
type Read = (u64, (u64, u64), Vec<LackingPart>);

pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Read, DecodeError> {
    let segment = cursor.varint("segment")?;
    let from = cursor.varint("where a stretch begins")?;
    let until = cursor.varint("where a stretch ends")?;
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of holes")?;
    let (mut holes, mut at) = (Vec::new(), from);
    for _ in 0..count {
        let hole = LackingPart {
            from: cursor.varint("where a hole begins")?,
            until: cursor.varint("where a hole ends")?,
            outlook: match cursor.u8("what becomes of a hole")? {
                0 => Outlook::Never,
                1 => Outlook::OnRequest,
                2 => Outlook::Comes,
                _ => return Err(cursor.fail("a number from 0 to 2")),
            },
        };
        if hole.from < at || hole.until <= hole.from || hole.until > until {
            return Err(cursor.fail("holes that rise, apart, within their stretch"));
        }
        at = hole.until;
        holes.push(hole);
    }
    Ok((segment, (from, until), holes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_that_do_not_fit_together_are_none() {
        let read_back = |holes: &[(u64, u64)]| {
            let holes = holes.iter().map(|(from, until)| LackingPart {
                from: *from,
                until: *until,
                outlook: Outlook::Never,
            });
            let mut out = Vec::new();
            put(1, (5, 100), &holes.collect::<Vec<_>>(), &mut out);
            read(&mut Cursor::new(&out)).is_ok()
        };
        assert!(read_back(&[(5, 9), (9, 10), (99, 100)]));
        for wrong in [
            &[(4, 9)][..],
            &[(10, 10)],
            &[(10, 30), (29, 31)],
            &[(90, 101)],
        ] {
            assert!(!read_back(wrong), "{wrong:?}");
        }
    }
}
