//! The EVENT paper's streams (rows E-12): Stock and Sine through the batch call, in
//! order and with late events.
//!
//! Stock: sequence number, symbol, price, volume; Sine: six floats. Event i has time i (in
//! milliseconds). A tenth of the late events is spread over the whole span, the others arrive in
//! local batches at 10,000 equidistant positions, shortly after their time. The stored rows are
//! independent of the order, which is checked. Writes are `Written`, by one writer. Stock is
//! compared with the minimum of work on the same columns: copying them and compressing them with
//! pco at level 4.

use crate::baselines::{Survival, options};
use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, Rounds, Targets, time_round,
    time_round_with_drain, turns,
};
use crate::table;
use headwater::{Batch, Column, Database, ScanSpec, Stats, StreamName, StreamRows, Values};
use serde::Serialize;
use std::cell::RefCell;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Events of a round.
    #[arg(long, default_value_t = 4_000_000)]
    events: usize,
    /// Events of a batch.
    #[arg(long, default_value_t = 10_000)]
    batch: usize,
    /// Places where late events arrive together.
    #[arg(long, default_value_t = 10_000)]
    places: usize,
    /// Shares of late events, in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,1,5,10")]
    late: Vec<u32>,
    /// Only this stream: stock or sine.
    #[arg(long)]
    only: Option<String>,
}

#[derive(Serialize)]
struct Measurement {
    stream: &'static str,
    late_percent: u32,
    rounds: Rounds,
    wa_events: f64,
    wa_bytes: f64,
    /// Late runs that wait to be folded, when drained.
    late_runs: u64,
    wa_events_settled: f64,
    bytes_per_event: f64,
    bytes_per_event_settled: f64,
}

/// Counters of a database when it was flushed, and when it was compacted.
#[derive(Default)]
struct StageCounters {
    drained: Stats,
    settled: Stats,
}

#[derive(Default, Serialize)]
struct Results {
    events: usize,
    streams: Vec<Measurement>,
    /// Only copying and pco, on Stock's columns.
    copy_and_pco: Option<Rounds>,
}

