//! Costs of each policy of the paper on each set: conventional, and separate with every share of
//! memory, whole tables rewritten. By simulation, which has the same counts as the engine.

use super::arrivals::{Arrivals, MS};
use super::plan::{Plan, Sharing};
use super::sets::{self, OTHERS, REAL, Set, paper};
use super::{Sizes, in_parallel, reference};
use crate::harness::Failure;
use crate::table;
use serde::Serialize;
use std::path::Path;

/// A set, and the writes of every policy for it.
#[derive(Serialize)]
pub(crate) struct SweepResult {
    pub(crate) set: String,
    pub(crate) events: usize,
    pub(crate) memory: usize,
    /// The delay that half of the events do not exceed, ms.
    pub(crate) delay_median_ms: f64,
    /// The delay that one in a hundred exceeds, ms.
    pub(crate) delay_99_ms: f64,
    /// WA of the conventional policy.
    pub(crate) conventional: f64,
    /// WA of the separate policies, with the number of events for those in order.
    pub(crate) separate: Vec<(usize, f64)>,
}

/// Shares of the memory for events in order: sixteenths.
pub(crate) fn flanks(memory: usize) -> impl Iterator<Item = usize> {
    (1..16).map(move |sixteenths| memory * sixteenths / 16)
}

impl SweepResult {
    fn of(set: String, memory: usize, arrivals: &Arrivals) -> SweepResult {
        let wa = |sharing| {
            let plan = Plan {
                memory,
                leaf: memory,
                ..Plan::paper(sharing)
            };
            reference::simulate(&arrivals.generated, &plan).wa()
        };
        let mut delays = arrivals.delays.clone();
        delays.sort_unstable();
        let quantile = |percent: usize| {
            let at = delays.len() * percent / 100;
            delays.get(at).map_or(0.0, |d| *d as f64 / MS as f64)
        };
        SweepResult {
            set,
            events: arrivals.generated.len(),
            memory,
            delay_median_ms: quantile(50),
            delay_99_ms: quantile(99),
            conventional: wa(Sharing::Conventional),
            separate: flanks(memory)
                .map(|flank| (flank, wa(Sharing::Separate(flank))))
                .collect(),
        }
    }

    /// WA of one of the policies.
    pub(crate) fn wa(&self, sharing: Sharing) -> Option<f64> {
        match sharing {
            Sharing::Conventional => Some(self.conventional),
            Sharing::Separate(flank) => self
                .separate
                .iter()
                .find(|(f, _)| *f == flank)
                .map(|(_, wa)| *wa),
        }
    }

    /// WA of the cheapest policy.
    pub(crate) fn best(&self) -> f64 {
        self.best_separate().1.min(self.conventional)
    }

    /// The cheapest separate policy.
    pub(crate) fn best_separate(&self) -> (usize, f64) {
        self.separate
            .iter()
            .copied()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((0, f64::INFINITY))
    }
}

/// Memory for sets of the size that files of real delays have.
const SMALL_MEMORY: usize = 64;

/// Sets that can be generated in any size: the paper's twelve, then those that violate its
/// assumptions.
pub(crate) fn generated_sets() -> Vec<Set> {
    paper().into_iter().map(Set::Paper).chain(OTHERS).collect()
}

pub(crate) fn run(sizes: &Sizes, data: &Path) -> Result<Vec<SweepResult>, Failure> {
    let made = generated_sets();
    let mut all = in_parallel(&made, |set| {
        let arrivals = set.make(sizes.points, sizes.seed);
        Ok(SweepResult::of(set.name(), 512, &arrivals))
    })?;
    let sequences = [sets::figure_10(), sets::figure_17(), sets::alternating()];
    all.extend(in_parallel(&sequences, |sequence| {
        let arrivals = sequence.make(sizes.points / sequence.parts.len(), sizes.seed);
        Ok(SweepResult::of(sequence.name.to_owned(), 512, &arrivals))
    })?);
    let real = in_parallel(&REAL, |file| {
        let Some(arrivals) = file.read(data)? else {
            eprintln!(
                "lab: no {} in {}: left out (--data DIR says where the files are)",
                file.name,
                data.display()
            );
            return Ok(None);
        };
        Ok(Some(SweepResult::of(
            file.name.to_owned(),
            SMALL_MEMORY,
            &arrivals,
        )))
    })?;
    all.extend(real.into_iter().flatten());
    print(&all);
    Ok(all)
}

fn print(all: &[SweepResult]) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|s| {
            let (flank, best) = s.best_separate();
            let half = s.separate.iter().find(|(f, _)| f * 2 == s.memory);
            vec![
                s.set.clone(),
                s.events.to_string(),
                format!("{:.0} / {:.0}", s.delay_median_ms, s.delay_99_ms),
                s.memory.to_string(),
                format!("{:.3}", s.conventional),
                half.map_or_else(String::new, |(_, wa)| format!("{wa:.3}")),
                format!("{best:.3}"),
                flank.to_string(),
                (if best < s.conventional {
                    "separate"
                } else {
                    "conventional"
                })
                .to_owned(),
            ]
        })
        .collect();
    println!("\nWA of the paper's policies (whole tables rewritten, nothing kept back):\n");
    table::print(
        &[
            "set",
            "events",
            "delay ms, median / 99 %",
            "memory = leaf",
            "conventional",
            "separate, half",
            "best separate",
            "its n_seq",
            "cheaper",
        ],
        &rows,
    );
}
