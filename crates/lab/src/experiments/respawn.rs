//! The RESPAWN paper's store of one channel (rows ): a million points in
//! batches of a thousand, and 1,024 points read at random places; ours and SQLite tuned.
//!
//! The channel is a sensor with one value a second. All that is written is read back and compared.

use crate::baselines::{
    Headwater, Points, Sqlite, Store, Survival, Window, options, point_batch, stream_names,
};
use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, Rounds, Targets, time_round,
    time_round_with_drain, turns,
};
use crate::machine::SyncProbe;
use crate::table;
use headwater::{Database, Stats};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Points of the channel.
    #[arg(long, default_value_t = 1_000_000)]
    points: usize,
    /// Points of a batch.
    #[arg(long, default_value_t = 1_000)]
    batch: usize,
    /// Reads of a round.
    #[arg(long, default_value_t = 200)]
    reads: usize,
}

/// Points of a read.
const READ: usize = 1_024;
const BEGIN: i64 = 1_700_000_000;
/// Batches on their way at once.
const IN_FLIGHT: usize = 8;

#[derive(Serialize)]
struct Results {
    ingest: Vec<Rounds>,
    reads: Vec<Rounds>,
    sync_median_us: f64,
    /// All bytes written to the medium, and the segments at the end.
    bytes_written: u64,
    bytes_stored: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("respawn", &arguments.common)?;
    let seconds: Vec<i64> = (0..arguments.points as i64).map(|i| BEGIN + i).collect();
    let mut dice = Random::new(1);
    let mut hundredths = 2_000i64;
    let values: Vec<f64> = (0..arguments.points)
        .map(|_| {
            hundredths += dice.below(11) as i64 - 5;
            hundredths as f64 / 100.0
        })
        .collect();
    let channel = Channel {
        seconds,
        values,
        batch: arguments.batch.max(1),
    };
    let probe = RefCell::new(SyncProbe::new(bench.path("probe"))?);
    let written = Cell::new((0, 0));
    let ingest = ingest(&bench, &channel, &probe, &written)?;
    let reads = reads(&bench, &channel, arguments.reads)?;
    let (bytes_written, bytes_stored) = written.get();
    let results = Results {
        ingest,
        reads,
        sync_median_us: probe.borrow().median_us(),
        bytes_written,
        bytes_stored,
    };
    print(&results);
    let mut targets = Targets::default();
    judge(&results, &mut targets)?;
    bench.finish(&results, &targets)
}

struct Channel {
    seconds: Vec<i64>,
    values: Vec<f64>,
    batch: usize,
}

impl Channel {
    fn batches(&self) -> impl Iterator<Item = (&[i64], &[f64])> {
        self.seconds
            .chunks(self.batch)
            .zip(self.values.chunks(self.batch))
    }

    fn write_all(&self, store: &mut dyn Store) -> Result<u64, Failure> {
        for (seconds, values) in self.batches() {
            store.write(&Window {
                seconds,
                values: &[values],
            })?;
        }
        Ok(self.seconds.len() as u64)
    }

    /// Our database with several batches in flight; waits for the oldest ticket when the limit is
    /// reached.
    fn write_flying(&self, db: &Database) -> Result<u64, Failure> {
        let names = stream_names(1);
        let mut flying = VecDeque::with_capacity(IN_FLIGHT);
        for (seconds, values) in self.batches() {
            if flying.len() == IN_FLIGHT {
                wait(flying.pop_front())?;
            }
            let window = Window {
                seconds,
                values: &[values],
            };
            flying.push_back(db.write(point_batch(&names, &window))?);
        }
        while !flying.is_empty() {
            wait(flying.pop_front())?;
        }
        Ok(self.seconds.len() as u64)
    }

    fn check(&self, store: &mut dyn Store) -> Result<(), Failure> {
        let mut found = Points::default();
        let last = BEGIN + self.seconds.len() as i64;
        store.read(&[0], BEGIN, last, &mut found)?;
        if found.seconds == self.seconds && found.values == self.values {
            Ok(())
        } else {
            Err(format!("{} points came back, or others", found.seconds.len()).into())
        }
    }
}

fn wait(ticket: Option<headwater::Ticket>) -> Result<(), Failure> {
    match ticket.map(headwater::Ticket::wait).transpose()? {
        Some(written) if !written.refused.is_empty() => Err("rows were refused".into()),
        _ => Ok(()),
    }
}

