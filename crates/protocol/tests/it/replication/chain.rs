//! Three nodes: a source, a copy of it in the middle, and a copy of that which is far away. What
//! lies between the first two is a [`World`]; between the last two there is another link as bad as
//! that.

use crate::replication::simulation::settle;
use crate::replication::world::{LEVEL, Link, PERFECT, STEP, World, far, options};
use headwater_engine::{Missing, RemoteCopy, ReplicationRules};
use headwater_io::FaultyFiles;
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Message, Now, Planner, PlannerLimits, Spent, decode, encode,
};
use headwater_types::Level;
use std::path::Path;
use std::time::Duration;

const DIR: &str = "/copies/far";
const FAR: &str = "far";

/// Where the far copy gets what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    Middle,
    Direct,
}

/// What the middle does to what it passes on.
pub(crate) type Alters = Box<dyn FnMut(Message) -> Message>;

pub(crate) struct Chain {
    pub(crate) near: World,
    /// The middle wants what it is asked for.
    pub(crate) fetches_requested: bool,
    pub(crate) rules: ReplicationRules,
    pub(crate) disk: FaultyFiles,
    pub(crate) planner: Option<Planner>,
    pub(crate) path: Upstream,
    pub(crate) link: Link,
    pub(crate) alters: Option<Alters>,
    /// Messages that went over the further link.
    pub(crate) messages: u64,
    agent: Agent,
    direct: Agent,
    flying: Vec<(Duration, bool, Vec<u8>)>,
}

fn agent() -> Agent {
    let budget = Budget::new(BudgetLimits::default(), Spent::default());
    let mut agent = Agent::new(u64::MAX, budget);
    agent.set_copy(FAR);
    agent
}

impl Chain {
    /// A far copy with other rules than the middle.
    pub(crate) fn new(
        seed: u64,
        middle: impl Into<ReplicationRules>,
        rules: impl Into<ReplicationRules>,
    ) -> Chain {
        let near = World::new(seed, BudgetLimits::default(), middle);
        Chain::of(near, rules.into())
    }

    pub(crate) fn of(near: World, rules: ReplicationRules) -> Chain {
        let disk = FaultyFiles::new(near.dice.0);
        let first = near
            .planner()
            .copy()
            .hold_state_of(&ReplicationRules::default());
        RemoteCopy::begin(far(&disk), Path::new(DIR), first.state(), rules.clone()).unwrap();
        let mut chain = Chain {
            link: near.link,
            near,
            fetches_requested: false,
            rules,
            disk,
            planner: None,
            path: Upstream::Middle,
            alters: None,
            messages: 0,
            agent: agent(),
            direct: agent(),
            flying: Vec::new(),
        };
        chain.open();
        chain.middle_opens();
        chain
    }

    pub(crate) fn middle(&self) -> RemoteCopy {
        self.near.planner().copy().clone()
    }

    pub(crate) fn planner(&self) -> &Planner {
        self.planner.as_ref().unwrap()
    }

