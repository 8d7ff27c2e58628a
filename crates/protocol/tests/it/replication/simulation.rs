//! Lives of sources and copies from seeds: whatever the link, the power and the clocks do, what was
//! confirmed is there, the copy gets what it wants in the end, and answers as the source does.

use crate::replication::rules::some_rules;
use crate::replication::world::{LEVEL, PERFECT, World};
use headwater_engine::{CopyProgress, Reason, ReplicationRules, StateName, TailProgress};
use headwater_protocol::replication::{
    BudgetLimits, Message, PlannerLimits, Policy, QuietHours, ScoreBy, SegmentRange, TrafficShare,
    Verified, Weights,
};
use headwater_testing::Dice;
use headwater_types::Level;

/// Lets a world come to rest over a link without faults.
pub(crate) fn settle(world: &mut World) {
    world.link = PERFECT;
    world.source.db().flush().unwrap();
    world.hello();
    for _ in 0..200_000 {
        world.step();
        let planner = world.planner();
        if planner.is_idle() && world.is_current() {
            return;
        }
        assert_eq!(planner.refused(), None);
    }
    panic!(
        "the copy does not get what it wants: {:?}; the source is in {:?}",
        world.planner().copy().progress(),
        world.source_state()
    );
}

/// How many answers were elsewhere, and how many bytes came by score.
fn live(seed: u64) -> (u64, u64) {
    let rules = match seed % 3 {
        0 => ReplicationRules::default(),
        1 => ReplicationRules::from(Level::clamped(LEVEL)),
        _ => some_rules(&mut Dice(seed)),
    };
    let mut world = World::new(seed, BudgetLimits::default(), rules);
    for step in 0..400 {
        world.step();
        match world.dice.below(100) {
            0..=19 => {
                let mut dice = world.dice.clone();
                world.source.act(&mut dice);
                world.dice = dice;
            }
            20..=24 => world.hello(),
            25..=26 => world.cut_copy(),
            27 => {
                let seed = world.dice.next();
                world.source.power_loss(seed);
            }
            28..=29 => world.cut_link(),
            31 if seed.is_multiple_of(2) => world.change_rules(),
            32 => world.change_pins(),
            34..=36 => world.ask_for(),
            33 if seed.is_multiple_of(5) => {
                let withholds = !world.source.withholds;
                world.cut_link();
                world.source.withhold(withholds);
            }
            30 if step > 200 => world.verify(),
            _ => {}
        }
    }
    settle(&mut world);
    let is_live = seed.is_multiple_of(3);
    let elsewhere = match is_live {
        true => world.compare_live(),
        false => world.compare(),
    };
    assert!(world.rules != ReplicationRules::default() || elsewhere == 0);
    world.compare_subscribed();
    if is_live {
        live_on(&mut world);
    }
    // Nobody waits for what was asked for, and every byte that is here says why.
    let figures = world.stats();
    let by_score = figures
        .shares
        .iter()
        .filter(|f| f.share == TrafficShare::Proactive);
    let by_score = by_score.map(|f| f.arrived).sum();
    let left = figures
        .shares
        .iter()
        .filter(|f| f.share != TrafficShare::Proactive);
    assert_eq!(left.map(|f| f.missing).sum::<u64>(), 0, "{figures:?}");
    let planner = world.planner();
    for (segment, range) in planner.copy().present() {
        let found = planner.explain(segment, range.start()).unwrap();
        assert!(found.is_none_or(|(found, _)| found.is_here || found.why.reason == Reason::Ahead));
    }
    // Both media hold the same.
    world.verify();
    while world.planner().verified().is_none() {
        world.step();
    }
    let found = world.planner().verified().unwrap();
    assert_eq!((found.different, found.missing), (0, 0));
    assert!(found.equal > 0);
    // The last confirmation may still be on its way, or wait for reads.
    let state = world.planner().copy().state();
    let count = state.segments().count();
    let is_told = |world: &mut World| {
        let confirmed = world.source.agent().confirmed();
        confirmed.is_some_and(|confirmed| confirmed.segments.len() == count)
    };
    for step in 0.. {
        if is_told(&mut world) {
            break;
        }
        world.step();
        assert!(step < 2_000, "the source has not learnt what the copy has");
    }
    let confirmed = world.source.agent().confirmed().unwrap();
    // What is whole is proven, and the source knows it.
    let proven = world.planner().proven();
    let copy = world.planner().copy();
    let whole: Vec<u64> = state
        .segments()
        .map(|s| s.id)
        .filter(|id| copy.is_complete(*id))
        .collect();
    assert_eq!((&proven.proven, proven.disproved.len()), (&whole, 0));
    assert_eq!((&confirmed.proven, confirmed.differ.len()), (&whole, 0));
    (elsewhere, by_score)
}

