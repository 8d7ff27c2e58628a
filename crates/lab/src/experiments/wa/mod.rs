//! Late data (the SEP paper): events rewritten by the policies, by a plain simulation, by the
//! engine, and by the models.

mod adaptive;
mod arrivals;
mod choice;
mod cost;
mod counts;
mod engine;
mod file;
mod load;
mod models;
mod plan;
mod plot;
mod production;
mod reference;
mod sets;
mod sweep;

use crate::harness::{Bench, Common, Failure, Targets};
use headwater::MergeScope;
use plan::{Plan, Sharing};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rows `t_g,t_a` in the order of arrival: run one policy over them and print the engine's
    /// counters.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Events of memory.
    #[arg(long, default_value_t = 512)]
    memory: usize,
    /// Events of a leaf.
    #[arg(long, default_value_t = 512)]
    leaf: usize,
    /// `conventional`, or `separate:N` with N events of the memory for those in order.
    #[arg(long, default_value = "conventional")]
    policy: Sharing,
    /// Newest events that a flush keeps back.
    #[arg(long, default_value_t = 0)]
    retain: usize,
    /// Scope of a merge: leaves that the range overlaps, or only those that receive an event.
    #[arg(long, value_parser = scope, default_value = "overlap")]
    scope: MergeScope,
    /// The results as JSON: to standard output with --csv, else to this file.
    #[arg(long, num_args = 0..=1)]
    json: Option<Option<PathBuf>>,
    /// Events of each set; the paper has 10,000,000. Production settings get ten times as many.
    #[arg(long, default_value_t = 1_000_000)]
    points: usize,
    /// Where the made-up events begin: another seed, other events of the same laws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this part; may be repeated.
    #[arg(long, value_enum)]
    only: Vec<Study>,
    /// Where the files of real delays are; those that are not there are left out.
    #[arg(long, default_value = "data")]
    data: PathBuf,
    /// Write the plots of the docs into this folder.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Where files are made; a folder of its own is made in it and removed.
    #[arg(long, default_value = "/tmp")]
    scratch: PathBuf,
    /// Rounds of what is timed (ingest, queries) that count, after one to warm up.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// A part of the experiment.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Study {
    /// The engine's counters beside the simulation's.
    Counts,
    /// Costs of each policy of the paper on each set.
    Sweep,
    /// The paper's formulas and our model beside what is counted (sweeps too).
    Models,
    /// The choice from a window of what arrives, and its regret (sweeps too).
    Choice,
    /// The engine choosing while it runs, on sequences of laws, and with all knobs.
    Adaptive,
    /// Events and bytes written with production settings on files.
    Production,
    /// Cost of the analyzer of a shard.
    Cost,
    /// Throughput on files, adaptive beside conventional.
    Ingest,
    /// Queries while sets are written, adaptive beside conventional.
    Queries,
}

/// Sizes of the sets, and of all sets that follow their laws.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Sizes {
    pub(crate) points: usize,
    pub(crate) seed: u64,
}

fn scope(text: &str) -> Result<MergeScope, String> {
    match text {
        "overlap" => Ok(MergeScope::Overlap),
        "touched" => Ok(MergeScope::Touched),
        _ => Err(format!("`{text}`: a scope is `overlap` or `touched`")),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(path) = &arguments.csv {
        let plan = Plan {
            memory: arguments.memory,
            leaf: arguments.leaf,
            sharing: arguments.policy,
            retain: arguments.retain,
            scope: arguments.scope,
        };
        return file::run(path, &plan, arguments.json.is_some());
    }
    let json = match &arguments.json {
        Some(None) => return Err("--json needs a FILE without --csv".into()),
        Some(Some(path)) => Some(path.clone()),
        None => None,
    };
    let sizes = Sizes {
        points: arguments.points.max(1_000),
        seed: arguments.seed,
    };
    let common = Common {
        scratch: arguments.scratch.clone(),
        rounds: arguments.rounds.max(1),
        warm_up: usize::from(arguments.rounds > 1),
        json,
    };
    let bench = Bench::once("wa", &common)?;
    println!("{} events of each set, seed {}", sizes.points, sizes.seed);
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut targets = Targets::default();
    let mut results = Results {
        sizes,
        ..Results::default()
    };
    if wanted(Study::Counts) {
        results.counts = counts::run(&sizes, &mut targets)?;
    }
    let parts = [Study::Sweep, Study::Models, Study::Choice];
    if parts.into_iter().any(wanted) {
        results.sweep = sweep::run(&sizes, &arguments.data)?;
    }
    if wanted(Study::Models) {
        results.subsequent = models::subsequent(&sizes, &mut targets)?;
        results.models = models::run(&results.sweep, &sizes, &mut targets)?;
    }
    if wanted(Study::Choice) {
        results.choice = choice::run(&results.sweep, &sizes, &mut targets)?;
    }
    if wanted(Study::Adaptive) {
        results.sequences = adaptive::sequences(&sizes, &mut targets)?;
        results.all_knobs = adaptive::all_knobs(&sizes, &mut targets)?;
    }
    if wanted(Study::Production) {
        results.production = Some(production::run(&bench, &sizes, &mut targets)?);
    }
    if wanted(Study::Cost) {
        results.cost = cost::run(&sizes, &mut targets)?;
    }
    if wanted(Study::Ingest) {
        results.ingest = load::ingest(&bench, &sizes, &mut targets)?;
    }
    if wanted(Study::Queries) {
        results.queries = load::queries(&bench, &sizes, &mut targets)?;
    }
    if let Some(dir) = &arguments.plots {
        results.plot(dir)?;
    }
    bench.finish(&results, &targets)
}

#[derive(Default, Serialize)]
struct Results {
    sizes: Sizes,
    counts: Vec<counts::Row>,
    sweep: Vec<sweep::SweepResult>,
    subsequent: Vec<models::Subsequent>,
    models: Vec<models::Row>,
    choice: Vec<choice::Row>,
    sequences: Vec<adaptive::Row>,
    all_knobs: Vec<adaptive::All>,
    production: Option<production::Results>,
    cost: Vec<cost::Row>,
    ingest: Vec<load::Ingest>,
    queries: Vec<load::Query>,
}

impl Results {
    /// Writes the plots of the experiments that ran.
    fn plot(&self, dir: &Path) -> Result<(), Failure> {
        let write = |file: &str, caption: &str, columns, panels: Vec<plot::Panel>| {
            if panels
                .iter()
                .all(|p| p.series.iter().all(|s| s.points.is_empty()))
            {
                return Ok(());
            }
            plot::write(&dir.join(file), caption, columns, &panels)
        };
        write(
            "figure-5.svg",
            "Stored events newer than the oldest in memory, counted and predicted",
            2,
            models::figure_5(&self.subsequent),
        )?;
        write(
            "figure-7.svg",
            "Write amplification of M6 over the share of memory for events in order",
            1,
            models::figure_7(&self.models),
        )?;
        write(
            "figure-9.svg",
            "Write amplification of M1 to M12 over the share of memory for events in order",
            3,
            models::figure_9(&self.models),
        )?;
        write(
            "figure-10.svg",
            "Write amplification while laws of delays change",
            3,
            adaptive::figure_10(&self.sequences),
        )
    }
}

/// Calls a function for each item, on all cores, and returns the results in order. Only for counts:
/// times would be those of a busy machine.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item).map_err(|error| error.to_string());
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .map_err(|_| "a thread of the experiment panicked")?;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter()
        .map(|(_, result)| result.map_err(Failure::from))
        .collect()
}
