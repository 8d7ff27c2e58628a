//! Minutes of mixed load: writers of large requests and of single lines, five rows in a hundred
//! late; readers of tiles, bins, rows and newest values; the resulting flushes and merges. Requests
//! are paced, so that any growth is the server's own.
//!
//! Memory is sampled every second; no request may fail, and at the end every acknowledged line must
//! be stored, once.

use super::Arguments;
use super::child::Server;
use super::client::post;
use super::connection::{Connection, get};
use crate::harness::{Bench, Bound, Failure, Random, Targets};
use crate::machine::SyncProbe;
use crate::table;
use headwater::{Database, Options, ScanSpec};
use serde::Serialize;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DEVICES: u64 = 100;
const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_700_000_000 * SECOND;
/// Time between the rows of a writer: each writer reports its hundred devices about twice a second
/// of its own time.
const STEP: i64 = SECOND / 200;
const LINES: usize = 1_000;
const LATE_PERCENT: u64 = 5;
/// Parts of the run whose memory is compared.
const PARTS: usize = 5;
const MIB: f64 = (1 << 20) as f64;

/// Connections of one kind of work, and the pause between their requests.
#[derive(Clone, Copy)]
struct Role {
    name: &'static str,
    connections: usize,
    pause: Duration,
}

const LARGE: Role = Role {
    name: "write 1,000 lines",
    connections: 2,
    pause: Duration::from_millis(50),
};
const STANDALONE: Role = Role {
    name: "write one line",
    connections: 4,
    pause: Duration::from_millis(10),
};
const READ: Role = Role {
    name: "read",
    connections: 4,
    pause: Duration::from_millis(5),
};
/// Questions that readers send in turn.
const QUESTIONS: [&str; 4] = ["tile", "300 bins", "1,000 rows", "newest values"];

#[derive(Default, Serialize)]
pub(super) struct Results {
    minutes: f64,
    rows: u64,
    kinds: Vec<RequestLatencies>,
    /// Median of the resident memory in each fifth of the time.
    resident_mib: Vec<f64>,
    peak_mib: f64,
    merges: u64,
    write_amplification: f64,
    cpu_share: f64,
    sync_median_us: f64,
}

/// Latencies of one kind of request.
#[derive(Serialize)]
struct RequestLatencies {
    name: &'static str,
    requests: usize,
    p50_ms: f64,
    p99_ms: f64,
    most_ms: f64,
}

/// State that all threads share.
struct Shared {
    addr: SocketAddr,
    stop: AtomicBool,
    /// Acknowledged rows.
    rows: AtomicU64,
    /// (kind, nanoseconds).
    latencies: Mutex<Vec<(&'static str, u64)>>,
}

/// Lines of one writer: no two have the same stream and time.
struct Lines {
    writer: usize,
    random: Random,
    number: i64,
}

impl Lines {
    fn new(writer: usize) -> Lines {
        Lines {
            writer,
            random: Random::new(writer as u64 + 1),
            number: 0,
        }
    }

    fn add(&mut self, body: &mut String) {
        let now = self.number * STEP;
        let mut time = now;
        if self.random.below(100) < LATE_PERCENT {
            // Lognormal(5, 2) seconds, by Box and Muller, but not from before the start.
            let (u, v) = (1.0 - self.random.unit(), self.random.unit());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let delay = ((5.0 + 2.0 * normal).exp() * SECOND as f64) as i64;
            // Between two rows in order; the number of the row makes late times distinct.
            time = (now - delay).max(0) / STEP * STEP + 1 + self.number % (STEP - 1);
        }
        let device = self.random.below(DEVICES);
        let (a, b) = (self.random.below(10_000), self.random.unit());
        let (writer, number, at) = (self.writer, self.number, START + time);
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            "soak,device=d{device:03},writer=w{writer} level={}.{:02},noise={b},count={number}i {at}",
            a / 100,
            a % 100
        );
        self.number += 1;
    }
}

