//! Predicts the write amplification of a policy from the law of delays or of lateness.
//!
//! All quantities are in events of one stream: ages, delays, memory, leaves. An event generated `a`
//! events ago has arrived with probability F(a) = 1 − S(a); J(x) is the integral of S from x on, so
//! every sum over events is a difference of J. With lateness instead of delays (see
//! [`super::lateness`]) the same formulas are valid, and need neither clocks nor fixed intervals.
//!
//! Four cases: one buffer or two, every overlapped leaf or only touched ones. In all of them a
//! flush leaves a *frontier*, the newest event stored; its age E\[A\] follows from S, and grows
//! with the number of events that a flush retains (`retain_events`). A touched leaf is rewritten
//! unless it receives no buffered event; an overlapped one, unless all buffered events are older,
//! or all newer. For the oldest of many events the extremal index of the law determines the number
//! of independent events that they are equivalent to.
//!
//! Invariants: pure functions; a prediction is at least 1.
//! Concurrency: values only.
//! Failure: none; a law without late events predicts 1. Sums and searches are bounded.

use super::law::DelayLaw;
use super::{LatePolicy, MergeScope, Split, flank_capacity};

/// Numbers of positions within a flank's cycle at which a phase is assumed to begin: for a phase
/// with few flushes, and with many.
const BEGINNINGS: (usize, usize) = (6, 2);
/// Number of flushes of a phase that counts as many.
const MANY_FLUSHES: f64 = 24.0;
/// A probability this small ends a sum.
const NEGLIGIBLE: f64 = 1e-6;
/// Grouping of the terms of a sum: the number of single terms, and then the growth factor of the
/// group size.
type Grouping = (f64, f64);
const TERMS: Grouping = (48.0, 1.08);
const FAR_FLUSHES: Grouping = (16.0, 1.15);
const FAR_LEAVES: Grouping = (24.0, 1.15);
/// Leaves whose ages differ by at most this share are assumed to be touched equally often.
const ALIKE: f64 = 0.2;
/// Ages beyond this multiple of the frontier's possible age are grouped.
const FAR_AGES: f64 = 16.0;
/// Accuracy of an age, as a share of a leaf.
const SETTLED: f64 = 1e-4;
/// Maximum age of a sum, in events.
const AGE_MAX: f64 = 1e12;

/// A candidate: a policy, and the leaf size where the policy may choose it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The policy.
    pub policy: LatePolicy,
    /// Events of a full leaf.
    pub leaf_events: u32,
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},leaf={}", self.policy, self.leaf_events)
    }
}

/// Resources of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Configuration {
    /// Events of a stream that fit into memory, in order and late together (the paper's n); at
    /// least 2.
    pub memory_events: f64,
    /// Late runs of a stream that may wait before they are merged; 0 = late events are merged at
    /// once.
    pub late_runs_max: usize,
}

/// Predicted write amplification of a candidate: events written to leaves per event.
///
/// ```
/// use headwater_late::{Candidate, Configuration, LatePolicy, Lognormal, predict};
/// // The paper's data set M6: a table of 512 events, as many in memory.
/// let law = Lognormal::new(5.0, 2.0).in_units_of(50.0);
/// let configuration = Configuration { memory_events: 512.0, late_runs_max: 0 };
/// let touched = Candidate { policy: LatePolicy::separate(0.5), leaf_events: 64 };
/// let conventional = Candidate { policy: LatePolicy::conventional(), leaf_events: 512 };
/// let better = predict(&touched, &configuration, &law);
/// assert!(better < predict(&conventional, &configuration, &law));
/// ```
#[must_use]
pub fn predict<L: DelayLaw + ?Sized>(
    candidate: &Candidate,
    configuration: &Configuration,
    law: &L,
) -> f64 {
    predict_in_full(candidate, configuration, law).write_amplification
}

/// A prediction, and its components.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Events written to leaves per event.
    pub write_amplification: f64,
    /// In-order events of a flush.
    pub flushed_events: f64,
    /// Share of events that arrive after newer ones were stored.
    pub late_share: f64,
    /// Stored events that a merge rewrites, per late event; 0 without late events.
    pub rewritten_per_late: f64,
}

