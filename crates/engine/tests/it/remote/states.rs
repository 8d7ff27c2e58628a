//! Names of states, and files that are held for them.

use super::edge::Edge;
use headwater_engine::{
    Database, ErrorKind, Options, PinnedState, PinnedStates, RepairMode, State, backup, repair,
    restore,
};
use headwater_io::FaultyFiles;
use std::path::Path;
use std::sync::Arc;

fn write_some(edge: &mut Edge) {
    for _ in 0..30 {
        edge.step();
    }
    edge.db().flush().unwrap();
}

fn state(db: &Database) -> State {
    db.hold_state(None).unwrap().state().clone()
}

#[test]
fn a_state_has_a_name_that_rises_and_goes_on_from_those_before() {
    let mut edge = Edge::new(1);
    // Asked for before anything was stored, and after: it begins once.
    let history = edge.db().history().unwrap();
    let first = state(edge.db());
    assert_eq!(history, (first.name().identity, first.name().incarnation));
    assert_ne!(first.name().incarnation, 0);
    assert_eq!(state(edge.db()), first, "nothing happened, nothing changes");
    write_some(&mut edge);
    let second = state(edge.db());
    assert!(second.name().number > first.name().number);
    assert_eq!(second.name().opening, first.name().opening);
    edge.close();
    edge.open();
    write_some(&mut edge);
    let third = state(edge.db());
    assert_eq!(third.name().incarnation, first.name().incarnation);
    assert_eq!(edge.db().history().unwrap(), history);
    assert_ne!(third.name().opening, first.name().opening);
    for (later, earlier) in [(&second, &first), (&third, &first), (&third, &second)] {
        assert!(later.descends_from(&earlier.name()));
        assert!(!earlier.descends_from(&later.name()));
        assert!(edge.db().was_in(&earlier.name()).unwrap());
        let bytes = later.encode_after(earlier);
        assert_eq!(State::decode(&bytes, Some(earlier)).unwrap(), *later);
    }
}

#[test]
fn a_database_of_an_earlier_version_gets_a_name_and_goes_on() {
    let archive = std::fs::read(crate::compat::folder().join("life_1.zst")).unwrap();
    let archive = zstd::bulk::decompress(&archive, 64 << 20).unwrap();
    let options = crate::support::small_options();
    let run = crate::support::Run::new(crate::compat::unpack(&archive), &options);
    let db = run.open().unwrap();
    let first = state(&db);
    assert_ne!(first.name().incarnation, 0);
    assert!(first.segments().count() > 0);
    db.close().unwrap();
    drop(db);
    let db = run.open().unwrap();
    let again = state(&db);
    assert_eq!(again.name().incarnation, first.name().incarnation);
    assert!(again.descends_from(&first.name()));
}

#[test]
fn a_clone_a_restored_and_a_repaired_database_go_on_from_nothing_that_came_after() {
    let disk = FaultyFiles::new(3);
    let mut edge = Edge::on(3, Arc::new(disk.clone()));
    write_some(&mut edge);
    edge.close();
    // A card that was cloned while the database was closed: both go on.
    let cloned = disk.after_crash(1);
    edge.open();
    let before = state(edge.db());
    let to = Path::new("/backup");
    backup(&edge.env, &edge.options, to).unwrap();
    write_some(&mut edge);
    let after = state(edge.db());
    assert!(after.descends_from(&before.name()));

    let mut env = edge.env.clone();
    env.files = Arc::new(cloned);
    // The same numbers would be another machine's by chance alone.
    env.chance = Arc::new(headwater_io::SeededChance::new(99));
    let clone = Database::open_in(env, edge.options.clone()).unwrap();
    assert!(clone.was_in(&before.name()).unwrap());
    let spec = headwater_engine::TableSpec::new("more");
    clone.create_table(&spec).unwrap();
    clone.flush().unwrap();
    clone.compact().unwrap();
    let other = state(&clone);
    assert!(other.descends_from(&before.name()));
    assert!(!other.descends_from(&after.name()) && !clone.was_in(&after.name()).unwrap());

    let options = Options {
        dir: "/restored".into(),
        ..edge.options.clone()
    };
    restore(&edge.env, to, &options).unwrap();
    let restored = Database::open_in(edge.env.clone(), options).unwrap();
    let history = restored.history().unwrap();
    let restored = state(&restored);
    let named = (restored.name().identity, restored.name().incarnation);
    assert_eq!(history, named);
    assert_eq!(restored.name().identity, before.name().identity);
    assert_ne!(restored.name().incarnation, before.name().incarnation);
    assert!(!restored.descends_from(&before.name()));

    edge.close();
    let segment = after.segments().next().unwrap();
    let path = format!("/db/segment/{}.seg", segment.id);
    disk.flip_bit(&path, segment.bytes - 30, 3).unwrap();
    let report = repair(&edge.env, &edge.options, RepairMode::Act).unwrap();
    assert!(!report.findings.is_empty());
    edge.open();
    let repaired = state(edge.db());
    assert_ne!(repaired.name().incarnation, after.name().incarnation);
    assert!(!repaired.descends_from(&after.name()));
}

