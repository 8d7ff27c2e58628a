//! Lives of a source, a copy in the middle and a far copy of that: what the source hashed is proven
//! far away, what the middle lacks keeps nothing else waiting, and what does not belong to the
//! source is refused.

use crate::replication::chain::{Chain, Upstream, summaries};
use crate::replication::rows::lost_of;
use crate::replication::rules::some_rules;
use crate::replication::simulation::settle;
use crate::replication::world::{PERFECT, World};
use headwater_engine::{LeafFacts, Reason, RemoteCopy, ReplicationRules, StateName, StateSegment};
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Message, Now, Planner, PlannerLimits, Spent, TrafficShare,
};
use headwater_testing::Dice;
use std::collections::BTreeSet;
use std::time::Duration;

/// Whether the far copy shows the newest of everything.
fn live(seed: u64) -> bool {
    let mut dice = Dice(seed);
    let middle = match seed % 3 {
        0 => ReplicationRules::default(),
        1 => summaries(),
        _ => some_rules(&mut dice),
    };
    let far = match seed % 4 {
        0 => summaries(),
        1 => some_rules(&mut dice),
        _ => ReplicationRules::default(),
    };
    let mut chain = Chain::new(seed, middle, far);
    chain.fetches_requested = seed.is_multiple_of(5);
    chain.middle_opens();
    for step in 0..400 {
        chain.step();
        match chain.near.dice.below(100) {
            0..=19 => chain.act(),
            20..=24 => chain.near.hello(),
            25..=29 => chain.hello(),
            30..=31 => chain.cut_middle(),
            32 => {
                let seed = chain.near.dice.next();
                chain.near.source.power_loss(seed);
            }
            33..=34 => chain.near.cut_link(),
            35..=36 => chain.cut_link(),
            37..=38 => chain.cut_far(),
            39 => chain.open(),
            40 if seed.is_multiple_of(2) => chain.near.change_rules(),
            41 => chain.near.change_pins(),
            42 => chain.near.ask_for(),
            43 => {
                let copy = chain.copy();
                let segments: Vec<_> = copy.state().segments().collect();
                let which = chain.near.dice.below(segments.len() as u64) as usize;
                let _ = copy.request_range(segments[which].id, 0, 100);
            }
            44 if step > 200 => chain.planner.as_mut().unwrap().verify(),
            _ => {}
        }
    }
    chain.settle();
    // All that the middle has of what is wanted is here, and tiles are those of the source.
    assert_eq!(chain.left_lying(), []);
    let progress = chain.copy().progress();
    let missing = progress.missing_bytes;
    let middle_has_all = chain.near.rules == ReplicationRules::default() || chain.fetches_requested;
    assert!(missing == 0 || !middle_has_all, "{progress:?}");
    // What was rewritten since, and is here as a whole in the version before, does not go for one
    // without rows.
    assert!(progress.shown_older == 0 || !middle_has_all, "{progress:?}");
    if progress.shown_older == 0 {
        let elsewhere = chain.compare();
        assert!(elsewhere == 0 || missing > 0 || chain.rules != ReplicationRules::default());
    }
    let found = chain.verify();
    // What came before the middle was as it is now may be nothing that it could be compared with.
    assert!(found.different == 0 && found.equal > 0 && found.missing >= missing);
    // What is whole is proven by what the source has hashed, and the middle knows it.
    let (copy, state) = (chain.copy(), chain.copy().state());
    let ids = state.segments().map(|s| s.id);
    let whole: Vec<u64> = ids.filter(|id| copy.is_complete(*id)).collect();
    let proven = chain.planner().proven();
    assert_eq!((&proven.proven, proven.disproved.len()), (&whole, 0));
    let confirmed = chain.agent().confirmed().unwrap();
    assert_eq!((&confirmed.proven, confirmed.differ.len()), (&whole, 0));
    // Of the source's own ledger: what the middle says was never needed for it.
    let source = chain.near.source.db();
    let source = source
        .hold_state_of(None, &chain.near.source.rules())
        .unwrap();
    for id in whole {
        assert_eq!(state.ledger(id), source.state().ledger(id));
    }
    progress.shown_older == 0
}

