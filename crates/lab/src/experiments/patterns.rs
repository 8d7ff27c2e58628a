//! Patterns of rows: three symbols, the first of them rare, within a minute, with and without
//! pruning by the pyramid; and the rate of rows of a search without pruning, on one core.
//!
//! Both are queried warm, in turn, and the matches are compared in every round.

use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, Rounds, Targets, time_round, turns,
};
use crate::table;
use headwater::{Batch, Database, Options, StreamName, StreamRows, Values};
use headwater_query::{Limits, Parameters, Query, Session, Unrestricted};
use serde::Serialize;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Rows in all.
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// Streams that they are spread over; each is a partition of the pattern.
    #[arg(long, default_value_t = 100)]
    streams: u64,
    /// One row of so many is the rarest symbol.
    #[arg(long, default_value_t = 10_000)]
    rarity: u64,
}

const BEGIN: i64 = 1_700_000_000;
const SECOND: i64 = 1_000_000_000;
/// Rows of a batch.
const BATCH: u64 = 10_000;

#[derive(Serialize)]
struct Results {
    rows: u64,
    streams: u64,
    rarity: u64,
    matches: u64,
    rounds: Vec<Rounds>,
}

/// A row a second in each stream: temperatures of an oven, and now and then a peak.
fn fill(db: &Database, arguments: &Arguments) -> Result<(), Failure> {
    let mut dice = Random::new(11);
    let streams = arguments.streams.max(1);
    let each = arguments.rows / streams;
    for number in 0..streams {
        let name = StreamName::new("ovens", [("id", format!("o{number:04}"))]);
        let mut from = 0;
        while from < each {
            let to = each.min(from + BATCH);
            let mut rows = StreamRows::new(name.clone());
            let (first, last) = (i64::try_from(from)?, i64::try_from(to)?);
            rows.times = (first..last).map(|row| (BEGIN + row) * SECOND).collect();
            let temps = (from..to).map(|_| match dice.below(arguments.rarity.max(1)) {
                0 => 250.0,
                _ => 180.0 + dice.unit() * 20.0,
            });
            let mut batch = Batch::new();
            batch.push(rows.with_column("temp", Values::F64(temps.collect())));
            db.commit(batch)?;
            from = to;
        }
    }
    db.flush()?;
    Ok(db.compact()?)
}

const SQL: &str = "SELECT count(*), sum(length), max(last) FROM ovens MATCH_RECOGNIZE ( \
     PARTITION BY id ORDER BY time MEASURES count(*) AS length, LAST(time) AS last \
     PATTERN (HOT FALLING+ COLD) WITHIN INTERVAL '1 minute' \
     DEFINE HOT AS temp > 240, FALLING AS temp < 199, COLD AS temp < 181)";

/// The answer, as text, and how many matches there are.
fn run_statement(
    runtime: &Runtime,
    session: &Session,
    sql: &str,
) -> Result<(String, u64), Failure> {
    let answer = runtime.block_on(async {
        let answer = session.run(sql, Parameters::none()).await?;
        answer.collect().await
    });
    let batches = answer.map_err(|error| format!("{error}: {sql}"))?;
    let mut text = String::new();
    for batch in &batches {
        for column in batch.columns() {
            text.push_str(&format!("{column:?} "));
        }
    }
    let first = batches.first().and_then(|batch| batch.columns().first());
    let count = first.and_then(|column| {
        use headwater_query::arrow::array::{Array, AsArray};
        use headwater_query::arrow::datatypes::Int64Type;
        let numbers = column.as_primitive_opt::<Int64Type>()?;
        (numbers.len() == 1).then(|| numbers.value(0))
    });
    let count = count.map_or(Ok(0), u64::try_from)?;
    Ok((text, count))
}

fn print(rounds: &[Rounds], matches: u64, arguments: &Arguments) {
    let lines: Vec<Vec<String>> = rounds
        .iter()
        .map(|r| {
            let cpu = format!("{:.3} s", r.cpu_per_million());
            vec![r.name.clone(), r.time(), r.spread(), cpu]
        })
        .collect();
    table::print(
        &["search", "a row", "spread", "CPU per million rows"],
        &lines,
    );
    println!(
        "\n{matches} matches in {} rows of {} streams",
        arguments.rows, arguments.streams
    );
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("patterns", &arguments.common)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let db = Database::open(Options::new(bench.path("ovens")))?;
    fill(&db, arguments)?;
    let query = Query::new(db.clone(), Limits::default());
    let session = query.session(Arc::new(Unrestricted));
    let plain = query.session(Arc::new(Unrestricted));
    run_statement(&runtime, &plain, "SET headwater.use_pyramid = off")?;
    let (expected, matches) = run_statement(&runtime, &plain, SQL)?;
    let candidates = [
        ("what no match reaches left out", &session),
        ("every row", &plain),
    ];
    let candidates = candidates.map(|(name, session)| {
        let (runtime, expected) = (&runtime, &expected);
        Candidate::new(name, move |_| {
            time_round(|| {
                let (found, _) = run_statement(runtime, session, SQL)?;
                if found != *expected {
                    return Err(format!("{found}, expected {expected}").into());
                }
                Ok(arguments.rows)
            })
        })
    });
    let rounds = turns(bench.rounds(), candidates.into())?;
    let [with, without] = rounds.as_slice() else {
        return Err("no rounds".into());
    };
    print(&rounds, matches, arguments);
    let mut targets = Targets::default();
    targets.add(
        "beside looking at every row",
        Bound::AtLeast(10.0),
        " ×",
        without.times_of(with),
    );
    targets.add(
        "every row, million rows a CPU second",
        Bound::AtLeast(20.0),
        "",
        1.0 / without.cpu_per_million().max(1e-12),
    );
    let results = Results {
        rows: arguments.rows,
        streams: arguments.streams,
        rarity: arguments.rarity,
        matches,
        rounds,
    };
    bench.finish(&results, &targets)
}
