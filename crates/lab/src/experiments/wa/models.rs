//! The paper's formulas and our model, compared with the counts, with the true law of the delays:
//! figures 5, 7 and 9.

use super::plan::{Plan, Sharing};
use super::plot::{Mark, Panel, Series};
use super::reference::Run;
use super::sets::{Paper, Set, paper};
use super::sweep::SweepResult;
use super::{Sizes, in_parallel, reference};
use crate::harness::{Bound, Failure, Targets};
use crate::table;
use headwater_late::{Candidate, Configuration, Lognormal, PaperModel, predict};
use serde::Serialize;

/// Predictions for one set, in the order of [`SweepResult::separate`].
#[derive(Serialize)]
pub(crate) struct Row {
    set: String,
    /// WA of the conventional policy: counted, by our model, by the paper's formula.
    conventional: [f64; 3],
    /// n_seq; the same three.
    separate: Vec<(usize, [f64; 3])>,
    /// Choice of Algorithm 1, and its cost.
    algorithm_1: String,
    algorithm_1_wa: f64,
    algorithm_1_regret: f64,
    /// Choice of our model.
    ours: String,
    ours_regret: f64,
}

/// Prediction of our model for a policy under exact conditions.
pub(crate) fn predicted(plan: &Plan, law: &dyn headwater_late::DelayLaw) -> f64 {
    let candidate = Candidate {
        policy: plan.late_policy(),
        leaf_events: plan.leaf as u32,
    };
    let configuration = Configuration {
        memory_events: plan.memory as f64,
        late_runs_max: 0,
    };
    predict(&candidate, &configuration, law)
}

/// The policy with the lowest cost.
pub(crate) fn cheapest<T>(all: impl IntoIterator<Item = (T, f64)>) -> Option<(T, f64)> {
    all.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))
}

impl Row {
    fn of(set: Paper, swept: &SweepResult, sizes: &Sizes) -> Result<Row, Failure> {
        let law = Lognormal::new(set.law.mu, set.law.sigma);
        let dt = set.interval_ms as f64;
        let model = PaperModel::new(&law, dt);
        let in_events = law.in_units_of(dt);
        let memory = swept.memory as f64;
        let ours = |sharing| predicted(&Plan::paper(sharing), &in_events);
        let conventional = [
            swept.conventional,
            ours(Sharing::Conventional),
            model.r_c(memory),
        ];
        let separate: Vec<(usize, [f64; 3])> = swept
            .separate
            .iter()
            .map(|(flank, wa)| {
                let paper = model.r_s(memory, *flank as f64);
                (*flank, [*wa, ours(Sharing::Separate(*flank)), paper])
            })
            .collect();
        let advice = model.algorithm_1(swept.memory as u32);
        let advised = advice
            .n_seq
            .map_or(Sharing::Conventional, |n| Sharing::Separate(n as usize));
        let advised_wa = match swept.wa(advised) {
            Some(wa) => wa,
            None => {
                let times = Set::Paper(set).make(sizes.points, sizes.seed).generated;
                reference::simulate(&times, &Plan::paper(advised)).wa()
            }
        };
        let candidates = separate
            .iter()
            .map(|(flank, wa)| (Sharing::Separate(*flank), wa[1]))
            .chain([(Sharing::Conventional, conventional[1])]);
        let (chosen, _) = cheapest(candidates).ok_or("no candidates")?;
        let best = swept.best().min(advised_wa);
        Ok(Row {
            set: set.name(),
            conventional,
            separate,
            algorithm_1: advised.to_string(),
            algorithm_1_wa: advised_wa,
            algorithm_1_regret: advised_wa / best - 1.0,
            ours: chosen.to_string(),
            ours_regret: swept.wa(chosen).unwrap_or(f64::NAN) / best - 1.0,
        })
    }

