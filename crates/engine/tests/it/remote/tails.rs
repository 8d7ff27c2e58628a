//! The newest events, which no state holds yet: with them a copy answers as its source does now,
//! whichever version of whichever partition it shows.

use super::copies::{Answers, DIR, Far, compare_rows_of, stored};
use super::edge::{Edge, FIELDS, options, streams, tiles};
use super::retained::plain;
use crate::support::Dice;
use headwater_engine::{
    Database, LogLocation, PinnedStates, RemoteCopy, ReplicationRule, ReplicationRules, ScanSpec,
    Snapshot, StreamShare, Tail, TailRequest,
};
use headwater_io::{Env, NoThreads, SeededChance};
use headwater_types::{Batch, ClosedRange, Level, StreamName, Value};
use std::path::Path;
use std::sync::Arc;

/// Asks for what a copy does not know of the newest events, as much as `change` makes of it.
fn request_tail(
    db: &Database,
    copy: &RemoteCopy,
    place: &mut Option<LogLocation>,
    change: impl Fn(&mut TailRequest),
) -> Tail {
    let mut ask = TailRequest {
        last_point: copy.tail_point(),
        state: copy.state().name().sequence,
        bytes_max: usize::MAX,
        backlog_max: usize::MAX,
    };
    change(&mut ask);
    let tail = db.tail(&ask, &ReplicationRules::default(), place).unwrap();
    // As it would come over a wire.
    Tail::decode(&tail.encode()).unwrap()
}

/// Compares tiles but for the last digits: what is summed in another order differs there.
fn compare(
    source: &Snapshot,
    copy: &Snapshot,
    span: &ClosedRange,
    streams: &[StreamName],
) -> Answers {
    let mut answers = Answers::default();
    for stream in streams {
        for field in FIELDS {
            if source.field_type(stream, field).is_err() {
                continue;
            }
            for level in [4, 6, 9].map(Level::clamped) {
                for offset in tiles(level, span) {
                    let what = || format!("{stream}.{field}, {level:?}, tile {offset}");
                    let found = source.tile(stream, field, level, offset).unwrap();
                    let copied = copy.tile(stream, field, level, offset);
                    answers.same(&what, &plain(&found), copied.map(|tile| plain(&tile)));
                }
            }
        }
    }
    answers
}

/// Compares where not all rows are here: what came late is not shown before it is stored, and
/// nothing else lacks.
fn compare_some(
    source: &Snapshot,
    copy: &Snapshot,
    span: &ClosedRange,
    streams: &[StreamName],
) -> Answers {
    let mut answers = Answers::default();
    for stream in streams {
        let newest = source.last(stream).unwrap();
        let what = || format!("newest of {stream}");
        answers.same(&what, &newest, copy.last(stream));
        for field in FIELDS {
            if source.field_type(stream, field).is_err() {
                continue;
            }
            for level in [4, 6, 9].map(Level::clamped) {
                for offset in tiles(level, span) {
                    let found = source.tile(stream, field, level, offset).unwrap();
                    let Ok(copied) = copy.tile(stream, field, level, offset) else {
                        answers.elsewhere += 1;
                        continue;
                    };
                    answers.here += 1;
                    for (number, bucket) in copied {
                        let of_source = found.iter().find(|(n, _)| *n == number);
                        let most = of_source.map_or(0, |(_, bucket)| bucket.count);
                        assert!(bucket.count <= most, "{stream}.{field}, {number}");
                    }
                }
            }
        }
    }
    answers
}

