//! Bytes that an edge writes for syncing: a database whose rows go to a cloud, beside one with the
//! same rows and no cloud, by the counters of their files, and the files of the uplink by the
//! kernel's count of this process (all else is in memory).
//!
//! Time is simulated: databases have clocks that are as many times as fast as the machine's, and
//! the syncing one is flushed as often in that time as `sync.flush` asks for by default.

use super::Arguments;
use super::cloud::{self, Cloud};
use crate::harness::{Bench, Bound, Failure, Targets, real, unsigned};
use crate::table;
use headwater_cluster::EdgeState;
use headwater_engine::{Database, Options};
use headwater_io::{Env, ManualClock, MemoryFiles, SystemChance};
use headwater_types::{Batch, StreamName, Value};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Seconds between flushes for copies, by default.
const FLUSH_SECONDS: u64 = 600;
/// Seconds of data of a batch.
const BATCH_SECONDS: u64 = 10;
const BEGIN: i64 = 1_796_083_200;

#[derive(Serialize)]
pub(super) struct Results {
    hours: u64,
    streams: usize,
    /// Times and values, eight bytes each.
    accepted_bytes: u64,
    alone_bytes: u64,
    syncing_bytes: u64,
    /// Of a database without a cloud that is flushed as often as the syncing one.
    flushed_bytes: u64,
    uplink_bytes: u64,
    sent_bytes: u64,
}

fn open(dir: &Path, clock: &Arc<ManualClock>) -> Result<(Database, Env), Failure> {
    let env = Env {
        files: Arc::new(MemoryFiles::new()),
        chance: Arc::new(SystemChance::new()),
        ..cloud::env(clock)
    };
    let db = Database::open_in(env.clone(), Options::new(dir))?;
    Ok((db, env))
}

/// Bytes that the files of a database took.
fn written(db: &Database) -> Result<u64, Failure> {
    let stats = db.stats()?;
    Ok(stats.bulk_written_bytes + stats.fast_written_bytes)
}

/// Bytes that this process gave to block devices.
fn given() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("no count of written bytes")?.trim().parse()?)
}

/// Rows of some seconds, one a second to each stream.
fn rows(streams: &[StreamName], from: u64) -> Result<Batch, Failure> {
    let mut batch = Batch::new();
    for (number, stream) in streams.iter().enumerate() {
        for second in from..from + BATCH_SECONDS {
            let time = (BEGIN + crate::harness::signed(second)) * 1_000_000_000;
            let wave = (second / 7 + unsigned(number) * 31) * 7_919 % 41;
            let value = Value::F64(20.0 + real(second % 3_600) / 100.0 + real(wave) / 10.0);
            batch.stream(stream).row(time, [("v", value)])?;
        }
    }
    Ok(batch)
}

async fn simulate(bench: &Bench, arguments: &Arguments) -> Result<Results, Failure> {
    let clock = cloud::clock();
    let cloud_dir = memory(arguments);
    let cloud = Cloud::start(&cloud_dir, &clock).await?;
    let (alone, _) = open(Path::new("/alone"), &clock)?;
    let (flushed, _) = open(Path::new("/flushed"), &clock)?;
    let dir = bench.path("edge");
    let given_before = given()?;
    cloud.join("e", &dir).await?;
    let (syncing, env) = open(&dir, &clock)?;
    let seconds = arguments.flash_hours * 3_600;
    let haste = (seconds / arguments.flash_seconds.max(1)).max(1);
    let flush = Duration::from_millis(FLUSH_SECONDS * 1_000 / haste);
    let (uplink, stop) = cloud::connect(&syncing, env, &dir, flush)?;
    let names = (0..arguments.streams).map(|id| StreamName::new("m", [("id", id.to_string())]));
    let names: Vec<StreamName> = names.collect();
    let begun = Instant::now();
    for from in (0..seconds).step_by(usize::try_from(BATCH_SECONDS)?) {
        clock.advance(Duration::from_secs(BATCH_SECONDS));
        for db in [&alone, &flushed, &syncing] {
            db.commit(rows(&names, from)?)?;
        }
        if from % FLUSH_SECONDS == 0 {
            flushed.flush()?;
        }
        let due = Duration::from_millis(from * 1_000 / haste);
        tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
    }
    for db in [&alone, &flushed, &syncing] {
        db.flush()?;
    }
    cloud.until_edge_is("e", EdgeState::Current).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let results = Results {
        hours: arguments.flash_hours,
        streams: arguments.streams,
        accepted_bytes: 16 * seconds * unsigned(arguments.streams),
        alone_bytes: written(&alone)?,
        syncing_bytes: written(&syncing)?,
        flushed_bytes: written(&flushed)?,
        uplink_bytes: given()? - given_before,
        sent_bytes: uplink.socket_bytes().0,
    };
    stop.send_replace(true);
    cloud.stop.send_replace(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    std::fs::remove_dir_all(&cloud_dir)?;
    Ok(results)
}

/// Folder of the cloud, in memory: its writes are not those of the edge.
fn memory(arguments: &Arguments) -> PathBuf {
    let name = format!("headwater-lab-flash-{}", std::process::id());
    arguments.memory.join(name)
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let results = cloud::simulated(simulate(bench, arguments))?;
    print(&results);
    let accepted = real(results.accepted_bytes.max(1));
    let more = |bytes: u64, than: u64| (real(bytes) - real(than)).max(0.0) / accepted;
    let uplink = real(results.uplink_bytes) / accepted;
    targets.add(
        "written for syncing, flushes for copies included, a byte accepted",
        Bound::AtMost(0.01),
        "",
        more(results.syncing_bytes, results.alone_bytes) + uplink,
    );
    targets.add(
        "… beside a database that is flushed as often",
        Bound::AtMost(0.01),
        "",
        more(results.syncing_bytes, results.flushed_bytes) + uplink,
    );
    Ok(results)
}

fn print(results: &Results) {
    let accepted = real(results.accepted_bytes.max(1));
    let line = |what: &str, bytes: u64| {
        vec![
            what.to_owned(),
            bytes.to_string(),
            format!("{:.4}", real(bytes) / accepted),
        ]
    };
    println!();
    table::print(
        &["an edge's files", "bytes", "a byte accepted"],
        &[
            line("accepted", results.accepted_bytes),
            line("written without a cloud", results.alone_bytes),
            line("… flushed each ten minutes", results.flushed_bytes),
            line("written with a cloud", results.syncing_bytes),
            line("files of the uplink, blocks", results.uplink_bytes),
            line("sent", results.sent_bytes),
        ],
    );
}
