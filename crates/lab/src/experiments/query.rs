//! SQL (issue 7's table): grouped queries, filters, counts and full scans of ten million values,
//! each compared with the same statement without the pyramid, or with the first run of the
//! statement, whose plan is cached for the others.
//!
//! Two stores: a channel of one value a second, and a fleet of 100 devices with ten fields each.
//! Every answer's number of rows is checked against the known data.

use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, Rounds, Targets, time_round, turns,
};
use crate::table;
use headwater::{Batch, Database, Options, StreamName, StreamRows, Values};
use headwater_query::{Limits, Parameters, Query, Session, Unrestricted};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Values of each store.
    #[arg(long, default_value_t = 10_000_000)]
    values: u64,
    /// Devices of the fleet.
    #[arg(long, default_value_t = 100)]
    devices: u64,
    /// Keep both stores in this folder, and use those that are there: for profiles of what reads
    /// them.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Only the statements with this in their names.
    #[arg(long, default_value = "")]
    only: String,
}

/// Fields of a device.
const FIELDS: u64 = 10;
/// The first second of the data: a multiple of 2^20.
const BEGIN: i64 = 1_622 << 20;
/// Rows of a batch.
const BATCH: u64 = 10_000;

#[derive(Serialize)]
struct Measured {
    statement: String,
    rows: u64,
    rounds: Rounds,
}

#[derive(Serialize)]
struct Results {
    values: u64,
    statements: Vec<Measured>,
}

struct Statement {
    name: &'static str,
    sql: String,
    /// Rows that the answer must have.
    rows: u64,
    /// Values returned, which is the measure of a full scan.
    values: u64,
    pyramid: bool,
}

fn channel(dir: &std::path::Path, values: u64) -> Result<Database, Failure> {
    let db = Database::open(Options::new(dir))?;
    let mut dice = Random::new(1);
    let mut hundredths = 2_000i64;
    let mut next = BEGIN;
    let name = StreamName::new("channel", [("id", "0")]);
    let mut left = values;
    while left > 0 {
        let count = left.min(BATCH);
        left -= count;
        let mut rows = StreamRows::new(name.clone());
        rows.times = (next..)
            .take(count as usize)
            .map(|s| s * 1_000_000_000)
            .collect();
        next += count as i64;
        let walk = (0..count).map(|_| {
            hundredths += dice.below(11) as i64 - 5;
            hundredths as f64 / 100.0
        });
        let mut batch = Batch::new();
        batch.push(rows.with_column("value", Values::F64(walk.collect())));
        db.commit(batch)?;
    }
    db.compact()?;
    Ok(db)
}

fn fleet(dir: &std::path::Path, values: u64, devices: u64) -> Result<Database, Failure> {
    let db = Database::open(Options::new(dir))?;
    let mut dice = Random::new(2);
    let rows = (values / devices / FIELDS).max(1);
    for device in 0..devices {
        let name = StreamName::new("fleet", [("device", format!("d{device:03}"))]);
        let mut levels: Vec<i64> = (0..FIELDS).map(|f| 1_000 * f as i64).collect();
        let mut at = 0;
        while at < rows {
            let count = (rows - at).min(BATCH / FIELDS);
            let mut stream = StreamRows::new(name.clone());
            let first = BEGIN + at as i64;
            stream.times = (first..)
                .take(count as usize)
                .map(|s| s * 1_000_000_000)
                .collect();
            for (field, level) in levels.iter_mut().enumerate() {
                let walk = (0..count).map(|_| {
                    *level += dice.below(21) as i64 - 10;
                    *level as f64 / 100.0
                });
                stream = stream.with_column(format!("f{field}"), Values::F64(walk.collect()));
            }
            let mut batch = Batch::new();
            batch.push(stream);
            db.commit(batch)?;
            at += count;
        }
    }
    db.compact()?;
    Ok(db)
}