#[test]
fn a_far_copy_gets_what_the_middle_has_over_bad_links_between_machines_that_fail() {
    let variable = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = variable("HEADWATER_SYNC_FIRST_SEED").unwrap_or(1);
    let seeds = variable("HEADWATER_SYNC_SEEDS").unwrap_or(30);
    let mut newest = 0;
    for seed in first..first + seeds {
        let lived = std::panic::catch_unwind(|| live(seed));
        let is_newest = lived.unwrap_or_else(|panic| {
            eprintln!("HEADWATER_SYNC_FIRST_SEED={seed} HEADWATER_SYNC_SEEDS=1");
            std::panic::resume_unwind(panic)
        });
        newest += u64::from(is_newest);
    }
    assert!(
        newest * 10 >= seeds * 9,
        "{newest} of {seeds} show the newest"
    );
}

/// A middle with summaries of much, and a far copy that wants everything.
fn chain_subscribing_to_more(seed: u64, gets: bool) -> Chain {
    let mut near = World::new(seed, BudgetLimits::default(), summaries());
    for _ in 0..60 {
        let mut dice = near.dice.clone();
        near.source.write(&mut dice);
        near.dice = dice;
    }
    settle(&mut near);
    let mut chain = Chain::of(near, ReplicationRules::default());
    chain.fetches_requested = gets;
    chain.middle_opens();
    chain
}

#[test]
fn what_the_middle_lacks_is_set_aside_and_asked_for_once_it_has_it() {
    let mut chain = chain_subscribing_to_more(41, false);
    chain.settle_far();
    let lacking = chain.copy().missing_bytes();
    assert!(lacking > 0 && chain.left_lying().is_empty());
    assert!(chain.planner().is_ahead_of_its_source());
    chain.compare();
    // It costs a request or two for each segment, not one for each range again and again.
    let segments = chain.copy().state().segments().count() as u64;
    let requests = chain.planner().stats(chain.near.clocks()).requests;
    assert!(requests <= 40 + 4 * segments, "{requests} for {segments}");
    let said = chain.messages;
    for _ in 0..50 {
        chain.step();
    }
    assert_eq!(chain.messages, said, "nothing is asked again and again");
    // The middle wants all of it from now on: what comes there goes on, without a state or a hello.
    chain.near.rules = ReplicationRules::default();
    chain
        .middle()
        .set_rules(ReplicationRules::default())
        .unwrap();
    let mut steps = 0;
    while chain.copy().missing_bytes() > 0 {
        chain.step();
        steps += 1;
        assert!(steps < 20_000, "{:?}", chain.copy().progress());
    }
    assert_eq!(chain.compare(), 0);
    let found = chain.verify();
    assert_eq!((found.different, found.missing), (0, 0));
    let requests = chain.planner().stats(chain.near.clocks()).requests;
    assert!(requests < 2_000, "{requests}");
}

#[test]
fn a_middle_that_gets_what_it_is_asked_for_passes_on_everything() {
    let mut chain = chain_subscribing_to_more(42, true);
    let before = chain.middle().progress().bytes;
    chain.link = PERFECT;
    chain.hello();
    let mut steps = 0;
    while chain.copy().missing_bytes() > 0 || !chain.planner().is_idle() {
        chain.step();
        steps += 1;
        assert!(steps < 20_000, "{:?}", chain.copy().progress());
    }
    assert_eq!(chain.compare(), 0);
    assert!(chain.middle().progress().bytes > before);
}

#[test]
fn rows_that_go_ahead_are_those_that_the_middle_has() {
    // The middle has the rows of one stream; those of others would go before them by their score.
    let mut chain = chain_subscribing_to_more(43, false);
    let rules = summaries().with_ahead_bytes(6_000);
    chain.copy().set_rules(rules.clone()).unwrap();
    chain.rules = rules;
    chain.near.change_pins();
    while chain.near.planner().copy().pins().is_empty() {
        chain.near.change_pins();
    }
    chain.settle();
    let copy = chain.copy();
    let by = |facts: &LeafFacts| facts.deviation;
    let ahead = copy.missing_by_score(&by, u64::MAX).unwrap();
    let middle = chain.middle();
    let lying = ahead.iter().filter(|m| {
        let bytes = u32::try_from(m.range.bytes).unwrap();
        middle.read(m.segment, m.range.offset, bytes).is_ok()
    });
    assert_eq!(lying.count(), 0);
}

