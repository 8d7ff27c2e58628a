//! Redirects of a dispatcher whose node has many edges, beside one whose node has none: a tile of
//! one stream, asked for over 16 connections, all dispatchers in turn.
//!
//! The nodes and dispatchers run all the time; what they do at rest falls on every round.

use super::Arguments;
use super::children::{TABLE, stream};
use super::{idle, made};
use crate::experiments::nodes::dispatch::{QueryCase, desk, run_load};
use crate::experiments::server::{Server, by_threads, get, post};
use crate::harness::{Bench, Bound, Failure, Targets, real};
use crate::table;
use serde::Serialize;
use std::time::Duration;

/// Rows of a copy.
const ROWS: usize = 600;
/// Time until the dispatchers are at rest.
const REST: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Desk {
    edges: usize,
    per_second: Vec<f64>,
    cpu_us: Vec<f64>,
    resident_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct Results {
    desks: Vec<Desk>,
}

/// A cloud without edges that has the stream itself.
fn alone(bench: &Bench) -> Result<Server, Failure> {
    let server = Server::start_with(&bench.path("alone"), &["--role", "cloud"])?;
    let name = stream(0, 0).to_string();
    let line = |row: usize| {
        let time = made::BEGIN + made::APART * crate::harness::signed(row);
        format!("{name} v=1 {time}000000000\n")
    };
    let lines: String = (0..ROWS).map(line).collect();
    by_threads(server.addr, 1, &[post("/write", lines.as_bytes())])?;
    Ok(server)
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let mut nodes = vec![(0, alone(bench)?)];
    for edges in [arguments.copies / 10, arguments.copies] {
        let dir = bench.path("copies");
        made::make(&dir, edges, ROWS)?;
        nodes.push((edges, idle::cloud(&dir)?));
    }
    let mut desks = Vec::new();
    for (edges, node) in &nodes {
        desks.push((*edges, desk(&bench.path("desk"), node)?));
    }
    std::thread::sleep(REST);
    let channel = format!("{TABLE},edge%3D0,id%3D0.v");
    let tile = format!("/tiles/{channel}/6.{}.json", (made::BEGIN + 1_000) >> 15);
    let mut measured: Vec<Desk> = desks
        .iter()
        .map(|(edges, _)| Desk {
            edges: *edges,
            per_second: Vec::new(),
            cpu_us: Vec::new(),
            resident_bytes: 0,
        })
        .collect();
    let (warm_up, rounds) = bench.rounds();
    for round in 0..warm_up + rounds {
        for ((_, server), one) in desks.iter().zip(&mut measured) {
            let case = QueryCase {
                name: "redirect",
                server,
                request: get(&tile),
                status: 307,
            };
            let before = server.used()?;
            let (asked, seconds) = run_load(&case, 2.0)?;
            let used = server.used()?;
            if round >= warm_up {
                one.per_second.push(real(asked) / seconds);
                let cpu = used.cpu_seconds - before.cpu_seconds;
                one.cpu_us.push(cpu * 1e6 / real(asked));
                one.resident_bytes = used.resident_bytes;
            }
        }
    }
    for (_, server) in desks {
        server.stop()?;
    }
    for (_, node) in nodes {
        node.stop()?;
    }
    let results = Results { desks: measured };
    print(&results);
    judge(&results, targets);
    Ok(results)
}

fn print(results: &Results) {
    let line = |desk: &Desk| {
        let (per_second, low, high) = table::median(desk.per_second.clone());
        let (cpu, ..) = table::median(desk.cpu_us.clone());
        vec![
            desk.edges.to_string(),
            format!("{per_second:.0}"),
            format!("{low:+.0} … {high:+.0} %"),
            format!("{cpu:.1} µs"),
            format!("{:.0} MiB", super::live::mib(desk.resident_bytes)),
        ]
    };
    let lines: Vec<Vec<String>> = results.desks.iter().map(line).collect();
    println!();
    table::print(
        &[
            "edges at the node",
            "redirects a second, clients beside it",
            "spread",
            "CPU of the dispatcher",
            "resident",
        ],
        &lines,
    );
}

/// Median of the ratios within rounds.
fn ratio(a: &[f64], b: &[f64]) -> f64 {
    table::median(a.iter().zip(b).map(|(a, b)| a / b).collect()).0
}

fn judge(results: &Results, targets: &mut Targets) {
    let Some((none, others)) = results.desks.split_first() else {
        return;
    };
    for desk in others {
        targets.add(
            format!(
                "redirects beside {} edges, of those beside none",
                desk.edges
            ),
            Bound::AtLeast(0.9),
            " ×",
            ratio(&desk.per_second, &none.per_second),
        );
        targets.add(
            "… by CPU counted",
            Bound::AtLeast(0.9),
            " ×",
            ratio(&none.cpu_us, &desk.cpu_us),
        );
    }
}
