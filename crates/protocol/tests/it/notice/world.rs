//! A node and those who follow it, over a bus with all faults, from seeds.

use headwater_protocol::notice::{
    Due, Follower, NodeVersion, Notice, NoticeKey, NoticeKind, NoticeOutcome, PublicKey, Sealed,
};
use headwater_testing::Dice;
use std::time::Duration;

const IDENTITY: u64 = 77;
const CHECK: Duration = Duration::from_secs(30);

pub(crate) fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn key(seed: u8) -> NoticeKey {
    NoticeKey::of_seed(&[seed; 32]).unwrap()
}

fn public() -> PublicKey {
    key(1).public()
}

pub(crate) fn reported_version(epoch: u64, version: u64) -> NodeVersion {
    NodeVersion {
        identity: IDENTITY,
        incarnation: 1,
        epoch,
        version,
        key: Some(public()),
    }
}

fn notice(kind: NoticeKind, epoch: u64, number: u64, version: u64) -> Notice {
    Notice {
        kind,
        identity: IDENTITY,
        incarnation: 1,
        epoch,
        number,
        version,
    }
}

pub(crate) fn changed(epoch: u64, number: u64, version: u64) -> Notice {
    notice(NoticeKind::Changed, epoch, number, version)
}

pub(crate) fn disconnect_notice(epoch: u64, number: u64) -> Notice {
    notice(NoticeKind::Disconnected, epoch, number, 0)
}

pub(crate) fn sealed_by(key: &NoticeKey, notice: &Notice) -> Sealed {
    Sealed::decode(&key.seal(notice)).unwrap()
}

pub(crate) fn sealed(notice: &Notice) -> Sealed {
    sealed_by(&key(1), notice)
}

/// The node: what it holds is a version of an epoch.
struct Node {
    epoch: u64,
    version: u64,
    number: u64,
    is_up: bool,
}

/// One who follows, and what is under way between it and the node.
struct Watcher {
    follower: Follower,
    is_linked: bool,
    /// When a question arrives at the node, and when its answer is there.
    query: Option<(Duration, Duration, Option<NodeVersion>)>,
    /// Notices that are under way, and when they arrive.
    coming: Vec<(Duration, Sealed)>,
    known_version: Option<(u64, u64)>,
    queries: u64,
}

impl Watcher {
    fn new() -> Watcher {
        Watcher {
            follower: Follower::new(CHECK),
            is_linked: false,
            query: None,
            coming: Vec::new(),
            known_version: None,
            queries: 0,
        }
    }

    fn step(&mut self, now: Duration, node: &Node, dice: &mut Dice) {
        let due: Vec<Sealed> = {
            let (due, later) = self.coming.drain(..).partition(|(when, _)| *when <= now);
            self.coming = later;
            let due: Vec<(Duration, Sealed)> = due;
            due.into_iter().map(|(_, sealed)| sealed).collect()
        };
        for sealed in due.iter().filter(|_| self.is_linked) {
            let before = self.known_version;
            self.follower.receive(sealed);
            assert_eq!(self.known_version, before, "a notice says nothing");
        }
        if let Some((arrives, ends, answer)) = &mut self.query {
            if answer.is_none() && *arrives <= now && node.is_up {
                *answer = Some(reported_version(node.epoch, node.version));
            }
            if *ends <= now {
                match answer.take() {
                    Some(answer) => {
                        self.known_version = Some((answer.epoch, answer.version));
                        self.follower.answered(now, answer);
                    }
                    None => self.follower.failed(),
                }
                self.query = None;
            }
        }
        let asks = match self.follower.due(now) {
            Due::Now(_) => true,
            // A question that waits is answered when something changes.
            Due::Waiting => self.known_version != Some((node.epoch, node.version)),
            Due::At(_) => false,
        };
        if asks && self.query.is_none() {
            self.follower.begin_query();
            self.queries += 1;
            let arrives = now + Duration::from_millis(dice.below(500));
            let ends = arrives + Duration::from_millis(dice.below(500));
            self.query = Some((arrives, ends, None));
        }
    }

    fn send(&mut self, now: Duration, sealed: &Sealed, dice: &mut Dice, is_bad: bool) {
        if !self.is_linked || (is_bad && (dice.below(4) == 0)) {
            return;
        }
        let copies = 1 + u64::from(is_bad && (dice.below(4) == 0));
        for _ in 0..copies {
            let most = if is_bad { 5_000 } else { 100 };
            let when = now + Duration::from_millis(dice.below(most));
            self.coming.push((when, sealed.clone()));
        }
    }
}

struct World {
    node: Node,
    watchers: Vec<Watcher>,
    now: Duration,
    dice: Dice,
    published: Vec<Sealed>,
}

impl World {
    fn new(seed: u64, watchers: usize) -> World {
        World {
            node: Node {
                epoch: 1,
                version: 1,
                number: 0,
                is_up: true,
            },
            watchers: (0..watchers).map(|_| Watcher::new()).collect(),
            now: Duration::ZERO,
            dice: Dice(seed),
            published: Vec::new(),
        }
    }

    fn deliver(&mut self, sealed: &Sealed, is_bad: bool) {
        for watcher in &mut self.watchers {
            watcher.send(self.now, sealed, &mut self.dice, is_bad);
        }
    }

