//! The log on media of several speeds.

use super::{FastTierDir, LogOn};
use crate::baselines::{Sqlite, Store, Survival, Window, options};
use crate::harness::{
    Bench, Bound, Candidate, Failure, Random, Rounds, Targets, real, signed, time_round, turns,
    unsigned,
};
use crate::machine::SyncProbe;
use crate::table;
use headwater::{Batch, Database, Options, StreamName, StreamRows, Values};
use serde::Serialize;
use std::cell::RefCell;
use std::time::Instant;

const BEGIN: i64 = 1_700_000_000;
const NANOS: i64 = 1_000_000_000;

fn stream() -> StreamName {
    StreamName::new("points", [("tag", "0")])
}

/// Rows of one value, each waited for until it is durable.
fn one_by_one(db: &Database, rows: usize) -> Result<u64, Failure> {
    let name = stream();
    for row in 0..rows {
        let mut batch = Batch::new();
        let time = (BEGIN + signed(row)) * NANOS;
        batch
            .stream(&name)
            .row(time, [("value", real(row).into())])?;
        db.commit(batch)?;
    }
    Ok(unsigned(rows))
}

/// One row after the other, each durable before the next.
pub(super) fn single(
    bench: &Bench,
    fast: &FastTierDir,
    rows: usize,
    targets: &mut Targets,
) -> Result<Vec<Rounds>, Failure> {
    let probe = RefCell::new(SyncProbe::new(bench.path("probe"))?);
    let mut all: Vec<Candidate<'_>> = [LogOn::Bulk, LogOn::Memory, LogOn::Model]
        .into_iter()
        .map(|on| {
            let probe = &probe;
            Candidate::new(on.name(), move |_| {
                probe.borrow_mut().sample(20)?;
                let options = options(&bench.path("single"), Survival::PowerCut);
                let db = on.open(options, fast)?;
                // On the slow medium fewer rows suffice.
                let rows = if on == LogOn::Bulk { rows / 10 } else { rows };
                let taken = time_round(|| one_by_one(&db, rows))?;
                db.close()?;
                Ok(taken)
            })
        })
        .collect();
    all.push(Candidate::new(
        "SQLite, tuned, on the database's medium",
        |_| {
            let mut store = Sqlite::open(&bench.path("sqlite"), Survival::PowerCut)?;
            time_round(|| {
                for row in 0..rows / 10 {
                    store.write(&Window {
                        seconds: &[BEGIN + signed(row)],
                        values: &[&[real(row)]],
                    })?;
                }
                Ok(unsigned(rows / 10))
            })
        },
    ));
    let rounds = turns(bench.rounds(), all)?;
    let heads = ["one row, durable", "a row", "spread", "CPU a row"];
    let line = |r: &Rounds| {
        let cpu = format!("{:.2} µs", r.cpu_per_million());
        vec![r.name.clone(), r.time(), r.spread(), cpu]
    };
    table::print(&heads, &rounds.iter().map(line).collect::<Vec<_>>());
    let sync = probe.borrow().median_us();
    println!("\na sync of 4 KiB takes {sync:.0} µs\n");
    if let [bulk, memory, _, sqlite] = rounds.as_slice() {
        targets.add(
            "one row, log in a file system in memory",
            Bound::AtMost(3.0),
            " µs",
            memory.seconds() * 1e6,
        );
        targets.add(
            "… SQLite on the other medium by it",
            Bound::AtLeast(5.0),
            " ×",
            sqlite.times_of(memory),
        );
        targets.add(
            "SQLite by ours, both on the database's medium",
            Bound::AtLeast(5.0),
            " ×",
            sqlite.times_of(bulk),
        );
    }
    Ok(rounds)
}

/// Stock events in groups of some size, each group durable before the next.
#[derive(Serialize)]
pub(super) struct Stock {
    group: usize,
    rounds: Vec<Rounds>,
}

/// Sequence number, symbol, price, volume.
fn stock_events(events: usize) -> Vec<(i64, i64, f64, i64)> {
    let mut dice = Random::new(3);
    let event = |n: usize| {
        let price = real(1_000 + dice.below(40_000)) / 100.0;
        let volume = signed(dice.below(100) * 100 + 100);
        (signed(n), signed(dice.below(500)), price, volume)
    };
    (0..events).map(event).collect()
}

fn write_stock(
    db: &Database,
    events: &[(i64, i64, f64, i64)],
    group: usize,
) -> Result<u64, Failure> {
    for part in events.chunks(group) {
        let mut rows = StreamRows::new(StreamName::new("stock", [("exchange", "x")]));
        let at = |n: i64| BEGIN * NANOS + n * 1_000_000;
        rows.times = part.iter().map(|e| at(e.0)).collect();
        let rows = rows
            .with_column("sequence", Values::I64(part.iter().map(|e| e.0).collect()))
            .with_column("symbol", Values::I64(part.iter().map(|e| e.1).collect()))
            .with_column("price", Values::F64(part.iter().map(|e| e.2).collect()))
            .with_column("volume", Values::I64(part.iter().map(|e| e.3).collect()));
        let mut batch = Batch::new();
        batch.push(rows);
        db.commit(batch)?;
    }
    Ok(unsigned(events.len()))
}