/// One life of a source and its copy, which is told of newest events now and then.
fn live(seed: u64) -> Answers {
    let mut edge = Edge::new(seed);
    let mut dice = Dice::new(seed ^ 0x7a11);
    let level = [Level::clamped(4), Level::MIN][dice.below(2) as usize];
    for _ in 0..30 {
        edge.step();
    }
    let mut holds = PinnedStates::new(u64::MAX);
    let (_, held) = stored(&edge, None);
    let mut far = Far::new(seed, holds.hold(held).state(), level);
    let mut place = None;
    let mut answers = Answers::default();
    for _ in 0..80 {
        match dice.below(100) {
            0..=24 => {
                let all = dice.chance(30);
                far.fetch(&holds, &mut dice, all);
            }
            25..=49 => {
                for _ in 0..1 + dice.below(10) {
                    edge.step();
                }
                if dice.chance(10) {
                    // What is held keeps the database open; the place is one of the log of before.
                    holds = PinnedStates::new(u64::MAX);
                    edge.close();
                    edge.open();
                }
            }
            50..=61 => {
                let state = far.copy.state();
                let held = edge.db().hold_state(Some(&state)).unwrap();
                far.receive_state(holds.hold(held).state(), &mut dice);
            }
            62..=65 => {
                far.cut(dice.next());
                assert!(far.copy.tail_point().is_none());
            }
            66..=85 => {
                let most = 1 + dice.below(4000) as usize;
                let tail =
                    request_tail(edge.db(), &far.copy, &mut place, |ask| ask.bytes_max = most);
                assert!(far.copy.take_tail(tail));
            }
            _ => {
                let newest = edge.db().snapshot().unwrap();
                // Definitions come first where they are in no record that is sent.
                let held = edge.db().hold_state(None).unwrap();
                far.receive_state(holds.hold(held).state(), &mut dice);
                while !far.copy.progress().tail.is_whole
                    || far.copy.progress().tail.until < newest.sequence()
                {
                    let tail = request_tail(edge.db(), &far.copy, &mut place, |_| {});
                    assert!(tail.is_newest());
                    assert!(far.copy.take_tail(tail));
                    if !far.copy.progress().tail.is_whole {
                        // What is shown is behind what the tail begins with.
                        while far.fetch(&holds, &mut dice, true) {}
                    }
                }
                let copied = far.reader().snapshot();
                assert_eq!(streams(&copied), streams(&newest), "seed {seed}");
                let mut names = streams(&newest);
                if far.copy.progress().shown_older > 0 {
                    // What the source has cut away since is shown as long as that is.
                    names.retain(|name| ["plain", "keeps"].contains(&name.table()));
                }
                let progress = far.copy.progress();
                let is_whole = level == Level::MIN && progress.missing_bytes == 0;
                let found = match is_whole && progress.shown_older == 0 {
                    true => [
                        compare(&newest, &copied, &edge.span(), &names),
                        compare_rows_of(&newest, &copied, &names),
                    ],
                    false => [
                        compare_some(&newest, &copied, &edge.span(), &names),
                        Answers::default(),
                    ],
                };
                for found in found {
                    answers.here += found.here;
                    answers.elsewhere += found.elsewhere;
                }
            }
        }
    }
    answers
}

#[test]
fn random_lives_of_a_copy_with_newest_events_answer_as_the_source_does_now() {
    let first = crate::cuts::variable("HEADWATER_MODEL_FIRST_SEED").unwrap_or(1);
    let seeds = crate::cuts::variable("HEADWATER_MODEL_SEEDS").unwrap_or(12);
    let mut sum = Answers::default();
    for seed in first..first + seeds {
        let lived = std::panic::catch_unwind(|| live(seed));
        let answers = lived.unwrap_or_else(|panic| {
            eprintln!("seed {seed}: HEADWATER_MODEL_FIRST_SEED={seed} HEADWATER_MODEL_SEEDS=1");
            std::panic::resume_unwind(panic)
        });
        sum.here += answers.here;
        sum.elsewhere += answers.elsewhere;
    }
    assert!(sum.here > 0 && sum.elsewhere > 0, "{sum:?}");
}

fn database(env: &Env) -> Database {
    Database::open_in(env.clone(), options()).unwrap()
}

fn env() -> Env {
    Env {
        threads: Arc::new(NoThreads),
        ..Env::memory()
    }
}

/// A row of a stream of a table at a second.
fn write(db: &Database, table: &str, second: i64, value: Value) {
    let mut batch = Batch::new();
    let rows = batch.stream(&StreamName::new(table, [("id", "1")]));
    let at = Env::MEMORY_START.as_nanos() + second * 1_000_000_000;
    rows.row(at, [("v", value)]).unwrap();
    db.commit(batch).unwrap();
}

/// A copy of what a database has stored.
fn copy_of(db: &Database, rules: &ReplicationRules) -> RemoteCopy {
    let held = db.hold_state_of(None, rules).unwrap();
    let to = Path::new(DIR);
    let copy = RemoteCopy::begin(Env::memory(), to, held.state(), Level::MIN).unwrap();
    while let Some(missing) = copy.missing(1).first() {
        let bytes = u32::try_from(missing.range.bytes).unwrap();
        let found = held.read(missing.segment, missing.range.offset, bytes);
        copy.put(missing.segment, missing.range.offset, &found.unwrap())
            .unwrap();
        copy.commit().unwrap();
    }
    copy
}

