//! Ownership of streams, by stretches of time.
//!
//! Invariants: the first matching rule counts for an instant of a stream; the parts that it names
//! own the instant together, and their rows are merged by time. Of a stream with rules, an instant
//! without a rule belongs to the first part that has the stream. A stream without rules belongs to
//! all parts that have it. Concurrency: pure.

use crate::common::ranges::union;
use headwater_types::{ClosedRange, StreamName};
use std::fmt;
use std::sync::Arc;

/// A stretch of time in which a stream belongs to some parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The instants, both ends included.
    pub range: ClosedRange,
    /// The names of the parts; where several of them have rows, the rows are merged.
    pub parts: Vec<Arc<str>>,
}

impl Owned {
    /// A stretch that belongs to one part.
    pub fn by(part: impl Into<Arc<str>>, range: ClosedRange) -> Owned {
        let parts = vec![part.into()];
        Owned { range, parts }
    }
}

type OwnerFn = dyn Fn(&StreamName, &[Arc<str>]) -> Vec<Owned> + Send + Sync;

/// Rules of ownership: the stretches of time of each stream, with their parts. Where stretches
/// overlap, the first one counts; outside of all stretches, the first part that has the stream. A
/// stream without any stretch belongs to nobody: the rows of all parts are shown, see
/// [`crate::Across`].
#[derive(Clone)]
pub struct Owners(Arc<OwnerFn>);

impl Owners {
    /// Creates owners from a function, which is called with each stream and the names of the parts
    /// that have it or may have it, since they cannot be read.
    ///
    /// ```
    /// use headwater_engine::{Owned, Owners};
    /// use headwater_types::ClosedRange;
    /// // Everything of site a is written at the edge of this name, whoever else has some of it.
    /// let owners = Owners::new(|stream, _| match stream.tag("site") {
    ///     Some("a") => vec![Owned::by("edge-a", ClosedRange::ALL)],
    ///     _ => Vec::new(),
    /// });
    /// # drop(owners);
    /// ```
    pub fn new(
        says: impl Fn(&StreamName, &[Arc<str>]) -> Vec<Owned> + Send + Sync + 'static,
    ) -> Owners {
        Owners(Arc::new(says))
    }

    pub(super) fn of(&self, stream: &StreamName, holders: &[Arc<str>]) -> Vec<Owned> {
        (self.0)(stream, holders)
    }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}

/// A stretch of time of a stream, and the parts that its rows are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownRange {
    pub(super) range: ClosedRange,
    /// Sorted; empty = none of its owners is among the parts.
    pub(super) parts: Arc<[u32]>,
}

/// The ranges of a stream that are shown, with their parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownParts {
    /// All data of this part.
    All(u32),
    /// All data of all parts that have the stream, merged by time.
    Merged,
    /// By time, disjoint; empty = nothing is shown.
    Ranges(Arc<[ShownRange]>),
}

impl ShownParts {
    /// Computes the shown ranges of a stream; at least one of these parts has it.
    pub(super) fn of(
        owned: &[Owned],
        holders: &[u32],
        number_of: &dyn Fn(&str) -> Option<u32>,
    ) -> ShownParts {
        if let ([], [_, _, ..]) = (owned, holders) {
            return ShownParts::Merged;
        }
        let mut ranges = Vec::new();
        let mut left = vec![ClosedRange::ALL];
        for Owned { range, parts } in owned {
            let mut present: Vec<u32> = parts.iter().filter_map(|part| number_of(part)).collect();
            let is_elsewhere = present.is_empty();
            present.sort_unstable();
            present.dedup();
            present.retain(|part| holders.contains(part));
            // Where owners are present and none of them has the stream, nothing is shown.
            if is_elsewhere || !present.is_empty() {
                let parts: Arc<[u32]> = present.into();
                let taken = left.iter().map(|l| l.intersect(range));
                let taken = taken.filter(|t| !t.is_empty());
                ranges.extend(taken.map(|range| ShownRange {
                    range,
                    parts: Arc::clone(&parts),
                }));
            }
            left = left.iter().flat_map(|l| without(l, range)).collect();
        }
        if let Some(first) = holders.first() {
            let parts: Arc<[u32]> = [*first].into();
            ranges.extend(left.into_iter().map(|range| ShownRange {
                range,
                parts: Arc::clone(&parts),
            }));
        }
        ranges.sort_by_key(|shown| shown.range.first);
        joined(ranges, holders)
    }