/// Predicts like [`predict`], with the components of the prediction.
#[must_use]
pub fn predict_in_full<L: DelayLaw + ?Sized>(
    candidate: &Candidate,
    configuration: &Configuration,
    law: &L,
) -> Prediction {
    Outline::new(candidate, configuration.memory_events, law).predict(configuration.late_runs_max)
}

/// Evaluation of a candidate before the number of late runs that may wait is set.
pub(super) struct Outline<'a, L: ?Sized> {
    setting: Setting<'a, L>,
    policy: LatePolicy,
    /// Total events of a flush, in-order ones, and the late buffer's capacity.
    cycle: f64,
    flushed: f64,
    capacity: f64,
}

impl<'a, L: DelayLaw + ?Sized> Outline<'a, L> {
    /// For this number of events of memory.
    pub(super) fn new(candidate: &Candidate, memory_events: f64, law: &'a L) -> Outline<'a, L> {
        let memory = memory_events.max(2.0);
        let policy = candidate.policy;
        let flank = match policy.split {
            Split::Conventional => memory,
            Split::Separate { flank_share } => flank_capacity(memory as usize, flank_share) as f64,
        };
        let retain = f64::from(policy.retain_events).min(flank - 1.0);
        let setting = Setting {
            law,
            leaf: f64::from(candidate.leaf_events.max(1)),
            frontier: Frontier::new(law, retain),
            at_zero: law.tail(0.0),
        };
        let (cycle, flushed, capacity) = match policy.split {
            Split::Conventional => {
                let cycle = memory - retain;
                let flushed = setting.in_order_within(cycle).clamp(1.0, cycle);
                (cycle, flushed, cycle - flushed)
            }
            Split::Separate { .. } => {
                let flushed = (flank - retain).max(1.0);
                let cycle = solve(|s| setting.in_order_within(s), flushed).max(flushed);
                (cycle, flushed, memory - flank)
            }
        };
        Outline {
            setting,
            policy,
            cycle,
            flushed,
            capacity,
        }
    }

    /// The prediction with at most this number of late runs.
    pub(super) fn predict(&self, late_runs_max: usize) -> Prediction {
        let (setting, cycle, flushed) = (&self.setting, self.cycle, self.flushed);
        let late_share = 1.0 - flushed / cycle;
        let rewritten = if late_share < NEGLIGIBLE * 1e-3 {
            0.0
        } else {
            match (self.policy.split, self.policy.merge_scope) {
                (Split::Conventional, MergeScope::Overlap) if late_runs_max == 0 => {
                    setting.conventional_overlap(cycle)
                }
                (Split::Conventional, MergeScope::Touched) if late_runs_max == 0 => {
                    setting.conventional_touched(cycle)
                }
                (_, scope) => setting.separate(cycle, flushed, self.capacity, scope, late_runs_max),
            }
        };
        let rewritten = rewritten.max(0.0);
        // Events that waited in runs were already written there.
        let in_runs = if late_runs_max > 0 { late_share } else { 0.0 };
        Prediction {
            write_amplification: 1.0 + rewritten + in_runs,
            flushed_events: flushed,
            late_share,
            rewritten_per_late: if late_share > 0.0 {
                rewritten / late_share
            } else {
                0.0
            },
        }
    }
}

/// The newest stored event after a flush.
struct Frontier {
    /// P(the frontier is older than b + ½), b = 0, 1, …, when a flush retains no events; empty
    /// otherwise.
    older: Vec<f64>,
    /// Its mean age.
    age: f64,
    /// The sum of P(the frontier is older than b − ½), and the mean of b + ½ weighted with these
    /// probabilities.
    weight: f64,
    middle: f64,
}

impl Frontier {
    fn new<L: DelayLaw + ?Sized>(law: &L, retain: f64) -> Frontier {
        if retain >= 1.0 {
            // Of the events younger than the frontier, the arrived ones are those retained.
            let at_zero = law.tail(0.0);
            let arrived = |age: f64| age - at_zero + law.tail(age);
            return Frontier {
                older: Vec::new(),
                age: solve(arrived, retain + 0.5),
                weight: 0.0,
                middle: 0.0,
            };
        }
        let mut older = Vec::new();
        let mut probability = 1.0;
        let (mut age, mut weight, mut sum) = (0.0, 0.0, 0.0);
        while probability > NEGLIGIBLE && older.len() < 4096 {
            let place = older.len() as f64 + 0.5;
            weight += probability;
            sum += probability * place;
            probability *= law.survival(place);
            older.push(probability);
            age += probability;
        }
        Frontier {
            older,
            age,
            weight,
            middle: sum / weight,
        }
    }
}

/// The `x` at or above 0 where an increasing function with values close to x reaches `goal`.
fn solve(rising: impl Fn(f64) -> f64, goal: f64) -> f64 {
    let mut high = goal.max(1.0);
    while rising(high) < goal && high < AGE_MAX {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if rising(middle) < goal {
            low = middle;
        } else {
            high = middle;
        }
        if high - low < 1e-6 * (1.0 + high) {
            break;
        }
    }
    (low + high) / 2.0
}

/// Calls `term(k, width)` for k = first, first + 1, … and later for wider and wider groups with the
/// middle k. Ends when `term` does.
fn each_term(
    first: f64,
    last: f64,
    (single_terms, growth): Grouping,
    mut term: impl FnMut(f64, f64) -> bool,
) {
    let mut at = first;
    let mut width = 1.0f64;
    while at <= last {
        let count = width.min(last - at + 1.0);
        if !term(at + (count - 1.0) / 2.0, count) {
            return;
        }
        at += count;
        if at > first + single_terms {
            width *= growth;
        }
    }
}

/// The greatest common divisor of two whole numbers.
fn common_divisor(a: f64, b: f64) -> f64 {
    let (mut a, mut b) = (a.round().max(1.0), b.round().max(1.0));
    while b > 0.5 {
        (a, b) = (b, a % b);
    }
    a
}

struct Setting<'a, L: ?Sized> {
    law: &'a L,
    leaf: f64,
    frontier: Frontier,
    /// The integral J at 0.
    at_zero: f64,
}

