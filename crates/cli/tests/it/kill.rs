//! Processes killed with SIGKILL while they write, many times over one database: what was
//! acknowledged is there, batches are whole, `check` finds nothing, and the next process goes on.
//!
//! Two kinds of victims. The example `durable_writer` says of every batch when it is acknowledged,
//! so each must be found; it runs inside this test program, started again as a child.
//! `headwater import` says nothing until it ends, but it reads no further than its queues allow:
//! what it has taken from its input less what fits into them was acknowledged. The moment of the
//! kill is after a random count of acknowledgements or bytes, and a random time below 20 ms.

use crate::support::{Bench, program};
use headwater::{
    AggregateSpec, Bins, ClosedRange, Database, Extremes, Options, ScanSpec, Snapshot, StreamName,
    ValueRef,
};
use headwater_testing::Dice;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[path = "../../../headwater/examples/durable_writer.rs"]
#[expect(dead_code, reason = "its `main` is for its users")]
mod durable_writer;

use durable_writer::{WRITERS, rows, streams};

/// Tells a child what to do: a directory and a durability.
const VICTIM: &str = "HEADWATER_TEST_VICTIM";
const DURABILITIES: [&str; 3] = ["synced", "written", "every"];

/// Half of the kills come at once, the others a little later.
pub(crate) fn wait(dice: &mut Dice) {
    if dice.below(2) == 0 {
        std::thread::sleep(Duration::from_micros(dice.below(20_000)));
    }
}

pub(crate) fn kill(mut child: Child) {
    // SIGKILL: nothing in the process runs any more.
    child.kill().unwrap();
    child.wait().unwrap();
}

/// `check` reads the files as the killed process left them.
pub(crate) fn check(db: &Path, round: usize) {
    let ran = program().arg("check").arg("--db").arg(db).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "round {round}: {text}{errors}");
}

pub(crate) fn open(db: &Path) -> Database {
    let mut options = Options::new(db);
    options.memory_budget_bytes = 4 << 20;
    Database::open(options).unwrap()
}

