//! Versions of ranges, what streams hold, and pages of streams, against reading everything.

use crate::support::{Dice, Run, small_options};
use headwater_engine::{
    DataVersion, Database, DeleteSpec, FieldSpec, ScanSpec, Snapshot, Stretch, TableChange,
    TableSpec,
};
use headwater_io::MemoryFiles;
use headwater_types::{Batch, ClosedRange, Column, FieldType, StreamName, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

fn stream(id: u64) -> StreamName {
    StreamName::new("t", [("id", id.to_string())])
}

fn database() -> Database {
    let options = small_options();
    let run = Run::new(Arc::new(MemoryFiles::new()), &options);
    run.open().unwrap()
}

type Rows = Vec<(Vec<i64>, Vec<Column>)>;

fn rows(snapshot: &Snapshot, stream: &StreamName, range: ClosedRange) -> Rows {
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    let mut times = Vec::new();
    let mut values = Vec::new();
    for chunk in snapshot.scan(stream, &spec).unwrap() {
        let chunk = chunk.unwrap();
        times.extend(chunk.times);
        for (at, column) in chunk.columns.into_iter().enumerate() {
            if values.len() <= at {
                values.push(Column::new(column.field_type()));
            }
            values[at].extend_from(&column, 0..column.len());
        }
    }
    vec![(times, values)]
}

fn write(db: &Database, dice: &mut Dice, id: u64, newest: i64) {
    let mut batch = Batch::new();
    for _ in 0..dice.below(4) + 1 {
        let late = if dice.chance(20) {
            dice.below(900) as i64
        } else {
            0
        };
        let value = dice.below(1000) as i64;
        let time = newest - late + dice.below(3) as i64;
        batch
            .stream(&stream(id))
            .row(time, [("v", value.into())])
            .unwrap();
    }
    db.commit(batch).unwrap();
}

#[test]
fn equal_versions_have_equal_rows() {
    let db = database();
    let mut dice = Dice::new(11);
    let ranges = [
        ClosedRange::ALL,
        ClosedRange::nanos(0, 499),
        ClosedRange::nanos(1_000, 1_255),
        ClosedRange::nanos(2_000, i64::MAX),
    ];
    let mut seen: HashMap<(u64, usize, DataVersion), Rows> = HashMap::new();
    let mut held = Vec::new();
    let mut repeated = 0;
    for step in 0..1_500u64 {
        let newest = 2 * step as i64;
        match dice.below(40) {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 => held.push(db.snapshot().unwrap()),
            3 if held.len() > 2 => drop(held.remove(0)),
            4 if step > 100 => {
                let from = dice.below(step * 2) as i64;
                let delete = DeleteSpec {
                    table: "t".into(),
                    tags: vec![("id".into(), dice.below(3).to_string())],
                    range: ClosedRange::nanos(from, from + 40),
                };
                db.delete(&delete).unwrap();
            }
            5 if step == 700 || step > 1_400 => {
                let change = TableChange {
                    add_fields: vec![FieldSpec {
                        name: "v".into(),
                        field_type: FieldType::F64,
                    }],
                    ..TableChange::default()
                };
                db.alter_table("t", &change).unwrap();
            }
            _ => {
                let id = dice.below(3);
                write(&db, &mut dice, id, newest);
            }
        }
        if db.tables().is_empty() {
            continue;
        }
        let now = db.snapshot().unwrap();
        let snapshots = held.last().into_iter().chain([&now]);
        for snapshot in snapshots {
            let id = dice.below(3);
            if !snapshot
                .streams_after("t", None, 9)
                .unwrap_or_default()
                .contains(&stream(id))
            {
                continue;
            }
            for (at, range) in ranges.iter().enumerate() {
                let version = snapshot.version(&stream(id), range).unwrap().unwrap();
                let rows = rows(snapshot, &stream(id), *range);
                match seen.get(&(id, at, version)) {
                    Some(before) => {
                        assert_eq!(*before, rows, "step {step}, {range:?}");
                        repeated += 1;
                    }
                    None => drop(seen.insert((id, at, version), rows)),
                }
            }
        }
        for (at, range) in ranges.iter().enumerate() {
            // The quick way agrees with a snapshot, and knows every stream used since opening.
            let id = step % 3;
            if let Some(version) = db.quick_version(&stream(id), range) {
                let expected = now.version(&stream(id), range).unwrap().unwrap();
                assert_eq!(version, expected, "step {step}, {range:?}, {at}");
            } else {
                assert!(now.version(&stream(id), range).is_err(), "step {step}");
            }
        }
    }
    assert!(
        repeated > 3_000,
        "a version should outlive writes elsewhere: {repeated}"
    );
}

#[test]
fn writes_elsewhere_and_snapshots_leave_a_version_alone() {
    let db = database();
    let mut dice = Dice::new(3);
    for step in 0..200 {
        write(&db, &mut dice, 0, 1_000 + step);
    }
    db.flush().unwrap();
    let range = ClosedRange::nanos(1_050, 1_090);
    let version = db.quick_version(&stream(0), &range).unwrap();
    assert!(!version.is_closed);
    let memory = ClosedRange::nanos(5_010, 5_020);
    let mut before = None;
    for step in 0..50 {
        write(&db, &mut dice, 1, 1_000 + step);
        let mut newer = Batch::new();
        newer
            .stream(&stream(0))
            .row(5_000 + step, [("v", 1i64.into())])
            .unwrap();
        db.commit(newer).unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.version(&stream(0), &range).unwrap(), Some(version));
        assert_eq!(db.quick_version(&stream(0), &range), Some(version));
        // The same for what is still in memory, in a chunk that grows.
        let now = db.quick_version(&stream(0), &memory);
        assert_eq!(
            now == before,
            step < 10 && step > 0 || step > 20,
            "step {step}"
        );
        before = now;
    }
    assert!(db.quick_version(&stream(77), &range).is_none());
    db.close().unwrap();
    assert!(db.quick_version(&stream(0), &range).is_none());
}

