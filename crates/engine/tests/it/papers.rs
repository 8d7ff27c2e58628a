//! The rule `LabExact` counts what a plain simulation of the papers' policies counts.
//!
//! Conventions: a buffer acts right after the insertion that fills it; merged events are cut into
//! full leaves from the left, the remainder last; an event is in order when it is newer than the
//! newest event in a leaf; the buffers left at the end are flushed and counted, each by itself.

use crate::model::Random;
use headwater_engine::{Database, Durability, FlushRule, LatePolicy, MergeScope, Options, Split};
use headwater_io::Env;
use headwater_types::{Batch, StreamName};

/// Leaves as sorted lists of distinct times, and the two buffers.
pub(crate) struct Simulation {
    memory: usize,
    flank_capacity: Option<usize>,
    /// Newest events that a flush keeps back.
    retain: usize,
    leaf: usize,
    scope: MergeScope,
    leaves: Vec<Vec<i64>>,
    flank: Vec<i64>,
    late: Vec<i64>,
    written: u64,
    merges: u64,
}

impl Simulation {
    pub(crate) fn new(
        memory: usize,
        flank_capacity: Option<usize>,
        retain: usize,
        leaf: usize,
        scope: MergeScope,
    ) -> Simulation {
        Simulation {
            memory,
            flank_capacity,
            retain,
            leaf,
            scope,
            leaves: Vec::new(),
            flank: Vec::new(),
            late: Vec::new(),
            written: 0,
            merges: 0,
        }
    }

    /// Events written, those still in memory counted once.
    pub(crate) fn written(&self) -> u64 {
        self.written + (self.flank.len() + self.late.len()) as u64
    }

    pub(crate) fn merges(&self) -> u64 {
        self.merges
    }

    fn newest(&self) -> i64 {
        self.leaves
            .last()
            .and_then(|l| l.last())
            .copied()
            .unwrap_or(i64::MIN)
    }

    pub(crate) fn insert(&mut self, time: i64) {
        if self.flank_capacity.is_some() && time <= self.newest() {
            &mut self.late
        } else {
            &mut self.flank
        }
        .push(time);
        match self.flank_capacity {
            None if self.flank.len() >= self.memory => self.store_flank(),
            Some(capacity) if self.flank.len() >= capacity => self.store_flank(),
            Some(capacity) if self.late.len() >= self.memory - capacity => self.store_late(),
            _ => {}
        }
    }

    fn store_flank(&mut self) {
        let mut events = std::mem::take(&mut self.flank);
        events.sort_unstable();
        let newest = self.newest();
        let behind = events.iter().filter(|t| **t > newest).count();
        self.flank = events.split_off(events.len() - self.retain.min(behind));
        self.store(events);
    }

    fn store_late(&mut self) {
        let mut events = std::mem::take(&mut self.late);
        events.sort_unstable();
        self.store(events);
    }

    fn store(&mut self, events: Vec<i64>) {
        let newest = self.newest();
        let late: Vec<i64> = events.iter().copied().filter(|t| *t <= newest).collect();
        let behind: Vec<i64> = events.iter().copied().filter(|t| *t > newest).collect();
        if late.is_empty() {
            self.written += behind.len() as u64;
            self.leaves
                .extend(behind.chunks(self.leaf).map(<[i64]>::to_vec));
            return;
        }
        self.merges += 1;
        let (first, last) = (
            late[0],
            if behind.is_empty() {
                late[late.len() - 1]
            } else {
                i64::MAX
            },
        );
        let count = self.leaves.len();
        let mut touched = vec![false; count];
        let mut ranges = Vec::new();
        match self.scope {
            MergeScope::Overlap => {
                let from = self
                    .leaves
                    .iter()
                    .take_while(|l| l[l.len() - 1] < first)
                    .count();
                let to = self
                    .leaves
                    .iter()
                    .take_while(|l| l[0] <= last)
                    .count()
                    .max(from);
                ranges.push(from..to);
            }
            MergeScope::Touched => {
                for time in &late {
                    touched[self
                        .leaves
                        .iter()
                        .take_while(|l| l[0] <= *time)
                        .count()
                        .saturating_sub(1)] = true;
                }
                let mut at = 0;
                while at < count {
                    if touched[at] {
                        let from = at;
                        while at < count && touched[at] {
                            at += 1;
                        }
                        ranges.push(from..at);
                    }
                    at += 1;
                }
            }
        }
        let takes_all = ranges.last().is_some_and(|r| r.end == count);
        let mut pool = if takes_all { events } else { late };
        let mut out: Vec<Vec<i64>> = Vec::new();
        let mut next = 0;
        for range in ranges {
            out.extend(self.leaves[next..range.start].iter().cloned());
            next = range.end;
            let until = self.leaves.get(range.end).map_or(i64::MAX, |l| l[0] - 1);
            let inside = pool.partition_point(|t| *t <= until);
            let mut merged: Vec<i64> = self.leaves[range]
                .iter()
                .flatten()
                .copied()
                .chain(pool.drain(..inside))
                .collect();
            merged.sort_unstable();
            self.written += merged.len() as u64;
            out.extend(merged.chunks(self.leaf).map(<[i64]>::to_vec));
        }
        out.extend(self.leaves[next..].iter().cloned());
        assert!(pool.is_empty());
        if !takes_all {
            self.written += behind.len() as u64;
            out.extend(behind.chunks(self.leaf).map(<[i64]>::to_vec));
        }
        self.leaves = out;
    }

