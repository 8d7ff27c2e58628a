//! The run: users, a dispatcher, clouds, edges and the links between them, in simulated time.
//!
//! Invariants: each query arrives at the dispatcher once, and at one cloud or edge once, and is
//! answered; the run fails otherwise, or if a query waits for longer than [`PATIENCE`], or if the
//! dispatcher claims a tile that its cloud lacks. Equal seeds give equal runs. Concurrency: none;
//! events of the same microsecond happen in the order in which they were caused.

use super::copies::{Copy, Source, Spot, clocks, key_at_cloud};
use crate::harness::{Failure, Random, real, signed, size, unsigned, whole};
use headwater_protocol::dispatch::{
    Address, At, Client, Database, Decision, EdgeFacts, NodeIndex, Question, Registry, Tables, Why,
};
use headwater_protocol::replication::{Message, encode};
use headwater_types::Level;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

pub(super) type Micros = u64;

/// Longest time of a query.
const PATIENCE: Micros = 120_000_000;
/// Interval in which a cloud looks after fetches that users wait for, and of reports to the
/// dispatcher.
const TICK: Micros = 200_000;
const REPORT: Micros = 1_000_000;
/// Coverages of copies that a report computes, as many as a node's inventory.
const COVERAGES: usize = 500;

/// The model of links and of servers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct NetworkModel {
    /// Minimum and maximum round trip from a user to the dispatcher or a cloud.
    pub(super) user_us: (Micros, Micros),
    /// Round trip between the dispatcher and the clouds.
    pub(super) nodes_us: Micros,
    /// Round trip to an edge, from a cloud and from users.
    pub(super) edge_us: Micros,
    /// Bytes a second of an edge's link.
    pub(super) edge_rate: u64,
    /// Processor time of a redirect and of a relayed answer at the dispatcher, and of a tile at a
    /// cloud (two processors each) and at an edge.
    pub(super) redirect_us: Micros,
    pub(super) relay_us: Micros,
    pub(super) cloud_us: Micros,
    pub(super) edge_cpu_us: Micros,
    /// Bytes of a bucket of a tile that an edge sends to a user.
    pub(super) bucket_bytes: u64,
    /// Between two views of a user, on average.
    pub(super) think_us: Micros,
    /// Users of a hundred with a browser, whose answers the dispatcher relays.
    pub(super) browsers: u64,
    /// Edges of a hundred with an address that users reach.
    pub(super) direct: u64,
}

/// A query under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    user: usize,
    edge: usize,
    spot: Spot,
    began: Micros,
    /// Time from the server that answers back to the user.
    back_us: Micros,
    /// The dispatcher knows that the cloud has the tile.
    is_claimed: bool,
}

#[derive(Debug)]
enum SimulationEvent {
    /// A user looks at the next view.
    Looks {
        user: usize,
    },
    AtDispatcher(Request),
    AtCloud(Request),
    AtEdge(Request),
    /// A message of a copy arrives at its edge, and one of an edge at its copy.
    ToEdge {
        edge: usize,
        message: Message,
    },
    ToCopy {
        edge: usize,
        message: Message,
    },
    /// A cloud looks after the fetches from an edge.
    Tick {
        edge: usize,
    },
    Answered(Request),
    /// The dispatcher queries the clouds for news.
    Reported,
}

/// Two processors, with the times from which they are free.
#[derive(Clone, Copy, Debug, Default)]
struct Processors {
    free: [Micros; 2],
    busy: Micros,
}

impl Processors {
    /// Completion time of a request that arrives now and needs `takes`.
    fn completion(&mut self, now: Micros, takes: Micros) -> Micros {
        let [first, second] = &mut self.free;
        let free = if *first <= *second { first } else { second };
        *free = now.max(*free) + takes;
        self.busy += takes;
        *free
    }
}

/// An edge and its copy.
pub(super) struct SimulatedEdge {
    pub(super) source: usize,
    pub(super) copy: Copy,
}

struct EdgeState {
    source: usize,
    copy: Copy,
    cloud: usize,
    link_free: Micros,
    cpu_free: Micros,
    /// Requests that wait for a tile that is on its way.
    waiting: BTreeMap<Spot, Vec<Request>>,
    has_tick: bool,
}

struct SimulatedCloud {
    registry: Registry,
    processors: Processors,
    /// Edges of which something has come since the last report.
    changed: BTreeSet<usize>,
}

/// Person who browses an edge.
pub(super) struct User {
    pub(super) edge: usize,
    /// Views that are left, the next one last.
    pub(super) views: Vec<Vec<Spot>>,
}