#[test]
fn a_range_that_takes_no_writes_is_closed_and_expiring_values_have_no_version() {
    let options = small_options();
    let run = Run::new(Arc::new(MemoryFiles::new()), &options);
    let db = run.open().unwrap();
    let mut spec = TableSpec::new("t");
    spec.retention = Some(Duration::from_secs(86_400));
    db.create_table(&spec).unwrap();
    let now = run.env.clock.now().as_nanos();
    let mut batch = Batch::new();
    batch
        .stream(&stream(0))
        .row(now, [("v", 1i64.into())])
        .unwrap();
    db.commit(batch).unwrap();
    db.flush().unwrap();
    let info = db.tables().remove(0);
    let cut = info.cut.map_or(i64::MIN, Timestamp::as_nanos);
    let closed = |last| {
        let range = ClosedRange::nanos(i64::MIN, last);
        db.quick_version(&stream(0), &range).unwrap().is_closed
    };
    assert!(!closed(now));
    if cut > i64::MIN {
        assert!(closed(cut - 1) && !closed(cut));
    }
    let mut batch = Batch::new();
    batch
        .stream(&stream(0))
        .row(now + 1, [("v", 1i64.into())])
        .unwrap();
    batch.expire_at(Timestamp::from_nanos(now + 1_000_000_000));
    db.commit(batch).unwrap();
    assert_eq!(db.quick_version(&stream(0), &ClosedRange::ALL), None);
    let snapshot = db.snapshot().unwrap();
    assert_eq!(
        snapshot.version(&stream(0), &ClosedRange::ALL).unwrap(),
        None
    );
}

#[test]
fn a_stream_is_described_without_its_rows() {
    let db = database();
    let mut dice = Dice::new(5);
    for step in 0..600 {
        write(&db, &mut dice, step % 4, 1_000 + 3 * step as i64);
        if step % 150 == 149 {
            db.flush().unwrap();
        }
    }
    let delete = DeleteSpec {
        table: "t".into(),
        tags: vec![("id".into(), "1".into())],
        range: ClosedRange::ALL,
    };
    db.delete(&delete).unwrap();
    write(&db, &mut dice, 1, 9_000);
    // Equal times wait to be merged, deletes to be carried out: after that the count is exact.
    db.compact().unwrap();
    let snapshot = db.snapshot().unwrap();
    for id in 0..4 {
        let all = rows(&snapshot, &stream(id), ClosedRange::ALL);
        let times = &all[0].0;
        let info = snapshot.stream_info(&stream(id)).unwrap();
        assert_eq!(info.first.map(Timestamp::as_nanos), times.first().copied());
        assert_eq!(info.last.map(Timestamp::as_nanos), times.last().copied());
        assert_eq!(info.rows, times.len() as u64, "stream {id}");
    }
    assert!(snapshot.stream_info(&stream(9)).is_err());
    // A snapshot does not count what comes later.
    let before = snapshot.stream_info(&stream(0)).unwrap();
    write(&db, &mut dice, 0, 100_000);
    assert_eq!(snapshot.stream_info(&stream(0)).unwrap(), before);
}

