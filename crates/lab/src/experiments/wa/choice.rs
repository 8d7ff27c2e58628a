//! The choice from one window of arrivals, and its regret: the WA of the choice relative to the
//! best candidate's.
//!
//! Two sets of candidates: the paper's (whole tables of 512 events, no retained events), and all
//! knobs (leaves of at most 128 events, only touched ones rewritten, some of the newest events
//! retained in memory). The choice is made as in the engine, by the model from the lateness in the
//! window and one replay of its time stamps; by either of them alone; and, for the paper's
//! candidates, by Algorithm 1 from its delays.

use super::arrivals::{Arrivals, MS};
use super::models::{cheapest, predicted};
use super::plan::{Plan, Sharing};
use super::sets::Set;
use super::sweep::{SweepResult, generated_sets};
use super::{Sizes, in_parallel, reference};
use crate::harness::{Bound, Failure, Targets};
use crate::table;
use headwater::MergeScope;
use headwater_late::{
    Candidate, Configuration, Lateness, LatenessLaw, PaperModel, Sample, Shadow, Tracker, belief,
};
use serde::Serialize;

/// Events of the window.
const WINDOW: usize = 65_536;
/// Events of a leaf when small ones may be chosen.
const SMALL_LEAF: usize = 64;

/// Choices for one set.
#[derive(Serialize)]
pub(crate) struct Row {
    set: String,
    paper: ChoiceResult,
    algorithm_1: String,
    algorithm_1_regret: f64,
    all: ChoiceResult,
}

/// The choice among some candidates.
#[derive(Serialize)]
pub(crate) struct ChoiceResult {
    best: String,
    best_wa: f64,
    ours: String,
    /// WA of our choice, counted over the whole set.
    wa: f64,
    predicted: f64,
    regret: f64,
    /// Choice by the model alone, and by the replay alone.
    model: String,
    model_regret: f64,
    replay: String,
    replay_regret: f64,
}

/// All knobs: one buffer or two, and the number of retained events.
fn all_knobs() -> Vec<Plan> {
    let memory = 512;
    let mut plans = Vec::new();
    for sharing in [
        Sharing::Conventional,
        Sharing::Separate(memory / 4),
        Sharing::Separate(memory / 2),
        Sharing::Separate(memory * 3 / 4),
        Sharing::Separate(memory * 7 / 8),
    ] {
        for retain in [0, 16, 32, 64, 128, 192, 256, 320] {
            let plan = Plan {
                memory,
                leaf: SMALL_LEAF,
                sharing,
                retain,
                scope: MergeScope::Touched,
            };
            // A flush of less than a leaf creates small leaves that merges never fill.
            let buffer = match sharing {
                Sharing::Conventional => memory,
                Sharing::Separate(flank) => flank,
            };
            if retain + SMALL_LEAF <= buffer {
                plans.push(plan);
            }
        }
    }
    plans
}

fn papers() -> Vec<Plan> {
    super::sweep::flanks(512)
        .map(Sharing::Separate)
        .chain([Sharing::Conventional])
        .map(Plan::paper)
        .collect()
}

/// Statistics of a window.
struct WindowStats<'a> {
    window: &'a [i64],
    law: LatenessLaw,
}

