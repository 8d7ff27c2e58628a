//! Reads beside writers and compaction: queue sets against direct calls.

use super::Arguments;
use super::throttled::Throttled;
use crate::baselines::{Survival, options};
use crate::harness::{Bench, Bound, Failure, Random, Targets, real, signed, unsigned};
use crate::table;
use headwater::{Batch, ClosedRange, Database, Options, ScanSpec, StreamName, StreamRows, Values};
use headwater_io::Env;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NANOS: i64 = 1_000_000_000;
const STREAMS: usize = 16;
/// Rows of a stream before a round.
const ROWS: usize = 20_000;
/// Rows of a batch of a writer.
const BATCH: usize = 500;
/// Rows of a read.
const WINDOW: i64 = 200;
const READERS: usize = 4;

/// Device of the segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
enum SegmentDevice {
    /// The throttled device.
    Throttled,
    /// Files of the system, in its memory.
    Memory,
}

/// The rounds of both sides on one medium.
#[derive(Debug, Serialize)]
pub(super) struct ConcurrentRounds {
    medium: SegmentDevice,
    /// The p99 of reads, and rows written a second, in microseconds, of each round: with sets.
    sets: Vec<(f64, f64)>,
    direct: Vec<(f64, f64)>,
}

fn stream(number: usize) -> StreamName {
    StreamName::new("points", [("id", number.to_string())])
}

fn write(db: &Database, number: usize, from_second: i64, rows: usize) -> Result<(), Failure> {
    let mut dice = Random::new(unsigned(from_second) ^ unsigned(number));
    let mut batch = Batch::new();
    let mut of_stream = StreamRows::new(stream(number));
    let seconds = from_second..from_second + signed(rows);
    of_stream.times = seconds.map(|second| second * NANOS).collect();
    let values = (0..rows).map(|_| dice.unit()).collect();
    batch.push(of_stream.with_column("value", Values::F64(values)));
    db.commit(batch)?;
    Ok(())
}

fn fill(options: &Options) -> Result<(), Failure> {
    let db = Database::open(options.clone())?;
    for first in (0..ROWS).step_by(BATCH) {
        for number in 0..STREAMS {
            write(&db, number, signed(first), BATCH)?;
        }
    }
    db.close()?;
    Ok(())
}

fn read(db: &Database, dice: &mut Random) -> Result<f64, Failure> {
    let first = signed(dice.below(unsigned(ROWS) - unsigned(WINDOW)));
    let spec = ScanSpec {
        range: ClosedRange::nanos(first * NANOS, (first + WINDOW - 1) * NANOS),
        ..ScanSpec::default()
    };
    let number = usize::try_from(dice.below(unsigned(STREAMS)))?;
    let begun = Instant::now();
    let mut rows = 0;
    for chunk in db.snapshot()?.scan(&stream(number), &spec)? {
        rows += chunk?.times.len();
    }
    match signed(rows) == WINDOW {
        true => Ok(begun.elapsed().as_secs_f64() * 1e6),
        false => Err(format!("{rows} rows of {WINDOW}").into()),
    }
}

/// Writes late rows and new ones, and rewrites segments, until the readers have ended.
fn write_on(db: &Database, is_over: &AtomicBool) -> Result<u64, Failure> {
    let (mut written, mut round) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let number = round % STREAMS;
        // Existing rows, so that every round has the same number.
        let first = signed(round * BATCH * 7 % (ROWS - BATCH));
        write(db, number, first, BATCH)?;
        written += unsigned(BATCH);
        round += 1;
    }
    Ok(written)
}

fn compact_on(db: &Database, is_over: &AtomicBool) -> Result<(), Failure> {
    while !is_over.load(Ordering::Relaxed) {
        db.flush()?;
        db.compact()?;
    }
    Ok(())
}

/// Opens the database of a side.
fn open(
    arguments: &Arguments,
    (medium, dir): (SegmentDevice, &Path),
    sets: usize,
) -> Result<Database, Failure> {
    let mut options = options(dir, Survival::Process);
    options.queue_sets = sets;
    options.read_ahead = 1;
    // On the device almost no data is cached.
    if medium == SegmentDevice::Throttled {
        options.memory_budget_bytes = 2 << 20;
    }
    let read_time = match medium {
        SegmentDevice::Throttled => Duration::from_micros(arguments.read_us),
        SegmentDevice::Memory => Duration::ZERO,
    };
    let mut env = Env::system();
    let below = Arc::clone(&env.files);
    let channels = unsigned(arguments.channels);
    env.files = Arc::new(Throttled::new(below, channels, read_time));
    Ok(Database::open_in(env, options)?)
}

