//! The engine's counters beside the plain simulation's, which must be equal: M1 to M12, both
//! policies, both scopes.

use super::plan::{Counts, Plan, Sharing};
use super::sets::{Set, paper};
use super::{Sizes, engine, in_parallel, reference};
use crate::harness::{Bound, Failure, Targets};
use crate::table;
use headwater::MergeScope;
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Row {
    set: String,
    policy: String,
    engine: Counts,
    simulation: Counts,
    wa: f64,
}

/// The two policies of the paper's comparison, under both scopes.
fn plans() -> [Plan; 4] {
    let plan = |sharing, scope| Plan {
        scope,
        ..Plan::paper(sharing)
    };
    [
        plan(Sharing::Conventional, MergeScope::Overlap),
        plan(Sharing::Separate(256), MergeScope::Overlap),
        plan(Sharing::Conventional, MergeScope::Touched),
        plan(Sharing::Separate(256), MergeScope::Touched),
    ]
}

pub(crate) fn run(sizes: &Sizes, targets: &mut Targets) -> Result<Vec<Row>, Failure> {
    let sets: Vec<Set> = paper().into_iter().map(Set::Paper).collect();
    let rows = in_parallel(&sets, |set| {
        let times = set.make(sizes.points, sizes.seed).generated;
        let mut rows = Vec::new();
        for plan in plans() {
            let engine = engine::run(&times, &plan)?;
            rows.push(Row {
                set: set.name(),
                policy: plan.to_string(),
                engine,
                simulation: reference::simulate(&times, &plan),
                wa: engine.wa(),
            });
        }
        eprintln!("{}: engine and simulation done", set.name());
        Ok(rows)
    })?;
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    print(&rows);
    let differ = rows.iter().filter(|r| r.engine != r.simulation).count();
    targets.add(
        format!(
            "engine's counters that differ from the simulation's, of {} runs",
            rows.len()
        ),
        Bound::AtMost(0.0),
        "",
        differ as f64,
    );
    Ok(rows)
}

fn print(rows: &[Row]) {
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            vec![
                r.set.clone(),
                r.policy.clone(),
                r.simulation.events_written.to_string(),
                r.engine.events_written.to_string(),
                r.engine.merges.to_string(),
                r.engine.flushes.to_string(),
                format!("{:.3}", r.wa),
                (if r.engine == r.simulation {
                    "equal"
                } else {
                    "DIFFERENT"
                })
                .to_owned(),
            ]
        })
        .collect();
    println!("\nEvents written under exact conditions, memory and leaves of 512 events:\n");
    table::print(
        &[
            "set",
            "policy",
            "simulation",
            "engine",
            "merges",
            "flushes",
            "WA",
            "counters",
        ],
        &texts,
    );
}
