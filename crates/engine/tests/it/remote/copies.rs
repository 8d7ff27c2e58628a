//! Copies with holes: whatever has been fetched of a source, and whatever became of both, a copy
//! answers as its source does, or says that it is elsewhere.

use super::edge::{Edge, FIELDS, options, streams, tiles};
use crate::support::{Dice, collect};
use headwater_engine::{
    CopyProgress, Error, ErrorKind, PinnedState, PinnedStates, Reader, RemoteCopy, ScanSpec,
    Snapshot, State, TailProgress,
};
use headwater_io::{Env, FaultyFiles};
use headwater_types::{ClosedRange, Level, StreamName};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

pub(super) const DIR: &str = "/copies/1";

/// A copy on a disk that loses power, and what of its source it was last told.
pub(super) struct Far {
    pub(super) disk: FaultyFiles,
    level: Level,
    pub(super) copy: RemoteCopy,
}

fn env(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}

impl Far {
    pub(super) fn new(seed: u64, state: &State, level: Level) -> Far {
        let disk = FaultyFiles::new(seed);
        let copy = RemoteCopy::begin(env(&disk), Path::new(DIR), state, level).unwrap();
        Far { disk, level, copy }
    }

    /// Power goes, and what was confirmed is there afterwards.
    pub(super) fn cut(&mut self, seed: u64) {
        let mut before = CopyProgress {
            // What was sent along of newest events is on no medium.
            tail: TailProgress::default(),
            ..self.copy.progress()
        };
        self.disk.crash_now();
        self.disk = self.disk.after_crash(seed);
        self.copy = RemoteCopy::open(env(&self.disk), Path::new(DIR), self.level).unwrap();
        let after = self.copy.progress();
        if before.left_out > 0 {
            // Nor is what they went on from: it is elsewhere, or a part of it is here.
            before.shown += before.left_out;
            before.shown_older -= before.left_out;
            before.left_out = 0;
            assert!(after.readable >= before.readable);
            before.readable = after.readable;
        }
        assert_eq!(after, before);
    }

    /// Takes a state as it would come over a wire.
    pub(super) fn receive_state(&self, state: &State, dice: &mut Dice) {
        let known = self.copy.state();
        let bytes = match dice.chance(50) {
            true => state.encode_after(&known),
            false => state.encode(),
        };
        let state = State::decode(&bytes, Some(&known)).unwrap();
        self.copy.take_state(state).unwrap();
    }

    /// Fetches some of what is missing; false when nothing is. What the source does not keep any
    /// more stays missing.
    pub(super) fn fetch(&self, holds: &PinnedStates, dice: &mut Dice, all: bool) -> bool {
        let most = if all { u64::MAX } else { 1 + dice.below(4000) };
        let missing = self.copy.missing(most);
        for one in &missing {
            let (mut offset, end) = (one.range.offset, one.range.offset + one.range.bytes);
            if !all && dice.chance(30) {
                continue;
            }
            while offset < end {
                let bytes = if all || dice.chance(50) {
                    end - offset
                } else {
                    1 + dice.below(end - offset)
                };
                let count = u32::try_from(bytes).unwrap();
                match holds.read(one.segment, offset, count) {
                    Ok(found) => {
                        for _ in 0..1 + dice.below(2) {
                            self.copy.put(one.segment, offset, &found).unwrap();
                        }
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Gone, "{error}"),
                }
                offset += bytes;
            }
        }
        if all || dice.chance(70) {
            self.copy.commit().unwrap();
        }
        !missing.is_empty()
    }

    pub(super) fn reader(&self) -> Reader {
        self.copy.reader(options()).unwrap()
    }
}

/// Answers that were there, and those that were elsewhere.
#[derive(Default, Debug)]
pub(super) struct Answers {
    pub(super) here: u64,
    pub(super) elsewhere: u64,
}

impl Answers {
    /// Of two answers the second may be elsewhere.
    pub(super) fn same<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &dyn Fn() -> String,
        source: &T,
        copy: headwater_engine::Result<T>,
    ) {
        match copy {
            Ok(copy) => {
                assert_eq!(copy, *source, "{}", what());
                self.here += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Elsewhere, "{}: {error}", what());
                self.elsewhere += 1;
            }
        }
    }
}

