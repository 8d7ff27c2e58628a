//! The referee: when the writes of the policy in force are off its prediction, a stretch of events
//! is replayed for the best candidates, and the counts of replays correct the model until the
//! stream changes.
//!
//! Invariants: stretches are contiguous and at most a tenth of all events; a replay uses at most
//! [`REPLAY_BYTES_MAX`].

use super::{Analyzer, EVENTS_PER_EVALUATION, Measured};
use crate::choose::Ranked;
use crate::model::{Candidate, Configuration};
use crate::shadow::Shadow;

/// The referee checks after this number of measured merges, if their writes are off by this share.
const MERGES_MEASURED: u64 = 4;
const OFF: f64 = 0.10;
/// Maximum candidates of a replay.
const REPLAYED_MAX: usize = 8;
/// Maximum memory, in events of a stream, for which a replay is begun.
const REPLAY_MEMORY_MAX: f64 = 2048.0;
/// Events of a replay, in multiples of a stream's memory; at least an evaluation's events.
const REPLAY_MEMORIES: f64 = 64.0;
/// Maximum memory of a replay in bytes.
pub const REPLAY_BYTES_MAX: usize = 512 << 10;
/// Evaluations from one replay to the next.
const REPLAY_INTERVAL: u32 = 16;

/// Counts of replays for a candidate since the stream changed: mean write amplification, and their
/// number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Replayed {
    pub(super) candidate: Candidate,
    pub(super) counted: f64,
    pub(super) replays: u32,
}

/// A running replay.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) stream: u32,
    pub(super) candidates: Vec<Candidate>,
    pub(super) shadow: Shadow,
    pub(super) events_max: u64,
}

/// Number of replays that have the same weight as the model.
const REPLAYS_BELIEVED: f64 = 3.0;

/// Weight, from 0 to 1, of the difference of a candidate in this number of replays: a replay is one
/// sample of few merges, and where replay and model disagree about two candidates by some per cent,
/// either may be right.
#[must_use]
pub fn belief(replays: u32) -> f64 {
    let replays = f64::from(replays);
    replays / (replays + REPLAYS_BELIEVED)
}

/// Corrects costs by the counts of replays. An error of the model affects all candidates alike, so
/// candidates without a replay are corrected by the mean correction of the others. The difference
/// of one candidate weighs more with the number of its replays, since one merge is one sample.
pub(super) fn correct(ranking: &mut [Ranked], replayed: &[Replayed]) {
    let own = |ranked: &Ranked| {
        let found = replayed.iter().find(|r| r.candidate == ranked.candidate)?;
        Some((found, (found.counted / ranked.predicted).ln()))
    };
    let ratios: Vec<f64> = ranking.iter().filter_map(|r| Some(own(r)?.1)).collect();
    if ratios.is_empty() {
        return;
    }
    let common = ratios.iter().sum::<f64>() / ratios.len() as f64;
    for ranked in ranking {
        let mut ratio = common;
        if let Some((found, own)) = own(ranked) {
            ratio += (own - common) * belief(found.replays);
            ranked.replayed = Some(found.counted);
        }
        ranked.cost *= ratio.exp();
    }
}

impl Analyzer {
    pub(super) fn note_replayed(&mut self, candidate: Candidate, counted: f64) {
        match self.replayed.iter_mut().find(|r| r.candidate == candidate) {
            Some(known) => {
                known.replays += 1;
                known.counted += (counted - known.counted) / f64::from(known.replays);
            }
            None => self.replayed.push(Replayed {
                candidate,
                counted,
                replays: 1,
            }),
        }
    }

    /// Drops the results of replays when the stream has changed.
    pub(super) fn check_replayed(&mut self) {
        let Some(first) = self.replayed.first() else {
            return;
        };
        let found = self.ranking.iter().find(|r| r.candidate == first.candidate);
        match (found.map(|r| r.predicted), self.replayed_prediction) {
            (Some(now), None) => self.replayed_prediction = Some(now),
            (Some(now), Some(then)) if (now / then - 1.0).abs() <= OFF => {}
            _ => {
                self.replayed.clear();
                self.replayed_prediction = None;
            }
        }
    }

    /// Begins a replay when the prediction for the policy in force is off.
    pub(super) fn call_referee(&mut self, here: &Ranked) {
        let expected = here.replayed.unwrap_or(here.predicted);
        let off = self.measured().is_some_and(|(measured, merges)| {
            merges >= MERGES_MEASURED && (measured / expected - 1.0).abs() > OFF
        });
        if !off
            || self.replay.is_some()
            || self.replay_in > 0
            || self.memory_events > REPLAY_MEMORY_MAX
        {
            return;
        }
        let mut candidates: Vec<Candidate> = self.ranking.iter().map(|r| r.candidate).collect();
        candidates.truncate(REPLAYED_MAX - 1);
        if !candidates.contains(&self.in_force) {
            candidates.push(self.in_force);
        }
        self.begin_replay(candidates);
    }

    pub(super) fn begin_replay(&mut self, candidates: Vec<Candidate>) {
        let busiest = self
            .slots
            .iter()
            .flatten()
            .max_by_key(|slot| slot.tracker.arrivals());
        let Some(slot) = busiest else { return };
        let configuration = Configuration {
            memory_events: self.memory_events,
            late_runs_max: 0,
        };
        let shadow = Shadow::new(
            &candidates,
            &configuration,
            slot.tracker.newest(),
            slot.tracker.interval_ns(),
        );
        if shadow.bytes() > REPLAY_BYTES_MAX {
            return;
        }
        self.replay = Some(Replay {
            stream: slot.stream,
            candidates,
            shadow,
            events_max: ((self.memory_events * REPLAY_MEMORIES) as u64).max(EVENTS_PER_EVALUATION),
        });
    }

    /// Applies the counts of a finished replay. True when that changes the costs of candidates.
    pub(super) fn end_replay(&mut self) -> bool {
        self.replay_in = self.replay_in.saturating_sub(1);
        let full =
            |r: &Replay| r.shadow.events() >= r.events_max || r.shadow.bytes() > REPLAY_BYTES_MAX;
        if self.replay.as_ref().is_some_and(full)
            && let Some(replay) = self.replay.take()
        {
            for (candidate, count) in replay.candidates.iter().zip(replay.shadow.counts()) {
                self.note_replayed(*candidate, count.write_amplification);
            }
            self.replay_in = REPLAY_INTERVAL;
            self.measured = Measured::default();
            return true;
        }
        false
    }
}