impl<'a> WindowStats<'a> {
    fn of(window: &'a [i64], block: usize) -> Result<WindowStats<'a>, Failure> {
        let mut lateness = Lateness::new(block as u64);
        let mut tracker = Tracker::new();
        for batch in window.chunks(512) {
            tracker.observe(batch, &mut lateness);
        }
        let law = lateness.law().ok_or("an empty window")?;
        Ok(WindowStats { window, law })
    }

    /// Chooses among plans with known costs: by the model and one replay, weighted as in the
    /// engine; and by either alone.
    fn choose(&self, plans: &[Plan], costs: &[f64]) -> Result<ChoiceResult, Failure> {
        let pairs = || plans.iter().zip(costs.iter().copied());
        let cost_of = |plan: &Plan| pairs().find(|(p, _)| *p == plan).map_or(f64::NAN, |p| p.1);
        let (best, best_wa) = cheapest(pairs()).ok_or("no candidates")?;
        let predictions: Vec<f64> = plans.iter().map(|p| predicted(p, &self.law)).collect();
        let model = plans.iter().zip(predictions.iter().copied());
        let (model, _) = cheapest(model).ok_or("no candidates")?;
        let candidates: Vec<Candidate> = plans
            .iter()
            .map(|p| Candidate {
                policy: p.late_policy(),
                leaf_events: p.leaf as u32,
            })
            .collect();
        let configuration = Configuration {
            memory_events: plans.first().map_or(0.0, |p| p.memory as f64),
            late_runs_max: 0,
        };
        let mut shadow = Shadow::new(&candidates, &configuration, None, 1.0);
        shadow.observe(self.window);
        let replayed = shadow.counts();
        let counted = || replayed.iter().map(|c| c.write_amplification);
        let (replay, _) = cheapest(plans.iter().zip(counted())).ok_or("no candidates")?;
        let both = predictions
            .iter()
            .zip(counted())
            .map(|(predicted, counted)| predicted * (counted / predicted).powf(belief(1)));
        let (ours, predicted) = cheapest(plans.iter().zip(both)).ok_or("no candidates")?;
        Ok(ChoiceResult {
            best: best.to_string(),
            best_wa,
            ours: ours.to_string(),
            wa: cost_of(ours),
            predicted,
            regret: cost_of(ours) / best_wa - 1.0,
            model: model.to_string(),
            model_regret: cost_of(model) / best_wa - 1.0,
            replay: replay.to_string(),
            replay_regret: cost_of(replay) / best_wa - 1.0,
        })
    }
}

impl Row {
    fn of(set: &Set, arrivals: &Arrivals, swept: &SweepResult) -> Result<Row, Failure> {
        let times = &arrivals.generated;
        // From the middle: at the start there are no older events that could still arrive.
        let from = times.len().saturating_sub(WINDOW) / 2;
        let part = from..(from + WINDOW).min(times.len());
        let seen = WindowStats::of(&times[part.clone()], 512)?;
        let paper_plans = papers();
        let costs: Vec<f64> = paper_plans
            .iter()
            .map(|p| swept.wa(p.sharing).unwrap_or(f64::NAN))
            .collect();
        let paper = seen.choose(&paper_plans, &costs)?;
        let (advised, advised_wa) = algorithm_1(&times[part.clone()], &arrivals.delays[part])
            .map(|sharing| {
                let wa = swept
                    .wa(sharing)
                    .unwrap_or_else(|| reference::simulate(times, &Plan::paper(sharing)).wa());
                (sharing, wa)
            })
            .ok_or("a window without delays")?;
        let plans = all_knobs();
        let costs: Vec<f64> = plans
            .iter()
            .map(|p| reference::simulate(times, p).wa())
            .collect();
        Ok(Row {
            set: set.name(),
            algorithm_1: advised.to_string(),
            algorithm_1_regret: advised_wa / paper.best_wa - 1.0,
            paper,
            all: seen.choose(&plans, &costs)?,
        })
    }
}

/// The paper's analyzer: the delays of the window and its mean interval into Algorithm 1.
fn algorithm_1(times: &[i64], delays: &[i64]) -> Option<Sharing> {
    let ms = |nanos: i64| nanos as f64 / MS as f64;
    let (first, last) = (times.iter().min()?, times.iter().max()?);
    let law = Sample::new(delays.iter().map(|d| ms(*d)))?;
    let dt = ms(last - first) / times.len() as f64;
    let advice = PaperModel::new(&law, dt).algorithm_1(512);
    Some(
        advice
            .n_seq
            .map_or(Sharing::Conventional, |n| Sharing::Separate(n as usize)),
    )
}

pub(crate) fn run(
    swept: &[SweepResult],
    sizes: &Sizes,
    targets: &mut Targets,
) -> Result<Vec<Row>, Failure> {
    let rows = in_parallel(&generated_sets(), |set| {
        let swept = swept
            .iter()
            .find(|s| s.set == set.name())
            .ok_or("a set that was not swept")?;
        let row = Row::of(set, &set.make(sizes.points, sizes.seed), swept)?;
        eprintln!("{}: choices done", row.set);
        Ok(row)
    })?;
    print(&rows);
    for row in &rows {
        targets.add(
            format!(
                "{}: regret of our choice from a window, paper's candidates",
                row.set
            ),
            Bound::AtMost(2.0),
            " %",
            row.paper.regret * 100.0,
        );
        targets.add(
            format!("{}: … all knobs", row.set),
            Bound::AtMost(2.0),
            " %",
            row.all.regret * 100.0,
        );
    }
    for row in &rows {
        let most = match row.set.as_str() {
            "M1" | "M2" | "M3" | "M4" | "M5" | "M7" => 1.25,
            "M6" | "M8" => 1.6,
            "M9" | "M10" | "M11" => 2.1,
            "M12" => 2.8,
            _ => continue,
        };
        targets.add(
            format!(
                "{}: WA of our choice, all knobs, leaves of {SMALL_LEAF}",
                row.set
            ),
            Bound::AtMost(most),
            "",
            row.all.wa,
        );
    }
    Ok(rows)
}

fn print(rows: &[Row]) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let cells = |chosen: &ChoiceResult| {
        vec![
            chosen.best.clone(),
            format!("{:.3}", chosen.best_wa),
            chosen.ours.clone(),
            format!("{:.3}", chosen.predicted),
            percent(chosen.regret),
            chosen.model.clone(),
            percent(chosen.model_regret),
            chosen.replay.clone(),
            percent(chosen.replay_regret),
        ]
    };
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let mut row = vec![r.set.clone()];
            row.extend(cells(&r.paper));
            row.extend([r.algorithm_1.clone(), percent(r.algorithm_1_regret)]);
            row
        })
        .collect();
    println!(
        "\nChoice from one window of {WINDOW} events, paper's candidates, memory and leaves of 512 events:\n"
    );
    let heads = [
        "set",
        "best",
        "WA",
        "our choice",
        "expected",
        "regret",
        "the model's",
        "regret",
        "the replay's",
        "regret",
        "Algorithm 1",
        "regret",
    ];
    table::print(&heads, &texts);
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let mut row = vec![r.set.clone()];
            row.extend(cells(&r.all));
            row
        })
        .collect();
    println!(
        "\nThe same with all knobs: memory of 512 events, leaves of {SMALL_LEAF}, only touched ones rewritten:\n"
    );
    table::print(&heads[..10], &texts);
}