/// Candidates of R-3 by name.
const ONE_IN_FLIGHT: &str = "headwater, synced, one in flight";
const EIGHT: &str = "headwater, synced, eight in flight";
const WRITTEN: &str = "headwater, unsynced";
const SQLITE_SYNCED: &str = "sqlite tuned, synced";
const SQLITE_UNSYNCED: &str = "sqlite tuned, unsynced";

fn ingest(
    bench: &Bench,
    channel: &Channel,
    probe: &RefCell<SyncProbe>,
    written: &Cell<(u64, u64)>,
) -> Result<Vec<Rounds>, Failure> {
    let sqlite = |name, survives| {
        Candidate::new(name, move |_| {
            let dir = bench.path("sqlite");
            let mut store = Sqlite::open(&dir, survives)?;
            let one = time_round_with_drain(&mut store, |s| channel.write_all(s), Store::drain)?;
            channel.check(&mut store)?;
            drop(store);
            std::fs::remove_dir_all(dir)?;
            probe.borrow_mut().sample(8)?;
            Ok(one)
        })
    };
    let ours = |name, survives, flying: bool| {
        Candidate::new(name, move |_| {
            let dir = bench.path("headwater");
            let mut db = Database::open(options(&dir, survives))?;
            let mut syncs = 0;
            let mut one = time_round_with_drain(
                &mut db,
                |db| {
                    let points = if flying {
                        channel.write_flying(db)?
                    } else {
                        channel.write_all(&mut Headwater::with(db.clone(), 1))?
                    };
                    syncs = db.stats()?.log_syncs;
                    Ok(points)
                },
                |db| Ok(db.flush()?),
            )?;
            one.syncs = Some(syncs);
            channel.check(&mut Headwater::with(db.clone(), 1))?;
            let stats = db.stats()?;
            written.set((bytes_written(&stats), stats.segment_bytes));
            db.close()?;
            drop(db);
            std::fs::remove_dir_all(dir)?;
            Ok(one)
        })
    };
    turns(
        bench.rounds(),
        vec![
            ours(ONE_IN_FLIGHT, Survival::PowerCut, false),
            ours(EIGHT, Survival::PowerCut, true),
            ours(WRITTEN, Survival::Process, false),
            sqlite(SQLITE_SYNCED, Survival::PowerCut),
            sqlite(SQLITE_UNSYNCED, Survival::Process),
        ],
    )
}

/// Bytes of every kind written to the medium.
fn bytes_written(stats: &Stats) -> u64 {
    stats.bytes_log + stats.bytes_leaf + stats.bytes_index + stats.bytes_meta
}

/// Candidates of R-1 by name.
const COLD: &str = "headwater, cold";
const CACHED: &str = "headwater, cached";
const SQLITE_COLD: &str = "sqlite tuned, cold";
const SQLITE_CACHED: &str = "sqlite tuned, cached";

/// cold means that the store was just opened and each place is read once, from the system's
/// cache of the file; cached, that the places were read before.
fn reads(bench: &Bench, channel: &Channel, reads: usize) -> Result<Vec<Rounds>, Failure> {
    let (ours, theirs) = (bench.path("headwater"), bench.path("sqlite"));
    {
        let mut store = Headwater::open(&ours, 1, Survival::Process)?;
        channel.write_all(&mut store)?;
        store.drain()?;
        let mut store = Sqlite::open(&theirs, Survival::Process)?;
        channel.write_all(&mut store)?;
        store.drain()?;
    }
    let room = channel.seconds.len().saturating_sub(READ).max(1);
    // Disjoint positions, in random order, away from the borders of leaves: no cold read touches a
    // leaf that another one read.
    let stride = (room / reads.max(1)).max(1);
    let mut places: Vec<usize> = (0..reads).map(|i| (i * stride + i * 7) % room).collect();
    Random::new(5).shuffle(&mut places);
    let few = places.get(..places.len().min(8)).unwrap_or_default();
    let candidate = |name, cold: bool, open: Box<dyn Fn() -> Result<Box<dyn Store>, Failure>>| {
        let places = if cold { places.as_slice() } else { few };
        Candidate::new(name, move |_| {
            let mut store = open()?;
            let mut found = Points::default();
            // Opens files; a cached candidate warms its places up.
            store.read(&[0], BEGIN, BEGIN, &mut found)?;
            if !cold {
                for place in places {
                    read_one(channel, store.as_mut(), *place, &mut found)?;
                }
            }
            let times = if cold {
                1
            } else {
                (reads / few.len().max(1)).max(1)
            };
            time_round(|| {
                for _ in 0..times {
                    for place in places {
                        read_one(channel, store.as_mut(), *place, &mut found)?;
                    }
                }
                Ok((times * places.len()) as u64)
            })
        })
    };
    let open_ours = |dir: std::path::PathBuf| -> Box<dyn Fn() -> Result<Box<dyn Store>, Failure>> {
        Box::new(move || Ok(Box::new(Headwater::open(&dir, 1, Survival::Process)?)))
    };
    let open_theirs =
        |dir: std::path::PathBuf| -> Box<dyn Fn() -> Result<Box<dyn Store>, Failure>> {
            Box::new(move || Ok(Box::new(Sqlite::open(&dir, Survival::Process)?)))
        };
    turns(
        bench.rounds(),
        vec![
            candidate(COLD, true, open_ours(ours.clone())),
            candidate(CACHED, false, open_ours(ours)),
            candidate(SQLITE_COLD, true, open_theirs(theirs.clone())),
            candidate(SQLITE_CACHED, false, open_theirs(theirs)),
        ],
    )
}