/// Runs a statement to its end.
fn run_statement(runtime: &Runtime, session: &Session, sql: &str) -> Result<u64, Failure> {
    let batches =
        runtime.block_on(async { session.run(sql, Parameters::none()).await?.collect().await })?;
    Ok(batches.iter().map(|b| b.num_rows() as u64).sum())
}

fn bins(values: u64, width: u64) -> u64 {
    // The data start at the border of a bin of each requested width.
    values.div_ceil(width)
}

/// Statements over the channel.
fn of_channel(values: u64) -> Vec<Statement> {
    let width = (values / 1_000).max(1);
    let dyadic = width.next_power_of_two();
    let grouped = |width: u64| {
        format!(
            "SELECT date_bin(INTERVAL '{width} seconds', time, '{BEGIN_TEXT}') AS t, avg(value), min(value), max(value), count(value) \
             FROM channel GROUP BY t"
        )
    };
    vec![
        Statement {
            name: "channel in dyadic bins",
            sql: grouped(dyadic),
            rows: bins(values, dyadic),
            values: 0,
            pyramid: true,
        },
        Statement {
            name: "channel in 1,000 bins",
            sql: grouped(width),
            rows: bins(values, width),
            values: 0,
            pyramid: true,
        },
        Statement {
            name: "channel in 1,000 bins, from rows",
            sql: grouped(width),
            rows: bins(values, width),
            values: 0,
            pyramid: false,
        },
        Statement {
            name: "channel, every value",
            sql: "SELECT value FROM channel".to_owned(),
            rows: values,
            values,
            pyramid: true,
        },
    ]
}

/// [`BEGIN`] as SQL text.
const BEGIN_TEXT: &str = "2023-11-24T01:44:32Z";

/// Statements over the fleet. `high` is a value that one in a thousand of a device's values
/// exceeds, and `above` their number.
fn of_fleet(rows: u64, devices: u64, high: f64, above: u64) -> Vec<Statement> {
    let minutes = rows.div_ceil(60) * devices;
    let per_minute = format!(
        "SELECT device, date_bin(INTERVAL '1 minute', time, '{BEGIN_TEXT}') AS t, avg(f3) FROM fleet GROUP BY device, t"
    );
    vec![
        Statement {
            name: "fleet, mean per device and minute",
            sql: per_minute.clone(),
            rows: minutes,
            values: 0,
            pyramid: true,
        },
        Statement {
            name: "fleet, mean per device and minute, from rows",
            sql: per_minute,
            rows: minutes,
            values: 0,
            pyramid: false,
        },
        Statement {
            name: "fleet, one device above a value",
            sql: format!("SELECT time, f3 FROM fleet WHERE device = 'd000' AND f3 > {high:?}"),
            rows: above,
            values: 0,
            pyramid: true,
        },
        Statement {
            name: "fleet, count(*)",
            sql: "SELECT count(*) FROM fleet".to_owned(),
            rows: 1,
            values: 0,
            pyramid: true,
        },
    ]
}

fn measure(
    bench: &Bench,
    runtime: &Runtime,
    db: &Database,
    statements: Vec<Statement>,
    out: &mut Vec<Measured>,
) -> Result<(), Failure> {
    let query = Query::new(db.clone(), Limits::default());
    let session = query.session(Arc::new(Unrestricted));
    let plain = query.session(Arc::new(Unrestricted));
    run_statement(runtime, &plain, "SET headwater.use_pyramid = off")?;
    let candidates = statements.iter().map(|one| {
        let session = if one.pyramid { &session } else { &plain };
        Candidate::new(one.name, move |_| {
            time_round(|| {
                let rows = run_statement(runtime, session, &one.sql)?;
                if rows != one.rows {
                    return Err(format!("{rows} rows, expected {}: {}", one.rows, one.sql).into());
                }
                Ok(one.values.max(1))
            })
        })
    });
    let rounds = turns(bench.rounds(), candidates.collect())?;
    out.extend(statements.iter().zip(rounds).map(|(one, rounds)| Measured {
        statement: one.sql.clone(),
        rows: one.rows,
        rounds,
    }));
    Ok(())
}

