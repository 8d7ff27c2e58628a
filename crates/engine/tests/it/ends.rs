//! The first and the last value in a range, and the first and the last row, against a scan of it.

use crate::support::{Dice, START, small_options};
use headwater_engine::{
    AggregateSpec, Bins, Database, DeleteSpec, Duplicates, ReadStats, ScanSpec, Snapshot, TableSpec,
};
use headwater_io::{Env, ManualClock, NoThreads};
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;

type End = Option<(i64, Value)>;

/// The present values of a field in a range, as a scan gives them, and its rows' instants.
fn scanned(snapshot: &Snapshot, name: &StreamName, field: &str, range: ClosedRange) -> [End; 2] {
    let spec = ScanSpec {
        range,
        fields: Some(vec![field.to_owned()]),
        filters: Vec::new(),
        any_of: Vec::new(),
    };
    let (mut first, mut last) = (None, None);
    for chunk in snapshot.scan(name, &spec).unwrap() {
        let chunk = chunk.unwrap();
        for (row, time) in chunk.times.iter().enumerate() {
            if let Some(value) = chunk.columns[0].get(row) {
                last = Some((*time, value.to_owned()));
                first = first.or_else(|| last.clone());
            }
        }
    }
    [first, last]
}

fn scanned_rows(snapshot: &Snapshot, name: &StreamName, range: ClosedRange) -> [Option<i64>; 2] {
    let spec = ScanSpec {
        range,
        fields: Some(Vec::new()),
        filters: Vec::new(),
        any_of: Vec::new(),
    };
    let chunks = snapshot.scan(name, &spec).unwrap();
    let times: Vec<i64> = chunks.flat_map(|chunk| chunk.unwrap().times).collect();
    [times.first().copied(), times.last().copied()]
}

/// An integer may have become a float in a scan: rows of leaves that were written after their field
/// was widened share its columns, also for a snapshot that is older than that.
fn same(found: &End, expected: &End) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some((t, Value::I64(n))), Some((u, Value::F64(f)))) => {
            t == u && f.to_bits() == (*n as f64).to_bits()
        }
        (Some((t, v)), Some((u, w))) => t == u && v.as_ref().same_bits(&w.as_ref()),
        _ => false,
    }
}

