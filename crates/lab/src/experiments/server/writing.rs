//! Line protocol over HTTP: large requests, with late rows too, and one line a request over many
//! connections.

use super::Arguments;
use super::child::{ResourceUsage, Server};
use super::client::{by_tasks, by_threads, post};
use super::fleet::{FIELDS, Fleet};
use crate::harness::{Bench, Bound, Failure, Targets};
use crate::machine::SyncProbe;
use crate::table;
use headwater::{Database, Options, ScanSpec, StreamName, Value};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

const DEVICES: usize = 100;

/// A case in numbers: medians over rounds.
#[derive(Debug, Default, Serialize)]
struct Measurement {
    name: String,
    requests: usize,
    values: usize,
    connections: usize,
    /// Rate from the first request to the last answer.
    values_per_second: f64,
    requests_per_second: f64,
    /// CPU time of the server, over its whole life: the last flush at its end included.
    cpu_seconds_per_million_values: f64,
    /// CPU time of the server until the last answer.
    cpu_us_per_request: f64,
    peak_bytes: u64,
    /// Size after compaction, without the log.
    bytes_per_value_settled: f64,
    sync_median_us: f64,
    spread_percent: (f64, f64),
}

/// All cases.
#[derive(Debug, Default, Serialize)]
pub(super) struct Results {
    cases: Vec<Measurement>,
}

struct Case {
    name: &'static str,
    connections: usize,
    /// Lines of a request.
    lines: usize,
    late_percent: u64,
}

/// One round.
struct Round {
    seconds: f64,
    cpu_seconds: f64,
    cpu_seconds_loaded: f64,
    used: ResourceUsage,
    bytes_settled: u64,
}

pub(super) fn run(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let cases = [
        Case {
            name: "large requests",
            connections: 2,
            lines: arguments.lines,
            late_percent: 0,
        },
        Case {
            name: "large requests, 5 % late",
            connections: 2,
            lines: arguments.lines,
            late_percent: 5,
        },
        Case {
            name: "one line a request, 64 connections",
            connections: 64,
            lines: 1,
            late_percent: 0,
        },
        Case {
            name: "one line a request, 256 connections",
            connections: 256,
            lines: 1,
            late_percent: 0,
        },
    ];
    let mut results = Results::default();
    for case in cases.iter().filter(|c| c.name.contains(&arguments.only)) {
        results.cases.push(measure(bench, arguments, case)?);
    }
    print(&results);
    judge(&results, targets);
    Ok(results)
}

fn measure(bench: &Bench, arguments: &Arguments, case: &Case) -> Result<Measurement, Failure> {
    let lines = if case.lines == 1 {
        arguments.requests
    } else {
        arguments.values / FIELDS
    };
    let fleet = Fleet::new(DEVICES, lines.div_ceil(DEVICES).max(1), case.late_percent);
    let bodies = fleet.lines.chunks(case.lines.max(1));
    let requests: Vec<Vec<u8>> = bodies
        .map(|lines| post("/write?precision=ns", lines.concat().as_bytes()))
        .collect();
    let mut probe = SyncProbe::new(bench.path("sync-probe"))?;
    let (warm_up, rounds) = bench.rounds();
    let mut all = Vec::new();
    for round in 0..warm_up + rounds {
        probe.sample(64)?;
        let dir = bench.path("server");
        let one = measure_once(&dir, case, &requests, &fleet)?;
        std::fs::remove_dir_all(&dir)?;
        probe.sample(64)?;
        if round >= warm_up {
            all.push(one);
        }
    }
    let million = fleet.values() as f64 / 1e6;
    let of = |figure: &dyn Fn(&Round) -> f64| table::median(all.iter().map(figure).collect());
    let (rate, least, most) = of(&|r| fleet.values() as f64 / r.seconds);
    Ok(Measurement {
        name: case.name.to_owned(),
        requests: requests.len(),
        values: fleet.values(),
        connections: case.connections,
        values_per_second: rate,
        requests_per_second: of(&|r| requests.len() as f64 / r.seconds).0,
        cpu_seconds_per_million_values: of(&|r| r.cpu_seconds / million).0,
        cpu_us_per_request: of(&|r| r.cpu_seconds_loaded * 1e6 / requests.len() as f64).0,
        peak_bytes: all.iter().map(|r| r.used.peak_bytes).max().unwrap_or(0),
        bytes_per_value_settled: of(&|r| r.bytes_settled as f64 / fleet.values() as f64).0,
        sync_median_us: probe.median_us(),
        spread_percent: (least, most),
    })
}

