//! Ten thousand users browse ten thousand edges: the shipped dispatcher decides where each query is
//! answered, and the shipped planner has fetched the data at the clouds.
//!
//! Time is simulated. The links are those of [`Links`]; a server processes its queries one after
//! another on each processor, with the processor time measured by `lab nodes`. One week is
//! generated, and copies of it are grown by planner and agent to some shares of its bytes: each
//! edge is one of these, at random. A cloud fetches a missing tile over the edge's link, once for
//! all waiting users, caches it, and reports it to its dispatcher within a second.
//!
//! Each question is checked: it is sent to the dispatcher once, to a cloud once, and to an edge at
//! most once, and is answered.

use super::copies::{Cloud, Edge, Growing};
use super::sensors::{self, ROOMS};
use super::visits::{COARSEST, FINEST, Tile, tiles_of, visits};
use crate::harness::{Bench, Bound, Common, Failure, Random, Targets, real, size, unsigned, whole};
use crate::table;
use headwater_protocol::dispatch::{
    At, Client, Database, Decision, EdgeFacts, NodeIndex, Question, Reach, Registry, StreamKey,
    Tables, Why,
};
use headwater_protocol::replication::Policy;
use headwater_types::{Level, StreamName, Timestamp};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Edges, each with 16 channels.
    #[arg(long, default_value_t = 10_000)]
    edges: usize,
    /// People who browse.
    #[arg(long, default_value_t = 10_000)]
    users: usize,
    /// Clouds behind the dispatcher.
    #[arg(long, default_value_t = 4)]
    clouds: usize,
    /// Visits of seeds from 1 on, which people take in turn.
    #[arg(long, default_value_t = 500)]
    visits: u64,
    /// Seed of the week, of who is where, and of the links.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Shares of an edge's bytes that have arrived, each with the number of such edges in a hundred.
const GROWN: [(f64, u64); 3] = [(1.0, 90), (0.7, 7), (0.4, 3)];

type Micros = u64;

/// The model of links and of servers.
#[derive(Clone, Copy, Debug, Serialize)]
struct Links {
    /// Minimum and maximum round trip from a user to the dispatcher or a cloud.
    user_us: (Micros, Micros),
    /// Round trips from a cloud to an edge, each with the number of such edges in a hundred.
    edge_us: [(Micros, u64); 3],
    /// Bytes a second of an edge's link.
    edge_rate: u64,
    /// Processor time of a question at the dispatcher and at a cloud, two processors each.
    desk_us: Micros,
    cloud_us: Micros,
    /// Between two views of a user, on average.
    think_us: Micros,
}

const LINKS: Links = Links {
    user_us: (10_000, 40_000),
    edge_us: [(40_000, 60), (90_000, 30), (340_000, 10)],
    edge_rate: 128 << 10,
    desk_us: 19,
    cloud_us: 34,
    think_us: 5_000_000,
};

/// A tile of an edge: its stream (a room), level and number.
type Spot = (usize, i32, i64);

fn spot(tile: &Tile) -> Spot {
    (
        tile.channel / sensors::FIELDS.len(),
        tile.level,
        tile.offset,
    )
}

/// Content of a copy of an edge.
struct Template {
    here: HashSet<Spot>,
    /// From this level on all tiles are present; `None` = all rows are.
    from: Option<i32>,
    /// Bytes needed to fetch a missing tile.
    bytes: u64,
}

impl Template {
    fn of(here: HashSet<Spot>, bytes: u64) -> Template {
        let has_all = |level: i32| {
            let first = (0..ROOMS).map(|room| room * sensors::FIELDS.len());
            let mut all = first.flat_map(|channel| tiles_of(channel, level));
            all.all(|tile| here.contains(&spot(&tile)))
        };
        let from = (FINEST..=COARSEST)
            .rev()
            .take_while(|level| has_all(*level));
        let from = from.last().unwrap_or(COARSEST + 1);
        Template {
            from: (from > FINEST).then_some(from),
            here,
            bytes,
        }
    }

