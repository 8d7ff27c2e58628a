//! Ten thousand users browse a thousand edges through a dispatcher, in simulated time (rows R-15):
//! the shipped dispatcher decides where each query is answered; shipped planners and agents have
//! fetched what is at the clouds before, and fetch what users miss.
//!
//! One week is generated; an edge has one of its rooms. Links are those of the network model; a
//! server processes its queries one after another on each processor, with the processor times that
//! `lab nodes` measured. Half of the users have browsers, to which the dispatcher relays; the
//! others are redirected. A quarter of the edges have an address of their own, at which a tile is
//! answered that no cloud is known to have; from the others the cloud fetches it, once for all who
//! wait, and lists it within a second or as soon as its coverages suffice.
//!
//! The model leaves out: rows that edges write meanwhile, losses of links, other work of servers,
//! and the time of an edge's device.

mod copies;
mod simulation;

use super::sensors::{self, Channel, ROOMS};
use super::visits::{Tile, visits};
use crate::harness::{Bench, Bound, Common, Failure, Random, Targets, real, size, unsigned};
use crate::machine::{cpu_seconds, peak_resident_bytes};
use crate::table;
use copies::{Copy, Room, Source, Spot, Subscription, spot};
use serde::Serialize;
use simulation::{Micros, NetworkModel, Outcome, SimulatedEdge, Simulation, User};

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Edges, each with four sensors; at least four.
    #[arg(long, default_value_t = 1_000)]
    edges: usize,
    /// People who browse, a visit each.
    #[arg(long, default_value_t = 10_000)]
    users: usize,
    /// Clouds behind the dispatcher.
    #[arg(long, default_value_t = 2)]
    clouds: usize,
    /// Visits of seeds from 1 on, which people take in turn.
    #[arg(long, default_value_t = 500)]
    visits: u64,
    /// Round trip to an edge, in milliseconds.
    #[arg(long, default_value_t = 340)]
    edge_ms: u64,
    /// Bytes a second of an edge's link.
    #[arg(long, default_value_t = 128 << 10)]
    edge_rate: u64,
    /// Seed of the week, of who is where, and of the links.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the fleets whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// Model of everything that is not swept. Processor times are rows of docs/benchmarks.md, rounded
/// up; an edge's is ten times a cloud's, about the ratio that the paper measured.
const MODEL: NetworkModel = NetworkModel {
    user_us: (10_000, 40_000),
    nodes_us: 500,
    edge_us: 340_000,
    edge_rate: 128 << 10,
    redirect_us: 19,
    relay_us: 70,
    cloud_us: 34,
    edge_cpu_us: 340,
    bucket_bytes: 40,
    think_us: 5_000_000,
    browsers: 50,
    direct: 25,
};

/// A fleet: what has come of its edges before users look.
struct Fleet {
    name: &'static str,
    /// Subscriptions, each with the edges of a hundred that have it.
    parts: &'static [(Subscription, u64)],
    /// The wanted latency is for it.
    is_judged: bool,
}

impl Fleet {
    const fn new(name: &'static str, parts: &'static [(Subscription, u64)]) -> Fleet {
        Fleet {
            name,
            parts,
            is_judged: false,
        }
    }
}

const FLEETS: [Fleet; 5] = [
    Fleet {
        is_judged: true,
        ..Fleet::new("all rows", &[(Subscription::Rows(1.0), 100)])
    },
    Fleet {
        is_judged: true,
        ..Fleet::new(
            "all rows of 90 of 100 edges, 70 % of 7, 40 % of 3",
            &[
                (Subscription::Rows(1.0), 90),
                (Subscription::Rows(0.7), 7),
                (Subscription::Rows(0.4), 3),
            ],
        )
    },
    Fleet::new(
        "tiles from level 10 on, 50 % of the bytes ahead",
        &[(Subscription::Tiles(10, 0.5), 100)],
    ),
    Fleet::new(
        "tiles from level 10 on, 5 % of the bytes ahead",
        &[(Subscription::Tiles(10, 0.05), 100)],
    ),
    Fleet::new("states alone", &[(Subscription::Rows(0.0), 100)]),
];

/// Results of a fleet.
#[derive(Serialize)]
struct FleetResults {
    name: &'static str,
    bytes_of_edges: Vec<u64>,
    outcome: Outcome,
    /// Processor time of this process for growing the copies, and for the run.
    growing_cpu_seconds: f64,
    running_cpu_seconds: f64,
}