impl Shared {
    fn until_stopped(
        &self,
        role: Role,
        mut once: impl FnMut(&mut Connection) -> Result<&'static str, Failure>,
    ) -> Result<(), String> {
        let mut connection = Connection::open(self.addr).map_err(|e| e.to_string())?;
        let mut taken = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let kind = once(&mut connection).map_err(|e| format!("{}: {e}", role.name))?;
            taken.push((kind, begun.elapsed().as_nanos() as u64));
            std::thread::sleep(role.pause);
        }
        self.latencies
            .lock()
            .map_err(|e| e.to_string())?
            .append(&mut taken);
        Ok(())
    }

    fn write(&self, role: Role, writer: usize, lines: usize) -> Result<(), String> {
        let mut source = Lines::new(writer);
        let mut body = String::new();
        self.until_stopped(role, |connection| {
            body.clear();
            (0..lines).for_each(|_| source.add(&mut body));
            let answer = connection.send(&post("/write?precision=ns", body.as_bytes()))?;
            if answer.status != 204 {
                let text = String::from_utf8_lossy(connection.body(&answer)).into_owned();
                return Err(format!("status {}: {text}", answer.status).into());
            }
            self.rows.fetch_add(lines as u64, Ordering::Relaxed);
            Ok(role.name)
        })
    }

    fn read(&self, role: Role, reader: usize) -> Result<(), String> {
        let mut random = Random::new(1_000 + reader as u64);
        let mut turn = reader;
        self.until_stopped(role, |connection| {
            let stream = format!(
                "soak%2Cdevice%3Dd{:03}%2Cwriter%3Dw{}",
                random.below(DEVICES),
                random.below(LARGE.connections as u64)
            );
            let written = self.rows.load(Ordering::Relaxed) as i64 / LARGE.connections as i64;
            let end = START + written * STEP;
            let from = START + random.below((end - START).max(1).unsigned_abs()) as i64;
            let kind = QUESTIONS
                .get(turn % QUESTIONS.len())
                .copied()
                .unwrap_or_default();
            turn += 1;
            let path = match kind {
                "tile" => {
                    let level = random.below(8) as u32;
                    let offset = from.div_euclid(SECOND << (level + 9));
                    format!("/tiles/{stream}.level/{level}.{offset}.json")
                }
                "300 bins" => format!(
                    "/api/v1/aggregate?channel={stream}.noise&from={START}&to={}&bins=300",
                    end.max(START + 300)
                ),
                "1,000 rows" => {
                    format!("/api/v1/scan?stream={stream}&from={from}&limit=1000")
                }
                _ => "/api/v1/last?table=soak&search=writer%3Dw0".to_owned(),
            };
            let answer = connection.send(&get(&path))?;
            // A stream is unknown until its first row has arrived.
            if answer.status == 200 || (answer.status == 404 && written < 20_000) {
                return Ok(kind);
            }
            let text = String::from_utf8_lossy(connection.body(&answer)).into_owned();
            Err(format!("{path}: status {}: {text}", answer.status).into())
        })
    }
}

pub(super) fn run(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let dir = bench.path("soak");
    let mut probe = SyncProbe::new(bench.path("sync-probe"))?;
    probe.sample(64)?;
    let server = Server::start(&dir)?;
    let shared = Shared {
        addr: server.addr,
        stop: AtomicBool::new(false),
        rows: AtomicU64::new(0),
        latencies: Mutex::new(Vec::new()),
    };
    let time = Duration::from_secs_f64(arguments.minutes * 60.0);
    let begun = Instant::now();
    let resident = std::thread::scope(|scope| -> Result<Vec<f64>, Failure> {
        let shared = &shared;
        let mut threads = Vec::new();
        for writer in 0..LARGE.connections {
            threads.push(scope.spawn(move || shared.write(LARGE, writer, LINES)));
        }
        for single in 0..STANDALONE.connections {
            let writer = LARGE.connections + single;
            threads.push(scope.spawn(move || shared.write(STANDALONE, writer, 1)));
        }
        for reader in 0..READ.connections {
            threads.push(scope.spawn(move || shared.read(READ, reader)));
        }
        let mut resident = Vec::new();
        let mut watch = || -> Result<(), Failure> {
            while begun.elapsed() < time && !threads.iter().any(|t| t.is_finished()) {
                std::thread::sleep(Duration::from_secs(1).min(time / 50));
                resident.push(server.used()?.resident_bytes as f64 / MIB);
            }
            Ok(())
        };
        let watched = watch();
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a client panicked")??;
        }
        watched?;
        Ok(resident)
    })?;
    let took = begun.elapsed().as_secs_f64();
    let used = server.used()?;
    server.stop()?;
    probe.sample(64)?;
    let rows = shared.rows.load(Ordering::Relaxed);
    let (merges, write_amplification) = check(&dir, rows)?;
    let part = resident.len().div_ceil(PARTS).max(1);
    let results = Results {
        minutes: took / 60.0,
        rows,
        kinds: kinds(shared.latencies.into_inner().map_err(|e| e.to_string())?),
        resident_mib: resident
            .chunks(part)
            .map(|p| table::median(p.to_vec()).0)
            .collect(),
        peak_mib: used.peak_bytes as f64 / MIB,
        merges,
        write_amplification,
        cpu_share: used.cpu_seconds / took,
        sync_median_us: probe.median_us(),
    };
    print(&results);
    judge(&results, targets);
    Ok(results)
}

