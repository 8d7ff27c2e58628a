//! Queue sets, compared with one queue and with direct calls: the comparison of the paper on an NVM
//! driver for time series, over a *throttled device* (an emulation that sleeps for the duration of
//! a request), and in a *model* of events without threads, in which two cores are not a limit.

mod device;
mod live;
mod model;
mod rows;

use crate::harness::{Bench, Bound, Common, Failure, Targets};
use crate::table;
use headwater_io::queue::{Order, PlacementRule, SetOptions};
use serde::Serialize;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Number of sources, each with four threads.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 6])]
    sources: Vec<u64>,
    /// Requests of a round.
    #[arg(long, default_value_t = 1_200)]
    requests: u64,
    /// Channels of the device, and queue sets.
    #[arg(long, default_value_t = 4)]
    channels: usize,
    /// Time of the device to read 4 KiB, in microseconds; a write takes twice as long.
    #[arg(long, default_value_t = 200)]
    read_us: u64,
    /// Cost of handing a request to another thread, in microseconds; for the model.
    #[arg(long, default_value_t = 46)]
    hand_over_us: u64,
}

/// Mix of reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
enum Workload {
    /// Every thread writes, as in the load phase of YCSB-TS.
    Load,
    /// Every thread reads, as in its run phase.
    Run,
    /// Readers, and beside them writers and a compaction with large writes.
    Mixed,
}

const WORKLOADS: [Workload; 3] = [Workload::Load, Workload::Run, Workload::Mixed];

/// Path of requests to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
enum Strategy {
    /// One queue with one thread: a stock driver, as the paper describes it.
    OneQueue,
    /// Every thread calls the device: a stock driver as it is, and the stronger rival.
    Direct,
    /// Sets with the paper's order and its rule for placing.
    Paper,
    /// Sets in our configuration: callers carry out small requests of an idle set themselves.
    Ours,
}

const STRATEGIES: [Strategy; 4] = [
    Strategy::OneQueue,
    Strategy::Direct,
    Strategy::Paper,
    Strategy::Ours,
];

impl Strategy {
    fn name(self) -> &'static str {
        match self {
            Strategy::OneQueue => "one queue",
            Strategy::Direct => "direct calls",
            Strategy::Paper => "sets, as in the paper",
            Strategy::Ours => "sets, ours",
        }
    }

    /// Options of the sets; `None` = no queues at all.
    fn options(self, channels: usize) -> Option<SetOptions> {
        let handed_over = SetOptions {
            sets: channels,
            small_bytes_max: 0,
            ..SetOptions::default()
        };
        match self {
            Strategy::Direct => None,
            Strategy::OneQueue => Some(SetOptions {
                sets: 1,
                order: Order::Arrival,
                ..handed_over
            }),
            Strategy::Paper => Some(SetOptions {
                order: Order::WritesFirst,
                rule: PlacementRule::LargestMeanInterval,
                passes_max: u64::MAX,
                ..handed_over
            }),
            Strategy::Ours => Some(SetOptions {
                sets: channels,
                ..SetOptions::default()
            }),
        }
    }
}

/// Measurements of a round.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Measurement {
    per_second: f64,
    mean_us: f64,
    /// 99th percentile of reads, if there are any; otherwise of all requests.
    p99_us: f64,
}

impl Measurement {
    /// Statistics of the latencies of requests, in microseconds, and their total time in seconds.
    fn of(mut all: Vec<f64>, mut reads: Vec<f64>, seconds: f64) -> Measurement {
        let count = number(all.len());
        let mean_us = all.iter().sum::<f64>() / count.max(1.0);
        let tail = if reads.is_empty() {
            &mut all
        } else {
            &mut reads
        };
        tail.sort_by(f64::total_cmp);
        let at = (tail.len() * 99 / 100).min(tail.len().saturating_sub(1));
        Measurement {
            per_second: count / seconds.max(1e-9),
            mean_us,
            p99_us: tail.get(at).copied().unwrap_or(0.0),
        }
    }
}

/// The rounds of all ways for one workload and number of sources.
#[derive(Debug, Serialize)]
struct WorkloadRounds {
    workload: Workload,
    sources: u64,
    is_model: bool,
    rounds: Vec<(Strategy, Vec<Measurement>)>,
}

/// A ratio with the half width of its interval of 95 %.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    mean: f64,
    half: f64,
}

impl Ratio {
    fn text(self) -> String {
        format!("{:.3} ± {:.3}", self.mean, self.half)
    }
}

