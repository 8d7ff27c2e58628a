//! Parts that are put, taken out and said to own streams.

use crate::support::small_options;
use headwater_engine::{
    Across, AddedTags, AggregateSpec, Bins, ConflictBounds, Database, ErrorKind, Owned, Owners,
    ScanSpec, Snapshot, SnapshotPart,
};
use headwater_io::Env;
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};

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
    ranked(0, name, db)
}

fn ranked(rank: u64, name: &str, db: &Database) -> SnapshotPart {
    SnapshotPart {
        name: name.into(),
        rank,
        snapshot: db.snapshot().unwrap(),
        tags: AddedTags::default(),
    }
}

fn times(snapshot: &Snapshot, id: u32) -> Vec<i64> {
    let scan = snapshot.scan(&pump(id), &ScanSpec::default()).unwrap();
    scan.flat_map(|chunk| chunk.unwrap().times).collect()
}

fn value(snapshot: &Snapshot, id: u32, time: i64) -> Option<Value> {
    let at = ClosedRange::nanos(time, time);
    let found = snapshot.last_in(&pump(id), "rpm", at).unwrap();
    found.map(|(_, value)| value)
}

#[test]
fn rows_of_a_stream_that_two_parts_have_are_all_shown_and_the_lower_rank_wins() {
    let (a, b) = (database(), database());
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&b, 1, 5, "rpm", 4.0.into());
    write(&b, 1, 6, "rpm", 2.0.into());
    write(&b, 2, 7, "rpm", 3.0.into());
    let both = Snapshot::of_parts(vec![ranked(1, "b", &a), ranked(2, "a", &b)]).unwrap();
    assert_eq!((times(&both, 1), times(&both, 2)), (vec![5, 6], vec![7]));
    assert_eq!(value(&both, 1, 5), Some(1.0.into()));
    let count = both.row_count("pump", ClosedRange::ALL, &mut || true);
    assert_eq!(count.unwrap(), Some(3));
    let told = both.conflicts("pump", &ConflictBounds::default()).unwrap();
    assert_eq!(
        (told.list.len(), told.streams, told.is_complete),
        (1, 1, true)
    );
    assert_eq!((&told.list[0].stream, &*told.list[0].part), (&pump(1), "a"));
    assert_eq!(told.list[0].hidden_rows, Some(1));
    assert!(
        told.list[0]
            .spans
            .iter()
            .any(|s| s.contains(Timestamp::from_nanos(5)))
    );
    let other = Snapshot::of_parts(vec![ranked(2, "b", &a), ranked(1, "a", &b)]).unwrap();
    assert_eq!(value(&other, 1, 5), Some(4.0.into()));
    // Nothing is examined, and that is told.
    let nothing = ConflictBounds {
        streams: 0,
        rows: 0,
    };
    let told = both.conflicts("pump", &nothing).unwrap();
    assert_eq!(
        (told.list.len(), told.streams, told.is_complete),
        (0, 1, false)
    );
    // No rows are read: the conflict is told without a number.
    let uncounted = ConflictBounds {
        streams: 1,
        rows: 0,
    };
    let told = both.conflicts("pump", &uncounted).unwrap();
    assert_eq!(told.list[0].hidden_rows, None);
}

#[test]
fn a_part_that_goes_on_after_another_shows_all_rows_and_is_no_conflict() {
    let (a, b) = (database(), database());
    for n in 0..100 {
        write(&a, 1, n * 1_000, "rpm", 1.0.into());
        write(&b, 1, 200_000 + n * 1_000, "rpm", 2.0.into());
    }
    let both = Snapshot::of_parts(vec![ranked(1, "a", &a), ranked(2, "b", &b)]).unwrap();
    assert_eq!(times(&both, 1).len(), 200);
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: true,
    };
    let whole = both.aggregate(&pump(1), "rpm", &spec).unwrap();
    assert_eq!(
        (whole[0].aggregate.count, whole[0].aggregate.mean()),
        (200, Some(1.5))
    );
    let ends = (whole[0].first.clone(), whole[0].last.clone());
    let at = |time, value: f64| Some((Timestamp::from_nanos(time), Value::from(value)));
    assert_eq!(ends, (at(0, 1.0), at(299_000, 2.0)));
    let info = both.stream_info(&pump(1)).unwrap();
    assert_eq!(info.rows, 200);
    let told = both.conflicts("pump", &ConflictBounds::default()).unwrap();
    assert_eq!((told.list.len(), told.streams), (0, 1));
}

