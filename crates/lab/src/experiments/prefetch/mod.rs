//! Tiles at the cloud before a visit (rows R-13): the RESPAWN paper's policies over
//! tiles, and copies of ours, before the same visits.
//!
//! The weeks are generated ([`sensors`]), visits are drawn from two models that do not know the
//! policies: browsing at random ([`visits`]), and a search for events as the paper describes its
//! users ([`events`]), whose free parameters are swept ([`sweep`]). A tile at the cloud costs the
//! time of its answer, a missing one 340 ms, as in the paper. The paper's policies are simulated by
//! tiles ([`tiles`]); ours by the shipped planner, limited by bytes sent ([`copies`]). Every tile
//! of a copy is compared with the edge's. [`load`] has many users and edges at once (rows R-15).

mod copies;
mod events;
pub(crate) mod load;
mod sensors;
mod sweep;
mod tiles;
mod visits;

use crate::harness::{Bench, Bound, Common, Failure, Targets, real, unsigned, whole};
use crate::table;
use copies::{Cloud, Edge, Growing};
use events::Habits;
use headwater_protocol::replication::Policy;
use sensors::Channel;
use serde::Serialize;
use std::collections::HashSet;
use std::time::Instant;
use sweep::Migrated;
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
    /// Seed of the weeks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only one of the models of visits.
    #[arg(long)]
    model: Option<Model>,
    /// Only the paper's policies, without copies of ours.
    #[arg(long)]
    papers_only: bool,
}

/// Model of visits, each over a week of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Model {
    /// Zooms, moves and looks at other sensors, at random.
    Browse,
    /// A search for events, from the overview down.
    Events,
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

/// Rows of a model.
#[derive(Serialize)]
struct ModelResults {
    model: Model,
    tiles: usize,
    asked: usize,
    edge_bytes: Option<u64>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Results {
    models: Vec<ModelResults>,
    /// Policies of the paper under all habits of users; only with the model of events.
    sweep: Vec<sweep::Cell>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::once("migration", &arguments.common)?;
    let is_asked = |model: &Model| arguments.model.is_none_or(|only| only == *model);
    let mut targets = Targets::default();
    let mut models = Vec::new();
    let mut sweep = Vec::new();
    let week = sensors::week(arguments.seed);
    for model in [Model::Browse, Model::Events]
        .iter()
        .filter(|m| is_asked(m))
    {
        models.push(match model {
            Model::Browse => {
                let visits = visits::visits(&week, arguments.visits);
                measure(&bench, arguments, *model, (&week, &visits), &mut targets)?.0
            }
            Model::Events => {
                let occupied = sensors::occupied_week(arguments.seed);
                let sums = events::sums(&occupied);
                let visits = events::visits(&sums, Habits::DEFAULT, arguments.visits);
                let visits: Vec<Vec<Tile>> = visits.into_iter().map(|v| v.concat()).collect();
                let (found, present) = measure(
                    &bench,
                    arguments,
                    *model,
                    (&occupied, &visits),
                    &mut targets,
                )?;
                for (name, channels) in [("occupied", &occupied), ("events at any hour", &week)] {
                    let migrated = Migrated::by_paper(channels);
                    sweep.extend(sweep::sweep(name, channels, &migrated, arguments.visits));
                }
                if let Some(present) = present {
                    let name = "occupied, ours by bytes of 2 %";
                    sweep.extend(sweep::sweep(name, &occupied, &present, arguments.visits));
                }
                sweep::print(&sweep, arguments.edge_ms);
                found
            }
        });
    }
    bench.finish(&Results { models, sweep }, &targets)
}

/// Rows of a model, over its week and with its visits; and the tiles of copies of ours by policy.
fn measure(
    bench: &Bench,
    arguments: &Arguments,
    model: Model,
    (channels, visits): (&[Channel], &[Vec<Tile>]),
    targets: &mut Targets,
) -> Result<(ModelResults, Option<Migrated>), Failure> {
    let all = Tiles::of(channels);
    let asked = visits.iter().map(Vec::len).sum();
    println!(
        "\n{model:?}: {} tiles, {asked} asked for in {} visits",
        all.len(),
        visits.len()
    );
    let papers = Papers {
        edge_ms: arguments.edge_ms,
        visits,
        all: &all,
    };
    let mut rows = papers.rows();
    judge_papers(model, &rows, targets);
    let (mut edge_bytes, mut present) = (None, None);
    if !arguments.papers_only {
        let edge = Edge::new(&bench.path("edge"), channels)?;
        println!("the edge has {} bytes", edge.bytes);
        let trial = Trial {
            edge_ms: arguments.edge_ms,
            visits,
            all: &all,
            edge: &edge,
            bench,
        };
        let (ours, by_policy) = trial.rows()?;
        rows.extend(ours);
        present = Some(by_policy);
        judge_ours(model, &rows, targets);
        edge_bytes = Some(edge.bytes);
    }
    println!();
    print(&rows, arguments.edge_ms);
    let results = ModelResults {
        model,
        tiles: all.len(),
        asked,
        edge_bytes,
        rows,
    };
    Ok((results, present))
}

/// The paper's policies before visits.
struct Papers<'a> {
    edge_ms: f64,
    visits: &'a [Vec<Tile>],
    all: &'a Tiles,
}

