//! What is kept of streams as a whole: asked again it is at hand, and whatever happens to rows and
//! definitions in between, the answer is that of the rows.

use headwater_engine::{
    Bins, Database, DeleteSpec, Duplicates, FieldSpec, Options, ReadStats, ScanSpec, SummarySpec,
    TableChange, TableSpec,
};
use headwater_types::{Batch, ClosedRange, FieldType, StreamName, ValueRef};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const FIELDS: [&str; 3] = ["a", "b", "c"];

fn stream(id: &str) -> StreamName {
    StreamName::new("t", [("id", id)])
}

fn opened(duplicates: Duplicates) -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(Options::new(dir.path().join("db"))).unwrap();
    db.create_table(&TableSpec {
        duplicates,
        ..TableSpec::new("t")
    })
    .unwrap();
    (dir, db)
}

fn write(db: &Database, id: &str, seconds: impl Iterator<Item = i64>, add: i64) {
    let (mut batch, name) = (Batch::new(), stream(id));
    let rows = batch.stream(&name);
    for second in seconds {
        let mut values = vec![
            ("a", (second + add).into()),
            ("b", ((second * 3 + add) as f64 / 4.0).into()),
        ];
        if second % 3 == 0 {
            values.push(("c", add.into()));
        }
        rows.row(second * SECOND, values).unwrap();
    }
    db.commit(batch).unwrap();
}

/// Rows, and of each field how many values it has, the least of them and the greatest.
type Totals = (u64, Vec<(u64, Option<(f64, f64)>)>);

/// What the rows say.
fn by_rows(db: &Database, name: &StreamName) -> Totals {
    let spec = ScanSpec {
        fields: Some(FIELDS.map(str::to_owned).to_vec()),
        ..ScanSpec::default()
    };
    let (mut rows, mut fields) = (0, vec![(0, None); FIELDS.len()]);
    for chunk in db.snapshot().unwrap().scan(name, &spec).unwrap() {
        let chunk = chunk.unwrap();
        rows += chunk.times.len() as u64;
        for (column, known) in chunk.columns.iter().zip(&mut fields) {
            for row in 0..chunk.times.len() {
                let value = match column.get(row) {
                    None => continue,
                    Some(ValueRef::I64(value)) => value as f64,
                    Some(ValueRef::F64(value)) => value,
                    Some(other) => unreachable!("{other:?}"),
                };
                let (least, greatest) = known.1.unwrap_or((value, value));
                *known = (known.0 + 1, Some((least.min(value), greatest.max(value))));
            }
        }
    }
    (rows, fields)
}

/// What a summary says, and how many buckets, pages and bytes it looked at.
fn by_summary(db: &Database, name: &StreamName) -> (Totals, u64) {
    let spec = SummarySpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        fields: FIELDS.map(str::to_owned).to_vec(),
    };
    let before = ReadStats::by_this_thread();
    let bins = db.snapshot().unwrap().summary(name, &spec).unwrap();
    let touched = ReadStats::by_this_thread() - before;
    assert!(bins.len() <= 1, "{bins:?}");
    let known = match bins.first() {
        None => (0, vec![(0, None); FIELDS.len()]),
        Some(bin) => {
            let fields = bin
                .aggregates
                .iter()
                .map(|a| (a.count, a.extremes.as_f64()));
            (bin.rows, fields.collect())
        }
    };
    (known, touched.buckets + touched.pages + touched.bytes)
}

/// Asks twice and compares both with the rows. Gives what the second one looked at.
#[track_caller]
fn read_twice(db: &Database, name: &StreamName) -> u64 {
    let expected = by_rows(db, name);
    let first = by_summary(db, name).0;
    let (second, touched) = by_summary(db, name);
    assert_eq!(first, expected);
    assert_eq!(second, expected);
    touched
}

