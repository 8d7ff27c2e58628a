//! What a copy wants besides summaries: rows by score, and what readers ask for.

use super::edge::options;
use headwater_engine::{
    Database, ErrorKind, LeafFacts, Missing, PinnedState, Reason, RemoteCopy, ReplicationRules,
    ScanSpec, StreamShare,
};
use headwater_io::{Env, NoThreads};
use headwater_types::{Batch, ClosedRange, Level, StreamName};
use std::path::Path;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;
/// Where rows of the quiet stream are wild.
const WILD: std::ops::Range<i64> = 1_700..1_800;

/// A quiet stream that is wild for a while, and one that is always noisier than that.
fn database() -> (Env, Database) {
    let env = Env {
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    let db = Database::open_in(env.clone(), options()).unwrap();
    let start = Env::MEMORY_START.as_nanos();
    let mut dice = crate::support::Dice::new(3);
    let mut noise = |width: u64| dice.below(width) as f64;
    for rows in 0..30 {
        let mut batch = Batch::new();
        for row in rows * 100..(rows + 1) * 100 {
            let width = if WILD.contains(&row) { 1_000 } else { 10 };
            for (id, value) in [("quiet", noise(width)), ("noisy", noise(100_000))] {
                let stream = batch.stream(&StreamName::new("m", [("id", id)]));
                stream
                    .row(start + row * SECOND, [("v", value.into())])
                    .unwrap();
            }
        }
        db.commit(batch).unwrap();
    }
    db.flush().unwrap();
    (env, db)
}

fn copy(held: &PinnedState, rules: impl Into<ReplicationRules>) -> RemoteCopy {
    RemoteCopy::begin(Env::memory(), Path::new("/copy"), held.state(), rules).unwrap()
}

fn fetch(copy: &RemoteCopy, held: &PinnedState, missing: &[Missing]) {
    for one in missing {
        let bytes = u32::try_from(one.range.bytes).unwrap();
        let found = held.read(one.segment, one.range.offset, bytes).unwrap();
        copy.put(one.segment, one.range.offset, &found).unwrap();
    }
    copy.commit().unwrap();
}

fn fetch_all(copy: &RemoteCopy, held: &PinnedState, reason: Reason) {
    loop {
        let missing = copy.missing_for(reason, u64::MAX);
        if missing.is_empty() {
            return;
        }
        fetch(copy, held, &missing);
    }
}

fn bytes_of(missing: &[Missing]) -> u64 {
    missing.iter().map(|m| m.range.bytes).sum()
}

#[test]
fn rows_that_deviate_from_the_rest_of_their_stream_come_first() {
    let (_env, db) = database();
    let held = db.hold_state(None).unwrap();
    let copy = copy(&held, ReplicationRules::default());
    let by_deviation = |facts: &LeafFacts| facts.deviation;
    let none = copy.missing_by_score(&by_deviation, u64::MAX).unwrap();
    assert!(none.is_empty(), "nothing is known of leaves yet: {none:?}");
    fetch_all(&copy, &held, Reason::Summaries);
    // Some segments are looked at in each call.
    let mut rows = copy.missing_by_score(&by_deviation, u64::MAX).unwrap();
    loop {
        let more = copy.missing_by_score(&by_deviation, u64::MAX).unwrap();
        if more.len() == rows.len() {
            break;
        }
        rows = more;
    }
    assert_eq!(
        bytes_of(&rows),
        bytes_of(&copy.missing_for(Reason::Rows, u64::MAX))
    );
    let scores: Vec<f64> = rows.iter().map(|m| m.why.score.unwrap()).collect();
    assert!(
        scores.is_sorted_by(|a, b| a >= b) && scores[0] > 2.0,
        "{scores:?}"
    );
    let noisy = |m: &&Missing| {
        let found = copy.explain(m.segment, m.range.offset, &by_deviation);
        let found = found.unwrap().unwrap();
        assert_eq!((found.why.reason, found.is_here), (Reason::Rows, false));
        found.stream.unwrap().tags()[0].1 == "noisy"
    };
    let first_noisy = rows.iter().position(|m| noisy(&m)).unwrap();
    assert!(first_noisy >= 3, "one noisy stream takes all");
    // Those alone answer for the wild stretch, but for its ends.
    fetch(&copy, &held, &rows[..first_noisy]);
    let reader = copy.reader(options()).unwrap().snapshot();
    let start = Env::MEMORY_START.as_nanos();
    let spec = ScanSpec {
        range: ClosedRange::nanos(
            start + (WILD.start + 20) * SECOND,
            start + (WILD.end - 20) * SECOND,
        ),
        ..ScanSpec::default()
    };
    let scan = reader.scan(&StreamName::new("m", [("id", "quiet")]), &spec);
    let rows: usize = scan.unwrap().map(|c| c.unwrap().times.len()).sum();
    assert_eq!(rows, 61);
}

#[test]
fn rows_are_fetched_ahead_as_far_as_the_rules_say_and_nothing_waits_for_them() {
    let (_env, db) = database();
    let held = db.hold_state(None).unwrap();
    let summaries = ReplicationRules::from(StreamShare::Summaries(Level::clamped(8)));
    let copy = copy(&held, summaries.clone().with_ahead_bytes(2_000));
    fetch_all(&copy, &held, Reason::Summaries);
    let by_events = |facts: &LeafFacts| facts.events as f64;
    for _ in 0..100 {
        let ahead = copy.missing_by_score(&by_events, 300).unwrap();
        assert!(ahead.iter().all(|m| m.why.reason == Reason::Ahead));
        fetch(&copy, &held, &ahead);
    }
    let tally = |reason| {
        let tallies = copy.tallies().into_iter();
        let mut of = tallies.filter(|t| t.reason == reason);
        of.next()
            .map(|t| (t.subscribed_bytes - t.missing, t.missing))
            .unwrap()
    };
    let (here, missing) = tally(Reason::Ahead);
    assert!((1_000..=2_000).contains(&here) && missing > 0, "{here}");
    let progress = copy.progress();
    assert_eq!(progress.complete.len(), held.state().segments().count());
    assert_eq!((progress.missing_bytes, tally(Reason::Rows)), (0, (0, 0)));
    // The same rows are wanted when the rules say so, on an open copy.
    copy.set_rules(ReplicationRules::default()).unwrap();
    assert_eq!(tally(Reason::Ahead), (0, 0));
    assert!(tally(Reason::Rows).0 >= here && tally(Reason::Rows).1 > 0);
    assert!(copy.progress().complete.len() < progress.complete.len());
    copy.set_rules(summaries).unwrap();
    assert_eq!(copy.progress().complete, progress.complete);
}

#[test]
fn what_readers_ask_for_is_fetched_first_bounded_and_forgotten() {
    let (_env, db) = database();
    let held = db.hold_state(None).unwrap();
    let copy = copy(&held, StreamShare::Summaries(Level::clamped(8)));
    let segment = held.state().segments().max_by_key(|s| s.bytes).unwrap();
    let is_refused = |id, offset, bytes| !copy.request_range(id, offset, bytes);
    assert!(is_refused(u64::MAX, 0, 1) && is_refused(segment.id, segment.bytes, 1));
    assert!(is_refused(segment.id, u64::MAX, 2));
    assert!(copy.request_range(segment.id, 500, 700) && copy.request_range(segment.id, 500, 700));
    let first = copy.missing(1)[0];
    assert_eq!((first.range.offset, first.range.bytes), (500, 700));
    assert_eq!(first.why.reason, Reason::Requested);
    // A part of it comes, and the rest is refused.
    let bytes = held.read(segment.id, 400, 300).unwrap();
    copy.put(segment.id, 400, &bytes).unwrap();
    copy.commit().unwrap();
    let left = copy.missing_for(Reason::Requested, u64::MAX);
    assert_eq!((left[0].range.offset, left[0].range.bytes), (700, 500));
    copy.cancel_request(segment.id, 1_100, 1);
    assert!(copy.missing_for(Reason::Requested, u64::MAX).is_empty());
    // What is here is not asked for, and too much is refused.
    assert!(copy.request_range(segment.id, 450, 100));
    assert!(copy.missing_for(Reason::Requested, u64::MAX).is_empty());
    let accepted = (700..segment.bytes).filter(|at| copy.request_range(segment.id, *at, 1));
    assert_eq!(accepted.count(), 256);
}

#[test]
fn a_copy_of_nothing_of_a_table_asks_for_nothing_of_it_and_says_elsewhere() {
    let (_env, db) = database();
    let held = db.hold_state(None).unwrap();
    let copy = copy(&held, StreamShare::Nothing);
    let progress = copy.progress();
    assert_eq!((progress.missing_bytes, progress.complete.len()), (0, 0));
    let reader = copy.reader(options()).unwrap().snapshot();
    let stream = StreamName::new("m", [("id", "quiet")]);
    let scan = reader.scan(&stream, &ScanSpec::default());
    let error = scan.and_then(|mut scan| scan.find_map(Result::err).map_or(Ok(()), Err));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Elsewhere);
}
