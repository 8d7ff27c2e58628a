//! Copies with holes among the parts: an answer is that of the databases, or it is elsewhere.

use super::world::{PARTS, World};
use crate::support::{Dice, collect, small_options};
use headwater_engine::{
    Across, AddedTags, AggregateSpec, Bins, ConflictBounds, Coverage, Database, Error, ErrorKind,
    PinnedState, RemoteCopy, Result, ScanSpec, Snapshot, SnapshotPart, SummarySpec,
};
use headwater_io::Env;
use headwater_types::{ClosedRange, Level, StreamName};
use std::fmt::Debug;
use std::path::Path;

/// A copy of a part, and what it is a copy of.
pub(super) struct PartCopy {
    pub(super) copy: RemoteCopy,
    pinned: PinnedState,
}

impl PartCopy {
    pub(super) fn of(world: &World, n: usize, level: Level) -> PartCopy {
        PartCopy::of_database(world.part(n), level)
    }

    pub(super) fn of_database(db: &Database, level: Level) -> PartCopy {
        db.flush().unwrap();
        let pinned = db.hold_state(None).unwrap();
        let copy = RemoteCopy::begin(Env::memory(), Path::new("/copy"), pinned.state(), level);
        PartCopy {
            copy: copy.unwrap(),
            pinned,
        }
    }

    /// Fetches some of what is missing; false when nothing is.
    pub(super) fn fetch(&self, bytes: u64) -> bool {
        let missing = self.copy.missing(bytes);
        for one in &missing {
            self.bring(one.segment, one.range.offset, one.range.bytes);
        }
        self.copy.commit().unwrap();
        !missing.is_empty()
    }

    pub(super) fn bring(&self, segment: u64, offset: u64, bytes: u64) {
        let found = self
            .pinned
            .read(segment, offset, u32::try_from(bytes).unwrap());
        self.copy.put(segment, offset, &found.unwrap()).unwrap();
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.copy.reader(small_options()).unwrap().snapshot()
    }
}

#[derive(Default)]
pub(super) struct Answers {
    pub(super) here: u64,
    pub(super) elsewhere: u64,
}

impl Answers {
    fn same<T: PartialEq + Debug>(&mut self, what: &str, source: Result<T>, copy: Result<T>) {
        match copy {
            Ok(copy) => {
                assert_eq!(copy, source.unwrap(), "{what}");
                self.here += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Elsewhere, "{what}: {error}");
                self.elsewhere += 1;
            }
        }
    }
}

fn all_rows(snapshot: &Snapshot, stream: &StreamName) -> Result<Vec<impl PartialEq + Debug>> {
    let (rows, mut errors) = collect(snapshot.scan(stream, &ScanSpec::default())?);
    errors.pop().map_or(Ok(rows), |e: Error| Err(e))
}

/// What a copy tells of conflicts is so: it may know less.
fn conflicts(databases: &Snapshot, copies: &Snapshot, table: &str) {
    let told = |s: &Snapshot| s.conflicts(table, &ConflictBounds::default()).unwrap();
    let (databases, copies) = (told(databases), told(copies));
    assert!(databases.is_complete);
    assert_eq!(databases.streams, copies.streams);
    for one in databases.list {
        let mut of_copies = copies.list.iter();
        let known = of_copies.find(|c| (&c.stream, &c.part) == (&one.stream, &one.part));
        match known.and_then(|known| known.hidden_rows) {
            Some(hidden) => assert_eq!(Some(hidden), one.hidden_rows, "{one:?}"),
            None => assert!(known.is_some() || !copies.is_complete, "{one:?}"),
        }
    }
}

