//! Ownership of streams, by stretches of time.
//!
//! Invariants: every instant of a stream belongs to at most one part; the first matching rule
//! counts. Without a rule, an instant belongs to the first part that has the stream. Concurrency:
//! pure.

use crate::common::ranges::union;
use headwater_types::{ClosedRange, StreamName};
use std::fmt;
use std::sync::Arc;

/// A stretch of time in which a stream belongs to a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The instants, both ends included.
    pub range: ClosedRange,
    /// The name of the part.
    pub part: Arc<str>,
}

type Says = dyn Fn(&StreamName) -> Vec<Owned> + Send + Sync;

/// Rules of ownership: the stretches of time of each stream, with their parts. Where stretches
/// overlap, the first one counts; outside of all stretches, the first part that has the stream.
#[derive(Clone)]
pub struct Owners(Arc<Says>);

impl Owners {
    /// Creates owners from a function, which is called once for each stream.
    ///
    /// ```
    /// use headwater_engine::{Owned, Owners};
    /// use headwater_types::ClosedRange;
    /// // Everything of site a is written at the edge of this name, whoever else has some of it.
    /// let owners = Owners::new(|stream| match stream.tag("site") {
    ///     Some("a") => vec![Owned { range: ClosedRange::ALL, part: "edge-a".into() }],
    ///     _ => Vec::new(),
    /// });
    /// # drop(owners);
    /// ```
    pub fn new(says: impl Fn(&StreamName) -> Vec<Owned> + Send + Sync + 'static) -> Owners {
        Owners(Arc::new(says))
    }

    pub(super) fn of(&self, stream: &StreamName) -> Vec<Owned> {
        (self.0)(stream)
    }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}

/// A stretch of time of a stream, and the part that its rows are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownRange {
    pub(super) range: ClosedRange,
    /// `None` = its owner is not among the parts.
    pub(super) part: Option<u32>,
}

/// The ranges of a stream that are shown, with their parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// All data of this part.
    Whole(u32),
    /// By time, disjoint; empty = nothing is shown.
    Ranges(Arc<[ShownRange]>),
}

impl Shown {
    /// Computes the shown ranges of a stream; at least one of these parts has it.
    pub(super) fn of(
        owned: &[Owned],
        holders: &[u32],
        number_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Shown {
        let first = holders.first().copied();
        let mut ranges = Vec::new();
        let mut left = vec![ClosedRange::ALL];
        for Owned { range, part } in owned {
            let part = number_of(part);
            let taken = left.iter().map(|l| l.intersect(range));
            let taken = taken.filter(|t| !t.is_empty());
            ranges.extend(taken.map(|range| ShownRange { range, part }));
            left = left.iter().flat_map(|l| without(l, range)).collect();
        }
        ranges.extend(
            left.into_iter()
                .map(|range| ShownRange { range, part: first }),
        );
        let is_there = |shown: &ShownRange| shown.part.is_none_or(|part| holders.contains(&part));
        ranges.retain(is_there);
        ranges.sort_by_key(|shown| shown.range.first);
        joined(ranges)
    }

    /// The stretches that are read from a part.
    pub(super) fn of_part(&self, number: u32) -> Vec<ClosedRange> {
        match self {
            Shown::Whole(part) if *part == number => vec![ClosedRange::ALL],
            Shown::Whole(_) => Vec::new(),
            Shown::Ranges(ranges) => {
                let own = ranges.iter().filter(|p| p.part == Some(number));
                own.map(|p| p.range).collect()
            }
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Shown::Ranges(ranges) if ranges.is_empty())
    }

    /// The home part of the stream: the owner of its first stretch, otherwise the first part that
    /// has the stream.
    pub(super) fn home(&self, holders: &[u32]) -> Option<u32> {
        match self {
            Shown::Whole(part) => Some(*part),
            Shown::Ranges(ranges) => {
                let first = ranges.iter().find_map(|shown| shown.part);
                first.or_else(|| holders.first().copied())
            }
        }
    }
}

/// Joins adjacent stretches of one part.
fn joined(ranges: Vec<ShownRange>) -> Shown {
    let mut out: Vec<ShownRange> = Vec::with_capacity(ranges.len());
    for shown in ranges {
        match out.last_mut() {
            Some(last)
                if last.part == shown.part && last.range.last.next() == Some(shown.range.first) =>
            {
                last.range.last = shown.range.last;
            }
            _ => out.push(shown),
        }
    }
    match out.as_slice() {
        [
            ShownRange {
                range: ClosedRange::ALL,
                part: Some(part),
            },
        ] => Shown::Whole(*part),
        _ => Shown::Ranges(out.into()),
    }
}

/// The parts of `range` outside `taken`.
pub(super) fn without(range: &ClosedRange, taken: &ClosedRange) -> Vec<ClosedRange> {
    if range.intersect(taken).is_empty() {
        return vec![*range];
    }
    let before = taken.first.previous();
    let before = before.map(|last| ClosedRange::new(range.first, last));
    let behind = taken.last.next();
    let behind = behind.map(|first| ClosedRange::new(first, range.last));
    let parts = before.into_iter().chain(behind);
    parts.filter(|part| !part.is_empty()).collect()
}

/// The parts of `range` outside all of `shown`.
pub(super) fn outside(range: &ClosedRange, shown: &[ClosedRange]) -> Vec<ClosedRange> {
    let mut left = vec![*range];
    for taken in shown {
        left = left.iter().flat_map(|l| without(l, taken)).collect();
    }
    union(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARTS: [&str; 4] = ["a", "b", "c", "nobody"];

    fn number_of(name: &str) -> Option<u32> {
        match name {
            "a" => Some(1),
            "b" => Some(2),
            "c" => Some(3),
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn every_instant_is_whose_the_first_that_says_so_says(
            owned in prop::collection::vec((0usize..4, -20i64..20, 0i64..20), 0..6),
            holders in prop::collection::btree_set(1u32..4, 1..4),
        ) {
            let holders: Vec<u32> = holders.into_iter().collect();
            let owned: Vec<Owned> = owned
                .into_iter()
                .filter_map(|(part, first, width)| {
                    let range = ClosedRange::nanos(first, first + width);
                    Some(Owned { range, part: (*PARTS.get(part)?).into() })
                })
                .collect();
            let shown = Shown::of(&owned, &holders, &number_of);
            for at in (-30..50).chain([i64::MIN, i64::MAX]) {
                let at = headwater_types::Timestamp::from_nanos(at);
                let said = owned.iter().find(|o| o.range.contains(at));
                // Empty = no part has rows there.
                let expected = match said {
                    None => Some(holders.first().copied()),
                    Some(said) => match number_of(&said.part) {
                        None => Some(None),
                        Some(part) => holders.contains(&part).then_some(Some(part)),
                    },
                };
                let found: Vec<Option<u32>> = match &shown {
                    Shown::Whole(part) => vec![Some(*part)],
                    Shown::Ranges(ranges) => {
                        let here = ranges.iter().filter(|p| p.range.contains(at));
                        here.map(|p| p.part).collect()
                    }
                };
                prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