fn rows(copy: &RemoteCopy, table: &str) -> usize {
    let snapshot = copy.reader(options()).unwrap().snapshot();
    let stream = StreamName::new(table, [("id", "1")]);
    let Ok(scan) = snapshot.scan(&stream, &ScanSpec::default()) else {
        return 0;
    };
    scan.map(|chunk| chunk.unwrap().times.len()).sum()
}

#[test]
fn nothing_of_a_withheld_table_is_sent_along() {
    let db = database(&env());
    write(&db, "m", 0, Value::F64(1.0));
    let secret = ReplicationRule {
        table: Some("s3cret".into()),
        tags: Vec::new(),
        want: StreamShare::Nothing,
        priority: 0,
    };
    let rules = ReplicationRules::new(vec![secret], StreamShare::Full).unwrap();
    let copy = copy_of(&db, &rules);
    write(&db, "s3cret", 1, Value::F64(2.0));
    let mut both = Batch::new();
    for table in ["s3cret", "m", "later"] {
        let rows = both.stream(&StreamName::new(table, [("id", "1")]));
        let at = Env::MEMORY_START.as_nanos() + 2_000_000_000;
        rows.row(at, [("v", Value::F64(3.0))]).unwrap();
    }
    db.commit(both).unwrap();
    let ask = TailRequest {
        last_point: None,
        state: copy.state().name().sequence,
        bytes_max: usize::MAX,
        backlog_max: usize::MAX,
    };
    let bytes = db.tail(&ask, &rules, &mut None).unwrap().encode();
    assert!(!bytes.windows(6).any(|part| part == b"s3cret"));
    assert!(copy.take_tail(Tail::decode(&bytes).unwrap()));
    // Tables are numbered without gaps: what came after it is found, with its number.
    assert_eq!((rows(&copy, "m"), rows(&copy, "later")), (2, 1));
    let names = copy.reader(options()).unwrap().snapshot().table_names();
    assert_eq!(names, ["later", "m"]);
}

#[test]
fn where_too_much_waits_the_oldest_events_are_left_out() {
    let db = database(&env());
    write(&db, "m", 0, Value::F64(1.0));
    db.flush().unwrap();
    let copy = copy_of(&db, &ReplicationRules::default());
    for second in 1..=100 {
        write(&db, "m", second, Value::F64(1.0));
    }
    let tail = request_tail(&db, &copy, &mut None, |ask| ask.backlog_max = 2_000);
    assert!(tail.has_skipped() && tail.is_newest());
    assert!(copy.take_tail(tail));
    let newest = copy.reader(options()).unwrap().snapshot();
    let stream = StreamName::new("m", [("id", "1")]);
    let expected = db.snapshot().unwrap().last(&stream).unwrap();
    assert_eq!(newest.last(&stream).unwrap(), expected);
    let shown = rows(&copy, "m");
    assert!((2..100).contains(&shown), "{shown}");
    assert!(!copy.progress().tail.is_whole);
    // Once they are stored all are there, and nothing twice.
    db.flush().unwrap();
    let held = db.hold_state(Some(&copy.state())).unwrap();
    copy.take_state(held.state().clone()).unwrap();
    while let Some(missing) = copy.missing(1).first() {
        let range = missing.range;
        let bytes = u32::try_from(range.bytes).unwrap();
        let found = held.read(missing.segment, range.offset, bytes).unwrap();
        copy.put(missing.segment, range.offset, &found).unwrap();
        copy.commit().unwrap();
    }
    let tail = request_tail(&db, &copy, &mut None, |_| {});
    assert!(copy.take_tail(tail));
    assert_eq!(rows(&copy, "m"), 101);
    assert!(copy.progress().tail.is_whole);
}

#[test]
fn a_log_with_another_record_of_the_same_number_begins_anew() {
    let env = env();
    let db = database(&env);
    write(&db, "m", 0, Value::F64(1.0));
    db.flush().unwrap();
    let copy = copy_of(&db, &ReplicationRules::default());
    write(&db, "m", 1, Value::F64(1.0));
    assert!(copy.take_tail(request_tail(&db, &copy, &mut None, |_| {})));
    let known = copy.tail_point().unwrap();
    write(&db, "m", 2, Value::F64(1.0));
    let goes_on = request_tail(&db, &copy, &mut None, |_| {});
    assert!(goes_on.continues_from(&known));
    let other = request_tail(&db, &copy, &mut None, |ask| {
        let last = ask
            .last_point
            .as_mut()
            .and_then(|known| known.last.as_mut());
        last.unwrap().crc ^= 1;
    });
    assert!(!other.continues_from(&known));
    assert!(copy.take_tail(other));
    assert_eq!(rows(&copy, "m"), 3);
    // Records that are not there yet are of a log that was longer once.
    let longer = request_tail(&db, &copy, &mut None, |ask| {
        ask.last_point.as_mut().unwrap().until += 1_000;
    });
    assert!(longer.until() < 1_000 && copy.take_tail(longer));
    assert_eq!(rows(&copy, "m"), 3);
}

