//! A copy whose medium is full.

use crate::replication::simulation::settle;
use crate::replication::world::{DIR, World, far};
use headwater_engine::{ErrorKind, RemoteCopy, ReplicationRules};
use headwater_protocol::replication::BudgetLimits;
use std::collections::BTreeMap;
use std::path::Path;

/// The medium of the copy gets more room, until the copy can be opened there again.
fn enlarge_disk(world: &mut World) {
    world.planner = None;
    loop {
        let used: u64 = world.disk.files().iter().map(|(_, bytes)| bytes).sum();
        world.disk.capacity(used + world.dice.below(30_000));
        let rules = world.rules.clone();
        match RemoteCopy::open(far(&world.disk), Path::new(DIR), rules) {
            Ok(copy) => drop(copy),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                continue;
            }
        }
        world.open_copy();
        return;
    }
}

#[test]
fn a_copy_whose_disk_is_full_keeps_what_it_confirmed_and_goes_on_when_there_is_room() {
    for seed in 301..=306 {
        let mut world = World::new(seed, BudgetLimits::default(), ReplicationRules::default());
        enlarge_disk(&mut world);
        let mut refused = 0;
        for step in 0..400 {
            if step % 6 == 0 {
                let mut dice = world.dice.clone();
                world.source.act(&mut dice);
                world.dice = dice;
                world.hello();
            }
            let Err(error) = world.try_step() else {
                continue;
            };
            assert_eq!(error.kind(), ErrorKind::Full, "seed {seed}: {error}");
            refused += 1;
            // What the source was told to be there is there, whatever was being written.
            let confirmed: BTreeMap<u64, u64> = match world.source.agent().confirmed() {
                Some(confirmed) => confirmed.segments.iter().copied().collect(),
                None => BTreeMap::new(),
            };
            enlarge_disk(&mut world);
            let copy = world.planner().copy();
            let mut here: BTreeMap<u64, u64> = BTreeMap::new();
            for (segment, range) in copy.present() {
                *here.entry(segment).or_default() += range.len();
            }
            let state = copy.state();
            for named in state.segments() {
                if let Some(bytes) = confirmed.get(&named.id) {
                    let there = here.get(&named.id).copied().unwrap_or(0);
                    assert!(there >= *bytes, "seed {seed}: {there} of {bytes}");
                }
            }
        }
        assert!(refused > 0, "seed {seed}");
        world.disk.capacity(u64::MAX);
        settle(&mut world);
        assert_eq!(world.compare(), 0);
        world.verify();
        while world.planner().verified().is_none() {
            world.step();
        }
        let found = world.planner().verified().unwrap();
        assert_eq!((found.different, found.missing), (0, 0));
    }
}
