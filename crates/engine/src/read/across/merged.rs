//! Merges the bins that stretches of one stream have in common.
//!
//! Invariants: the input is sorted by time, so that of two stretches the earliest event of the
//! first is the earliest of both.

use crate::read::aggregate::Bin;
use crate::read::summary::SummaryBin;
use headwater_types::Aggregate;
use std::collections::BTreeMap;

/// Bins of several stretches, by number.
pub(super) struct Merged<T> {
    bins: BTreeMap<i128, T>,
}

/// An answer that can be merged from the answers for two stretches, of which `later` is the second.
pub(super) trait Mergeable {
    fn take(&mut self, later: Self);
}

impl<T: Mergeable> Merged<T> {
    pub(super) fn new() -> Merged<T> {
        Merged {
            bins: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, bins: impl IntoIterator<Item = (i128, T)>) {
        for (number, bin) in bins {
            match self.bins.get_mut(&number) {
                Some(known) => known.take(bin),
                None => drop(self.bins.insert(number, bin)),
            }
        }
    }

    /// By number.
    pub(super) fn finish(self) -> impl Iterator<Item = (i128, T)> {
        self.bins.into_iter()
    }
}

impl Mergeable for Aggregate {
    fn take(&mut self, later: Aggregate) {
        self.merge(&later);
    }
}

impl Mergeable for Bin {
    fn take(&mut self, later: Bin) {
        self.aggregate.merge(&later.aggregate);
        self.first = self.first.take().or(later.first);
        self.last = later.last.or(self.last.take());
    }
}

impl Mergeable for SummaryBin {
    fn take(&mut self, later: SummaryBin) {
        self.rows = self.rows.saturating_add(later.rows);
        for (known, later) in self.aggregates.iter_mut().zip(&later.aggregates) {
            known.merge(later);
        }
    }
}