#[test]
fn what_was_read_far_away_and_cannot_be_had_keeps_nobody_waiting() {
    let mut chain = chain_subscribing_to_more(44, false);
    let copy = chain.copy();
    copy.set_rules(summaries()).unwrap();
    chain.rules = summaries();
    chain.settle_far();
    let middle = chain.middle();
    let state = copy.state();
    let lacks = |s: &StateSegment| middle.read(s.id, 64, 1).is_err();
    let lacking: Vec<_> = state.segments().filter(lacks).collect();
    assert!(!lacking.is_empty());
    for segment in &lacking {
        assert!(copy.request_range(segment.id, 64, 1));
    }
    chain.settle_far();
    let asked = copy.missing_for(Reason::Requested, u64::MAX);
    assert_eq!(asked, [], "there is room for others to ask");
}

#[test]
fn deletes_and_what_ages_reach_the_far_copy_through_the_middle_however_long_it_was_away() {
    for seed in 61..=64 {
        // The middle keeps nothing of what the source cuts away, the far copy all.
        let kept = ReplicationRules::default().keeping(Duration::MAX);
        let mut chain = Chain::new(seed, ReplicationRules::default(), kept);
        chain.near.source.withhold(false);
        chain.near.source.forgets();
        let mut had = BTreeSet::new();
        for turn in 0..6 {
            chain.settle();
            assert_eq!(
                lost_of(&chain.copy(), &had),
                0,
                "seed {seed}: rows are lost"
            );
            had.append(&mut chain.near.rows_of(&chain.copy()));
            // The far copy is away, and the middle hears everything and is started anew.
            for _ in 0..8 {
                let mut dice = chain.near.dice.clone();
                chain.near.source.write(&mut dice);
                chain.near.dice = dice;
                if chain.near.dice.chance(40) {
                    let deleted = chain.near.delete();
                    had.retain(|(stream, time)| !deleted(stream, *time));
                }
                if chain.near.dice.chance(30) {
                    let passed = Duration::from_secs(1500);
                    chain.near.source.passes(passed);
                }
                if chain.near.dice.chance(30) {
                    chain.near.source.db().compact().unwrap();
                }
                settle(&mut chain.near);
                if chain.near.dice.chance(30) {
                    chain.cut_middle();
                }
            }
            if turn % 2 == 1 {
                chain.near.source.passes(Duration::from_secs(3000));
                chain.cut_far();
            }
        }
        chain.settle();
        let here = chain.near.rows_of(&chain.copy());
        assert_eq!(
            lost_of(&chain.copy(), &had),
            0,
            "seed {seed}: rows are lost"
        );
        let source = chain.near.rows_of_the_source();
        assert_eq!(lost_of(&chain.copy(), &source), 0);
        // Whatever a user has deleted is gone everywhere.
        let back: Vec<_> = here
            .difference(&had)
            .filter(|r| !source.contains(*r))
            .collect();
        assert!(back.is_empty(), "seed {seed}: {back:?}");
    }
}

#[test]
fn a_fork_is_refused_in_the_middle_and_by_the_far_copy() {
    for seed in 21..=23 {
        let mut chain = Chain::new(
            seed,
            ReplicationRules::default(),
            ReplicationRules::default(),
        );
        chain.settle();
        let image = chain.near.source.disk.after_crash(seed);
        for _ in 0..10 {
            chain.act();
        }
        chain.settle();
        let before = chain.copy().progress();
        chain.near.source.roll_back(image);
        for _ in 0..10 {
            chain.act();
        }
        chain.near.source.db().flush().unwrap();
        chain.near.hello();
        while chain.near.planner().refused().is_none() {
            chain.step();
        }
        assert_eq!(chain.planner().refused(), None);
        assert_eq!(chain.copy().progress(), before);
    }
}

