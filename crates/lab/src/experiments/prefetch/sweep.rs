//! The paper's policies, and ours, under every combination of what the paper leaves open about its
//! users and its data: order and ratio of the mean latencies.
//!
//! Invariant: all combinations are reported, the ones that contradict the paper too. A tile at the
//! cloud counts as free, as in the rows of the experiment, so that ratios are of missing tiles.

use super::events::{Habits, Sums, visits};
use super::sensors::{Channel, FIELDS};
use super::tiles::{Policy, Tiles};
use super::visits::Tile;
use crate::harness::real;
use crate::table;
use headwater_types::TILE_BUCKETS;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};

/// Share of the tiles that the paper migrates.
const SHARE: f64 = 0.05;
/// Latency without migration by latency with both policies, in the paper.
const PAPERS_RATIO: f64 = 4.0;

/// Means of one combination, as shares of the latency without migration.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Cell {
    data: &'static str,
    habits: Habits,
    asked: usize,
    periodic: f64,
    deviation: f64,
    both: f64,
}

impl Cell {
    /// The paper's order: none above periodic above deviation, and both not above it.
    fn is_in_order(&self) -> bool {
        1.0 > self.periodic && self.periodic > self.deviation && self.deviation >= self.both
    }

    fn is_both_least(&self) -> bool {
        self.both <= self.periodic.min(self.deviation)
    }

    fn ratio(&self) -> f64 {
        1.0 / self.both
    }

    fn has_ratio(&self) -> bool {
        self.ratio() >= PAPERS_RATIO
    }
}

/// Tiles at the cloud by each of the three policies: periodic, deviation, both.
pub(super) struct Migrated(pub(super) [HashSet<Tile>; 3]);

impl Migrated {
    /// By the paper's policies, channel by channel.
    pub(super) fn by_paper(channels: &[Channel]) -> Migrated {
        let tiles = Tiles::of(channels);
        let policies = [Policy::Periodic, Policy::Deviation, Policy::Both];
        Migrated(policies.map(|policy| tiles.copied_by_channel(policy, SHARE)))
    }

    fn cell(&self, data: &'static str, sums: &[Sums], habits: Habits, count: u64) -> Cell {
        let visits = visits(sums, habits, count);
        let asked: Vec<&Tile> = visits.iter().flatten().flatten().collect();
        let missing = |at: usize| {
            let copied = self.0.get(at);
            let is_missing = |tile: &&&Tile| copied.is_none_or(|copied| !copied.contains(**tile));
            real(asked.iter().filter(is_missing).count()) / real(asked.len())
        };
        Cell {
            data,
            habits,
            asked: asked.len(),
            periodic: missing(0),
            deviation: missing(1),
            both: missing(2),
        }
    }
}

/// All combinations of habits before a week and its tiles at the cloud.
pub(super) fn sweep(
    data: &'static str,
    channels: &[Channel],
    migrated: &Migrated,
    count: u64,
) -> Vec<Cell> {
    let sums = super::events::sums(channels);
    let habits = groups().flat_map(|(field, points)| Habits::all(field, points));
    let cells = habits.map(|habits| migrated.cell(data, &sums, habits, count));
    cells.collect()
}

/// Sensors and sizes of plots, by which the combinations are summed up.
fn groups() -> impl Iterator<Item = (Option<usize>, i64)> {
    let fields = (0..FIELDS.len()).map(Some).chain([None]);
    fields.flat_map(|field| [TILE_BUCKETS, TILE_BUCKETS / 2].map(|points| (field, points)))
}

/// Prints how many combinations of each week, sensor and size of plots agree with the paper, and
/// the means of the default in the rest.
pub(super) fn print(cells: &[Cell], edge_ms: f64) {
    let ms = |share: f64| format!("{:.0} ms", share * edge_ms);
    let line = |week: &str, (field, points): (Option<usize>, i64)| {
        let is_of = |cell: &&Cell| {
            (cell.data, cell.habits.field, cell.habits.points) == (week, field, points)
        };
        let of: Vec<&Cell> = cells.iter().filter(is_of).collect();
        let count = |is: &dyn Fn(&Cell) -> bool| of.iter().filter(|cell| is(cell)).count();
        let usual = Habits {
            field,
            points,
            ..Habits::DEFAULT
        };
        let usual = of.iter().find(|cell| cell.habits == usual)?;
        Some(vec![
            week.to_owned(),
            field
                .and_then(|at| FIELDS.get(at))
                .unwrap_or(&"any")
                .to_string(),
            format!("{points} to {}", 2 * points),
            of.len().to_string(),
            count(&|cell| cell.deviation < cell.periodic).to_string(),
            count(&Cell::is_both_least).to_string(),
            count(&Cell::is_in_order).to_string(),
            count(&Cell::has_ratio).to_string(),
            count(&|cell| cell.is_in_order() && cell.has_ratio()).to_string(),
            ms(usual.periodic),
            ms(usual.deviation),
            ms(usual.both),
            format!("{:.1} ×", usual.ratio()),
        ])
    };
    let weeks: BTreeSet<&str> = cells.iter().map(|cell| cell.data).collect();
    let lines = weeks.into_iter();
    let lines = lines.flat_map(|week| groups().filter_map(move |group| line(week, group)));
    let lines: Vec<Vec<String>> = lines.collect();
    println!();
    table::print(
        &[
            "week",
            "sensor",
            "points",
            "combinations",
            "deviation before periodic",
            "both first",
            "paper's order",
            "none ≥ 4 × both",
            "order and ratio",
            "periodic",
            "deviation",
            "both",
            "none by both",
        ],
        &lines,
    );
}

#[cfg(test)]
mod tests {
    use super::super::sensors;
    use super::*;

    #[test]
    fn every_combination_is_reported_and_repeats() {
        let week = sensors::occupied_week(2);
        let migrated = Migrated::by_paper(&week);
        let cells = sweep("occupied", &week, &migrated, 4);
        assert_eq!(cells.len(), 36 * 5 * 2);
        assert_eq!(cells, sweep("occupied", &week, &migrated, 4));
        for cell in &cells {
            for share in [cell.periodic, cell.deviation, cell.both] {
                assert!((0.0..=1.0).contains(&share), "{cell:?}");
            }
            assert!(cell.asked > 40, "{cell:?}");
        }
    }

    #[test]
    fn the_order_is_the_papers_only_if_it_is() {
        let cell = |periodic, deviation, both| Cell {
            data: "made up",
            habits: Habits::DEFAULT,
            asked: 1,
            periodic,
            deviation,
            both,
        };
        let papers = cell(0.5, 0.4, 0.25);
        assert!(papers.is_in_order() && papers.is_both_least());
        assert!(papers.has_ratio());
        let other = cell(0.4, 0.5, 0.45);
        assert!(!other.is_in_order() && !other.is_both_least());
    }
}