struct UserState {
    edge: usize,
    views: Vec<Vec<Spot>>,
    open: usize,
    user_us: Micros,
    is_browser: bool,
}

/// Counts and latencies of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Outcome {
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// Sent to a cloud that the dispatcher knew to have the tile: by the subscription, by a
    /// stretch of more, by the filter of answered tiles.
    pub(super) by_base: u64,
    pub(super) by_span: u64,
    pub(super) by_filter: u64,
    /// Sent to a cloud for its connection to the edge: the tile was there, or was fetched.
    pub(super) by_connection_here: u64,
    pub(super) by_connection_fetched: u64,
    /// Sent to the edge itself, and of these the ones whose tile was at the cloud.
    pub(super) to_edge: u64,
    pub(super) to_edge_in_vain: u64,
    /// Requests of copies for ranges, and tiles that came with them.
    pub(super) fetch_requests: u64,
    pub(super) fetched_tiles: u64,
    /// Bytes of edges to their copies, and to users.
    pub(super) fetched_bytes: u64,
    pub(super) edge_answer_bytes: u64,
    /// Times of answers, in microseconds.
    pub(super) mean: Micros,
    pub(super) p50: Micros,
    pub(super) p90: Micros,
    pub(super) p99: Micros,
    pub(super) p999: Micros,
    pub(super) most: Micros,
    pub(super) seconds: u64,
    /// Processor time of the dispatcher and of all clouds.
    pub(super) dispatcher_us: Micros,
    pub(super) clouds_us: Micros,
}

pub(super) struct Simulation {
    model: NetworkModel,
    sources: Vec<Source>,
    tables: Tables,
    dispatcher: Processors,
    clouds: Vec<SimulatedCloud>,
    edges: Vec<EdgeState>,
    users: Vec<UserState>,
    queue: BinaryHeap<Reverse<(Micros, u64)>>,
    events: HashMap<u64, SimulationEvent>,
    number: u64,
    dice: Random,
    outcome: Outcome,
    took: Vec<Micros>,
    remaining: usize,
}

impl Simulation {
    pub(super) fn new(
        model: NetworkModel,
        clouds: usize,
        sources: Vec<Source>,
        edges: Vec<SimulatedEdge>,
        users: Vec<User>,
        seed: u64,
    ) -> Result<Simulation, Failure> {
        let cloud = |number: usize| {
            let database = Database {
                identity: unsigned(number) + 1,
                incarnation: 1,
            };
            SimulatedCloud {
                registry: Registry::new(database, unsigned(number) + 1),
                processors: Processors::default(),
                changed: BTreeSet::new(),
            }
        };
        let mut world = Simulation {
            model,
            sources,
            tables: Tables::new(clouds),
            dispatcher: Processors::default(),
            clouds: (0..clouds).map(cloud).collect(),
            edges: Vec::new(),
            users: Vec::new(),
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            number: 0,
            dice: Random::new(seed),
            outcome: Outcome::default(),
            took: Vec::new(),
            remaining: users.len(),
        };
        for (number, edge) in edges.into_iter().enumerate() {
            world.add_edge(number, edge)?;
        }
        // Nodes that have run for a while: all copies are listed.
        world.report(usize::MAX)?;
        for (number, user) in users.into_iter().enumerate() {
            let (least, most) = model.user_us;
            world.users.push(UserState {
                edge: user.edge,
                views: user.views,
                open: 0,
                user_us: least + world.dice.below(most - least),
                is_browser: world.dice.below(100) < model.browsers,
            });
            let begins = world.dice.below(60_000_000);
            world.at(begins, SimulationEvent::Looks { user: number });
        }
        world.at(REPORT, SimulationEvent::Reported);
        Ok(world)
    }

    fn add_edge(&mut self, number: usize, edge: SimulatedEdge) -> Result<(), Failure> {
        let cloud = number % self.clouds.len().max(1);
        let at = self.clouds.get_mut(cloud).ok_or("no cloud")?;
        at.changed.insert(number);
        self.edges.push(EdgeState {
            source: edge.source,
            copy: edge.copy,
            cloud,
            link_free: 0,
            cpu_free: 0,
            waiting: BTreeMap::new(),
            has_tick: false,
        });
        Ok(())
    }