/// Reads concurrent with a writer and compaction: their latencies, in microseconds, and the rows
/// written.
fn beside_others(db: &Database, reads: usize) -> Result<(Vec<f64>, u64), Failure> {
    let is_over = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let is_over = &is_over;
        let writer = scope.spawn(move || write_on(db, is_over).map_err(|e| e.to_string()));
        let compaction = scope.spawn(move || compact_on(db, is_over).map_err(|e| e.to_string()));
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                scope.spawn(move || {
                    let mut dice = Random::new(unsigned(reader) + 11);
                    let taken = (0..reads).map(|_| read(db, &mut dice));
                    let taken = taken.collect::<Result<Vec<f64>, Failure>>();
                    taken.map_err(|error| error.to_string())
                })
            })
            .collect();
        let (mut all, mut failed) = (Vec::new(), None);
        for reader in readers {
            match reader.join() {
                Ok(Ok(latencies)) => all.extend(latencies),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some("a reader panicked".to_owned()),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let mut written = 0;
        let compacted = compaction.join().map(|ended| ended.map(|()| 0));
        for end in [compacted, writer.join()] {
            match end {
                Ok(Ok(rows)) => written += rows,
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some("a thread panicked".to_owned()),
            }
        }
        failed.map_or(Ok((all, written)), Err)
    });
    Ok(told?)
}

/// One round: the p99 of reads in microseconds, and rows written a second.
fn round(
    arguments: &Arguments,
    side: (SegmentDevice, &Path),
    sets: usize,
) -> Result<(f64, f64), Failure> {
    let db = open(arguments, side, sets)?;
    let begun = Instant::now();
    let (mut latencies, written) = beside_others(&db, arguments.reads)?;
    let seconds = begun.elapsed().as_secs_f64();
    db.close()?;
    latencies.sort_by(f64::total_cmp);
    let at = (latencies.len() * 99 / 100).min(latencies.len().saturating_sub(1));
    let p99 = latencies.get(at).copied().unwrap_or(0.0);
    Ok((p99, real(written) / seconds.max(1e-9)))
}

/// The mean over rounds of the ratio of both sides in one round, and the half width of its
/// interval of 95 %.
fn ratio(beside: &ConcurrentRounds) -> (f64, f64) {
    let pairs = beside.sets.iter().zip(&beside.direct);
    let ratios: Vec<f64> = pairs
        .map(|(sets, direct)| sets.0 / direct.0.max(1e-9))
        .collect();
    table::interval(&ratios)
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Vec<ConcurrentRounds>, Failure> {
    let (warm_up, counted) = bench.rounds();
    let mut all = Vec::new();
    for (medium, bound) in [
        (SegmentDevice::Throttled, 0.5),
        (SegmentDevice::Memory, 1.05),
    ] {
        let dirs = [bench.path("sets"), bench.path("direct")];
        for dir in &dirs {
            fill(&options(dir, Survival::Process))?;
        }
        let mut sides = [Vec::new(), Vec::new()];
        for number in 0..warm_up + counted {
            for turn in 0..2 {
                let at = (number + turn) % 2;
                let (Some(dir), Some(rounds)) = (dirs.get(at), sides.get_mut(at)) else {
                    return Err("there are two sides".into());
                };
                let sets = if at == 0 { arguments.channels } else { 0 };
                let figure = round(arguments, (medium, dir), sets)?;
                if number >= warm_up {
                    rounds.push(figure);
                }
            }
        }
        let [sets, direct] = sides;
        let beside = ConcurrentRounds {
            medium,
            sets,
            direct,
        };
        let (mean, _) = ratio(&beside);
        let what = match medium {
            SegmentDevice::Throttled => "on a throttled device, a stand-in that sleeps",
            SegmentDevice::Memory => "with everything in the system's memory",
        };
        targets.add(
            format!("p99 of reads beside writers and compaction, sets by direct calls, {what}"),
            Bound::AtMost(bound),
            " ×",
            mean,
        );
        all.push(beside);
    }
    print(&all, arguments);
    Ok(all)
}

fn print(all: &[ConcurrentRounds], arguments: &Arguments) {
    println!(
        "\nReads beside writers and compaction: {READERS} readers, {} channels, a read {} µs on the throttled device, \
         which is a stand-in that sleeps\n",
        arguments.channels, arguments.read_us
    );
    let median = |rounds: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        table::median(rounds.iter().map(of).collect()).0
    };
    let line = |beside: &ConcurrentRounds| {
        let (mean, half) = ratio(beside);
        vec![
            format!("{:?}", beside.medium),
            format!("{:.0}", median(&beside.sets, |round| round.0)),
            format!("{:.0}", median(&beside.direct, |round| round.0)),
            format!("{mean:.3} ± {half:.3}"),
            format!("{:.0}", median(&beside.sets, |round| round.1)),
            format!("{:.0}", median(&beside.direct, |round| round.1)),
        ]
    };
    let heads = [
        "medium",
        "p99 µs, sets",
        "p99 µs, direct",
        "p99 by direct",
        "rows written/s, sets",
        "direct",
    ];
    table::print(&heads, &all.iter().map(line).collect::<Vec<_>>());
}
