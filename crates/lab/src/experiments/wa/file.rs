//! `lab wa --csv FILE`: the engine's exact counters for somebody's own arrivals.

use super::plan::{Counts, Plan};
use super::{arrivals, engine, reference};
use crate::harness::Failure;
use crate::table;
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Report {
    policy: String,
    memory: usize,
    leaf: usize,
    #[serde(flatten)]
    engine: Counts,
    wa: f64,
    /// Counts of the plain simulation of the same policy.
    reference: Counts,
}

/// Prints the engine's counters; as JSON, or as a table beside the simulation.
pub(crate) fn run(path: &Path, plan: &Plan, json: bool) -> Result<(), Failure> {
    plan.check()?;
    let times = arrivals::read_csv(path)?;
    let engine = engine::run(&times, plan)?;
    let reference = reference::simulate(&times, plan);
    if json {
        let report = Report {
            policy: plan.to_string(),
            memory: plan.memory,
            leaf: plan.leaf,
            engine,
            wa: engine.wa(),
            reference,
        };
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!(
            "{plan}, memory of {} events, leaves of {}\n",
            plan.memory, plan.leaf
        );
        let row = |name: &str, counts: &Counts| {
            vec![
                name.to_owned(),
                counts.events.to_string(),
                counts.events_written.to_string(),
                counts.merges.to_string(),
                counts.flushes.to_string(),
                format!("{:.4}", counts.wa()),
            ]
        };
        table::print(
            &["", "events", "written", "merges", "flushes", "WA"],
            &[row("engine", &engine), row("simulation", &reference)],
        );
    }
    if engine == reference {
        Ok(())
    } else {
        Err(format!("the engine counts {engine:?}, the simulation {reference:?}").into())
    }
}