#[test]
fn a_tail_of_another_history_or_of_fields_that_there_are_not_is_not_shown() {
    let db = database(&env());
    for _ in 0..10 {
        // So that the state has every definition up to a number that the lie stays below.
        write(&db, "m", 0, Value::F64(1.0));
    }
    db.flush().unwrap();
    let copy = copy_of(&db, &ReplicationRules::default());
    let other = database(&Env {
        chance: Arc::new(SeededChance::new(99)),
        ..env()
    });
    write(&other, "m", 0, Value::F64(1.0));
    write(&other, "m", 1, Value::F64(1.0));
    let stranger = request_tail(&other, &copy, &mut None, |_| {});
    assert!(!copy.take_tail(stranger));
    assert_eq!(copy.tail_point(), None);
    // The same bytes with a row of text where the table has numbers.
    write(&db, "m", 1, Value::F64(1.0));
    let honest = request_tail(&db, &copy, &mut None, |_| {});
    let text = database(&env());
    write(&text, "m", 0, Value::F64(1.0));
    let at = Env::MEMORY_START.as_nanos() + 1_000_000_000;
    let mut batch = Batch::new();
    let stream = batch.stream(&StreamName::new("m", [("id", "1")]));
    stream.row(at, [("w", Value::I64(7))]).unwrap();
    text.commit(batch).unwrap();
    let bytes = request_tail(&text, &copy, &mut None, |ask| ask.state = u64::MAX).encode();
    // Under the name of the copy's database: identity and incarnation stand behind the flags.
    let mut lie = honest.encode()[..24].to_vec();
    lie.extend_from_slice(&bytes[24..bytes.len() - 4]);
    let crc = headwater_codec::checksum::crc32c(&lie);
    lie.extend_from_slice(&crc.to_le_bytes());
    let taken = Tail::decode(&lie).is_ok_and(|tail| copy.take_tail(tail));
    assert_eq!(rows(&copy, "m"), 1, "{taken}");
    // It is let go, and what is true is taken.
    copy.drop_tail();
    assert!(copy.take_tail(honest));
    assert_eq!(rows(&copy, "m"), 2);
}

/// Fetches everything that is missing.
fn fetch(db: &Database, copy: &RemoteCopy) {
    let held = db.hold_state(Some(&copy.state())).unwrap();
    while let Some(missing) = copy.missing(1).first() {
        let range = missing.range;
        let bytes = u32::try_from(range.bytes).unwrap();
        let found = held.read(missing.segment, range.offset, bytes).unwrap();
        copy.put(missing.segment, range.offset, &found).unwrap();
        copy.commit().unwrap();
    }
}

/// Stores everything, and tells the copy of the state, without its bytes.
fn tell_stored(db: &Database, copy: &RemoteCopy) {
    db.flush().unwrap();
    let held = db.hold_state(Some(&copy.state())).unwrap();
    copy.take_state(held.state().clone()).unwrap();
}

/// Answers about all streams and about one: rows, the newest instant, values, a count; and whether
/// there are newer ones that are not shown.
fn answers(copy: &RemoteCopy) -> headwater_engine::Result<(usize, i64, u64, u64, bool)> {
    let snapshot = copy.reader(options()).unwrap().snapshot();
    let stream = StreamName::new("m", [("id", "1")]);
    let mut rows = 0;
    for chunk in snapshot.scan(&stream, &ScanSpec::default())? {
        rows += chunk?.times.len();
    }
    let newest = snapshot.last(&stream)?;
    let spec = headwater_engine::AggregateSpec {
        range: ClosedRange::ALL,
        bins: headwater_engine::Bins::Whole,
        first_last: true,
    };
    let bins = snapshot.aggregate(&stream, "v", &spec)?;
    let count = snapshot.row_count("m", ClosedRange::ALL, &mut || true)?;
    let coverage = snapshot.coverage(&stream, ClosedRange::ALL, None)?;
    assert!(coverage.iter().all(|part| part.is_here));
    Ok((
        rows,
        newest.first().map_or(0, |value| value.time.as_nanos()),
        bins.iter().map(|bin| bin.aggregate.count).sum(),
        count.unwrap(),
        coverage.iter().any(|part| part.is_older),
    ))
}