impl WorkloadRounds {
    /// The mean over rounds of a measured of `way` by that of `rival` in the same round.
    fn ratio(
        &self,
        strategy: Strategy,
        rival: Strategy,
        of: impl Fn(&Measurement) -> f64,
    ) -> Ratio {
        let rounds = |strategy| {
            let found = self.rounds.iter().find(|(w, _)| *w == strategy);
            found.map_or(Default::default(), |(_, rounds)| rounds.as_slice())
        };
        let pairs = rounds(strategy).iter().zip(rounds(rival));
        let ratios: Vec<f64> = pairs.map(|(a, b)| of(a) / of(b).max(1e-9)).collect();
        let (mean, half) = table::interval(&ratios);
        Ratio { mean, half }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let median = |rounds: &[Measurement], of: fn(&Measurement) -> f64| {
            table::median(rounds.iter().map(of).collect()).0
        };
        let rows = self.rounds.iter().map(|(strategy, rounds)| {
            vec![
                format!("{:?}, {} sources", self.workload, self.sources),
                strategy.name().to_owned(),
                format!("{:.0}", median(rounds, |f| f.per_second)),
                self.ratio(*strategy, Strategy::OneQueue, |f| f.per_second)
                    .text(),
                self.ratio(*strategy, Strategy::Direct, |f| f.per_second)
                    .text(),
                format!("{:.0}", median(rounds, |f| f.mean_us)),
                format!("{:.0}", median(rounds, |f| f.p99_us)),
                self.ratio(*strategy, Strategy::Direct, |f| f.p99_us).text(),
            ]
        });
        rows.collect()
    }
}

/// A count as a measured.
fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("queues", &arguments.common)?;
    let (warm_up, counted) = bench.rounds();
    let mut cells = Vec::new();
    for workload in WORKLOADS {
        for sources in &arguments.sources {
            let mut live = STRATEGIES.map(|strategy| (strategy, Vec::new())).to_vec();
            let mut modelled = live.clone();
            for round in 0..warm_up + counted {
                for turn in 0..STRATEGIES.len() {
                    // Each round starts with another strategy.
                    let at = (turn + round) % STRATEGIES.len();
                    let Some((strategy, rounds)) = live.get_mut(at) else {
                        return Err("there is a place for each way".into());
                    };
                    let measured = live::round(arguments, workload, *sources, *strategy)?;
                    if round >= warm_up {
                        rounds.push(measured);
                    }
                }
                if round >= warm_up {
                    for (strategy, rounds) in &mut modelled {
                        let seed = u64::try_from(round)?;
                        rounds.push(model::round(arguments, workload, *sources, *strategy, seed));
                    }
                }
            }
            for (is_model, rounds) in [(false, live), (true, modelled)] {
                cells.push(WorkloadRounds {
                    workload,
                    sources: *sources,
                    is_model,
                    rounds,
                });
            }
        }
    }
    for (is_model, heading) in [
        (
            false,
            "Throttled device: a stand-in that sleeps; real threads",
        ),
        (true, "Model of events: no threads, as many cores as wanted"),
    ] {
        println!(
            "\n{heading}; {} channels, a read {} µs, a write twice that\n",
            arguments.channels, arguments.read_us
        );
        let of_kind = cells.iter().filter(|cell| cell.is_model == is_model);
        let rows: Vec<Vec<String>> = of_kind.flat_map(WorkloadRounds::rows).collect();
        table::print(
            &[
                "workload",
                "way",
                "requests/s",
                "by one queue",
                "by direct",
                "mean µs",
                "p99 µs",
                "p99 by direct",
            ],
            &rows,
        );
    }
    rows::print(&cells);
    bench.finish(&cells, &targets(&cells))
}

fn targets(cells: &[WorkloadRounds]) -> Targets {
    let mut targets = Targets::default();
    for cell in cells.iter().filter(|cell| !cell.is_model) {
        let throughput = |strategy, rival| cell.ratio(strategy, rival, |f| f.per_second);
        let sources = cell.sources;
        match cell.workload {
            // The lower end of the interval must be beyond: the effects are small.
            Workload::Load | Workload::Run if sources > 1 => {
                let gain = throughput(Strategy::Ours, Strategy::OneQueue);
                let (what, wanted) = match cell.workload {
                    Workload::Load => ("T-1, T-3: writes", 1.186),
                    _ => ("T-9, T-11: reads", 1.106),
                };
                targets.add(
                    format!("{what} of {sources} sources, by one queue, at least"),
                    Bound::AtLeast(wanted),
                    " ×",
                    gain.mean - gain.half,
                );
            }
            Workload::Load => {
                let loss = throughput(Strategy::Ours, Strategy::OneQueue);
                targets.add(
                    "T-2: writes of 1 source, by one queue",
                    Bound::AtLeast(1.0),
                    " ×",
                    loss.mean + loss.half,
                );
            }
            Workload::Run => {}
            Workload::Mixed => {
                let tail = cell.ratio(Strategy::Ours, Strategy::Direct, |f| f.p99_us);
                targets.add(
                    format!("p99 of reads beside writers and compaction, {sources} sources, by direct calls"),
                    Bound::AtMost(0.5),
                    " ×",
                    tail.mean,
                );
            }
        }
    }
    targets
}