/// Verifies that every acknowledged row is stored, and no other. Returns the merges so far and the
/// write amplification in events.
fn check(dir: &Path, acknowledged: u64) -> Result<(u64, f64), Failure> {
    let db = Database::open(Options::new(dir))?;
    let stats = db.stats()?;
    let snapshot = db.snapshot()?;
    let spec = ScanSpec {
        fields: Some(vec!["count".to_owned()]),
        ..ScanSpec::default()
    };
    let mut rows = 0;
    for stream in snapshot.streams("soak", &[])? {
        for chunk in snapshot.scan(&stream, &spec)? {
            rows += chunk?.times.len() as u64;
        }
    }
    if rows != acknowledged {
        return Err(format!("{rows} rows are stored, {acknowledged} were acknowledged").into());
    }
    drop(snapshot);
    db.close()?;
    let written = stats.events_flush
        + stats.events_merge
        + stats.events_late_run
        + stats.events_fold
        + stats.events_compaction
        + stats.events_delete;
    let amplification = written as f64 / stats.events_accepted.max(1) as f64;
    Ok((stats.merges, amplification))
}

fn kinds(mut taken: Vec<(&'static str, u64)>) -> Vec<RequestLatencies> {
    taken.sort_unstable();
    taken
        .chunk_by(|a, b| a.0 == b.0)
        .map(|of_kind| {
            let at = |part: f64| {
                let index = (of_kind.len() as f64 * part) as usize;
                let taken = of_kind.get(index.min(of_kind.len() - 1));
                taken.map_or(0.0, |t| t.1 as f64 / 1e6)
            };
            RequestLatencies {
                name: of_kind.first().map_or("", |t| t.0),
                requests: of_kind.len(),
                p50_ms: at(0.5),
                p99_ms: at(0.99),
                most_ms: at(1.0),
            }
        })
        .collect()
}

fn print(results: &Results) {
    println!(
        "\n{:.1} minutes, {} rows of 3 fields, all of them found; {} merges, write amplification {:.2} in events; the server took {:.0} % of a core; sync median {:.0} µs\n",
        results.minutes,
        results.rows,
        results.merges,
        results.write_amplification,
        results.cpu_share * 100.0,
        results.sync_median_us
    );
    let rows: Vec<Vec<String>> = results
        .kinds
        .iter()
        .map(|k| {
            vec![
                k.name.to_owned(),
                k.requests.to_string(),
                format!("{:.2}", k.p50_ms),
                format!("{:.2}", k.p99_ms),
                format!("{:.1}", k.most_ms),
            ]
        })
        .collect();
    table::print(&["request", "count", "p50 ms", "p99 ms", "most ms"], &rows);
    let parts: Vec<String> = results
        .resident_mib
        .iter()
        .map(|mib| format!("{mib:.0}"))
        .collect();
    println!(
        "\nresident in each fifth of the time, median: {} MiB; peak {:.0} MiB",
        parts.join(", "),
        results.peak_mib
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    targets.add(
        "soak: peak memory of the server",
        Bound::AtMost(256.0),
        " MiB",
        results.peak_mib,
    );
    if let [_, second, .., last] = results.resident_mib.as_slice() {
        targets.add(
            "soak: memory of the last fifth against the second",
            Bound::AtMost(1.1),
            "×",
            last / second,
        );
    }
    targets.add(
        "soak: merges that took place",
        Bound::AtLeast(1.0),
        "",
        results.merges as f64,
    );
}
