//! An edge with a day of rows that its cloud has not, over a slow link, while rows go on: how old
//! the newest value is at the cloud meanwhile, and how much of the link the backlog gets.
//!
//! The link is a proxy that limits both directions; the edge has no limit of its own (`sync.rate`),
//! and sends newest values each second.

use super::Arguments;
use super::children::{TABLE, wall_ns};
use super::link::Link;
use super::live::{ages, invite, quantile};
use crate::experiments::nodes::requests::{json, number};
use crate::experiments::server::{Connection, Server, post};
use crate::harness::{Bench, Bound, Failure, Random, Targets, real, signed};
use crate::table;
use headwater::{Batch, Database, Options, StreamName, StreamRows, Values};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const DEVICES: usize = 10;
const FIELDS: usize = 10;
const SECOND: i64 = 1_000_000_000;
/// Longest time of catching up.
const WITHIN: Duration = Duration::from_secs(280);
/// Rows before these seconds are not looked at: connection and first state are on their way.
const FIRST: Duration = Duration::from_secs(5);

#[derive(Serialize)]
pub(super) struct Results {
    hours: usize,
    values: usize,
    bits_per_second: u64,
    seconds: f64,
    is_complete: bool,
    to_cloud_bytes: u64,
    from_cloud_bytes: u64,
    live_bytes: u64,
    /// Share of the link that all bytes took, and without those of newest values.
    link_share: f64,
    backlog_share: f64,
    ages: usize,
    p50_seconds: f64,
    p99_seconds: f64,
    max_seconds: f64,
}

fn device(number: usize) -> StreamName {
    StreamName::new(TABLE, [("device", number.to_string())])
}

/// Rows of some hours up to now.
fn load(dir: &Path, hours: usize) -> Result<(), Failure> {
    let db = Database::open(Options::new(dir))?;
    let mut dice = Random::new(5);
    let first = wall_ns() / SECOND - signed(hours) * 3_600;
    for number in 0..DEVICES {
        let mut levels = [2_000_i64; FIELDS];
        for hour in 0..signed(hours) {
            let begin = first + hour * 3_600;
            let mut rows = StreamRows::new(device(number));
            rows.times = (begin..begin + 3_600).map(|s| s * SECOND).collect();
            for (field, level) in levels.iter_mut().enumerate() {
                let walk = (0..3_600).map(|_| {
                    *level += signed(dice.below(21)) - 10;
                    real(*level) / 100.0
                });
                rows = rows.with_column(format!("f{field}"), Values::F64(walk.collect()));
            }
            let mut batch = Batch::new();
            batch.push(rows);
            db.commit(batch)?;
        }
    }
    db.flush()?;
    db.compact()?;
    db.close()?;
    Ok(())
}

/// A row of each device now.
fn live_rows(edge: &mut Connection, dice: &mut Random) -> Result<(), Failure> {
    let time = wall_ns();
    let mut lines = String::new();
    for number in 0..DEVICES {
        write!(lines, "{TABLE},device={number} ")?;
        for field in 0..FIELDS {
            let comma = if field == 0 { "" } else { "," };
            write!(
                lines,
                "{comma}f{field}={:.2}",
                real(dice.below(4_000)) / 100.0
            )?;
        }
        writeln!(lines, " {time}")?;
    }
    let answer = edge.send(&post("/write", lines.as_bytes()))?;
    match answer.status {
        204 => Ok(()),
        other => Err(format!("writing at the edge: {other}").into()),
    }
}

