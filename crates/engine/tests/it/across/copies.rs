//! Copies with holes among the parts: an answer is that of the databases, or it is elsewhere.

use super::world::{PARTS, World};
use crate::support::{Dice, collect, small_options};
use headwater_engine::{
    Across, AggregateSpec, Bins, Error, ErrorKind, HeldState, RemoteCopy, Result, ScanSpec,
    Snapshot, SnapshotPart, SummarySpec,
};
use headwater_io::Env;
use headwater_types::{ClosedRange, Level, StreamName};
use std::fmt::Debug;
use std::path::Path;

/// A copy of a part, and what it is a copy of.
struct Far {
    copy: RemoteCopy,
    held: HeldState,
}

impl Far {
    fn of(world: &World, n: usize, level: Level) -> Far {
        let db = world.part(n);
        db.flush().unwrap();
        let held = db.hold_state(None).unwrap();
        let copy = RemoteCopy::begin(Env::memory(), Path::new("/copy"), held.state(), level);
        Far {
            copy: copy.unwrap(),
            held,
        }
    }

    /// Fetches some of what is missing; false when nothing is.
    fn fetch(&self, bytes: u64) -> bool {
        let missing = self.copy.missing(bytes);
        for one in &missing {
            let (offset, bytes) = (one.range.offset, one.range.bytes);
            let found = self
                .held
                .read(one.segment, offset, u32::try_from(bytes).unwrap());
            self.copy.put(one.segment, offset, &found.unwrap()).unwrap();
        }
        self.copy.commit().unwrap();
        !missing.is_empty()
    }

    fn snapshot(&self) -> Snapshot {
        self.copy.reader(small_options()).unwrap().snapshot()
    }
}

#[derive(Default)]
struct Answers {
    here: u64,
    elsewhere: u64,
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

fn compare(databases: &Snapshot, copies: &Snapshot, span: &ClosedRange) -> Answers {
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
        let told = |s: &Snapshot| s.conflicts(&table);
        answers.same(&table, told(databases), told(copies));
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
    for (name, snapshot) in PARTS.into_iter().zip(parts) {
        let name = name.into();
        all.replace(SnapshotPart { name, snapshot }).unwrap();
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
        let far = [Far::of(&world, 1, level), Far::of(&world, 2, level)];
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