fn measure_once(
    dir: &Path,
    case: &Case,
    requests: &[Vec<u8>],
    fleet: &Fleet,
) -> Result<Round, Failure> {
    let server = Server::start(dir)?;
    let (before, start) = (server.used()?, Instant::now());
    if case.connections > 8 {
        by_tasks(server.addr, case.connections, requests.to_vec())?;
    } else {
        by_threads(server.addr, case.connections, requests)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let used = server.used()?;
    let cpu_seconds = server.stop()? - before.cpu_seconds;
    Ok(Round {
        seconds,
        cpu_seconds,
        cpu_seconds_loaded: used.cpu_seconds - before.cpu_seconds,
        used,
        bytes_settled: settle_and_check(dir, fleet)?,
    })
}

/// Verifies that every acknowledged row is stored; returns the bytes after compaction.
fn settle_and_check(dir: &Path, fleet: &Fleet) -> Result<u64, Failure> {
    let db = Database::open(Options::new(dir))?;
    db.compact()?;
    let snapshot = db.snapshot()?;
    for device in 0..fleet.devices {
        let stream = StreamName::new("fleet", [("device", format!("d{device:04}"))]);
        let mut sum = 0;
        let mut rows = 0;
        let spec = ScanSpec {
            fields: Some(vec!["count".to_owned()]),
            ..ScanSpec::default()
        };
        for chunk in snapshot.scan(&stream, &spec)? {
            let chunk = chunk?;
            rows += chunk.times.len();
            let counts = chunk.columns.first().map(|c| c.to_values());
            for value in counts.into_iter().flatten().flatten() {
                if let Value::I64(count) = value {
                    sum += count;
                }
            }
        }
        let expected = (fleet.rows as i64 - 1) * fleet.rows as i64 / 2;
        if (rows, sum) != (fleet.rows, expected) {
            return Err(format!(
                "{stream}: {rows} rows with sum {sum}, sent were {} with {expected}",
                fleet.rows
            )
            .into());
        }
    }
    drop(snapshot);
    let bytes = db.stats()?.segment_bytes;
    db.close()?;
    Ok(bytes)
}

fn print(results: &Results) {
    println!("Writing line protocol over HTTP, synced; client and server on the same machine:\n");
    let rows: Vec<Vec<String>> = results
        .cases
        .iter()
        .map(|f| {
            vec![
                f.name.clone(),
                format!("{:.2}", f.values_per_second / 1e6),
                format!("{:.0}", f.requests_per_second),
                format!("{:+.0} … {:+.0} %", f.spread_percent.0, f.spread_percent.1),
                format!("{:.3}", f.cpu_seconds_per_million_values),
                format!("{:.1}", f.cpu_us_per_request),
                format!("{:.0}", f.peak_bytes as f64 / (1 << 20) as f64),
                format!("{:.2}", f.bytes_per_value_settled),
                format!("{:.0}", f.sync_median_us),
            ]
        })
        .collect();
    let heads = [
        "case",
        "million values/s",
        "requests/s",
        "spread",
        "server CPU s per million",
        "CPU µs a request",
        "peak MiB",
        "bytes/value settled",
        "sync µs",
    ];
    table::print(&heads, &rows);
}

fn judge(results: &Results, targets: &mut Targets) {
    let find = |part: &str| results.cases.iter().find(|f| f.name.ends_with(part));
    let plain = find("large requests");
    if let Some(f) = plain {
        let cpu = f.cpu_seconds_per_million_values;
        targets.add(
            "server CPU a million values",
            Bound::AtMost(0.16),
            " s",
            cpu,
        );
        let rate = f.values_per_second / 1e6;
        let what = "million values a second";
        targets.add_if_fast_sync(what, Bound::AtLeast(7.0), "", rate, f.sync_median_us);
        let bytes = f.bytes_per_value_settled;
        targets.add("bytes a value, settled", Bound::AtMost(1.85), " B", bytes);
        let peak = f.peak_bytes as f64 / (1 << 20) as f64;
        targets.add(
            "peak memory of the server",
            Bound::AtMost(256.0),
            " MiB",
            peak,
        );
    }
    if let (Some(f), Some(late)) = (plain, find("late")) {
        let ratio = late.cpu_seconds_per_million_values / f.cpu_seconds_per_million_values;
        targets.add("CPU with 5 % late rows", Bound::AtMost(1.3), "×", ratio);
    }
    if let Some(f) = find(" 64 connections") {
        let by_sync = 0.6 * 64.0 / (f.sync_median_us / 1e6);
        let wanted = if f.sync_median_us <= 300.0 {
            25_000.0
        } else {
            by_sync
        };
        let what = "one line a request, 64 connections";
        targets.add(
            what,
            Bound::AtLeast(wanted.round()),
            "/s",
            f.requests_per_second,
        );
    }
    if let Some(f) = find("256 connections") {
        let what = "one line a request, 256 connections";
        targets.add(what, Bound::AtLeast(20_000.0), "/s", f.requests_per_second);
    }
}