/// A phase: from one merge of the late buffer to the next.
struct Phase {
    /// Events that arrive in it.
    length: f64,
    /// Flushes in it.
    flushes: f64,
    /// Events since the last flush.
    since_last: f64,
    /// Events between flushes.
    cycle: f64,
    /// Age of the frontier just after a flush.
    lag: f64,
    /// In-order events of a flush.
    flushed: f64,
}

/// Leaves of a flush that are about equal under the law.
struct LeafGroup {
    /// Age of their oldest event, from the border on, when they were flushed.
    depth: f64,
    events: f64,
    leaves: f64,
    /// Events older than that age which had not arrived when they were flushed.
    missing: f64,
}

impl Phase {
    /// Age of the frontier of the j-th last flush, at the end of the phase.
    fn border(&self, j: f64) -> f64 {
        self.since_last + (j - 1.0) * self.cycle + self.lag
    }
}

impl<L: DelayLaw + ?Sized> Setting<'_, L> {
    /// Events on disk that are younger than `age`, just after a complete flush.
    fn stored_within(&self, age: f64) -> f64 {
        age - self.at_zero + self.law.tail(age)
    }

    /// P(the oldest of the events that arrive within `cycle` is older than `age` at its beginning).
    fn oldest_beyond(&self, age: f64, cycle: f64) -> f64 {
        let each = ((self.law.tail(age) - self.law.tail(age + cycle)) / cycle).clamp(0.0, 1.0);
        let independent = cycle * self.law.extremal_index(age);
        -(independent * (-each).ln_1p()).exp_m1()
    }

    fn conventional_overlap(&self, cycle: f64) -> f64 {
        // Is any stored event newer than the oldest buffered one?
        let any = if self.frontier.older.is_empty() {
            self.oldest_beyond(self.frontier.age, cycle)
        } else {
            let mut before = 1.0;
            let mut sum = 0.0;
            for (b, older) in self.frontier.older.iter().enumerate() {
                sum += (before - older) * self.oldest_beyond(b as f64 + 0.5, cycle);
                before = *older;
            }
            sum
        };
        let behind_frontier = self.stored_within(self.frontier.age).max(0.0);
        let nothing_kept = !self.frontier.older.is_empty();
        let beyond_stored = |events: f64| {
            let behind = if nothing_kept { 0.0 } else { behind_frontier };
            let age = solve(|age| self.stored_within(age), events + behind);
            self.oldest_beyond(age, cycle)
        };
        // The newest leaf has the remainder; all others are full.
        let rewritten = |newest_leaf: f64| {
            let mut events = any * newest_leaf;
            each_term(0.0, AGE_MAX, TERMS, |k, width| {
                let probability = beyond_stored(newest_leaf + k * self.leaf);
                events += probability * width * self.leaf;
                probability > NEGLIGIBLE
            });
            events
        };
        // A merge passes the leftover on, so that it takes every multiple of the common divisor; a
        // flush keeps its own.
        let leftovers = (self.leaf / common_divisor(cycle, self.leaf)).round();
        let parts = leftovers.clamp(1.0, 8.0) as usize;
        let merged: f64 = (1..=parts)
            .map(|i| {
                let place = if leftovers <= 8.0 { 0.0 } else { 0.5 };
                rewritten(self.leaf * (i as f64 - place) / parts as f64)
            })
            .sum();
        let own = match cycle % self.leaf {
            rest if rest > 0.0 => rest,
            _ => self.leaf,
        };
        (any * merged / parts as f64 + (1.0 - any) * rewritten(own)) / cycle
    }

    fn conventional_touched(&self, cycle: f64) -> f64 {
        self.touched_before(self.frontier.age + cycle, cycle) / cycle
    }

    /// Stored events in leaves that receive an event older than `from` that arrived in the newest
    /// `length`. The leaves are those stored before, the first of them starting at `from`.
    fn touched_before(&self, from: f64, length: f64) -> f64 {
        let tail = |x: f64| self.law.tail(x);
        let (single_terms, growth) = FAR_LEAVES;
        let mut age = from;
        // J(age − length), and the buffered events older than the age.
        let mut begun = tail(age - length);
        let mut buffered = (begun - tail(age)).max(0.0);
        let mut width = 1.0f64;
        let mut sum = 0.0;
        let mut leaves = 0.0;
        while age < AGE_MAX {
            let wanted = width * self.leaf;
            let mut next = age + wanted;
            let mut begun_next = tail(next - length);
            for _ in 0..4 {
                let better = age + wanted + begun - begun_next;
                let moved = (better - next).abs();
                next = better;
                begun_next = tail(next - length);
                if moved < SETTLED * wanted {
                    break;
                }
            }
            let buffered_next = (begun_next - tail(next)).max(0.0);
            let events = (buffered - buffered_next).max(0.0);
            sum += wanted * touched(events / width);
            if buffered_next * self.leaf < 1e-4 * (sum + 1e-3) {
                break;
            }
            (age, begun, buffered) = (next, begun_next, buffered_next);
            leaves += width;
            if leaves > single_terms {
                width *= growth;
            }
        }
        sum
    }

    /// Stored events rewritten per event, when late events have a buffer of `late_capacity` and
    /// wait in up to `runs` runs of that size.
    fn separate(
        &self,
        cycle: f64,
        flushed: f64,
        late_capacity: f64,
        scope: MergeScope,
        runs: usize,
    ) -> f64 {
        let late = cycle - flushed;
        // The age of the frontier at which the same number of events become late per cycle.
        let law = self.law;
        let lag = {
            let late_at = |age: f64| law.tail(age) - law.tail(age + cycle);
            let (mut low, mut high) = (0.0, self.frontier.age * 4.0 + 64.0);
            for _ in 0..50 {
                let middle = (low + high) / 2.0;
                if late_at(middle) > late {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            (low + high) / 2.0
        };
        let groups = match scope {
            MergeScope::Overlap => Vec::new(),
            MergeScope::Touched => self.leaf_groups(cycle, flushed, lag),
        };
        let merged = late_capacity.max(1.0) * (1.0 + runs as f64);
        let late_within = |s: f64| s - self.in_order_within(s);
        let mut cost = 0.0;
        let mut length = 0.0;
        let beginnings = if merged / late < MANY_FLUSHES {
            BEGINNINGS.0
        } else {
            BEGINNINGS.1
        };
        for beginning in 0..beginnings {
            let before = late * (beginning as f64 + 0.5) / beginnings as f64;
            let flushes = ((before + merged) / late).floor();
            let rest = before + merged - flushes * late;
            let began = inverse(&late_within, before, cycle);
            let since_last = inverse(&late_within, rest, cycle);
            let phase = Phase {
                length: (flushes * cycle + since_last - began).max(merged),
                flushes,
                since_last,
                cycle,
                lag,
                flushed,
            };
            cost += match scope {
                MergeScope::Overlap => self.overlapped(&phase, merged),
                MergeScope::Touched => self.touched_in(&phase, &groups),
            };
            length += phase.length;
        }
        cost / length
    }

    /// In-order events that arrive within `s` events after a flush.
    fn in_order_within(&self, s: f64) -> f64 {
        let law = self.law;
        let Frontier {
            older,
            age,
            weight,
            middle,
        } = &self.frontier;
        if older.is_empty() {
            return s - law.tail(*age) + law.tail(age + s);
        }
        // An event of age b + ½ that is missing and newer than all stored events (P: the product of
        // S up to b) is in order if it arrives within s: the sum over b of P times S(b + ½) − S(b +
        // ½ + s).
        let missing = if s > FAR_AGES * older.len() as f64 {
            // At this distance the law is a straight line over the relevant ages.
            weight * law.survival(middle + s)
        } else {
            let mut before = 1.0;
            let mut sum = 0.0;
            for (b, older) in older.iter().enumerate() {
                sum += before * law.survival(b as f64 + 0.5 + s);
                before = *older;
            }
            sum
        };
        s - self.at_zero + law.tail(s) + age - missing
    }

    /// Stored events that a merge of the whole range of the late buffer rewrites.
    fn overlapped(&self, phase: &Phase, merged: f64) -> f64 {
        let law = self.law;
        let tail = |x: f64| law.tail(x);
        let k = phase.flushes;
        let oldest_border = phase.border(k + 1.0);
        // Buffered events older than the border of the j-th last flush; older than an age beyond
        // the phase.
        let beyond = |age: f64| tail(age - phase.length) - tail(age);
        let at_oldest = beyond(oldest_border);
        let per_cycle = tail(phase.lag) - tail(phase.lag + phase.cycle);
        let at_border = |j: f64| {
            at_oldest + (k + 1.0 - j) * per_cycle - (tail(phase.border(j)) - tail(oldest_border))
        };
        let all = at_border(1.0).max(f64::MIN_POSITIVE);
        let newest_survival = law.survival(phase.border(1.0)).max(f64::MIN_POSITIVE);
        // P(a buffered event is older), and the same for the event that filled the buffer.
        let share = |events: f64| (events / all).clamp(0.0, 1.0);
        let last_one = |age: f64| (law.survival(age) / newest_survival).clamp(0.0, 1.0);
        let others = (merged - 1.0).max(0.0);
        let none_older = |events: f64, age: f64| {
            let independent = others * law.extremal_index(age);
            (independent * (-share(events)).ln_1p()).exp() * (1.0 - last_one(age))
        };
        let all_older = |events: f64, age: f64| {
            let share = share(events);
            if share <= 0.0 {
                0.0
            } else {
                (others * share.ln()).exp() * last_one(age)
            }
        };
        let mut cost = 0.0;
        // Events flushed in this phase; a flush of more than a leaf is several.
        let parts = (phase.flushed / self.leaf).ceil().clamp(1.0, 64.0);
        each_term(1.0, k, TERMS, |j, width| {
            let (young, old) = (phase.border(j), phase.border(j + 1.0));
            let since = young - phase.lag;
            let at_old = at_border(j + 1.0);
            let at = |age: f64| {
                at_old + (tail(age - since) - tail(phase.lag + phase.cycle))
                    - (tail(age) - tail(old))
            };
            for part in 0..parts as usize {
                let place = |p: f64| young + (old - young) * p / parts;
                let (newer, older) = (place(part as f64), place(part as f64 + 1.0));
                let spared = none_older(at(newer), newer) + all_older(at(older), older);
                cost += (1.0 - spared).max(0.0) * phase.flushed / parts * width;
            }
            true
        });
        // The events that were stored there before.
        let reach = 1.0 - none_older(at_oldest, oldest_border);
        cost += reach * self.leaf / 2.0;
        let step = (self.leaf / 8.0).clamp(1.0, 64.0);
        each_term(0.0, f64::MAX, TERMS, |n, width| {
            let age = oldest_border + (n + 0.5) * step;
            let reach = 1.0 - none_older(beyond(age), age);
            cost += law.distribution(age - phase.length) * reach * width * step;
            reach > NEGLIGIBLE && age < AGE_MAX
        });
        cost
    }

    /// The leaves of a flush, the newest first.
    fn leaf_groups(&self, cycle: f64, flushed: f64, lag: f64) -> Vec<LeafGroup> {
        // A flush is cut into full leaves from its oldest event on: the newest leaf has the rest.
        let full = (flushed / self.leaf).floor();
        let rest = flushed - full * self.leaf;
        let per_event = cycle / flushed;
        let mut groups = Vec::new();
        let mut upto = 0.0;
        let mut add = |events: f64, leaves: f64| {
            upto += events;
            let depth = upto * per_event;
            groups.push(LeafGroup {
                depth,
                events,
                leaves,
                missing: self.law.tail(lag + depth),
            });
        };
        if rest > 0.5 {
            add(rest, 1.0);
        }
        // The law changes with the order of magnitude of the age, so leaves far from the border may
        // be grouped.
        let mut left = full;
        while left > 0.5 {
            let behind = lag / per_event + flushed - left * self.leaf;
            let count = (ALIKE * behind / self.leaf).floor().clamp(1.0, left);
            add(count * self.leaf, count);
            left -= count;
        }
        groups
    }

    /// Stored events in leaves that receive an event of the late buffer.
    fn touched_in(&self, phase: &Phase, groups: &[LeafGroup]) -> f64 {
        let tail = |x: f64| self.law.tail(x);
        let mut cost = 0.0;
        let missing = tail(phase.lag);
        each_term(1.0, phase.flushes, FAR_FLUSHES, |j, width| {
            let young = phase.border(j);
            // Late events older than a depth: the missing ones at the flush, less the ones still
            // missing.
            let mut before = missing - tail(young);
            for group in groups {
                let after = group.missing - tail(young + group.depth);
                let late = (before - after).max(0.0);
                cost += group.events * touched(late / group.leaves) * width;
                before = after;
            }
            true
        });
        let oldest = phase.border(phase.flushes + 1.0);
        cost + self.touched_before(oldest, phase.length)
    }
}

/// P(a leaf that receives `late` events in the mean receives any): 1 − e^−x.
fn touched(late: f64) -> f64 {
    if late < 0.02 {
        // Most leaves are far from the border. The omitted part of the series is below 2e-9 of it.
        late * (1.0 - late / 2.0 * (1.0 - late / 3.0 * (1.0 - late / 4.0)))
    } else {
        1.0 - (-late).exp()
    }
}

/// The argument between 0 and `end` where an increasing function that begins at 0 reaches `goal`.
fn inverse(rising: &impl Fn(f64) -> f64, goal: f64, end: f64) -> f64 {
    let (mut low, mut high) = (0.0, end);
    for _ in 0..24 {
        let middle = (low + high) / 2.0;
        if rising(middle) < goal {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests;
