//! Streams looked up once: a handle gives what the name gives, in every snapshot.

use crate::support::{Run, small_options};
use headwater_engine::{
    AggregateSpec, Bins, Database, ErrorKind, ScanSpec, Snapshot, StreamHandle, TableChange,
};
use headwater_io::{Files, MemoryFiles};
use headwater_types::{Batch, ClosedRange, Level, StreamName};
use std::sync::Arc;

fn name(id: u32) -> StreamName {
    StreamName::new("t", [("id", id.to_string())])
}

fn write(db: &Database, id: u32, times: std::ops::Range<i64>, value: f64) {
    let mut batch = Batch::new();
    for time in times {
        let time = time * 1_000_000_000;
        let rows = batch.stream(&name(id));
        rows.row(time, [("v", value.into())]).unwrap();
    }
    assert!(db.commit(batch).unwrap().refused.is_empty());
}

/// Everything the handle gives must be what its name gives.
fn assert_same(snapshot: &Snapshot, handle: &StreamHandle) -> usize {
    let name = handle.name();
    let spec = ScanSpec {
        range: ClosedRange::nanos(7_000_000_000, i64::MAX),
        ..ScanSpec::default()
    };
    let kind = |error: headwater_engine::Error| error.kind();
    let chunks = |scan: headwater_engine::Result<headwater_engine::Scan>| {
        scan.map_err(kind)
            .map(|scan| scan.map(Result::unwrap).collect::<Vec<_>>())
    };
    let rows = chunks(snapshot.scan(name, &spec));
    assert_eq!(chunks(handle.scan(snapshot, &spec)), rows);
    let mut times = Vec::new();
    let visited = handle.visit(snapshot, &spec, |rows| {
        times.extend_from_slice(rows.times())
    });
    let scanned = rows
        .as_ref()
        .map(|rows| rows.iter().flat_map(|r| r.times.clone()));
    match scanned {
        Ok(scanned) => assert_eq!(times, scanned.collect::<Vec<i64>>()),
        Err(kind) => assert_eq!(visited.unwrap_err().kind(), *kind),
    }
    assert_eq!(
        handle.last(snapshot).map_err(kind),
        snapshot.last(name).map_err(kind)
    );
    let bins = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Every {
            width_ns: 30_000_000_000,
            origin_ns: 0,
        },
        first_last: true,
    };
    assert_eq!(
        handle.aggregate(snapshot, "v", &bins).map_err(kind),
        snapshot.aggregate(name, "v", &bins).map_err(kind)
    );
    let level = Level::new(3).unwrap();
    assert_eq!(
        handle.tile(snapshot, "v", level, 0).map_err(kind),
        snapshot.tile(name, "v", level, 0).map_err(kind)
    );
    rows.map_or(0, |rows| rows.iter().map(|c| c.times.len()).sum())
}

