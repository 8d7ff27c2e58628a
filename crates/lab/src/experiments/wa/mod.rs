//! Late data (the SEP paper): what policies write again, by a plain simulation, by the engine, and by the models.

mod arrivals;
mod counts;
mod engine;
mod file;
mod plan;
mod reference;
mod sets;
mod sweep;

use crate::harness::{Bench, Common, Failure, Targets};
use headwater::MergeScope;
use plan::{Plan, Sharing};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rows `t_g,t_a` in the order of arrival: run one policy over them and print the engine's counters.
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
    /// What a merge rewrites: leaves that the range overlaps, or only those that receive an event.
    #[arg(long, value_parser = scope, default_value = "overlap")]
    scope: MergeScope,
    /// The figures as JSON: to standard output with --csv, else to this file.
    #[arg(long, num_args = 0..=1)]
    json: Option<Option<PathBuf>>,
    /// Events of each set; the paper has 10,000,000.
    #[arg(long, default_value_t = 1_000_000)]
    points: usize,
    /// Where the made-up events begin: another seed, other events of the same laws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this part; may be repeated.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Where the files of real delays are; those that are not there are left out.
    #[arg(long, default_value = "data")]
    data: PathBuf,
    /// Where files are made; a folder of its own is made in it and removed.
    #[arg(long, default_value = "/tmp")]
    scratch: PathBuf,
}

/// A part of the experiment.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The engine's counters beside the simulation's.
    Counts,
    /// What each policy of the paper costs on each set.
    Sweep,
}

/// How large the sets are, and which of all that follow their laws.
#[derive(Clone, Copy, Debug, Serialize)]
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
        rounds: 1,
        warm_up: 0,
        json,
    };
    let bench = Bench::once("wa", &common)?;
    println!("{} events of each set, seed {}", sizes.points, sizes.seed);
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut targets = Targets::default();
    let mut figures = Figures {
        sizes,
        counts: Vec::new(),
        sweep: Vec::new(),
    };
    if wanted(Part::Counts) {
        figures.counts = counts::run(&sizes, &mut targets)?;
    }
    if wanted(Part::Sweep) {
        figures.sweep = sweep::run(&sizes, &arguments.data)?;
    }
    bench.finish(&figures, &targets)
}

#[derive(Serialize)]
struct Figures {
    sizes: Sizes,
    counts: Vec<counts::Row>,
    sweep: Vec<sweep::Swept>,
}

/// Does the same with each of some items, on all cores, and gives the results in their order. Only for what is counted:
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