#[test]
fn an_earlier_state_that_comes_late_for_a_request_that_came_twice_is_no_other_history() {
    live(1520);
}

#[test]
fn a_confirmation_that_comes_late_takes_nothing_back_that_a_newer_one_said() {
    live(1666);
}

/// The source goes on to write, and stores nothing: the copy answers as it does now, all the same.
fn live_on(world: &mut World) {
    for _ in 0..5 {
        let mut dice = world.dice.clone();
        for _ in 0..dice.below(6) {
            world.source.write(&mut dice);
        }
        // Of what may not leave the copy is told nothing, not even that it is there.
        world.source.write_to(false, &mut dice);
        world.dice = dice;
        // What is written is on the medium at the latest when a state is taken.
        world.hello();
        for step in 0.. {
            world.step();
            if world.is_live() && world.planner().is_idle() && world.is_current() {
                break;
            }
            assert!(step < 2_000, "{:?}", world.planner().copy().progress());
        }
        let elsewhere = world.compare_live();
        assert!(world.rules != ReplicationRules::default() || elsewhere == 0);
    }
    // What follows is of states.
    settle(world);
}

#[test]
fn a_copy_gets_what_it_wants_over_a_bad_link_between_machines_that_fail() {
    let variable = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = variable("HEADWATER_SYNC_FIRST_SEED").unwrap_or(1);
    let seeds = variable("HEADWATER_SYNC_SEEDS").unwrap_or(40);
    let (mut elsewhere, mut by_score) = (0, 0);
    for seed in first..first + seeds {
        let lived = std::panic::catch_unwind(|| live(seed));
        let lived = lived.unwrap_or_else(|panic| {
            eprintln!("HEADWATER_SYNC_FIRST_SEED={seed} HEADWATER_SYNC_SEEDS=1");
            std::panic::resume_unwind(panic)
        });
        elsewhere += lived.0;
        by_score += lived.1;
    }
    assert!(elsewhere > 0 || seeds < 40, "no copy lacked a row");
    assert!(by_score > 0 || seeds < 40, "no rows came by score");
}

#[test]
fn no_share_starves_while_the_source_goes_on_changing_over_a_link_that_is_too_slow() {
    for seed in 61..=63 {
        let limits = BudgetLimits {
            bytes_per_second: Some(3_000),
            ..BudgetLimits::default()
        };
        let mut world = World::new(seed, limits, ReplicationRules::default());
        world.link = PERFECT;
        let planner = world.planner.as_mut().unwrap();
        planner.set_policy(Policy::Shares);
        planner.set_weights(Weights::default());
        let mut behind = 0;
        for step in 0..3_000 {
            world.step();
            let mut dice = world.dice.clone();
            world.source.act(&mut dice);
            world.dice = dice;
            // There is always another state.
            world.hello();
            if step % 20 == 0 {
                world.ask_for();
            }
            behind += u32::from(world.planner().copy().progress().missing_bytes > 0);
        }
        let figures = world.stats();
        assert!(behind > 2_000, "the link is not too slow: {figures:?}");
        // Rows go by score once all else of their segment is here, which it never is.
        let ready = figures
            .shares
            .iter()
            .filter(|f| f.share != TrafficShare::Proactive);
        for share in ready {
            assert!(share.arrived > 10_000, "{share:?}");
        }
    }
}

