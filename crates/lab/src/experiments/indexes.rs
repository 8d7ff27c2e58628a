//! Secondary indexes: one event by a value at an unknown position, ranges of several widths, and
//! the cost of an index during writes.
//!
//! The rival is the same database without using its indexes: then only the pyramid answers. Both
//! are queried warm, in turn. Their matches are compared in every round.

use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, RoundResult, Rounds, Targets, time_round,
    time_round_with_drain, turns,
};
use crate::machine::SyncProbe;
use crate::table;
use headwater::{
    Batch, Comparison, Database, Filter, IndexInfo, IndexSpec, IndexUse, Options, ReadStats,
    ScanSpec, StreamName, StreamRows, Value, Values,
};
use serde::Serialize;
use std::ops::ControlFlow;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Rows in all.
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// Streams that they are spread over.
    #[arg(long, default_value_t = 10)]
    streams: u64,
    /// Rows that are written in a round with and without an index.
    #[arg(long, default_value_t = 1_000_000)]
    written: u64,
    /// Questions of a round.
    #[arg(long, default_value_t = 50)]
    questions: u64,
}

const BEGIN: i64 = 1_700_000_000_000_000_000;
const STEP: i64 = 1_000_000;
/// Rows of a batch.
const BATCH: u64 = 10_000;
/// Selectivities of the ranges: one row in this many.
const SHARES: [u64; 6] = [1_000_000, 100_000, 10_000, 1_000, 100, 10];
/// The share of the targets.
const TARGET_SHARE: u64 = 10_000;

#[derive(Serialize)]
struct QueryCase {
    what: String,
    rows_found: f64,
    leaves: f64,
    with: Rounds,
    without: Rounds,
}

#[derive(Serialize)]
struct Results {
    rows: u64,
    sync_median_us: f64,
    entries: u64,
    index_bytes: u64,
    build_seconds: f64,
    questions: Vec<QueryCase>,
    writing: Vec<Rounds>,
}

fn stream(number: u64) -> StreamName {
    StreamName::new("orders", [("till", format!("{number:03}"))])
}

/// A unique number without an order: `at` is below 2^40.
fn scrambled(at: u64) -> i64 {
    let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    i64::try_from(mixed & ((1 << 40) - 1)).unwrap_or(0)
}