impl Papers<'_> {
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for share in [0.05, 0.02] {
            for (policy, name) in tiles::Policy::ALL {
                if policy == tiles::Policy::None && share != 0.05 {
                    continue;
                }
                let copied = self.all.copied(policy, share);
                rows.push(self.row(format!("paper, {name}"), &copied, share));
                if !policy.is_relative() && policy != tiles::Policy::None {
                    let copied = self.all.copied_by_channel(policy, share);
                    rows.push(self.row(format!("paper by channel, {name}"), &copied, share));
                }
            }
        }
        rows
    }

    /// A policy of the paper. The time of a tile at the cloud is omitted, since it is the same for
    /// all policies; our time is in the same table.
    fn row(&self, what: String, copied: &HashSet<Tile>, share: f64) -> Row {
        let asked = self.visits.iter().flatten();
        let met = real(asked.clone().filter(|tile| copied.contains(tile)).count());
        let asked = real(asked.count());
        Row {
            what: format!("{what}: {} % of tiles", share * 100.0),
            tiles: real(copied.len()) / real(self.all.len()),
            bytes_before: unsigned(copied.len()) * PAPERS_TILE,
            bytes_asked: 0,
            met: met / asked,
            mean_ms: (1.0 - met / asked) * self.edge_ms,
        }
    }
}

struct Trial<'a> {
    edge_ms: f64,
    visits: &'a [Vec<Tile>],
    all: &'a Tiles,
    edge: &'a Edge,
    bench: &'a Bench,
}

/// Share of the paper's tiles whose bytes the policies of the shipped planner are compared with:
/// the greatest with which a copy lacks tiles.
const COMPARED: f64 = 0.02;

/// Copies of ours: the subscription, and the base of the share of bytes.
const OURS: [Ours; 13] = [
    (
        "shares",
        Policy::Shares,
        None,
        ByteShare::Paper(0.05),
        false,
    ),
    (
        "periodic",
        Policy::Periodic,
        None,
        ByteShare::Paper(0.02),
        false,
    ),
    (
        "deviation",
        Policy::Deviation,
        None,
        ByteShare::Paper(0.02),
        false,
    ),
    ("both", Policy::Both, None, ByteShare::Paper(0.02), false),
    (
        "shares",
        Policy::Shares,
        None,
        ByteShare::Paper(0.02),
        false,
    ),
    (
        "shares, kept",
        Policy::Shares,
        None,
        ByteShare::Paper(0.02),
        true,
    ),
    (
        "periodic",
        Policy::Periodic,
        None,
        ByteShare::Paper(0.01),
        false,
    ),
    (
        "deviation",
        Policy::Deviation,
        None,
        ByteShare::Paper(0.01),
        false,
    ),
    ("both", Policy::Both, None, ByteShare::Paper(0.01), false),
    (
        "shares",
        Policy::Shares,
        None,
        ByteShare::Paper(0.01),
        false,
    ),
    (
        "shares, kept",
        Policy::Shares,
        None,
        ByteShare::Paper(0.01),
        true,
    ),
    (
        "level 10",
        Policy::Shares,
        Some(10),
        ByteShare::Store(0.05),
        false,
    ),
    (
        "level 10, kept",
        Policy::Shares,
        Some(10),
        ByteShare::Store(0.05),
        true,
    ),
];