#[test]
fn a_handle_gives_what_the_name_gives_also_when_the_stream_is_dropped_and_comes_again() {
    let options = small_options();
    let run = Run::new(Arc::new(MemoryFiles::new()), &options);
    let db = run.open().unwrap();
    write(&db, 1, 0..400, 1.5);
    write(&db, 2, 0..300, 2.5);
    let first = db.snapshot().unwrap();
    let handle = first.handle(&name(1)).unwrap();
    let other = first.handle(&name(2)).unwrap();
    assert_eq!(
        first.handle(&name(9)).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(assert_same(&first, &handle), 393);
    db.flush().unwrap();
    write(&db, 1, 400..450, 3.5);
    let second = db.snapshot().unwrap();
    assert_eq!(assert_same(&second, &handle), 443);
    assert_eq!(assert_same(&second, &other), 293);

    // Gone, and come again under another number: older snapshots see what was.
    db.drop_streams("t", &[("id".to_owned(), "1".to_owned())])
        .unwrap();
    let gone = db.snapshot().unwrap();
    assert_eq!(assert_same(&gone, &handle), 0);
    assert_eq!(gone.last(&name(1)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(handle.last(&gone).unwrap_err().kind(), ErrorKind::NotFound);
    write(&db, 1, 20..30, 4.5);
    let again = db.snapshot().unwrap();
    for (snapshot, rows) in [(&again, 10), (&second, 443), (&first, 393), (&gone, 0)] {
        assert_eq!(assert_same(snapshot, &handle), rows);
    }

    // A table that is gone, and a field added later.
    db.alter_table("t", &TableChange::default()).unwrap();
    db.drop_table("t").unwrap();
    let without = db.snapshot().unwrap();
    assert_eq!(assert_same(&without, &other), 0);
    assert_eq!(assert_same(&second, &other), 293);
}

#[test]
fn a_handle_works_in_another_database_and_keeps_none_open() {
    let options = small_options();
    let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
    let handle = {
        let db = Run::new(Arc::clone(&files), &options).open().unwrap();
        // Other streams first, so that the numbers differ.
        write(&db, 7, 0..20, 1.0);
        write(&db, 1, 0..50, 1.0);
        let handle = db.snapshot().unwrap().handle(&name(1)).unwrap();
        db.close().unwrap();
        handle
    };
    let reopened = Run::new(files, &options).open().unwrap();
    assert_eq!(assert_same(&reopened.snapshot().unwrap(), &handle), 43);
    let other = Run::new(Arc::new(MemoryFiles::new()), &options);
    let other = other.open().unwrap();
    write(&other, 1, 0..12, 2.0);
    assert_eq!(assert_same(&other.snapshot().unwrap(), &handle), 5);
}

/// Where the times and the values of a block lie.
type BlockAddress = (*const i64, *const f64);

/// Times and values, and where each block of them lies.
fn visited(
    snapshot: &Snapshot,
    handle: &StreamHandle,
    range: ClosedRange,
) -> (Vec<(i64, f64)>, Vec<BlockAddress>) {
    let spec = ScanSpec {
        range,
        fields: Some(vec!["v".to_owned()]),
        ..ScanSpec::default()
    };
    let (mut rows, mut places) = (Vec::new(), Vec::new());
    let each = |block: headwater_engine::RowBlock<'_>| {
        let column = block.column(0).unwrap();
        let values = column.f64s().unwrap();
        assert!(column.has_all() && block.width() == 1 && values.len() == block.len());
        rows.extend(std::iter::zip(
            block.times().iter().copied(),
            values.iter().copied(),
        ));
        places.push((block.times().as_ptr(), values.as_ptr()));
    };
    handle.visit(snapshot, &spec, each).unwrap();
    let scan = handle.scan(snapshot, &spec).unwrap();
    let mut scanned = Vec::new();
    for chunk in scan {
        let chunk = chunk.unwrap();
        let value = |row: usize| chunk.columns[0].get(row).map(|v| v.to_owned());
        for (row, time) in chunk.times.iter().enumerate() {
            let Some(headwater_types::Value::F64(value)) = value(row) else {
                panic!("row {row} at {time}")
            };
            scanned.push((*time, value));
        }
    }
    assert_eq!(rows, scanned, "{range:?}");
    (rows, places)
}

#[test]
fn rows_in_order_are_handed_out_where_they_lie_from_memory_and_from_the_cache() {
    let options = small_options();
    let run = Run::new(Arc::new(MemoryFiles::new()), &options);
    let db = run.open().unwrap();
    let second = 1_000_000_000;
    write(&db, 1, 0..400, 0.5);
    let snapshot = db.snapshot().unwrap();
    let handle = snapshot.handle(&name(1)).unwrap();
    let some = ClosedRange::nanos(20 * second, 29 * second + 1);
    let (rows, places) = visited(&snapshot, &handle, some);
    assert_eq!(rows.len(), 10);
    assert_eq!(visited(&snapshot, &handle, some).1, places);
    assert_eq!(visited(&snapshot, &handle, ClosedRange::ALL).0.len(), 400);
    assert!(
        visited(&snapshot, &handle, ClosedRange::nanos(1, 2))
            .0
            .is_empty()
    );

    // In files, with what was read before in the cache.
    db.flush().unwrap();
    let (before, _) = visited(&snapshot, &handle, ClosedRange::ALL);
    let snapshot = db.snapshot().unwrap();
    assert_eq!(visited(&snapshot, &handle, ClosedRange::ALL).0, before);
    let (rows, places) = visited(&snapshot, &handle, some);
    assert_eq!(rows.len(), 10);
    assert_eq!(visited(&snapshot, &handle, some).1, places);

    // Files, and newer rows in memory behind them.
    write(&db, 1, 400..420, 1.5);
    let snapshot = db.snapshot().unwrap();
    let across = ClosedRange::nanos(395 * second, 404 * second);
    let (rows, places) = visited(&snapshot, &handle, across);
    assert_eq!((rows.len(), rows[4].1, rows[5].1), (10, 0.5, 1.5));
    assert_eq!(visited(&snapshot, &handle, across).1, places);

    // What is late is merged, and a snapshot before it goes on as it was.
    write(&db, 1, 397..398, 7.5);
    let late = db.snapshot().unwrap();
    let (merged, _) = visited(&late, &handle, across);
    assert_eq!((merged.len(), merged[2].1), (10, 7.5));
    assert_eq!(visited(&snapshot, &handle, across).0, rows);
    db.flush().unwrap();
    assert_eq!(visited(&db.snapshot().unwrap(), &handle, across).0, merged);
    assert_eq!(visited(&snapshot, &handle, across).0, rows);
}

#[test]
fn a_field_may_be_visited_twice_and_an_absent_one_has_no_column() {
    let options = small_options();
    let run = Run::new(Arc::new(MemoryFiles::new()), &options);
    let db = run.open().unwrap();
    write(&db, 1, 0..100, 0.5);
    let mut batch = Batch::new();
    batch.stream(&name(2)).row(1, [("w", 3i64.into())]).unwrap();
    db.commit(batch).unwrap();
    let fields = ["w", "v", "w", "v"].map(str::to_owned).to_vec();
    let spec = ScanSpec {
        fields: Some(fields),
        ..ScanSpec::default()
    };
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let snapshot = db.snapshot().unwrap();
        // Twice: the second time out of the cache.
        for _ in 0..2 {
            let mut rows = 0;
            let each = |block: headwater_engine::RowBlock<'_>| {
                for place in [1, 3] {
                    let column = block.column(place).unwrap();
                    assert_eq!(column.f64s().unwrap(), vec![0.5; block.len()]);
                }
                assert!((0..block.len()).all(|r| {
                    let absent = block.column(0).is_none_or(|c| !c.is_present(r));
                    absent && block.column(2).is_none_or(|c| c.get(r).is_none())
                }));
                assert_eq!(block.field_type(2), Some(headwater_types::FieldType::I64));
                assert!(block.column(4).is_none() && block.field_type(4).is_none());
                rows += block.len();
            };
            snapshot.visit(&name(1), &spec, each).unwrap();
            assert_eq!(rows, 100);
        }
        let wrong = ScanSpec {
            fields: Some(vec!["none".to_owned()]),
            ..ScanSpec::default()
        };
        let error = snapshot.visit(&name(1), &wrong, |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
