//! Ways to the medium (docs/io.md; TIERS, 5).
//!
//! `cold`: scans of rows that are not in the system's page cache, one leaf after another and with
//! leaves read ahead, through a queue of the kernel and by owners of queue sets; and the depth of
//! the medium, measured in the same run. The medium is that of `--scratch`, without emulation.
//! `compaction`: reads concurrent with writers and compaction, with queue sets and by direct calls,
//! over a throttled device, which is an emulation that sleeps; and the same with all data in
//! memory.

mod cold;
mod compaction;
mod throttled;

use crate::harness::{Bench, Common, Failure, Targets};
use serde::Serialize;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Rows of the database that is scanned.
    #[arg(long, default_value_t = 10_000_000)]
    points: usize,
    /// Streams over which they are divided; each is scanned after the other.
    #[arg(long, default_value_t = 100)]
    streams: usize,
    /// Leaves that are read ahead at once.
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Reads of a round of `compaction`, by each of four readers.
    #[arg(long, default_value_t = 300)]
    reads: usize,
    /// Time of the throttled device to read 4 KiB, in microseconds; a write takes twice as long.
    #[arg(long, default_value_t = 200)]
    read_us: u64,
    /// Channels of the throttled device, and queue sets before it.
    #[arg(long, default_value_t = 4)]
    channels: usize,
    /// Only `cold` or `compaction`.
    #[arg(long, default_value = "")]
    part: String,
}

#[derive(Serialize)]
struct Results {
    cold: Option<cold::Cold>,
    compaction: Vec<compaction::ConcurrentRounds>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("ways", &arguments.common)?;
    let mut targets = Targets::default();
    let wants = |part: &str| arguments.part.is_empty() || arguments.part == part;
    let mut results = Results {
        cold: None,
        compaction: Vec::new(),
    };
    if wants("cold") {
        results.cold = Some(cold::measure(&bench, arguments, &mut targets)?);
    }
    if wants("compaction") {
        results.compaction = compaction::measure(&bench, arguments, &mut targets)?;
    }
    bench.finish(&results, &targets)
}
