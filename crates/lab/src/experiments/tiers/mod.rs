//! A small fast medium beside a large slow one (rows E-2 to E-4, E-6, E-13;
//! docs/tiers.md).
//!
//! `single`: one row after the other, each durable, with the log on the medium of the database and
//! on a fast one, beside SQLite. `log`: the EVENT paper's Stock events in groups of 1 and 25.
//! `opening`: after the process was killed. `index`: tiles, aggregates and filters with the index
//! in the fast tier, every read of the large medium taking 200 µs.
//!
//! There is no persistent memory here. The emulations are a file system in memory (`/dev/shm`),
//! written like persistent memory, and a model of the device's speed before it
//! ([`headwater_io::PmemModel`]); every row names its own.

mod index;
mod log;
mod slow;

use crate::harness::{Bench, Common, Failure, Rounds, Targets};
use headwater::{Database, Options};
use headwater_engine::TierParts;
use headwater_io::{Env, Media, PmemCosts, PmemFiles, PmemModel};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// A folder in a file system in memory, for the fast tier.
    #[arg(long, default_value = "/dev/shm")]
    fast: PathBuf,
    /// Rows that are written one by one in a round.
    #[arg(long, default_value_t = 20_000)]
    rows: usize,
    /// Stock events of a round.
    #[arg(long, default_value_t = 500_000)]
    events: usize,
    /// Rows of the database that is queried.
    #[arg(long, default_value_t = 4_000_000)]
    points: usize,
    /// Processor to which everything is pinned; not pinned unless given.
    #[arg(long)]
    processor: Option<usize>,
    /// Only `single`, `log`, `opening` or `index`.
    #[arg(long, default_value = "")]
    part: String,
}

#[derive(Serialize)]
struct Results {
    single: Vec<Rounds>,
    stock: Vec<log::Stock>,
    opening: Option<log::Opening>,
    index: Vec<index::QueryCase>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(processor) = arguments.processor {
        let mut only = rustix::thread::CpuSet::new();
        only.set(processor);
        rustix::thread::sched_setaffinity(None, &only)?;
        println!("everything on processor {processor}");
    }
    let bench = Bench::new("tiers", &arguments.common)?;
    let fast = FastTierDir::new(&arguments.fast)?;
    let mut targets = Targets::default();
    let wants = |part: &str| arguments.part.is_empty() || arguments.part == part;
    let mut results = Results {
        single: Vec::new(),
        stock: Vec::new(),
        opening: None,
        index: Vec::new(),
    };
    if wants("single") {
        results.single = log::single(&bench, &fast, arguments.rows, &mut targets)?;
    }
    if wants("log") {
        results.stock = log::stock(&bench, &fast, arguments.events, &mut targets)?;
    }
    if wants("opening") {
        results.opening = Some(log::opening(&bench, &fast, &mut targets)?);
    }
    if wants("index") {
        results.index = index::measure(&bench, &fast, arguments.points, &mut targets)?;
    }
    bench.finish(&results, &targets)
}

/// The folder of fast tiers, which is removed in the end.
struct FastTierDir(PathBuf);

impl FastTierDir {
    fn new(within: &Path) -> Result<FastTierDir, Failure> {
        let dir = within.join(format!("headwater-lab-tiers-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(FastTierDir(dir))
    }

    /// An unused folder for the tier of a database.
    fn tier(&self, of: &Path) -> PathBuf {
        self.0.join(of.file_name().unwrap_or_default())
    }
}

impl Drop for FastTierDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("lab: {}: {error}", self.0.display());
        }
    }
}

/// Device of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogOn {
    /// The medium of the database.
    Bulk,
    /// A file system in memory, written as persistent memory is.
    Memory,
    /// The same with a model of the device's speed.
    Model,
    /// The memory of the process: without a durable log, as the bound of a log's cost.
    Process,
}

impl LogOn {
    fn name(self) -> &'static str {
        match self {
            LogOn::Bulk => "log on the database's medium",
            LogOn::Memory => "log in a file system in memory",
            LogOn::Model => "log behind a model of Optane's speed",
            LogOn::Process => "log in the process's memory, gone with it",
        }
    }

    fn open(self, mut options: Options, fast: &FastTierDir) -> Result<Database, Failure> {
        let mut env = Env::system();
        match self {
            LogOn::Bulk => {}
            LogOn::Memory | LogOn::Model => {
                options.fast_dir = Some(fast.tier(&options.dir));
                options.fast_parts = TierParts {
                    log: true,
                    ..TierParts::NONE
                };
            }
            LogOn::Process => {
                env.media = Media {
                    log: Some(Arc::new(headwater_io::MemoryFiles::new())),
                    ..env.media
                };
            }
        }
        if self == LogOn::Model {
            let below = Arc::new(PmemFiles::new());
            env.media.fast = Some(Arc::new(PmemModel::new(below, PmemCosts::OPTANE)));
        }
        Ok(Database::open_in(env, options)?)
    }
}