/// A copy of the database as it lies there.
fn copied(bench: &Bench, round: usize) -> PathBuf {
    let copy = bench.path(&format!("copy-{round}"));
    let mut folders = vec![(bench.db(), copy.clone())];
    while let Some((from, to)) = folders.pop() {
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(&from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push((entry.path(), to));
            } else {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    copy
}

/// Does nothing in this process; in the child that [`acknowledged_batches_survive_kills`] starts,
/// it writes until it is killed.
#[test]
fn the_writer_to_be_killed() {
    if let Ok(orders) = std::env::var(VICTIM) {
        let (durability, dir) = orders.split_once(' ').unwrap();
        durable_writer::write_until_killed(Path::new(dir), durability).unwrap();
    }
}

/// Starts the writer, waits for some acknowledgements, kills it. Returns the newest acknowledged
/// batch of each writer.
fn run_and_kill(db: &Path, durability: &str, dice: &mut Dice) -> Vec<Option<i64>> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::the_writer_to_be_killed", "--nocapture"])
        .env(VICTIM, format!("{durability} {}", db.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = vec![None; WRITERS as usize];
    let mut take = |line: &str| {
        let Some(numbers) = line.strip_prefix("acknowledged ") else {
            return false;
        };
        // A line that was cut by the kill acknowledges nothing.
        let Some((writer, batch)) = numbers.split_once(' ') else {
            return false;
        };
        let (writer, batch) = (writer.parse::<usize>().unwrap(), batch.parse().unwrap());
        assert!(acknowledged[writer].is_none_or(|newest| newest + 1 == batch));
        acknowledged[writer] = Some(batch);
        true
    };
    let mut wanted = 1 + dice.below(200);
    while wanted > 0 {
        wanted -= u64::from(take(&lines.next().expect("the writer ended").unwrap()));
    }
    wait(dice);
    kill(child);
    // What it said before it died counts too.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    for line in &rest {
        take(line);
    }
    acknowledged
}

/// Times and values of every batch in a stream.
fn batches(snapshot: &Snapshot, name: &StreamName) -> BTreeMap<i64, Vec<(i64, f64)>> {
    let mut found: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    let spec = ScanSpec {
        fields: Some(vec!["batch".into(), "value".into()]),
        ..ScanSpec::default()
    };
    for chunk in snapshot.scan(name, &spec).unwrap() {
        let chunk = chunk.unwrap();
        let [batch, value] = chunk.columns.as_slice() else {
            panic!("expected two columns");
        };
        for (row, time) in chunk.times.iter().enumerate() {
            let (Some(ValueRef::I64(batch)), Some(ValueRef::F64(value))) =
                (batch.get(row), value.get(row))
            else {
                panic!("row {row} of {name} lacks a value");
            };
            found.entry(batch).or_default().push((*time, value));
        }
    }
    found
}

/// Every batch up to the newest is there in all its streams, with all its rows. Returns the newest
/// of each writer.
fn whole_batches(db: &Database, round: usize) -> Vec<i64> {
    let snapshot = db.snapshot().unwrap();
    let is_known = |name: &StreamName| {
        snapshot
            .streams(name.table(), name.tags())
            .is_ok_and(|s| !s.is_empty())
    };
    (0..WRITERS)
        .map(|writer| {
            let mut newest = None;
            for (index, name) in streams(writer).iter().enumerate() {
                let found = if is_known(name) {
                    batches(&snapshot, name)
                } else {
                    BTreeMap::new()
                };
                let count = found.len() as i64;
                assert_eq!(*newest.get_or_insert(count), count, "round {round}: {name}");
                // Batches are written in order, so those that survive have no holes.
                for (wanted, (batch, rows_found)) in (0..).zip(found) {
                    assert_eq!(wanted, batch, "round {round}: {name}");
                    assert_eq!(rows_found, rows(batch, index), "round {round}: {name}");
                }
            }
            newest.unwrap() - 1
        })
        .collect()
}

#[test]
fn acknowledged_batches_survive_kills() {
    let bench = Bench::new();
    let mut dice = Dice(1);
    let mut kills_in_flight = 0;
    for round in 0..24 {
        let durability = DURABILITIES[round % DURABILITIES.len()];
        let acknowledged = run_and_kill(&bench.db(), durability, &mut dice);
        check(&bench.db(), round);
        // In turns: the next victim finds a database that was closed, or what the last one left.
        let looked_at = if round % 2 == 0 {
            bench.db()
        } else {
            copied(&bench, round)
        };
        let db = open(&looked_at);
        let stored = whole_batches(&db, round);
        db.close().unwrap();
        for (stored, acknowledged) in stored.iter().zip(&acknowledged) {
            let acknowledged = acknowledged.unwrap_or(-1);
            assert!(
                *stored >= acknowledged,
                "round {round}, {durability}: batch {acknowledged} was acknowledged, the newest is {stored}"
            );
            kills_in_flight += usize::from(*stored > acknowledged);
        }
    }
    // The kills did hit batches on their way.
    assert!(kills_in_flight > 0);
}

/// Rows of the line protocol, numbered without holes, in turns to three devices.
pub(crate) fn line(number: u64) -> String {
    let device = number % IMPORT_STREAMS;
    let time = 1_700_000_000_000_000_000 + number * 1_000_000;
    format!(
        "pump,id={device} n={number}i,pressure={}.5 {time}\n",
        number % 977
    )
}

const IMPORT_STREAMS: u64 = 3;
/// What an import may have taken in without having stored it: 16 batches of 32 KiB (one in the
/// parser, one on its way, two in the queue, one in the writer, nine unacknowledged), the reader's
/// buffers and the pipe.
pub(crate) const UNACKNOWLEDGED_BYTES_MAX: u64 = 16 * (32 << 10) + 3 * (64 << 10);

/// Imports rows from `first` on and kills the import. Returns a number below which every row was
/// acknowledged.
fn import_and_kill(db: &Path, durability: &str, first: u64, dice: &mut Dice) -> u64 {
    let mut child = program()
        .args(["import", "--format", "lp", "--precision", "ns"])
        .args(["--memory", "1MiB", "--durability", durability, "--db"])
        .arg(db)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes_wanted = (1 << 18) + dice.below(3 << 20);
    let mut taken = Vec::new();
    let mut bytes = 0;
    for number in first.. {
        let line = line(number);
        // Blocks while the queues are full.
        input.write_all(line.as_bytes()).unwrap();
        bytes += line.len() as u64;
        taken.push(bytes);
        if bytes >= bytes_wanted {
            break;
        }
    }
    wait(dice);
    kill(child);
    let stored = bytes.saturating_sub(UNACKNOWLEDGED_BYTES_MAX);
    first + taken.partition_point(|end| *end <= stored) as u64
}

/// The number of rows, which are those from 0 on without holes.
pub(crate) fn rows_without_holes(db: &Database, round: usize) -> u64 {
    let snapshot = db.snapshot().unwrap();
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let counts: Vec<u64> = (0..IMPORT_STREAMS)
        .map(|device| {
            let name = StreamName::new("pump", [("id", device.to_string())]);
            let Ok(bins) = snapshot.aggregate(&name, "n", &spec) else {
                return 0;
            };
            let Some(bin) = bins.first() else { return 0 };
            // Times differ, so equal count, extremes and sum leave no other rows possible but by a
            // lie of the index, and the last round reads the rows.
            let count = bin.aggregate.count;
            let newest = device + (count - 1) * IMPORT_STREAMS;
            let extremes = Extremes::I64(device as i64, newest as i64);
            assert_eq!(bin.aggregate.extremes, extremes, "round {round}: {name}");
            let sum = i128::from(device + newest) * i128::from(count) / 2;
            assert_eq!(bin.aggregate.sum, sum, "round {round}: {name}");
            count
        })
        .collect();
    let total: u64 = counts.iter().sum();
    // A batch is rows that follow each other, so the devices end side by side.
    for (device, count) in (0..IMPORT_STREAMS).zip(&counts) {
        let wanted = (total + IMPORT_STREAMS - 1 - device) / IMPORT_STREAMS;
        assert_eq!(*count, wanted, "round {round}: {counts:?}");
    }
    total
}

#[test]
fn a_killed_import_keeps_what_was_acknowledged_and_goes_on() {
    let bench = Bench::new();
    let mut dice = Dice(2);
    let mut first = 0;
    for round in 0..20 {
        let durability = ["synced", "written", "5ms"][round % 3];
        let acknowledged = import_and_kill(&bench.db(), durability, first, &mut dice);
        check(&bench.db(), round);
        let looked_at = if round % 2 == 0 {
            bench.db()
        } else {
            copied(&bench, round)
        };
        let db = open(&looked_at);
        first = rows_without_holes(&db, round);
        db.close().unwrap();
        assert!(
            first >= acknowledged,
            "round {round}, {durability}: {acknowledged} rows were acknowledged, {first} are there"
        );
    }
    // The import that is not killed goes on where the killed ones ended.
    let more: String = (first..first + 10_000).map(line).collect();
    bench.import_lines(&more).ok();
    check(&bench.db(), 20);
    let exported = bench
        .run("export", &["--table", "pump", "--format", "lp"])
        .ok()
        .stdout;
    let mut found: Vec<&str> = exported.lines().collect();
    assert_eq!(found.len() as u64, first + 10_000);
    let time = |line: &&str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    found.sort_by_key(time);
    for (number, found) in found.into_iter().enumerate() {
        assert_eq!(found, line(number as u64).trim_end());
    }
}