    /// Facts of an edge, as its cloud lists them.
    fn list(&mut self, number: usize) -> Result<usize, Failure> {
        let edge = self.edges.get(number).ok_or("no edge")?;
        let cloud = self.clouds.get_mut(edge.cloud).ok_or("no cloud")?;
        let listed = edge.copy.listed(number)?;
        let name = format!("edge-{number}");
        // Spread evenly over all edges.
        let is_direct = unsigned(number) * 37 % 100 < self.model.direct;
        cloud.registry.set_edge(EdgeFacts {
            name: name.clone(),
            is_own: false,
            is_connected: true,
            rank: unsigned(number),
            database: Some(Database {
                identity: 1_000_000 + unsigned(number),
                incarnation: 1,
            }),
            address: is_direct.then(|| Address {
                url: format!("https://{name}.example:7373"),
                for_browsers: false,
            }),
            reach: edge.copy.reach(),
            until: listed.until,
            exceptions: listed.exceptions,
        });
        cloud
            .registry
            .set_streams(&name, vec![key_at_cloud(number)]);
        cloud.registry.set_spans(&name, listed.spans);
        Ok(listed.coverages)
    }

    /// The clouds report their news to the dispatcher; each lists copies again that have changed,
    /// as long as its coverages suffice.
    fn report(&mut self, coverages: usize) -> Result<(), Failure> {
        for at in 0..self.clouds.len() {
            let mut left = coverages;
            while left > 0 {
                let cloud = self.clouds.get_mut(at).ok_or("no cloud")?;
                let Some(edge) = cloud.changed.pop_first() else {
                    break;
                };
                left = left.saturating_sub(self.list(edge)?);
            }
            let cloud = self.clouds.get_mut(at).ok_or("no cloud")?;
            cloud.registry.settle();
            let known = self.tables.position(NodeIndex(at));
            let held = cloud.registry.since(known.epoch, known.version);
            self.tables.apply(NodeIndex(at), held);
        }
        Ok(())
    }

    fn at(&mut self, when: Micros, happens: SimulationEvent) {
        self.number += 1;
        self.events.insert(self.number, happens);
        self.queue.push(Reverse((when, self.number)));
    }

    pub(super) fn run(mut self) -> Result<Outcome, Failure> {
        while let Some(Reverse((now, number))) = self.queue.pop() {
            let happens = self
                .events
                .remove(&number)
                .ok_or("something without a name")?;
            match happens {
                SimulationEvent::Looks { user } => self.look(now, user)?,
                SimulationEvent::AtDispatcher(request) => self.dispatch(now, request)?,
                SimulationEvent::AtCloud(request) => self.at_cloud(now, request)?,
                SimulationEvent::AtEdge(request) => self.at_edge(now, request)?,
                SimulationEvent::ToEdge { edge, message } => {
                    self.send_to_edge(now, edge, message)?
                }
                SimulationEvent::ToCopy { edge, message } => {
                    self.send_to_copy(now, edge, message)?
                }
                SimulationEvent::Tick { edge } => self.tick(now, edge)?,
                SimulationEvent::Answered(request) => self.answered(now, request)?,
                SimulationEvent::Reported if self.remaining > 0 => {
                    self.report(COVERAGES)?;
                    self.at(now + REPORT, SimulationEvent::Reported);
                }
                SimulationEvent::Reported => {}
            }
            self.outcome.seconds = now / 1_000_000;
        }
        self.finish()
    }

    fn finish(mut self) -> Result<Outcome, Failure> {
        if self.outcome.asked != self.outcome.answered || self.remaining > 0 {
            return Err(format!("not all was answered: {:?}", self.outcome).into());
        }
        self.took.sort_unstable();
        let part = |share: f64| {
            let at = size(whole(real(self.took.len()) * share));
            self.took.get(at).or(self.took.last()).copied().unwrap_or(0)
        };
        let sum: Micros = self.took.iter().sum();
        Ok(Outcome {
            mean: sum / unsigned(self.took.len()).max(1),
            p50: part(0.5),
            p90: part(0.9),
            p99: part(0.99),
            p999: part(0.999),
            most: part(1.0),
            dispatcher_us: self.dispatcher.busy,
            clouds_us: self.clouds.iter().map(|cloud| cloud.processors.busy).sum(),
            ..self.outcome
        })
    }

    fn look(&mut self, now: Micros, number: usize) -> Result<(), Failure> {
        let user = self.users.get_mut(number).ok_or("no user")?;
        let (edge, user_us) = (user.edge, user.user_us);
        let Some(view) = user.views.pop() else {
            self.remaining -= 1;
            return Ok(());
        };
        user.open = view.len();
        for spot in view {
            self.outcome.asked += 1;
            let request = Request {
                user: number,
                edge,
                spot,
                began: now,
                back_us: user_us / 2,
                is_claimed: false,
            };
            self.at(now + user_us / 2, SimulationEvent::AtDispatcher(request));
        }
        Ok(())
    }