/// Whether the cloud has all that the edge has stored.
fn is_current(cloud: &Server) -> Result<bool, Failure> {
    let status = json(cloud, "/api/v1/sync")?;
    let state = status.pointer("/edges/0/state").and_then(Value::as_str);
    Ok(state == Some("current"))
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let (hours, bits) = (arguments.backlog_hours, arguments.bits_per_second);
    let dir = bench.path("edge");
    load(&dir, hours)?;
    let cloud = Server::start_with(&bench.path("cloud"), &["--role", "cloud"])?;
    let link = Link::to(cloud.addr, Some(bits))?;
    let url = format!("http://{}", link.addr);
    let invitation = invite(&cloud, 1, &url)?.pop().ok_or("no invitation")?;
    join(&dir, &invitation)?;
    let before = link.bytes();
    let edge = Server::start_with(&dir, &["--role", "edge", "--live-seconds", "1"])?;
    let mut writer = Connection::open(edge.addr)?;
    let mut dice = Random::new(9);
    let (begun, mut seen) = (Instant::now(), Vec::new());
    let mut second = 0;
    let is_complete = loop {
        live_rows(&mut writer, &mut dice)?;
        std::thread::sleep(Duration::from_millis(500));
        if begun.elapsed() > FIRST {
            let found = ages(&cloud, TABLE)?;
            if found.len() < DEVICES {
                // The first state is not there yet: as old as the run.
                seen.push(begun.elapsed().as_secs_f64());
            }
            seen.extend(found);
        }
        if is_current(&cloud)? {
            break true;
        }
        if begun.elapsed() > WITHIN {
            break false;
        }
        second += 1;
        std::thread::sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
    };
    let seconds = begun.elapsed().as_secs_f64();
    let (to_cloud, from_cloud) = link.bytes();
    let status = json(&edge, "/api/v1/sync")?;
    let live_bytes = number(&status, "/cloud/live_bytes").unwrap_or(0);
    edge.stop()?;
    cloud.stop()?;
    seen.sort_by(f64::total_cmp);
    let to_cloud_bytes = to_cloud - before.0;
    let link_bytes = real(bits) / 8.0 * seconds;
    let results = Results {
        hours,
        values: hours * 3_600 * DEVICES * FIELDS,
        bits_per_second: bits,
        seconds,
        is_complete,
        to_cloud_bytes,
        from_cloud_bytes: from_cloud - before.1,
        live_bytes,
        link_share: real(to_cloud_bytes) / link_bytes,
        backlog_share: real(to_cloud_bytes.saturating_sub(live_bytes)) / link_bytes,
        ages: seen.len(),
        p50_seconds: quantile(&seen, 0.5),
        p99_seconds: quantile(&seen, 0.99),
        max_seconds: quantile(&seen, 1.0),
    };
    print(&results);
    judge(&results, targets);
    Ok(results)
}

/// Joins a cloud, over any link.
pub(super) fn join(dir: &Path, invitation: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::fs::create_dir_all(dir)?;
    runtime.block_on(headwater_cluster::join(dir, invitation, None, None, false))?;
    Ok(())
}

fn print(results: &Results) {
    println!();
    table::print(
        &["catching up", "measured"],
        &[
            vec![
                "backlog".to_owned(),
                format!("{} h, {} values", results.hours, results.values),
            ],
            vec![
                "link".to_owned(),
                format!("{:.1} Mbit/s", real(results.bits_per_second) / 1e6),
            ],
            vec![
                "time".to_owned(),
                format!(
                    "{:.1} s{}",
                    results.seconds,
                    if results.is_complete {
                        ""
                    } else {
                        ", not complete"
                    }
                ),
            ],
            vec![
                "bytes to the cloud / from it / newest values".to_owned(),
                format!(
                    "{} / {} / {}",
                    results.to_cloud_bytes, results.from_cloud_bytes, results.live_bytes
                ),
            ],
            vec![
                "share of the link, all / backlog".to_owned(),
                format!("{:.3} / {:.3}", results.link_share, results.backlog_share),
            ],
            vec![
                "age of the newest value, p50 / p99 / max".to_owned(),
                format!(
                    "{:.2} / {:.2} / {:.2} s of {} ages",
                    results.p50_seconds, results.p99_seconds, results.max_seconds, results.ages
                ),
            ],
        ],
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    targets.add(
        "catching up: age of the newest value, p99",
        Bound::AtMost(2.0),
        " s",
        results.p99_seconds,
    );
    targets.add(
        "… share of the link for the backlog",
        Bound::AtLeast(0.9),
        " ×",
        results.backlog_share,
    );
}
