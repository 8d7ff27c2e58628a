//! A seeded world: nodes that hold a group in turn over a faulty store, edges whose bytes grow,
//! kills, sleeps and collections at every step.

use headwater_bucket::{
    Addition, Answer, BucketError, BucketErrorKind, Change, Collector, Contents, Faults, Faulty,
    Head, Holder, Member, Now, ObjectStore, Pack, Range, Request, carry_out, head_key, read_group,
    read_head,
};
use headwater_io::{Chance, SeededChance};
use headwater_types::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const GROUP: u32 = 7;
const LEASE_MILLIS: u32 = 1_000;
const EDGES: u64 = 4;

/// What byte an edge has: told by nothing but where it stands.
fn byte(edge: u64, history: u64, segment: u64, offset: u64) -> u8 {
    let x = (edge << 48) ^ (history << 40) ^ (segment << 32) ^ offset;
    let mixed = x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    mixed.to_le_bytes()[3]
}

fn bytes(edge: u64, history: u64, range: &Range) -> Vec<u8> {
    let all = range.offset..range.end();
    all.map(|at| byte(edge, history, range.segment, at))
        .collect()
}

/// How far an edge is: two segments that grow, until it begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Grown {
    history: u64,
    state: u64,
    first: u64,
    second: u64,
}

impl Grown {
    fn present(&self) -> Vec<Range> {
        let range = |segment, bytes| Range {
            segment,
            offset: 0,
            bytes,
        };
        let all = [range(1, self.first), range(2, self.second)];
        all.into_iter().filter(|range| range.bytes > 0).collect()
    }
}

/// What a node does with the group that it holds.
struct Work {
    contents: Contents,
    copies: BTreeMap<u64, Grown>,
    /// What is to be confirmed when the commit is through.
    promised: Vec<(u64, Grown)>,
}

struct Node {
    holder: Holder,
    /// How far its clock is before the world's.
    ahead: Duration,
    /// It does nothing before.
    sleeps_until: Duration,
    /// An answer that is late.
    late: Option<(Duration, Answer)>,
    late_pack: Option<(Duration, Answer)>,
    work: Option<Work>,
    collector: Option<(Collector, Option<Answer>)>,
}

/// What happened, so that a test can say that it happened at all.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    pub(crate) confirmed: u64,
    /// Packs that were on their way for longer than a lease.
    pub(crate) slow_packs: u64,
    pub(crate) kills: u64,
    pub(crate) takeovers: u64,
    pub(crate) losses: u64,
    pub(crate) collected: u64,
    pub(crate) restored: u64,
    pub(crate) superseded: u64,
}

pub(crate) struct World {
    store: Faulty<Arc<dyn ObjectStore>>,
    chance: Arc<SeededChance>,
    time: Duration,
    nodes: Vec<Node>,
    started: u64,
    edges: BTreeMap<u64, Grown>,
    confirmed: BTreeMap<u64, Grown>,
    /// The newest head that was seen.
    head: Option<Head>,
    pub(crate) happened: Happened,
}

fn name(edge: u64) -> String {
    format!("edge-{edge}")
}

impl World {
    pub(crate) fn new(seed: u64, nodes: u64, faults: Faults, store: Arc<dyn ObjectStore>) -> World {
        let mut world = World {
            store: Faulty::new(store, seed ^ 0xfa17, faults),
            chance: Arc::new(SeededChance::new(seed)),
            time: Duration::ZERO,
            nodes: Vec::new(),
            started: 0,
            edges: (0..EDGES).map(|edge| (edge, Grown::default())).collect(),
            confirmed: BTreeMap::new(),
            head: None,
            happened: Happened::default(),
        };
        for _ in 0..nodes {
            let node = world.start();
            world.nodes.push(node);
        }
        world
    }

    fn draw(&self, below: u64) -> u64 {
        self.chance.next_u64() % below
    }