/// Whether the ends of a field in a range are those of a scan, which must not meet damage.
pub(crate) fn check_ends(
    snapshot: &Snapshot,
    name: &StreamName,
    field: &str,
    range: ClosedRange,
) -> Result<(), String> {
    let what = format!("ends of {name}.{field} in {range:?}");
    let own = |end: headwater_engine::Result<Option<(Timestamp, Value)>>| {
        let end = end.map_err(|e| format!("{what}: {e}"))?;
        Ok::<End, String>(end.map(|(time, value)| (time.as_nanos(), value)))
    };
    let found = [
        own(snapshot.first_in(name, field, range))?,
        own(snapshot.last_in(name, field, range))?,
    ];
    let expected = scanned(snapshot, name, field, range);
    for (found, expected) in found.iter().zip(&expected) {
        if !same(found, expected) {
            let of = snapshot.field_type(name, field);
            return Err(format!("{what} ({of:?}): {found:?}, expected {expected:?}"));
        }
    }
    let rows = [
        snapshot.first_row_in(name, range),
        snapshot.last_row_in(name, range),
    ];
    let rows = rows.map(|row| row.map(|at| at.map(|at| at.as_nanos())));
    let expected = scanned_rows(snapshot, name, range);
    for (found, expected) in rows.into_iter().zip(expected) {
        let found = found.map_err(|e| format!("{what}: {e}"))?;
        if found != expected {
            return Err(format!("rows, {what}: {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

struct World {
    clock: Arc<ManualClock>,
    db: Database,
}

impl World {
    fn new() -> World {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
        let env = Env {
            threads: Arc::new(NoThreads),
            clock: Arc::clone(&clock) as Arc<_>,
            ..Env::memory()
        };
        let db = Database::open_in(env, small_options()).unwrap();
        World { clock, db }
    }

    fn table(&self, duplicates: Duplicates, raw_for: Option<Duration>) {
        let spec = TableSpec {
            duplicates,
            leaf_events: Some(64),
            raw_for,
            ..TableSpec::new("t")
        };
        self.db.create_table(&spec).unwrap();
    }

    fn write(&self, rows: impl IntoIterator<Item = (i64, &'static str, f64)>) {
        self.write_until(rows, None);
    }

    fn write_until(
        &self,
        rows: impl IntoIterator<Item = (i64, &'static str, f64)>,
        until: Option<i64>,
    ) {
        let mut batch = Batch::new();
        if let Some(until) = until {
            batch.expire_at(Timestamp::from_nanos(until));
        }
        for (time, field, value) in rows {
            batch
                .stream(&name())
                .row(time, [(field, value.into())])
                .unwrap();
        }
        self.db.commit(batch).unwrap();
    }

    /// Every field, in ranges that begin and end at some of the instants, and beside them.
    fn check(&self, instants: &[i64]) {
        let snapshot = self.db.snapshot().unwrap();
        let fields = snapshot.fields("t").unwrap();
        let mut dice = Dice::new(11);
        let mut ranges = vec![ClosedRange::ALL, ClosedRange::EMPTY];
        for _ in 0..40 {
            let mut at = || {
                let at = instants[dice.below(instants.len() as u64) as usize];
                at + dice.below(3) as i64 - 1
            };
            let (a, b) = (at(), at());
            ranges.push(ClosedRange::nanos(a.min(b), a.max(b)));
            ranges.push(ClosedRange::nanos(a, i64::MAX));
            ranges.push(ClosedRange::nanos(i64::MIN, a));
        }
        for range in ranges {
            for (field, _) in &fields {
                check_ends(&snapshot, &name(), field, range).unwrap();
            }
        }
    }
}

fn name() -> StreamName {
    StreamName::new("t", [("id", "1")])
}

/// Rows of `v` every second, and every 700th has `rare` instead.
fn rows(from: i64, count: i64) -> Vec<(i64, &'static str, f64)> {
    let field = |i: i64| if i % 700 == 350 { "rare" } else { "v" };
    (from..from + count)
        .map(|i| (START + i * SECOND, field(i), i as f64))
        .collect()
}

#[test]
fn ends_are_found_in_leaves_late_runs_and_memory() {
    let world = World::new();
    world.table(Duplicates::Last, None);
    let all = rows(0, 6_000);
    world.write(all.clone());
    world.db.flush().unwrap();
    let mut instants: Vec<i64> = all.iter().map(|(t, ..)| *t).step_by(97).collect();
    world.check(&instants);
    // Late rows before, between and behind what is stored, some of them in the place of others.
    let late = [-50, -1, 3, 1_000, 1_001, 2_500, 5_999].map(|i| START + i * SECOND + i % 2);
    world.write(late.map(|t| (t, "rare", 0.5)));
    world.write(late.map(|t| (t, "v", 1.5)));
    instants.extend(late);
    world.check(&instants);
    world.db.flush().unwrap();
    world.check(&instants);
    world.write(rows(6_000, 900));
    instants.push(START + 6_400 * SECOND);
    world.check(&instants);
}

#[test]
fn of_rows_of_one_instant_the_first_and_the_last_count() {
    let world = World::new();
    world.table(Duplicates::Keep, None);
    // Instants of more rows than a leaf holds.
    for part in 0..6 {
        let rows = (0..400).map(|i| {
            let at = START + (i / 100) * SECOND;
            (
                at,
                if i % 2 == 0 { "a" } else { "b" },
                f64::from(part * 1_000) + i as f64,
            )
        });
        world.write(rows.collect::<Vec<_>>());
        if part % 2 == 0 {
            world.db.flush().unwrap();
        }
        let instants: Vec<i64> = (0..4).map(|i| START + i * SECOND).collect();
        world.check(&instants);
    }
}

#[test]
fn what_is_deleted_is_no_end() {
    let world = World::new();
    world.table(Duplicates::Last, None);
    let all = rows(0, 3_000);
    world.write(all.clone());
    world.db.flush().unwrap();
    world.write(rows(3_000, 200));
    let mut instants: Vec<i64> = all.iter().map(|(t, ..)| *t).step_by(61).collect();
    for (from, to) in [(0, 130), (2_900, 3_100), (1_000, 2_000), (3_150, 9_999)] {
        let range = ClosedRange::nanos(START + from * SECOND, START + to * SECOND);
        let spec = DeleteSpec {
            table: "t".to_owned(),
            tags: Vec::new(),
            range,
        };
        world.db.delete(&spec).unwrap();
        instants.extend([range.first.as_nanos(), range.last.as_nanos()]);
        world.check(&instants);
    }
    world.db.flush().unwrap();
    world.check(&instants);
}

#[test]
fn what_has_expired_is_no_end() {
    let world = World::new();
    world.table(Duplicates::Last, None);
    for part in 0..12 {
        let until = START + (1 + part % 4) * 3_600 * SECOND;
        world.write_until(rows(part * 300, 300), (part != 5).then_some(until));
        if part % 3 == 0 {
            world.db.flush().unwrap();
        }
    }
    let instants: Vec<i64> = (0..3_600).step_by(83).map(|i| START + i * SECOND).collect();
    world.check(&instants);
    for _ in 0..5 {
        world.clock.advance(Duration::from_secs(3_600));
        world.check(&instants);
        let snapshot = world.db.snapshot().unwrap();
        let newest = snapshot.last(&name()).unwrap();
        for newest in newest {
            let [_, last] = scanned(&snapshot, &name(), &newest.field, ClosedRange::ALL);
            assert!(same(&Some((newest.time.as_nanos(), newest.value)), &last));
        }
    }
}

#[test]
fn where_only_aggregates_are_left_there_is_no_end() {
    let world = World::new();
    world.table(Duplicates::Last, Some(Duration::from_secs(86_400)));
    let day = 86_400;
    let every_minute = |from: i64| {
        let rows = (0..2 * 1_440).map(move |i| (START + (from + i * 60) * SECOND, "v", i as f64));
        rows.collect::<Vec<_>>()
    };
    world.write(every_minute(0));
    world.db.flush().unwrap();
    world.clock.advance(Duration::from_secs(5 * day));
    world.write(every_minute(4 * day as i64));
    world.db.flush().unwrap();
    world.db.compact().unwrap();
    let snapshot = world.db.snapshot().unwrap();
    let old = ClosedRange::nanos(START, START + day as i64 * SECOND / 2);
    let spec = AggregateSpec {
        range: old,
        bins: Bins::Whole,
        first_last: true,
    };
    let bins = snapshot.aggregate(&name(), "v", &spec).unwrap();
    assert!(bins[0].aggregate.count > 0, "it has been aged, not removed");
    assert_eq!((&bins[0].first, &bins[0].last), (&None, &None));
    assert_eq!(snapshot.first_in(&name(), "v", old).unwrap(), None);
    drop(snapshot);
    let instants: Vec<i64> = (0..6 * 24).map(|h| START + h * 3_600 * SECOND).collect();
    world.check(&instants);
}

#[test]
fn bins_of_many_leaves_have_the_ends_of_their_rows() {
    let world = World::new();
    world.table(Duplicates::Last, None);
    world.write((0..60_000).map(|i| (START + i * SECOND, "v", (i % 977) as f64)));
    world.db.flush().unwrap();
    world.write([
        (START + 30_000 * SECOND + 1, "v", -1.0),
        (START - 7, "v", -2.0),
    ]);
    let snapshot = world.db.snapshot().unwrap();
    for width in [20_000, 45_000, 1_000] {
        let spec = AggregateSpec {
            range: ClosedRange::nanos(START - 7, START + 59_990 * SECOND),
            bins: Bins::Every {
                width_ns: width * SECOND,
                origin_ns: START,
            },
            first_last: true,
        };
        for bin in snapshot.aggregate(&name(), "v", &spec).unwrap() {
            let number = (bin.start.as_nanos() - START).div_euclid(width * SECOND);
            let begin = START + number * width * SECOND;
            let range = ClosedRange::nanos(begin, begin + width * SECOND - 1);
            let range = range.intersect(&spec.range);
            let [first, last] = scanned(&snapshot, &name(), "v", range);
            let own = |end: Option<(Timestamp, Value)>| end.map(|(t, v)| (t.as_nanos(), v));
            assert!(same(&own(bin.first), &first), "{width}: {number}");
            assert!(same(&own(bin.last), &last), "{width}: {number}");
        }
    }
}

/// Few leaves are decoded, however long the stream is and however rare the field.
#[test]
fn little_is_read_for_an_end() {
    let world = World::new();
    world.table(Duplicates::Last, None);
    world.write((0..60_000).map(|i| {
        let is_rare = i == 777 || i == 59_000;
        (
            START + i * SECOND,
            if is_rare { "rare" } else { "v" },
            i as f64,
        )
    }));
    world.db.flush().unwrap();
    let snapshot = world.db.snapshot().unwrap();
    for (field, range, most) in [
        ("v", ClosedRange::ALL, 4),
        (
            "v",
            ClosedRange::nanos(START + 9_999 * SECOND, START + 44_444 * SECOND),
            8,
        ),
        ("rare", ClosedRange::ALL, 64),
    ] {
        for is_last in [false, true] {
            let before = ReadStats::by_this_thread().leaves;
            let end = match is_last {
                false => snapshot.first_in(&name(), field, range),
                true => snapshot.last_in(&name(), field, range),
            };
            assert!(end.unwrap().is_some());
            let decoded = ReadStats::by_this_thread().leaves - before;
            assert!(decoded <= most, "{field} {is_last}: {decoded} leaves");
        }
    }
}