#[test]
fn no_put_removal_or_return_of_a_part_changes_which_one_wins() {
    let names = ["c", "a", "b"];
    let databases = [database(), database(), database()];
    for (n, db) in (1i32..).zip(&databases) {
        write(db, 1, 5, "rpm", f64::from(n).into());
    }
    // The order of ranks is b, c, a; two parts of a rank are in the order of their names.
    let rank = |n: usize| [7, 7, 3][n];
    let expected = [(0b111, 3.0), (0b011, 2.0), (0b101, 3.0), (0b110, 3.0)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let all = Across::default();
        let put = |n: usize| {
            all.replace(ranked(rank(n), names[n], &databases[n]))
                .unwrap()
        };
        order.iter().for_each(|n| put(*n));
        for _ in 0..3 {
            for (parts, winner) in expected {
                (0..3)
                    .filter(|n| parts & (1 << n) == 0)
                    .for_each(|n| all.remove(names[n]).unwrap());
                let snapshot = all.snapshot().unwrap();
                assert_eq!(
                    value(&snapshot, 1, 5),
                    Some(winner.into()),
                    "{order:?} {parts:b}"
                );
                order.iter().for_each(|n| put(*n));
            }
        }
        // A part with another rank than before moves.
        all.replace(ranked(1, "c", &databases[0])).unwrap();
        assert_eq!(value(&all.snapshot().unwrap(), 1, 5), Some(1.0.into()));
        // Names of a rank decide.
        all.replace(ranked(3, "c", &databases[0])).unwrap();
        assert_eq!(value(&all.snapshot().unwrap(), 1, 5), Some(3.0.into()));
    }
}

#[test]
fn parts_that_come_between_others_again_and_again_stay_in_their_order() {
    let all = Across::default();
    let databases: Vec<Database> = (0..40).map(|_| database()).collect();
    for (n, db) in (0u32..).zip(&databases) {
        write(db, 1, 5, "rpm", f64::from(n).into());
        // Between the first two parts, each nearer to the first one.
        let rank = if n == 0 { 0 } else { 1_000 - u64::from(n) };
        all.replace(ranked(rank, &format!("p{n}"), db)).unwrap();
    }
    for n in 0..40 {
        let first = if n == 0 { 0 } else { 40 - n };
        assert_eq!(
            value(&all.snapshot().unwrap(), 1, 5),
            Some(f64::from(first).into())
        );
        all.remove(&format!("p{first}")).unwrap();
    }
}

