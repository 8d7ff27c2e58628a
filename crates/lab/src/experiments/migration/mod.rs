//! Tiles at the cloud before a visit (EXPERIMENTS.md, R-13): the RESPAWN paper's policies over
//! tiles, and copies of ours, before the same visits.
//!
//! The week is generated ([`sensors`]), visits are drawn from a model that does not know the
//! policies ([`visits`]). A tile at the cloud costs the time of its answer, a missing one 340 ms,
//! as in the paper. The paper's policies are simulated by tiles ([`tiles`]); ours by the shipped
//! planner, limited by bytes sent ([`copies`]). Every tile of a copy is compared with the edge's.

mod copies;
pub(crate) mod load;
mod sensors;
mod tiles;
mod visits;

use crate::harness::{Bench, Bound, Common, Failure, Targets, real, size, unsigned, whole};
use crate::table;
use copies::{Cloud, Edge, Growing};
use headwater_protocol::replication::Policy;
use serde::Serialize;
use std::time::Instant;
use tiles::Tiles;
use visits::Tile;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Visits, of seeds from 1 on.
    #[arg(long, default_value_t = 100)]
    visits: u64,
    /// Time of a tile of the edge, in milliseconds.
    #[arg(long, default_value_t = 340.0)]
    edge_ms: f64,
    /// Seed of the week.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Bytes of a tile as the paper copies it: 512 points of time, mean, deviation (8 each) and count
/// (4), packed to the quarter that its table of sizes states.
const PAPERS_TILE: u64 = 512 * 28 / 4;

#[derive(Serialize)]
struct Row {
    what: String,
    /// Tiles of all that are at the cloud before anybody looks, 0 to 1.
    tiles: f64,
    /// Bytes that had travelled by then, and while people looked.
    bytes_before: u64,
    bytes_asked: u64,
    /// Requested tiles that were at the cloud, 0 to 1.
    met: f64,
    mean_ms: f64,
}

#[derive(Serialize)]
struct Results {
    tiles: usize,
    asked: usize,
    edge_bytes: u64,
    rows: Vec<Row>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::once("migration", &arguments.common)?;
    let channels = sensors::week(arguments.seed);
    let visits = visits::visits(&channels, arguments.visits);
    let asked: usize = visits.iter().map(Vec::len).sum();
    let all = Tiles::of(&channels);
    let edge = Edge::new(&bench.path("edge"), &channels)?;
    println!(
        "{} tiles, {asked} asked for in {} visits; the edge has {} bytes\n",
        all.len(),
        visits.len(),
        edge.bytes
    );
    let trial = Trial {
        edge_ms: arguments.edge_ms,
        visits: &visits,
        all: &all,
        edge: &edge,
        bench: &bench,
    };
    let rows = trial.rows()?;
    print(&rows, arguments.edge_ms);
    let mut targets = Targets::default();
    judge(&rows, &mut targets);
    let results = Results {
        tiles: all.len(),
        asked,
        edge_bytes: edge.bytes,
        rows,
    };
    bench.finish(&results, &targets)
}

struct Trial<'a> {
    edge_ms: f64,
    visits: &'a [Vec<Tile>],
    all: &'a Tiles,
    edge: &'a Edge,
    bench: &'a Bench,
}

/// Copies of ours: the subscription, and the base of the share of bytes.
const OURS: [Ours; 12] = [
    ("shares", Policy::Shares, None, Share::Paper(0.05), false),
    (
        "periodic",
        Policy::Periodic,
        None,
        Share::Paper(0.02),
        false,
    ),
    (
        "deviation",
        Policy::Deviation,
        None,
        Share::Paper(0.02),
        false,
    ),
    ("both", Policy::Both, None, Share::Paper(0.02), false),
    ("shares", Policy::Shares, None, Share::Paper(0.02), false),
    (
        "shares, kept",
        Policy::Shares,
        None,
        Share::Paper(0.02),
        true,
    ),
    (
        "periodic",
        Policy::Periodic,
        None,
        Share::Paper(0.01),
        false,
    ),
    (
        "deviation",
        Policy::Deviation,
        None,
        Share::Paper(0.01),
        false,
    ),
    ("shares", Policy::Shares, None, Share::Paper(0.01), false),
    (
        "shares, kept",
        Policy::Shares,
        None,
        Share::Paper(0.01),
        true,
    ),
    (
        "level 10",
        Policy::Shares,
        Some(10),
        Share::Store(0.05),
        false,
    ),
    (
        "level 10, kept",
        Policy::Shares,
        Some(10),
        Share::Store(0.05),
        true,
    ),
];