    pub(crate) fn copy(&self) -> RemoteCopy {
        self.planner().copy().clone()
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The far node opens its copy, and has a new connection.
    pub(crate) fn open(&mut self) {
        self.planner = None;
        self.flying.clear();
        let copy = RemoteCopy::open(far(&self.disk), Path::new(DIR), self.rules.clone()).unwrap();
        let dice = &mut self.near.dice;
        let limits = PlannerLimits {
            request_bytes: 1 + dice.below(8 << 10),
            requests: 1 + dice.below(5) as usize,
            answer_within: Duration::from_secs(5),
            wait_first: Duration::from_millis(300),
            wait_most: Duration::from_secs(20),
        };
        let mut planner = Planner::new(copy, limits, dice.next());
        if self.path == Upstream::Middle {
            planner.distrust();
        }
        self.planner = Some(planner);
        self.agent.restart();
    }

    /// The middle was started anew: its copy was opened, and nobody remembers anything else.
    pub(crate) fn middle_opens(&mut self) {
        self.flying.clear();
        self.agent = agent();
        self.agent.set_gets(self.fetches_requested);
        self.middle().add_further(FAR);
    }

    pub(crate) fn cut_middle(&mut self) {
        self.near.cut_copy();
        self.middle_opens();
    }

    pub(crate) fn cut_far(&mut self) {
        let confirmed = self.copy().progress();
        self.disk.crash_now();
        let after = self.disk.after_crash(self.near.dice.next());
        self.planner = None;
        self.disk = after;
        self.open();
        assert_eq!(self.copy().progress(), confirmed);
    }

    pub(crate) fn cut_link(&mut self) {
        self.flying.clear();
    }

    /// The far copy goes on over another path.
    pub(crate) fn turn_to(&mut self, path: Upstream) {
        self.path = path;
        self.near.source.db().add_copy(FAR).unwrap();
        self.direct.set_rules(self.near.source.rules());
        self.open();
    }

    /// The middle says something of its own accord.
    pub(crate) fn send_from_middle(&mut self, message: &Message) {
        self.send(true, message);
    }

    fn send(&mut self, to_far: bool, message: &Message) {
        self.messages += 1;
        let link = self.link;
        let dice = &mut self.near.dice;
        let copies = match (dice.chance(link.loses), dice.chance(link.doubles)) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        for _ in 0..copies {
            let mut bytes = encode(message);
            if dice.chance(link.damages) {
                let at = dice.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << dice.below(8);
            }
            let at = self.near.now + STEP * (dice.below(link.delay + 1) as u32);
            self.flying.push((at, to_far, bytes));
        }
    }

    fn now(&self) -> Now {
        self.near.clocks()
    }

    pub(crate) fn hello(&mut self) {
        let hello = match self.path {
            Upstream::Middle => self.agent.hello(&self.middle()),
            Upstream::Direct => self.direct.hello(self.near.source.db()),
        };
        self.send(true, &hello.unwrap());
    }

    /// One step of time for all three.
    pub(crate) fn step(&mut self) {
        self.near.step();
        self.step_far();
    }

    /// One for the further link only.
    pub(crate) fn step_far(&mut self) {
        let now = self.now();
        let all = std::mem::take(&mut self.flying);
        let (due, later) = all.into_iter().partition(|(at, ..)| *at <= now.monotonic);
        self.flying = later;
        let due: Vec<_> = due;
        for (_, to_far, bytes) in due {
            let Ok(message) = decode(&bytes) else {
                continue;
            };
            if to_far {
                self.planner
                    .as_mut()
                    .unwrap()
                    .receive(now, message)
                    .unwrap();
                continue;
            }
            let answers = match self.path {
                Upstream::Middle => {
                    let middle = self.middle();
                    self.agent.answer(&middle, now, message).unwrap()
                }
                Upstream::Direct => {
                    let db = self.near.source.db().clone();
                    self.direct.answer(&db, now, message).unwrap()
                }
            };
            self.answer(answers);
        }
        if self.path == Upstream::Middle {
            let middle = self.middle();
            let changes = self.agent.changes(&middle, now).unwrap();
            self.answer(changes);
        }
        while let Some(message) = self.planner.as_mut().unwrap().next(now) {
            self.send(false, &message);
        }
    }

    fn answer(&mut self, answers: Vec<Message>) {
        for answer in answers {
            let answer = match &mut self.alters {
                Some(alters) => alters(answer),
                None => answer,
            };
            self.send(true, &answer);
        }
    }

    /// True when the far copy has the state that the middle has.
    pub(crate) fn is_current(&self) -> bool {
        let now = self.middle().state();
        now.is_equivalent(&self.copy().state())
    }

    /// Lets all three come to rest over links without faults.
    pub(crate) fn settle(&mut self) {
        settle(&mut self.near);
        self.settle_far();
        // What was set aside, and of which the bad link has lost that it is there, is asked for
        // again after a while.
        for _ in 0..40 {
            let has_all = !self.fetches_requested || self.copy().missing_bytes() == 0;
            if has_all && self.left_lying().is_empty() {
                return;
            }
            for _ in 0..200 {
                self.step();
            }
            self.settle_far();
        }
    }

    pub(crate) fn settle_far(&mut self) {
        self.link = PERFECT;
        self.hello();
        for step in 0..60_000 {
            self.step();
            let is_idle = self.planner().is_idle() && self.near.planner().is_idle();
            if is_idle && self.is_current() && self.flying.is_empty() {
                return;
            }
            assert_eq!(self.planner().refused(), None);
            if step % 50 == 49 {
                self.hello();
            }
        }
        panic!(
            "the far copy does not get what it wants: {:?}; the middle is at {:?}",
            self.copy().progress(),
            self.middle().progress()
        );
    }

    /// What the far copy wants, and the middle has.
    pub(crate) fn left_lying(&self) -> Vec<Missing> {
        let middle = self.middle();
        let missing = self.copy().missing(u64::MAX).into_iter();
        let is_there = |m: &Missing| {
            let bytes = u32::try_from(m.range.bytes).unwrap();
            (0..bytes).any(|at| {
                let at = m.range.offset + u64::from(at);
                middle.read(m.segment, at, 1).is_ok()
            })
        };
        missing.filter(is_there).collect()
    }

    /// Compares what the far copy answers with what the source does.
    pub(crate) fn compare(&self) -> u64 {
        let source = self.near.source.db().snapshot().unwrap();
        let reader = self.copy().reader(options()).unwrap();
        crate::replication::compare::compare(&source, &reader.snapshot())
    }

    pub(crate) fn verify(&mut self) -> headwater_protocol::replication::Verified {
        self.planner.as_mut().unwrap().verify();
        while self.planner().verified().is_none() {
            self.step();
        }
        self.planner().verified().unwrap()
    }

    pub(crate) fn act(&mut self) {
        let mut dice = self.near.dice.clone();
        self.near.source.act(&mut dice);
        self.near.dice = dice;
    }
}

/// What tiles need that every copy here wants at least.
pub(crate) fn summaries() -> ReplicationRules {
    ReplicationRules::from(Level::clamped(LEVEL))
}
