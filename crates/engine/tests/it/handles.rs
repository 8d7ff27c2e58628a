//! Streams looked up once: a handle gives what the name gives, in every snapshot.

use crate::support::{Run, small_options};
use headwater_codec::{Batch, ClosedRange, Level, StreamName};
use headwater_engine::{
    AggregateSpec, Bins, Database, ErrorKind, ScanSpec, Snapshot, StreamHandle, TableChange,
};
use headwater_io::{Files, MemoryFiles};
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