    fn start(&mut self) -> Node {
        self.started += 1;
        let me = Member {
            node: self.started,
            name: format!("node-{}", self.started),
            lease_millis: LEASE_MILLIS,
        };
        Node {
            holder: Holder::new(me, GROUP, self.chance.clone()),
            ahead: Duration::from_millis(self.draw(1_000_000)),
            sleeps_until: Duration::ZERO,
            late: None,
            late_pack: None,
            work: None,
            collector: None,
        }
    }

    fn now(&self, node: usize) -> Now {
        let monotonic = self.time + self.nodes[node].ahead;
        Now {
            monotonic,
            wall: Timestamp::from_nanos(i64::try_from(monotonic.as_nanos()).unwrap()),
        }
    }

    /// One thing happens.
    pub(crate) fn step(&mut self) {
        self.time += Duration::from_millis(self.draw(20));
        let node = usize::try_from(self.draw(u64::try_from(self.nodes.len()).unwrap())).unwrap();
        match self.draw(1000) {
            // It is killed, whatever it does, and another is started in its place.
            0..=3 => {
                self.happened.kills += 1;
                self.nodes[node] = self.start();
            }
            // It sleeps, past its lease or not.
            4..=7 => {
                self.nodes[node].sleeps_until = self.time + Duration::from_millis(self.draw(3000));
            }
            8..=9 => self.nodes[node].holder.give_back(),
            10..=15 if self.nodes[node].collector.is_none() => {
                let collector = Collector::new(GROUP, self.chance.clone());
                self.nodes[node].collector = Some((collector, None));
            }
            16..=200 => self.grow(),
            _ => {}
        }
        if self.nodes[node].sleeps_until <= self.time {
            self.act(node);
            self.collect(node);
        }
        self.look_at_head();
    }

    fn grow(&mut self) {
        let edge = self.draw(EDGES);
        let (first, second, anew) = (self.draw(60), self.draw(30), self.draw(40));
        let grown = self.edges.get_mut(&edge).unwrap();
        grown.state += 1;
        grown.first += first;
        grown.second += second;
        if anew == 0 {
            // It begins another history, whose bytes are others.
            grown.history += 1;
            (grown.first, grown.second) = (first, 0);
        }
        if anew == 1 {
            // A segment goes; what comes later has another one's bytes nowhere.
            grown.second = 0;
        }
    }

    fn act(&mut self, node: usize) {
        let now = self.now(node);
        if self.nodes[node].holder.take_lost() {
            self.happened.losses += 1;
            self.nodes[node].work = None;
        }
        if self.nodes[node].holder.is_done() {
            self.nodes[node] = self.start();
            return;
        }
        if let Some(error) = self.nodes[node].holder.failed() {
            panic!("a node gave up: {error}");
        }
        self.take_committed(node);
        self.work(node, now);
        self.upload(node, now);
        let late = self.nodes[node].late.take();
        match late {
            Some((at, answer)) if at <= self.time => self.nodes[node].holder.take(now, answer),
            Some(late) => self.nodes[node].late = Some(late),
            None => {
                if let Some(request) = self.nodes[node].holder.next(now) {
                    let answer = carry_out(&self.store, &request);
                    self.check_answer(&request, &answer);
                    let wait = match self.draw(20) {
                        0 => self.draw(2_500),
                        _ => self.draw(30),
                    };
                    let at = self.time + Duration::from_millis(wait);
                    self.nodes[node].late = Some((at, answer));
                }
            }
        }
    }

    /// A pack is on its way beside what is asked of the head, and sometimes for longer than a
    /// lease.
    fn upload(&mut self, node: usize, now: Now) {
        match self.nodes[node].late_pack.take() {
            Some((at, answer)) if at <= self.time => {
                self.nodes[node].holder.take_pack(now, &answer);
            }
            Some(late) => self.nodes[node].late_pack = Some(late),
            None => {
                if let Some(request) = self.nodes[node].holder.next_pack(now) {
                    let answer = carry_out(&self.store, &request);
                    let wait = match self.draw(20) {
                        0 => self.draw(4 * u64::from(LEASE_MILLIS)),
                        _ => self.draw(30),
                    };
                    self.happened.slow_packs += u64::from(wait > u64::from(LEASE_MILLIS));
                    let at = self.time + Duration::from_millis(wait);
                    self.nodes[node].late_pack = Some((at, answer));
                }
            }
        }
    }

