//! Candidates in turn, and the results of their rounds.

use super::Failure;
use super::target::three_digits;
use crate::machine;
use crate::table::median;
use serde::Serialize;
use std::time::Instant;

/// Measurements of one round of a candidate.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RoundResult {
    /// Number of operations, by which times are divided.
    pub(crate) operations: u64,
    pub(crate) wall_seconds: f64,
    /// CPU time of the whole process, all threads.
    pub(crate) cpu_seconds: f64,
    /// Syncs, where the candidate counts them.
    pub(crate) syncs: Option<u64>,
    /// Wall and CPU seconds with the work that was left for later, where that was measured.
    pub(crate) drained_seconds: Option<(f64, f64)>,
    /// The same after compaction, if that was measured.
    pub(crate) settled_seconds: Option<(f64, f64)>,
}

/// Measures `work`, which returns the number of its operations.
pub(crate) fn time_round(
    work: impl FnOnce() -> Result<u64, Failure>,
) -> Result<RoundResult, Failure> {
    let (start, cpu) = (Instant::now(), machine::cpu_seconds());
    let operations = work()?;
    Ok(RoundResult {
        operations,
        wall_seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: machine::cpu_seconds() - cpu,
        syncs: None,
        drained_seconds: None,
        settled_seconds: None,
    })
}

/// As [`time_round`], and continues measuring while `drain` does the deferred work.
pub(crate) fn time_round_with_drain<S>(
    state: &mut S,
    work: impl FnOnce(&mut S) -> Result<u64, Failure>,
    drain: impl FnOnce(&mut S) -> Result<(), Failure>,
) -> Result<RoundResult, Failure> {
    let first = time_round(|| work(state))?;
    let rest = time_round(|| drain(state).map(|()| 0))?;
    Ok(RoundResult {
        drained_seconds: Some((
            first.wall_seconds + rest.wall_seconds,
            first.cpu_seconds + rest.cpu_seconds,
        )),
        ..first
    })
}

/// A candidate that does the same work as the others. Its function gets the number of the round,
/// warm-up rounds included, and measures only the part that should count, by [`time_round`].
pub(crate) struct Candidate<'a> {
    pub(crate) name: String,
    pub(crate) round: Box<dyn FnMut(usize) -> Result<RoundResult, Failure> + 'a>,
}

impl<'a> Candidate<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        round: impl FnMut(usize) -> Result<RoundResult, Failure> + 'a,
    ) -> Candidate<'a> {
        Candidate {
            name: name.into(),
            round: Box::new(round),
        }
    }
}

/// The rounds of one candidate that count.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rounds {
    pub(crate) name: String,
    pub(crate) taken: Vec<RoundResult>,
}

/// Runs the candidates' rounds in turn; each round starts with the next of them.
pub(crate) fn turns(
    (warm_up, counted): (usize, usize),
    mut candidates: Vec<Candidate<'_>>,
) -> Result<Vec<Rounds>, Failure> {
    let mut all: Vec<Rounds> = candidates
        .iter()
        .map(|c| Rounds {
            name: c.name.clone(),
            taken: Vec::with_capacity(counted),
        })
        .collect();
    let count = candidates.len();
    for round in 0..warm_up + counted {
        for turn in 0..count {
            let at = (turn + round) % count;
            let (Some(candidate), Some(rounds)) = (candidates.get_mut(at), all.get_mut(at)) else {
                continue;
            };
            let taken =
                (candidate.round)(round).map_err(|error| format!("{}: {error}", candidate.name))?;
            if round >= warm_up {
                rounds.taken.push(taken);
            }
        }
    }
    Ok(all)
}

impl Rounds {
    /// The same rounds including deferred work, if that was measured.
    pub(crate) fn drained(&self) -> Rounds {
        let mut drained = self.clone();
        for one in &mut drained.taken {
            if let Some((wall, cpu)) = one.drained_seconds {
                (one.wall_seconds, one.cpu_seconds) = (wall, cpu);
            }
        }
        drained
    }

    /// The same rounds until compaction has finished, if that was measured.
    pub(crate) fn settled(&self) -> Rounds {
        let mut settled = self.clone();
        for one in &mut settled.taken {
            if let Some((wall, cpu)) = one.settled_seconds {
                (one.wall_seconds, one.cpu_seconds) = (wall, cpu);
            }
        }
        settled
    }

    fn median_of(&self, what: impl Fn(&RoundResult) -> f64) -> f64 {
        median(self.taken.iter().map(what).collect()).0
    }

    /// Median seconds per operation.
    pub(crate) fn seconds(&self) -> f64 {
        self.median_of(|t| t.wall_seconds / t.operations.max(1) as f64)
    }

    /// Median operations per second.
    pub(crate) fn per_second(&self) -> f64 {
        1.0 / self.seconds().max(1e-12)
    }

    /// Median CPU seconds per million operations.
    pub(crate) fn cpu_per_million(&self) -> f64 {
        self.median_of(|t| t.cpu_seconds * 1e6 / t.operations.max(1) as f64)
    }

    /// Median syncs per operation, where they are counted.
    pub(crate) fn syncs_per_operation(&self) -> Option<f64> {
        self.taken
            .iter()
            .all(|t| t.syncs.is_some())
            .then(|| self.median_of(|t| t.syncs.unwrap_or(0) as f64 / t.operations.max(1) as f64))
    }

    /// Distance of the fastest and of the slowest round from the median, in percent of the time.
    pub(crate) fn spread_percent(&self) -> (f64, f64) {
        let (_, least, most) = median(
            self.taken
                .iter()
                .map(|t| t.wall_seconds / t.operations.max(1) as f64)
                .collect(),
        );
        (least, most)
    }

    /// The spread as text.
    pub(crate) fn spread(&self) -> String {
        let (least, most) = self.spread_percent();
        format!("{least:+.0} … {most:+.0} %")
    }

    /// The median time of an operation as text.
    pub(crate) fn time(&self) -> String {
        let seconds = self.seconds();
        if seconds >= 1.0 {
            format!("{} s", three_digits(seconds))
        } else if seconds >= 1e-3 {
            format!("{} ms", three_digits(seconds * 1e3))
        } else {
            format!("{} µs", three_digits(seconds * 1e6))
        }
    }

    /// Time of an operation relative to `other`'s: the median over rounds of the ratio within a
    /// round, since disturbances of a round affect both.
    pub(crate) fn times_of(&self, other: &Rounds) -> f64 {
        ratio(self, other, |t| t.wall_seconds / t.operations.max(1) as f64)
    }
}

/// The median over rounds of a measurement of `a` divided by that of `b` in the same round.
fn ratio(a: &Rounds, b: &Rounds, figure: impl Fn(&RoundResult) -> f64) -> f64 {
    let pairs = a.taken.iter().zip(&b.taken);
    median(
        pairs
            .map(|(a, b)| figure(a) / figure(b).max(f64::MIN_POSITIVE))
            .collect(),
    )
    .0
}