#[test]
fn nothing_of_a_withheld_table_leaves_whatever_a_copy_asks_for() {
    for seed in 51..=54 {
        let mut world = World::new(seed, BudgetLimits::default(), Level::MIN);
        world.source.withhold(false);
        settle(&mut world);
        // A state of when everything could leave, and every segment of it.
        let known = world.planner().copy().state();
        let all: Vec<SegmentRange> = known
            .segments()
            .map(|s| SegmentRange {
                segment: s.id,
                offset: 0,
                bytes: u32::try_from(s.bytes).unwrap(),
            })
            .collect();
        world.source.withhold(true);
        let fetch = |world: &mut World, state, pieces: &[SegmentRange]| {
            world.request(Message::Fetch {
                request: 1,
                state,
                ranges: pieces.to_vec(),
            })
        };
        let answer = fetch(&mut world, known.name(), &all);
        assert_eq!(answer, [Message::Unavailable { request: 1 }]);
        settle(&mut world);
        world.compare_subscribed();
        let now = world.planner().copy().state();
        let is_withheld = |piece: &&SegmentRange| now.segments().all(|s| s.id != piece.segment);
        let withheld: Vec<SegmentRange> = all.iter().filter(is_withheld).copied().collect();
        assert!(!withheld.is_empty() && withheld.len() < all.len());
        for piece in withheld {
            for ask in [fetch, compare] {
                let answer = ask(&mut world, now.name(), &[piece]);
                assert!(
                    matches!(answer[..], [Message::Refused { .. }]),
                    "{answer:?}"
                );
            }
        }
        // What the copy had is gone from its medium with the next state.
        world.source.withhold(false);
        settle(&mut world);
        world.compare_subscribed();
    }
}

fn compare(world: &mut World, state: StateName, pieces: &[SegmentRange]) -> Vec<Message> {
    world.request(Message::Compare {
        request: 1,
        state,
        ranges: pieces.to_vec(),
    })
}

#[test]
fn a_rolled_back_source_is_refused_and_the_copy_stays_as_it_is() {
    for seed in 21..=24 {
        let mut world = World::new(seed, BudgetLimits::default(), Level::MIN);
        settle(&mut world);
        let image = world.source.disk.after_crash(seed);
        for _ in 0..20 {
            let mut dice = world.dice.clone();
            world.source.act(&mut dice);
            world.dice = dice;
        }
        settle(&mut world);
        let before = world.planner().copy().progress();
        world.source.roll_back(image);
        for _ in 0..20 {
            let mut dice = world.dice.clone();
            world.source.act(&mut dice);
            world.dice = dice;
        }
        world.source.db().flush().unwrap();
        world.hello();
        while world.planner().refused().is_none() {
            world.step();
        }
        // What was sent along of newest events is not believed any more.
        let before = CopyProgress {
            tail: TailProgress::default(),
            ..before
        };
        assert_eq!(world.planner().copy().progress(), before);
    }
}

