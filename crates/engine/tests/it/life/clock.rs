//! Clocks that are wrong: what they must not end, and what comes back when they are put right.

use super::{DAY, SECOND, World, count, stream, times, write};
use crate::support::{START, small_options};
use headwater_engine::{Options, TableChange, TableSpec};
use headwater_types::{Batch, ClosedRange, Timestamp, Value};
use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 86_400);
const HOUR: Duration = Duration::from_secs(3600);

fn ahead(world: &World, by: Duration) {
    use headwater_io::Clock;
    let now = world.clock.now().as_nanos();
    world
        .clock
        .set(Timestamp::from_nanos(now + by.as_nanos() as i64));
}

fn behind(world: &World, by: Duration) {
    use headwater_io::Clock;
    let now = world.clock.now().as_nanos();
    world
        .clock
        .set(Timestamp::from_nanos(now - by.as_nanos() as i64));
}

/// A world with a table `m` that holds 100 rows from [`START`] on.
fn world_with(spec: TableSpec) -> World {
    let world = World::new(small_options());
    world.db().create_table(&spec).unwrap();
    write(world.db(), &stream(1), START, 100);
    world.db().flush().unwrap();
    world
}

fn one_row(world: &World, id: i64, time: i64) -> bool {
    let mut batch = Batch::new();
    let row = [("v", Value::F64(1.0))];
    batch.stream(&stream(id)).row(time, row).unwrap();
    world.db().commit(batch).unwrap().refused.is_empty()
}

/// New rows at the clock's time, three of them in each quarter of an hour, for so long.
fn live(world: &World, hours: u64) {
    use headwater_io::Clock;
    for _ in 0..hours * 4 {
        for id in 1..4 {
            assert!(one_row(world, id, world.clock.now().as_nanos()));
        }
        world.clock.advance(HOUR / 4);
    }
}

fn rows_of_the_first_minutes(world: &World) -> usize {
    let snapshot = world.db().snapshot().unwrap();
    let first = times(&snapshot, &stream(1));
    first.iter().filter(|t| **t < START + 100 * SECOND).count()
}

#[test]
fn a_wrong_clock_ends_nothing_however_often_the_database_is_opened() {
    for aged in [false, true] {
        let mut world = world_with(TableSpec {
            retention: (!aged).then_some(YEAR),
            raw_for: aged.then_some(YEAR),
            ..TableSpec::new("m")
        });
        ahead(&world, YEAR * 3);
        for round in 0..20 {
            world.db().compact().unwrap();
            assert_eq!(rows_of_the_first_minutes(&world), 100, "round {round}");
            match round % 3 {
                // A server that gives events its own time.
                0 => live(&world, 1),
                1 => world.clock.advance(HOUR + Duration::from_secs(1)),
                _ => world.clock.advance(Duration::from_secs(5)),
            }
            world.reopen();
        }
        behind(&world, YEAR * 3);
        world.reopen();
        world.db().compact().unwrap();
        assert_eq!(rows_of_the_first_minutes(&world), 100);
        assert!(one_row(&world, 1, START + 200 * SECOND));
        world.assert_sound();
    }
}

#[test]
fn a_clock_that_creeps_ahead_by_openings_is_not_believed_either() {
    let mut world = world_with(TableSpec {
        retention: Some(DAY * 10),
        ..TableSpec::new("m")
    });
    for _ in 0..30 {
        ahead(&world, HOUR * 20);
        world.reopen();
        world.db().compact().unwrap();
    }
    assert_eq!(rows_of_the_first_minutes(&world), 100);
    world.assert_sound();
}

#[test]
fn a_machine_that_is_off_every_night_is_believed_every_morning() {
    let mut world = world_with(TableSpec {
        retention: Some(DAY * 10),
        ..TableSpec::new("m")
    });
    for _ in 0..12 {
        world.clock.advance(HOUR * 4);
        world.reopen();
        ahead(&world, HOUR * 20);
        world.reopen();
        world.db().compact().unwrap();
    }
    assert_eq!(rows_of_the_first_minutes(&world), 0);
    world.assert_sound();
}