/// Compares tiles from a level on, and everything else where `all`.
pub(super) fn compare(
    source: &Snapshot,
    copy: &Snapshot,
    span: &ClosedRange,
    from: Level,
) -> Answers {
    let mut answers = Answers::default();
    // A snapshot lists streams that were defined after it, too.
    let (names, known) = (streams(copy), streams(source));
    assert!(names.iter().all(|name| known.contains(name)));
    for stream in &names {
        for field in FIELDS {
            if source.field_type(stream, field).is_err() {
                continue;
            }
            for above in [0, 2, 5] {
                let level = Level::clamped(from.get() + above);
                for offset in tiles(level, span) {
                    let what = || format!("{stream}.{field}, {level:?}, tile {offset}");
                    let found = source.tile(stream, field, level, offset).unwrap();
                    let copied = copy.tile(stream, field, level, offset);
                    answers.same(&what, &found, copied);
                }
            }
        }
    }
    answers
}

/// Compares rows and newest values.
fn compare_rows(source: &Snapshot, copy: &Snapshot) -> Answers {
    compare_rows_of(source, copy, &streams(copy))
}

/// As [`compare_rows`], of some streams.
pub(super) fn compare_rows_of(
    source: &Snapshot,
    copy: &Snapshot,
    streams: &[StreamName],
) -> Answers {
    let mut answers = Answers::default();
    for stream in streams {
        let what = || format!("rows of {stream}");
        let (found, errors) = collect(source.scan(stream, &ScanSpec::default()).unwrap());
        assert!(errors.is_empty());
        let copied = copy.scan(stream, &ScanSpec::default()).and_then(|scan| {
            let (rows, mut errors) = collect(scan);
            errors.pop().map_or(Ok(rows), Err)
        });
        answers.same(&what, &found, copied);
        let what = || format!("newest of {stream}");
        let newest = source.last(stream).unwrap();
        answers.same(&what, &newest, copy.last(stream));
    }
    answers
}

/// Stores everything, and takes the state with a snapshot of it.
pub(super) fn stored(edge: &Edge, before: Option<&State>) -> (Snapshot, PinnedState) {
    edge.db().flush().unwrap();
    let snapshot = edge.db().snapshot().unwrap();
    (snapshot, edge.db().hold_state(before).unwrap())
}

#[test]
fn a_copy_of_summaries_answers_for_all_tiles_and_says_of_the_rest_that_it_is_elsewhere() {
    for seed in 1..=4 {
        let mut edge = Edge::new(seed);
        for _ in 0..150 {
            edge.step();
        }
        let (snapshot, held) = stored(&edge, None);
        let holds = PinnedStates::new(u64::MAX);
        let held = holds.hold(held);
        let level = Level::clamped(5);
        let far = Far::new(seed, held.state(), level);
        let dice = &mut Dice::new(seed);
        let nothing = compare(&snapshot, &far.reader().snapshot(), &edge.span(), level);
        assert!(nothing.elsewhere > 0, "{nothing:?}");
        // Footers tell of blocks and late rows, late rows of others.
        while far.fetch(&holds, dice, true) {}
        let progress = far.copy.progress();
        assert_eq!((progress.missing_bytes, progress.shown_older), (0, 0));
        assert_eq!(progress.complete.len(), held.state().segments().count());
        let all: u64 = held.state().segments().map(|s| s.bytes).sum();
        assert!(progress.bytes < all, "{} of {all}", progress.bytes);
        let copied = far.reader().snapshot();
        let tiles = compare(&snapshot, &copied, &edge.span(), level);
        assert_eq!(tiles.elsewhere, 0, "seed {seed}");
        let finer = compare(&snapshot, &copied, &edge.span(), Level::clamped(-2));
        let rows = compare_rows(&snapshot, &copied);
        assert!(finer.elsewhere + rows.elsewhere > 0);
        // The same copy, of which everything is wanted now.
        drop(far.copy);
        let copy = RemoteCopy::open(env(&far.disk), Path::new(DIR), Level::MIN).unwrap();
        let far = Far {
            copy,
            level: Level::MIN,
            ..far
        };
        while far.fetch(&holds, dice, true) {}
        let copied = far.reader().snapshot();
        let rows = compare_rows(&snapshot, &copied);
        let tiles = compare(&snapshot, &copied, &edge.span(), Level::clamped(-2));
        assert_eq!((rows.elsewhere, tiles.elsewhere), (0, 0), "seed {seed}");
        let table = |s: &Snapshot| s.row_count("plain", ClosedRange::ALL, &mut || true);
        assert_eq!(table(&copied).unwrap(), table(&snapshot).unwrap());
        assert_eq!(streams(&copied), streams(&snapshot));
    }
}

