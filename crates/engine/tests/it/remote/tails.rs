//! The newest events, which no state holds yet: with them a copy answers as its source does now,
//! whichever version of whichever partition it shows.

use super::copies::{Answers, Far, compare_rows_of, stored};
use super::edge::{Edge, FIELDS, streams, tiles};
use super::kept::plain;
use crate::support::Dice;
use headwater_engine::{Database, Holds, RemoteCopy, Rules, Snapshot, Tail, TailAsk, TailPlace};
use headwater_types::{ClosedRange, Level, StreamName};

/// Asks for what a copy does not know of the newest events, as much as `change` makes of it.
fn ask(
    db: &Database,
    copy: &RemoteCopy,
    place: &mut Option<TailPlace>,
    change: impl Fn(&mut TailAsk),
) -> Tail {
    let mut ask = TailAsk {
        known: copy.tail_point(),
        state: copy.state().name().sequence,
        bytes_max: usize::MAX,
        backlog_max: usize::MAX,
    };
    change(&mut ask);
    let tail = db.tail(&ask, &Rules::default(), place).unwrap();
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
    let mut holds = Holds::new(u64::MAX);
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
                    holds = Holds::new(u64::MAX);
                    edge.close();
                    edge.open();
                }
            }
            50..=61 => {
                let state = far.copy.state();
                let held = edge.db().hold_state(Some(&state)).unwrap();
                far.tell(holds.hold(held).state(), &mut dice);
            }
            62..=65 => {
                far.cut(dice.next());
                assert!(far.copy.tail_point().is_none());
            }
            66..=85 => {
                let most = 1 + dice.below(4000) as usize;
                let tail = ask(edge.db(), &far.copy, &mut place, |ask| ask.bytes_max = most);
                assert!(far.copy.take_tail(tail));
            }
            _ => {
                let newest = edge.db().snapshot().unwrap();
                // Definitions come first where they are in no record that is sent.
                let held = edge.db().hold_state(None).unwrap();
                far.tell(holds.hold(held).state(), &mut dice);
                while !far.copy.progress().tail.is_whole
                    || far.copy.progress().tail.until < newest.sequence()
                {
                    let tail = ask(edge.db(), &far.copy, &mut place, |_| {});
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