#[test]
fn what_a_held_state_names_stays_readable_until_too_much_is_held() {
    let mut edge = Edge::new(7);
    for _ in 0..6 {
        write_some(&mut edge);
    }
    let holds = PinnedStates::new(u64::MAX);
    let held = holds.hold(edge.db().hold_state(None).unwrap());
    let read_all = |holds: &PinnedStates, state: &State| -> Vec<Result<Vec<u8>, ErrorKind>> {
        let segments = state.segments();
        segments
            .map(|s| {
                let bytes = u32::try_from(s.bytes).unwrap();
                holds.read(s.id, 0, bytes).map_err(|e| e.kind())
            })
            .collect()
    };
    let before = read_all(&holds, held.state());
    assert!(before.iter().all(Result::is_ok));
    for _ in 0..6 {
        write_some(&mut edge);
        edge.db().compact().unwrap();
    }
    assert!(holds.replaced_bytes() > 0, "nothing was rewritten");
    assert_eq!(read_all(&holds, held.state()), before);
    // Nobody is served what is not committed, or nobody's.
    let segment = held.state().segments().next().unwrap();
    for (id, offset, bytes) in [
        (segment.id, segment.bytes, 1),
        (segment.id, u64::MAX, 2),
        (u64::MAX, 0, 1),
    ] {
        let error = holds.read(id, offset, bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gone);
        assert!(held.read(id, offset, bytes).is_err());
    }
    let state = held.state().clone();
    drop(held);
    // A limit lets go of the oldest, and the newest state is there still.
    let newest = holds.hold(edge.db().hold_state(Some(&state)).unwrap());
    assert_eq!(*newest.state(), super::states::state(edge.db()));
    let tight = PinnedStates::new(0);
    tight.hold(edge.db().hold_state(None).unwrap());
    assert!(
        tight.newest().is_some(),
        "what replaces nothing costs nothing"
    );
    holds.release_before(&newest.state().name());
    assert_eq!(holds.replaced_bytes(), 0);
    let found = read_all(&holds, &state);
    assert!(found.contains(&Err(ErrorKind::Gone)));
    let kept = found.iter().zip(&before).filter(|(now, _)| now.is_ok());
    assert!(kept.clone().all(|(now, before)| now == before));
    assert!(read_all(&holds, newest.state()).iter().all(Result::is_ok));
}

/// Segments whose bytes are those that the ledger names, and those of which it knows nothing.
fn proven(held: &PinnedState) -> (usize, usize) {
    let (mut proven, mut unknown) = (0, 0);
    for segment in held.state().segments() {
        let Some(mut proof) = held.state().proof(segment.id) else {
            unknown += 1;
            continue;
        };
        while let Some((offset, bytes)) = proof.next_range() {
            proof.take(&held.read(segment.id, offset, bytes).unwrap());
        }
        assert!(proof.is_equal(), "segment {}", segment.id);
        proven += 1;
    }
    (proven, unknown)
}

#[test]
fn the_ledger_names_what_segments_hold_whatever_becomes_of_them() {
    for seed in 1..=6 {
        let mut edge = Edge::new(seed);
        let mut before: Option<State> = None;
        let mut sum = 0;
        for round in 0..12 {
            for _ in 0..25 {
                edge.step();
            }
            edge.db().flush().unwrap();
            if round % 4 == 3 {
                before = None;
                edge.close();
                edge.open();
            }
            let held = edge.db().hold_state(before.as_ref()).unwrap();
            let (proven, unknown) = proven(&held);
            assert_eq!(unknown, 0, "nothing was there before there was a ledger");
            sum += proven;
            // It comes over the wire, whole and as what differs.
            let state = held.state();
            assert_eq!(State::decode(&state.encode(), None).unwrap(), *state);
            if let Some(before) = &before {
                let bytes = state.encode_after(before);
                assert_eq!(State::decode(&bytes, Some(before)).unwrap(), *state);
            }
            before = Some(state.clone());
        }
        assert!(sum > 20, "{sum}");
    }
}

#[test]
fn what_an_earlier_version_wrote_is_hashed_a_part_at_a_time_and_goes_on() {
    let archive = std::fs::read(crate::compat::folder().join("life_1.zst")).unwrap();
    let archive = zstd::bulk::decompress(&archive, 64 << 20).unwrap();
    let options = crate::support::small_options();
    let run = crate::support::Run::new(crate::compat::unpack(&archive), &options);
    let db = run.open().unwrap();
    let first = db.hold_state(None).unwrap();
    let (known, unknown) = proven(&first);
    assert!(unknown > 2, "{known} are known of an earlier version's");
    let mut calls = 1;
    while !db.complete_ledger(1).unwrap() {
        calls += 1;
    }
    assert!(calls >= unknown, "{calls} calls for {unknown} segments");
    let done = db.hold_state(Some(first.state())).unwrap();
    assert_eq!(proven(&done), (known + unknown, 0));
    // What it says is another state: whoever has the one before is told.
    let (before, after) = (first.state().name(), done.state().name());
    assert!(after.number > before.number && done.state().descends_from(&before));
    // With nothing left to hash nothing is written.
    assert!(db.complete_ledger(u64::MAX).unwrap());
    assert_eq!(db.state_number().unwrap(), after.number);
    drop((first, done));
    db.close().unwrap();
    drop(db);
    let db = run.open().unwrap();
    let stream = headwater_types::StreamName::new("later", [("id", "1")]);
    let mut batch = headwater_types::Batch::new();
    batch.stream(&stream).row(1, [("v", 1.5.into())]).unwrap();
    db.commit(batch).unwrap();
    db.compact().unwrap();
    let held = db.hold_state(None).unwrap();
    assert_eq!(proven(&held).1, 0);
}