    fn dispatch(&mut self, now: Micros, mut request: Request) -> Result<(), Failure> {
        let user = self.users.get(request.user).ok_or("no user")?;
        let (is_browser, user_us) = (user.is_browser, user.user_us);
        let (_, level, offset) = request.spot;
        let question = Question::Tile {
            level: Level::clamped(level),
            offset,
        };
        let stream = key_at_cloud(request.edge);
        let client = Client { is_browser };
        let place = self.tables.decide(stream, question, At::Any, client);
        // The dispatcher relays to browsers; other programs go on to the place themselves.
        let takes = match is_browser {
            true => self.model.relay_us,
            false => self.model.redirect_us,
        };
        let done = self.dispatcher.completion(now, takes);
        match place {
            Decision::Node { node, fetches, why } => {
                let edge = self.edges.get(request.edge).ok_or("no edge")?;
                if node != NodeIndex(edge.cloud) || !fetches {
                    return Err(format!("{request:?} is sent to another cloud").into());
                }
                request.is_claimed = matches!(why, Why::Base | Why::Span);
                match why {
                    Why::Base => self.outcome.by_base += 1,
                    Why::Span => self.outcome.by_span += 1,
                    Why::Filter => self.outcome.by_filter += 1,
                    Why::Edge => {}
                    Why::Unknown => return Err(format!("{request:?} is not known").into()),
                }
                if matches!(why, Why::Edge) {
                    match self.is_here(request)? {
                        true => self.outcome.by_connection_here += 1,
                        false => self.outcome.by_connection_fetched += 1,
                    }
                }
                let there = match is_browser {
                    true => {
                        request.back_us += self.model.nodes_us / 2;
                        done + self.model.nodes_us / 2
                    }
                    false => done + user_us,
                };
                self.at(there, SimulationEvent::AtCloud(request));
            }
            Decision::Edge { is_relayed, .. } => {
                self.outcome.to_edge += 1;
                self.outcome.to_edge_in_vain += u64::from(self.is_here(request)?);
                let there = self.model.edge_us / 2;
                request.back_us = match is_relayed {
                    true => there + user_us / 2,
                    false => there,
                };
                let redirect = if is_relayed { 0 } else { user_us / 2 };
                self.at(done + redirect + there, SimulationEvent::AtEdge(request));
            }
            Decision::Nowhere { .. } => {
                return Err(format!("{request:?} is sent nowhere").into());
            }
        }
        Ok(())
    }

    /// Whether the copy has a tile.
    fn is_here(&mut self, request: Request) -> Result<bool, Failure> {
        let edge = self.edges.get(request.edge).ok_or("no edge")?;
        let source = self.sources.get_mut(edge.source).ok_or("no source")?;
        let is_here = edge.copy.tile(source, request.spot)?;
        if !is_here {
            edge.copy.forget_missed();
        }
        Ok(is_here)
    }

    fn at_cloud(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        if self.is_here(request)? {
            return self.serve(now, request);
        }
        if request.is_claimed {
            return Err(format!("{request:?} is not at the cloud that lists it").into());
        }
        let edge = self.edges.get_mut(request.edge).ok_or("no edge")?;
        edge.waiting.entry(request.spot).or_default().push(request);
        if !std::mem::replace(&mut edge.has_tick, true) {
            let edge = request.edge;
            self.at(now + TICK, SimulationEvent::Tick { edge });
        }
        self.serve_waiting(now, request.edge)
    }

    /// Serves what has come, and requests what reads lack.
    fn serve_waiting(&mut self, now: Micros, number: usize) -> Result<(), Failure> {
        let edge = self.edges.get(number).ok_or("no edge")?;
        let source = self.sources.get_mut(edge.source).ok_or("no source")?;
        let mut come = Vec::new();
        for (spot, requests) in &edge.waiting {
            let waits_since = requests.iter().map(|request| request.began).min();
            if edge.copy.tile(source, *spot)? {
                come.push(*spot);
            } else if waits_since.is_some_and(|since| now > since + PATIENCE) {
                return Err(format!("edge {number}: {spot:?} does not come").into());
            }
        }
        edge.copy.request_missed();
        self.outcome.fetched_tiles += unsigned(come.len());
        for spot in come {
            let edge = self.edges.get_mut(number).ok_or("no edge")?;
            for request in edge.waiting.remove(&spot).into_iter().flatten() {
                self.serve(now, request)?;
            }
        }
        self.send_requests(now, number)
    }