/// Writes rows in the order of arrival: a batch of one stream after another.
fn write(db: &Database, arguments: &Arguments, rows: u64) -> Result<(), Failure> {
    let mut dice = Random::new(7);
    let streams = arguments.streams.max(1);
    let mut tickets = std::collections::VecDeque::new();
    let mut from = 0;
    while from < rows {
        let to = (from + BATCH).min(rows);
        let of = (from / BATCH) % streams;
        let first = i64::try_from(from)?;
        let mut own = StreamRows::new(stream(of));
        own.times = (0..i64::try_from(to - from)?)
            .map(|row| BEGIN + (first + row) * STEP)
            .collect();
        let numbers = (from..to).map(scrambled).collect();
        let prices = (from..to).map(|_| dice.unit()).collect();
        let own = own.with_column("number", Values::I64(numbers));
        let mut batch = Batch::new();
        batch.push(own.with_column("price", Values::F64(prices)));
        tickets.push_back(db.write(batch)?);
        if tickets.len() > 4
            && let Some(ticket) = tickets.pop_front()
        {
            ticket.wait()?;
        }
        from = to;
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    Ok(())
}

fn index(name: &str, field: &str) -> IndexSpec {
    IndexSpec {
        name: name.to_owned(),
        table: "orders".to_owned(),
        fields: vec![field.to_owned()],
    }
}

fn build(db: &Database, name: &str) -> Result<(), Failure> {
    match db.build_index(name, &mut |_| ControlFlow::Continue(()))? {
        true => Ok(()),
        false => Err("an index was left half made".into()),
    }
}

/// A lookup: values of a field in a range, which selects about the given number of rows.
#[derive(Clone, Copy)]
enum Lookup {
    Number(u64),
    Price { from: f64, width: f64 },
}

impl Lookup {
    fn filters(self) -> Vec<Filter> {
        let of = |field: &str, comparison, value| Filter {
            field: field.to_owned(),
            comparison,
            value,
        };
        match self {
            Lookup::Number(at) => {
                vec![of("number", Comparison::Equal, Value::I64(scrambled(at)))]
            }
            Lookup::Price { from, width } => vec![
                of("price", Comparison::GreaterOrEqual, Value::F64(from)),
                of("price", Comparison::Less, Value::F64(from + width)),
            ],
        }
    }
}

/// The rows that all streams have of it.
fn matching_rows(db: &Database, arguments: &Arguments, lookup: Lookup) -> Result<u64, Failure> {
    let spec = ScanSpec {
        filters: lookup.filters(),
        ..ScanSpec::default()
    };
    let snapshot = db.snapshot()?;
    let mut found = 0;
    for number in 0..arguments.streams.max(1) {
        for chunk in snapshot.scan(&stream(number), &spec)? {
            found += u64::try_from(chunk?.times.len())?;
        }
    }
    Ok(found)
}

/// A round of lookups of one kind, with indexes or without. The matches are compared with earlier
/// ones.
fn round(
    db: &Database,
    arguments: &Arguments,
    lookups: &[Lookup],
    expected: &[u64],
    usage: IndexUse,
) -> Result<RoundResult, Failure> {
    db.use_indexes(usage);
    time_round(|| {
        for (lookup, expected) in lookups.iter().zip(expected) {
            let found = matching_rows(db, arguments, *lookup)?;
            if found != *expected {
                return Err(format!("{found} rows instead of {expected}").into());
            }
        }
        Ok(u64::try_from(lookups.len())?)
    })
}

fn question(
    bench: &Bench,
    db: &Database,
    arguments: &Arguments,
    what: String,
    lookups: &[Lookup],
) -> Result<QueryCase, Failure> {
    db.use_indexes(IndexUse::Never);
    let expected: Vec<u64> = lookups
        .iter()
        .map(|lookup| matching_rows(db, arguments, *lookup))
        .collect::<Result<_, _>>()?;
    // Warms the caches for both.
    db.use_indexes(IndexUse::ByCost);
    for _ in 0..3 {
        for lookup in lookups {
            matching_rows(db, arguments, *lookup)?;
        }
    }
    let before = ReadStats::by_this_thread();
    for lookup in lookups {
        matching_rows(db, arguments, *lookup)?;
    }
    let touched = ReadStats::by_this_thread() - before;
    let candidates = vec![
        Candidate::new("with the index", |_| {
            round(db, arguments, lookups, &expected, IndexUse::ByCost)
        }),
        Candidate::new("the pyramid alone", |_| {
            round(db, arguments, lookups, &expected, IndexUse::Never)
        }),
    ];
    let mut rounds = turns(bench.rounds(), candidates)?.into_iter();
    let (Some(with), Some(without)) = (rounds.next(), rounds.next()) else {
        return Err("no rounds".into());
    };
    let count = float(u64::try_from(lookups.len().max(1))?);
    Ok(QueryCase {
        what,
        rows_found: float(expected.iter().sum::<u64>()) / count,
        leaves: float(touched.leaves) / count,
        with,
        without,
    })
}

fn open_database(bench: &Bench, what: &str) -> Result<Database, Failure> {
    Ok(Database::open(Options::new(bench.path(what)))?)
}

/// A load with an index and one without, in turn; background work is drained.
fn writing(bench: &Bench, arguments: &Arguments) -> Result<Vec<Rounds>, Failure> {
    let load = |fields: &'static [&'static str]| {
        move |_: usize| {
            let mut db = open_database(bench, "written")?;
            write(&db, arguments, 1)?;
            for field in fields {
                db.create_index(&index(field, field))?;
            }
            time_round_with_drain(
                &mut db,
                |db| write(db, arguments, arguments.written).map(|()| arguments.written),
                |db| {
                    db.flush()?;
                    for field in fields {
                        build(db, field)?;
                    }
                    Ok(())
                },
            )
        }
    };
    turns(
        bench.rounds(),
        vec![
            Candidate::new("no index", load(&[])),
            Candidate::new("one index", load(&["number"])),
        ],
    )
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("indexes", &arguments.common)?;
    let mut probe = SyncProbe::new(bench.path("sync"))?;
    probe.sample(100)?;
    let sync = probe.median_us();
    let writing = writing(&bench, arguments)?;

    let db = open_database(&bench, "lookups")?;
    write(&db, arguments, arguments.rows)?;
    db.flush()?;
    db.compact()?;
    let begun = std::time::Instant::now();
    for field in ["number", "price"] {
        db.create_index(&index(field, field))?;
        build(&db, field)?;
    }
    let build_seconds = begun.elapsed().as_secs_f64();
    let all = db.indexes();
    let sum = |of: fn(&IndexInfo) -> u64| all.iter().map(of).sum::<u64>();
    let (entries, index_bytes) = (sum(|i| i.entries), sum(|i| i.bytes));

    let questions = ask_all(&bench, &db, arguments)?;
    print(&questions, &writing);
    println!(
        "\n{entries} entries of two indexes take {index_bytes} bytes, made in {build_seconds:.1} s; a sync takes {sync:.0} µs"
    );
    let mut targets = Targets::default();
    let per_entry = float(index_bytes) / float(entries.max(1));
    targets.add("bytes an entry", Bound::AtMost(3.0), "", per_entry);
    add_targets(&mut targets, &questions, &writing);
    let results = Results {
        rows: arguments.rows,
        sync_median_us: sync,
        entries,
        index_bytes,
        build_seconds,
        questions,
        writing,
    };
    bench.finish(&results, &targets)
}

