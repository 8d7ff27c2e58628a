//! Production settings on files: M12 as a hundred streams, values like a temperature. Counts events
//! and bytes written.

use super::Sizes;
use super::arrivals::MS;
use super::sets::{Paper, paper};
use crate::harness::{Bench, Bound, Failure, Random, Targets};
use crate::table;
use headwater::{Batch, Database, Durability, Options, StreamName, StreamRows, Values};
use serde::Serialize;

const STREAMS: usize = 100;
/// Rows of a batch: the arrivals since the previous one.
const BATCH: usize = 10_000;
/// Start of the made-up events: 2024-01-01.
const BEGIN: i64 = 1_704_067_200_000 * MS;

#[derive(Serialize)]
pub(crate) struct Results {
    events: u64,
    wa_events: f64,
    wa_bytes: f64,
    /// Bytes per event.
    log: f64,
    leaf: f64,
    index: f64,
    meta: f64,
    stored: f64,
    late_runs: u64,
}

/// One event of some device, in the order of arrival.
struct ArrivedEvent {
    stream: u32,
    time: i64,
    value: f64,
}

/// Every stream is a set of its own, started at another instant; all of them arrive at one
/// database.
fn arrivals(set: Paper, sizes: &Sizes) -> Vec<ArrivedEvent> {
    // Enough to fill the memory more than once.
    let each = 10 * sizes.points / STREAMS;
    let mut random = Random::new(sizes.seed);
    let mut all: Vec<(i64, ArrivedEvent)> = Vec::with_capacity(each * STREAMS);
    for stream in 0..STREAMS {
        let offset = random.below(set.interval_ms as u64 * MS as u64) as i64;
        let made = super::sets::Set::Paper(set).make(each, sizes.seed + 1 + stream as u64);
        // Values are a slow random walk in hundredths, in the order of time.
        let mut hundredths = 2_000 + random.below(500) as i64;
        let interval = set.interval_ms * MS;
        let last = made.generated.iter().max().map_or(0, |t| t / interval);
        let walk: Vec<f64> = (0..=last)
            .map(|_| {
                hundredths += random.below(7) as i64 - 3;
                hundredths as f64 / 100.0
            })
            .collect();
        all.extend(
            made.generated
                .iter()
                .zip(&made.delays)
                .map(|(time, delay)| {
                    let index = (time / interval) as usize;
                    let time = BEGIN + offset + time;
                    (
                        time + delay,
                        ArrivedEvent {
                            stream: stream as u32,
                            time,
                            value: walk.get(index).copied().unwrap_or(0.0),
                        },
                    )
                }),
        );
    }
    all.sort_unstable_by_key(|(arrived, event)| (*arrived, event.stream, event.time));
    all.into_iter().map(|(_, event)| event).collect()
}

pub(crate) fn run(bench: &Bench, sizes: &Sizes, targets: &mut Targets) -> Result<Results, Failure> {
    let m12 = *paper().last().ok_or("no M12")?;
    let events = arrivals(m12, sizes);
    let dir = bench.path("production");
    let db = Database::open(Options {
        durability: Durability::Written,
        ..Options::new(&dir)
    })?;
    let names: Vec<StreamName> = (0..STREAMS)
        .map(|s| StreamName::new("weather", [("station", s.to_string())]))
        .collect();
    for part in events.chunks(BATCH) {
        let mut times: Vec<Vec<i64>> = vec![Vec::new(); STREAMS];
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); STREAMS];
        for event in part {
            times[event.stream as usize].push(event.time);
            values[event.stream as usize].push(event.value);
        }
        let mut batch = Batch::new();
        for ((name, times), values) in names.iter().zip(times).zip(values) {
            if !times.is_empty() {
                let mut rows = StreamRows::new(name.clone());
                rows.times = times;
                batch.push(rows.with_column("temperature", Values::F64(values)));
            }
        }
        db.commit(batch)?;
    }
    db.flush()?;
    let stats = db.stats()?;
    let accepted = stats.events_accepted.max(1) as f64;
    let results = Results {
        events: stats.events_accepted,
        wa_events: stats.wa_events(),
        wa_bytes: stats.wa_bytes(),
        log: stats.bytes_log as f64 / accepted,
        leaf: stats.bytes_leaf as f64 / accepted,
        index: stats.bytes_index as f64 / accepted,
        meta: stats.bytes_meta as f64 / accepted,
        stored: stats.bytes_per_event(),
        late_runs: stats.late_runs,
    };
    if stats.events != events.len() as u64 {
        return Err(format!("{} events stored of {}", stats.events, events.len()).into());
    }
    db.close()?;
    drop(db);
    std::fs::remove_dir_all(dir)?;
    println!("\nM12 as {STREAMS} streams, defaults, on files, drained, batches of {BATCH} rows:\n");
    table::print(
        &[
            "events",
            "written / accepted",
            "bytes written / accepted",
            "log B/event",
            "leaf",
            "index",
            "meta",
            "stored B/event",
            "late runs",
        ],
        &[vec![
            results.events.to_string(),
            format!("{:.3}", results.wa_events),
            format!("{:.3}", results.wa_bytes),
            format!("{:.2}", results.log),
            format!("{:.2}", results.leaf),
            format!("{:.2}", results.index),
            format!("{:.3}", results.meta),
            format!("{:.2}", results.stored),
            results.late_runs.to_string(),
        ]],
    );
    let what = format!("M12 as {STREAMS} streams, defaults, drained");
    targets.add(
        format!("{what}: events written / accepted"),
        Bound::AtMost(1.15),
        "",
        results.wa_events,
    );
    targets.add(
        format!("{what}: bytes written / accepted"),
        Bound::AtMost(1.0),
        "",
        results.wa_bytes,
    );
    Ok(results)
}