    /// The stretches that are read from a part.
    pub(super) fn of_part(&self, number: u32) -> Vec<ClosedRange> {
        match self {
            ShownParts::All(part) if *part == number => vec![ClosedRange::ALL],
            ShownParts::Merged => vec![ClosedRange::ALL],
            ShownParts::All(_) => Vec::new(),
            ShownParts::Ranges(ranges) => {
                let own = ranges.iter().filter(|p| p.parts.contains(&number));
                own.map(|p| p.range).collect()
            }
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, ShownParts::Ranges(ranges) if ranges.is_empty())
    }

    /// The home part of the stream: the owner of its first stretch, otherwise the first part that
    /// has the stream.
    pub(super) fn home(&self, holders: &[u32]) -> Option<u32> {
        match self {
            ShownParts::All(part) => Some(*part),
            ShownParts::Merged => holders.first().copied(),
            ShownParts::Ranges(ranges) => {
                let mut first = ranges.iter().filter_map(|shown| shown.parts.first());
                first.next().or_else(|| holders.first()).copied()
            }
        }
    }
}

/// Joins adjacent stretches of the same parts.
fn joined(ranges: Vec<ShownRange>, holders: &[u32]) -> ShownParts {
    let mut out: Vec<ShownRange> = Vec::with_capacity(ranges.len());
    for shown in ranges {
        match out.last_mut() {
            Some(last)
                if last.parts == shown.parts
                    && last.range.last.next() == Some(shown.range.first) =>
            {
                last.range.last = shown.range.last;
            }
            _ => out.push(shown),
        }
    }
    if let [one] = out.as_slice()
        && one.range == ClosedRange::ALL
    {
        match &*one.parts {
            [part] => return ShownParts::All(*part),
            parts if !parts.is_empty() && parts == holders => return ShownParts::Merged,
            _ => {}
        }
    }
    ShownParts::Ranges(out.into())
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
    use std::collections::BTreeSet;

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
            owned in prop::collection::vec(
                (prop::collection::vec(0usize..4, 1..4), -20i64..20, 0i64..20), 0..6,
            ),
            holders in prop::collection::btree_set(1u32..4, 1..4),
        ) {
            let holders: Vec<u32> = holders.into_iter().collect();
            let owned: Vec<Owned> = owned
                .into_iter()
                .map(|(parts, first, width)| {
                    let range = ClosedRange::nanos(first, first + width);
                    let parts = parts.iter().filter_map(|part| Some((*PARTS.get(*part)?).into()));
                    Owned { range, parts: parts.collect() }
                })
                .collect();
            let shown = ShownParts::of(&owned, &holders, &number_of);
            if owned.is_empty() && holders.len() > 1 {
                prop_assert_eq!(shown, ShownParts::Merged);
                return Ok(());
            }
            for at in (-30..50).chain([i64::MIN, i64::MAX]) {
                let at = headwater_types::Timestamp::from_nanos(at);
                let said = owned.iter().find(|o| o.range.contains(at));
                // `None` = no part has rows there, no parts = it is elsewhere.
                let expected = match said {
                    None => holders.first().map(|first| vec![*first]),
                    Some(said) => {
                        let present: BTreeSet<u32> =
                            said.parts.iter().filter_map(|part| number_of(part)).collect();
                        let own = present.iter().filter(|part| holders.contains(part));
                        let own: Vec<u32> = own.copied().collect();
                        (present.is_empty() || !own.is_empty()).then_some(own)
                    }
                };
                let found: Vec<Vec<u32>> = match &shown {
                    ShownParts::All(part) => vec![vec![*part]],
                    ShownParts::Merged => vec![holders.clone()],
                    ShownParts::Ranges(ranges) => {
                        let here = ranges.iter().filter(|p| p.range.contains(at));
                        here.map(|p| p.parts.to_vec()).collect()
                    }
                };
                prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
