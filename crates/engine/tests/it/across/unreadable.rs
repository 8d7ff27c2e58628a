//! Parts that a node knows and cannot read: no answer takes them for empty.

use crate::support::small_options;
use headwater_engine::{
    Across, AddedTags, ConflictBounds, Database, Error, ErrorKind, OutermostSpec, PageStart,
    ScanSpec, Snapshot, SnapshotPart,
};
use headwater_io::Env;
use headwater_types::{Batch, ClosedRange, StreamName};

fn pump(id: &str) -> StreamName {
    StreamName::new("pump", [("id", id)])
}

fn database(id: &str) -> Database {
    let db = Database::open_in(Env::memory(), small_options()).unwrap();
    let mut batch = Batch::new();
    batch
        .stream(&pump(id))
        .row(5, [("rpm", 1.0.into())])
        .unwrap();
    db.commit(batch).unwrap();
    db
}

fn part(name: &str, rank: u64, db: &Database) -> SnapshotPart {
    SnapshotPart {
        name: name.into(),
        rank,
        snapshot: db.snapshot().unwrap(),
        tags: AddedTags::default(),
    }
}

/// Questions that a part which cannot be read could change.
fn whole(snapshot: &Snapshot) -> Vec<Result<(), Error>> {
    let range = ClosedRange::ALL;
    let newest = OutermostSpec {
        range,
        newest: true,
        limit: 1,
    };
    let start = PageStart::default();
    vec![
        snapshot.require_whole(),
        snapshot.streams("pump", &[]).map(drop),
        snapshot.streams_after("pump", None, 10).map(drop),
        snapshot
            .streams_where("pump", None, 10, &mut |_| true)
            .map(drop),
        snapshot.streams_having("pump", &[], None, 10).map(drop),
        snapshot.handles_from("pump", start, 10).map(drop),
        snapshot.stream_count("pump").map(drop),
        snapshot.streams_in("pump", &[], range).map(drop),
        snapshot.row_count("pump", range, &mut || true).map(drop),
        snapshot
            .outermost_streams("pump", &newest, None, &mut || true)
            .map(drop),
        snapshot
            .conflicts("pump", &ConflictBounds::default())
            .map(drop),
    ]
}

/// Questions about what only such a part can have.
fn unknown(snapshot: &Snapshot) -> Vec<Result<(), Error>> {
    let range = ClosedRange::ALL;
    vec![
        snapshot.scan(&pump("2"), &ScanSpec::default()).map(drop),
        snapshot.last(&pump("2")).map(drop),
        snapshot.handle(&pump("2")).map(drop),
        snapshot.coverage(&pump("2"), range, None).map(drop),
        snapshot.version(&pump("2"), &range).map(drop),
        snapshot.streams("fan", &[]).map(drop),
        snapshot.fields("fan").map(drop),
    ]
}

#[test]
fn questions_that_a_part_which_cannot_be_read_could_change_are_elsewhere() {
    let (a, b) = (database("1"), database("2"));
    let all = Across::default();
    all.replace(part("edge-a", 1, &a)).unwrap();
    all.replace(part("edge-b", 2, &b)).unwrap();
    let before = all.snapshot().unwrap();
    assert!(whole(&before).iter().all(Result::is_ok));
    all.set_unreadable("edge-b", "its state is damaged")
        .unwrap();
    let snapshot = all.snapshot().unwrap();
    assert_ne!(before.definitions(), snapshot.definitions());
    for (n, answer) in whole(&snapshot)
        .into_iter()
        .chain(unknown(&snapshot))
        .enumerate()
    {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Elsewhere, "{n}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("edge-b") && text.contains("its state is damaged"),
            "{text}"
        );
    }
    // A stream that another part has is answered.
    assert_eq!(snapshot.last(&pump("1")).unwrap().len(), 1);
    assert_eq!(snapshot.fields("pump").unwrap().len(), 1);
    let told = snapshot.unreadable_parts();
    assert_eq!(told, [("edge-b".into(), "its state is damaged".into())]);
    // A snapshot of before keeps what it has.
    assert!(whole(&before).iter().all(Result::is_ok));

    let number = snapshot.sequence();
    let partial = snapshot.allowing_partial();
    assert!(whole(&partial).iter().all(Result::is_ok));
    assert_eq!(partial.streams("pump", &[]).unwrap(), [pump("1")]);
    assert_eq!(
        partial.last(&pump("2")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(partial.unreadable_parts(), []);
    // Nothing that is cached for it serves answers that may not be partial.
    assert_eq!(partial.definitions(), None);
    assert_ne!(partial.sequence(), number);

    all.replace(part("edge-b", 2, &b)).unwrap();
    let again = all.snapshot().unwrap();
    assert!(whole(&again).iter().all(Result::is_ok));
    assert_eq!(again.streams("pump", &[]).unwrap().len(), 2);
    all.set_unreadable("edge-b", "gone again").unwrap();
    all.remove("edge-b").unwrap();
    assert!(whole(&all.snapshot().unwrap()).iter().all(Result::is_ok));
    // A part that was never read is known as well.
    all.set_unreadable("edge-c", "never opened").unwrap();
    assert!(whole(&all.snapshot().unwrap()).iter().all(Result::is_err));
}
