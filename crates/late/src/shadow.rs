//! Shadow replay: counts the writes of every candidate from time stamps alone.
//!
//! All candidates process the same arrivals in one pass. For each candidate the replay has its
//! frontier, the number of in-order events, the late events, and the borders and counts of its
//! leaves, but no rows. After a merge the new borders are interpolated. The rules are those of
//! [`super::FlushRule::LabExact`], and the result agrees with an exact simulation within about a
//! hundredth. The replay is the referee where the model is off: noisy over short stretches, since
//! one merge is one sample, but free of assumptions.
//!
//! Invariants: per candidate, leaves ascend in time; `written` counts every event put into a leaf,
//! once more for each rewriting. The stretch must be contiguous: omitting events would make the
//! others look earlier or later than they are. Concurrency: a value. Failure: none. Memory: the
//! newest `memory_events` times, shared, and per candidate its late events and 16 bytes a leaf.

use super::model::{Candidate, Configuration};
use super::{MergeScope, Split};
use headwater_types::invariant::part_of;

/// Number of leaves before the first observed event, laid out at the given interval, that late
/// events may fall into.
const LEAVES_BEFORE: usize = 512;

/// Replays arrivals for several candidates.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// The newest observed times, ascending; as many as memory can store.
    newest: Vec<i64>,
    newest_max: usize,
    events: u64,
    lanes: Vec<Lane>,
}

/// A leaf: its first time, its last, and its events.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Leaf {
    first: i64,
    last: i64,
    count: u32,
}

/// One candidate.
#[derive(Clone, Debug)]
struct Lane {
    scope: MergeScope,
    separate: bool,
    leaf_events: u32,
    memory: usize,
    flank_capacity: usize,
    retain: usize,
    late_runs_max: usize,
    frontier: i64,
    flank: usize,
    late: Vec<i64>,
    /// Late events in waiting runs, and the number of these runs.
    waiting: Vec<i64>,
    runs: usize,
    leaves: Vec<Leaf>,
    written: u64,
    merges: u64,
    /// Events observed and written by the end of the newest phase.
    phase_events: u64,
    phase_written: u64,
}

/// Events that a candidate would have written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShadowCount {
    /// Events observed.
    pub events: u64,
    /// Events written to leaves; events still in memory count once.
    pub written: u64,
    /// Merges of late events.
    pub merges: u64,
    /// Write amplification: up to the end of the newest phase when there were at least two,
    /// otherwise of all events.
    pub write_amplification: f64,
}

impl Shadow {
    /// Begins a replay after `frontier`, the newest time stored before, with events every
    /// `interval_ns` before that.
    #[must_use]
    pub fn new(
        candidates: &[Candidate],
        configuration: &Configuration,
        frontier: Option<i64>,
        interval_ns: f64,
    ) -> Shadow {
        let memory = (configuration.memory_events.round() as usize).max(2);
        let lanes = candidates
            .iter()
            .map(|c| Lane::new(c, configuration, memory, frontier, interval_ns))
            .collect();
        Shadow {
            newest: Vec::with_capacity(memory * 2 + 1),
            newest_max: memory,
            events: 0,
            lanes,
        }
    }

    /// Observes events in order of arrival.
    pub fn observe(&mut self, times: &[i64]) {
        for time in times {
            self.events += 1;
            match self.newest.last() {
                Some(last) if time < last => {
                    let at = self.newest.partition_point(|t| t <= time);
                    self.newest.insert(at, *time);
                }
                _ => self.newest.push(*time),
            }
            if self.newest.len() > self.newest_max * 2 {
                let extra = self.newest.len() - self.newest_max;
                self.newest.drain(..extra);
            }
            for lane in &mut self.lanes {
                lane.observe(*time, &self.newest, self.events);
            }
        }
    }

    /// Number of observed events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Counts of each candidate, in their original order.
    #[must_use]
    pub fn counts(&self) -> Vec<ShadowCount> {
        self.lanes.iter().map(|l| l.count(self.events)).collect()
    }

    /// Approximate bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lane = |l: &Lane| {
            size_of::<Lane>()
                + (l.late.capacity() + l.waiting.capacity()) * 8
                + l.leaves.capacity() * size_of::<Leaf>()
        };
        self.newest.capacity() * 8 + self.lanes.iter().map(lane).sum::<usize>()
    }
}