#[test]
fn a_middle_that_follows_the_fork_is_refused_once_it_is_past_what_is_known_here() {
    let mut chain = Chain::new(25, ReplicationRules::default(), ReplicationRules::default());
    chain.settle();
    let image = chain.near.source.disk.after_crash(25);
    for _ in 0..10 {
        chain.act();
    }
    chain.settle();
    let known = chain.copy().state().name();
    let before = chain.copy().progress();
    chain.near.source.roll_back(image);
    // The middle has lost its copy, and begins another one of what the source is now.
    let first = chain.near.source.db();
    let first = first
        .hold_state_of(None, &chain.near.source.rules())
        .unwrap();
    chain.near.replace_copy(first.state());
    drop(first);
    chain.middle_opens();
    let number = |chain: &Chain| chain.middle().state().name().number;
    assert!(number(&chain) < known.number, "it seems to be behind only");
    chain.hello();
    for _ in 0..100 {
        chain.step();
    }
    assert_eq!(chain.planner().refused(), None);
    while number(&chain) <= known.number {
        chain.act();
        settle(&mut chain.near);
    }
    chain.hello();
    while chain.planner().refused().is_none() {
        chain.step();
    }
    assert_eq!(chain.copy().progress(), before);
}

/// Changes bytes of leaves on their way, with checksums that fit.
fn alters_bytes(most: u32) -> Box<dyn FnMut(Message) -> Message> {
    let mut left = most;
    Box::new(move |message| match message {
        Message::Bytes {
            request,
            segment,
            offset,
            mut bytes,
        } if left > 0 && offset >= 64 && bytes.len() > 100 => {
            left -= 1;
            bytes[50] ^= 1;
            Message::Bytes {
                request,
                segment,
                offset,
                bytes,
            }
        }
        other => other,
    })
}

#[test]
fn what_the_middle_has_altered_is_not_kept_and_twice_is_not_believed() {
    let mut chain = Chain::new(71, ReplicationRules::default(), ReplicationRules::default());
    chain.near.source.db().compact().unwrap();
    settle(&mut chain.near);
    chain.alters = Some(alters_bytes(1));
    chain.settle_far();
    let proven = chain.planner().proven();
    assert!(!proven.proven.is_empty() && proven.disproved.is_empty());
    assert_eq!(chain.compare(), 0);

    let mut chain = Chain::new(72, ReplicationRules::default(), ReplicationRules::default());
    chain.near.source.db().compact().unwrap();
    settle(&mut chain.near);
    chain.link = PERFECT;
    chain.alters = Some(alters_bytes(u32::MAX));
    chain.hello();
    let mut steps = 0;
    while chain.planner().refused().is_none() {
        chain.step();
        steps += 1;
        assert!(steps < 20_000, "{:?}", chain.planner().proven());
    }
    let said = chain.messages;
    for _ in 0..100 {
        chain.step();
    }
    assert_eq!(chain.messages, said, "nothing is asked of it any more");
}

#[test]
fn states_of_another_database_and_of_another_history_are_refused() {
    let wrong = |change: fn(&mut StateName)| {
        let mut chain = Chain::new(73, ReplicationRules::default(), ReplicationRules::default());
        chain.settle();
        let before = chain.copy().progress();
        // The middle says that another edge's data are this one's.
        let other = World::new(1073, BudgetLimits::default(), ReplicationRules::default());
        let name = other.planner().copy().state().name();
        let whole = other.planner().copy().state().encode();
        chain.alters = Some(Box::new(move |message| match message {
            Message::State { request, .. } => Message::State {
                request,
                bytes: whole.clone(),
            },
            other => other,
        }));
        chain.act();
        settle(&mut chain.near);
        let mut hello = name;
        change(&mut hello);
        chain.send_from_middle(&Message::Hello(hello));
        let mut steps = 0;
        while chain.planner().refused().is_none() {
            chain.step();
            steps += 1;
            assert!(steps < 5_000);
        }
        assert_eq!(chain.copy().progress(), before);
    };
    wrong(|_| {});
    wrong(|name| name.incarnation += 1);
}

