//! Tiles of one channel (rows ): their latency at every level, as the
//! store grows, and while all points are still in memory; overviews of the whole channel, compared
//! with SQLite; ingest as the store grows, and by the size of batches.
//!
//! The channel is a sensor with one value a second. Every overview is compared with SQLite's
//! answer, and every tile's count with the number of seconds it spans.

mod batches;
mod channel;
mod grow;
mod overview;
mod read;

use crate::harness::{Bench, Bound, Common, Failure, Rounds, Targets};
use serde::Serialize;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Points of the smaller store.
    #[arg(long, default_value_t = 1_000_000)]
    points: u64,
    /// Points of the larger one; the target is set for 100,000,000.
    #[arg(long, default_value_t = 10_000_000)]
    large: u64,
    /// Tiles read in a round.
    #[arg(long, default_value_t = 300)]
    tiles: usize,
    /// Sizes of the stores that overviews are taken of, at most a million of them in SQLite too.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    overviews: Vec<u64>,
    /// Sizes of batches.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100, 1_000, 10_000, 100_000])]
    batches: Vec<u64>,
    /// Points of each ingest by batch size, at most: small batches write fewer.
    #[arg(long, default_value_t = 200_000)]
    batch_points: u64,
}

#[derive(Serialize)]
struct Results {
    growth: Vec<grow::Stretch>,
    /// Size of the larger store, pyramid included, after compaction.
    bytes_per_point: f64,
    tiles: Vec<read::Latencies>,
    overviews: Vec<Rounds>,
    batches: Vec<Rounds>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("tiles", &arguments.common)?;
    let mut targets = Targets::default();
    let (small, large) = (bench.path("small"), bench.path("large"));
    grow::fill(&small, arguments.points)?;
    let (growth, bytes_per_point) = grow::fill(&large, arguments.large)?;
    grow::judge(&growth, bytes_per_point, &mut targets);
    let tiles = read::tiles(&bench, arguments, &small, &large)?;
    read::judge(&tiles, &mut targets)?;
    let overviews = overview::measure(&bench, &arguments.overviews, &large, arguments.large)?;
    overview::judge(&overviews, &mut targets);
    let batches = batches::measure(&bench, &arguments.batches, arguments.batch_points)?;
    batches::judge(&batches, &mut targets);
    let results = Results {
        growth,
        bytes_per_point,
        tiles,
        overviews,
        batches,
    };
    bench.finish(&results, &targets)
}

/// Name of rounds: the measurement and the number of points.
fn name_of(what: &str, points: u64) -> String {
    format!("{what}, {points} points")
}

/// Adds the ratio of two rounds as a target, if both are there.
fn add_ratio(
    targets: &mut Targets,
    what: String,
    bound: Bound,
    a: Option<&Rounds>,
    b: Option<&Rounds>,
) {
    if let (Some(a), Some(b)) = (a, b) {
        targets.add(what, bound, " ×", a.times_of(b));
    }
}