impl Lane {
    fn new(
        candidate: &Candidate,
        configuration: &Configuration,
        memory: usize,
        frontier: Option<i64>,
        interval_ns: f64,
    ) -> Lane {
        let leaf_events = candidate.leaf_events.max(1);
        let step = f64::from(leaf_events) * interval_ns.max(1.0);
        let leaves = frontier.map_or_else(Vec::new, |frontier| {
            (0..LEAVES_BEFORE)
                .rev()
                .map(|back| Leaf {
                    first: frontier
                        .saturating_sub((step * (back as f64 + 1.0)) as i64)
                        .saturating_add(interval_ns as i64),
                    last: frontier.saturating_sub((step * back as f64) as i64),
                    count: leaf_events,
                })
                .collect()
        });
        let (separate, flank_capacity) = match candidate.policy.split {
            Split::Conventional => (false, memory),
            Split::Separate { flank_share } => (true, super::flank_capacity(memory, flank_share)),
        };
        Lane {
            scope: candidate.policy.merge_scope,
            separate,
            leaf_events,
            memory,
            flank_capacity,
            retain: (candidate.policy.retain_events as usize).min(flank_capacity.saturating_sub(1)),
            late_runs_max: configuration.late_runs_max,
            frontier: frontier.unwrap_or(i64::MIN),
            flank: 0,
            late: Vec::new(),
            waiting: Vec::new(),
            runs: 0,
            leaves,
            written: 0,
            merges: 0,
            phase_events: 0,
            phase_written: 0,
        }
    }

    fn observe(&mut self, time: i64, newest: &[i64], events: u64) {
        if time > self.frontier {
            self.flank += 1;
        } else {
            self.late.push(time);
        }
        if !self.separate {
            if self.flank + self.late.len() >= self.memory {
                self.store(true, true, newest, events);
            }
        } else if self.flank >= self.flank_capacity {
            self.store(true, false, newest, events);
        } else if self.late.len() >= self.memory - self.flank_capacity {
            self.store(false, true, newest, events);
        }
    }

    fn store(&mut self, flank: bool, late: bool, newest: &[i64], events: u64) {
        // The flank's events are the newest of all that arrived.
        let held = newest.len().saturating_sub(self.flank);
        let mut behind: &[i64] = &[];
        if flank {
            let upto = newest.len().saturating_sub(self.retain).max(held);
            let part = part_of(newest, held..upto, "events of the flank");
            // Equal times are not split.
            let next = newest.get(upto);
            let whole = part.partition_point(|t| next.is_none_or(|n| t < n));
            behind = part_of(part, ..whole, "events before a time");
        }
        let mut pool = if late {
            std::mem::take(&mut self.late)
        } else {
            Vec::new()
        };
        pool.sort_unstable();
        self.flank -= behind.len();
        if let Some(last) = behind.last() {
            self.frontier = *last;
        }
        if pool.is_empty() {
            self.append(behind);
            return;
        }
        let merges = self.merges;
        if self.late_runs_max > 0 && self.separate {
            self.late_run(&mut pool);
            self.append(behind);
        } else {
            self.merge(pool, behind);
        }
        if self.merges > merges {
            self.phase_events = events - self.flank as u64 - self.late.len() as u64;
            self.phase_written = self.written;
        }
    }

    /// Writes late events as a separate run; with enough runs, all are merged.
    fn late_run(&mut self, pool: &mut Vec<i64>) {
        self.written += pool.len() as u64;
        self.waiting.append(pool);
        self.runs += 1;
        if self.runs > self.late_runs_max {
            let mut all = std::mem::take(&mut self.waiting);
            all.sort_unstable();
            self.merge(all, &[]);
            self.runs = 0;
        }
    }

    fn append(&mut self, times: &[i64]) {
        self.written += times.len() as u64;
        for part in times.chunks(self.leaf_events as usize) {
            if let (Some(first), Some(last)) = (part.first(), part.last()) {
                self.leaves.push(Leaf {
                    first: *first,
                    last: *last,
                    count: part.len() as u32,
                });
            }
        }
    }