#[test]
fn after_years_in_a_drawer_new_rows_bear_the_clock_out() {
    let mut world = world_with(TableSpec {
        retention: Some(DAY * 10),
        ..TableSpec::new("m")
    });
    let idle = TableSpec {
        retention: Some(DAY * 10),
        ..TableSpec::new("idle")
    };
    world.db().create_table(&idle).unwrap();
    let mut batch = Batch::new();
    let name = headwater_types::StreamName::new("idle", [("id", "1")]);
    let row = [("v", Value::F64(1.0))];
    batch.stream(&name).row(START, row).unwrap();
    world.db().commit(batch).unwrap();
    ahead(&world, YEAR * 3);
    world.reopen();
    // It is switched off now and then meanwhile.
    for _ in 0..10 {
        world.db().compact().unwrap();
        assert_eq!(rows_of_the_first_minutes(&world), 100);
        live(&world, 9);
        world.reopen();
    }
    live(&world, 24);
    world.db().compact().unwrap();
    assert_eq!(rows_of_the_first_minutes(&world), 0);
    // A table that got nothing new has nobody but the clock to bear it out.
    assert_eq!(times(&world.db().snapshot().unwrap(), &name).len(), 1);
    world.assert_sound();
}

#[test]
fn rows_that_contradict_the_clock_keep_it_from_being_believed() {
    use headwater_io::Clock;
    let world = world_with(TableSpec {
        retention: Some(DAY * 10),
        ..TableSpec::new("m")
    });
    ahead(&world, YEAR * 3);
    for hour in 0..200 {
        // One stream is as wrong as the clock; the two others tell the time.
        assert!(one_row(&world, 9, world.clock.now().as_nanos()));
        for id in 1..3 {
            let time = START + hour * 3600 * SECOND + 100 * SECOND;
            assert!(one_row(&world, id, time), "hour {hour}");
        }
        world.clock.advance(HOUR);
    }
    world.db().compact().unwrap();
    assert_eq!(rows_of_the_first_minutes(&world), 100);
    world.assert_sound();
}

#[test]
fn a_cut_goes_back_with_the_clock_and_with_the_retention() {
    let mut world = World::new(Options {
        // Whatever the clock says is believed.
        clock_jump_max: YEAR * 100,
        ..small_options()
    });
    let spec = TableSpec {
        retention: Some(DAY),
        ..TableSpec::new("m")
    };
    world.db().create_table(&spec).unwrap();
    write(world.db(), &stream(1), START, 100);
    ahead(&world, YEAR * 3);
    assert!(one_row(&world, 2, START + YEAR.as_nanos() as i64 * 3));
    assert!(times(&world.db().snapshot().unwrap(), &stream(2)).len() == 1);
    world.db().compact().unwrap();
    assert!(!one_row(&world, 1, START + 200 * SECOND));
    behind(&world, YEAR * 3);
    assert!(
        one_row(&world, 1, START + 300 * SECOND),
        "not even once refused"
    );
    for _ in 0..2 {
        let snapshot = world.db().snapshot().unwrap();
        assert_eq!(
            *times(&snapshot, &stream(1)).last().unwrap(),
            START + 300 * SECOND
        );
        drop(snapshot);
        world.reopen();
    }
    // What a shorter retention hides, and has not removed, is there again under a longer one.
    let before = times(&world.db().snapshot().unwrap(), &stream(1)).len();
    world.clock.advance(DAY / 2);
    let set = |world: &World, retention: Option<Duration>| {
        let change = TableChange {
            retention: Some(retention),
            ..TableChange::default()
        };
        world.db().alter_table("m", &change).unwrap();
        assert!(one_row(world, 3, START + 43_200 * SECOND));
    };
    set(&world, Some(DAY / 4));
    assert!(!one_row(&world, 1, START + 400 * SECOND));
    set(&world, Some(DAY * 5));
    assert!(one_row(&world, 1, START + 400 * SECOND));
    assert!(one_row(&world, 1, START - 86_400 * SECOND));
    set(&world, None);
    assert!(world.db().tables()[0].cut.is_none());
    assert!(one_row(&world, 1, 0));
    assert!(times(&world.db().snapshot().unwrap(), &stream(1)).len() <= before + 3);
    world.reopen();
    assert!(world.db().tables()[0].cut.is_none());
    world.assert_sound();
}