fn instant(second: i64) -> i64 {
    Env::MEMORY_START.as_nanos() + second * 1_000_000_000
}

/// Seconds between rows that are in partitions of their own.
const APART: i64 = 1 << 29;

#[test]
fn a_state_takes_away_nothing_that_newest_events_show() {
    let db = database(&env());
    write(&db, "m", 0, Value::F64(1.0));
    let copy = copy_of(&db, &ReplicationRules::default());
    assert!(copy.take_tail(request_tail(&db, &copy, &mut None, |_| {})));
    let mut shown = (1, instant(0), 1, 1, false);
    assert_eq!(answers(&copy).unwrap(), shown);
    for round in 1..4 {
        // Written after the tail was sent, and stored before it is sent again.
        write(&db, "m", round * APART, Value::F64(1.0));
        tell_stored(&db, &copy);
        assert!(copy.progress().shown_older > 0);
        shown.4 = true;
        assert_eq!(answers(&copy).unwrap(), shown, "round {round}");
        // The tail goes on meanwhile.
        write(&db, "m", round * APART + 1, Value::F64(1.0));
        let goes_on = request_tail(&db, &copy, &mut None, |_| {});
        assert!(copy.take_tail(goes_on));
        let (more, now) = (2 * round as u64 + 1, instant(round * APART + 1));
        shown = (more as usize, now, more, more, true);
        assert_eq!(answers(&copy).unwrap(), shown, "round {round}");
        // And with its bytes the copy has all of it, as before.
        fetch(&db, &copy);
        shown.4 = false;
        assert_eq!(answers(&copy).unwrap(), shown, "round {round}");
        let progress = copy.progress();
        assert_eq!((progress.shown_older, progress.missing_bytes), (0, 0));
    }
}

#[test]
fn what_newest_events_do_not_reach_to_is_elsewhere_and_not_missing_silently() {
    let elsewhere = |copy: &RemoteCopy| {
        let error = answers(copy).unwrap_err();
        assert_eq!(error.kind(), headwater_engine::ErrorKind::Elsewhere);
        assert_eq!(copy.progress().shown_older, 0);
    };
    let begun = |db: &Database| {
        write(db, "m", 0, Value::F64(1.0));
        let copy = copy_of(db, &ReplicationRules::default());
        assert!(copy.take_tail(request_tail(db, &copy, &mut None, |_| {})));
        copy
    };
    // Without newest events.
    let db = database(&env());
    write(&db, "m", 0, Value::F64(1.0));
    let copy = copy_of(&db, &ReplicationRules::default());
    tell_stored(&db, &copy);
    elsewhere(&copy);
    // They are dropped later, or begin anew behind what is not here.
    let db = database(&env());
    let copy = begun(&db);
    tell_stored(&db, &copy);
    assert_eq!(answers(&copy).unwrap().0, 1);
    copy.drop_tail();
    elsewhere(&copy);
    let db = database(&env());
    let copy = begun(&db);
    write(&db, "m", APART, Value::F64(1.0));
    tell_stored(&db, &copy);
    write(&db, "m", 2 * APART, Value::F64(1.0));
    let anew = request_tail(&db, &copy, &mut None, |ask| ask.last_point = None);
    assert!(!anew.continues_from(&copy.tail_point().unwrap()));
    assert_eq!(answers(&copy).unwrap().0, 1);
    assert!(copy.take_tail(anew));
    elsewhere(&copy);
    // A delete that they do not have yet.
    let db = database(&env());
    let copy = begun(&db);
    write(&db, "m", APART, Value::F64(1.0));
    let stream = StreamName::new("m", [("id", "1")]);
    let deleted = ClosedRange::nanos(instant(APART), instant(APART));
    db.delete_streams("m", &[stream], deleted).unwrap();
    tell_stored(&db, &copy);
    elsewhere(&copy);
    // What is shown as elsewhere stays so until it is here.
    let tail = request_tail(&db, &copy, &mut None, |_| {});
    assert!(copy.take_tail(tail));
    elsewhere(&copy);
    fetch(&db, &copy);
    assert_eq!(answers(&copy).unwrap().0, 1);
}