    /// The largest error of a model over 32 … 480 and the conventional policy, relative to the
    /// count.
    fn error(&self, model: usize) -> f64 {
        self.separate
            .iter()
            .map(|(_, wa)| wa)
            .chain([&self.conventional])
            .map(|wa| (wa[model] / wa[0] - 1.0).abs())
            .fold(0.0, f64::max)
    }
}

pub(crate) fn run(
    swept: &[SweepResult],
    sizes: &Sizes,
    targets: &mut Targets,
) -> Result<Vec<Row>, Failure> {
    let rows = in_parallel(&paper(), |set| {
        let swept = swept
            .iter()
            .find(|s| s.set == set.name())
            .ok_or("a set that was not swept")?;
        Row::of(*set, swept, sizes)
    })?;
    print(&rows);
    for row in &rows {
        targets.add(
            format!("{}: our model against the engine, n_seq 32 … 480", row.set),
            Bound::AtMost(5.0),
            " %",
            row.error(1) * 100.0,
        );
    }
    Ok(rows)
}

fn print(rows: &[Row]) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let half = r.separate.iter().find(|(flank, _)| *flank == 256);
            let three = |wa: &[f64; 3]| wa.iter().map(|w| format!("{w:.3}")).collect::<Vec<_>>();
            let mut cells = vec![r.set.clone()];
            cells.extend(three(&r.conventional));
            cells.extend(half.map_or_else(Vec::new, |(_, wa)| three(wa)));
            cells.extend([
                percent(r.error(1)),
                percent(r.error(2)),
                r.ours.clone(),
                percent(r.ours_regret),
                r.algorithm_1.clone(),
                percent(r.algorithm_1_regret),
            ]);
            cells
        })
        .collect();
    println!(
        "\nPredictions from the true law, whole tables rewritten, memory and leaves of 512 events:\n"
    );
    table::print(
        &[
            "set",
            "conventional: counted",
            "ours",
            "paper's",
            "separate:256: counted",
            "ours",
            "paper's",
            "largest error, ours",
            "paper's",
            "our choice",
            "regret",
            "Algorithm 1",
            "regret",
        ],
        &texts,
    );
}

/// Figure 9: a panel for each set.
pub(crate) fn figure_9(rows: &[Row]) -> Vec<Panel> {
    rows.iter().map(panel).collect()
}

fn panel(row: &Row) -> Panel {
    let series = |name, mark, colour, which: usize| Series {
        name,
        mark,
        colour,
        points: row
            .separate
            .iter()
            .map(|(flank, wa)| (*flank as f64, wa[which]))
            .collect(),
    };
    let ends = [row.separate.first(), row.separate.last()];
    let level = ends
        .into_iter()
        .flatten()
        .map(|(flank, _)| (*flank as f64, row.conventional[0]))
        .collect();
    Panel {
        title: row.set.clone(),
        x: "n_seq",
        y: "WA",
        series: vec![
            Series {
                name: "conventional, counted",
                mark: Mark::Line,
                colour: 3,
                points: level,
            },
            series("separate, counted", Mark::Points, 0, 0),
            series("our model", Mark::Line, 2, 1),
            series("paper's formula", Mark::Dashed, 1, 2),
        ],
    }
}

/// Figure 7: M6 alone.
pub(crate) fn figure_7(rows: &[Row]) -> Vec<Panel> {
    rows.iter()
        .filter(|r| r.set == "M6")
        .map(|r| {
            let mut panel = panel(r);
            panel.title = "M6: mu 5, sigma 2, an event every 50 ms".to_owned();
            panel
        })
        .collect()
}

/// Number of runs over which stored events newer than the oldest in memory are averaged: a formula
/// states a mean, and a few very late events change a single run.
const RUNS: u64 = 16;

/// Events newer than the oldest in memory: counted, and by the paper's formula.
#[derive(Serialize)]
pub(crate) struct Subsequent {
    sigma: f64,
    buffer: usize,
    /// The mean of the runs, its standard error, and the largest deviation of a single run.
    counted: f64,
    standard_error: f64,
    furthest: f64,
    zeta: f64,
}

