//! Memory of the engine: many events, many streams, and opening after `kill -9`.
//!
//! Each case fills a new database in a process of its own, whose peak resident memory (`VmHWM`) is
//! then exactly the case's: the process does no other work. After all writes it reports that and is
//! killed with SIGKILL, as in a crash; a second process opens the database again. Events are
//! generated during the run.

use crate::harness::{Bench, Bound, Common, Failure, Random, Targets, real};
use crate::{machine, table};
use headwater::{Batch, Database, Durability, Options, StreamName, StreamRows, Values};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const MIB: f64 = 1024.0 * 1024.0;
const SECOND: i64 = 1_000_000_000;
/// Time of the first generated event.
const START: i64 = 1_700_000_000 * SECOND;
/// Bytes that the memory rule allows for a stream touched since opening.
const BYTES_PER_STREAM: u64 = 160;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Events of the cases with few streams.
    #[arg(long, default_value_t = 100_000_000)]
    events: u64,
    /// Streams of the cases with few streams.
    #[arg(long, default_value_t = 100)]
    devices: u64,
    /// Streams of the cases with many.
    #[arg(long, default_value_t = 100_000)]
    streams: u64,
    /// Events of each of the many streams.
    #[arg(long, default_value_t = 20)]
    rounds_each: u64,
    /// Only this case, by its name; may be repeated.
    #[arg(long)]
    only: Vec<String>,
}

/// Arguments of a child process. Not for people.
#[derive(clap::Args)]
pub(crate) struct ChildArguments {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    budget: usize,
    #[arg(long)]
    events: u64,
    #[arg(long)]
    streams: u64,
    /// Rows of a stream in a batch: 1 = one line each.
    #[arg(long)]
    run: u64,
    /// Task of the child: fill, open, last.
    #[arg(long)]
    task: String,
}

/// Report of a child process.
#[derive(Serialize, Deserialize, Default, Clone)]
struct ChildReport {
    seconds: f64,
    cpu_seconds: f64,
    /// `VmHWM`, bytes.
    peak_bytes: u64,
    /// The same before the database was opened.
    idle_bytes: u64,
    events: u64,
    /// Events replayed from the log when opening.
    replayed: u64,
    segment_bytes: u64,
    /// Asking every stream for its newest values: the first time after opening, and again.
    last_cold_seconds: f64,
    last_warm_seconds: f64,
}

struct Case {
    name: &'static str,
    budget: usize,
    events: u64,
    streams: u64,
    run: u64,
    /// Target for the peak, bytes.
    peak_max: u64,
}

fn cases(arguments: &Arguments) -> Vec<Case> {
    let few = |name, mib: usize, peak_mib: u64| Case {
        name,
        budget: mib << 20,
        events: arguments.events,
        streams: arguments.devices,
        run: 1000,
        peak_max: peak_mib << 20,
    };
    let many = |name, mib: usize| Case {
        name,
        budget: mib << 20,
        events: arguments.streams * arguments.rounds_each,
        streams: arguments.streams,
        run: 1,
        peak_max: ((mib as u64) << 20) + BYTES_PER_STREAM * arguments.streams,
    };
    vec![
        few("events-64", 64, 256),
        few("events-16", 16, 96),
        many("streams-64", 64),
        many("streams-16", 16),
    ]
}

#[derive(Serialize)]
struct Results {
    case: &'static str,
    budget_bytes: usize,
    peak_bytes_max: u64,
    fill: ChildReport,
    open: ChildReport,
    last: ChildReport,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::once("memory", &arguments.common)?;
    println!();
    let mut all = Vec::new();
    for case in cases(arguments) {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|o| o == case.name) {
            continue;
        }
        let dir = bench.path(case.name);
        let fill = child(&case, &dir, "fill")?;
        let open = child(&case, &dir, "open")?;
        let last = child(&case, &dir, "last")?;
        std::fs::remove_dir_all(&dir)?;
        eprintln!("{} done", case.name);
        all.push(Results {
            case: case.name,
            budget_bytes: case.budget,
            peak_bytes_max: case.peak_max,
            fill,
            open,
            last,
        });
    }
    print(&all);
    let mut targets = Targets::default();
    judge(&all, &mut targets);
    bench.finish(&all, &targets)
}

fn print(all: &[Results]) {
    let mib = |bytes: u64| format!("{:.1}", real(bytes) / MIB);
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|f| {
            vec![
                f.case.to_owned(),
                f.fill.events.to_string(),
                format!("{:.1}", f.fill.seconds),
                format!("{:.1}", f.fill.cpu_seconds),
                mib(f.fill.segment_bytes),
                mib(f.fill.idle_bytes),
                mib(f.fill.peak_bytes),
                format!("{:.3}", f.open.seconds),
                f.open.replayed.to_string(),
                mib(f.open.peak_bytes),
                format!("{:.3}", f.last.last_cold_seconds),
                format!("{:.3}", f.last.last_warm_seconds),
                mib(f.last.peak_bytes),
            ]
        })
        .collect();
    table::print(
        &[
            "case",
            "events",
            "fill s",
            "CPU s",
            "segments MiB",
            "idle MiB",
            "peak MiB",
            "reopen s",
            "events replayed",
            "peak MiB",
            "`last` of all s",
            "again s",
            "peak MiB",
        ],
        &rows,
    );
}