#[derive(Serialize)]
struct Results {
    model: NetworkModel,
    edges: usize,
    users: usize,
    clouds: usize,
    visits: u64,
    seed: u64,
    fleets: Vec<FleetResults>,
    peak_resident_bytes: u64,
}

/// Views of a visit: the consecutive requests of one level of one sensor, the first one last.
fn views(visit: &[Tile]) -> Vec<Vec<Spot>> {
    let views = visit.chunk_by(|a, b| (a.channel, a.level) == (b.channel, b.level));
    let spots = |view: &[Tile]| {
        let mut spots: Vec<Spot> = view.iter().map(spot).collect();
        spots.sort_unstable();
        spots.dedup();
        spots
    };
    let mut views: Vec<Vec<Spot>> = views.map(spots).collect();
    views.reverse();
    views
}

/// A number by weights in hundredths.
fn weighted(dice: &mut Random, parts: &[(Subscription, u64)]) -> Option<Subscription> {
    let mut left = dice.below(100);
    let found = parts.iter().find(|(_, weight)| {
        let is_it = left < *weight;
        left = left.saturating_sub(*weight);
        is_it
    });
    found.map(|(subscription, _)| *subscription)
}

/// The size of a run.
#[derive(Clone, Copy)]
struct Scale {
    edges: usize,
    users: usize,
    clouds: usize,
    seed: u64,
}

/// Users, each at an edge with the room that the visit is about.
fn users(visits: &[Vec<Tile>], scale: Scale) -> Result<Vec<User>, Failure> {
    let mut dice = Random::new(scale.seed);
    let visits: Vec<&Vec<Tile>> = visits.iter().filter(|visit| !visit.is_empty()).collect();
    let user = |number: usize| {
        let visit = visits
            .get(number % visits.len().max(1))
            .ok_or("no visits")?;
        let first = visit.first().ok_or("an empty visit")?;
        let room = first.channel / sensors::FIELDS.len();
        let with_room = scale.edges.saturating_sub(room).div_ceil(ROOMS);
        if with_room == 0 {
            return Err("fewer edges than rooms".into());
        }
        Ok(User {
            edge: room + ROOMS * size(dice.below(unsigned(with_room))),
            views: views(visit),
        })
    };
    (0..scale.users).map(user).collect()
}

/// Databases of the rooms, one for all edges with a room.
fn sources(bench: &Bench, channels: &[Channel]) -> Result<Vec<Source>, Failure> {
    let source = |room: usize| {
        let of_room: Vec<&Channel> = channels.iter().filter(|c| c.room == room).collect();
        Source::new(&bench.path("edge"), &of_room)
    };
    (0..ROOMS).map(source).collect()
}

/// A run of a fleet.
fn run_fleet(
    (bench, channels, visits): (&Bench, &[Channel], &[Vec<Tile>]),
    fleet: &Fleet,
    model: NetworkModel,
    scale: Scale,
) -> Result<FleetResults, Failure> {
    let sources = sources(bench, channels)?;
    let bytes_of_edges = sources.iter().map(|source| source.bytes).collect();
    let began = cpu_seconds();
    let rooms: Vec<Room> = (0..scale.clouds).map(|_| Room::new()).collect();
    let mut dice = Random::new(scale.seed + 1);
    let mut edges = Vec::new();
    for number in 0..scale.edges {
        let subscription = weighted(&mut dice, fleet.parts).ok_or("parts of a hundred")?;
        let room = rooms.get(number % scale.clouds.max(1)).ok_or("no cloud")?;
        let source = sources.get(number % ROOMS).ok_or("no source")?;
        edges.push(SimulatedEdge {
            source: number % ROOMS,
            copy: Copy::grown(source, room, number, subscription)?,
        });
    }
    let grown = cpu_seconds();
    let users = users(visits, scale)?;
    let world = Simulation::new(model, scale.clouds, sources, edges, users, scale.seed + 2)?;
    let outcome = world.run()?;
    Ok(FleetResults {
        name: fleet.name,
        bytes_of_edges,
        outcome,
        growing_cpu_seconds: grown - began,
        running_cpu_seconds: cpu_seconds() - grown,
    })
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::once("load", &arguments.common)?;
    let channels = sensors::occupied_week(arguments.seed);
    let visits = visits(&channels, arguments.visits);
    let scale = Scale {
        edges: arguments.edges,
        users: arguments.users,
        clouds: arguments.clouds,
        seed: arguments.seed,
    };
    let model = NetworkModel {
        edge_us: arguments.edge_ms * 1_000,
        edge_rate: arguments.edge_rate,
        ..MODEL
    };
    let mut targets = Targets::default();
    let mut fleets = Vec::new();
    let only = arguments.only.as_deref().unwrap_or_default();
    for fleet in FLEETS.iter().filter(|fleet| fleet.name.contains(only)) {
        let results = run_fleet((&bench, &channels, &visits), fleet, model, scale)?;
        if fleet.is_judged {
            targets.add(
                format!("{}: 99 of 100 answers, simulated", fleet.name),
                Bound::AtMost(200.0),
                " ms",
                real(results.outcome.p99) / 1e3,
            );
        }
        fleets.push(results);
    }
    let results = Results {
        model,
        edges: scale.edges,
        users: scale.users,
        clouds: scale.clouds,
        visits: arguments.visits,
        seed: scale.seed,
        fleets,
        peak_resident_bytes: peak_resident_bytes(),
    };
    print(&results);
    bench.finish(&results, &targets)
}