#[test]
fn streams_come_in_pages() {
    let db = database();
    let add = |range: std::ops::Range<u64>| {
        let mut batch = Batch::new();
        for id in range {
            batch
                .stream(&stream(id))
                .row(1, [("v", 1i64.into())])
                .unwrap();
        }
        let mut other = StreamName::new("a", [("id", "1")]);
        batch.stream(&other).row(1, [("v", 1i64.into())]).unwrap();
        other = StreamName::new("z", [("id", "1")]);
        batch.stream(&other).row(1, [("v", 1i64.into())]).unwrap();
        db.commit(batch).unwrap();
    };
    // Some in the metadata, some not yet there, some dropped of both.
    add(0..120);
    db.flush().unwrap();
    add(120..200);
    let old = db.snapshot().unwrap();
    for id in ["7", "150"] {
        db.drop_streams("t", &[("id".into(), id.into())]).unwrap();
    }
    add(150..151);
    let walk = |snapshot: &Snapshot, limit: usize| {
        let mut all: Vec<StreamName> = Vec::new();
        loop {
            let page = snapshot.streams_after("t", all.last(), limit).unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    };
    for snapshot in [&old, &db.snapshot().unwrap()] {
        let mut expected = snapshot.streams("t", &[]).unwrap();
        expected.sort();
        for limit in [1, 7, 64, 1_000] {
            let mut found = walk(snapshot, limit);
            assert!(found.iter().zip(found.iter().skip(1)).all(|(a, b)| a != b));
            found.sort();
            assert_eq!(found, expected, "pages of {limit}");
        }
    }
    assert_eq!(old.streams("t", &[]).unwrap().len(), 200);
    assert_eq!(db.snapshot().unwrap().stream_count("t").unwrap(), 199);
    assert_eq!(old.table_names(), ["a", "t", "z"]);
    assert!(old.streams_after("nothing", None, 5).is_err());
}

type Imprints = Vec<([u8; 32], (i64, i64))>;

/// The imprints of the stretches that meet a range, each with its part of it; `None` where one has
/// none.
fn imprints(snapshot: &Snapshot, range: &ClosedRange) -> Option<Imprints> {
    let all = snapshot.stretches("t").unwrap().all;
    let meeting = all.iter().filter(|s| s.range.overlaps(range));
    let part = |s: &Stretch| {
        let inside = s.range.intersect(range);
        Some((
            s.imprint?,
            (inside.first.as_nanos(), inside.last.as_nanos()),
        ))
    };
    meeting.map(part).collect()
}

#[test]
fn equal_imprints_have_equal_rows_also_of_other_openings() {
    let options = small_options();
    let run = Run::new(Arc::new(MemoryFiles::new()), &options);
    let mut held = Some(run.open().unwrap());
    let mut dice = Dice::new(23);
    let ranges = [
        ClosedRange::ALL,
        ClosedRange::nanos(0, 499),
        ClosedRange::nanos(1_000, 1_255),
        ClosedRange::nanos(2_000, 2_600),
    ];
    let mut seen: HashMap<(u64, usize, Imprints), Rows> = HashMap::new();
    let mut openings = 0;
    let (mut repeated, mut across_openings) = (0, 0);
    let mut last_opening: HashMap<(usize, Imprints), u32> = HashMap::new();
    for step in 0..1_200u64 {
        let newest = 2 * step as i64;
        if dice.chance(5) {
            held.take().unwrap().close().unwrap();
            held = Some(run.open().unwrap());
            openings += 1;
        }
        let db = held.as_ref().unwrap();
        match dice.below(40) {
            0..=5 => db.flush().unwrap(),
            6 => db.compact().unwrap(),
            7 => {
                let from = dice.below(2_000) as i64;
                let spec = DeleteSpec {
                    table: "t".into(),
                    tags: Vec::new(),
                    range: ClosedRange::nanos(from, from + 20),
                };
                // The table may not be there yet.
                let _ = db.delete(&spec);
            }
            _ => write(db, &mut dice, step % 3, newest),
        }
        let snapshot = db.snapshot().unwrap();
        if !snapshot.table_names().contains(&"t".to_owned()) {
            continue;
        }
        for (number, range) in ranges.iter().enumerate() {
            let Some(imprints) = imprints(&snapshot, range) else {
                continue;
            };
            for id in 0..3 {
                if snapshot.handle(&stream(id)).is_err() {
                    continue;
                }
                let found = rows(&snapshot, &stream(id), *range);
                let found: Rows = found.into_iter().filter(|(t, _)| !t.is_empty()).collect();
                if imprints.is_empty() {
                    assert!(found.is_empty(), "rows outside of every stretch");
                }
                match seen.get(&(id, number, imprints.clone())) {
                    Some(known) => {
                        assert_eq!(known, &found, "step {step}: {range:?} of stream {id}");
                        repeated += 1;
                    }
                    None => {
                        seen.insert((id, number, imprints.clone()), found);
                    }
                }
            }
            if !imprints.is_empty() {
                let known = last_opening.insert((number, imprints), openings);
                across_openings += u32::from(known.is_some_and(|before| before < openings));
            }
        }
    }
    assert!(repeated > 300, "{repeated} repeated");
    assert!(
        across_openings > 3,
        "{across_openings} found again by another opening"
    );
}
