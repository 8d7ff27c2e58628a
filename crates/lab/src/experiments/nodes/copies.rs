//! A full copy of an edge at a cloud, compared with writing the same values over HTTP, and the
//! traffic of a copy of summaries.

use super::Arguments;
use super::requests::{json, number, sync, until};
use crate::experiments::server::{Fleet, Server, by_threads, post};
use crate::harness::{Bench, Bound, Failure, Targets, real, unsigned};
use crate::table;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Lines of a request.
const LINES: usize = 5_000;
const DEVICES: usize = 100;
const FIELDS: usize = 10;

/// Measurements of one candidate over all values.
#[derive(Clone, Serialize)]
struct CopyResult {
    what: &'static str,
    seconds: Vec<f64>,
    cloud_cpu_seconds: Vec<f64>,
    edge_cpu_seconds: Vec<f64>,
    wire_bytes: u64,
    stored_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct Results {
    values: usize,
    ways: Vec<CopyResult>,
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let rows = (arguments.values / DEVICES / FIELDS).max(1);
    let fleet = Fleet::new(DEVICES, rows, 0);
    let requests: Vec<Vec<u8>> = fleet
        .lines
        .chunks(LINES)
        .map(|lines| post("/write", lines.concat().as_bytes()))
        .collect();
    let edge = bench.path("edge");
    load(&edge, &requests)?;
    let ways = [
        ("written over HTTP", None),
        ("full copy", Some(json!("full"))),
        ("tiles from level 10 on", Some(json!({"summaries": 10}))),
        ("tiles from level 7 on", Some(json!({"summaries": 7}))),
    ];
    let mut taken: Vec<CopyResult> = ways
        .iter()
        .map(|(what, _)| CopyResult {
            what,
            seconds: Vec::new(),
            cloud_cpu_seconds: Vec::new(),
            edge_cpu_seconds: Vec::new(),
            wire_bytes: 0,
            stored_bytes: 0,
        })
        .collect();
    let (warm_up, rounds) = bench.rounds();
    for round in 0..warm_up + rounds {
        for ((_, want), taken) in ways.iter().zip(&mut taken) {
            let mut now = taken.clone();
            match want {
                None => write(bench, &requests, &mut now)?,
                Some(want) => copy(bench, &edge, want, &mut now)?,
            }
            if round >= warm_up {
                *taken = now;
            }
        }
    }
    let values = fleet.values();
    print(&taken, values);
    judge(&taken, values, targets);
    Ok(Results {
        values,
        ways: taken,
    })
}

/// A database with all values, flushed and closed.
fn load(dir: &Path, requests: &[Vec<u8>]) -> Result<(), Failure> {
    let server = Server::start(dir)?;
    by_threads(server.addr, 4, requests)?;
    server.stop()?;
    let db = headwater::Database::open(headwater::Options::new(dir))?;
    db.flush()?;
    db.compact()?;
    db.close()?;
    Ok(())
}

fn write(bench: &Bench, requests: &[Vec<u8>], taken: &mut CopyResult) -> Result<(), Failure> {
    let server = Server::start(&bench.path("written"))?;
    let before = server.used()?.cpu_seconds;
    let begun = Instant::now();
    by_threads(server.addr, 4, requests)?;
    taken.seconds.push(begun.elapsed().as_secs_f64());
    let used = server.used()?.cpu_seconds - before;
    taken.cloud_cpu_seconds.push(used);
    taken.edge_cpu_seconds.push(0.0);
    taken.wire_bytes = requests.iter().map(|r| unsigned(r.len())).sum();
    server.stop()?;
    Ok(())
}

fn invited(cloud: &Server, want: &Value) -> Result<String, Failure> {
    let asked = json!({
        "op": "add_edge", "edge": "e", "want": want, "url": format!("http://{}", cloud.addr),
    });
    let answer = sync(cloud, &asked)?;
    let invitation = answer
        .get("invitation")
        .and_then(Value::as_str)
        .ok_or("no invitation")?;
    Ok(invitation.to_owned())
}

fn copy(bench: &Bench, dir: &Path, want: &Value, taken: &mut CopyResult) -> Result<(), Failure> {
    let cloud = Server::start_with(&bench.path("cloud"), &["--role", "cloud"])?;
    let invitation = invited(&cloud, want)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let joined = headwater_cluster::join(dir, &invitation, None, None, true);
    runtime.block_on(joined)?;
    drop(std::fs::remove_file(dir.join("uplink.spent")));
    let before = cloud.used()?.cpu_seconds;
    let edge = Server::start_with(dir, &["--role", "edge"])?;
    let edge_before = edge.used()?.cpu_seconds;
    let begun = Instant::now();
    until("the copy is current", || {
        let status = json(&cloud, "/api/v1/sync")?;
        let state = status.pointer("/edges/0/state").and_then(Value::as_str);
        Ok(state == Some("current"))
    })?;
    taken.seconds.push(begun.elapsed().as_secs_f64());
    taken
        .cloud_cpu_seconds
        .push(cloud.used()?.cpu_seconds - before);
    taken
        .edge_cpu_seconds
        .push(edge.used()?.cpu_seconds - edge_before);
    let status = json(&edge, "/api/v1/sync")?;
    taken.wire_bytes = number(&status, "/cloud/sent_today").unwrap_or(0);
    edge.stop()?;
    taken.stored_bytes = stored(dir)?;
    cloud.stop()?;
    Ok(())
}

/// Bytes of the segments of a database.
fn stored(dir: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir.join("segment"))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn median(results: &[f64]) -> f64 {
    table::median(results.to_vec()).0
}

fn print(ways: &[CopyResult], values: usize) {
    let line = |taken: &CopyResult| {
        let (seconds, low, high) = table::median(taken.seconds.clone());
        let millions = real(values) / 1e6;
        vec![
            taken.what.to_owned(),
            format!("{seconds:.2} s"),
            format!("{low:+.0} … {high:+.0} %"),
            format!("{:.2} M", millions / seconds),
            format!("{:.4} s", median(&taken.cloud_cpu_seconds) / millions),
            format!("{:.4} s", median(&taken.edge_cpu_seconds) / millions),
            format!("{:.4} B", real(taken.wire_bytes) / real(values)),
            format!("{:.4} B", real(taken.stored_bytes) / real(values)),
        ]
    };
    let lines: Vec<Vec<String>> = ways.iter().map(line).collect();
    table::print(
        &[
            "way",
            "all values",
            "spread",
            "a second",
            "cloud's CPU a million",
            "edge's CPU a million",
            "wire a value",
            "stored a value",
        ],
        &lines,
    );
}

fn judge(ways: &[CopyResult], values: usize, targets: &mut Targets) {
    let [written, full, summaries, ..] = ways else {
        return;
    };
    let millions = real(values) / 1e6;
    targets.add(
        "full copy by written over HTTP, values a second",
        Bound::AtLeast(5.0),
        " ×",
        median(&written.seconds) / median(&full.seconds),
    );
    targets.add(
        "cloud's CPU a million values of a full copy",
        Bound::AtMost(0.01),
        " s",
        median(&full.cloud_cpu_seconds) / millions,
    );
    targets.add(
        "bytes of a full copy by bytes stored",
        Bound::AtMost(1.1),
        " ×",
        real(full.wire_bytes) / real(full.stored_bytes),
    );
    targets.add(
        "bytes of tiles from level 10 on, a value",
        Bound::AtMost(0.06),
        " B",
        real(summaries.wire_bytes) / real(values),
    );
}
