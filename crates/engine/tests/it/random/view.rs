//! What a snapshot may and must show of the plain rows, where time has ended some of them.
//!
//! Retention, aging and expiry act on whole partitions and by a clock that may be wrong, so of some
//! values it is certain that they are found, of some that they are not, and some may be. Where
//! nothing is in doubt, everything is compared exactly.

use super::plain::{Cell, Plain, Row, Table};
use headwater_engine::PartitionInfo;
use headwater_types::{ClosedRange, Timestamp, Value};
use std::collections::BTreeMap;

/// Whether something is found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Presence {
    No,
    May,
    Must,
}

/// A row as a snapshot may show it.
#[derive(Clone, Debug)]
pub(super) struct VisibleRow {
    pub(super) time: i64,
    /// By field: the value, whether scans find it, and whether aggregates count it.
    pub(super) values: BTreeMap<String, (Value, Presence, Presence)>,
}

impl VisibleRow {
    /// Whether scans find the row: as long as they find one of its values.
    pub(super) fn presence(&self) -> Presence {
        let scans = self.values.values().map(|(_, scan, _)| *scan);
        scans.max().unwrap_or(Presence::No)
    }
}

/// Instants between which the database believes it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// What expired until then is not found.
    pub(super) least: i64,
    /// What expires after that is found.
    pub(super) most: i64,
}

/// The plain rows and what is known of time.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) plain: Plain,
    pub(super) now: Now,
    /// By table: spans of partitions that the cut goes through.
    pub(super) straddling: BTreeMap<String, Vec<ClosedRange>>,
}

/// The spans of partitions through which the cut of their table goes.
pub(super) fn straddling(
    plain: &Plain,
    partitions: &[PartitionInfo],
) -> BTreeMap<String, Vec<ClosedRange>> {
    let mut out: BTreeMap<String, Vec<ClosedRange>> = BTreeMap::new();
    for partition in partitions {
        let cut = plain
            .tables
            .get(&partition.table)
            .map_or(i64::MIN, |t| t.cut);
        if cut > i64::MIN && partition.range.contains(Timestamp::from_nanos(cut)) {
            out.entry(partition.table.clone())
                .or_default()
                .push(partition.range);
        }
    }
    out
}

/// The rows of a stream as a snapshot may show them.
pub(super) fn visible_rows(
    table: &Table,
    rows: &[Row],
    now: Now,
    straddling: &[ClosedRange],
) -> Vec<VisibleRow> {
    use Presence::{May, Must, No};
    let of = |row: &Row, cell: &Cell| {
        let aged = cell.was_aged || row.time < table.aged_to;
        let at = Timestamp::from_nanos(row.time);
        // A bucket whose rows have gone lies on one side of the cut as a whole.
        let edge = aged && straddling.iter().any(|s| s.contains(at));
        if row.deleted || row.time < table.cut {
            let stays = row.time >= table.cut || edge;
            return (No, if aged && stays { May } else { No });
        }
        let lives = match cell.expires_at {
            Some(e) if e <= now.least => No,
            Some(e) if e <= now.most => May,
            _ => Must,
        };
        // Nor does it know which of its values have expired.
        let counted = match lives {
            Must if edge || cell.was_cut => May,
            No if aged => May,
            other => other,
        };
        let scanned = if aged || cell.was_cut {
            lives.min(May)
        } else {
            lives
        };
        (scanned, counted)
    };
    let each = rows.iter().flat_map(|row| {
        let was_cut = row.fields.values().any(|cell| cell.was_cut);
        let earlier = row
            .earlier
            .iter()
            .filter(move |_| was_cut)
            .map(|f| (f, May));
        let versions = earlier.chain([(&row.fields, Must)]);
        versions.map(|(fields, most)| {
            let values = fields.iter().map(|(name, cell)| {
                let (scan, counted) = of(row, cell);
                (
                    name.clone(),
                    (cell.value.clone(), scan.min(most), counted.min(most)),
                )
            });
            VisibleRow {
                time: row.time,
                values: values.collect(),
            }
        })
    });
    each.filter(|row| row.values.values().any(|(_, s, c)| *s.max(c) > No))
        .collect()
}