/// One life of a source and its copy: the source goes on, the copy is told and fetches now and
/// then, power goes. Answers that were here, and that were elsewhere.
fn live(seed: u64) -> Answers {
    let mut edge = Edge::new(seed);
    let mut dice = Dice::new(seed ^ 0x5eed);
    let level = [Level::clamped(4), Level::clamped(7), Level::MIN][dice.below(3) as usize];
    for _ in 0..40 {
        edge.step();
    }
    // Of what was replaced little is kept, in some lives.
    let hold_bytes = if dice.chance(50) { u64::MAX } else { 8 << 10 };
    let mut holds = PinnedStates::new(hold_bytes);
    let (snapshot, held) = stored(&edge, None);
    // What the source saw when the state was taken that the copy has, while it is open.
    let mut seen = Some((snapshot, edge.span()));
    let mut far = Far::new(seed, holds.hold(held).state(), level);
    let mut answers = Answers::default();
    for _ in 0..60 {
        match dice.below(100) {
            0..=44 => {
                far.fetch(&holds, &mut dice, false);
            }
            45..=64 => {
                for _ in 0..1 + dice.below(25) {
                    edge.step();
                }
                if dice.chance(15) {
                    (seen, holds) = (None, PinnedStates::new(hold_bytes));
                    edge.close();
                    edge.open();
                }
            }
            65..=79 => {
                let state = far.copy.state();
                let taken = stored(&edge, Some(&state));
                seen = Some((taken.0, edge.span()));
                let held = holds.hold(taken.1);
                far.receive_state(held.state(), &mut dice);
                // The state of before is not asked for any more, but for what is shown of it.
                holds.release_before(&held.state().name());
            }
            80..=86 => far.cut(dice.next()),
            _ => {
                // Of partitions shown in a version before, what they hold is not what the
                // newest snapshot sees: they are compared when they are gone.
                if let Some((snapshot, told)) = &seen
                    && far.copy.progress().shown_older == 0
                {
                    let copied = far.reader().snapshot();
                    for found in [
                        compare(snapshot, &copied, told, Level::clamped(4)),
                        compare_rows(snapshot, &copied),
                    ] {
                        answers.here += found.here;
                        answers.elsewhere += found.elsewhere;
                    }
                }
            }
        }
    }
    let (snapshot, held) = stored(&edge, None);
    let held = holds.hold(held);
    far.receive_state(held.state(), &mut dice);
    while far.fetch(&holds, &mut dice, true) {}
    let copied = far.reader().snapshot();
    let tiles = compare(
        &snapshot,
        &copied,
        &edge.span(),
        level.max(Level::clamped(-2)),
    );
    assert_eq!(tiles.elsewhere, 0);
    if level == Level::MIN {
        assert_eq!(compare_rows(&snapshot, &copied).elsewhere, 0);
    }
    assert_eq!(streams(&copied), streams(&snapshot));
    drop(copied);
    far.cut(dice.next());
    answers
}