    /// Grown by the planner to a share of the edge's bytes.
    fn grown(edge: &Edge, bench: &Bench, share: f64) -> Result<Template, Failure> {
        let growing = Growing {
            policy: Policy::Shares,
            level: None,
            bytes: if share < 1.0 {
                unsigned(whole(real(edge.bytes) * share))
            } else {
                u64::MAX
            },
        };
        let mut cloud = Cloud::new(edge, &bench.path("cloud"), growing)?;
        let expected = edge.snapshot()?;
        let mut here = HashSet::new();
        let mut lacking = Vec::new();
        for room in 0..ROOMS {
            for level in FINEST..=COARSEST {
                for tile in tiles_of(room * sensors::FIELDS.len(), level) {
                    match cloud.asks(&tile, &expected, false)? {
                        Some(_) => drop(here.insert(spot(&tile))),
                        None => lacking.push(tile),
                    }
                }
            }
        }
        // Bytes needed for a sample of the missing tiles, far from each other.
        let before = cloud.travelled;
        let some: Vec<&Tile> = lacking.iter().step_by(lacking.len() / 50 + 1).collect();
        for tile in &some {
            cloud.asks(tile, &expected, true)?;
        }
        let bytes = (cloud.travelled - before) / unsigned(some.len().max(1));
        Ok(Template::of(here, bytes))
    }
}

/// A question under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    user: usize,
    edge: usize,
    spot: Spot,
    began: Micros,
    /// There and back to the user.
    user_us: Micros,
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    /// A user looks at the next view.
    Looks {
        user: usize,
    },
    AtDesk(Request),
    AtCloud(Request),
    /// Bytes of an edge have arrived at its cloud.
    Fetched {
        edge: usize,
        spot: Spot,
    },
    Answered(Request),
    /// The dispatcher queries the clouds for news.
    Reported,
}

/// Two processors, with the times from which they are free.
#[derive(Clone, Copy, Debug, Default)]
struct Processors([Micros; 2]);

impl Processors {
    /// Completion time of a request that arrives now and needs `takes`.
    fn done(&mut self, now: Micros, takes: Micros) -> Micros {
        let [first, second] = &mut self.0;
        let free = if *first <= *second { first } else { second };
        *free = now.max(*free) + takes;
        *free
    }
}

struct EdgeAt {
    template: usize,
    cloud: usize,
    rtt_us: Micros,
    link_free: Micros,
    streams: Vec<StreamKey>,
    /// Tiles that arrived beyond the template.
    fetched: HashSet<Spot>,
    /// Requests that wait for a tile that is on its way.
    waiting: BTreeMap<Spot, Vec<Request>>,
}

struct CloudAt {
    registry: Registry,
    processors: Processors,
}

struct User {
    edge: usize,
    /// Views that are left, the next one last.
    views: Vec<Vec<Spot>>,
    open: usize,
    user_us: Micros,
}

/// Counts and latencies of a run.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Outcome {
    asked: u64,
    answered: u64,
    by_base: u64,
    by_filter: u64,
    /// Sent to the cloud because it has the edge's connection: the tile was present, or was
    /// fetched.
    by_edge_here: u64,
    by_edge_fetched: u64,
    fetched_bytes: u64,
    /// Median of the answers' times, in microseconds.
    p50: Micros,
    p90: Micros,
    p99: Micros,
    most: Micros,
    seconds: u64,
}

struct World<'a> {
    links: Links,
    templates: &'a [Template],
    tables: Tables,
    desk: Processors,
    clouds: Vec<CloudAt>,
    edges: Vec<EdgeAt>,
    users: Vec<User>,
    queue: BinaryHeap<Reverse<(Micros, u64)>>,
    events: HashMap<u64, Happens>,
    number: u64,
    dice: Random,
    outcome: Outcome,
    took: Vec<Micros>,
    left: usize,
}

/// A random item, weighted in hundredths.
fn weighted<T: Copy>(dice: &mut Random, all: &[(T, u64)]) -> Option<(usize, T)> {
    let mut left = dice.below(100);
    for (at, (one, weight)) in all.iter().enumerate() {
        if left < *weight {
            return Some((at, *one));
        }
        left -= weight;
    }
    None
}

/// Views of a visit: the consecutive requests of one level of one sensor.
fn views(visit: &[Tile]) -> Vec<Vec<Spot>> {
    let views = visit.chunk_by(|a, b| (a.channel, a.level) == (b.channel, b.level));
    let mut views: Vec<Vec<Spot>> = views.map(|view| view.iter().map(spot).collect()).collect();
    views.reverse();
    views
}