/// A value of a field that one in a thousand exceeds, and how many do.
fn high(db: &Database) -> Result<(f64, u64), Failure> {
    let name = StreamName::new("fleet", [("device", "d000")]);
    let spec = headwater::ScanSpec {
        fields: Some(vec!["f3".to_owned()]),
        ..headwater::ScanSpec::default()
    };
    let mut all: Vec<f64> = Vec::new();
    for chunk in db.snapshot()?.scan(&name, &spec)? {
        if let Some(Values::F64(values)) = chunk?.columns.first().map(|c| c.values()) {
            all.extend(values);
        }
    }
    all.sort_by(f64::total_cmp);
    let at = all.len().saturating_sub(1 + all.len() / 1_000);
    let high = all.get(at).copied().ok_or("no values")?;
    let above = all.iter().filter(|v| **v > high).count() as u64;
    Ok((high, above))
}

fn judge(measured: &[Measured], targets: &mut Targets) {
    let ms = |name: &str| {
        let found = measured.iter().find(|m| m.rounds.name == name);
        found.map(|m| {
            m.rounds.seconds() * m.rounds.taken.first().map_or(1, |t| t.operations) as f64 * 1e3
        })
    };
    for (name, most) in [
        ("channel in dyadic bins", 4.0),
        ("channel in 1,000 bins", 12.0),
        ("fleet, mean per device and minute", 10.0),
        ("fleet, one device above a value", 1.5),
        ("fleet, count(*)", 1.5),
    ] {
        if let Some(ms) = ms(name) {
            targets.add(name, Bound::AtMost(most), " ms", ms);
        }
    }
    if let Some(scan) = measured
        .iter()
        .find(|m| m.rounds.name == "channel, every value")
    {
        let per_second = 1.0 / scan.rounds.cpu_per_million().max(1e-12);
        targets.add(
            "full scan into Arrow, million values a CPU second",
            Bound::AtLeast(60.0),
            "",
            per_second,
        );
    }
}

/// The store of that name, which is made if it is not there.
fn store(
    bench: &Bench,
    arguments: &Arguments,
    name: &str,
    make: impl FnOnce(&std::path::Path) -> Result<Database, Failure>,
) -> Result<Database, Failure> {
    match arguments.keep.as_ref().map(|folder| folder.join(name)) {
        Some(kept) if kept.exists() => Ok(Database::open(Options::new(kept))?),
        Some(kept) => make(&kept),
        None => make(&bench.path(name)),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("query", &arguments.common)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut statements = Vec::new();
    let (values, devices) = (arguments.values, arguments.devices);
    let mut ask_all = |db: &Database, mut asked: Vec<Statement>| {
        asked.retain(|one| one.name.contains(&arguments.only));
        measure(&bench, &runtime, db, asked, &mut statements)
    };
    let db = store(&bench, arguments, "channel", |dir| channel(dir, values))?;
    ask_all(&db, of_channel(values))?;
    db.close()?;
    let db = store(&bench, arguments, "fleet", |dir| {
        fleet(dir, values, devices)
    })?;
    let (high, above) = high(&db)?;
    let rows = (values / devices / FIELDS).max(1);
    ask_all(&db, of_fleet(rows, devices, high, above))?;
    db.close()?;
    let mut lines = Vec::new();
    for one in &statements {
        let rounds = &one.rounds;
        let whole = rounds.taken.first().map_or(1, |t| t.operations) as f64;
        lines.push(vec![
            rounds.name.clone(),
            one.rows.to_string(),
            format!("{:.2} ms", rounds.seconds() * whole * 1e3),
            rounds.spread(),
        ]);
    }
    table::print(&["statement", "rows", "time", "spread"], &lines);
    let mut targets = Targets::default();
    judge(&statements, &mut targets);
    let results = Results {
        values: arguments.values,
        statements,
    };
    bench.finish(&results, &targets)
}
