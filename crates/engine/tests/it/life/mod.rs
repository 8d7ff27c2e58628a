//! How data ends: deletes, drops, retention, aging; and how much compaction may write.

mod clock;
mod crash;
mod ended;
mod expiry;
mod older;

use crate::support::{START, small_options};
use headwater_engine::{
    AggregateSpec, Bins, Database, DeleteSpec, Duplicates, ErrorKind, Options, REFUSED_ENDED,
    ScanSpec, Snapshot, TableChange, TableSpec,
};
use headwater_io::{Env, ManualClock, NoThreads};
use headwater_types::{Batch, ClosedRange, Level, StreamName, Timestamp, Value};
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const DAY: Duration = Duration::from_secs(86_400);

struct World {
    env: Env,
    clock: Arc<ManualClock>,
    options: Options,
    open: Option<Database>,
}

impl World {
    fn new(options: Options) -> World {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
        let env = Env {
            threads: Arc::new(NoThreads),
            clock: Arc::clone(&clock) as Arc<_>,
            ..Env::memory()
        };
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        World {
            env,
            clock,
            options,
            open: Some(db),
        }
    }

    fn db(&self) -> &Database {
        self.open.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.open.take().unwrap().close().unwrap();
        self.open = Some(Database::open_in(self.env.clone(), self.options.clone()).unwrap());
    }

    fn assert_sound(mut self) {
        self.open.take().unwrap().close().unwrap();
        let report = headwater_engine::check(self.env.clone(), self.options.clone()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.damages);
    }
}

fn stream(id: i64) -> StreamName {
    StreamName::new("m", [("id", id.to_string())])
}

/// One event a second from `from` on.
fn write(db: &Database, name: &StreamName, from: i64, count: i64) {
    for start in (0..count).step_by(1000) {
        let mut batch = Batch::new();
        let rows = batch.stream(name);
        for i in start..(start + 1000).min(count) {
            let value = Value::F64((i % 100) as f64);
            rows.row(from + i * SECOND, [("v", value)]).unwrap();
        }
        let written = db.commit(batch).unwrap();
        assert!(written.refused.is_empty(), "{:?}", written.refused);
    }
}

fn times(snapshot: &Snapshot, name: &StreamName) -> Vec<i64> {
    let scan = snapshot.scan(name, &ScanSpec::default()).unwrap();
    scan.flat_map(|chunk| chunk.unwrap().times).collect()
}

fn count(snapshot: &Snapshot, name: &StreamName, range: ClosedRange) -> u64 {
    let spec = AggregateSpec {
        range,
        bins: Bins::Whole,
        first_last: false,
    };
    let bins = snapshot.aggregate(name, "v", &spec).unwrap();
    bins.iter().map(|b| b.aggregate.count).sum()
}

fn delete_all(db: &Database, range: ClosedRange) {
    let spec = DeleteSpec {
        table: "m".into(),
        tags: Vec::new(),
        range,
    };
    db.delete(&spec).unwrap();
}

#[test]
fn a_delete_acts_on_what_came_before_it_only() {
    let world = World::new(small_options());
    let (db, name) = (world.db(), stream(1));
    write(db, &name, START, 100);
    db.flush().unwrap();
    write(db, &name, START + 100 * SECOND, 100);
    let before = db.snapshot().unwrap();
    let range = ClosedRange::nanos(START + 50 * SECOND, START + 149 * SECOND);
    delete_all(db, range);
    // Into the deleted range, after the delete.
    write(db, &name, START + 80 * SECOND, 1);
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let after = db.snapshot().unwrap();
        assert_eq!(times(&after, &name).len(), 101, "flushed: {flushed}");
        assert_eq!(count(&after, &name, ClosedRange::ALL), 101);
        assert_eq!(count(&after, &name, range), 1);
        assert_eq!(times(&before, &name).len(), 200);
        assert_eq!(count(&before, &name, ClosedRange::ALL), 200);
    }
    drop(before);
    assert_eq!(db.stats().unwrap().events, 101);
    world.assert_sound();
}