type Ours = (&'static str, Policy, Option<i32>, ByteShare, bool);

/// Basis of a share of bytes.
#[derive(Clone, Copy)]
enum ByteShare {
    /// Share of the paper's tiles.
    Paper(f64),
    /// Share of the edge's stored bytes.
    Store(f64),
}

impl Trial<'_> {
    /// Rows of all copies, and the tiles of those by each policy of the paper.
    fn rows(&self) -> Result<(Vec<Row>, Migrated), Failure> {
        let mut rows = Vec::new();
        let mut by_policy = [Policy::Periodic, Policy::Deviation, Policy::Both]
            .map(|policy| (policy, HashSet::new()));
        for (name, policy, level, share, keeps) in OURS {
            let (bytes, of) = match share {
                ByteShare::Paper(part) => (
                    unsigned(whole(real(self.all.len()) * part)) * PAPERS_TILE,
                    format!("bytes of {} % of the paper's tiles", part * 100.0),
                ),
                ByteShare::Store(part) => (
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
            let (row, present) = self.ours(what, growing, keeps)?;
            rows.push(row);
            if matches!(share, ByteShare::Paper(part) if part == COMPARED) {
                let of_policy = by_policy.iter_mut().find(|(of, _)| *of == policy);
                of_policy
                    .into_iter()
                    .for_each(|(_, tiles)| tiles.clone_from(&present));
            }
        }
        Ok((rows, Migrated(by_policy.map(|(_, tiles)| tiles))))
    }

    /// One of our copies; `keeps`: missing ranges are fetched into the copy and retained.
    fn ours(
        &self,
        what: String,
        growing: Growing,
        keeps: bool,
    ) -> Result<(Row, HashSet<Tile>), Failure> {
        let expected = self.edge.snapshot()?;
        let mut cloud = Cloud::new(self.edge, &self.bench.path("cloud"), growing)?;
        let before = cloud.travelled;
        let mut here = HashSet::new();
        for tile in self.all.all() {
            if cloud.fetch_tile(tile, &expected, false)?.is_some() {
                here.insert(*tile);
            }
        }
        let (mut met, mut asked, mut took) = (0.0, 0.0, 0.0);
        for tile in self.visits.iter().flatten() {
            let begun = Instant::now();
            let rounds = cloud.fetch_tile(tile, &expected, keeps)?;
            let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
            asked += 1.0;
            took += match rounds {
                Some(0) => milliseconds,
                Some(rounds) => f64::from(rounds) * self.edge_ms,
                None => self.edge_ms,
            };
            met += f64::from(u8::from(rounds == Some(0)));
        }
        let row = Row {
            what,
            tiles: real(here.len()) / real(self.all.len()),
            bytes_before: before,
            bytes_asked: cloud.travelled - before,
            met: met / asked,
            mean_ms: took / asked,
        };
        Ok((row, here))
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

fn mean(rows: &[Row], what: &str) -> f64 {
    let found = rows.iter().find(|row| row.what.starts_with(what));
    found.map_or(f64::INFINITY, |row| row.mean_ms)
}

/// The paper's results. Browsing was judged by policies over all channels together, and is so
/// still; the paper decides for each channel by itself.
fn judge_papers(model: Model, rows: &[Row], targets: &mut Targets) {
    let scope = match model {
        Model::Browse => "paper",
        Model::Events => "paper by channel",
    };
    let name = format!("{model:?}, {scope}");
    let mean = |what: &str| mean(rows, what);
    let papers = |policy: &str| mean(&format!("{scope}, {policy}"));
    let none = mean("paper, none");
    targets.add(
        format!("{name}: none by both"),
        Bound::AtLeast(4.0),
        " ×",
        none / papers("both"),
    );
    targets.add(
        format!("{name}: periodic by none"),
        Bound::AtMost(1.0),
        " ×",
        papers("periodic") / none,
    );
    targets.add(
        format!("{name}: deviation by periodic"),
        Bound::AtMost(1.0),
        " ×",
        papers("deviation") / papers("periodic"),
    );
    targets.add(
        format!("{name}: both by the better of the two"),
        Bound::AtMost(1.0),
        " ×",
        papers("both") / papers("deviation").min(papers("periodic")),
    );
}

fn judge_ours(model: Model, rows: &[Row], targets: &mut Targets) {
    let none = mean(rows, "paper, none");
    let five = mean(rows, "ours, shares: bytes of 5 %");
    targets.add(
        format!("{model:?}, ours, bytes of 5 % of tiles: none by it"),
        Bound::AtLeast(6.0),
        " ×",
        none / five,
    );
    let two = mean(rows, "ours, shares, kept: bytes of 2 %");
    targets.add(
        format!("{model:?}, ours, bytes of 2 % of tiles, what is missed is kept: none by it"),
        Bound::AtLeast(4.0),
        " ×",
        none / two,
    );
    // The paper's order under policies of the shipped planner, where bytes are scarce.
    let of = |policy: &str| mean(rows, &format!("ours, {policy}: bytes of 2 %"));
    let (periodic, deviation, both) = (of("periodic"), of("deviation"), of("both"));
    let ratios = [
        ("periodic by none", periodic / none),
        ("deviation by periodic", deviation / periodic),
        ("both by deviation", both / deviation),
    ];
    for (what, ratio) in ratios {
        let what = format!("{model:?}, ours, bytes of 2 % of tiles: {what}");
        targets.add(what, Bound::AtMost(1.0), " ×", ratio);
    }
    targets.add(
        format!("{model:?}, ours, bytes of 2 % of tiles: none by both"),
        Bound::AtLeast(4.0),
        " ×",
        none / both,
    );
}