#[test]
fn what_belongs_to_who_is_not_here_is_elsewhere_and_not_nothing() {
    let a = database();
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&a, 2, 5, "rpm", 1.0.into());
    let all = Across::default();
    all.replace(part("a", &a)).unwrap();
    all.set_owners(Some(Owners::new(|stream, _| {
        let is_first = stream.tag("id") == Some("1");
        let owned = Owned::by("far", ClosedRange::nanos(10, 19));
        is_first.then_some(owned).into_iter().collect()
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
        rank: 0,
        snapshot: one,
        tags: AddedTags::default(),
    };
    assert_eq!(all.replace(nested).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_part_that_cannot_be_read_may_own_what_a_rule_says_and_is_asked_about() {
    let (a, b) = (database(), database());
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&b, 1, 15, "rpm", 2.0.into());
    let all = Across::default();
    // Where both may have the stream, it belongs to a before 10, and to b from then on.
    all.set_owners(Some(Owners::new(|_, holders| {
        let has = |name: &str| holders.iter().any(|holder| &**holder == name);
        match has("a") && has("b") {
            true => vec![
                Owned::by("a", ClosedRange::nanos(i64::MIN, 9)),
                Owned::by("b", ClosedRange::nanos(10, i64::MAX)),
            ],
            false => Vec::new(),
        }
    })));
    all.replace(part("a", &a)).unwrap();
    all.replace(part("b", &b)).unwrap();
    write(&b, 1, 6, "rpm", 3.0.into());
    all.replace(part("b", &b)).unwrap();
    let both = all.snapshot().unwrap();
    assert_eq!(times(&both, 1), [5, 15]);
    let told = both.conflicts("pump", &ConflictBounds::default()).unwrap();
    let told = &told.list[0];
    let told = (&*told.part, told.hidden_rows, told.is_declared);
    assert_eq!(told, ("b", Some(1), true));
    all.set_unreadable("a", "damaged").unwrap();
    let one = all.snapshot().unwrap();
    let kind = |range| {
        let spec = ScanSpec {
            range,
            ..ScanSpec::default()
        };
        one.scan(&pump(1), &spec).err().map(|error| error.kind())
    };
    assert_eq!(kind(ClosedRange::nanos(0, 9)), Some(ErrorKind::Elsewhere));
    assert_eq!(kind(ClosedRange::nanos(10, 19)), None);
    // Without a there is no rule.
    all.remove("a").unwrap();
    assert_eq!(times(&all.snapshot().unwrap(), 1), [6, 15]);
}

#[test]
fn streams_have_the_tags_of_their_part_until_it_has_others() {
    let (a, b) = (database(), database());
    write(&a, 1, 5, "rpm", 1.0.into());
    write(&b, 1, 5, "rpm", 2.0.into());
    let all = Across::default();
    let put = |name: &str, db: &Database, tags: &[(&str, &str)]| {
        let tags = AddedTags::new(tags.iter().copied()).unwrap();
        all.replace(SnapshotPart {
            tags,
            ..part(name, db)
        })
        .unwrap();
        all.snapshot().unwrap()
    };
    put("a", &a, &[("gateway", "a")]);
    let both = put("b", &b, &[("gateway", "b")]);
    let texts = |s: &Snapshot| {
        let names = s.streams("pump", &[]).unwrap();
        names.iter().map(StreamName::to_string).collect::<Vec<_>>()
    };
    assert_eq!(texts(&both), ["pump,gateway=a,id=1", "pump,gateway=b,id=1"]);
    assert_eq!(both.table_info("pump").unwrap().tags, ["gateway", "id"]);
    let shown = StreamName::parse("pump,gateway=b,id=1").unwrap();
    let handle = both.handle(&shown).unwrap();
    assert_eq!(handle.name(), &shown);
    assert_eq!(handle.last(&both).unwrap()[0].value, 2.0.into());
    assert_eq!(both.last(&pump(1)).unwrap_err().kind(), ErrorKind::NotFound);
    // In the database itself there is no such stream.
    let own = b.snapshot().unwrap();
    assert_eq!(handle.last(&own).unwrap_err().kind(), ErrorKind::NotFound);
    // Other tags, and none: the streams of the same database have other names at once.
    let other = put("b", &b, &[("gateway", "c")]);
    assert_eq!(
        texts(&other),
        ["pump,gateway=a,id=1", "pump,gateway=c,id=1"]
    );
    assert_ne!(other.definitions(), both.definitions());
    assert_eq!(handle.last(&other).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(handle.last(&both).unwrap()[0].value, 2.0.into());
    put("a", &a, &[]);
    let same = put("b", &b, &[]);
    assert_eq!(texts(&same), ["pump,id=1"]);
    assert_eq!(value(&same, 1, 5), Some(1.0.into()));
    // A stream of its own takes over the name: the handle of before reads that one.
    let mut batch = Batch::new();
    batch.stream(&shown).row(7, [("rpm", 9.0.into())]).unwrap();
    b.commit(batch).unwrap();
    let taken = put("b", &b, &[]);
    assert_eq!(handle.last(&taken).unwrap()[0].value, 9.0.into());
    // With the tag again, an own one of its key has another.
    let again = put("b", &b, &[("gateway", "b")]);
    assert_eq!(
        texts(&again),
        [
            "pump,id=1",
            "pump,gateway=b,id=1",
            "pump,exported_gateway=b,gateway=b,id=1"
        ]
    );
    assert_eq!(handle.last(&again).unwrap()[0].value, 2.0.into());
}
