//! Decides, for one shard, which policy for late data to use.
//!
//! Every [`EVENTS_PER_EVALUATION`] events the model predicts, from the observed lateness, which
//! decays over some 48,000 events, the writes of the policy in force, and when that prediction has
//! changed, and occasionally in any case, the writes of every candidate. A candidate that is
//! predicted to cost 2 % less, twice in a row and while the prediction for the policy in force is
//! steady, is chosen; unless it costs a tenth less, it must do so in the mean over 24 evaluations,
//! because many candidates cost nearly the same and would alternate otherwise. The referee: when
//! the writes of the policy in force over four or more merges are off its prediction by more than a
//! tenth, a stretch of events is replayed for the best candidates, and the counts of replays
//! correct the model until the stream changes. Stretches are contiguous and at most a tenth of all
//! events. Streams are tracked one by one, since disorder between them costs nothing; memory is
//! shared, so a stream has its share of it. Of many streams up to 64 are tracked, and represent the
//! others.
//!
//! Invariants: the analyzer never changes events in memory or files; a decision changes only the
//! policy in force. Concurrency: a value; `observe` and `apply` run under the shard's lock,
//! [`Evaluation::rank`] outside of it. Failure: none. Memory is below 1 MiB: 64 trackers of 6 KiB,
//! and a replay of at most [`REPLAY_BYTES_MAX`].

mod persistence;
mod referee;

pub use referee::{REPLAY_BYTES_MAX, belief};

use super::LatePolicy;
use super::choose::{Ranked, Space, sort};
use super::lateness::{Lateness, LatenessLaw, STREAMS_TRACKED_MAX, Tracker};
use super::model::Candidate;
use referee::{Replay, Replayed, correct};
use std::collections::VecDeque;
use std::fmt;

/// Events of a shard between two evaluations.
pub const EVENTS_PER_EVALUATION: u64 = 16_384;
/// Factor of the histograms' weight from one evaluation to the next: e^(−1/3).
const DECAY: f64 = 0.7165;
/// Factor, in the same way, of the count of a stream's events, which determines its share of
/// memory.
const SHARE_DECAY: f64 = 0.9;
/// Minimum relative gain of a candidate.
const GAIN_MIN: f64 = 0.02;
/// Number of consecutive evaluations in which it must be better.
const CONFIRMATIONS: u32 = 2;
/// Relative gain that is accepted at once. Less may be chance, since many candidates cost nearly
/// the same: then costs are compared in the mean over [`AVERAGED`] evaluations.
const GAIN_AT_ONCE: f64 = 0.10;
const AVERAGED: u32 = 24;
/// While the prediction for the policy in force moves by more than this, and by more than half the
/// gain, the stream is changing: wait,
const STEADY: f64 = 0.05;
/// Maximum evaluations to wait for a steady stream.
const WAIT_MAX: u32 = 6;
/// All candidates are ranked again when the prediction for the policy in force has moved by this
/// share, or after this number of evaluations.
const UNCHANGED: f64 = 0.03;
const UNRANKED_MAX: u32 = 15;
/// The same number while the mean costs are being learnt: the histograms are then mostly new, and
/// rankings in between would give about the same result. From this many evaluations on.
const UNRANKED_LEARNING_MAX: u32 = 2;
const LEARNING_FROM: u32 = 3;
/// Minimum memory of a stream, in events, as a basis for a decision.
const MEMORY_EVENTS_MIN: f64 = 32.0;
/// Evaluations without an event after which a stream's tracker is reassigned.
const IDLE_MAX: u32 = 8;
/// Maximum decisions remembered.
const DECISIONS_MAX: usize = 16;
/// Arrivals of a block, for the extremal index.
const BLOCK_EVENTS: u64 = 512;

/// Reason for a change of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model predicts fewer writes for the new one.
    Predicted,
    /// The measured writes contradicted the model, and a replay counted less for the new one.
    Replayed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Predicted => "predicted to write less",
            Reason::Replayed => "wrote less in a replay, after predictions were off",
        })
    }
}

/// A change of policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Number of events of the shard by then.
    pub at_events: u64,
    /// The policy before.
    pub from: Candidate,
    /// The policy after.
    pub to: Candidate,
    /// Expected write amplification of the policy before.
    pub expected_from: f64,
    /// Expected write amplification of the policy after the decision.
    pub expected_to: f64,
    /// Reason for the decision.
    pub reason: Reason,
}

/// A tracked stream.
#[derive(Debug)]
struct Slot {
    stream: u32,
    tracker: Tracker,
    /// Events since the last evaluation, and earlier ones, decaying.
    recent: u64,
    weight: f64,
    idle: u32,
}