#[test]
fn random_lives_of_a_source_and_its_copy_agree_or_say_elsewhere() {
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

/// Who has many copies opens none anew for each byte that comes.
#[test]
fn a_reader_that_looks_again_when_the_progress_says_so_finds_all_that_has_come() {
    for seed in 1..=4 {
        let mut edge = Edge::new(seed);
        for _ in 0..150 {
            edge.step();
        }
        let (snapshot, held) = stored(&edge, None);
        let holds = PinnedStates::new(u64::MAX);
        let held = holds.hold(held);
        let far = Far::new(seed, held.state(), Level::MIN);
        let dice = &mut Dice::new(seed);
        let says = |p: CopyProgress| (p.state, p.shown, p.shown_older, p.readable, p.retained);
        let mut told = says(far.copy.progress());
        assert_eq!((told.1, told.3), (held.state().segments().count(), 0));
        // It finds that nothing is known of any partition yet.
        let reader = far.reader();
        let mut is_missing = true;
        while is_missing {
            let all = !dice.chance(80);
            is_missing = far.fetch(&holds, dice, all);
            far.copy.commit().unwrap();
            let now = says(far.copy.progress());
            if now != told {
                told = now;
                reader.refresh().unwrap();
            }
        }
        assert_eq!(told.1, told.3);
        let answers = compare_rows(&snapshot, &reader.snapshot());
        assert!(answers.here > 0 && answers.elsewhere == 0, "{answers:?}");
    }
}

#[test]
fn a_state_of_another_history_is_refused_and_the_copy_stays() {
    let mut edge = Edge::new(4);
    for _ in 0..60 {
        edge.step();
    }
    let (_, first) = stored(&edge, None);
    let far = Far::new(4, first.state(), Level::MIN);
    for _ in 0..60 {
        edge.step();
    }
    let (_, second) = stored(&edge, None);
    far.copy.take_state(second.state().clone()).unwrap();
    let mut other = Edge::new(5);
    for _ in 0..60 {
        other.step();
    }
    let (_, stranger) = stored(&other, None);
    for state in [first.state(), stranger.state()] {
        let error = far.copy.take_state(state.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let begun = RemoteCopy::begin(env(&far.disk), Path::new(DIR), state, Level::MIN);
        assert_eq!(begun.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(far.copy.state().name(), second.state().name());
    }
    let segment = second.state().segments().next().unwrap();
    for (id, offset) in [
        (u64::MAX, 0),
        (segment.id, segment.bytes),
        (segment.id, u64::MAX),
    ] {
        let error = far.copy.put(id, offset, b"no").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn what_was_deleted_is_not_found_in_a_copy_that_has_the_old_rows() {
    let mut edge = Edge::new(9);
    for _ in 0..120 {
        edge.step();
    }
    let holds = PinnedStates::new(u64::MAX);
    let (_, held) = stored(&edge, None);
    let held = holds.hold(held);
    let far = Far::new(9, held.state(), Level::MIN);
    let mut dice = Dice::new(9);
    while far.fetch(&holds, &mut dice, true) {}
    let spec = headwater_engine::DeleteSpec {
        table: "plain".into(),
        tags: Vec::new(),
        range: ClosedRange::ALL,
    };
    edge.db().delete(&spec).unwrap();
    let (snapshot, after) = stored(&edge, Some(held.state()));
    far.receive_state(after.state(), &mut dice);
    // Nothing more was fetched: rows of the table are gone, or elsewhere, and never the old ones.
    let copied = far.reader().snapshot();
    compare_rows(&snapshot, &copied);
}

/// Takes two states one after the other, each with everything that is missing, in small pieces;
/// what was confirmed last is told.
fn receive(
    disk: &FaultyFiles,
    held: [&PinnedState; 2],
    confirmed: &mut Option<CopyProgress>,
) -> Result<RemoteCopy, Error> {
    let to = Path::new(DIR);
    let begun = RemoteCopy::begin(env(disk), to, held[0].state(), Level::MIN);
    let copy = match begun {
        // It had the second one before the power went.
        Err(error) if error.kind() == ErrorKind::Invalid => {
            RemoteCopy::open(env(disk), to, Level::MIN)?
        }
        other => other?,
    };
    for held in held {
        if !copy.state().descends_from(&held.state().name()) {
            copy.take_state(held.state().clone())?;
        }
        if copy.state().name() != held.state().name() {
            continue;
        }
        let mut missing = copy.missing(3000);
        while !missing.is_empty() {
            for one in missing {
                let bytes = u32::try_from(one.range.bytes).unwrap();
                let found = held.read(one.segment, one.range.offset, bytes).unwrap();
                copy.put(one.segment, one.range.offset, &found)?;
            }
            *confirmed = Some(copy.commit()?);
            missing = copy.missing(3000);
        }
    }
    Ok(copy)
}

#[test]
fn ranges_may_come_in_any_order() {
    let mut edge = Edge::new(14);
    for _ in 0..90 {
        edge.step();
    }
    let (snapshot, held) = stored(&edge, None);
    for newest_first in [true, false] {
        let far = Far::new(14, held.state(), Level::MIN);
        let mut missing = far.copy.missing(u64::MAX);
        while !missing.is_empty() {
            missing.sort_by_key(|m| m.range.offset);
            if newest_first {
                missing.reverse();
            }
            // One of each segment.
            let mut segments = BTreeSet::new();
            missing.retain(|m| segments.insert(m.segment));
            for one in missing {
                let bytes = u32::try_from(one.range.bytes).unwrap();
                let found = held.read(one.segment, one.range.offset, bytes).unwrap();
                far.copy.put(one.segment, one.range.offset, &found).unwrap();
            }
            far.copy.commit().unwrap();
            missing = far.copy.missing(u64::MAX);
        }
        let copied = far.reader().snapshot();
        assert_eq!(compare_rows(&snapshot, &copied).elsewhere, 0);
    }
}

#[test]
fn a_copy_whose_making_a_power_cut_ended_is_begun_anew() {
    let edge = Edge::new(3);
    let (_, held) = stored(&edge, None);
    let begin =
        |disk: &FaultyFiles| RemoteCopy::begin(env(disk), Path::new(DIR), held.state(), Level::MIN);
    let calm = FaultyFiles::new(1);
    drop(begin(&calm).unwrap());
    for at in 0..calm.operations() {
        for survival in 0..8 {
            let disk = FaultyFiles::new(at);
            disk.crash_at(at);
            drop(begin(&disk));
            let disk = disk.after_crash(survival);
            match RemoteCopy::open(env(&disk), Path::new(DIR), Level::MIN) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{at}: {error}"),
                Ok(copy) => assert_eq!(copy.state().name(), held.state().name()),
            }
            let copy = begin(&disk).unwrap();
            assert_eq!(copy.state().name(), held.state().name());
        }
    }
}

#[test]
fn after_a_power_cut_at_any_operation_of_a_copy_nothing_confirmed_is_lost() {
    let mut edge = Edge::new(12);
    let mut some = |steps: u32| {
        for _ in 0..steps {
            edge.step();
        }
        stored(&edge, None)
    };
    let (_, first) = some(50);
    let (snapshot, second) = some(40);
    let held = [&first, &second];
    let calm = FaultyFiles::new(1);
    receive(&calm, held, &mut None).unwrap();
    let operations = calm.operations();
    let mut cut_in_the_middle = 0;
    for at in crate::cuts::cuts(operations, 40) {
        let disk = FaultyFiles::new(at);
        disk.crash_at(at);
        let mut confirmed = None;
        let received = receive(&disk, held, &mut confirmed);
        drop(received);
        if !disk.crashed() {
            continue;
        }
        let disk = disk.after_crash(at);
        match RemoteCopy::open(env(&disk), Path::new(DIR), Level::MIN) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                assert!(confirmed.is_none(), "cut at {at}: {confirmed:?}");
            }
            Ok(copy) => {
                let now = copy.progress();
                if let Some(before) = confirmed.filter(|before| before.state == now.state) {
                    let is_there = |id| now.complete.contains(id);
                    assert!(before.complete.iter().all(is_there), "cut at {at}");
                    // More may have come since, which may tell of more that is missing.
                    assert!(now.bytes >= before.bytes, "cut at {at}");
                    if now.bytes == before.bytes {
                        assert_eq!(now.missing_bytes, before.missing_bytes, "cut at {at}");
                    }
                    cut_in_the_middle += 1;
                }
            }
        }
        let copy = receive(&disk, held, &mut None).unwrap();
        let copied = copy.reader(options()).unwrap().snapshot();
        assert_eq!(compare_rows(&snapshot, &copied).elsewhere, 0);
    }
    assert!(cut_in_the_middle > 0);
}