#[test]
fn no_day_gets_more_than_its_cap_over_restarts_and_nothing_is_sent_in_quiet_hours() {
    let cap = 300_000;
    let limits = BudgetLimits {
        bytes_per_second: Some(2_000),
        bytes_per_day: Some(cap),
        quiet: vec![QuietHours { from: 60, to: 120 }],
        ..BudgetLimits::default()
    };
    let mut world = World::new(5, limits, Level::MIN);
    world.skew = 0;
    world.link = PERFECT;
    let minute = |world: &World| world.wall().as_nanos().div_euclid(60_000_000_000) % 1440;
    let mut hours_of_quiet = 0;
    let mut skewed_until = 0;
    for turn in 0..6000 {
        let quiet = (60..120).contains(&minute(&world));
        let sent: u64 = world.source.sent.values().sum();
        world.step();
        if quiet && (60..120).contains(&minute(&world)) {
            assert_eq!(world.source.sent.values().sum::<u64>(), sent);
            hours_of_quiet += 1;
        }
        // Most of the time nothing happens.
        world.now += std::time::Duration::from_secs(67);
        if turn % 2 == 0 {
            let mut dice = world.dice.clone();
            world.source.act(&mut dice);
            world.dice = dice;
            world.hello();
        }
        if turn == skewed_until {
            world.skew = 0;
        }
        if turn % 190 == 189 {
            let seed = world.dice.next();
            world.source.power_loss(seed);
            // The clock of the machine stands still without power: it is the first day of 1970,
            // after noon, until somebody tells it.
            let noon = 12 * 3_600_000_000_000;
            world.skew = 0;
            world.skew = noon - world.wall().as_nanos();
            skewed_until = turn + 1 + world.dice.below(60);
        }
    }
    let sent: u64 = world.source.sent.values().sum();
    assert!(hours_of_quiet > 0 && world.source.sent.len() > 3);
    let full = world.source.sent.values().filter(|sent| **sent > cap / 2);
    assert!(full.count() > 1, "no cap was near: {:?}", world.source.sent);
    assert!(world.source.sent.values().all(|sent| *sent <= cap));
    assert!(world.source.sent.contains_key(&0));
    assert!(
        world.source.persisted_bytes * 100 <= sent,
        "{} for {sent}",
        world.source.persisted_bytes
    );
}

#[test]
fn a_greedy_copy_costs_a_source_no_more_reads_than_it_allows() {
    let mut world = World::new(72, BudgetLimits::default(), Level::MIN);
    settle(&mut world);
    let reads = 1 << 20;
    world.source.set_reads(reads);
    let state = world.planner().copy().state();
    let segments: Vec<_> = state.segments().collect();
    let pieces: Vec<SegmentRange> = (0..50_000)
        .map(|n| {
            let segment = segments[n % segments.len()];
            SegmentRange {
                segment: segment.id,
                offset: 0,
                bytes: u32::try_from(segment.bytes).unwrap(),
            }
        })
        .collect();
    let start = world.now;
    let (mut compared, mut states) = (0u64, 0u64);
    for turn in 0..200u64 {
        // Without minding what it is told, ten times a second.
        world.now += std::time::Duration::from_millis(100);
        let request = turn;
        let asks_first = turn % 2 == 0;
        for asks in [asks_first, !asks_first] {
            if asks {
                let known_state = None;
                let answers = world.request(Message::AskState {
                    request,
                    known_state,
                });
                states += u64::from(matches!(answers[..], [Message::State { .. }, _]));
                continue;
            }
            for answer in compare(&mut world, state.name(), &pieces) {
                if let Message::Digests { digests, .. } = answer {
                    let read = pieces.iter().zip(&digests).map(|(p, _)| u64::from(p.bytes));
                    compared += read.sum::<u64>();
                }
            }
        }
    }
    let passed = (world.now - start).as_secs() + 2;
    assert!(
        compared + states * (64 << 10) <= passed * reads,
        "{compared} {states}"
    );
    assert!(compared > 0 && states > 0);
    // Whoever is patient is served all the same.
    world.verify();
    while world.planner().verified().is_none() {
        world.step();
    }
}

#[test]
fn a_copy_proves_what_it_has_whole_and_tells_which_side_has_decayed() {
    let mut world = World::new(33, BudgetLimits::default(), Level::MIN);
    world.source.db().compact().unwrap();
    settle(&mut world);
    let proven = world.planner().proven();
    assert!(
        !proven.proven.is_empty() && proven.disproved.is_empty(),
        "{proven:?}"
    );
    let segment = proven.proven[0];
    let verify = |world: &mut World| {
        world.verify();
        while world.planner().verified().is_none() {
            world.step();
        }
    };
    // A bit decays at the source: the copy is right, and stays as it is.
    let at_source = format!("/db/segment/{segment}.seg");
    world.source.disk.flip_bit(&at_source, 90, 2).unwrap();
    verify(&mut world);
    assert!(world.planner().verified().unwrap().different > 0);
    assert_eq!(world.planner().proven().proven, proven.proven);
    world.planner.as_mut().unwrap().fetch_again().unwrap();
    assert!(!world.planner().different().is_empty());
    assert!(world.planner().is_idle());
    world.source.disk.flip_bit(&at_source, 90, 2).unwrap();
    // One decays at the copy: that is found without the source.
    let here = format!("/copies/1/pack/{segment}.pack");
    world.disk.flip_bit(&here, 90, 2).unwrap();
    verify(&mut world);
    let found = world.planner().proven();
    assert_eq!(found.disproved, [segment]);
    let different = world.planner().different().iter();
    assert_eq!(different.map(|p| p.segment).collect::<Vec<_>>(), [segment]);
    world.planner.as_mut().unwrap().fetch_again().unwrap();
    settle(&mut world);
    assert_eq!(world.planner().proven(), proven);
}