type Ours = (&'static str, Policy, Option<i32>, Share, bool);

/// Basis of a share of bytes.
#[derive(Clone, Copy)]
enum Share {
    /// Share of the paper's tiles.
    Paper(f64),
    /// Share of the edge's stored bytes.
    Store(f64),
}

impl Trial<'_> {
    fn rows(&self) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        for share in [0.05, 0.02] {
            for (policy, name) in tiles::Policy::ALL {
                if policy != tiles::Policy::None || share == 0.05 {
                    rows.push(self.paper(policy, name, share));
                }
            }
        }
        for (name, policy, level, share, keeps) in OURS {
            let (bytes, of) = match share {
                Share::Paper(part) => (
                    unsigned(whole(real(self.all.len()) * part)) * PAPERS_TILE,
                    format!("bytes of {} % of the paper's tiles", part * 100.0),
                ),
                Share::Store(part) => (
                    unsigned(whole(real(self.edge.bytes) * part)),
                    format!("{} % of the edge's bytes", part * 100.0),
                ),
            };
            let growing = Growing {
                policy,
                level,
                bytes,
            };
            let what = format!("ours, {name}: {of}");
            rows.push(self.ours(what, growing, keeps)?);
        }
        Ok(rows)
    }

    /// A policy of the paper. The time of a tile at the cloud is omitted, since it is the same for
    /// all policies; our time is in the same table.
    fn paper(&self, policy: tiles::Policy, name: &str, share: f64) -> Row {
        let count = match policy {
            tiles::Policy::None => 0,
            _ => size(whole(real(self.all.len()) * share)),
        };
        let copied = self.all.copied(policy, count);
        let asked = self.visits.iter().flatten();
        let met = real(asked.clone().filter(|tile| copied.contains(tile)).count());
        let asked = real(asked.count());
        Row {
            what: format!("paper, {name}: {} % of tiles", share * 100.0),
            tiles: real(count) / real(self.all.len()),
            bytes_before: unsigned(count) * PAPERS_TILE,
            bytes_asked: 0,
            met: met / asked,
            mean_ms: (1.0 - met / asked) * self.edge_ms,
        }
    }

    /// One of our copies; `keeps`: missing ranges are fetched into the copy and retained.
    fn ours(&self, what: String, growing: Growing, keeps: bool) -> Result<Row, Failure> {
        let expected = self.edge.snapshot()?;
        let mut cloud = Cloud::new(self.edge, &self.bench.path("cloud"), growing)?;
        let before = cloud.travelled;
        let mut here = 0;
        for tile in self.all.all() {
            here += usize::from(cloud.asks(tile, &expected, false)?.is_some());
        }
        let (mut met, mut asked, mut took) = (0.0, 0.0, 0.0);
        for tile in self.visits.iter().flatten() {
            let begun = Instant::now();
            let rounds = cloud.asks(tile, &expected, keeps)?;
            let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
            asked += 1.0;
            took += match rounds {
                Some(0) => milliseconds,
                Some(rounds) => f64::from(rounds) * self.edge_ms,
                None => self.edge_ms,
            };
            met += f64::from(u8::from(rounds == Some(0)));
        }
        Ok(Row {
            what,
            tiles: real(here) / real(self.all.len()),
            bytes_before: before,
            bytes_asked: cloud.travelled - before,
            met: met / asked,
            mean_ms: took / asked,
        })
    }
}

fn print(rows: &[Row], edge_ms: f64) {
    let line = |row: &Row| {
        vec![
            row.what.clone(),
            format!("{:.1} %", row.tiles * 100.0),
            format!("{:.2}", real(row.bytes_before) / 1e6),
            format!("{:.2}", real(row.bytes_asked) / 1e6),
            format!("{:.0} %", row.met * 100.0),
            format!("{:.0} ms", row.mean_ms),
            format!("{:.1} ×", edge_ms / row.mean_ms),
        ]
    };
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    table::print(
        &[
            "policy",
            "tiles at the cloud",
            "MB before",
            "MB on demand",
            "met",
            "mean",
            "none by it",
        ],
        &lines,
    );
}

fn judge(rows: &[Row], targets: &mut Targets) {
    let mean = |what: &str| {
        let found = rows.iter().find(|row| row.what.starts_with(what));
        found.map_or(f64::INFINITY, |row| row.mean_ms)
    };
    let none = mean("paper, none");
    let papers = |name: &str| mean(&format!("paper, {name}"));
    targets.add(
        "paper's both: none by it",
        Bound::AtLeast(4.0),
        " ×",
        none / papers("both"),
    );
    targets.add(
        "paper's deviation by periodic",
        Bound::AtMost(1.0),
        " ×",
        papers("deviation") / papers("periodic"),
    );
    targets.add(
        "paper's both by the better of the two",
        Bound::AtMost(1.0),
        " ×",
        papers("both") / papers("deviation").min(papers("periodic")),
    );
    let five = mean("ours, shares: bytes of 5 %");
    targets.add(
        "ours, bytes of 5 % of tiles: none by it",
        Bound::AtLeast(6.0),
        " ×",
        none / five,
    );
    let two = mean("ours, shares, kept: bytes of 2 %");
    targets.add(
        "ours, bytes of 2 % of tiles, what is missed is kept: none by it",
        Bound::AtLeast(4.0),
        " ×",
        none / two,
    );
}
