//! A plain simulation of the policies in memory: leaves are sorted lists of times, without other
//! structures.
//!
//! Written from the conventions and not from the engine, so that the two can be compared:
//!
//! - a buffer acts right after the insertion that fills it;
//! - an event is in order when it is newer than the newest event in a leaf, and late otherwise;
//! - `conventional`: the one buffer is stored when its size reaches the memory's. `separate`: each
//!   buffer is stored separately when it is full;
//! - a flush retains the newest `retain` in-order events, except at the end;
//! - events newer than every leaf become leaves of their own, cut full from the left, the remainder
//!   last; such a small leaf grows only when a merge rewrites it;
//! - `overlap` rewrites every leaf that the range of the stored events overlaps; `touched` only
//!   leaves that receive an event, where a leaf receives events at or after its first event and
//!   before the next leaf's (the first leaf also earlier ones). Adjacent rewritten leaves are one
//!   sequence, cut again, full from the left. In-order events stored together with late ones join
//!   that sequence if it contains the last leaf;
//! - the buffers at the end are stored and counted, each separately;
//! - equal times remain in the order of arrival, a flush does not separate them, and leaves that
//!   share one are rewritten together.

use super::plan::{Counts, Plan, Sharing};
use headwater::MergeScope;
use std::ops::Range;

/// Runs a policy over times in the order of their arrival.
pub(crate) fn simulate(times: &[i64], plan: &Plan) -> Counts {
    let mut run = Run::new(plan);
    for time in times {
        run.insert(*time);
    }
    run.finish();
    run.counts
}

/// A policy at work.
pub(crate) struct Run {
    plan: Plan,
    /// Sorted, disjoint (except for equal times), in order.
    leaves: Vec<Vec<i64>>,
    newest: Option<i64>,
    /// In-order buffer; under `conventional` the only one.
    flank: Vec<i64>,
    late: Vec<i64>,
    pub(crate) counts: Counts,
    /// Under `overlap`: stored events newer than the oldest event of each merge, summed (the
    /// paper's subsequent data points).
    pub(crate) subsequent: u64,
}

impl Run {
    pub(crate) fn new(plan: &Plan) -> Run {
        Run {
            plan: *plan,
            leaves: Vec::new(),
            newest: None,
            flank: Vec::with_capacity(plan.memory),
            late: Vec::new(),
            counts: Counts::default(),
            subsequent: 0,
        }
    }

    fn is_in_order(&self, time: i64) -> bool {
        self.newest.is_none_or(|newest| time > newest)
    }

    pub(crate) fn insert(&mut self, time: i64) {
        self.counts.events += 1;
        let one_buffer = self.plan.sharing == Sharing::Conventional;
        if one_buffer || self.is_in_order(time) {
            self.flank.push(time);
        } else {
            self.late.push(time);
        }
        self.act();
    }

    /// Stores the buffers that are full.
    fn act(&mut self) {
        let (flank, late) = match self.plan.sharing {
            Sharing::Conventional => (self.plan.memory, usize::MAX),
            Sharing::Separate(flank) => (flank, self.plan.memory - flank),
        };
        if self.flank.len() >= flank {
            self.store_flank(self.plan.retain);
        }
        if self.late.len() >= late {
            self.store_late();
        }
    }

    fn store_flank(&mut self, retain: usize) {
        let mut events = std::mem::take(&mut self.flank);
        events.sort_unstable();
        let in_order = events.partition_point(|t| !self.is_in_order(*t));
        let cut = in_order + flush_count(&events[in_order..], retain);
        self.flank = events.split_off(cut);
        self.store(&events);
    }

    fn store_late(&mut self) {
        let mut events = std::mem::take(&mut self.late);
        events.sort_unstable();
        self.store(&events);
    }

    /// Stores the remaining events; the counts are final then.
    pub(crate) fn finish(&mut self) {
        if !self.flank.is_empty() {
            self.store_flank(0);
        }
        if !self.late.is_empty() {
            self.store_late();
        }
    }