/// Events written because of arrivals, and arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Measured {
    stored: u64,
    written: u64,
    merges: u64,
}

/// Statistics of the late events of one shard, and its policy for them.
#[derive(Debug)]
pub struct Analyzer {
    adaptive: bool,
    in_force: Candidate,
    lateness: Lateness,
    slots: Vec<Option<Box<Slot>>>,
    /// Total events, and events since the last evaluation.
    events: u64,
    recent: u64,
    /// Weight of earlier events, decaying like those of each stream.
    weight: f64,
    /// Memory of the streams that bring the events, in events.
    memory_events: f64,
    ranking: Vec<Ranked>,
    decisions: VecDeque<Decision>,
    confirmations: u32,
    waited: u32,
    /// Prediction for the previous policy.
    last_prediction: Option<f64>,
    /// The prediction at the last ranking of all candidates, and evaluations since.
    ranked_prediction: Option<f64>,
    unranked: u32,
    measured: Measured,
    replay: Option<Replay>,
    /// Replayed write amplifications, the prediction for the first of them at that time, and
    /// evaluations until another replay is allowed.
    replayed: Vec<Replayed>,
    replayed_prediction: Option<f64>,
    replay_in: u32,
    /// The mean of the logarithm of each candidate's cost over the newest evaluations, and their
    /// number.
    averages: Vec<(Candidate, f64, u32)>,
}

/// Inputs of an evaluation, independent of the shard.
#[derive(Clone, Debug)]
pub struct Evaluation {
    lateness: Lateness,
    /// Memory in events, as in [`Space::configuration`].
    pub memory_events: f64,
    in_force: Candidate,
    replayed: Vec<Replayed>,
    /// While the prediction for the policy in force is near this one, the stream is unchanged.
    unchanged_at: Option<f64>,
}

impl Evaluation {
    /// The law of the observed lateness.
    #[must_use]
    pub fn law(&self) -> Option<LatenessLaw> {
        self.lateness.law()
    }

    /// Ranks the candidates; takes some milliseconds. Empty while there is too little data, and
    /// when the stream is unchanged.
    #[must_use]
    pub fn rank(&self, space: &Space) -> Vec<Ranked> {
        let Some(law) = self.lateness.law() else {
            return Vec::new();
        };
        if self.memory_events < MEMORY_EVENTS_MIN {
            return Vec::new();
        }
        if let Some(before) = self.unchanged_at {
            let now = space.rank(self.in_force, &law).predicted;
            if (now / before - 1.0).abs() < UNCHANGED {
                return Vec::new();
            }
        }
        let mut ranking = space.ranking(self.in_force, &law);
        correct(&mut ranking, &self.replayed);
        sort(&mut ranking);
        ranking
    }
}

impl Default for Analyzer {
    fn default() -> Self {
        let first = Candidate {
            policy: LatePolicy::default(),
            leaf_events: 2048,
        };
        Analyzer::new(first, false)
    }
}

impl Analyzer {
    /// Begins with a policy; `adaptive` = it may change.
    #[must_use]
    pub fn new(first: Candidate, adaptive: bool) -> Analyzer {
        Analyzer {
            adaptive,
            in_force: first,
            lateness: Lateness::new(BLOCK_EVENTS),
            slots: (0..STREAMS_TRACKED_MAX).map(|_| None).collect(),
            events: 0,
            recent: 0,
            weight: 0.0,
            memory_events: 0.0,
            ranking: Vec::new(),
            decisions: VecDeque::new(),
            confirmations: 0,
            waited: 0,
            last_prediction: None,
            ranked_prediction: None,
            unranked: 0,
            measured: Measured::default(),
            replay: None,
            replayed: Vec::new(),
            replayed_prediction: None,
            replay_in: 0,
            averages: Vec::new(),
        }
    }

    /// The policy in force, and the leaf size with it.
    #[must_use]
    pub fn in_force(&self) -> Candidate {
        self.in_force
    }