    fn check_answer(&self, request: &Request, answer: &Answer) {
        let is_head = matches!(request, Request::Replace { key, .. } if *key == head_key(GROUP));
        if is_head {
            let fits = matches!(answer, Answer::Put(_) | Answer::Failed(_));
            assert!(fits, "a put is answered as one");
        }
    }

    /// What was committed is confirmed to edges: from now on it may not be lost.
    fn take_committed(&mut self, node: usize) {
        let Some(committed) = self.nodes[node].holder.take_committed() else {
            return;
        };
        let Some(work) = &mut self.nodes[node].work else {
            return;
        };
        for (number, index) in &committed.packs {
            work.contents.apply(*number, index);
        }
        for (edge, grown) in std::mem::take(&mut work.promised) {
            self.happened.confirmed += 1;
            // Two nodes may confirm in any order what one of them has put over the other's.
            let newest = self.confirmed.entry(edge).or_default();
            *newest = (*newest).max(grown);
        }
    }

    fn work(&mut self, node: usize, now: Now) {
        if !self.nodes[node].holder.is_ready(now) {
            return;
        }
        if self.nodes[node].work.is_none() {
            self.take_over(node);
            return;
        }
        // It hears of its edges, and commits what it has heard.
        let edge = self.draw(EDGES);
        let at_edge = self.edges[&edge];
        let commits = self.draw(8) == 0;
        let node = &mut self.nodes[node];
        let Some(work) = &mut node.work else {
            return;
        };
        let copy = work.copies.entry(edge).or_default();
        if at_edge > *copy {
            *copy = at_edge;
        }
        if !commits || !work.promised.is_empty() {
            return;
        }
        let additions: Vec<Addition> = (work.copies.iter())
            .map(|(edge, grown)| {
                let present = grown.present();
                let lacks = work
                    .contents
                    .missing_ranges(&name(*edge), grown.history, &present);
                let pieces = lacks.iter().map(|r| (*r, bytes(*edge, grown.history, r)));
                Addition {
                    name: name(*edge),
                    history: grown.history,
                    state: grown.state,
                    description: format!("{grown:?}").into_bytes(),
                    pieces: pieces.collect(),
                    present,
                }
            })
            .collect();
        let (head, used) = (node.holder.head().unwrap(), work.contents.used());
        let numbers = head.packs.iter().map(|pack| pack.number);
        let dropped = numbers.filter(|number| !used.contains(number)).collect();
        let half = additions.len() / 2;
        let (left, right) = additions.split_at(half);
        let packs = [left, right].map(|part| Pack::build(part.to_vec()));
        let promised = work
            .copies
            .iter()
            .map(|(edge, grown)| (*edge, *grown))
            .collect();
        let change = Change {
            packs: packs.into(),
            removed: Vec::new(),
            dropped,
        };
        if node.holder.commit(now, change) {
            work.promised = promised;
        }
    }

    /// The node has nothing, and reads back what it goes on from.
    fn take_over(&mut self, node: usize) {
        let head = self.nodes[node].holder.head().unwrap().clone();
        let loaded = Contents::load(&self.store, &head);
        let contents = match loaded {
            Ok(contents) => contents,
            Err(error) => {
                assert!(is_passing(error.kind()), "{error}");
                return;
            }
        };
        let mut copies = BTreeMap::new();
        for edge in 0..EDGES {
            match restored(&self.store, &contents, &head, edge) {
                Ok(Some(grown)) => drop(copies.insert(edge, grown)),
                Ok(None) => {}
                Err(kind) => {
                    assert!(is_passing(kind));
                    self.happened.superseded += u64::from(kind == BucketErrorKind::Superseded);
                    return;
                }
            }
        }
        self.happened.takeovers += 1;
        self.nodes[node].work = Some(Work {
            contents,
            copies,
            promised: Vec::new(),
        });
    }