/// Nanoseconds between events.
const STEP: i64 = 1_000_000;
const BEGIN: i64 = 1_700_000_000_000_000_000;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("events", &arguments.common)?;
    let mut results = Results {
        events: arguments.events,
        ..Results::default()
    };
    let mut targets = Targets::default();
    for (name, make) in [
        ("stock", stock as fn(usize) -> Vec<(&'static str, Values)>),
        ("sine", sine),
    ] {
        if arguments.only.as_deref().is_none_or(|only| only == name) {
            let columns = make(arguments.events);
            stream(&bench, arguments, name, &columns, &mut results)?;
        }
    }
    print(&results);
    judge(&results, &mut targets)?;
    bench.finish(&results, &targets)
}

/// Numbers as the paper sizes them, 28 bytes an event; the symbol is a number, as its four bytes
/// were.
fn stock(events: usize) -> Vec<(&'static str, Values)> {
    let mut dice = Random::new(3);
    let mut prices: Vec<i64> = (0..500).map(|s| 1_000 + s * 37).collect();
    let (mut symbols, mut price, mut volume) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..events {
        // Some shares are traded more than others.
        let symbol = dice.below(500).min(dice.below(500));
        if let Some(cents) = prices.get_mut(symbol as usize) {
            *cents = (*cents + dice.below(7) as i64 - 3).max(1);
            price.push(*cents as f64 / 100.0);
        }
        symbols.push(symbol as i64);
        volume.push((dice.below(100) * 100 + 100) as i64);
    }
    vec![
        ("sequence", Values::I64((0..events as i64).collect())),
        ("symbol", Values::I64(symbols)),
        ("price", Values::F64(price)),
        ("volume", Values::I64(volume)),
    ]
}

fn sine(events: usize) -> Vec<(&'static str, Values)> {
    let wave: Vec<f64> = (0..events)
        .map(|i| ((i % 1_000_000) as f64 / 1e6 * std::f64::consts::TAU).sin())
        .collect();
    ["a", "b", "c", "d", "e", "f"]
        .map(|name| (name, Values::F64(wave.clone())))
        .to_vec()
}

/// The order in which events arrive.
fn arrivals(events: usize, late_percent: u32, places: usize) -> Vec<u32> {
    let mut dice = Random::new(u64::from(late_percent));
    let late = events as u64 * u64::from(late_percent) / 100;
    // Arrival of each event: after the event of that number.
    let mut arrives: Vec<(u32, u32)> = (0..events as u32).map(|i| (i, i)).collect();
    let span = (events / places.max(1)).max(2) as u64;
    let far = late / 10;
    for _ in 0..far {
        let event = dice.below(events as u64);
        let place = event + dice.below(events as u64 - event);
        if let Some(slot) = arrives.get_mut(event as usize) {
            slot.0 = place as u32;
        }
    }
    for n in 0..late - far {
        // The events before a place, in its span; they arrive together at its end.
        let place = n % (events as u64 / span).max(1);
        let event = place * span + dice.below(span - 1);
        let end = ((place + 1) * span - 1).min(events as u64 - 1);
        if let Some(slot) = arrives.get_mut(event as usize) {
            slot.0 = slot.0.max(end as u32);
        }
    }
    arrives.sort_by_key(|(at, _)| *at);
    arrives.into_iter().map(|(_, event)| event).collect()
}

/// Columns as they arrive, and their times.
struct ArrivalColumns {
    times: Vec<i64>,
    columns: Vec<(&'static str, Column)>,
}

fn arriving(columns: &[(&'static str, Values)], order: &[u32]) -> ArrivalColumns {
    ArrivalColumns {
        times: order.iter().map(|i| BEGIN + i64::from(*i) * STEP).collect(),
        columns: columns
            .iter()
            .map(|(name, values)| (*name, Column::from_values(values.clone()).gather(order)))
            .collect(),
    }
}

fn stream(
    bench: &Bench,
    arguments: &Arguments,
    name: &'static str,
    columns: &[(&'static str, Values)],
    results: &mut Results,
) -> Result<(), Failure> {
    let key = StreamName::new(name, [("source", "1")]);
    let inputs: Vec<(u32, ArrivalColumns)> = arguments
        .late
        .iter()
        .map(|late| {
            let order = arrivals(arguments.events, *late, arguments.places);
            (*late, arriving(columns, &order))
        })
        .collect();
    let ends: Vec<RefCell<StageCounters>> = inputs.iter().map(|_| RefCell::default()).collect();
    let mut candidates: Vec<Candidate<'_>> = inputs
        .iter()
        .zip(&ends)
        .map(|((late, input), end)| {
            let key = &key;
            Candidate::new(format!("{name}, {late} % late"), move |round| {
                let dir = bench.path("headwater");
                let mut db = Database::open(options(&dir, Survival::Process))?;
                let mut one = time_round_with_drain(
                    &mut db,
                    |db| write_all(db, key, input, arguments.batch.max(1)),
                    |db| Ok(db.flush()?),
                )?;
                let stats = db.stats()?;
                let rest = time_round(|| Ok(db.compact().map(|()| 0)?))?;
                one.settled_seconds = one
                    .drained_seconds
                    .map(|(wall, cpu)| (wall + rest.wall_seconds, cpu + rest.cpu_seconds));
                *end.borrow_mut() = StageCounters {
                    drained: stats,
                    settled: db.stats()?,
                };
                if round == 0 {
                    check(&db, key, columns)?;
                }
                db.close()?;
                drop(db);
                std::fs::remove_dir_all(dir)?;
                Ok(one)
            })
        })
        .collect();
    let plain = "copy and pco level 4";
    if let (true, Some((_, input))) = (name == "stock", inputs.first()) {
        candidates.push(Candidate::new(plain, move |_| {
            time_round(|| copy_and_pco(input))
        }));
    }
    let mut rounds = turns(bench.rounds(), candidates)?;
    if name == "stock" {
        results.copy_and_pco = rounds.pop();
    }
    for ((rounds, (late, _)), end) in rounds.into_iter().zip(&inputs).zip(&ends) {
        let StageCounters { drained, settled } = &*end.borrow();
        results.streams.push(Measurement {
            stream: name,
            late_percent: *late,
            rounds,
            wa_events: drained.wa_events(),
            wa_bytes: drained.wa_bytes(),
            late_runs: drained.late_runs,
            wa_events_settled: settled.wa_events(),
            bytes_per_event: drained.bytes_per_event(),
            bytes_per_event_settled: settled.bytes_per_event(),
        });
    }
    Ok(())
}

fn write_all(
    db: &Database,
    key: &StreamName,
    input: &ArrivalColumns,
    batch: usize,
) -> Result<u64, Failure> {
    let events = input.times.len();
    let mut at = 0;
    while at < events {
        let end = (at + batch).min(events);
        let mut rows = StreamRows::new(key.clone());
        rows.times = input.times.get(at..end).unwrap_or_default().to_vec();
        for (name, column) in &input.columns {
            rows.fields
                .push(((*name).to_owned(), column.slice(at..end)));
        }
        let mut one = Batch::new();
        one.push(rows);
        let written = db.commit(one)?;
        if let Some(refused) = written.refused.first() {
            return Err(refused.message.clone().into());
        }
        at = end;
    }
    Ok(events as u64)
}

/// Checks that the stored events are the generated ones, in the order of time.
fn check(
    db: &Database,
    key: &StreamName,
    columns: &[(&'static str, Values)],
) -> Result<(), Failure> {
    let mut row = 0;
    for chunk in db.snapshot()?.scan(key, &ScanSpec::default())? {
        let chunk = chunk?;
        let end = row + chunk.times.len();
        let times = (row as i64..end as i64).map(|i| BEGIN + i * STEP);
        if !chunk.times.iter().copied().eq(times) {
            return Err(format!("rows {row} to {end} have other times").into());
        }
        for ((name, made), found) in columns.iter().zip(&chunk.columns) {
            // A range of its own type: no copy of the whole column.
            let same = match (made, found.values()) {
                (Values::F64(a), Values::F64(b)) => a.get(row..end) == Some(b),
                (Values::I64(a), Values::I64(b)) => a.get(row..end) == Some(b),
                _ => false,
            };
            if !same || found.presence().is_some() {
                return Err(format!("rows {row} to {end} of `{name}` came back otherwise").into());
            }
        }
        row = end;
    }
    let made = columns.first().map_or(0, |(_, v)| v.len());
    if row == made {
        Ok(())
    } else {
        Err(format!("{row} rows came back of {made}").into())
    }
}

/// Copies each leaf's worth of each column and compresses it, with a fresh search for the best mode
/// as pco does it.
fn copy_and_pco(input: &ArrivalColumns) -> Result<u64, Failure> {
    const ROWS: usize = 2_048;
    let config = pco::ChunkConfig::default().with_compression_level(4);
    let mut bytes = 0;
    let mut at = 0;
    while at < input.times.len() {
        let end = (at + ROWS).min(input.times.len());
        let times = input.times.get(at..end).unwrap_or_default().to_vec();
        bytes += pco::standalone::simple_compress(&times, &config)?.len();
        for (_, column) in &input.columns {
            bytes += match column.slice(at..end).values() {
                Values::F64(v) => pco::standalone::simple_compress(v, &config)?.len(),
                Values::I64(v) => pco::standalone::simple_compress(v, &config)?.len(),
                other => return Err(format!("a column of {}", other.field_type()).into()),
            };
        }
        at = end;
    }
    std::hint::black_box(bytes);
    Ok(input.times.len() as u64)
}

fn print(results: &Results) {
    let mut rows: Vec<Vec<String>> = results
        .streams
        .iter()
        .map(|f| {
            let drained = f.rounds.drained();
            vec![
                f.rounds.name.clone(),
                format!("{:.2}", f.rounds.per_second() / 1e6),
                f.rounds.spread(),
                format!("{:.3}", f.rounds.cpu_per_million()),
                format!("{:.2}", drained.per_second() / 1e6),
                drained.spread(),
                format!("{:.3}", drained.cpu_per_million()),
                format!("{:.3}", f.wa_events),
                format!("{:.3}", f.wa_bytes),
                f.late_runs.to_string(),
                format!("{:.2}", f.bytes_per_event),
                format!("{:.2}", f.rounds.settled().per_second() / 1e6),
                format!("{:.3}", f.wa_events_settled),
                format!("{:.2}", f.bytes_per_event_settled),
            ]
        })
        .collect();
    if let Some(plain) = &results.copy_and_pco {
        let mut row = vec![
            plain.name.clone(),
            format!("{:.2}", plain.per_second() / 1e6),
            plain.spread(),
            format!("{:.3}", plain.cpu_per_million()),
        ];
        row.resize(14, "—".to_owned());
        rows.push(row);
    }
    table::print(
        &[
            "stream",
            "million events/s",
            "spread",
            "CPU s per million",
            "drained: million events/s",
            "spread",
            "CPU s per million",
            "WA events",
            "WA bytes",
            "late runs",
            "bytes/event",
            "compacted: million events/s",
            "WA events",
            "bytes/event",
        ],
        &rows,
    );
}

fn judge(results: &Results, targets: &mut Targets) -> Result<(), Failure> {
    let find = |stream: &str, late: u32| {
        results
            .streams
            .iter()
            .find(|f| f.stream == stream && f.late_percent == late)
    };
    if let Some(stock) = find("stock", 0) {
        let drained = stock.rounds.drained();
        let what = "Stock events through the batch call, flushes included";
        targets.add(
            what,
            Bound::AtLeast(5.5),
            " million/s",
            drained.per_second() / 1e6,
        );
        targets.add(
            format!("{what}: CPU"),
            Bound::AtMost(0.18),
            " s per million",
            drained.cpu_per_million(),
        );
        if let Some(plain) = &results.copy_and_pco {
            targets.add(
                format!("{what}: of copying and pco level 4"),
                Bound::AtMost(2.5),
                " ×",
                drained.times_of(plain),
            );
        }
    }
    for stream in ["stock", "sine"] {
        let (Some(none), Some(ten)) = (find(stream, 0), find(stream, 10)) else {
            continue;
        };
        let what = format!("{stream} with 10 % late against none");
        targets.add(
            format!("{what}, before draining"),
            Bound::AtMost(1.4),
            " ×",
            ten.rounds.times_of(&none.rounds),
        );
        targets.add(
            format!("{what}, drained"),
            Bound::AtMost(2.5),
            " ×",
            ten.rounds.drained().times_of(&none.rounds.drained()),
        );
        // The one has no work left, the other all of it.
        targets.add(
            format!("{what}, late runs folded by compaction"),
            Bound::AtMost(2.5),
            " ×",
            ten.rounds.settled().times_of(&none.rounds.drained()),
        );
    }
    if results.streams.is_empty() {
        return Err("there is no such stream: stock or sine".into());
    }
    Ok(())
}
