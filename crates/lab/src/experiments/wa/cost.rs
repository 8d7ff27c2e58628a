//! Cost of decisions: the analyzer of a shard alone, over each of M1 to M12, with production
//! settings.

use super::Sizes;
use super::sets::{Set, paper};
use crate::harness::{Bound, Failure, Targets};
use crate::table;
use headwater_late::{
    Analyzer, Candidate, Configuration, EVENTS_PER_EVALUATION, Knobs, PolicyChoice, Space,
};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Rows of a batch.
const BATCH: usize = 1_000;
/// Events of a shard's memory.
const MEMORY_EVENTS: f64 = 400_000.0;
const LEAF_EVENTS: u32 = 2_048;

#[derive(Serialize)]
pub(crate) struct Row {
    set: String,
    /// Time of each event, decisions included.
    nanos_per_event: f64,
    decisions: u64,
    slowest_decision_ms: f64,
    bytes: usize,
}

fn measured(set: &Set, sizes: &Sizes) -> Row {
    let times = set.make(sizes.points, sizes.seed).generated;
    let knobs = Knobs::default();
    let first = Candidate {
        policy: PolicyChoice::Adaptive(knobs).first(),
        leaf_events: LEAF_EVENTS,
    };
    let mut analyzer = Analyzer::new(first, true);
    let (mut slowest, mut decisions, mut bytes) = (Duration::ZERO, 0, 0);
    let start = Instant::now();
    for batch in times.chunks(BATCH) {
        analyzer.observe(1, batch);
        if analyzer.is_due() {
            let begun = Instant::now();
            let evaluation = analyzer.evaluation(MEMORY_EVENTS);
            let space = Space {
                configuration: Configuration {
                    memory_events: evaluation.memory_events,
                    late_runs_max: 16,
                },
                leaf_events: LEAF_EVENTS,
                knobs,
                frames: true,
            };
            let ranking = evaluation.rank(&space);
            analyzer.apply(ranking);
            slowest = slowest.max(begun.elapsed());
            decisions += 1;
            bytes = bytes.max(analyzer.bytes());
        }
    }
    let took = start.elapsed();
    Row {
        set: set.name(),
        nanos_per_event: took.as_secs_f64() * 1e9 / times.len().max(1) as f64,
        decisions,
        slowest_decision_ms: slowest.as_secs_f64() * 1e3,
        bytes,
    }
}

pub(crate) fn run(sizes: &Sizes, targets: &mut Targets) -> Result<Vec<Row>, Failure> {
    let rows: Vec<Row> = paper()
        .into_iter()
        .map(|p| measured(&Set::Paper(p), sizes))
        .collect();
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            vec![
                r.set.clone(),
                format!("{:.1}", r.nanos_per_event),
                r.decisions.to_string(),
                format!("{:.2}", r.slowest_decision_ms),
                (r.bytes / 1024).to_string(),
            ]
        })
        .collect();
    println!(
        "\nThe analyzer of a shard alone, batches of {BATCH}, an evaluation every {EVENTS_PER_EVALUATION} events:\n"
    );
    table::print(
        &["set", "ns/event", "evaluations", "slowest ms", "KiB"],
        &texts,
    );
    let most = |of: &dyn Fn(&Row) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    let mean = rows.iter().map(|r| r.nanos_per_event).sum::<f64>() / rows.len().max(1) as f64;
    targets.add(
        "analyzer, mean of M1 to M12",
        Bound::AtMost(30.0),
        " ns/event",
        mean,
    );
    targets.add(
        "analyzer, slowest evaluation",
        Bound::AtMost(5.0),
        " ms",
        most(&|r| r.slowest_decision_ms),
    );
    targets.add(
        "analyzer, memory of a shard's",
        Bound::AtMost(1024.0),
        " KiB",
        most(&|r| r.bytes as f64 / 1024.0),
    );
    Ok(rows)
}