    fn finish(&mut self) {
        self.retain = 0;
        if !self.flank.is_empty() {
            self.store_flank();
        }
        if !self.late.is_empty() {
            self.store_late();
        }
    }
}

/// Distinct times, each delayed by a heavy-tailed number of places.
fn arrivals(seed: u64, count: i64, strength: f64) -> Vec<i64> {
    let mut random = Random::new(seed);
    let mut events: Vec<(i64, i64)> = (0..count)
        .map(|i| {
            let u = (random.below(1 << 30) as f64 + 1.0) / (1u64 << 30) as f64;
            (i + (strength * (u.powf(-0.7) - 1.0)) as i64, i)
        })
        .collect();
    events.sort_unstable();
    events.into_iter().map(|(_, i)| i * 1_000_000).collect()
}

#[test]
fn the_engine_counts_what_a_plain_simulation_counts() {
    let mut all_merges = 0;
    const MEMORY: usize = 64;
    const LEAF: usize = 64;
    for (seed, strength) in [(1, 0.5), (2, 5.0), (3, 60.0)] {
        let times = arrivals(seed, 6000, strength);
        for scope in [MergeScope::Overlap, MergeScope::Touched] {
            for (flank, retain) in [
                (None, 0),
                (None, 24),
                (Some(0.25), 0),
                (Some(0.5), 0),
                (Some(0.5), 12),
                (Some(0.875), 0),
                (Some(0.875), 30),
            ] {
                let policy = LatePolicy {
                    merge_scope: scope,
                    retain_events: retain as u32,
                    split: match flank {
                        None => Split::Conventional,
                        Some(share) => Split::Separate { flank_share: share },
                    },
                };
                let options = Options {
                    shards: 1,
                    durability: Durability::Written,
                    late_policy: policy.into(),
                    flush_rule: FlushRule::LabExact {
                        memory_events: MEMORY as u32,
                    },
                    late_runs_max: 0,
                    leaf_events: LEAF as u32,
                    ..Options::new("/db")
                };
                let db = Database::open_in(Env::memory(), options).unwrap();
                let name = StreamName::new("t", [("s", "1")]);
                let capacity = flank.map(|s| (MEMORY as f64 * s).round() as usize);
                let mut simulation = Simulation::new(MEMORY, capacity, retain, LEAF, scope);
                for time in &times {
                    let mut batch = Batch::new();
                    batch.stream(&name).row(*time, [("v", 1.0.into())]).unwrap();
                    db.commit(batch).unwrap();
                    simulation.insert(*time);
                }
                db.flush().unwrap();
                simulation.finish();
                let stats = db.stats().unwrap();
                let what = format!("seed {seed}, {scope:?}, flank {flank:?}, retain {retain}");
                assert_eq!(
                    stats.events_written(),
                    simulation.written,
                    "{what}: events written"
                );
                assert_eq!(stats.merges, simulation.merges, "{what}: merges");
                assert_eq!(
                    stats.leaves,
                    simulation.leaves.len() as u64,
                    "{what}: leaves"
                );
                assert_eq!((stats.partitions, stats.late_runs), (1, 0), "{what}");
                all_merges += simulation.merges;
            }
        }
    }
    assert!(all_merges > 500, "{all_merges}");
}
