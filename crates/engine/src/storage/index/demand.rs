//! Counts of reads that filters made in vain, by field, and of reads that indexes spared; and the
//! resulting decisions.
//!
//! The unit is the read of one row. Counts halve each day, so that a field in a single filter is
//! forgotten.
//!
//! Invariants: pure except for the counts; moments are of the monotonic clock, so that setting the
//! clock does not create or drop an index. Concurrency: the owner locks it, and not over I/O.

use crate::common::ids::TableId;
use headwater_types::FieldId;
use std::collections::HashMap;
use std::time::Duration;

/// Time in which the weight of counts halves.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Minimum lifetime of an index.
pub(crate) const LIFETIME_MIN: Duration = Duration::from_secs(24 * 3600);
/// Cost of indexing a row, in reads of a row.
const COST_OF_A_ROW: u64 = 8;
/// An index is created when the reads in vain are this multiple of its cost.
const CREATE_AT: f64 = 2.0;
/// An index is dropped when it spares less than this share of its cost in a day.
const DROPPED_BELOW: f64 = 0.5;
/// A filter that matches more than one row in this number needs no index.
const ROWS_PER_FOUND: u64 = 256;
/// Maximum number of counted fields, over all tables; other fields are not counted.
const FIELDS_MAX: usize = 4_096;

/// A sum that decays with time.
#[derive(Clone, Copy, Debug, Default)]
struct DecayingSum {
    rows: f64,
    at: Duration,
}

impl DecayingSum {
    fn now(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.rows * (-age).exp2()
    }

    fn add(&mut self, rows: u64, now: Duration) {
        // Rounding does not matter.
        self.rows = self.now(now) + rows_of(rows);
        self.at = now;
    }
}

/// A number of rows as a float.
fn rows_of(rows: u64) -> f64 {
    let few = u32::try_from(rows).map(f64::from);
    few.unwrap_or_else(|_| Duration::from_secs(rows).as_secs_f64())
}

/// The counts of a field.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    vain: DecayingSum,
    spared: DecayingSum,
    /// The moment since which this process knows of an index over the field; `None` without an
    /// index.
    indexed: Option<Duration>,
}

/// Reads that filters made in vain, and reads that indexes spared.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    fields: HashMap<(TableId, FieldId), Counted>,
}

impl Demand {
    fn counted(&mut self, table: TableId, field: FieldId) -> Option<&mut Counted> {
        let is_known = self.fields.contains_key(&(table, field));
        (is_known || self.fields.len() < FIELDS_MAX)
            .then(|| self.fields.entry((table, field)).or_default())
    }

    /// Counts the rows that a filter without an index read, and those that matched.
    pub(crate) fn read(
        &mut self,
        (table, field): (TableId, FieldId),
        rows: u64,
        found: u64,
        now: Duration,
    ) {
        if found.saturating_mul(ROWS_PER_FOUND) <= rows
            && let Some(counted) = self.counted(table, field)
        {
            counted.vain.add(rows.saturating_sub(found), now);
        }
    }

    /// Records that an index with this first field has spared a filter `rows` rows.
    pub(crate) fn spared(&mut self, (table, field): (TableId, FieldId), rows: u64, now: Duration) {
        if let Some(counted) = self.counted(table, field) {
            counted.spared.add(rows, now);
        }
    }

    /// The field of a table with the largest gain, if an index over it is worth creating; `rows` is
    /// the size of the table.
    pub(crate) fn to_make(
        &self,
        table: TableId,
        rows: u64,
        is_indexed: &dyn Fn(FieldId) -> bool,
        now: Duration,
    ) -> Option<FieldId> {
        let least = CREATE_AT * rows_of(rows.saturating_mul(COST_OF_A_ROW).max(1));
        let own = self.fields.iter().filter(|((of, _), _)| *of == table);
        let worth = own.filter_map(|((_, field), counted)| {
            let vain = counted.vain.now(now);
            (vain >= least && !is_indexed(*field)).then_some((vain, *field))
        });
        // Of equal ones the first field, so that equal counts create the same index.
        let best = worth.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        best.map(|(_, field)| field)
    }