#[test]
fn a_stream_that_is_dropped_and_written_again_starts_anew() {
    let mut world = World::new(small_options());
    write(world.db(), &stream(1), START, 50);
    write(world.db(), &stream(2), START, 50);
    world.db().flush().unwrap();
    let before = world.db().snapshot().unwrap();
    let tags = [("id".to_owned(), "1".to_owned())];
    assert_eq!(world.db().drop_streams("m", &tags).unwrap(), 1);
    let error = world.db().snapshot().unwrap().last(&stream(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    write(world.db(), &stream(1), START + 10 * SECOND, 5);
    // The older snapshot goes on with the stream it knew.
    assert_eq!(times(&before, &stream(1)).len(), 50);
    assert_eq!(before.streams("m", &[]).unwrap().len(), 2);
    drop(before);
    for _ in 0..2 {
        let now = world.db().snapshot().unwrap();
        assert_eq!(now.streams("m", &[]).unwrap().len(), 2);
        assert_eq!(times(&now, &stream(1)).len(), 5);
        assert_eq!(times(&now, &stream(2)).len(), 50);
        drop(now);
        assert_eq!(world.db().stats().unwrap().streams, 2);
        world.reopen();
    }
    world.assert_sound();
}

#[test]
fn streams_are_dropped_by_name_and_no_others() {
    let mut world = World::new(small_options());
    let (bare, one, both) = (
        StreamName::new("m", [("", ""); 0]),
        StreamName::new("m", [("id", "1")]),
        StreamName::new("m", [("id", "1"), ("more", "x")]),
    );
    for name in [&bare, &one, &both] {
        write(world.db(), name, START, 20);
    }
    let names = [
        one.clone(),
        bare.clone(),
        StreamName::new("m", [("id", "9")]),
    ];
    assert_eq!(world.db().drop_named_streams("m", &names).unwrap(), 2);
    assert_eq!(world.db().drop_named_streams("m", &names).unwrap(), 0);
    let other = StreamName::new("n", [("id", "1")]);
    let error = world.db().drop_named_streams("m", &[other]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for _ in 0..2 {
        let now = world.db().snapshot().unwrap();
        assert_eq!(now.streams("m", &[]).unwrap(), std::slice::from_ref(&both));
        assert_eq!(times(&now, &both).len(), 20);
        drop(now);
        world.reopen();
    }
    world.assert_sound();
}

#[test]
fn a_dropped_table_frees_its_name_and_its_space() {
    let mut world = World::new(small_options());
    world
        .db()
        .create_table(&TableSpec {
            duplicates: Duplicates::Keep,
            ..TableSpec::new("m")
        })
        .unwrap();
    write(world.db(), &stream(1), START, 3000);
    world.db().flush().unwrap();
    write(world.db(), &stream(2), START, 30);
    let before = world.db().snapshot().unwrap();
    world.db().drop_table("m").unwrap();
    assert_eq!(
        world.db().drop_table("m").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(world.db().tables().is_empty());
    assert_eq!(times(&before, &stream(1)).len(), 3000);
    drop(before);
    world.db().flush().unwrap();
    let stats = world.db().stats().unwrap();
    assert_eq!(
        (stats.events, stats.partitions, stats.segment_bytes),
        (0, 0, 0)
    );
    write(world.db(), &stream(2), START, 3);
    world.reopen();
    let table = &world.db().tables()[0];
    assert_eq!((table.duplicates, table.streams), (Duplicates::Last, 1));
    assert_eq!(times(&world.db().snapshot().unwrap(), &stream(2)).len(), 3);
    world.reopen();
    world.assert_sound();
}

#[test]
fn what_retention_has_ended_is_gone_and_its_cut_follows_the_setting() {
    let mut world = World::new(small_options());
    world
        .db()
        .create_table(&TableSpec {
            retention: Some(DAY),
            ..TableSpec::new("m")
        })
        .unwrap();
    // Two days, an event a minute.
    let name = stream(1);
    let minutes = |world: &World, from: i64, count: i64| {
        let mut batch = Batch::new();
        let rows = batch.stream(&name);
        for i in 0..count {
            let at = START + (from + i) * 60 * SECOND;
            rows.row(at, [("v", Value::F64(i as f64))]).unwrap();
        }
        world.db().commit(batch).unwrap()
    };
    minutes(&world, 0, 1440);
    world.db().flush().unwrap();
    let before = world.db().snapshot().unwrap();
    world.clock.advance(DAY / 2 * 3);
    minutes(&world, 1440, 720);
    world.db().compact().unwrap();
    assert_eq!(
        times(&before, &name).len(),
        1440,
        "an older snapshot keeps what it saw"
    );
    drop(before);
    let cut = world.db().tables()[0].cut.unwrap().as_nanos();
    let oldest_kept = START + 720 * 60 * SECOND;
    assert!(
        cut <= oldest_kept && cut > oldest_kept - 3600 * SECOND,
        "{cut}"
    );
    for _ in 0..2 {
        let now = world.db().snapshot().unwrap();
        let found = times(&now, &name);
        assert!(
            found[0] >= cut && found[0] < cut + 60 * SECOND,
            "{}",
            found[0]
        );
        assert_eq!(found.len() as u64, count(&now, &name, ClosedRange::ALL));
        let level = Level::clamped(16);
        let bucket = level.bucket_of(Timestamp::from_nanos(cut));
        let tile = now.tile(&name, "v", level, bucket.div_euclid(512)).unwrap();
        assert_eq!(
            tile.iter().map(|(_, a)| a.count).sum::<u64>(),
            found.len() as u64
        );
        drop(now);
        world.reopen();
    }
    // Whole partitions before the cut have gone.
    let stats = world.db().stats().unwrap();
    assert!(stats.events < 1700, "{} events", stats.events);
    let late = minutes(&world, 0, 2);
    assert_eq!(late.accepted, 0);
    assert_eq!(late.refused[0].code, REFUSED_ENDED);
    // A shorter retention moves the cut at once, a longer one back: what is gone stays so, and
    // older rows can be written again.
    let set = |world: &World, retention| {
        let change = TableChange {
            retention: Some(retention),
            ..TableChange::default()
        };
        let altered = world.db().alter_table("m", &change).unwrap();
        world.db().compact().unwrap();
        let cut = world.db().tables()[0].cut;
        assert_eq!(altered.cut, cut, "in force when the call returns");
        cut.map(Timestamp::as_nanos)
    };
    assert!(set(&world, Some(DAY / 4)).unwrap() > cut);
    let left = times(&world.db().snapshot().unwrap(), &name).len();
    assert!(left < 1440);
    let now = START + 36 * 3600 * SECOND;
    let hundred_days = 100 * 86_400 * SECOND;
    let longer = set(&world, Some(DAY * 100)).unwrap();
    assert!(longer <= now - hundred_days && longer > now - hundred_days / 10 * 11);
    assert!(times(&world.db().snapshot().unwrap(), &name).len() < 1440);
    assert_eq!(minutes(&world, 0, 2).accepted, 2);
    assert_eq!(set(&world, None), None);
    assert_eq!(minutes(&world, -1_000_000, 2).accepted, 2);
    world.assert_sound();
}

#[test]
fn a_clock_far_in_the_future_ends_nothing_by_being_steady_alone() {
    let world = World::new(small_options());
    let spec = TableSpec {
        retention: Some(DAY),
        ..TableSpec::new("m")
    };
    world.db().create_table(&spec).unwrap();
    write(world.db(), &stream(1), START, 100);
    world.db().compact().unwrap();
    world
        .clock
        .set(Timestamp::from_nanos(4_040_000_000 * SECOND));
    world.db().compact().unwrap();
    assert_eq!(
        times(&world.db().snapshot().unwrap(), &stream(1)).len(),
        100
    );
    world.clock.advance(Duration::from_secs(3601));
    world.db().compact().unwrap();
    assert_eq!(
        times(&world.db().snapshot().unwrap(), &stream(1)).len(),
        100
    );
    // A day that has passed is a day, whatever the clock says.
    world.clock.advance(DAY * 2);
    world.db().compact().unwrap();
    assert!(times(&world.db().snapshot().unwrap(), &stream(1)).is_empty());
    world.assert_sound();
}

/// Tiles of a level over the first days, as text that shows every bit that must stay.
fn tiles(snapshot: &Snapshot, name: &StreamName, level: i32) -> Vec<String> {
    let level = Level::clamped(level);
    let first = level
        .bucket_of(Timestamp::from_nanos(START))
        .div_euclid(512);
    let last = level
        .bucket_of(Timestamp::from_nanos(START + 3 * 86_400 * SECOND))
        .div_euclid(512);
    (first..=last)
        .flat_map(|offset| snapshot.tile(name, "v", level, offset).unwrap())
        .map(|(bucket, a)| {
            format!(
                "{bucket} {} {:?} {} {}",
                a.count, a.extremes, a.sum, a.time_sum
            )
        })
        .collect()
}

#[test]
fn aged_rows_leave_their_tiles() {
    let mut world = World::new(small_options());
    let spec = TableSpec {
        raw_for: Some(DAY),
        ..TableSpec::new("m")
    };
    world.db().create_table(&spec).unwrap();
    let (dense, sparse) = (stream(1), stream(2));
    write(world.db(), &dense, START, 2 * 86_400);
    for i in 0..20 {
        write(world.db(), &sparse, START + i * 7200 * SECOND, 1);
    }
    world.db().flush().unwrap();
    let levels = [9, 12, 16];
    let before: Vec<Vec<String>> = {
        let snapshot = world.db().snapshot().unwrap();
        levels
            .iter()
            .map(|l| tiles(&snapshot, &dense, *l))
            .collect()
    };
    let size_before = world.db().stats().unwrap().segment_bytes;
    world.clock.advance(DAY * 2);
    world.db().compact().unwrap();
    let aged_to = world.db().tables()[0].aged_to.unwrap().as_nanos();
    assert!(aged_to > START + 12 * 3600 * SECOND && aged_to <= START + 86_400 * SECOND);
    for _ in 0..2 {
        let snapshot = world.db().snapshot().unwrap();
        let rows = times(&snapshot, &dense);
        assert_eq!(rows[0], aged_to, "rows before it have gone");
        for (level, before) in levels.iter().zip(&before) {
            assert!(tiles(&snapshot, &dense, *level) == *before, "level {level}");
        }
        assert_eq!(count(&snapshot, &dense, ClosedRange::ALL), 2 * 86_400);
        assert_eq!(count(&snapshot, &sparse, ClosedRange::ALL), 20);
        // A range that ends inside of buckets takes those whose values came inside on average: off
        // by a bucket at most.
        for first_last in [false, true] {
            let spec = AggregateSpec {
                range: ClosedRange::ALL,
                bins: Bins::Every {
                    width_ns: 6 * 3600 * SECOND,
                    origin_ns: 0,
                },
                first_last,
            };
            let bins = snapshot.aggregate(&dense, "v", &spec).unwrap();
            let sum: u64 = bins.iter().map(|b| b.aggregate.count).sum();
            assert_eq!(sum, 2 * 86_400);
            assert_eq!(bins.last().unwrap().last.is_some(), first_last);
        }
        let half = ClosedRange::nanos(START, START + 3 * 3600 * SECOND);
        let found = count(&snapshot, &dense, half);
        assert!((10_000..11_600).contains(&found), "{found}");
        drop(snapshot);
        world.reopen();
    }
    let stats = world.db().stats().unwrap();
    assert!(
        stats.segment_bytes < size_before * 3 / 4,
        "{} of {size_before}",
        stats.segment_bytes
    );
    let mut batch = Batch::new();
    let row = [("v", Value::F64(1.0))];
    batch.stream(&dense).row(START + SECOND, row).unwrap();
    let refused = world.db().commit(batch).unwrap().refused;
    assert_eq!(refused[0].code, REFUSED_ENDED);
    // Deletes take whole buckets out of what is aged, and everything when they name everything.
    delete_all(
        world.db(),
        ClosedRange::nanos(START + 3600 * SECOND, START + 7200 * SECOND),
    );
    world.db().compact().unwrap();
    let snapshot = world.db().snapshot().unwrap();
    let left = count(&snapshot, &dense, ClosedRange::ALL);
    assert!(
        (2 * 86_400 - 3601..=2 * 86_400 - 3000).contains(&left),
        "{left}"
    );
    drop(snapshot);
    delete_all(world.db(), ClosedRange::nanos(i64::MIN, aged_to - 1));
    world.db().compact().unwrap();
    let snapshot = world.db().snapshot().unwrap();
    assert_eq!(
        count(&snapshot, &dense, ClosedRange::ALL),
        times(&snapshot, &dense).len() as u64
    );
    drop(snapshot);
    world.assert_sound();
}

/// How often the background rewrote a partition, by day, over three days with one opening each.
fn rewritings(daily: Option<u64>) -> Vec<usize> {
    let mut world = World::new(Options {
        compaction_bytes_per_day: daily,
        partition_target_bytes: 4 << 20,
        partition_bytes_max: 8 << 20,
        leaf_events: 2048,
        ..small_options()
    });
    let mut next = START;
    let mut by_day = Vec::new();
    for _ in 0..3 {
        let mut changes = 0;
        for round in 0..12 {
            let before = world.db().stats().unwrap().events_compaction;
            // Enough to use up the memory: without threads, the writer does what workers would do.
            write(world.db(), &stream(1), next, 35_000);
            next += 35_000 * SECOND;
            let after = world.db().stats().unwrap().events_compaction;
            changes += usize::from(after > before);
            if round == 6 {
                world.reopen();
            }
        }
        by_day.push(changes);
        world.clock.advance(DAY);
    }
    world.assert_sound();
    by_day
}

#[test]
fn compaction_keeps_to_its_daily_bytes() {
    let unlimited = rewritings(None);
    assert!(unlimited.iter().sum::<usize>() > 4, "{unlimited:?}");
    // The smallest limit leaves one a day.
    assert_eq!(rewritings(Some(1)), [1, 1, 1]);
}

#[test]
fn values_expire_each_with_its_write() {
    let mut world = World::new(small_options());
    let name = stream(1);
    let put = |world: &World, at: i64, fields: &[(&str, f64)], expires_in: Option<i64>| {
        let mut batch = Batch::new();
        if let Some(seconds) = expires_in {
            batch.expire_at(Timestamp::from_nanos(START + seconds * SECOND));
        }
        let row = fields.iter().map(|(k, v)| (*k, Value::F64(*v)));
        batch.stream(&name).row(START + at * SECOND, row).unwrap();
        world.db().commit(batch).unwrap();
    };
    put(&world, 1, &[("v", 1.0)], Some(100));
    put(&world, 2, &[("v", 2.0), ("w", 2.0)], Some(100));
    put(&world, 2, &[("w", 3.0)], None);
    put(&world, 3, &[("v", 3.0)], Some(200));
    put(&world, 3, &[("v", 4.0)], Some(50));
    put(&world, 4, &[("v", 5.0)], None);
    let before = world.db().snapshot().unwrap();
    let expected = [
        (0, vec![1, 2, 3, 4], 4),
        // The later write of 3 has expired; the earlier one does not come back.
        (50, vec![1, 2, 4], 3),
        // Of 2 only `w` is left, which a later write keeps for ever.
        (100, vec![2, 4], 1),
        (1000, vec![2, 4], 1),
    ];
    let seconds = |snapshot: &Snapshot| -> Vec<i64> {
        times(snapshot, &name)
            .iter()
            .map(|t| (t - START) / SECOND)
            .collect()
    };
    let mut at = 0;
    for (round, (after, rows, values)) in expected.into_iter().enumerate() {
        world.clock.advance(Duration::from_secs(after - at));
        at = after;
        for flushed in [false, true] {
            if flushed && round > 0 {
                world.db().compact().unwrap();
            }
            let now = world.db().snapshot().unwrap();
            assert_eq!(seconds(&now), rows, "after {after} s, flushed: {flushed}");
            assert_eq!(count(&now, &name, ClosedRange::ALL), values);
            let last = now.last(&name).unwrap();
            assert_eq!(last[0].time.as_nanos(), START + 4 * SECOND);
            assert_eq!(
                seconds(&before),
                [1, 2, 3, 4],
                "a snapshot keeps its instant"
            );
        }
        if round == 2 {
            assert_eq!(
                world.db().stats().unwrap().events,
                2,
                "they are gone from the files too"
            );
        }
    }
    drop(before);
    world.reopen();
    assert_eq!(seconds(&world.db().snapshot().unwrap()), [2, 4]);
    world.assert_sound();
}

#[test]
fn a_partition_all_of_whose_values_have_expired_is_removed() {
    let world = World::new(small_options());
    let mut batch = Batch::new();
    batch.expire_at(Timestamp::from_nanos(START + 100 * SECOND));
    for i in 0..500 {
        let row = [("v", Value::F64(i as f64))];
        batch
            .stream(&stream(1))
            .row(START + i * SECOND, row)
            .unwrap();
    }
    world.db().commit(batch).unwrap();
    world.db().flush().unwrap();
    assert!(world.db().stats().unwrap().segment_bytes > 0);
    world.clock.advance(Duration::from_secs(99));
    world.db().compact().unwrap();
    assert_eq!(
        times(&world.db().snapshot().unwrap(), &stream(1)).len(),
        500
    );
    world.clock.advance(Duration::from_secs(1));
    assert!(times(&world.db().snapshot().unwrap(), &stream(1)).is_empty());
    world.db().compact().unwrap();
    let stats = world.db().stats().unwrap();
    assert_eq!((stats.partitions, stats.segment_bytes), (0, 0));
    world.assert_sound();
}
