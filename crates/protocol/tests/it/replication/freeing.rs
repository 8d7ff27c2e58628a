//! Lives of sources that free what their copies have proven: the copy has all that was ever
//! acknowledged, and what the source answers is what it was, or elsewhere.

use crate::replication::simulation::settle;
use crate::replication::world::{SECRET, World, options};
use headwater_engine::{
    AggregateSpec, Bins, Database, Error, ErrorKind, ScanSpec, Snapshot, TableSpec,
};
use headwater_io::Env;
use headwater_types::{ClosedRange, Level, StreamName};

/// A database that does what a source does, and frees nothing.
pub(crate) fn twin() -> Database {
    let twin = Database::open_in(Env::memory(), options()).unwrap();
    for table in [SECRET, "m"] {
        twin.create_table(&TableSpec::new(table)).unwrap();
    }
    twin
}

/// Times of the rows of a stream.
fn rows(snapshot: &Snapshot, stream: &StreamName) -> Result<Vec<i64>, Error> {
    let mut times = Vec::new();
    for chunk in snapshot.scan(stream, &ScanSpec::default())? {
        times.extend(chunk?.times);
    }
    Ok(times)
}

/// Start, count and sum in eighths of each bucket.
fn buckets(
    snapshot: &Snapshot,
    stream: &StreamName,
    field: &str,
    level: i32,
) -> Result<Vec<(i64, u64, i64)>, Error> {
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Level(Level::clamped(level)),
        first_last: false,
    };
    let bins = snapshot.aggregate(stream, field, &spec)?;
    let found = bins.iter().map(|bin| {
        let a = &bin.aggregate;
        let eighths = (a.mean().unwrap_or(0.0) * a.count as f64 * 8.0).round() as i64;
        (bin.start.as_nanos(), a.count, eighths)
    });
    Ok(found.collect())
}

/// Compares with what the twin has; how many answers were here, and how many elsewhere.
fn compare(world: &World, snapshot: &Snapshot) -> (u64, u64) {
    let twin = world.source.twin.as_ref().unwrap().snapshot().unwrap();
    let (mut here, mut elsewhere) = (0, 0);
    let mut told = |is_same: Result<bool, Error>| match is_same {
        Ok(is_same) => {
            assert!(is_same);
            here += 1;
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}");
            elsewhere += 1;
        }
    };
    for stream in twin.streams("m", &[]).unwrap() {
        let expected = rows(&twin, &stream).unwrap();
        told(rows(snapshot, &stream).map(|found| found == expected));
        for level in [2, 5, 8, 12, 20, 40] {
            let expected = buckets(&twin, &stream, "v", level).unwrap();
            told(buckets(snapshot, &stream, "v", level).map(|found| found == expected));
        }
    }
    (here, elsewhere)
}

fn live(seed: u64) -> (u64, u64) {
    let mut world = World::with_twin(seed, twin());
    let mut freed = 0;
    for step in 0..300 {
        world.step();
        match world.dice.below(100) {
            0..=24 => {
                let mut dice = world.dice.clone();
                world.source.act(&mut dice);
                world.dice = dice;
            }
            25..=34 => world.hello(),
            35..=36 => world.cut_copy(),
            37..=38 => {
                let seed = world.dice.next();
                world.source.power_loss(seed);
            }
            39..=40 => world.cut_link(),
            41..=50 => freed += world.free(),
            51 if step > 100 => world.verify(),
            _ => {}
        }
    }
    settle(&mut world);
    // Once more, of all that is proven by now.
    for step in 0..500 {
        world.step();
        if step % 20 == 0 {
            freed += world.free();
        }
    }
    settle(&mut world);
    let (_, elsewhere) = compare(&world, &world.source.db().snapshot().unwrap());
    let reader = world.planner().copy().reader(options()).unwrap();
    let (here, none) = compare(&world, &reader.snapshot());
    assert!(here > 0 && none == 0, "the copy has everything");
    // Of the secret table nothing is at the copy, and nothing of it was freed.
    let (own, twin) = (
        world.source.db().snapshot().unwrap(),
        world.source.twin.as_ref(),
    );
    let twin = twin.unwrap().snapshot().unwrap();
    for stream in twin.streams(SECRET, &[]).unwrap() {
        assert_eq!(rows(&own, &stream).unwrap(), rows(&twin, &stream).unwrap());
    }
    world.verify();
    while world.planner().verified().is_none() {
        world.step();
    }
    let found = world.planner().verified().unwrap();
    assert_eq!((found.different, found.missing), (0, 0));
    (freed, elsewhere)
}

#[test]
fn a_copy_has_all_that_was_freed_at_its_source_and_the_source_says_so() {
    let variable = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = variable("HEADWATER_SYNC_FIRST_SEED").unwrap_or(1);
    let seeds = variable("HEADWATER_SYNC_SEEDS").unwrap_or(16);
    let (mut freed, mut elsewhere) = (0, 0);
    for seed in first..first + seeds {
        let lived = std::panic::catch_unwind(|| live(seed));
        let lived = lived.unwrap_or_else(|panic| {
            eprintln!("HEADWATER_SYNC_FIRST_SEED={seed} HEADWATER_SYNC_SEEDS=1");
            std::panic::resume_unwind(panic)
        });
        freed += lived.0;
        elsewhere += lived.1;
    }
    assert!(freed > 5 || seeds < 16, "{freed} partitions were freed");
    assert!(elsewhere > 0 || seeds < 16, "nothing was elsewhere");
}