impl<'a> World<'a> {
    fn new(
        templates: &'a [Template],
        shares: &[u64],
        visits: &[Vec<Tile>],
        (edges, users, clouds, seed): (usize, usize, usize, u64),
    ) -> Result<World<'a>, Failure> {
        let mut dice = Random::new(seed);
        let weights: Vec<((), u64)> = shares.iter().map(|share| ((), *share)).collect();
        let registry = |cloud: usize| {
            let database = Database {
                identity: unsigned(cloud) + 1,
                incarnation: 1,
            };
            Registry::new(database, unsigned(cloud) + 1)
        };
        let mut world = World {
            links: LINKS,
            templates,
            tables: Tables::new(clouds),
            desk: Processors::default(),
            clouds: (0..clouds)
                .map(|cloud| CloudAt {
                    registry: registry(cloud),
                    processors: Processors::default(),
                })
                .collect(),
            edges: Vec::new(),
            users: Vec::new(),
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            number: 0,
            dice: Random::new(seed + 1),
            outcome: Outcome::default(),
            took: Vec::new(),
            left: users,
        };
        for number in 0..edges {
            let (template, ()) = weighted(&mut dice, &weights).ok_or("shares of a hundred")?;
            let (_, rtt_us) = weighted(&mut dice, &LINKS.edge_us).ok_or("links of a hundred")?;
            world.add_edge(number, template, rtt_us)?;
        }
        world.tell();
        for number in 0..users {
            let (least, most) = LINKS.user_us;
            let visit = visits
                .get(number % visits.len().max(1))
                .ok_or("no visits")?;
            world.users.push(User {
                edge: size(dice.below(unsigned(edges))),
                views: views(visit),
                open: 0,
                user_us: least + dice.below(most - least),
            });
            let begins = dice.below(60_000_000);
            world.at(begins, Happens::Looks { user: number });
        }
        world.at(1_000_000, Happens::Reported);
        Ok(world)
    }

    fn add_edge(&mut self, number: usize, template: usize, rtt_us: Micros) -> Result<(), Failure> {
        let name = format!("edge-{number}");
        let stream = |room: usize| {
            let tags = [("edge", number.to_string()), ("room", room.to_string())];
            StreamKey::of(&StreamName::new("lab", tags))
        };
        let streams: Vec<StreamKey> = (0..ROOMS).map(stream).collect();
        let cloud = number % self.clouds.len().max(1);
        let at = self.clouds.get_mut(cloud).ok_or("no cloud")?;
        let from = self.templates.get(template).ok_or("no template")?.from;
        at.registry.set_edge(EdgeFacts {
            name: name.clone(),
            is_own: false,
            is_connected: true,
            rank: unsigned(number),
            database: None,
            address: None,
            reach: from.map_or(Reach::Rows, |level| Reach::Level(Level::clamped(level))),
            until: Timestamp::MAX,
            exceptions: Vec::new(),
        });
        at.registry.set_streams(&name, streams.clone());
        self.edges.push(EdgeAt {
            template,
            cloud,
            rtt_us,
            link_free: 0,
            streams,
            fetched: HashSet::new(),
            waiting: BTreeMap::new(),
        });
        Ok(())
    }

    /// The clouds report their news to the dispatcher.
    fn tell(&mut self) {
        for (at, cloud) in self.clouds.iter_mut().enumerate() {
            cloud.registry.settle();
            let known = self.tables.position(NodeIndex(at));
            let held = cloud.registry.since(known.epoch, known.version);
            self.tables.apply(NodeIndex(at), held);
        }
    }

    fn at(&mut self, when: Micros, happens: Happens) {
        self.number += 1;
        self.events.insert(self.number, happens);
        self.queue.push(Reverse((when, self.number)));
    }

    fn run(mut self) -> Result<Outcome, Failure> {
        while let Some(Reverse((now, number))) = self.queue.pop() {
            let happens = self
                .events
                .remove(&number)
                .ok_or("something without a name")?;
            match happens {
                Happens::Looks { user } => self.looks(now, user)?,
                Happens::AtDesk(request) => self.at_desk(now, request)?,
                Happens::AtCloud(request) => self.at_cloud(now, request)?,
                Happens::Fetched { edge, spot } => self.came(now, edge, spot)?,
                Happens::Answered(request) => self.answered(now, request)?,
                Happens::Reported if self.left > 0 => {
                    self.tell();
                    self.at(now + 1_000_000, Happens::Reported);
                }
                Happens::Reported => {}
            }
            self.outcome.seconds = now / 1_000_000;
        }
        self.finish()
    }

    fn finish(mut self) -> Result<Outcome, Failure> {
        if self.outcome.asked != self.outcome.answered || self.left > 0 {
            return Err(format!("not all was answered: {:?}", self.outcome).into());
        }
        self.took.sort_unstable();
        let part = |share: f64| {
            let at = size(whole(real(self.took.len()) * share));
            self.took.get(at).or(self.took.last()).copied()
        };
        let [p50, p90, p99, most] = [0.5, 0.9, 0.99, 1.0].map(|share| part(share).unwrap_or(0));
        Ok(Outcome {
            p50,
            p90,
            p99,
            most,
            ..self.outcome
        })
    }

    fn looks(&mut self, now: Micros, number: usize) -> Result<(), Failure> {
        let user = self.users.get_mut(number).ok_or("no user")?;
        let (edge, user_us) = (user.edge, user.user_us);
        let Some(view) = user.views.pop() else {
            self.left -= 1;
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
                user_us,
            };
            self.at(now + user_us / 2, Happens::AtDesk(request));
        }
        Ok(())
    }

    fn at_desk(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        let edge = self.edges.get(request.edge).ok_or("no edge")?;
        let (room, level, offset) = request.spot;
        let stream = *edge.streams.get(room).ok_or("no stream")?;
        let question = Question::Tile {
            level: Level::clamped(level),
            offset,
        };
        let place = self
            .tables
            .place(stream, question, At::Any, Client::default());
        let Decision::Node { node, fetches, why } = place else {
            return Err(format!("{request:?} is sent to {place:?}").into());
        };
        if node != NodeIndex(edge.cloud) || !fetches {
            return Err(format!("{request:?} is sent to {place:?}").into());
        }
        let is_here = self.is_here(request)?;
        match why {
            Why::Base if !is_here => return Err(format!("{request:?} is not at its base").into()),
            Why::Base => self.outcome.by_base += 1,
            Why::Filter => self.outcome.by_filter += 1,
            Why::Edge if is_here => self.outcome.by_edge_here += 1,
            Why::Edge => self.outcome.by_edge_fetched += 1,
            Why::Unknown => return Err(format!("{request:?} is not known").into()),
        }
        let done = self.desk.done(now, self.links.desk_us);
        // Redirected: the answer returns to the user, who then queries the cloud.
        let there = done + request.user_us;
        self.at(there, Happens::AtCloud(request));
        Ok(())
    }

    fn is_here(&self, request: Request) -> Result<bool, Failure> {
        let edge = self.edges.get(request.edge).ok_or("no edge")?;
        let template = self.templates.get(edge.template).ok_or("no template")?;
        Ok(template.here.contains(&request.spot) || edge.fetched.contains(&request.spot))
    }

    fn at_cloud(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        if self.is_here(request)? {
            return self.serve(now, request);
        }
        let edge = self.edges.get_mut(request.edge).ok_or("no edge")?;
        let waiting = edge.waiting.entry(request.spot).or_default();
        waiting.push(request);
        if waiting.len() > 1 {
            return Ok(());
        }
        let bytes = self
            .templates
            .get(edge.template)
            .ok_or("no template")?
            .bytes;
        self.outcome.fetched_bytes += bytes;
        let sends = bytes.saturating_mul(1_000_000) / self.links.edge_rate;
        edge.link_free = edge.link_free.max(now + edge.rtt_us / 2) + sends;
        let comes = edge.link_free + edge.rtt_us / 2;
        let (edge, spot) = (request.edge, request.spot);
        self.at(comes, Happens::Fetched { edge, spot });
        Ok(())
    }

    fn came(&mut self, now: Micros, number: usize, spot: Spot) -> Result<(), Failure> {
        let edge = self.edges.get_mut(number).ok_or("no edge")?;
        edge.fetched.insert(spot);
        let waiting = edge.waiting.remove(&spot).ok_or("nobody waits")?;
        for request in waiting {
            self.serve(now, request)?;
        }
        Ok(())
    }

    /// A cloud answers from its copy, and reports the tile.
    fn serve(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        let edge = self.edges.get(request.edge).ok_or("no edge")?;
        let cloud = self.clouds.get_mut(edge.cloud).ok_or("no cloud")?;
        let (room, level, offset) = request.spot;
        let from = self.templates.get(edge.template).and_then(|t| t.from);
        if from.is_some_and(|from| level < from) {
            let stream = edge.streams.get(room).ok_or("no stream")?;
            cloud
                .registry
                .add_tile(stream.tile(Level::clamped(level), offset));
        }
        let done = cloud.processors.done(now, self.links.cloud_us);
        self.at(done + request.user_us / 2, Happens::Answered(request));
        Ok(())
    }

    fn answered(&mut self, now: Micros, request: Request) -> Result<(), Failure> {
        self.outcome.answered += 1;
        self.took.push(now - request.began);
        let user = self.users.get_mut(request.user).ok_or("no user")?;
        user.open -= 1;
        if user.open == 0 {
            // How long people look is exponential.
            let think = -(1.0 - self.dice.unit()).ln() * real(self.links.think_us);
            self.at(
                now + unsigned(whole(think)),
                Happens::Looks { user: request.user },
            );
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Results {
    links: Links,
    edges: usize,
    users: usize,
    clouds: usize,
    visits: u64,
    seed: u64,
    grown: Vec<(f64, u64, usize, Option<i32>, u64)>,
    outcome: Outcome,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::once("load", &arguments.common)?;
    let channels = sensors::week(arguments.seed);
    let visits = visits(&channels, arguments.visits);
    let edge = Edge::new(&bench.path("edge"), &channels)?;
    let mut templates = Vec::new();
    for (share, _) in GROWN {
        templates.push(Template::grown(&edge, &bench, share)?);
    }
    let size = (
        arguments.edges,
        arguments.users,
        arguments.clouds,
        arguments.seed,
    );
    let world = World::new(&templates, &GROWN.map(|(_, many)| many), &visits, size)?;
    let outcome = world.run()?;
    let grown = GROWN.iter().zip(&templates);
    let grown = grown.map(|((share, many), of)| (*share, *many, of.here.len(), of.from, of.bytes));
    let results = Results {
        links: LINKS,
        edges: arguments.edges,
        users: arguments.users,
        clouds: arguments.clouds,
        visits: arguments.visits,
        seed: arguments.seed,
        grown: grown.collect(),
        outcome,
    };
    print(&results);
    let mut targets = Targets::default();
    targets.add(
        "99 of 100 answers, simulated",
        Bound::AtMost(200.0),
        " ms",
        real(results.outcome.p99) / 1e3,
    );
    bench.finish(&results, &targets)
}

fn print(results: &Results) {
    for (share, many, here, from, bytes) in &results.grown {
        println!(
            "{many} of 100 edges: {:.0} % of the bytes have come, {here} tiles of four streams, all from level {from:?} on; one that is not there takes {bytes} bytes",
            share * 100.0
        );
    }
    let of = &results.outcome;
    let share = |part: u64| format!("{:.2} %", real(part) / real(of.asked.max(1)) * 100.0);
    let ms = |micros: u64| format!("{:.0} ms", real(micros) / 1e3);
    println!(
        "\n{} tiles asked for in {} simulated seconds, {:.1} MB fetched\n",
        of.asked,
        of.seconds,
        real(of.fetched_bytes) / 1e6
    );
    table::print(
        &[
            "base",
            "filter",
            "connection, there",
            "connection, fetched",
            "median",
            "90 %",
            "99 %",
            "longest",
        ],
        &[vec![
            share(of.by_base),
            share(of.by_filter),
            share(of.by_edge_here),
            share(of.by_edge_fetched),
            ms(of.p50),
            ms(of.p90),
            ms(of.p99),
            ms(of.most),
        ]],
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A copy that has all tiles from a level on, and every third one below.
    fn template(from: i32) -> Template {
        let channels = (0..ROOMS).map(|room| room * sensors::FIELDS.len());
        let all = channels.flat_map(|c| (FINEST..=COARSEST).flat_map(move |l| tiles_of(c, l)));
        let here = all.filter(|tile| tile.level >= from || tile.offset % 3 == 0);
        Template::of(here.map(|tile| spot(&tile)).collect(), 2_500)
    }

    #[test]
    fn people_browse_edges_through_a_dispatcher() {
        let channels = sensors::week(3);
        let visits = visits(&channels, 8);
        let templates = [template(FINEST), template(5)];
        assert_eq!((templates[0].from, templates[1].from), (None, Some(5)));
        let outcome = |seed: u64| {
            let size = (300, 400, 3, seed);
            World::new(&templates, &[95, 5], &visits, size)
                .unwrap()
                .run()
                .unwrap()
        };
        let first = outcome(1);
        assert_eq!(first, outcome(1));
        assert_ne!(first, outcome(2));
        assert!(first.asked > 5_000 && first.p99 < 200_000, "{first:?}");
        let ways = [
            first.by_base,
            first.by_filter,
            first.by_edge_here,
            first.by_edge_fetched,
        ];
        assert!(ways.iter().all(|way| *way > 0), "{first:?}");
        assert_eq!(ways.iter().sum::<u64>(), first.asked);
        assert!(first.most >= 340_000, "some edge is far away: {first:?}");
    }
}