    fn change(&mut self, is_bad: bool) {
        let node = &mut self.node;
        node.version += 1 + self.dice.below(3);
        node.number += 1;
        let sealed = sealed(&changed(node.epoch, node.number, node.version));
        self.published.push(sealed.clone());
        self.deliver(&sealed, is_bad);
    }

    fn restart(&mut self) {
        let node = &mut self.node;
        node.epoch = node
            .epoch
            .wrapping_mul(31)
            .wrapping_add(self.dice.below(1 << 30));
        (node.version, node.number) = (1 + self.dice.below(50), 0);
    }

    /// A second in ten steps, with everything that may go wrong.
    fn second(&mut self, is_bad: bool) {
        for _ in 0..10 {
            self.now += Duration::from_millis(100);
            if self.node.is_up && (self.dice.below(8) == 0) {
                self.change(is_bad);
            }
            if is_bad {
                self.go_wrong();
            }
            for watcher in &mut self.watchers {
                watcher.step(self.now, &self.node, &mut self.dice);
            }
        }
    }

    fn go_wrong(&mut self) {
        match self.dice.below(60) {
            0 => self.node.is_up = !self.node.is_up,
            1 => {
                self.restart();
                let epoch = self.node.epoch;
                let last_words = sealed(&disconnect_notice(epoch, 1));
                self.deliver(&last_words, true);
            }
            2 if !self.published.is_empty() => {
                // Somebody kept an old one.
                let most = u64::try_from(self.published.len()).unwrap();
                let which = usize::try_from(self.dice.below(most)).unwrap();
                let old = self.published[which].clone();
                self.deliver(&old, true);
            }
            3 => {
                let forged = changed(self.node.epoch, 1 << 40, 1 << 40);
                self.deliver(&sealed_by(&key(5), &forged), true);
            }
            4 => {
                for watcher in &mut self.watchers {
                    if self.dice.below(2) == 0 {
                        watcher.is_linked = !watcher.is_linked;
                        watcher.follower.link(watcher.is_linked);
                    }
                }
            }
            _ => {}
        }
    }

    fn all_know(&self) -> bool {
        let there = Some((self.node.epoch, self.node.version));
        self.watchers.iter().all(|w| w.known_version == there)
    }
}

#[test]
fn whatever_becomes_of_notices_all_who_follow_know_it_in_the_end() {
    for seed in 0..120 {
        let mut world = World::new(seed, 2);
        for _ in 0..60 {
            world.second(true);
        }
        // From now on nothing is told, and whatever was lost stays lost.
        world.node.is_up = true;
        let mut waited = Duration::ZERO;
        let most = CHECK + at(5);
        while !world.all_know() || waited < at(2) {
            world.now += Duration::from_millis(100);
            waited += Duration::from_millis(100);
            for watcher in &mut world.watchers {
                watcher.coming.clear();
                watcher.step(world.now, &world.node, &mut world.dice);
            }
            assert!(
                waited <= most,
                "seed {seed}: {:?}",
                world.watchers[0].follower
            );
        }
    }
}

#[test]
fn with_a_good_bus_all_know_within_two_seconds_and_nobody_asks_in_vain() {
    for seed in 0..50 {
        let mut world = World::new(seed, 2);
        for watcher in &mut world.watchers {
            watcher.is_linked = true;
            watcher.follower.link(true);
        }
        for _ in 0..30 {
            world.second(false);
        }
        for _ in 0..20 {
            world.now += Duration::from_millis(100);
            for watcher in &mut world.watchers {
                watcher.step(world.now, &world.node, &mut world.dice);
            }
        }
        assert!(world.all_know(), "seed {seed}");
        for watcher in &world.watchers {
            // One for each that was told at most, and those at the beginning.
            assert!(watcher.queries <= world.node.number + 2, "seed {seed}");
        }
    }
}

#[test]
fn forged_notices_make_nobody_ask_once_more() {
    for seed in 0..50 {
        let asks = [false, true].map(|forges| {
            let mut world = World::new(seed, 1);
            let watcher = &mut world.watchers[0];
            watcher.is_linked = true;
            watcher.follower.link(true);
            for second in 0..20 {
                for step in 0..10 {
                    world.now += Duration::from_millis(100);
                    if forges {
                        let number = second * 10 + step + 1;
                        let forged = sealed_by(&key(5), &changed(1, number, number + 100));
                        if world.watchers[0].known_version.is_some() {
                            let heard = world.watchers[0].follower.receive(&forged);
                            assert_eq!(heard, NoticeOutcome::Forged);
                        }
                    }
                    world.watchers[0].step(world.now, &world.node, &mut world.dice);
                }
            }
            world.watchers[0].queries
        });
        assert_eq!(asks[0], asks[1], "seed {seed}");
    }
}

#[test]
fn two_who_know_different_things_agree_when_both_have_asked() {
    let mut world = World::new(4, 2);
    // One hears by the bus, the other waits at the node: what the one knows sooner the other does
    // too.
    world.watchers[0].is_linked = true;
    world.watchers[0].follower.link(true);
    for _ in 0..20 {
        world.second(false);
    }
    let knows: Vec<_> = world.watchers.iter().map(|w| w.known_version).collect();
    assert!(knows.iter().all(Option::is_some), "{knows:?}");
    for _ in 0..20 {
        world.now += Duration::from_millis(100);
        for watcher in &mut world.watchers {
            watcher.step(world.now, &world.node, &mut world.dice);
        }
    }
    assert!(world.all_know());
}
