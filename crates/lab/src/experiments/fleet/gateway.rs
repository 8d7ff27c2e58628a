//! A gateway dies, and another takes its place: commands and seconds until the rows of the
//! successor are in answers of the dispatcher, behind those of the dead one.

use super::Arguments;
use super::catch_up::join;
use crate::experiments::nodes::dispatch::desk;
use crate::experiments::nodes::requests::{json, sync, until};
use crate::experiments::server::{Connection, Server, by_threads, post};
use crate::harness::{Bench, Bound, Failure, Targets, real};
use crate::table;
use serde::Serialize;
use serde_json::{Value, json as object};
use std::time::Instant;

/// Rows of the dead gateway and of its successor.
const ROWS: u64 = 1_000;
const BEGIN: u64 = 1_700_000_000;
const CHANNEL: &str = "pumps%2Cid%3D7.v";

#[derive(Serialize)]
pub(super) struct Results {
    commands: u32,
    /// From the first command: until the successor's process answers, and until its rows are in an
    /// answer of the dispatcher.
    started_seconds: Vec<f64>,
    seen_seconds: Vec<f64>,
}

/// Rows of the pump.
fn rows(from: u64) -> Vec<u8> {
    let line = |second: u64| format!("pumps,id=7 v={} {second}000000000\n", second % 977);
    let lines: String = (from..from + ROWS).map(line).collect();
    post("/write", lines.as_bytes())
}

/// Rows of the pump in an answer of the dispatcher; 0 while it has none.
fn seen(desk: &Server) -> Result<u64, Failure> {
    let path = format!("/api/v1/aggregate?channel={CHANNEL}&functions=count");
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-headwater-relay: true\r\n\r\n");
    let mut connection = Connection::open(desk.addr)?;
    let answer = connection.send(request.as_bytes())?;
    if answer.status != 200 {
        return Ok(0);
    }
    let body: Value = serde_json::from_slice(connection.body(&answer))?;
    let count = body.pointer("/channels/0/count/0").and_then(Value::as_u64);
    Ok(count.unwrap_or(0))
}

fn invitation(cloud: &Server, asked: &Value) -> Result<String, Failure> {
    let answer = sync(cloud, asked)?;
    let text = answer.get("invitation").and_then(Value::as_str);
    Ok(text.ok_or("no invitation")?.to_owned())
}

/// Seconds until the successor has started, and until its rows are seen.
fn replace(bench: &Bench) -> Result<(f64, f64), Failure> {
    let cloud = Server::start_with(&bench.path("cloud"), &["--role", "cloud"])?;
    let desk = desk(&bench.path("desk"), &cloud)?;
    let url = format!("http://{}", cloud.addr);
    let added = object!({"op": "add_edge", "edge": "pump-7", "url": url});
    let dir = bench.path("gateway");
    join(&dir, &invitation(&cloud, &added)?)?;
    let edge_role = ["--role", "edge", "--live-seconds", "1"];
    let dead = Server::start_with(&dir, &edge_role)?;
    by_threads(dead.addr, 1, &[rows(BEGIN)])?;
    until("the rows of the gateway are seen", || {
        Ok(seen(&desk)? == ROWS)
    })?;
    until("the copy is current", || {
        let status = json(&cloud, "/api/v1/sync")?;
        let state = status.pointer("/edges/0/state").and_then(Value::as_str);
        Ok(state == Some("current"))
    })?;
    // Killed, with its disk lost.
    drop(dead);
    std::fs::remove_dir_all(&dir)?;
    let begun = Instant::now();
    let replaced = object!({"op": "replace", "edge": "pump-7", "by": "pump-7b", "url": url});
    let invited = invitation(&cloud, &replaced)?;
    let dir = bench.path("successor");
    join(&dir, &invited)?;
    let successor = Server::start_with(&dir, &edge_role)?;
    let started = begun.elapsed().as_secs_f64();
    by_threads(successor.addr, 1, &[rows(BEGIN + ROWS)])?;
    until("the rows of both are seen", || Ok(seen(&desk)? == 2 * ROWS))?;
    let all_seen = begun.elapsed().as_secs_f64();
    successor.stop()?;
    desk.stop()?;
    cloud.stop()?;
    Ok((started, all_seen))
}

pub(super) fn measure(
    bench: &Bench,
    _: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let (_, rounds) = bench.rounds();
    let (mut started_seconds, mut seen_seconds) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (started, all_seen) = replace(bench)?;
        started_seconds.push(started);
        seen_seconds.push(all_seen);
    }
    let results = Results {
        commands: 2,
        started_seconds,
        seen_seconds,
    };
    let line = |what: &str, seconds: &[f64]| {
        let (median, low, high) = table::median(seconds.to_vec());
        vec![
            what.to_owned(),
            format!("{median:.2} s"),
            format!("{low:+.0} … {high:+.0} %"),
        ]
    };
    println!();
    table::print(
        &["from `edges replace` on", "median", "spread"],
        &[
            line(
                "the successor has joined and started",
                &results.started_seconds,
            ),
            line(
                "its rows are in the dispatcher's answers",
                &results.seen_seconds,
            ),
        ],
    );
    targets.add(
        "commands from a dead gateway to its successor's rows (replace, join)",
        Bound::AtMost(2.0),
        "",
        real(results.commands),
    );
    Ok(results)
}