fn print(questions: &[QueryCase], writing: &[Rounds]) {
    let rows: Vec<Vec<String>> = questions
        .iter()
        .map(|q| {
            vec![
                q.what.clone(),
                format!("{:.1}", q.rows_found),
                format!("{:.1}", q.leaves),
                q.with.time(),
                q.with.spread(),
                q.without.time(),
                q.without.spread(),
                format!("{:.2} ×", q.without.times_of(&q.with)),
            ]
        })
        .collect();
    let headings = [
        "question",
        "rows",
        "leaves",
        "with the index",
        "spread",
        "the pyramid alone",
        "spread",
        "ratio",
    ];
    table::print(&headings, &rows);
    println!();
    let rows: Vec<Vec<String>> = writing
        .iter()
        .map(|r| {
            vec![
                r.name.clone(),
                r.time(),
                r.spread(),
                format!("{:.2} s", r.cpu_per_million()),
                r.drained().time(),
            ]
        })
        .collect();
    table::print(
        &["written", "a row", "spread", "CPU per million", "and made"],
        &rows,
    );
}

fn add_targets(targets: &mut Targets, questions: &[QueryCase], writing: &[Rounds]) {
    if let [without, with] = writing {
        let rate = with.per_second() / without.per_second();
        targets.add(
            "rows a second with an index",
            Bound::AtLeast(0.7),
            " ×",
            rate,
        );
    }
    if let Some(one) = questions.first() {
        targets.add(
            "one event, warm",
            Bound::AtMost(1.0),
            " ms",
            one.with.seconds() * 1e3,
        );
        targets.add("leaves read for it", Bound::AtMost(6.0), "", one.leaves);
        let ratio = one.without.times_of(&one.with);
        targets.add(
            "beside reading everything",
            Bound::AtLeast(100.0),
            " ×",
            ratio,
        );
    }
    let named = format!("one row in {TARGET_SHARE} by its price");
    if let Some(range) = questions.iter().find(|q| q.what == named) {
        let ratio = range.without.times_of(&range.with);
        targets.add(named, Bound::AtLeast(10.0), " ×", ratio);
    }
    let slowest = questions.iter().map(|q| q.with.times_of(&q.without));
    let slowest = slowest.fold(0.0, f64::max);
    targets.add(
        "at no selectivity slower than",
        Bound::AtMost(1.1),
        " ×",
        slowest,
    );
}

/// Measures lookups of one event, and of ranges of several widths.
fn ask_all(bench: &Bench, db: &Database, arguments: &Arguments) -> Result<Vec<QueryCase>, Failure> {
    let mut dice = Random::new(3);
    let numbers: Vec<Lookup> = (0..arguments.questions)
        .map(|_| Lookup::Number(dice.below(arguments.rows)))
        .collect();
    let mut questions = vec![question(
        bench,
        db,
        arguments,
        "one event by its number".into(),
        &numbers,
    )?];
    for share in SHARES
        .into_iter()
        .filter(|share| *share * 10 <= arguments.rows)
    {
        // Few lookups of wide ranges: each reads many rows.
        let count = arguments.questions.min(share / 20).max(3);
        let width = 1.0 / float(share);
        let lookups: Vec<Lookup> = (0..count)
            .map(|_| Lookup::Price {
                from: dice.unit() * (1.0 - width),
                width,
            })
            .collect();
        let what = format!("one row in {share} by its price");
        questions.push(question(bench, db, arguments, what, &lookups)?);
    }
    Ok(questions)
}

/// A number as it is, up to 2^32.
fn float(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}
