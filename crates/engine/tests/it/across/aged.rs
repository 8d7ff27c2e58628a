//! Streams of equal names in several parts, of which rows were aged away.

use super::part_database::{SECOND, table_spec};
use super::union::part;
use crate::support::small_options;
use headwater_engine::{AggregateSpec, Bins, Database, ErrorKind, Options, Snapshot, TableSpec};
use headwater_io::{Env, ManualClock};
use headwater_types::{Batch, ClosedRange, StreamName};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn aggregates_where_rows_of_several_parts_meet_and_were_aged_away_are_gone() {
    let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
    let start = Env::MEMORY_START.as_nanos();
    let pump = StreamName::new("pump", [("id", "1")]);
    let databases: Vec<Database> = (0..2)
        .map(|n| {
            let env = Env {
                clock: Arc::clone(&clock) as _,
                ..Env::memory()
            };
            let options = Options {
                bucket_events: 4,
                ..small_options()
            };
            let db = Database::open_in(env, options).unwrap();
            db.create_table(&TableSpec {
                raw_for: Some(Duration::from_secs(600)),
                ..table_spec("pump", &[], &[])
            })
            .unwrap();
            let mut batch = Batch::new();
            for row in 0..3_000 {
                let time = start + row * SECOND + n * SECOND / 2;
                batch.stream(&pump).row(time, [("v", 1.0.into())]).unwrap();
            }
            db.commit(batch).unwrap();
            db
        })
        .collect();
    let both = || {
        let parts = databases.iter().enumerate();
        let parts = parts.map(|(n, db)| part(n, db.snapshot().unwrap()));
        Snapshot::of_parts(parts.collect()).unwrap()
    };
    let count = |range| both().row_count("pump", range, &mut || true);
    let all = ClosedRange::ALL;
    assert_eq!(count(all).unwrap(), Some(6_000));
    clock.advance(Duration::from_secs(4_000));
    for db in &databases {
        db.flush().unwrap();
        db.maintain().unwrap();
        let aged = db.partitions().iter().filter(|p| p.is_aged).count();
        assert!(aged > 0);
    }
    assert_eq!(count(all).unwrap_err().kind(), ErrorKind::Gone);
    let spec = AggregateSpec {
        range: all,
        bins: Bins::Whole,
        first_last: false,
    };
    let found = both().aggregate(&pump, "v", &spec);
    assert_eq!(found.unwrap_err().kind(), ErrorKind::Gone);
}
