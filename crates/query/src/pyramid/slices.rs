//! Splits a range, so that the bins of all groups in a part fit into memory.
//!
//! Invariants: parts are consecutive and cover the range, and are split at the beginnings of bins,
//! so that every bin is in exactly one part.

use headwater::{Bins, ClosedRange};

/// Maximum number of bins of a range that is not estimated.
const FEW: i128 = 16_384;

/// The number of bins that overlap a range.
pub(super) fn bins_in(range: &ClosedRange, bins: &Bins) -> i128 {
    match bins {
        _ if range.is_empty() => 0,
        Bins::Every {
            width_ns,
            origin_ns,
        } if *width_ns > 0 => {
            let number = |at: i64| {
                (i128::from(at) - i128::from(*origin_ns)).div_euclid(i128::from(*width_ns))
            };
            number(range.last.as_nanos()) - number(range.first.as_nanos()) + 1
        }
        _ => 1,
    }
}

/// Whether a range may have too many bins to compute all of them at once.
pub(super) fn may_be_many(range: &ClosedRange, bins: &Bins) -> bool {
    bins_in(range, bins) > FEW
}

/// The beginning of the bin that contains an instant; `None` if out of range.
fn beginning(at: i128, bins: &Bins) -> Option<i64> {
    let Bins::Every {
        width_ns,
        origin_ns,
    } = bins
    else {
        return None;
    };
    let (width, origin) = (i128::from(*width_ns), i128::from(*origin_ns));
    i64::try_from((at - origin).div_euclid(width) * width + origin).ok()
}

/// The two halves of a range; `None` = the range is a single bin.
pub(super) fn halves(range: &ClosedRange, bins: &Bins) -> Option<(ClosedRange, ClosedRange)> {
    if bins_in(range, bins) < 2 {
        return None;
    }
    let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
    let middle = (i128::from(first) + i128::from(last)).div_euclid(2);
    let width = match bins {
        Bins::Every { width_ns, .. } => i128::from(*width_ns),
        _ => return None,
    };
    let cut = [middle, middle + width]
        .into_iter()
        .filter_map(|at| beginning(at, bins))
        .find(|cut| first < *cut && *cut <= last)?;
    Some((
        ClosedRange::nanos(first, cut - 1),
        ClosedRange::nanos(cut, last),
    ))
}

/// Splits a range into parts of at most `most` bins by repeated halving, the last part first.
pub(super) fn parts(range: ClosedRange, bins: &Bins, most: i128) -> Vec<ClosedRange> {
    let mut out = Vec::new();
    let mut waiting = vec![range];
    while let Some(part) = waiting.pop() {
        match halves(&part, bins) {
            Some((first, last)) if bins_in(&part, bins) > most => waiting.extend([first, last]),
            _ => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn every(width_ns: i64, origin_ns: i64) -> Bins {
        Bins::Every {
            width_ns,
            origin_ns,
        }
    }

    #[test]
    fn parts_follow_each_other_and_are_cut_where_bins_begin() {
        for (range, bins) in [
            (ClosedRange::nanos(-7, 1_000 * SECOND), every(SECOND, 0)),
            (ClosedRange::nanos(3, 9_999), every(10, 4)),
            (
                ClosedRange::nanos(i64::MIN, i64::MAX),
                every(i64::MAX / 999, 17),
            ),
        ] {
            let mut parts = parts(range, &bins, 7);
            parts.reverse();
            assert_eq!(parts.first().unwrap().first, range.first);
            assert_eq!(parts.last().unwrap().last, range.last);
            for pair in parts.windows(2) {
                let (end, next) = (pair[0].last.as_nanos(), pair[1].first.as_nanos());
                assert_eq!(end + 1, next);
                assert_eq!(beginning(next.into(), &bins), Some(next));
            }
            assert!(parts.iter().all(|part| bins_in(part, &bins) <= 7));
        }
    }

    #[test]
    fn what_is_one_bin_has_no_halves() {
        assert_eq!(halves(&ClosedRange::ALL, &Bins::Whole), None);
        assert_eq!(halves(&ClosedRange::nanos(11, 19), &every(10, 0)), None);
        assert_eq!(halves(&ClosedRange::EMPTY, &every(10, 0)), None);
        let (first, last) = halves(&ClosedRange::nanos(19, 20), &every(10, 0)).unwrap();
        assert_eq!(
            (first, last),
            (ClosedRange::nanos(19, 19), ClosedRange::nanos(20, 20))
        );
    }
}