fn read_one(
    channel: &Channel,
    store: &mut dyn Store,
    place: usize,
    found: &mut Points,
) -> Result<(), Failure> {
    let begin = BEGIN + place as i64;
    found.clear();
    store.read(&[0], begin, begin + READ as i64 - 1, found)?;
    let end = (place + READ).min(channel.values.len());
    if channel.values.get(place..end) == Some(&found.values) {
        Ok(())
    } else {
        Err(format!("other points at {place}").into())
    }
}

fn print(results: &Results) {
    let rows: Vec<Vec<String>> = results
        .ingest
        .iter()
        .map(|r| {
            vec![
                r.name.clone(),
                format!("{:.2}", r.per_second() / 1e6),
                r.spread(),
                format!("{:.3}", r.cpu_per_million()),
                format!("{:.2}", r.drained().per_second() / 1e6),
                format!("{:.3}", r.drained().cpu_per_million()),
                r.syncs_per_operation()
                    .map_or("—".to_owned(), |s| format!("{:.2}", s * 1e3)),
                format!("{:.0} µs", results.sync_median_us),
            ]
        })
        .collect();
    table::print(
        &[
            "ingest",
            "million points/s",
            "spread",
            "CPU s per million",
            "drained: million points/s",
            "CPU s per million",
            "syncs per 1,000 points",
            "sync median",
        ],
        &rows,
    );
    println!(
        "\nall bytes written {}, final store {}\n",
        results.bytes_written, results.bytes_stored
    );
    let rows: Vec<Vec<String>> = results
        .reads
        .iter()
        .map(|r| vec![r.name.clone(), r.time(), r.spread()])
        .collect();
    table::print(&["1,024 points at random", "a read", "spread"], &rows);
}

fn judge(results: &Results, targets: &mut Targets) -> Result<(), Failure> {
    let find = |list: &[Rounds], name: &str| {
        list.iter()
            .find(|r| r.name == name)
            .cloned()
            .ok_or_else(|| Failure::from(format!("no {name}")))
    };
    let sync = results.sync_median_us;
    let synced = find(&results.ingest, SQLITE_SYNCED)?;
    let unsynced = find(&results.ingest, SQLITE_UNSYNCED)?;
    for (name, rival, wanted) in [
        (ONE_IN_FLIGHT, &synced, 5.0),
        (EIGHT, &synced, 8.0),
        (WRITTEN, &unsynced, 10.0),
    ] {
        let ours = find(&results.ingest, name)?;
        let what = format!("1 M points in 1K batches, {name}, faster than SQLite");
        let (bound, ratio) = (Bound::AtLeast(wanted), rival.times_of(&ours));
        if name == ONE_IN_FLIGHT {
            targets.add_if_fast_sync(what, bound, " ×", ratio, sync);
        } else {
            targets.add(what, bound, " ×", ratio);
        }
    }
    targets.add(
        "all bytes written, of the final store",
        Bound::AtMost(2.3),
        " ×",
        results.bytes_written as f64 / results.bytes_stored.max(1) as f64,
    );
    for (name, rival, milliseconds, wanted) in [
        (COLD, SQLITE_COLD, 0.045, 2.5),
        (CACHED, SQLITE_CACHED, 0.01, 10.0),
    ] {
        let ours = find(&results.reads, name)?;
        let what = format!("1,024-point random read, {name}");
        targets.add(
            what.clone(),
            Bound::AtMost(milliseconds),
            " ms",
            ours.seconds() * 1e3,
        );
        targets.add(
            format!("{what}, faster than SQLite"),
            Bound::AtLeast(wanted),
            " ×",
            find(&results.reads, rival)?.times_of(&ours),
        );
    }
    Ok(())
}
