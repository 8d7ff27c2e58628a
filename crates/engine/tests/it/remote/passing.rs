//! What a copy passes on to further copies, and what one does without that gets less than it wants.

use super::edge::options;
use headwater_engine::{
    Database, ErrorKind, PinnedState, Reason, RemoteCopy, ReplicationRule, ReplicationRules, State,
    StreamShare,
};
use headwater_io::{Env, NoThreads};
use headwater_types::{Batch, ByteRange, Level, StreamName};
use std::path::Path;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;

fn database() -> Database {
    let env = Env {
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    Database::open_in(env, options()).unwrap()
}

fn write(db: &Database, rows: std::ops::Range<i64>) {
    let start = Env::MEMORY_START.as_nanos();
    let mut batch = Batch::new();
    for table in ["m", "other"] {
        let stream = batch.stream(&StreamName::new(table, [("id", "1")]));
        for row in rows.clone() {
            let value = (row % 17) as f64;
            let at = start + row * SECOND;
            stream.row(at, [("v", value.into())]).unwrap();
        }
    }
    db.commit(batch).unwrap();
    db.flush().unwrap();
}

fn copy(state: &State, rules: impl Into<ReplicationRules>) -> RemoteCopy {
    RemoteCopy::begin(Env::memory(), Path::new("/copy"), state, rules).unwrap()
}

/// Fetches what is missing for these reasons.
fn fetch(copy: &RemoteCopy, held: &PinnedState, reasons: &[Reason]) {
    loop {
        let missing = reasons.iter();
        let missing = missing.flat_map(|reason| copy.missing_for(*reason, u64::MAX));
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            return;
        }
        for one in missing {
            let bytes = u32::try_from(one.range.bytes).unwrap();
            let found = held.read(one.segment, one.range.offset, bytes).unwrap();
            copy.put(one.segment, one.range.offset, &found).unwrap();
        }
        copy.commit().unwrap();
    }
}

const SUMMARIES: &[Reason] = &[Reason::Summaries];
const ALL: &[Reason] = &[Reason::Summaries, Reason::Rows];

#[test]
fn what_a_copy_passes_on_is_what_it_has_under_the_name_that_its_source_gave_it() {
    let db = database();
    write(&db, 0..900);
    let held = db.hold_state(None).unwrap();
    let copy = copy(held.state(), Level::clamped(5));
    fetch(&copy, &held, SUMMARIES);
    let passed = copy.hold_state_of(&ReplicationRules::default());
    assert!(passed.is_passed_on() && passed.is_there() && !held.is_passed_on());
    assert_eq!(passed.state(), held.state());
    let mut lacking = 0;
    for segment in held.state().segments() {
        let id = segment.id;
        let mut at = 0;
        let missing = passed.missing(id, 0, segment.bytes).unwrap();
        let end = ByteRange::new(segment.bytes, segment.bytes);
        for hole in missing.into_iter().chain([end]) {
            let here = u32::try_from(hole.start() - at).unwrap();
            let read = |held: &PinnedState| held.read(id, at, here).unwrap();
            assert_eq!(read(&passed), read(&held));
            if !hole.is_empty() {
                let error = passed.read(id, hole.start(), 1).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Elsewhere);
            }
            lacking += hole.len();
            at = hole.end();
        }
        assert_eq!(held.missing(id, 0, segment.bytes).unwrap(), []);
        let error = passed.missing(id, 0, segment.bytes + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(lacking > 0);
    // It keeps nothing: the copy is closed when nobody else has it.
    assert!(!copy.is_shared());
    drop(copy);
    assert!(!passed.is_there());
    let segment = held.state().segments().next().unwrap();
    let error = passed.read(segment.id, 0, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone);
}

#[test]
fn who_passes_on_may_keep_back_more_than_the_source() {
    let db = database();
    write(&db, 0..300);
    let held = db.hold_state(None).unwrap();
    let copy = copy(held.state(), ReplicationRules::default());
    let none = ReplicationRule {
        table: Some("other".into()),
        tags: Vec::new(),
        want: StreamShare::Nothing,
        priority: 0,
    };
    let rules = ReplicationRules::new(vec![none], StreamShare::Full).unwrap();
    let passed = copy.hold_state_of(&rules);
    let (all, some) = (held.state(), passed.state());
    assert!(some.segments().count() > 0);
    assert!(some.segments().count() < all.segments().count());
    assert_ne!(some.name().view, all.name().view);
    assert!(some.descends_from(&all.name()) && all.descends_from(&some.name()));
    let bytes = some.encode();
    assert_eq!(State::decode(&bytes, None).unwrap(), *some);
    assert!(!bytes.windows(5).any(|word| word == b"other"));
    let kept = all.segments();
    let mut kept = kept.filter(|s| some.segments().all(|of| of.id != s.id));
    let error = passed.read(kept.next().unwrap().id, 0, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Has a copy do without all that it lacks.
fn do_without(copy: &RemoteCopy) {
    for segment in copy.state().segments() {
        let missing = copy.missing_of(segment.id).unwrap();
        copy.do_without(segment.id, missing).unwrap();
    }
}

#[test]
fn what_is_added_is_shown_without_rows_that_cannot_be_had() {
    let db = database();
    write(&db, 0..200);
    let held = db.hold_state(None).unwrap();
    let copy = copy(held.state(), ReplicationRules::default());
    fetch(&copy, &held, SUMMARIES);
    write(&db, 200..400);
    let held = db.hold_state(None).unwrap();
    copy.take_state(held.state().clone()).unwrap();
    fetch(&copy, &held, SUMMARIES);
    let before = copy.progress();
    assert!(before.shown_older > 0 && before.missing_bytes > 0);
    do_without(&copy);
    let now = copy.progress();
    assert_eq!(
        (now.shown_older, now.missing_bytes),
        (0, before.missing_bytes)
    );
    // That goes on to be shown when it can be had after all.
    copy.do_without_nothing();
    fetch(&copy, &held, ALL);
    assert_eq!(copy.progress().shown_older, 0);
}

#[test]
fn rows_that_are_here_do_not_go_for_a_version_without_rows() {
    let db = database();
    for rows in 0..12 {
        write(&db, rows * 40..(rows + 1) * 40);
    }
    let held = db.hold_state(None).unwrap();
    let copy = copy(held.state(), ReplicationRules::default());
    fetch(&copy, &held, ALL);
    assert_eq!(copy.progress().missing_bytes, 0);
    // Late rows have what is stored be written anew.
    write(&db, 5..200);
    db.compact().unwrap();
    let held = db.hold_state(None).unwrap();
    copy.take_state(held.state().clone()).unwrap();
    fetch(&copy, &held, SUMMARIES);
    do_without(&copy);
    assert!(copy.progress().shown_older > 0);
    let rows = |id: &str| {
        let reader = copy.reader(options()).unwrap().snapshot();
        let stream = StreamName::new(id, [("id", "1")]);
        let scan = reader.scan(&stream, &headwater_engine::ScanSpec::default());
        let chunks = scan.unwrap().map(|chunk| chunk.unwrap().times.len());
        chunks.sum::<usize>()
    };
    assert_eq!((rows("m"), rows("other")), (480, 480));
    fetch(&copy, &held, ALL);
    assert_eq!(copy.progress().shown_older, 0);
    assert_eq!(rows("m"), 480);
}