    /// Stores sorted events.
    fn store(&mut self, events: &[i64]) {
        if events.is_empty() {
            return;
        }
        self.counts.flushes += 1;
        let late_count = events.partition_point(|t| !self.is_in_order(*t));
        let (late, fresh) = events.split_at(late_count);
        if late.is_empty() {
            self.append(fresh);
            return;
        }
        self.counts.merges += 1;
        match self.plan.scope {
            MergeScope::Overlap => {
                let first = late[0];
                let from = self.leaves.partition_point(|l| end(l) < first);
                self.subsequent += self.leaves[from..]
                    .iter()
                    .map(|l| (l.len() - l.partition_point(|t| *t <= first)) as u64)
                    .sum::<u64>();
                let to = match (fresh.is_empty(), late.last()) {
                    (true, Some(last)) => self.leaves.partition_point(|l| l[0] <= *last),
                    _ => self.leaves.len(),
                };
                let range = self.widened(from..to.max(from));
                let takes_all = range.end == self.leaves.len();
                self.rewrite(range, if takes_all { events } else { late });
                if !takes_all {
                    self.append(fresh);
                }
            }
            MergeScope::Touched => self.merge_touched(events, late_count),
        }
    }

    fn merge_touched(&mut self, events: &[i64], late_count: usize) {
        // From the right, so that rewriting does not move the leaves still to be processed.
        let mut until = late_count;
        let mut appended = late_count == events.len();
        while until > 0 {
            let mut from = self.owner(events[until - 1]);
            let range_end = self.widened(from..from + 1).end;
            let mut first = events[..until].partition_point(|t| *t < self.first_owned(from));
            // The neighbour to the left joins in if it receives an event too, or shares a time.
            while first > 0 && from > 0 {
                let owner = self.owner(events[first - 1]);
                if self.widened(owner..owner + 1).end < from {
                    break;
                }
                from = owner;
                first = events[..first].partition_point(|t| *t < self.first_owned(from));
            }
            if range_end == self.leaves.len() && !appended {
                self.rewrite(from..range_end, &events[first..]);
                appended = true;
            } else {
                if !appended {
                    self.append(&events[late_count..]);
                    appended = true;
                }
                self.rewrite(from..range_end, &events[first..until]);
            }
            until = first;
        }
    }

    /// The leaf that receives an event.
    fn owner(&self, time: i64) -> usize {
        self.leaves
            .partition_point(|l| l[0] <= time)
            .saturating_sub(1)
    }

    /// The first time that a leaf receives.
    fn first_owned(&self, leaf: usize) -> i64 {
        if leaf == 0 {
            i64::MIN
        } else {
            self.leaves[leaf][0]
        }
    }

    /// Extends the range by the following leaves that start with the time at which the range ends.
    fn widened(&self, mut range: Range<usize>) -> Range<usize> {
        while range.end > range.start
            && range.end < self.leaves.len()
            && end(&self.leaves[range.end - 1]) == self.leaves[range.end][0]
        {
            range.end += 1;
        }
        range
    }

    fn append(&mut self, events: &[i64]) {
        self.counts.events_written += events.len() as u64;
        self.leaves
            .extend(events.chunks(self.plan.leaf).map(<[i64]>::to_vec));
        self.newest = events.last().copied().or(self.newest);
    }

    fn rewrite(&mut self, range: Range<usize>, events: &[i64]) {
        let mut all = self.leaves[range.clone()].concat();
        all.extend_from_slice(events);
        // Two sorted sequences; the stable sort detects them, and puts the newer of equal times
        // last.
        all.sort();
        self.counts.events_written += all.len() as u64;
        self.newest = self.newest.max(all.last().copied());
        let new = all.chunks(self.plan.leaf).map(<[i64]>::to_vec);
        self.leaves.splice(range, new).for_each(drop);
    }

    /// The leaves, for checks.
    #[cfg(test)]
    fn leaves(&self) -> &[Vec<i64>] {
        &self.leaves
    }
}

fn end(leaf: &[i64]) -> i64 {
    leaf.last().copied().unwrap_or(i64::MIN)
}