#[test]
fn what_decays_in_a_copy_is_found_and_fetched_again_when_asked() {
    let mut world = World::new(31, BudgetLimits::default(), Level::MIN);
    settle(&mut world);
    let copy = world.planner().copy().clone();
    let (segment, _) = copy.present()[0];
    let path = format!("/copies/1/pack/{segment}.pack");
    world.disk.flip_bit(&path, 100, 2).unwrap();
    let verify = |world: &mut World| -> Verified {
        world.verify();
        while world.planner().verified().is_none() {
            world.step();
        }
        world.planner().verified().unwrap()
    };
    let found = verify(&mut world);
    assert!(found.different > 0);
    let planner = world.planner.as_mut().unwrap();
    assert!(planner.different().iter().any(|p| p.segment == segment));
    planner.fetch_again().unwrap();
    settle(&mut world);
    let found = verify(&mut world);
    assert_eq!((found.different, found.missing), (0, 0));
    assert_eq!(world.compare(), 0);
}

#[test]
fn what_a_source_forgets_because_of_its_age_stays_over_a_bad_link_between_machines_that_fail() {
    let mut forgotten = 0;
    for seed in 81..=85 {
        let rules = ReplicationRules::default().keeping(std::time::Duration::MAX);
        let mut world = World::new(seed, BudgetLimits::default(), rules);
        world.source.withhold(false);
        world.source.forgets();
        let link = world.link;
        let mut had = std::collections::BTreeSet::new();
        for _ in 0..6 {
            settle(&mut world);
            // Everything is here, and goes at the source while the link is as it is.
            assert_eq!(world.lost(&had), 0, "seed {seed}: rows are lost");
            had.append(&mut world.rows_here());
            world.link = link;
            let seed = world.dice.next();
            for step in 0..120 {
                world.step();
                match world.dice.below(100) {
                    0..=9 => {
                        let mut dice = world.dice.clone();
                        world.source.write(&mut dice);
                        world.dice = dice;
                    }
                    10..=14 => world.hello(),
                    15 => world.cut_copy(),
                    16 => world.source.power_loss(seed.wrapping_add(step)),
                    17..=18 => world.cut_link(),
                    19 => world.source.db().flush().unwrap(),
                    20 => world.source.db().compact().unwrap(),
                    21 => world.source.passes(std::time::Duration::from_secs(1500)),
                    22 => {
                        let deleted = world.delete();
                        had.retain(|(stream, time)| !deleted(stream, *time));
                    }
                    _ => {}
                }
            }
            world.source.passes(std::time::Duration::from_secs(3000));
        }
        settle(&mut world);
        assert_eq!(world.lost(&had), 0, "seed {seed}: rows are lost");
        let left = world.rows_of_the_source();
        assert_eq!(
            world.lost(&left),
            0,
            "seed {seed}: the newest rows are not here"
        );
        forgotten += world.rows_here().difference(&left).count();
        // What is kept is a part of what is compared no more, and all else is equal.
        world.verify();
        while world.planner().verified().is_none() {
            world.step();
        }
        let found = world.planner().verified().unwrap();
        assert_eq!((found.different, found.missing), (0, 0));
    }
    assert!(forgotten > 500, "{forgotten}");
}

