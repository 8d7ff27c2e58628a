//! The GOLSM paper's measurements (rows G-1 to G-8): ours, SQLite tuned, redb, and
//! SQLite as in the paper.
//!
//! Ten tags with a point a second. A write stores all tags over a window; the next window starts
//! later by twice its width, or at a random time. A read requests three tags over a window at a
//! random time of three hours. All stores get the same points, the same durability and the same
//! windows, and must return the same points.

mod read;
mod write;

use crate::baselines::Survival;
use crate::harness::{Bench, Bound, Common, Failure, Random, Targets};
use crate::machine::SyncProbe;
use serde::Serialize;

/// Tags of the paper.
const TAGS: usize = 10;
/// Tags of a read.
const READ_TAGS: usize = 3;
/// Time of the first point, in seconds since 1970.
const BEGIN: i64 = 1_700_000_000;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Widths of written windows, in seconds.
    #[arg(long, value_delimiter = ',', default_value = "5,60,300,1500")]
    widths: Vec<u32>,
    /// Points that a store writes in a round, about; SQLite as in the paper writes a fifth of that.
    #[arg(long, default_value_t = 300_000)]
    points: u64,
    /// Points that a round of linear against random order writes, with its drain.
    #[arg(long, default_value_t = 3_000_000)]
    random_points: u64,
    /// Seconds of data in the reads' store.
    #[arg(long, default_value_t = 10_800)]
    seconds: u32,
    /// Reads of a round, of the narrow window; a twentieth of that of the wide one.
    #[arg(long, default_value_t = 400)]
    reads: u64,
    /// Only this part: write, random or read.
    #[arg(long)]
    only: Option<String>,
}

#[derive(Default, Serialize)]
struct Results {
    writes: Vec<write::Measurement>,
    random: Vec<write::RandomMeasurement>,
    reads: Vec<read::Measurement>,
    bytes_per_point: Vec<(String, f64)>,
    sync_median_us: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("golsm", &arguments.common)?;
    let mut probe = SyncProbe::new(bench.path("probe"))?;
    let mut results = Results::default();
    let mut targets = Targets::default();
    let wants = |part: &str| arguments.only.as_deref().is_none_or(|only| only == part);
    if wants("write") {
        for survives in [Survival::PowerCut, Survival::Process] {
            for width in &arguments.widths {
                write::linear(
                    &bench,
                    arguments,
                    survives,
                    *width,
                    &mut probe,
                    &mut results,
                    &mut targets,
                )?;
            }
        }
        write::print(&results.writes);
    }
    if wants("random") {
        write::random(&bench, arguments, &mut probe, &mut results, &mut targets)?;
    }
    if wants("read") {
        read::run(&bench, arguments, &mut results, &mut targets)?;
    }
    results.sync_median_us = probe.median_us();
    bench.finish(&results, &targets)
}

/// Values of a tag from one second on: a temperature with two decimals that changes slowly, as
/// measured by sensors.
struct Sensor {
    random: Random,
    hundredths: i64,
}

impl Sensor {
    fn new(tag: usize) -> Sensor {
        Sensor {
            random: Random::new(tag as u64 + 1),
            hundredths: 2_000 + 100 * tag as i64,
        }
    }

    fn next(&mut self) -> f64 {
        self.hundredths += self.random.below(11) as i64 - 5;
        self.hundredths as f64 / 100.0
    }
}

/// `count` values of every tag; windows use values from any position.
fn sensor_values(count: usize) -> Vec<Vec<f64>> {
    (0..TAGS)
        .map(|tag| {
            let mut sensor = Sensor::new(tag);
            (0..count).map(|_| sensor.next()).collect()
        })
        .collect()
}

/// Targets against each of these rivals.
fn beat(
    targets: &mut Targets,
    what: &str,
    ratios: &[(&str, f64)],
    wanted: f64,
    sync_median_us: Option<f64>,
) {
    for (rival, ratio) in ratios {
        let what = format!("{what}, faster than {rival}");
        match sync_median_us {
            Some(sync) => {
                targets.add_if_fast_sync(what, Bound::AtLeast(wanted), " ×", *ratio, sync);
            }
            None => targets.add(what, Bound::AtLeast(wanted), " ×", *ratio),
        }
    }
}
