//! Conflicts between parts: streams that several databases have under one name, in the same
//! stretch of time, with the number of rows that are not shown because of it.
//!
//! Invariants: rows of several parts are merged by time, so that only rows at an instant that a
//! part of a smaller rank has, too, are not shown. A report never claims to be complete where
//! streams were not examined. Concurrency: a report is made from a snapshot without a lock, and
//! replaced as a whole. Failure: if a table cannot be read, the report before stays.

use crate::status::{ConflictCounts, StreamConflict};
use headwater_engine::{Conflict, ConflictBounds, Result, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of conflicts in a report; more are counted.
const LIST_MAX: usize = 1_000;

/// Conflicts of all tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConflictReport {
    /// By part.
    parts: BTreeMap<String, ConflictCounts>,
    /// Number of hidden rows by table, for tables that have conflicts.
    tables: BTreeMap<String, u64>,
    /// By table and stream, the first of them.
    list: Vec<StreamConflict>,
    is_complete: bool,
}

impl ConflictReport {
    /// Examines all tables of a merged view, within bounds for each table.
    ///
    /// # Errors
    /// The engine's own: `corrupt`, `io`.
    pub fn of(merged: &Snapshot, bounds: &ConflictBounds) -> Result<ConflictReport> {
        let mut report = ConflictReport {
            is_complete: true,
            ..ConflictReport::default()
        };
        for table in merged.table_names() {
            let found = merged.conflicts(&table, bounds)?;
            report.is_complete &= found.is_complete;
            // What moves declare is no conflict.
            for conflict in found.list.iter().filter(|one| !one.is_declared) {
                report.add(&table, conflict);
            }
        }
        let is_complete = report.is_complete;
        for counts in report.parts.values_mut() {
            counts.is_complete &= is_complete;
        }
        Ok(report)
    }

    fn add(&mut self, table: &str, conflict: &Conflict) {
        if conflict.is_declared {
            return;
        }
        let (Some(first), Some(last)) = (conflict.spans.first(), conflict.spans.last()) else {
            return;
        };
        let hidden = conflict.hidden_rows.unwrap_or(0);
        let part = self.parts.entry(conflict.part.to_string());
        let counts = part.or_insert(ConflictCounts {
            is_complete: true,
            ..ConflictCounts::default()
        });
        counts.streams += 1;
        counts.hidden_rows = counts.hidden_rows.saturating_add(hidden);
        counts.is_complete &= conflict.hidden_rows.is_some();
        let of_table = self.tables.entry(table.to_owned()).or_default();
        *of_table = of_table.saturating_add(hidden);
        if self.list.len() < LIST_MAX {
            self.list.push(StreamConflict {
                stream: conflict.stream.to_string(),
                table: table.to_owned(),
                part: conflict.part.to_string(),
                first_ns: first.first.as_nanos(),
                last_ns: last.last.as_nanos(),
                hidden_rows: conflict.hidden_rows,
            });
        } else {
            self.is_complete = false;
        }
    }

    /// Counts of a part, and of the closed parts that are named after it; `None` = no conflict.
    #[must_use]
    pub fn of_edge(&self, name: &str) -> Option<ConflictCounts> {
        let closed = format!("{name}@");
        let own = |part: &str| part == name || part.starts_with(&closed);
        let all = self.parts.iter().filter(|(part, _)| own(part));
        all.map(|(_, counts)| *counts)
            .reduce(|a, b| ConflictCounts {
                streams: a.streams + b.streams,
                hidden_rows: a.hidden_rows.saturating_add(b.hidden_rows),
                is_complete: a.is_complete && b.is_complete,
            })
    }

    /// Number of rows of a table that are known to be not shown.
    #[must_use]
    pub fn hidden_rows(&self, table: &str) -> u64 {
        self.tables.get(table).copied().unwrap_or(0)
    }

    /// Tables of which rows are known to be not shown.
    #[must_use]
    pub fn tables(&self) -> BTreeSet<&str> {
        let hidden = self.tables.iter().filter(|(_, hidden)| **hidden > 0);
        hidden.map(|(table, _)| table.as_str()).collect()
    }

    /// The conflicts by table and stream: at most a thousand.
    #[must_use]
    pub fn list(&self) -> &[StreamConflict] {
        &self.list
    }

    /// False when streams were not examined, or not listed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}
