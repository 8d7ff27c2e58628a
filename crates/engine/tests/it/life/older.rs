//! Databases of a version that aged partitions without saying so, and then stored rows among the
//! buckets that were left.
//!
//! `aged_1`: two streams of a table that keeps equal timestamps. Of 8,350 rows each all but the
//! newest 100 are aged; these lie in a partition with buckets of two more. For each stream its
//! number, rows written, rows counted, rows found.

use super::{DAY, SECOND, World, count, stream, times};
use crate::compat::{folder, unpack};
use crate::support::{START, small_options};
use headwater_engine::{Database, Options};
use headwater_io::{Env, ManualClock, NoThreads};
use headwater_types::{Batch, ClosedRange, Timestamp, Value};
use std::sync::Arc;

/// The newest row of each stream.
const NEWEST: i64 = START + (5 * 86_400 + 5349) * SECOND;

fn opened(options: Options) -> World {
    let archive = std::fs::read(folder().join("aged/aged_1.zst")).unwrap();
    let files = unpack(&zstd::bulk::decompress(&archive, 64 << 20).unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(
        START + 20 * 86_400 * SECOND,
    )));
    let env = Env {
        files,
        threads: Arc::new(NoThreads),
        clock: Arc::clone(&clock) as Arc<_>,
        ..Env::memory()
    };
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    World {
        env,
        clock,
        options,
        open: Some(db),
    }
}

fn counts(world: &World) -> Vec<(u64, usize)> {
    let snapshot = world.db().snapshot().unwrap();
    (1..3)
        .map(|id| {
            let name = stream(id);
            let whole = count(&snapshot, &name, ClosedRange::ALL);
            (whole, times(&snapshot, &name).len())
        })
        .collect()
}

fn put(world: &World, second: i64) -> u64 {
    let mut batch = Batch::new();
    for id in 1..3 {
        let row = [("v", Value::F64(1.0))];
        batch
            .stream(&stream(id))
            .row(NEWEST + second * SECOND, row)
            .unwrap();
    }
    world.db().commit(batch).unwrap().accepted / 2
}

#[test]
fn rows_that_an_earlier_version_stored_among_aged_buckets_stay_counted() {
    // With and without a clock that is believed at once, so that the rows are aged too.
    for (jump_max, ages) in [(DAY * 100, true), (DAY, false)] {
        let mut world = opened(Options {
            clock_jump_max: jump_max,
            ..small_options()
        });
        assert_eq!(counts(&world), [(8350, 100); 2]);
        let mut more = 0;
        for second in [1, 2, -50, -51, 3, -102] {
            more += put(&world, second);
            world.db().flush().unwrap();
            assert_eq!(counts(&world), [(8350 + more, 100 + more as usize); 2]);
        }
        assert_eq!(more, 6);
        for _ in 0..2 {
            world.db().compact().unwrap();
            let rows = if ages { 0 } else { 106 };
            assert_eq!(counts(&world), [(8356, rows); 2]);
            world.reopen();
            assert_eq!(counts(&world), [(8356, rows); 2]);
        }
        world.assert_sound();
    }
}