#[test]
fn over_a_long_link_several_requests_are_on_their_way_at_once() {
    let steps = |requests: usize| {
        let mut world = World::new(91, BudgetLimits::default(), ReplicationRules::default());
        for _ in 0..300 {
            let mut dice = world.dice.clone();
            world.source.write(&mut dice);
            world.dice = dice;
        }
        world.source.db().flush().unwrap();
        world.link = crate::replication::world::Link {
            delay: 4,
            ..PERFECT
        };
        world.limits = Some(PlannerLimits {
            request_bytes: 1 << 10,
            requests,
            ..PlannerLimits::default()
        });
        world.open_copy();
        world.hello();
        let mut steps = 0;
        while !(world.planner().is_idle() && world.is_current()) {
            world.step();
            steps += 1;
        }
        assert_eq!(world.compare(), 0);
        // Nothing came twice.
        let figures = world.stats();
        let rows = figures
            .shares
            .iter()
            .filter(|f| f.share != TrafficShare::States);
        let arrived: u64 = rows.map(|f| f.arrived).sum();
        assert!(arrived <= world.planner().copy().progress().bytes);
        steps
    };
    let (alone, together) = (steps(1), steps(8));
    assert!(
        together * 2 < alone,
        "{together} steps, and {alone} one at a time"
    );
}

/// What came of each share by when nothing is asked for any more under a policy.
fn copied_under(policy: Policy, rules: ReplicationRules) -> (Vec<TrafficShare>, World) {
    let mut world = World::new(97, BudgetLimits::default(), rules);
    world.link = PERFECT;
    let planner = world.planner.as_mut().unwrap();
    planner.set_policy(policy);
    planner.set_score(ScoreBy::Deviation);
    settle(&mut world);
    let figures = world.stats().shares;
    let came = figures.iter().filter(|f| f.arrived > 0).map(|f| f.share);
    let came = came
        .filter(|share| *share != TrafficShare::States)
        .collect();
    (came, world)
}

#[test]
fn a_policy_says_what_is_copied_before_somebody_asks_for_it() {
    let (came, mut world) = copied_under(Policy::None, ReplicationRules::default());
    assert_eq!(came, []);
    assert!(world.planner().copy().progress().missing_bytes > 0);
    // What a reader asks for comes whatever the policy.
    for _ in 0..10 {
        world.ask_for();
    }
    settle(&mut world);
    let asked = world.stats().shares;
    assert!(
        asked
            .iter()
            .any(|f| f.share == TrafficShare::Requested && f.arrived > 0)
    );

    let (came, world) = copied_under(Policy::Periodic, ReplicationRules::default());
    assert_eq!(came, [TrafficShare::Periodic, TrafficShare::Backlog]);
    assert_eq!(world.planner().copy().progress().missing_bytes, 0);
    let (came, world) = copied_under(Policy::Deviation, ReplicationRules::default());
    assert_eq!(came, [TrafficShare::Periodic, TrafficShare::Proactive]);
    assert_eq!(world.planner().copy().progress().missing_bytes, 0);
    let (came, _) = copied_under(Policy::Both, ReplicationRules::default());
    assert_eq!(
        came,
        [
            TrafficShare::Periodic,
            TrafficShare::Proactive,
            TrafficShare::Backlog
        ]
    );

    // Of streams of which summaries are wanted, rows come only where they may be copied ahead.
    let summaries = || ReplicationRules::from(Level::clamped(LEVEL));
    let (came, _) = copied_under(Policy::Deviation, summaries());
    assert!(!came.contains(&TrafficShare::Proactive), "{came:?}");
    let (came, world) = copied_under(Policy::Deviation, summaries().with_ahead_bytes(2000));
    assert!(came.contains(&TrafficShare::Proactive), "{came:?}");
    let figures = world.stats().shares;
    let ahead = figures.iter().find(|f| f.share == TrafficShare::Proactive);
    assert!(ahead.unwrap().arrived <= 2000, "{ahead:?}");
}