pub(super) fn compare(databases: &Snapshot, copies: &Snapshot, span: &ClosedRange) -> Answers {
    let mut answers = Answers::default();
    assert_eq!(copies.table_names(), databases.table_names());
    for table in databases.table_names() {
        assert_eq!(
            copies.fields(&table).unwrap(),
            databases.fields(&table).unwrap()
        );
        let names = databases.streams(&table, &[]).unwrap();
        assert_eq!(copies.streams(&table, &[]).unwrap(), names);
        let count = |s: &Snapshot| s.row_count(&table, ClosedRange::ALL, &mut || true);
        answers.same(&table, count(databases), count(copies));
        conflicts(databases, copies, &table);
        for name in &names {
            let what = name.to_string();
            let (d, c) = (databases, copies);
            answers.same(&what, all_rows(d, name), all_rows(c, name));
            answers.same(&what, d.last(name), c.last(name));
            answers.same(&what, d.stream_info(name), c.stream_info(name));
            let row = |s: &Snapshot| s.last_row_in(name, *span);
            answers.same(&what, row(d), row(c));
            let spec = SummarySpec {
                range: *span,
                bins: Bins::Level(Level::clamped(8)),
                fields: vec!["v".to_owned(), "n".to_owned()],
            };
            if databases
                .fields(&table)
                .unwrap()
                .iter()
                .any(|(f, _)| f == "n")
            {
                answers.same(&what, d.summary(name, &spec), c.summary(name, &spec));
            }
            let spec = AggregateSpec {
                range: *span,
                bins: Bins::Level(Level::clamped(6)),
                first_last: false,
            };
            let aggregate = |s: &Snapshot| s.aggregate(name, "v", &spec);
            answers.same(&what, aggregate(d), aggregate(c));
            for level in [4, 6, 9].map(Level::clamped) {
                let at = level.bucket_of(span.last);
                let offset = at.div_euclid(headwater_types::TILE_BUCKETS);
                let tile = |s: &Snapshot| s.tile(name, "v", level, offset);
                answers.same(&what, tile(d), tile(c));
            }
        }
    }
    answers
}

fn across(world: &World, parts: impl Iterator<Item = Snapshot>) -> Snapshot {
    let all = Across::default();
    all.set_owners(Some(world.owners()));
    for ((rank, name), snapshot) in (0..).zip(PARTS).zip(parts) {
        let name = name.into();
        let part = SnapshotPart {
            name,
            rank,
            snapshot,
            tags: AddedTags::default(),
        };
        all.replace(part).unwrap();
    }
    all.snapshot().unwrap()
}

#[test]
fn copies_with_holes_answer_as_the_databases_or_say_that_it_is_elsewhere() {
    for seed in 11..=13 {
        let mut world = World::new(seed);
        let mut dice = Dice::new(seed);
        for _ in 0..150 {
            world.step(&mut None);
        }
        // The node's own database, and copies of the other two.
        let level = if seed == 11 {
            Level::clamped(5)
        } else {
            Level::MIN
        };
        let far = [
            PartCopy::of(&world, 1, level),
            PartCopy::of(&world, 2, level),
        ];
        let own = world.part(0);
        let databases = across(&world, (0..3).map(|n| world.part(n).snapshot().unwrap()));
        let mut elsewhere = 0;
        loop {
            let own = own.snapshot().unwrap();
            let copies = across(
                &world,
                [own, far[0].snapshot(), far[1].snapshot()].into_iter(),
            );
            let found = compare(&databases, &copies, &world.span());
            assert!(found.here > 0);
            elsewhere = found.elsewhere.max(elsewhere);
            let mut more = false;
            for far in &far {
                more |= far.fetch(1 + dice.below(20_000));
            }
            if !more {
                assert!(level != Level::MIN || found.elsewhere == 0);
                break;
            }
        }
        assert!(elsewhere > 0);
    }
}

/// Rows of a range, or tiles that meet it, of all fields.
fn read(
    snapshot: &Snapshot,
    name: &StreamName,
    range: ClosedRange,
    level: Option<Level>,
) -> Result<()> {
    let Some(level) = level else {
        let spec = ScanSpec {
            range,
            ..ScanSpec::default()
        };
        let (_, mut errors) = collect(snapshot.scan(name, &spec)?);
        return errors.pop().map_or(Ok(()), Err);
    };
    for (field, _) in snapshot.fields(name.table())? {
        let spec = AggregateSpec {
            range,
            bins: Bins::Level(level),
            first_last: false,
        };
        snapshot.aggregate(name, &field, &spec)?;
    }
    Ok(())
}

/// What is said to be here of a stretch is read: how much of it that was.
fn check_coverage(
    copies: &Snapshot,
    name: &StreamName,
    told: &Coverage,
    level: Option<Level>,
) -> bool {
    assert_eq!(
        told.is_here,
        told.until == Some(told.range.last) && told.missing.is_empty()
    );
    // Whole buckets alone: the one that the instant lies in may end behind it.
    let to = told.until.and_then(|until| match level {
        Some(level) if !told.is_here => level.bucket_span(level.bucket_of(until)).first.previous(),
        _ => Some(until),
    });
    let to = to.filter(|to| *to >= told.range.first);
    if let Some(to) = to {
        let range = ClosedRange::new(told.range.first, to);
        let found = read(copies, name, range, level);
        found.unwrap_or_else(|error| panic!("{name} {level:?}: {error}, and told was {told:?}"));
    }
    to.is_some()
}