fn print(results: &Results) {
    let bytes = results.fleets.first().map(|fleet| &fleet.bytes_of_edges);
    println!(
        "{} edges, {:?} bytes by room, {} users, {} clouds; this process took at most {:.0} MiB",
        results.edges,
        bytes.into_iter().flatten().collect::<Vec<_>>(),
        results.users,
        results.clouds,
        real(results.peak_resident_bytes) / 1_048_576.0
    );
    let line = |fleet: &FleetResults| {
        let of = &fleet.outcome;
        let share = |part: u64| format!("{:.2} %", real(part) / real(of.asked.max(1)) * 100.0);
        let ms = |micros: Micros| format!("{:.0} ms", real(micros) / 1e3);
        vec![
            fleet.name.to_owned(),
            of.asked.to_string(),
            share(of.by_base + of.by_span + of.by_filter),
            share(of.by_connection_here),
            share(of.by_connection_fetched),
            share(of.to_edge),
            share(of.to_edge_in_vain),
            format!(
                "{:.1}",
                real(of.fetch_requests) / real(of.fetched_tiles.max(1))
            ),
            format!(
                "{:.1} MB",
                real(of.fetched_bytes + of.edge_answer_bytes) / 1e6
            ),
            ms(of.mean),
            ms(of.p50),
            ms(of.p99),
            ms(of.p999),
            ms(of.most),
            format!(
                "{:.3}",
                real(of.dispatcher_us) / 1e6 / real(of.seconds.max(1))
            ),
            format!(
                "{:.0} + {:.0} s",
                fleet.growing_cpu_seconds, fleet.running_cpu_seconds
            ),
        ]
    };
    let lines: Vec<Vec<String>> = results.fleets.iter().map(line).collect();
    println!();
    table::print(
        &[
            "at the clouds before",
            "tiles",
            "known to be there",
            "there, not known",
            "fetched",
            "sent to the edge",
            "of these at the cloud",
            "requests a fetched tile",
            "over edges' links",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "longest",
            "dispatcher's processors",
            "CPU of the run",
        ],
        &lines,
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_view_has_each_stored_tile_once() {
        // Two tiles of a value a second are one of the stored rows.
        let tile = |level, offset| Tile {
            channel: 5,
            level,
            offset,
        };
        let views = views(&[tile(10, 3), tile(0, 16), tile(0, 17), tile(3, 9)]);
        assert_eq!(views, [vec![(1, 3, 9)], vec![(1, 3, 2)], vec![(1, 10, 3)]]);
    }

    #[test]
    fn users_are_at_edges_with_the_room_of_their_visit() {
        let scale = Scale {
            edges: 7,
            users: 40,
            clouds: 1,
            seed: 3,
        };
        let tile = |room: usize| Tile {
            channel: room * sensors::FIELDS.len() + 1,
            level: 4,
            offset: 0,
        };
        let visits: Vec<Vec<Tile>> = (0..ROOMS).map(|room| vec![tile(room)]).collect();
        let users = users(&visits, scale).unwrap();
        assert_eq!(users.len(), 40);
        for (number, user) in users.iter().enumerate() {
            assert_eq!(user.edge % ROOMS, number % ROOMS);
            assert!(user.edge < 7);
        }
        let few = Scale { edges: 2, ..scale };
        assert!(super::users(&visits, few).is_err());
    }
}
