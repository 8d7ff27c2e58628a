//! Nothing that was confirmed is lost, whatever happens to nodes and requests.

use crate::world::{Happened, World};
use headwater_bucket::{Careless, Faults, Memory};
use std::panic::catch_unwind;
use std::sync::Arc;

fn simulate(seeds: std::ops::Range<u64>, steps: u32, faults: Faults) -> Happened {
    let mut sum = Happened::default();
    for seed in seeds {
        let mut world = World::new(seed, 2 + seed % 4, faults, Arc::new(Memory::default()));
        (0..steps).for_each(|_| world.step());
        world.check();
        let of = world.happened;
        sum.confirmed += of.confirmed;
        sum.slow_packs += of.slow_packs;
        sum.kills += of.kills;
        sum.takeovers += of.takeovers;
        sum.losses += of.losses;
        sum.collected += of.collected;
        sum.restored += of.restored;
        sum.superseded += of.superseded;
    }
    sum
}

#[test]
fn what_was_confirmed_survives_kills_sleeps_and_collections_over_a_store_that_does_its_work() {
    let happened = simulate(0..40, 6_000, Faults::default());
    assert!(happened.confirmed > 5_000, "{happened:?}");
    assert!(happened.slow_packs > 100, "{happened:?}");
    assert!(
        happened.takeovers > 400 && happened.kills > 500,
        "{happened:?}"
    );
    assert!(
        happened.collected > 1_000 && happened.losses > 20,
        "{happened:?}"
    );
}

#[test]
fn what_was_confirmed_survives_a_store_that_fails_answers_late_and_lists_late() {
    let happened = simulate(1000..1060, 6_000, Faults::all(25));
    assert!(happened.confirmed > 2_000, "{happened:?}");
    assert!(
        happened.takeovers > 400 && happened.restored > 100,
        "{happened:?}"
    );
    assert!(
        happened.collected > 1_000 && happened.losses > 20,
        "{happened:?}"
    );
}

#[test]
fn what_was_confirmed_survives_a_store_of_which_half_the_requests_fail() {
    let happened = simulate(2000..2030, 6_000, Faults::all(85));
    assert!(
        happened.confirmed > 200 && happened.restored > 20,
        "{happened:?}"
    );
}

#[test]
fn a_store_that_does_not_keep_conditions_is_found_out() {
    let found = (0..20).filter(|seed| {
        let life = || {
            let store = Arc::new(Careless::new(Memory::default()));
            let mut world = World::new(*seed, 4, Faults::default(), store);
            (0..6_000).for_each(|_| world.step());
            world.check();
        };
        catch_unwind(life).is_err()
    });
    assert!(found.count() > 10, "the simulation would not see it");
}
