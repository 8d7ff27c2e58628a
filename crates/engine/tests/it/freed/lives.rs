//! Lives from seeds: a database whose rows are freed now and then, beside one that does the same
//! and frees nothing, and a copy of the first.

use super::far::{FarCopy, far};
use super::{World, all, rows, stream};
use crate::support::{Dice, Fields, collect};
use headwater_engine::{
    AggregateSpec, Bins, Database, DeleteSpec, Error, ErrorKind, ScanSpec, Snapshot,
};
use headwater_types::{Batch, ClosedRange, Level, StreamName, Timestamp, Value};

const SECOND: i64 = 1_000_000_000;

struct Simulated {
    dice: Dice,
    world: World,
    twin_world: World,
    db: Option<Database>,
    twin: Option<Database>,
    far: FarCopy,
    newest: i64,
}

/// What a look found.
#[derive(Default)]
struct Found {
    here: u64,
    elsewhere: u64,
}

fn all_rows(
    snapshot: &Snapshot,
    name: &StreamName,
    range: ClosedRange,
) -> Result<Vec<(i64, Fields)>, Error> {
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    let (rows, mut errors) = collect(snapshot.scan(name, &spec)?);
    match errors.pop() {
        None => Ok(rows),
        Some(error) => Err(error),
    }
}

/// Counts, sums in eighths, and extremes of bins.
fn bins(snapshot: &Snapshot, name: &StreamName, level: i32) -> Result<Vec<(i64, u64, i64)>, Error> {
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Level(Level::clamped(level)),
        first_last: false,
    };
    let bins = snapshot.aggregate(name, "v", &spec)?;
    let eighths = |mean: f64, count: u64| (mean * count as f64 * 8.0).round() as i64;
    Ok(bins
        .iter()
        .map(|bin| {
            let a = &bin.aggregate;
            (
                bin.start.as_nanos(),
                a.count,
                eighths(a.mean().unwrap_or(0.0), a.count),
            )
        })
        .collect())
}

impl Simulated {
    fn new(seed: u64) -> Simulated {
        let (world, twin_world) = (World::new(seed), World::new(seed + 1000));
        let (db, twin) = (world.open(), twin_world.open());
        for db in [&db, &twin] {
            db.commit(rows(0, 0, 1)).unwrap();
            db.flush().unwrap();
        }
        let far = far(&db);
        Simulated {
            dice: Dice::new(seed),
            world,
            twin_world,
            db: Some(db),
            twin: Some(twin),
            far,
            newest: super::START,
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn twin(&self) -> &Database {
        self.twin.as_ref().unwrap()
    }

    fn write(&mut self) {
        let name = stream(self.dice.below(3));
        let is_late = self.dice.chance(12);
        let late = self.dice.below(9000) as i64 * SECOND;
        let mut time = self.newest - if is_late { late } else { 0 };
        let batch = || Batch::new();
        let (mut one, mut two) = (batch(), batch());
        for _ in 0..1 + self.dice.below(if is_late { 4 } else { 700 }) {
            time += SECOND / 2 + self.dice.below(SECOND as u64) as i64;
            let value = Value::F64(self.dice.below(1000) as f64 / 8.0);
            for batch in [&mut one, &mut two] {
                let entry = batch.stream(&name);
                entry.row(time, [("v", value.clone())]).unwrap();
            }
        }
        self.newest = self.newest.max(time);
        self.db().commit(one).unwrap();
        self.twin().commit(two).unwrap();
    }

    /// A delete that the one refuses is none of the other.
    fn delete(&mut self) {
        let last = self.newest - self.dice.below(8000) as i64 * SECOND;
        let range = match self.dice.chance(15) {
            true => ClosedRange::ALL,
            false => ClosedRange::nanos(last - self.dice.below(400) as i64 * SECOND, last),
        };
        let spec = DeleteSpec {
            table: "m".into(),
            tags: vec![("id".into(), self.dice.below(3).to_string())],
            range,
        };
        match self.db().delete(&spec) {
            Ok(_) => drop(self.twin().delete(&spec).unwrap()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}"),
        }
    }

    fn reopen(&mut self) {
        if self.dice.chance(50) {
            self.db().close().unwrap();
            self.db = None;
            self.world.assert_sound();
        } else {
            self.db = None;
            self.world.disk.crash_now();
            self.world = self.world.on(self.world.disk.after_crash(self.dice.next()));
        }
        self.db = Some(self.world.open());
    }

    /// Frees what the copy has.
    fn free(&mut self) -> u64 {
        self.db().flush().unwrap();
        self.far.follow(self.db());
        let known = self.far.complete();
        let held: Vec<(u64, u64)> = all(self.db())
            .into_iter()
            .filter(|one| known.contains(one))
            .collect();
        let before = self.newest - self.dice.below(5000) as i64 * SECOND;
        let freed = self
            .db()
            .free_rows(&held, Timestamp::from_nanos(before), u64::MAX);
        freed.unwrap().partitions
    }

    fn compare(&self, found: &mut Found) {
        let (one, two) = (
            self.db().snapshot().unwrap(),
            self.twin().snapshot().unwrap(),
        );
        let mut same = |what: &str, is_same: Option<bool>| match is_same {
            Some(is_same) => {
                assert!(is_same, "{what}");
                found.here += 1;
            }
            None => found.elsewhere += 1,
        };
        fn here<T>(answer: Result<T, Error>) -> Option<T> {
            match answer {
                Ok(answer) => Some(answer),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}");
                    None
                }
            }
        }
        for name in two.streams("m", &[]).unwrap() {
            for level in [3, 6, 9, 14, 30] {
                let expected = bins(&two, &name, level).unwrap();
                let answer = here(bins(&one, &name, level));
                same("bins", answer.map(|answer| answer == expected));
            }
            let expected = two.last(&name).unwrap();
            same(
                "newest",
                here(one.last(&name)).map(|answer| answer == expected),
            );
            for back in [0, 1000, 4000, 100_000] {
                let range = ClosedRange::nanos(self.newest - back * SECOND, i64::MAX);
                let expected = all_rows(&two, &name, range).unwrap();
                let answer = here(all_rows(&one, &name, range));
                same("rows", answer.map(|answer| answer == expected));
            }
        }
    }