#[test]
fn a_copy_with_two_paths_goes_on_over_either_and_fetches_nothing_twice() {
    for seed in 31..=34 {
        let mut chain = Chain::new(
            seed,
            ReplicationRules::default(),
            ReplicationRules::default(),
        );
        let mut paths = [Upstream::Direct, Upstream::Middle].iter().cycle();
        for _ in 0..8 {
            for _ in 0..6 {
                chain.act();
            }
            chain.turn_to(*paths.next().unwrap());
            let here = chain.copy().progress().bytes;
            chain.link = PERFECT;
            match chain.path {
                Upstream::Direct => {
                    chain.near.source.db().flush().unwrap();
                    chain.hello();
                    for _ in 0..400 {
                        chain.step();
                    }
                    assert!(chain.planner().is_idle());
                }
                Upstream::Middle => {
                    // Until it has heard of what is known here, the middle has nobody wait in vain.
                    chain.hello();
                    for _ in 0..30 {
                        chain.step_far();
                    }
                    assert_eq!(chain.planner().refused(), None);
                    chain.settle();
                }
            }
            let now = chain.copy().progress();
            let figures = chain.planner().stats(chain.near.clocks());
            let shares = figures.shares.iter();
            let rows = shares.filter(|f| f.share != TrafficShare::States);
            let arrived: u64 = rows.map(|f| f.arrived).sum();
            assert!(now.missing_bytes == 0 && arrived <= now.bytes.max(here));
            assert_eq!(chain.planner().refused(), None);
        }
        chain.settle();
        assert_eq!(chain.compare(), 0);
        // What came directly, and the middle never wanted, only the source can be compared with.
        assert_eq!(chain.verify().different, 0);
        chain.turn_to(Upstream::Direct);
        chain.settle_far();
        let found = chain.verify();
        assert_eq!((found.different, found.missing), (0, 0));
    }
}

/// Two copies, each of which gets what it lacks of the other.
struct Circle {
    agents: [Agent; 2],
    planners: [Planner; 2],
    messages: u64,
}

impl Circle {
    fn of(copies: [RemoteCopy; 2], gets: bool) -> Circle {
        let agent = || {
            let budget = Budget::new(BudgetLimits::default(), Spent::default());
            let mut agent = Agent::new(0, budget);
            agent.set_gets(gets);
            agent
        };
        let limits = PlannerLimits::default();
        Circle {
            agents: [agent(), agent()],
            planners: copies.map(|copy| Planner::new(copy, limits, 7)),
            messages: 0,
        }
    }

    fn step(&mut self, now: Now) {
        for from in [0, 1] {
            let source = self.planners[from].copy().clone();
            let hello = self.agents[from].hello(&source).unwrap();
            let changes = self.agents[from].changes(&source, now).unwrap();
            self.messages += changes.len() as u64;
            for message in changes.into_iter().chain([hello]) {
                self.planners[1 - from].receive(now, message).unwrap();
            }
            while let Some(asked) = self.planners[1 - from].next(now) {
                // What is confirmed after each hello is nothing that is asked for.
                self.messages += u64::from(!matches!(asked, Message::Confirm { .. }));
                for answer in self.agents[from].answer(&source, now, asked).unwrap() {
                    self.planners[1 - from].receive(now, answer).unwrap();
                }
            }
        }
    }
}

#[test]
fn two_copies_that_feed_one_another_come_to_rest() {
    for gets in [false, true] {
        let mut chain = chain_subscribing_to_more(45, gets);
        chain.link = PERFECT;
        chain.hello();
        for _ in 0..20 {
            chain.step_far();
        }
        // The source is gone, and each asks the other for what both lack.
        chain
            .middle()
            .set_rules(ReplicationRules::default())
            .unwrap();
        let copies = [chain.middle(), chain.copy()];
        assert!(copies.iter().all(|copy| copy.missing_bytes() > 0));
        let mut circle = Circle::of(copies.clone(), gets);
        let mut now = chain.near.clocks();
        let mut step = |circle: &mut Circle| {
            now.monotonic += Duration::from_millis(200);
            circle.step(now);
        };
        for _ in 0..200 {
            step(&mut circle);
        }
        let said = circle.messages;
        for _ in 0..200 {
            step(&mut circle);
        }
        assert_eq!(circle.messages, said, "nothing goes round for ever");
        let here = copies.map(|copy| copy.progress().missing_bytes);
        assert_eq!(here[0], here[1], "each has what the other had");
    }
}
