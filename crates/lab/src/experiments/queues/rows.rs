//! The rows of the paper (rows T-1 to T-13), from the measurements.
//!
//! A driver has neither databases above it nor ranges: loads a and b are one here (every thread
//! writes), and so are queries for rows and for ranges (every thread reads). T-14, the share of
//! software in the latency of persistent memory, needs such memory and is omitted.

use super::{Measurement, Strategy, Workload, WorkloadRounds};
use crate::table;

/// Cells of one workload, by ascending number of sources.
struct Series<'a>(Vec<&'a WorkloadRounds>);

impl<'a> Series<'a> {
    fn of(cells: &'a [WorkloadRounds], is_model: bool, workload: Workload) -> Series<'a> {
        let all = cells.iter();
        let all = all.filter(|cell| cell.is_model == is_model && cell.workload == workload);
        let mut series: Vec<&WorkloadRounds> = all.collect();
        series.sort_by_key(|cell| cell.sources);
        Series(series)
    }

    /// Gain of our sets in a measurement over one queue, in percent, for each number of sources
    /// above one.
    fn gains(&self, of: fn(&Measurement) -> f64) -> Vec<f64> {
        let many = self.0.iter().filter(|cell| cell.sources > 1);
        let gain = |cell: &&WorkloadRounds| {
            (cell.ratio(Strategy::Ours, Strategy::OneQueue, of).mean - 1.0) * 100.0
        };
        many.map(gain).collect()
    }

    fn alone(&self, of: fn(&Measurement) -> f64) -> Option<f64> {
        let one = self.0.iter().find(|cell| cell.sources == 1)?;
        Some((one.ratio(Strategy::Ours, Strategy::OneQueue, of).mean - 1.0) * 100.0)
    }

    /// Growth of a measurement of a strategy from the least number of sources to the most, in
    /// percent.
    fn growth(&self, strategy: Strategy, of: fn(&Measurement) -> f64) -> Option<f64> {
        let median = |cell: &WorkloadRounds| {
            let found = cell.rounds.iter().find(|(w, _)| *w == strategy);
            found.map(|(_, rounds)| table::median(rounds.iter().map(of).collect()).0)
        };
        let (first, last) = (median(self.0.first()?)?, median(self.0.last()?)?);
        (self.0.len() > 1 && first > 0.0).then(|| (last / first - 1.0) * 100.0)
    }
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// Text of a row, from a series of writes and one of reads.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Series<'_>, &Series<'_>) -> Option<f64>,
);

fn throughput(of: &Measurement) -> f64 {
    of.per_second
}

fn latency(of: &Measurement) -> f64 {
    of.mean_us
}

const ROWS: [Row; 15] = [
    (
        "T-1, T-3",
        "least gain of writes, several sources",
        "≥ 5 (15)",
        |writes, _| least(&writes.gains(throughput)),
    ),
    (
        "T-2",
        "gain of writes, one source",
        "≥ -2 (0)",
        |writes, _| writes.alone(throughput),
    ),
    (
        "T-4",
        "growth of writes with sources, one queue",
        "",
        |writes, _| writes.growth(Strategy::OneQueue, throughput),
    ),
    ("T-5", "the same, sets", "≥ -6 (rises)", |writes, _| {
        writes.growth(Strategy::Ours, throughput)
    }),
    (
        "T-6",
        "least change of the latency of writes",
        "≤ -1.7 (-8.3)",
        |writes, _| most(&writes.gains(latency)),
    ),
    (
        "T-7",
        "growth of the latency of writes with sources, one queue",
        "",
        |writes, _| writes.growth(Strategy::OneQueue, latency),
    ),
    ("T-8", "the same, sets", "≤ 30 (15)", |writes, _| {
        writes.growth(Strategy::Ours, latency)
    }),
    (
        "T-9, T-11",
        "least gain of reads, several sources",
        "≥ 5 (10.6)",
        |_, reads| least(&reads.gains(throughput)),
    ),
    (
        "T-10",
        "growth of reads with sources, one queue",
        "",
        |_, reads| reads.growth(Strategy::OneQueue, throughput),
    ),
    ("T-10", "the same, sets", "≥ -5 (0)", |_, reads| {
        reads.growth(Strategy::Ours, throughput)
    }),
    (
        "T-12",
        "least change of the latency of reads",
        "≤ -2 (-6.4)",
        |_, reads| most(&reads.gains(latency)),
    ),
    ("T-13", "most gain of writes", "(18.6)", |writes, _| {
        most(&writes.gains(throughput))
    }),
    ("T-13", "most gain of reads", "(10.6)", |_, reads| {
        most(&reads.gains(throughput))
    }),
    (
        "T-13",
        "most change of the latency of writes",
        "(-8.3)",
        |writes, _| least(&writes.gains(latency)),
    ),
    (
        "T-13",
        "most change of the latency of reads",
        "(-6.4)",
        |_, reads| least(&reads.gains(latency)),
    ),
];

/// Prints the rows, measured over the emulated device and in the model.
pub(super) fn print(cells: &[WorkloadRounds]) {
    println!(
        "\nRows of the paper, in percent; in brackets what beats it. Both columns are stand-ins: a device that sleeps, \
         and a model of events\n"
    );
    let series = |is_model| {
        let of = |workload| Series::of(cells, is_model, workload);
        (of(Workload::Load), of(Workload::Run))
    };
    let both = [series(false), series(true)];
    let line = |(id, what, wanted, value): &Row| {
        let mut line = vec![(*id).to_owned(), (*what).to_owned(), (*wanted).to_owned()];
        let values = both.iter().map(|(writes, reads)| value(writes, reads));
        line.extend(values.map(|value| value.map_or("–".into(), |value| format!("{value:+.1}"))));
        line
    };
    let heads = ["row", "what", "wanted", "throttled device", "model"];
    table::print(&heads, &ROWS.iter().map(line).collect::<Vec<_>>());
}