#[test]
fn a_stream_asked_for_again_is_at_hand_until_something_changes() {
    for duplicates in [Duplicates::Last, Duplicates::Keep] {
        let (_dir, db) = opened(duplicates);
        let (a, b) = (stream("a"), stream("b"));
        for id in ["a", "b"] {
            write(&db, id, 0..20_000, 7);
        }
        assert!(read_twice(&db, &a) < 10, "memory is no bucket");
        db.flush().unwrap();
        assert_eq!((read_twice(&db, &a), read_twice(&db, &b)), (0, 0));
        // Newer values in memory, then in a late run, then merged.
        write(&db, "a", (100..5_000).step_by(7), 1_000_000);
        assert!(read_twice(&db, &a) > 0);
        assert_eq!(read_twice(&db, &b), 0);
        db.flush().unwrap();
        assert_eq!((read_twice(&db, &a), read_twice(&db, &b)), (0, 0));
        db.compact().unwrap();
        assert_eq!((read_twice(&db, &a), read_twice(&db, &b)), (0, 0));
        // A delete counts at once, and still does when it was carried out.
        db.delete(&DeleteSpec {
            table: "t".into(),
            tags: vec![("id".into(), "a".into())],
            range: ClosedRange::nanos(1_000 * SECOND, 1_500 * SECOND),
        })
        .unwrap();
        read_twice(&db, &a);
        assert_eq!(read_twice(&db, &b), 0);
        db.compact().unwrap();
        read_twice(&db, &a);
        // Rows where some were deleted.
        write(&db, "a", 1_200..1_300, 5);
        read_twice(&db, &a);
        db.flush().unwrap();
        read_twice(&db, &a);
        assert_eq!(read_twice(&db, &b), 0);
    }
}

#[test]
fn definitions_that_change_are_told_apart() {
    let (_dir, db) = opened(Duplicates::Keep);
    let a = stream("a");
    write(&db, "a", 0..10_000, 7);
    db.flush().unwrap();
    write(&db, "a", 0..3_000, 8);
    db.flush().unwrap();
    assert_eq!(read_twice(&db, &a), 0);
    let change = |change: TableChange| db.alter_table("t", &change).unwrap();
    // Integers become floats.
    change(TableChange {
        add_fields: vec![FieldSpec {
            name: "a".into(),
            field_type: FieldType::F64,
        }],
        ..TableChange::default()
    });
    read_twice(&db, &a);
    // All of it ends, by the newest row that there is.
    write(&db, "a", [200_000_000, 200_000_001].into_iter(), 9);
    change(TableChange {
        retention: Some(Some(Duration::from_secs(86_400))),
        ..TableChange::default()
    });
    db.maintain().unwrap();
    read_twice(&db, &a);
}

#[test]
fn parts_of_a_stream_are_not_taken_for_the_whole() {
    let (_dir, db) = opened(Duplicates::Last);
    let a = stream("a");
    write(&db, "a", 0..10_000, 7);
    db.flush().unwrap();
    assert_eq!(read_twice(&db, &a), 0);
    let rows = |from: i64, to: i64, fields: &[&str]| {
        let spec = SummarySpec {
            range: ClosedRange::nanos(from * SECOND, to * SECOND),
            bins: Bins::Whole,
            fields: fields.iter().map(|f| (*f).to_owned()).collect(),
        };
        let bins = db.snapshot().unwrap().summary(&a, &spec).unwrap();
        let counts = |bin: &headwater_engine::SummaryBin| {
            let counts = bin.aggregates.iter().map(|a| a.count);
            (bin.rows, counts.collect::<Vec<u64>>())
        };
        bins.iter().map(counts).collect::<Vec<_>>()
    };
    assert_eq!(rows(0, 4_999, &["a"]), [(5_000, vec![5_000])]);
    assert_eq!(
        rows(-9, 20_000, &["c", "a"]),
        [(10_000, vec![3_334, 10_000])]
    );
    assert_eq!(
        rows(-9, 20_000, &["a", "c"]),
        [(10_000, vec![10_000, 3_334])]
    );
    assert_eq!(rows(3, 3, &["c", "c"]), [(1, vec![1, 1])]);
    assert_eq!(rows(20_000, 30_000, &["a"]), []);
}