    fn merge(&mut self, pool: Vec<i64>, behind: &[i64]) {
        self.merges += 1;
        let ranges = self.ranges(&pool, !behind.is_empty());
        let takes_all = ranges.last().is_some_and(|r| r.1 == self.leaves.len());
        let mut rest: &[i64] = &pool;
        // From the right, so that the positions of the pending ones do not change.
        let mut pieces: Vec<(usize, usize, Vec<Leaf>)> = Vec::with_capacity(ranges.len());
        for (from, to) in &ranges {
            let until = self.leaves.get(*to).map_or(i64::MAX, |l| l.first - 1);
            let inside = rest.partition_point(|t| *t <= until);
            let (mine, others) = rest.split_at(inside);
            rest = others;
            let last_one = *to == self.leaves.len();
            let more: &[i64] = if last_one { behind } else { &[] };
            let old = part_of(&self.leaves, *from..*to, "leaves that a merge rewrites");
            let total = old.iter().map(|l| u64::from(l.count)).sum::<u64>()
                + (mine.len() + more.len()) as u64;
            self.written += total;
            pieces.push((*from, *to, self.recut(old, mine, more)));
        }
        for (from, to, leaves) in pieces.into_iter().rev() {
            self.leaves.splice(from..to, leaves);
        }
        if !takes_all {
            self.append(behind);
        }
    }

    /// The ranges of leaves that a merge rewrites.
    fn ranges(&self, pool: &[i64], appends: bool) -> Vec<(usize, usize)> {
        let (Some(first), Some(last)) = (pool.first(), pool.last()) else {
            return Vec::new();
        };
        if self.scope == MergeScope::Overlap {
            let from = self.leaves.partition_point(|l| l.last < *first);
            let to = if appends {
                self.leaves.len()
            } else {
                self.leaves.partition_point(|l| l.first <= *last).max(from)
            };
            return vec![(from, to)];
        }
        let mut out: Vec<(usize, usize)> = Vec::new();
        for time in pool {
            let owner = self
                .leaves
                .partition_point(|l| l.first <= *time)
                .saturating_sub(1);
            match out.last_mut() {
                Some((_, to)) if *to >= owner => *to = (*to).max(owner + 1),
                _ => out.push((owner, owner + 1)),
            }
        }
        out
    }

    /// Cuts full leaves from the left, the rest last; borders inside old leaves are interpolated.
    fn recut(&self, old: &[Leaf], late: &[i64], behind: &[i64]) -> Vec<Leaf> {
        // Points (time, events up to it): a polygon for interpolating new borders.
        let mut points: Vec<(i64, f64)> = Vec::with_capacity(old.len() * 2 + 2);
        let mut count = 0.0;
        let mut at = 0;
        for leaf in old {
            let before = part_of(late, at.., "late events behind a time");
            let before = before.partition_point(|t| *t < leaf.first);
            at += before;
            count += before as f64;
            points.push((leaf.first, count));
            let inside = part_of(late, at.., "late events behind a time");
            let inside = inside.partition_point(|t| *t <= leaf.last);
            at += inside;
            count += f64::from(leaf.count) + inside as f64;
            points.push((leaf.last, count));
        }
        for time in part_of(late, at.., "late events behind a time")
            .iter()
            .chain(behind)
        {
            count += 1.0;
            points.push((*time, count));
        }
        let first = match (late.first(), points.first()) {
            (Some(a), Some(b)) => (*a).min(b.0),
            (Some(a), None) => *a,
            (None, Some(b)) => b.0,
            (None, None) => return Vec::new(),
        };
        let last = points.last().map_or(first, |p| p.0).max(first);
        let total = count.round() as u64;
        let full = u64::from(self.leaf_events);
        let mut out: Vec<Leaf> = Vec::with_capacity((total / full + 1) as usize);
        let mut from = first;
        let mut done = 0;
        let mut right = 0;
        while done < total {
            let size = full.min(total - done);
            done += size;
            while right + 1 < points.len() && points.get(right).is_some_and(|p| p.1 < done as f64) {
                right += 1;
            }
            let b = points.get(right).copied().unwrap_or((last, count));
            let a = right.checked_sub(1).and_then(|i| points.get(i)).copied();
            let a = a.unwrap_or((first, 0.0));
            let share = if b.1 > a.1 {
                (done as f64 - a.1) / (b.1 - a.1)
            } else {
                1.0
            };
            let border = if done == total {
                last
            } else {
                a.0 + ((b.0 - a.0) as f64 * share.clamp(0.0, 1.0)) as i64
            };
            let border = border.max(from);
            out.push(Leaf {
                first: from,
                last: border,
                count: size as u32,
            });
            from = border.saturating_add(1);
        }
        out
    }

    fn count(&self, events: u64) -> ShadowCount {
        let held = (self.flank + self.late.len()) as u64;
        let written = self.written + held;
        let write_amplification = if self.merges >= 2 && self.phase_events > 0 {
            self.phase_written as f64 / self.phase_events as f64
        } else if events > 0 {
            written as f64 / events as f64
        } else {
            1.0
        };
        ShadowCount {
            events,
            written,
            merges: self.merges,
            write_amplification,
        }
    }
}