pub(super) fn stock(
    bench: &Bench,
    fast: &FastTierDir,
    events: usize,
    targets: &mut Targets,
) -> Result<Vec<Stock>, Failure> {
    let events = stock_events(events);
    let mut all = Vec::new();
    for group in [1, 25] {
        let candidates = [LogOn::Process, LogOn::Memory, LogOn::Model]
            .into_iter()
            .map(|on| {
                let events = &events;
                Candidate::new(on.name(), move |_| {
                    let options = options(&bench.path("stock"), Survival::PowerCut);
                    let db = on.open(options, fast)?;
                    let taken = time_round(|| write_stock(&db, events, group))?;
                    db.close()?;
                    Ok(taken)
                })
            });
        let rounds = turns(bench.rounds(), candidates.collect())?;
        all.push(Stock { group, rounds });
    }
    let heads = [
        "Stock, every group durable",
        "group",
        "events a second",
        "spread",
        "of the first",
    ];
    let mut lines = Vec::new();
    for stock in &all {
        for rounds in &stock.rounds {
            let first = stock.rounds.first().unwrap_or(rounds);
            lines.push(vec![
                rounds.name.clone(),
                stock.group.to_string(),
                format!("{:.2} M", rounds.per_second() / 1e6),
                rounds.spread(),
                format!("{:.0} %", 100.0 * first.times_of(rounds)),
            ]);
        }
    }
    table::print(&heads, &lines);
    println!();
    for (stock, wanted) in all.iter().zip([0.7, 0.95]) {
        if let [process, _, model] = stock.rounds.as_slice() {
            targets.add(
                format!(
                    "Stock in groups of {}, rate by that of no lasting log",
                    stock.group
                ),
                Bound::AtLeast(wanted),
                " ×",
                process.times_of(model),
            );
        }
    }
    Ok(all)
}

/// Times of opening after the process was killed.
#[derive(Serialize)]
pub(super) struct Opening {
    log_bytes: u64,
    milliseconds: Vec<f64>,
    empty_milliseconds: Vec<f64>,
}

pub(super) fn opening(
    bench: &Bench,
    fast: &FastTierDir,
    targets: &mut Targets,
) -> Result<Opening, Failure> {
    let (warm_up, rounds) = bench.rounds();
    let mut opening = Opening {
        log_bytes: 0,
        milliseconds: Vec::new(),
        empty_milliseconds: Vec::new(),
    };
    let events = stock_events(100_000);
    for round in 0..warm_up + rounds {
        for group in [0, 25] {
            let options = Options {
                idle_after: None,
                ..options(&bench.path("opening"), Survival::PowerCut)
            };
            let db = LogOn::Memory.open(options.clone(), fast)?;
            let mut log_bytes = 0;
            if group > 0 {
                write_stock(&db, &events, group)?;
                log_bytes = db.stats()?.bytes_log;
            }
            // State after a killed process: memory is not flushed, so only the log has the rows.
            let (left, fast_left) = (options.dir.clone(), fast.tier(&options.dir));
            let copy = bench.path("killed");
            let tier = fast.tier(&copy);
            copy_tree(&left, &copy)?;
            copy_tree(&fast_left, &tier)?;
            drop(db);
            // The two parts of a database recognise each other by content, not by location.
            std::fs::remove_dir_all(&left)?;
            std::fs::remove_dir_all(&fast_left)?;
            std::fs::rename(&copy, &left)?;
            std::fs::rename(&tier, &fast_left)?;
            let begun = Instant::now();
            let db = LogOn::Memory.open(options, fast)?;
            let took = begun.elapsed().as_secs_f64() * 1e3;
            let found = db.snapshot()?.table_names().len();
            if found != usize::from(group > 0) {
                return Err("acknowledged rows are not there".into());
            }
            db.close()?;
            if round >= warm_up {
                if group > 0 {
                    opening.log_bytes = log_bytes;
                    opening.milliseconds.push(took);
                } else {
                    opening.empty_milliseconds.push(took);
                }
            }
        }
    }
    let took = table::median(opening.milliseconds.clone());
    let empty = table::median(opening.empty_milliseconds.clone());
    println!(
        "opening after a kill, log in a file system in memory: {:.1} ms ({:+.0} … {:+.0} %) with {:.1} MiB of log, {:.1} ms without\n",
        took.0,
        took.1,
        took.2,
        real(opening.log_bytes) / f64::from(1 << 20),
        empty.0,
    );
    targets.add(
        "opening after a kill without log",
        Bound::AtMost(20.0),
        " ms",
        empty.0,
    );
    Ok(opening)
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) -> Result<(), Failure> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &there)?;
        } else {
            std::fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}
