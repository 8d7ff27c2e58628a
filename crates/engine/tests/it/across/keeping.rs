//! Parts that are put, taken out and said to own streams.

use crate::support::small_options;
use headwater_engine::{
    Across, Database, ErrorKind, Owned, Owners, ScanSpec, Snapshot, SnapshotPart,
};
use headwater_io::Env;
use headwater_types::{Batch, ClosedRange, StreamName, Value};

fn database() -> Database {
    Database::open_in(Env::memory(), small_options()).unwrap()
}

fn pump(id: u32) -> StreamName {
    StreamName::new("pump", [("id", id.to_string())])
}

fn write(db: &Database, id: u32, time: i64, field: &str, value: Value) {
    let mut batch = Batch::new();
    batch.stream(&pump(id)).row(time, [(field, value)]).unwrap();
    db.commit(batch).unwrap();
}

fn part(name: &str, db: &Database) -> SnapshotPart {
    SnapshotPart {
        name: name.into(),
        snapshot: db.snapshot().unwrap(),
    }
}

fn times(snapshot: &Snapshot, id: u32) -> Vec<i64> {
    let scan = snapshot.scan(&pump(id), &ScanSpec::default()).unwrap();
    scan.flat_map(|chunk| chunk.unwrap().times).collect()
}

#[test]
fn a_stream_that_two_parts_have_is_that_of_the_first_and_the_other_is_told() {
    let (a, b) = (database(), database());
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&b, 1, 6, "rpm", 2.0.into());
    write(&b, 2, 7, "rpm", 3.0.into());
    let both = Snapshot::of_parts(vec![part("a", &a), part("b", &b)]).unwrap();
    assert_eq!((times(&both, 1), times(&both, 2)), (vec![5], vec![7]));
    assert_eq!(
        both.row_count("pump", ClosedRange::ALL, &mut || true)
            .unwrap(),
        Some(2)
    );
    let told = both.conflicts("pump").unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0].stream, &*told[0].part), (&pump(1), "b"));
    assert_eq!(told[0].spans, [ClosedRange::nanos(6, 6)]);
    let other = Snapshot::of_parts(vec![part("b", &b), part("a", &a)]).unwrap();
    assert_eq!(times(&other, 1), [6]);
}

#[test]
fn what_belongs_to_who_is_not_here_is_elsewhere_and_not_nothing() {
    let a = database();
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&a, 2, 5, "rpm", 1.0.into());
    let all = Across::default();
    all.replace(part("a", &a)).unwrap();
    all.set_owners(Some(Owners::new(|stream| {
        let is_first = stream.tag("id") == Some("1");
        let range = ClosedRange::nanos(10, 19);
        let part = "far".into();
        is_first
            .then_some(Owned { range, part })
            .into_iter()
            .collect()
    })));
    let snapshot = all.snapshot().unwrap();
    let within = |first, last| ScanSpec {
        range: ClosedRange::nanos(first, last),
        ..ScanSpec::default()
    };
    let kind = |id, spec: &ScanSpec| snapshot.scan(&pump(id), spec).err().map(|e| e.kind());
    assert_eq!(kind(1, &within(0, 9)), None);
    assert_eq!(kind(1, &within(0, 10)), Some(ErrorKind::Elsewhere));
    assert_eq!(kind(1, &within(20, 30)), None);
    assert_eq!(kind(2, &ScanSpec::default()), None);
    assert_eq!(
        snapshot.last(&pump(1)).unwrap_err().kind(),
        ErrorKind::Elsewhere
    );
    let count = |first, last| {
        let range = ClosedRange::nanos(first, last);
        snapshot.row_count("pump", range, &mut || true)
    };
    assert_eq!(count(0, 9).unwrap(), Some(2));
    assert_eq!(count(0, 10).unwrap_err().kind(), ErrorKind::Elsewhere);
    // With its owner there, which has nothing of it, there is nothing.
    let far = database();
    all.replace(part("far", &far)).unwrap();
    let snapshot = all.snapshot().unwrap();
    assert_eq!(times(&snapshot, 1), [5]);
    all.remove("far").unwrap();
    let snapshot = all.snapshot().unwrap();
    assert_eq!(
        snapshot.last(&pump(1)).unwrap_err().kind(),
        ErrorKind::Elsewhere
    );
}

#[test]
fn a_part_that_is_taken_out_takes_its_streams_tables_and_fields_along() {
    let (a, b) = (database(), database());
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&b, 2, 5, "rpm", Value::I64(7));
    write(&b, 2, 6, "heat", 2.0.into());
    let mut batch = Batch::new();
    let fan = StreamName::new("fan", [("id", "1")]);
    batch.stream(&fan).row(1, [("on", true.into())]).unwrap();
    b.commit(batch).unwrap();
    let all = Across::default();
    all.replace(part("a", &a)).unwrap();
    let before = all.snapshot().unwrap();
    all.replace(part("b", &b)).unwrap();
    let both = all.snapshot().unwrap();
    assert_eq!(both.table_names(), ["fan", "pump"]);
    let fields = |s: &Snapshot| {
        let all = s.fields("pump").unwrap().into_iter();
        all.map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(fields(&both), ["rpm", "heat", "rpm@b"]);
    let last = both.last(&pump(2)).unwrap();
    let last: Vec<(&str, &Value)> = last.iter().map(|l| (&*l.field, &l.value)).collect();
    assert_eq!(
        last,
        [("heat", &Value::F64(2.0)), ("rpm@b", &Value::I64(7))]
    );
    all.remove("b").unwrap();
    all.remove("b").unwrap();
    let after = all.snapshot().unwrap();
    for snapshot in [&before, &after] {
        assert_eq!(snapshot.table_names(), ["pump"]);
        assert_eq!(fields(snapshot), ["rpm"]);
        assert_eq!(snapshot.streams("pump", &[]).unwrap(), [pump(1)]);
    }
    assert_ne!(before.definitions(), both.definitions());
    assert_ne!(after.definitions(), both.definitions());
    // What was taken before stays as it was.
    assert_eq!(both.streams("fan", &[]).unwrap(), [fan]);
}

#[test]
fn an_older_snapshot_of_a_database_takes_no_newer_ones_place() {
    let a = database();
    write(&a, 1, 5, "rpm", 1.0.into());
    let older = part("a", &a);
    write(&a, 2, 5, "rpm", 1.0.into());
    let all = Across::default();
    all.replace(part("a", &a)).unwrap();
    all.replace(older).unwrap();
    assert_eq!(
        all.snapshot().unwrap().streams("pump", &[]).unwrap().len(),
        2
    );
}

#[test]
fn a_name_that_a_field_has_already_is_not_given_to_another() {
    let (a, b) = (database(), database());
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&a, 1, 5, "rpm@b", 9.0.into());
    write(&b, 2, 5, "rpm", Value::I64(7));
    let both = Snapshot::of_parts(vec![part("a", &a), part("b", &b)]).unwrap();
    let last = both.last_in(&pump(2), "rpm@b@b", ClosedRange::ALL).unwrap();
    assert_eq!(last.map(|(_, value)| value), Some(Value::I64(7)));
    assert_eq!(
        both.last_in(&pump(2), "rpm@b", ClosedRange::ALL).unwrap(),
        None
    );
}

#[test]
fn a_part_of_several_databases_is_refused() {
    let a = database();
    let one = Snapshot::of_parts(vec![part("a", &a)]).unwrap();
    let all = Across::default();
    let nested = SnapshotPart {
        name: "all".into(),
        snapshot: one,
    };
    assert_eq!(all.replace(nested).unwrap_err().kind(), ErrorKind::Invalid);
}