#[test]
fn a_dead_clock_ends_nothing_and_is_believed_again_when_the_network_has_set_it() {
    let mut world = world_with(TableSpec {
        retention: Some(DAY * 10),
        ..TableSpec::new("m")
    });
    for _ in 0..5 {
        use headwater_io::Clock;
        let right = world.clock.now().as_nanos();
        world.clock.set(Timestamp::from_nanos(0));
        world.reopen();
        world.db().compact().unwrap();
        assert_eq!(rows_of_the_first_minutes(&world), 100);
        world.clock.advance(Duration::from_secs(40));
        assert!(one_row(&world, 1, START + 500 * SECOND));
        world.clock.set(Timestamp::from_nanos(right + 100 * SECOND));
        world.db().compact().unwrap();
        assert_eq!(rows_of_the_first_minutes(&world), 100);
        world.clock.advance(HOUR);
    }
    world.clock.advance(DAY * 11);
    world.db().compact().unwrap();
    assert_eq!(rows_of_the_first_minutes(&world), 0);
    world.assert_sound();
}

#[test]
fn values_do_not_expire_by_a_wrong_clock() {
    let mut world = World::new(small_options());
    let mut batch = Batch::new();
    batch.expire_at(Timestamp::from_nanos(START + 30 * 86_400 * SECOND));
    for i in 0..500 {
        let row = [("v", Value::F64(i as f64))];
        batch
            .stream(&stream(1))
            .row(START + i * SECOND, row)
            .unwrap();
    }
    world.db().commit(batch).unwrap();
    world.db().flush().unwrap();
    ahead(&world, YEAR * 3);
    for _ in 0..5 {
        world.reopen();
        world.clock.advance(HOUR * 2);
        world.db().compact().unwrap();
        let snapshot = world.db().snapshot().unwrap();
        assert_eq!(times(&snapshot, &stream(1)).len(), 500);
    }
    behind(&world, YEAR * 3);
    world.reopen();
    assert_eq!(
        times(&world.db().snapshot().unwrap(), &stream(1)).len(),
        500
    );
    world.clock.advance(DAY * 31);
    world.db().compact().unwrap();
    assert_eq!(world.db().stats().unwrap().events, 0);
    world.assert_sound();
}

#[test]
fn aging_that_went_too_far_refuses_no_new_rows_and_counts_none_twice() {
    use headwater_engine::Duplicates::{Keep, Last};
    for duplicates in [Last, Keep] {
        let mut world = World::new(Options {
            clock_jump_max: YEAR * 100,
            ..small_options()
        });
        let spec = TableSpec {
            duplicates,
            raw_for: Some(DAY),
            ..TableSpec::new("m")
        };
        world.db().create_table(&spec).unwrap();
        write(world.db(), &stream(1), START, 1000);
        ahead(&world, YEAR * 3);
        world.db().compact().unwrap();
        assert!(times(&world.db().snapshot().unwrap(), &stream(1)).is_empty());
        behind(&world, YEAR * 3);
        world.clock.advance(HOUR);
        let whole = |world: &World| {
            let snapshot = world.db().snapshot().unwrap();
            count(&snapshot, &stream(1), ClosedRange::ALL)
        };
        // What is written again is either refused or, where all are kept, counted once more.
        let again = (0..1000)
            .filter(|i| one_row(&world, 1, START + i * SECOND))
            .count();
        assert_eq!(again, if duplicates == Keep { 1000 } else { 0 });
        let mut expected = 1000 + again as u64;
        for at in [5000, 5001, 4000, 6000] {
            assert!(one_row(&world, 1, START + at * SECOND));
            expected += 1;
            assert_eq!(whole(&world), expected);
        }
        for _ in 0..3 {
            world.db().compact().unwrap();
            assert_eq!(whole(&world), expected);
            let snapshot = world.db().snapshot().unwrap();
            assert_eq!(times(&snapshot, &stream(1)).len(), 4 + again);
            drop(snapshot);
            world.reopen();
            assert_eq!(whole(&world), expected);
        }
        world.clock.advance(DAY * 3);
        world.db().compact().unwrap();
        assert_eq!(whole(&world), expected);
        assert!(times(&world.db().snapshot().unwrap(), &stream(1)).is_empty());
        world.assert_sound();
    }
}
