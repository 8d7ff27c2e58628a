//! the rate of ingest as a store grows, and its size in the end.

use super::channel::Channel;
use crate::baselines::{Survival, options};
use crate::harness::{Bound, Failure, Targets, time_round};
use crate::table;
use headwater::Database;
use serde::Serialize;
use std::path::Path;

/// Points of a batch.
const BATCH: u64 = 1_000;
/// Bytes of a point as the paper counts them: channel, time and value of 8 bytes each.
const SAMPLE_BYTES: f64 = 24.0;

/// A tenth of the points.
#[derive(Serialize)]
pub(super) struct Stretch {
    points: u64,
    points_per_second: f64,
    cpu_seconds_per_million: f64,
}

/// Fills a store with `points` points, unsynced, in batches of 1,000, and compacts it; returns the
/// rates and the bytes per point.
pub(super) fn fill(dir: &Path, points: u64) -> Result<(Vec<Stretch>, f64), Failure> {
    let db = Database::open(options(dir, Survival::Process))?;
    let mut channel = Channel::new();
    let mut growth = Vec::new();
    for tenth in 0..10 {
        let part = points * (tenth + 1) / 10 - points * tenth / 10;
        let took = time_round(|| channel.write(&db, part, BATCH).map(|()| part))?;
        growth.push(Stretch {
            points: part,
            points_per_second: part as f64 / took.wall_seconds.max(1e-9),
            cpu_seconds_per_million: took.cpu_seconds * 1e6 / part.max(1) as f64,
        });
    }
    db.flush()?;
    let flushed = db.stats()?;
    if flushed.events != points {
        return Err(format!("{} events stored, not {points}", flushed.events).into());
    }
    db.close()?;
    Ok((growth, flushed.bytes_per_event()))
}

pub(super) fn judge(growth: &[Stretch], bytes_per_point: f64, targets: &mut Targets) {
    let rows: Vec<Vec<String>> = growth
        .iter()
        .enumerate()
        .map(|(tenth, s)| {
            vec![
                format!("{} %", (tenth + 1) * 10),
                format!("{:.2}", s.points_per_second / 1e6),
                format!("{:.3}", s.cpu_seconds_per_million),
            ]
        })
        .collect();
    table::print(
        &["store filled to", "million points/s", "CPU s per million"],
        &rows,
    );
    println!("\n{bytes_per_point:.2} bytes a point, pyramid included\n");
    let cpu = |part: &[Stretch]| {
        table::median(part.iter().map(|s| s.cpu_seconds_per_million).collect()).0
    };
    // The first tenth opens files and fills caches.
    let early = growth.get(1..4).unwrap_or_default();
    let late = growth.get(7..).unwrap_or_default();
    targets.add(
        "R-4: CPU seconds a point of the last stretches against the first",
        Bound::AtMost(1.25),
        " ×",
        cpu(late) / cpu(early).max(1e-12),
    );
    targets.add(
        "R-7: bytes of a point, of 24",
        Bound::AtMost(10.0),
        " %",
        bytes_per_point / SAMPLE_BYTES * 100.0,
    );
}