fn judge(all: &[Results], targets: &mut Targets) {
    for results in all {
        let case = results.case;
        let peaks = [&results.fill, &results.open, &results.last].map(|t| t.peak_bytes);
        targets.add(
            format!("{case}: peak resident memory, filling or reading"),
            Bound::AtMost((real(results.peak_bytes_max) / MIB).round()),
            " MiB",
            real(peaks.into_iter().max().unwrap_or(0)) / MIB,
        );
        targets.add(
            format!("{case}: reopened after kill -9"),
            Bound::AtMost(1.0),
            " s",
            results.open.seconds,
        );
        if case.starts_with("streams") {
            targets.add(
                format!("{case}: `last` of every stream, warm"),
                Bound::AtMost(200.0),
                " ms",
                results.last.last_warm_seconds * 1e3,
            );
        }
    }
}

/// Runs one task in a process of its own and kills the process when the task is done.
fn child(case: &Case, dir: &Path, task: &str) -> Result<ChildReport, Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("memory-child")
        .arg("--dir")
        .arg(dir)
        .args(["--budget", &case.budget.to_string()])
        .args(["--events", &case.events.to_string()])
        .args(["--streams", &case.streams.to_string()])
        .args(["--run", &case.run.to_string()])
        .args(["--task", task])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let report = read_report(&mut child);
    // SIGKILL: no orderly close, whatever the task was.
    child.kill()?;
    child.wait()?;
    report.map_err(|error| format!("{}, {task}: {error}", case.name).into())
}

fn read_report(child: &mut Child) -> Result<ChildReport, Failure> {
    let out = child.stdout.take().ok_or("a child without an output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    if line.is_empty() {
        return Err("the process ended early".into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// The child's part: does the task, prints its report, and waits to be killed.
pub(crate) fn run_child(arguments: &ChildArguments) -> Result<(), Failure> {
    let mut report = ChildReport {
        idle_bytes: machine::peak_resident_bytes(),
        ..ChildReport::default()
    };
    let options = Options {
        memory_budget_bytes: arguments.budget,
        durability: Durability::Written,
        ..Options::new(&arguments.dir)
    };
    let (start, cpu) = (Instant::now(), machine::cpu_seconds());
    let db = Database::open(options)?;
    report.seconds = start.elapsed().as_secs_f64();
    report.replayed = db.recovery().events_replayed;
    match arguments.task.as_str() {
        "fill" => {
            fill(&db, arguments)?;
            report.seconds = start.elapsed().as_secs_f64();
        }
        "last" => {
            let mut took = [0.0, 0.0];
            for slot in &mut took {
                let start = Instant::now();
                let snapshot = db.snapshot()?;
                for stream in 0..arguments.streams {
                    let last = snapshot.last(&name(stream))?;
                    let newest = last.first().ok_or("a stream without a value")?;
                    let expected =
                        START + (arguments.events / arguments.streams) as i64 * SECOND - SECOND;
                    if newest.time.as_nanos() != expected {
                        return Err(format!(
                            "stream {stream}: newest event at {}, not {expected}",
                            newest.time.as_nanos()
                        )
                        .into());
                    }
                }
                *slot = start.elapsed().as_secs_f64();
            }
            [report.last_cold_seconds, report.last_warm_seconds] = took;
        }
        _ => {}
    }
    let stats = db.stats()?;
    report.events = stats.events;
    report.segment_bytes = stats.segment_bytes;
    if stats.events != arguments.events {
        return Err(format!("{} events, not {}", stats.events, arguments.events).into());
    }
    report.cpu_seconds = machine::cpu_seconds() - cpu;
    report.peak_bytes = machine::peak_resident_bytes();
    println!("{}", serde_json::to_string(&report)?);
    std::io::stdout().flush()?;
    // The parent kills this process; should the parent have ended, its end of the pipe is closed.
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

fn name(stream: u64) -> StreamName {
    StreamName::new("sensors", [("id", format!("device-{stream:06}"))])
}

/// The readings of slow sensors, each a walk in steps of hundredths.
struct Sensors {
    dice: Random,
    hundredths: Vec<i32>,
}

impl Sensors {
    fn next(&mut self, stream: u64) -> f64 {
        let step = self.dice.below(11) as i32 - 5;
        let Some(at) = self.hundredths.get_mut(stream as usize) else {
            return 0.0;
        };
        *at += step;
        f64::from(*at) / 100.0
    }
}

/// Every stream gets the same number of events, a second apart, `run` at a time; a batch has about
/// 1,000 rows.
fn fill(db: &Database, arguments: &ChildArguments) -> Result<(), Failure> {
    let each = arguments.events / arguments.streams;
    let per_batch = (1000 / arguments.run).max(1);
    let mut sensors = Sensors {
        dice: Random::new(3),
        hundredths: vec![2000; arguments.streams as usize],
    };
    let mut from = 0;
    while from < each {
        let to = (from + arguments.run).min(each);
        let mut stream = 0;
        while stream < arguments.streams {
            let mut batch = Batch::new();
            for id in stream..(stream + per_batch).min(arguments.streams) {
                let mut rows = StreamRows::new(name(id));
                rows.times = (from..to).map(|i| START + i as i64 * SECOND).collect();
                let values = (from..to).map(|_| sensors.next(id)).collect();
                batch.push(rows.with_column("v", Values::F64(values)));
            }
            db.commit(batch)?;
            stream += per_batch;
        }
        from = to;
    }
    Ok(())
}