    fn send_requests(&mut self, now: Micros, number: usize) -> Result<(), Failure> {
        let edge = self.edges.get_mut(number).ok_or("no edge")?;
        let there = now + self.model.edge_us / 2;
        for message in edge.copy.requests(clocks(now)) {
            self.outcome.fetch_requests += u64::from(matches!(message, Message::Fetch { .. }));
            let edge = number;
            self.at(there, SimulationEvent::ToEdge { edge, message });
        }
        Ok(())
    }

    fn send_to_edge(
        &mut self,
        now: Micros,
        number: usize,
        message: Message,
    ) -> Result<(), Failure> {
        let edge = self.edges.get_mut(number).ok_or("no edge")?;
        let source = self.sources.get(edge.source).ok_or("no source")?;
        for message in edge.copy.answers(source, clocks(now), message)? {
            let bytes = unsigned(encode(&message).len());
            self.outcome.fetched_bytes += bytes;
            let there = self.carried(now, number, bytes)?;
            let edge = number;
            self.at(there, SimulationEvent::ToCopy { edge, message });
        }
        Ok(())
    }

    /// When bytes of an edge arrive at the other end, after all that it sent before.
    fn carried(&mut self, now: Micros, number: usize, bytes: u64) -> Result<Micros, Failure> {
        let edge = self.edges.get_mut(number).ok_or("no edge")?;
        let takes = bytes.saturating_mul(1_000_000) / self.model.edge_rate.max(1);
        edge.link_free = edge.link_free.max(now) + takes;
        Ok(edge.link_free + self.model.edge_us / 2)
    }

    fn send_to_copy(
        &mut self,
        now: Micros,
        number: usize,
        message: Message,
    ) -> Result<(), Failure> {
        let edge = self.edges.get_mut(number).ok_or("no edge")?;
        let is_end = matches!(message, Message::Done { .. });
        edge.copy.take(clocks(now), message)?;
        if !is_end {
            return self.send_requests(now, number);
        }
        edge.copy.refresh()?;
        let cloud = self.clouds.get_mut(edge.cloud).ok_or("no cloud")?;
        cloud.changed.insert(number);
        self.serve_waiting(now, number)
    }

    fn tick(&mut self, now: Micros, number: usize) -> Result<(), Failure> {
        self.serve_waiting(now, number)?;
        let edge = self.edges.get_mut(number).ok_or("no edge")?;
        edge.has_tick = !edge.waiting.is_empty();
        if edge.has_tick {
            self.at(now + TICK, SimulationEvent::Tick { edge: number });
        }
        Ok(())
    }

    /// A cloud answers from its copy, and lists the tile if its subscription does not have it.
    fn serve(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        let edge = self.edges.get(request.edge).ok_or("no edge")?;
        let cloud = self.clouds.get_mut(edge.cloud).ok_or("no cloud")?;
        let (_, level, offset) = request.spot;
        let level = Level::clamped(level);
        if !edge.copy.reach().has(level) {
            let stream = key_at_cloud(request.edge);
            cloud.registry.add_tile(stream.tile(level, offset));
        }
        let done = cloud.processors.completion(now, self.model.cloud_us);
        self.at(done + request.back_us, SimulationEvent::Answered(request));
        Ok(())
    }

    /// An edge answers itself.
    fn at_edge(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        let edge = self.edges.get_mut(request.edge).ok_or("no edge")?;
        edge.cpu_free = edge.cpu_free.max(now) + self.model.edge_cpu_us;
        let done = edge.cpu_free;
        let source = self.sources.get_mut(edge.source).ok_or("no source")?;
        let buckets = unsigned(source.tile(request.spot)?.len());
        let bytes = buckets * self.model.bucket_bytes;
        self.outcome.edge_answer_bytes += bytes;
        let there = self.carried(done, request.edge, bytes)?;
        // The way over the edge's link is in both.
        let further = request.back_us.saturating_sub(self.model.edge_us / 2);
        self.at(there + further, SimulationEvent::Answered(request));
        Ok(())
    }

    fn answered(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        self.outcome.answered += 1;
        self.took.push(now - request.began);
        let user = self.users.get_mut(request.user).ok_or("no user")?;
        user.open -= 1;
        if user.open == 0 {
            // How long people look is exponential.
            let think = -(1.0 - self.dice.unit()).ln() * real(signed(self.model.think_us));
            self.at(
                now + unsigned(whole(think)),
                SimulationEvent::Looks { user: request.user },
            );
        }
        Ok(())
    }
}