    /// True when an index over a field, of a table with this number of rows, should be dropped. The
    /// index is observed for its minimum lifetime, starting now unless it has started before.
    pub(crate) fn is_to_drop(
        &mut self,
        (table, field): (TableId, FieldId),
        rows: u64,
        now: Duration,
    ) -> bool {
        let Some(counted) = self.counted(table, field) else {
            return false;
        };
        let since = *counted.indexed.get_or_insert(now);
        let cost = rows_of(rows.saturating_mul(COST_OF_A_ROW));
        now.saturating_sub(since) >= LIFETIME_MIN && counted.spared.now(now) < cost * DROPPED_BELOW
    }

    /// The rows that an index over a field currently spares.
    pub(crate) fn worth(&self, table: TableId, field: FieldId, now: Duration) -> f64 {
        let counted = self.fields.get(&(table, field));
        counted.map_or(0.0, |counted| counted.spared.now(now))
    }

    /// Resets the counts of a field, since an index over it was created or dropped.
    pub(crate) fn changed(&mut self, table: TableId, field: FieldId, indexed: Option<Duration>) {
        if let Some(counted) = self.counted(table, field) {
            *counted = Counted {
                indexed,
                ..Counted::default()
            };
        }
    }

    /// Removes the counts of a dropped table.
    pub(crate) fn forget(&mut self, table: TableId) {
        self.fields.retain(|(of, _), _| *of != table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const KEY: (TableId, FieldId) = (TableId(1), FieldId(0));

    fn to_make(demand: &Demand, rows: u64, now: Duration) -> Option<FieldId> {
        demand.to_make(TableId(1), rows, &|_| false, now)
    }

    #[test]
    fn an_index_is_made_at_twice_its_cost() {
        let mut demand = Demand::default();
        demand.read(KEY, 15_999, 1, HOUR);
        assert_eq!(to_make(&demand, 1_000, HOUR), None);
        demand.read(KEY, 2, 0, HOUR);
        assert_eq!(to_make(&demand, 1_000, HOUR), Some(FieldId(0)));
        assert_eq!(demand.to_make(TableId(1), 1_000, &|_| true, HOUR), None);
        assert_eq!(demand.to_make(TableId(2), 1_000, &|_| false, HOUR), None);
        // A day later the count has half the weight.
        assert_eq!(to_make(&demand, 1_000, HOUR * 25), None);
        assert_eq!(to_make(&demand, 500, HOUR * 25), Some(FieldId(0)));
        // Of two fields the one with more reads in vain.
        demand.read((TableId(1), FieldId(7)), 90_000, 0, HOUR);
        assert_eq!(to_make(&demand, 1_000, HOUR), Some(FieldId(7)));
        // Filters that match many rows need no index.
        let mut demand = Demand::default();
        demand.read(KEY, 1_000_000, 10_000, HOUR);
        assert_eq!(to_make(&demand, 1_000, HOUR), None);
    }

    #[test]
    fn an_index_is_kept_for_a_day_and_dropped_below_half_its_cost() {
        let mut demand = Demand::default();
        demand.changed(TableId(1), FieldId(0), Some(HOUR));
        assert!(!demand.is_to_drop(KEY, 1_000, HOUR * 24));
        demand.spared(KEY, 4_000, HOUR * 25);
        assert!(!demand.is_to_drop(KEY, 1_000, HOUR * 25));
        assert!(demand.is_to_drop(KEY, 1_000, HOUR * 26));
        assert!(!demand.is_to_drop(KEY, 900, HOUR * 26));
        // An index that existed when the process started must be observed for a day.
        let mut demand = Demand::default();
        assert!(!demand.is_to_drop(KEY, 1_000, HOUR * 99));
        assert!(!demand.is_to_drop(KEY, 1_000, HOUR * 122));
        assert!(demand.is_to_drop(KEY, 1_000, HOUR * 123));
        demand.changed(TableId(1), FieldId(0), None);
        assert!(!demand.is_to_drop(KEY, 1_000, HOUR * 124));
    }
}