    fn collect(&mut self, node: usize) {
        let Some((mut collector, answer)) = self.nodes[node].collector.take() else {
            return;
        };
        match answer {
            Some(answer) => collector.take(answer),
            None => match collector.next_request() {
                Some(request) => {
                    let answer = carry_out(&self.store, &request);
                    self.nodes[node].collector = Some((collector, Some(answer)));
                    return;
                }
                None => {
                    if let Some(Ok(found)) = collector.outcome() {
                        self.happened.collected += found.deleted;
                    }
                    return;
                }
            },
        }
        self.nodes[node].collector = Some((collector, None));
    }

    /// Each head follows the one before: one winner for each commit. What is confirmed is in it.
    fn look_at_head(&mut self) {
        let Some((head, _)) = read_head(self.store.store(), GROUP).unwrap() else {
            return;
        };
        if let Some(before) = &self.head
            && *before != head
        {
            // A put that came late may have come between two looks, and never more than that.
            let follows = head.follows(before) || head.commit > before.commit + 1;
            assert!(follows, "{before:?} and then {head:?}");
            assert!(head.epoch >= before.epoch && head.min_epoch >= before.min_epoch);
        }
        for (edge, confirmed) in &self.confirmed {
            let copy = head.copies.get(&name(*edge));
            let held = copy.map(|copy| (copy.history, copy.state));
            let least = (confirmed.history, confirmed.state);
            assert!(
                held.is_some_and(|held| held >= least),
                "edge {edge}: {held:?} {least:?}"
            );
        }
        self.head = Some(head);
    }

    /// Everything that was confirmed is read back, byte for byte.
    pub(crate) fn check(&mut self) {
        self.store.settle();
        self.store.set_faults(Faults::default());
        let Some((head, _, contents)) = read_group(self.store.store(), GROUP).unwrap() else {
            assert!(self.confirmed.is_empty());
            return;
        };
        for (edge, confirmed) in &self.confirmed {
            let grown = restored(self.store.store(), &contents, &head, *edge);
            let grown = grown.unwrap().unwrap();
            assert!(
                grown >= *confirmed,
                "edge {edge}: {grown:?}, confirmed {confirmed:?}"
            );
            self.happened.restored += 1;
        }
    }
}

fn is_passing(kind: BucketErrorKind) -> bool {
    matches!(
        kind,
        BucketErrorKind::Superseded | BucketErrorKind::Unreachable
    )
}

/// Reads a copy of an edge back, and looks at every byte.
fn restored(
    store: &dyn ObjectStore,
    contents: &Contents,
    head: &Head,
    edge: u64,
) -> Result<Option<Grown>, BucketErrorKind> {
    let mut ranges = Vec::new();
    let found = contents.restore(store, head, &name(edge), &mut |range, bytes| {
        ranges.push((range, bytes.to_vec()));
        Ok::<(), BucketError>(())
    });
    let Some(found) = found.map_err(|e| e.kind())? else {
        return Ok(None);
    };
    let said = String::from_utf8(found.description).unwrap();
    let entry = head.copies[&name(edge)];
    let mut here: BTreeMap<u64, u64> = BTreeMap::new();
    for (range, found) in &ranges {
        assert_eq!(
            *found,
            bytes(edge, entry.history, range),
            "wrong bytes of edge {edge}"
        );
        let end = here.entry(range.segment).or_default();
        assert_eq!(*end, range.offset, "what is present has no holes here");
        *end = range.end();
    }
    let of = |segment| here.get(&segment).copied().unwrap_or(0);
    let grown = Grown {
        history: entry.history,
        state: found.state,
        first: of(1),
        second: of(2),
    };
    assert_eq!(
        said,
        format!("{grown:?}"),
        "the description is that of these bytes"
    );
    Ok(Some(grown))
}