impl Subsequent {
    fn of(set: &Paper, buffer: usize, counted: &[f64]) -> Subsequent {
        let law = Lognormal::new(set.law.mu, set.law.sigma);
        let model = PaperModel::new(&law, set.interval_ms as f64);
        let runs = counted.len().max(1) as f64;
        let mean = counted.iter().sum::<f64>() / runs;
        let variance =
            counted.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (runs - 1.0).max(1.0);
        let zeta = model.zeta(buffer as f64);
        let distance = |one: &f64| (zeta / one - 1.0).abs();
        Subsequent {
            sigma: set.law.sigma,
            buffer,
            counted: mean,
            standard_error: (variance / runs).sqrt(),
            furthest: counted.iter().map(distance).fold(0.0, f64::max),
            zeta,
        }
    }
}

/// Figure 5: mu 4, two sigmas, an event every 50 ms, buffers of 64 to 1,024 events; the mean of
/// [`RUNS`] seeds.
pub(crate) fn subsequent(sizes: &Sizes, targets: &mut Targets) -> Result<Vec<Subsequent>, Failure> {
    let sets: Vec<Paper> = paper().into_iter().take(2).collect();
    let buffers: Vec<usize> = (1..=16).map(|n| n * 64).collect();
    let runs: Vec<(Paper, u64)> = sets
        .iter()
        .flat_map(|set| (0..RUNS).map(|run| (*set, sizes.seed.wrapping_add(run))))
        .collect();
    let counted = in_parallel(&runs, |(set, seed)| {
        let times = Set::Paper(*set).make(sizes.points, *seed).generated;
        Ok(buffers
            .iter()
            .map(|buffer| {
                let mut run = Run::new(&Plan {
                    memory: *buffer,
                    ..Plan::paper(Sharing::Conventional)
                });
                times.iter().for_each(|t| run.insert(*t));
                run.subsequent as f64 / run.counts.flushes.max(1) as f64
            })
            .collect::<Vec<f64>>())
    })?;
    let mut rows = Vec::new();
    for (set, runs) in sets.iter().zip(counted.chunks(RUNS as usize)) {
        for (index, buffer) in buffers.iter().enumerate() {
            let all: Vec<f64> = runs.iter().filter_map(|r| r.get(index).copied()).collect();
            rows.push(Subsequent::of(set, *buffer, &all));
        }
    }
    let most = |of: &dyn Fn(&Subsequent) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    println!(
        "\nFigure 5: the paper's zeta(n) against the mean of {RUNS} runs is off by {:.1} % at most, the standard error of that mean is \
         {:.1} % at most, and a single run is off by up to {:.0} %.",
        most(&|r| (r.zeta / r.counted - 1.0).abs()) * 100.0,
        most(&|r| r.standard_error / r.counted) * 100.0,
        most(&|r| r.furthest) * 100.0,
    );
    targets.add(
        format!("Figure 5: zeta(n) against the mean of {RUNS} runs, n 64 … 1,024"),
        Bound::AtMost(5.0),
        " %",
        most(&|r| (r.zeta / r.counted - 1.0).abs()) * 100.0,
    );
    Ok(rows)
}

pub(crate) fn figure_5(rows: &[Subsequent]) -> Vec<Panel> {
    [1.5, 1.75]
        .into_iter()
        .map(|sigma| {
            let series = |name, mark, colour, of: &dyn Fn(&Subsequent) -> f64| Series {
                name,
                mark,
                colour,
                points: rows
                    .iter()
                    .filter(|r| r.sigma == sigma)
                    .map(|r| (r.buffer as f64, of(r)))
                    .collect(),
            };
            Panel {
                title: format!("mu 4, sigma {sigma}, an event every 50 ms"),
                x: "events in the buffer",
                y: "subsequent events",
                series: vec![
                    series("counted", Mark::Points, 0, &|r| r.counted),
                    series("the paper's zeta(n)", Mark::Dashed, 1, &|r| r.zeta),
                ],
            }
        })
        .collect()
}
