//! Random lives of a database on a disk that fails, beside plain lists: whatever happens, nothing
//! acknowledged is lost.
//!
//! Each seed is one life: writes of all kinds into tables of all kinds, statements, snapshots that
//! are held, backups, a clock that may be wrong; and processes that are closed, killed, cut off or
//! fail, each as often as the others.

mod aggregates;
mod agree;
mod beside;
mod compare;
mod copies;
mod decay;
mod ends;
mod mended;
mod plain;
mod steps;
mod time;
mod transcript;
mod view;
mod world;

use crate::cuts::variable;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use transcript::Transcript;
use world::{Trouble, World};

/// What has to happen in the lives of `make test`, whatever the seeds: else they would prove less
/// than they say.
const KINDS: [&str; 50] = [
    "acknowledged and lost as promised",
    "aged partitions seen",
    "backups onto older ones",
    "backups restored",
    "backups that decayed",
    "batches repeated",
    "bursts",
    "clocks set",
    "comparisons",
    "comparisons of held snapshots",
    "compactions",
    "copies fetched",
    "damaged metadata",
    "damages that nobody met",
    "damages that readers met",
    "databases left to settle",
    "deletes",
    "ends after a failure",
    "ends by close",
    "ends by kill",
    "ends by power cut",
    "expiring writes",
    "flipped bits",
    "flushes",
    "full disks outlived",
    "garbled blocks",
    "heavy writes",
    "imports",
    "indexes created",
    "indexes dropped",
    "indexes made",
    "layouts changed",
    "lives checked",
    "maintenances",
    "moved cutoffs",
    "numbered writes",
    "openings that were hindered",
    "operations in doubt that stayed",
    "operations in doubt that went",
    "repairs",
    "repairs of metadata",
    "repairs that lost nothing",
    "restarts under a clock that may be wrong",
    "rows refused",
    "rows written again",
    "snapshots held",
    "tables agreed upon",
    "tables altered",
    "vanished files",
    "zeroed blocks",
];

/// Steps of a life.
const STEPS: u64 = 120;
/// After so many steps of a life the owner, a reader and the next opening are compared, if nothing
/// else is asked for.
const AGREE_EVERY: u64 = 11;
/// Lives of `make test`.
const SEEDS: u64 = 100;

/// Every step is printed as it is taken, when that is asked for.
fn is_verbose() -> bool {
    variable("HEADWATER_MODEL_VERBOSE").is_some()
}

/// One life.
fn live(seed: u64, steps: u64, told: &mut Transcript) {
    let mut world = World::new(seed);
    let agree_every = variable("HEADWATER_MODEL_AGREE_EVERY")
        .unwrap_or(AGREE_EVERY)
        .max(1);
    let lived = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..1 + world.random.below(3) {
            world.create();
        }
        for step in 0..steps {
            world.step = step;
            world.watch();
            if !world.must_reopen {
                world.live();
            }
            if world.must_reopen || (world.trouble != Trouble::None && world.random.chance(8)) {
                if !world.must_reopen {
                    world.end_trouble();
                }
                if world.must_reopen {
                    world.reopen();
                    world.compare();
                    if (step + seed).is_multiple_of(4.min(agree_every)) {
                        world.agree();
                    }
                }
            } else if world.trouble == Trouble::None {
                if world.random.chance(12) {
                    world.begin_trouble();
                } else if world.random.chance(10) {
                    world.compare();
                }
            }
            // Other steps in each life, and no choice of it depends on them.
            if (step + seed).is_multiple_of(agree_every) {
                world.agree();
            }
        }
        world.end();
    }));
    *told = world.transcript.clone();
    if let Err(panic) = lived {
        eprintln!(
            "{}\n^ the last steps of seed {seed}, step {}. Again: HEADWATER_MODEL_FIRST_SEED={seed} HEADWATER_MODEL_SEEDS=1 \
             cargo test --locked -p headwater-engine --test it -- random_lives",
            world.transcript.last(),
            world.step
        );
        // What is left is broken: dropping it may fail again.
        std::mem::forget(world);
        resume_unwind(panic);
    }
}

#[test]
fn the_same_seed_lives_the_same_life() {
    let histories = [5, 5, 6].map(|seed| {
        let mut told = Transcript::default();
        live(seed, 60, &mut told);
        told.hash()
    });
    assert_eq!(histories[0], histories[1]);
    assert_ne!(histories[1], histories[2]);
}

#[test]
fn random_lives_lose_nothing_that_was_acknowledged() {
    let first = variable("HEADWATER_MODEL_FIRST_SEED").unwrap_or(1);
    let seeds = variable("HEADWATER_MODEL_SEEDS").unwrap_or(SEEDS);
    let steps = variable("HEADWATER_MODEL_STEPS").unwrap_or(STEPS);
    let next = AtomicU64::new(first);
    let all = Mutex::new((Transcript::default(), Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let mut told = Transcript::default();
                    let lived = catch_unwind(AssertUnwindSafe(|| live(seed, steps, &mut told)));
                    let mut all = all.lock().unwrap();
                    all.0.merge(&told);
                    if lived.is_err() {
                        all.1.push(seed);
                    }
                }
            });
        }
    });
    let (told, mut failed) = all.into_inner().unwrap();
    for (what, number) in told.counts() {
        println!("{number:>9} {what}");
    }
    if failed.is_empty() && seeds >= SEEDS && steps >= STEPS {
        let missing: Vec<&str> = KINDS
            .into_iter()
            .filter(|k| !told.counts().contains_key(k))
            .collect();
        assert!(missing.is_empty(), "nothing of this happened: {missing:?}");
        let idle: Vec<_> = told
            .counts()
            .iter()
            .filter(|(_, number)| **number == 0)
            .collect();
        assert!(idle.is_empty(), "nothing of this happened: {idle:?}");
    }
    failed.sort_unstable();
    assert!(
        failed.is_empty(),
        "{} of {seeds} seeds failed: {failed:?}",
        failed.len()
    );
}