#[test]
fn what_coverage_says_is_here_can_be_read() {
    let (mut whole, mut cut) = (0, 0);
    for seed in 21..=26 {
        let mut world = World::new(seed);
        let mut dice = Dice::new(seed);
        for _ in 0..120 {
            world.step(&mut None);
        }
        let far = [1, 2].map(|n| PartCopy::of(&world, n, Level::MIN));
        loop {
            let own = world.part(0).snapshot().unwrap();
            let copies = [own, far[0].snapshot(), far[1].snapshot()].into_iter();
            let copies = across(&world, copies);
            for table in ["plain", "moves", "ages"] {
                for name in copies.streams(table, &[]).unwrap() {
                    let span = world.span();
                    let width = (span.last.as_nanos() - span.first.as_nanos()) as u64;
                    let from = span.first.as_nanos() + dice.below(width) as i64;
                    let range = ClosedRange::nanos(from, from + dice.below(width) as i64);
                    let level = [None, Some(4), Some(6), Some(9)][dice.below(4) as usize];
                    let level = level.map(Level::clamped);
                    for one in copies.coverage(&name, range, level).unwrap() {
                        if check_coverage(&copies, &name, &one, level) {
                            whole += u64::from(one.is_here);
                            cut += u64::from(!one.is_here);
                        }
                    }
                }
            }
            let mut more = false;
            for far in &far {
                more |= far.fetch(1 + dice.below(9_000));
            }
            if !more {
                break;
            }
        }
    }
    assert!(whole > 100 && cut > 20, "{whole} {cut}");
}

#[test]
fn what_coverage_misses_suffices_once_it_is_fetched() {
    for seed in 31..=33 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.step(&mut None);
        }
        for level in [None, Some(Level::clamped(5))] {
            let far = PartCopy::of(&world, 1, Level::MIN);
            let name = first_stream(&world);
            let mut rounds = 0;
            loop {
                let copy = far.snapshot();
                let told = copy.coverage(&name, world.span(), level).unwrap();
                let told = told.into_iter().next().unwrap();
                if told.is_here {
                    read(&copy, &name, told.range, level).unwrap();
                    break;
                }
                assert!(!told.missing.is_empty());
                for one in told.missing {
                    far.bring(one.segment, one.offset, one.bytes);
                }
                far.copy.commit().unwrap();
                rounds += 1;
                assert!(rounds < 20, "what is missing never comes to an end");
            }
            assert!(rounds > 0);
            assert!(far.fetch(u64::MAX), "nothing but that was fetched");
        }
    }
}

fn first_stream(world: &World) -> StreamName {
    let streams = world.part(1).snapshot().unwrap().streams("plain", &[]);
    streams.unwrap().remove(0)
}

#[test]
fn what_readers_missed_is_told_and_once_it_is_fetched_they_find_it() {
    let mut world = World::new(41);
    for _ in 0..120 {
        world.step(&mut None);
    }
    let far = PartCopy::of(&world, 1, Level::MIN);
    let name = first_stream(&world);
    assert_eq!(far.copy.take_missed(), []);
    let mut rounds = 0;
    loop {
        let found = read(&far.snapshot(), &name, ClosedRange::ALL, None);
        let missed = far.copy.take_missed();
        assert_eq!(far.copy.take_missed(), []);
        match found {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}"),
        }
        assert!(!missed.is_empty());
        for one in missed {
            far.bring(one.segment, one.offset, one.bytes);
        }
        far.copy.commit().unwrap();
        rounds += 1;
        assert!(rounds < 10_000);
    }
    assert!(rounds > 1, "{rounds}");
    let source = world.part(1).snapshot().unwrap();
    let rows = |s: &Snapshot| format!("{:?}", all_rows(s, &name).unwrap());
    assert_eq!(rows(&far.snapshot()), rows(&source));
}

#[test]
fn versions_of_a_copy_stay_when_it_is_looked_at_anew_and_are_never_closed() {
    let mut world = World::new(51);
    for _ in 0..150 {
        world.step(&mut None);
    }
    let far = PartCopy::of(&world, 1, Level::MIN);
    while far.fetch(u64::MAX) {}
    let (a, b) = (far.snapshot(), far.snapshot());
    let range = ClosedRange::new(ClosedRange::ALL.first, world.span().first);
    let mut seen = 0;
    for table in ["plain", "ages", "forgets"] {
        for name in a.streams(table, &[]).unwrap() {
            let version = |s: &Snapshot| s.version(&name, &range).unwrap();
            assert_eq!(version(&a), version(&b));
            assert!(!version(&a).unwrap().is_closed);
            seen += 1;
        }
    }
    assert!(seen > 3);
}