/// Number of sorted in-order events that a flush stores when the newest `retain` are retained:
/// equal times are not separated, and at least one time is stored unless none is due.
fn flush_count(events: &[i64], retain: usize) -> usize {
    let wished = events.len().saturating_sub(retain);
    if wished == 0 {
        return 0;
    }
    let splits = |at: usize| at > 0 && at < events.len() && events[at - 1] == events[at];
    let mut at = wished;
    while splits(at) {
        at -= 1;
    }
    if at == 0 {
        at = wished;
        while splits(at) {
            at += 1;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Random;

    fn plan(sharing: Sharing, retain: usize, scope: MergeScope) -> Plan {
        Plan {
            memory: 4,
            leaf: 16,
            sharing,
            retain,
            scope,
        }
    }

    #[test]
    fn events_in_order_are_written_once() {
        for scope in [MergeScope::Overlap, MergeScope::Touched] {
            for sharing in [Sharing::Conventional, Sharing::Separate(3)] {
                let times: Vec<i64> = (0..101).collect();
                let counts = simulate(&times, &plan(sharing, 0, scope));
                let flushes = if sharing == Sharing::Conventional {
                    26
                } else {
                    34
                };
                let expected = Counts {
                    events: 101,
                    events_written: 101,
                    merges: 0,
                    flushes,
                };
                assert_eq!(counts, expected);
            }
        }
    }

    /// By hand: leaves of four flushed events each; 1 is late by two leaves.
    #[test]
    fn scopes_differ_in_what_they_rewrite() {
        let times = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 13, 14, 15];
        let conventional = |scope| simulate(&times, &plan(Sharing::Conventional, 0, scope));
        // The last buffer has 1, 13, 14, 15: `overlap` rewrites all twelve, `touched` the first
        // leaf.
        assert_eq!(conventional(MergeScope::Overlap).events_written, 12 + 16);
        assert_eq!(
            conventional(MergeScope::Touched).events_written,
            12 + 4 + 1 + 3
        );
        let separate = |scope| simulate(&times, &plan(Sharing::Separate(3), 0, scope));
        // 1 arrives when leaves 0 2 3 … 10 11 12 are stored; at the end it is merged alone, into
        // the leaf 0 2 3.
        assert_eq!(separate(MergeScope::Overlap).events_written, 15 + 1 + 3);
        assert_eq!(separate(MergeScope::Touched).events_written, 15 + 1 + 3);
    }

    #[test]
    fn what_is_kept_back_makes_slightly_late_events_ordinary() {
        let times = [1, 2, 3, 5, 4, 6, 7, 8];
        let counts = |retain| {
            simulate(
                &times,
                &plan(Sharing::Conventional, retain, MergeScope::Overlap),
            )
        };
        // Without: 1 2 3 5 is stored, 4 arrives and rewrites it.
        assert_eq!(counts(0).events_written, 4 + 8);
        assert_eq!((counts(1).events_written, counts(1).merges), (8, 0));
    }

    #[test]
    fn leaves_stay_sorted_hold_every_event_and_share_no_more_than_a_border() {
        let mut random = Random::new(5);
        for round in 0..40 {
            let times: Vec<i64> = (0..500)
                .map(|i| i - random.below(1 + random.clone().below(60)) as i64)
                .collect();
            let scope = [MergeScope::Overlap, MergeScope::Touched][round % 2];
            let sharing = [
                Sharing::Conventional,
                Sharing::Separate(1),
                Sharing::Separate(3),
            ][round % 3];
            let plan = Plan {
                memory: 20,
                ..plan(sharing, round % 2, scope)
            };
            let plan = Plan {
                retain: if sharing == Sharing::Separate(1) {
                    0
                } else {
                    plan.retain
                },
                ..plan
            };
            let mut run = Run::new(&plan);
            times.iter().for_each(|t| run.insert(*t));
            run.finish();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            assert_eq!(run.leaves().concat(), sorted, "{plan}");
            assert!(run.leaves().iter().all(|l| (1..=16).contains(&l.len())));
        }
    }
}