    /// The copy has everything, and answers as the one that freed nothing.
    fn compare_copy(&self) {
        self.db().flush().unwrap();
        self.far.follow(self.db());
        let reader = self.far.reader();
        let (one, two) = (reader.snapshot(), self.twin().snapshot().unwrap());
        for name in two.streams("m", &[]).unwrap() {
            let all = ClosedRange::ALL;
            let expected = all_rows(&two, &name, all).unwrap();
            match all_rows(&one, &name, all) {
                Ok(found) => assert_eq!(found, expected, "{name}"),
                // Nothing of it was ever stored.
                Err(error) if error.kind() == ErrorKind::NotFound => assert!(expected.is_empty()),
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

fn live(seed: u64) -> (Found, u64) {
    let mut life = Simulated::new(seed);
    let (mut found, mut freed) = (Found::default(), 0);
    for _ in 0..60 {
        match life.dice.below(100) {
            0..=54 => life.write(),
            55..=64 => {
                life.db().flush().unwrap();
                life.twin().flush().unwrap();
            }
            65..=69 => life.delete(),
            70..=76 => life.db().compact().unwrap(),
            77..=82 => life.reopen(),
            83..=94 => freed += life.free(),
            _ => life.compare(&mut found),
        }
    }
    life.compare(&mut found);
    life.compare_copy();
    life.db().close().unwrap();
    life.db = None;
    life.world.assert_sound();
    life.twin().close().unwrap();
    life.twin = None;
    life.twin_world.assert_sound();
    (found, freed)
}

#[test]
fn what_is_here_is_as_if_nothing_was_freed_and_a_copy_has_the_rest() {
    let variable = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = variable("HEADWATER_FREED_FIRST_SEED").unwrap_or(1);
    let seeds = variable("HEADWATER_FREED_SEEDS").unwrap_or(30);
    let (mut here, mut elsewhere, mut partitions) = (0, 0, 0);
    for seed in first..first + seeds {
        let lived = std::panic::catch_unwind(|| live(seed));
        let (found, freed) = lived.unwrap_or_else(|panic| {
            eprintln!("HEADWATER_FREED_FIRST_SEED={seed} HEADWATER_FREED_SEEDS=1");
            std::panic::resume_unwind(panic)
        });
        here += found.here;
        elsewhere += found.elsewhere;
        partitions += freed;
    }
    let is_all = seeds < 30 || (here > 100 && elsewhere > 20 && partitions > 20);
    assert!(
        is_all,
        "{here} here, {elsewhere} elsewhere, {partitions} freed"
    );
}