    /// True when the policy may change.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        self.adaptive
    }

    /// Number of observed events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The observed lateness.
    #[must_use]
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// Memory of the streams that bring the events, in events per stream; 0 before the first
    /// evaluation.
    #[must_use]
    pub fn memory_events(&self) -> f64 {
        self.memory_events
    }

    /// The newest ranking, the least cost first. Empty before the first evaluation.
    #[must_use]
    pub fn ranking(&self) -> &[Ranked] {
        &self.ranking
    }

    /// The newest decisions, the oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter()
    }

    /// Write amplification measured since the policy came into force, and the merges in it.
    #[must_use]
    pub fn measured(&self) -> Option<(f64, u64)> {
        let measured = &self.measured;
        (measured.stored > 0).then(|| {
            (
                measured.written as f64 / measured.stored as f64,
                measured.merges,
            )
        })
    }

    /// The ranked candidate in force.
    #[must_use]
    pub fn current(&self) -> Option<&Ranked> {
        self.ranking.iter().find(|r| r.candidate == self.in_force)
    }

    /// Observes events of a stream, in order of arrival.
    #[inline]
    pub fn observe(&mut self, stream: u32, times: &[i64]) {
        let count = times.len() as u64;
        self.events += count;
        self.recent += count;
        // A multiplication spreads neighbouring numbers over the slots.
        let at = (stream.wrapping_mul(0x9e37_79b1) >> 16) as usize % STREAMS_TRACKED_MAX;
        let Some(place) = self.slots.get_mut(at) else {
            return;
        };
        let slot = place.get_or_insert_with(|| {
            Box::new(Slot {
                stream,
                tracker: Tracker::new(),
                recent: 0,
                weight: 0.0,
                idle: 0,
            })
        });
        if slot.stream != stream {
            return;
        }
        slot.recent += count;
        slot.tracker.observe(times, &mut self.lateness);
        if let Some(replay) = &mut self.replay
            && replay.stream == stream
            && replay.shadow.events() < replay.events_max
        {
            replay.shadow.observe(times);
        }
    }

    /// Events since the newest evaluation.
    #[must_use]
    pub fn recent_events(&self) -> u64 {
        self.recent
    }

    /// True when it is time for [`Analyzer::evaluation`].
    #[inline]
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.recent >= EVENTS_PER_EVALUATION
    }

    /// Begins an evaluation: `shard_memory_events` is the number of events that fit into the
    /// shard's memory.
    pub fn evaluation(&mut self, shard_memory_events: f64) -> Evaluation {
        let recent = std::mem::take(&mut self.recent);
        let part = recent as f64 / EVENTS_PER_EVALUATION as f64;
        let share_decay = SHARE_DECAY.powf(part.min(10.0));
        self.weight = self.weight * share_decay + recent as f64;
        let (mut sum, mut squares) = (0.0, 0.0);
        for slot in self.slots.iter_mut().flatten() {
            slot.weight = slot.weight * share_decay + slot.recent as f64;
            sum += slot.weight;
            squares += slot.weight * slot.weight;
        }
        // The share of a stream in its shard, in the mean over events.
        let share = squares / sum.max(1.0) / self.weight.max(1.0);
        self.memory_events = shard_memory_events.max(0.0) * share.min(1.0);
        let is_replayed = self.end_replay();
        let may_wait = self.confirmations == 0
            && self.waited == 0
            && self.unranked < self.unranked_max()
            && !is_replayed;
        let evaluation = Evaluation {
            unchanged_at: self.ranked_prediction.filter(|_| may_wait),
            ..self.glance()
        };
        self.lateness.decay(DECAY.powf(part.min(10.0)));
        for place in &mut self.slots {
            if let Some(slot) = place {
                slot.idle = if slot.recent == 0 { slot.idle + 1 } else { 0 };
                slot.recent = 0;
                if slot.idle > IDLE_MAX {
                    *place = None;
                }
            }
        }
        evaluation
    }

    /// An evaluation of the present state; changes nothing.
    #[must_use]
    pub fn glance(&self) -> Evaluation {
        Evaluation {
            lateness: self.lateness.clone(),
            memory_events: self.memory_events.round(),
            in_force: self.in_force,
            replayed: self.replayed.clone(),
            unchanged_at: None,
        }
    }

    /// Allows changes of the policy from now on, or fixes it; `fixed` is in force then, regardless
    /// of predictions.
    pub fn set_fixed(&mut self, fixed: Option<Candidate>) {
        self.adaptive = fixed.is_none();
        self.confirmations = 0;
        self.last_prediction = None;
        self.ranked_prediction = None;
        if let Some(candidate) = fixed {
            self.in_force = candidate;
            self.measured = Measured::default();
        }
    }

    /// Ends an evaluation: records the ranking, and changes the policy if due.
    pub fn apply(&mut self, ranking: Vec<Ranked>) -> Option<Decision> {
        let Some(now) = ranking.first().copied() else {
            self.unranked += 1;
            if let Some(here) = self.current().copied()
                && self.adaptive
            {
                self.call_referee(&here);
            }
            return None;
        };
        self.average(&ranking);
        self.ranking = ranking;
        self.unranked = 0;
        let here = *self.current()?;
        self.ranked_prediction = Some(here.predicted);
        self.check_replayed();
        // A great gain need not wait for small changes to end.
        let gain_now = 1.0 - now.cost / here.cost;
        let steady = self
            .last_prediction
            .is_none_or(|last| (here.predicted / last - 1.0).abs() < STEADY.max(gain_now / 2.0));
        self.last_prediction = Some(here.predicted);
        if !self.adaptive {
            return None;
        }
        let at_once = if self.decisions.is_empty() {
            GAIN_MIN
        } else {
            GAIN_AT_ONCE
        };
        let (best, gain) = if gain_now >= at_once {
            (now, gain_now)
        } else {
            self.best_in_the_mean()?
        };
        if gain < GAIN_MIN {
            self.confirmations = 0;
            self.waited = 0;
            self.call_referee(&here);
            return None;
        }
        if !steady && self.waited < WAIT_MAX {
            self.waited += 1;
            self.confirmations = self.confirmations.min(CONFIRMATIONS - 1);
            return None;
        }
        self.confirmations += 1;
        if self.confirmations < CONFIRMATIONS {
            return None;
        }
        let decision = Decision {
            at_events: self.events,
            from: self.in_force,
            to: best.candidate,
            expected_from: here.replayed.unwrap_or(here.predicted),
            expected_to: best.replayed.unwrap_or(best.predicted),
            reason: if best.replayed.is_some() {
                Reason::Replayed
            } else {
                Reason::Predicted
            },
        };
        self.in_force = best.candidate;
        self.confirmations = 0;
        self.waited = 0;
        self.last_prediction = Some(best.predicted);
        self.ranked_prediction = Some(best.predicted);
        self.measured = Measured::default();
        if gain_now >= at_once {
            // The stream is another one.
            self.averages.clear();
        }
        if self.decisions.len() >= DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
        Some(decision)
    }

    /// Adds a ranking to the mean costs. The ranking also counts for the previous evaluations
    /// without one, as far as these added new information.
    fn average(&mut self, ranking: &[Ranked]) {
        let weight = self.unranked.min(UNRANKED_LEARNING_MAX) + 1;
        self.averages
            .retain(|(candidate, ..)| ranking.iter().any(|r| r.candidate == *candidate));
        for ranked in ranking {
            let cost = ranked.cost.ln();
            let known = self
                .averages
                .iter_mut()
                .find(|(candidate, ..)| *candidate == ranked.candidate);
            match known {
                Some((_, mean, count)) => {
                    *count = (*count + weight).min(AVERAGED);
                    *mean += (cost - *mean) * f64::from(weight) / f64::from(*count);
                }
                None => self.averages.push((ranked.candidate, cost, weight)),
            }
        }
    }

    /// The candidate with the least mean cost, among those known for long enough, and its gain over
    /// the one in force.
    fn best_in_the_mean(&self) -> Option<(Ranked, f64)> {
        let mean_of = |wanted: Candidate| {
            let found = self.averages.iter().find(|(c, ..)| *c == wanted);
            found.map(|(_, mean, _)| *mean)
        };
        let (candidate, mean, _) = self
            .averages
            .iter()
            .filter(|(c, _, count)| *count >= AVERAGED || *c == self.in_force)
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        let best = self.ranking.iter().find(|r| r.candidate == *candidate)?;
        let here = mean_of(self.in_force)?;
        Some((*best, 1.0 - (mean - here).exp()))
    }

    /// Number of evaluations for which the last ranking may be reused, if the prediction for the
    /// policy in force stays the same.
    fn unranked_max(&self) -> u32 {
        let here = self.averages.iter().find(|(c, ..)| *c == self.in_force);
        let known = here.map_or(0, |(_, _, count)| *count);
        let is_settled = || {
            let best = self.best_in_the_mean();
            best.is_none_or(|(_, gain)| gain < GAIN_MIN)
        };
        if !self.adaptive || (known >= AVERAGED && is_settled()) {
            UNRANKED_MAX
        } else if known >= LEARNING_FROM {
            UNRANKED_LEARNING_MAX
        } else {
            0
        }
    }

    /// Records the events that a job stored and wrote, and its number of merges.
    pub fn measure(&mut self, stored: u64, written: u64, merges: u64) {
        self.measured.stored += stored;
        self.measured.written += written;
        self.measured.merges += merges;
    }

    /// Approximate bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots = self.slots.iter().flatten();
        size_of::<Analyzer>()
            + slots
                .map(|s| size_of::<Slot>() + s.tracker.bytes())
                .sum::<usize>()
            + self.ranking.capacity() * size_of::<Ranked>()
            + self.averages.capacity() * size_of::<(Candidate, f64, u32)>()
            + self.replay.as_ref().map_or(0, |r| r.shadow.bytes())
    }
}

#[cfg(test)]
mod tests;
