//! Stores one stream's events in one partition: decides which are appended, which are merged, and
//! which become a late run. The destination of a late event is decided here.
//!
//! Invariants: every event passed in is stored by the delta; of equal times the newer event wins or
//! follows, because late runs are never skipped: while a stream has late runs in a partition, its
//! late events become a further run or merge all of them. Failure: a damaged leaf in the way of a
//! merge stays unchanged; the events become a late run instead.

use super::carried;
use super::late_decision::{LatePlan, plan_late};
use super::late_merge::{RowsToMerge, fold_units};
use super::stream_writer::StreamWriter;
use crate::common::counters::Cause;
use crate::read::merge::{Merge, Source};
use crate::{ErrorKind, Result};
use headwater_types::{ClosedRange, Rows};

impl StreamWriter<'_, '_> {
    /// Stores `rows` (sorted, all inside the partition) of a stream.
    pub(super) fn store(&mut self, rows: &Rows) -> Result<()> {
        let is_freed = self.context.store.stubs().is_freed(self.context.segment);
        if self.state.is_aged() || is_freed {
            return self.store_beside_buckets(rows);
        }
        let late_count = self
            .state
            .watermark()
            .map_or(0, |w| rows.times.partition_point(|t| *t <= w.as_nanos()));
        let late = rows.slice(0..late_count);
        let append = if late_count == 0 {
            None
        } else {
            Some(rows.slice(late_count..rows.len()))
        };
        let append = append.as_ref().unwrap_or(rows);
        if !late.is_empty()
            && let Some(buckets) = carried::mixed(self.context, self.state)?
        {
            return carried::set_apart(self, rows, buckets);
        }
        let (units, cause) = match plan_late(self.context, self.state, &late, !append.is_empty()) {
            LatePlan::Nothing => return self.append(append),
            LatePlan::Run => {
                self.write_late_run(&late)?;
                return self.append(append);
            }
            LatePlan::Merge(units) => (units, Cause::Merge),
            LatePlan::Fold => (
                fold_units(self.context, self.state, &late, !append.is_empty()),
                Cause::Fold,
            ),
        };
        let rows = RowsToMerge {
            all: rows,
            late: &late,
            append,
        };
        self.merge_or_run(&rows, &units, cause)
    }

    /// Stores rows of a stream whose older rows here were aged or freed: as a late run, which
    /// buckets do not count.
    fn store_beside_buckets(&mut self, rows: &Rows) -> Result<()> {
        if self.state.late.len() < self.context.late_runs_max.max(1) {
            return self.write_late_run(rows);
        }
        let runs = self.state.late.iter();
        let mut sources: Vec<Source> = runs
            .map(|run| Source::leaves(self.context.segment, run.iter().copied()))
            .collect();
        sources.push(Source::rows(rows.clone()));
        let mut merge = Merge::new(
            self.context.store,
            self.context.table,
            ClosedRange::ALL,
            None,
            sources,
        );
        let mut all = Rows::default();
        loop {
            match merge.next_rows() {
                Ok(Some(merged)) => all.extend_from(&merged, 0..merged.len()),
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    return self.write_late_run(rows);
                }
                Err(error) => return Err(error),
            }
        }
        self.delta.clear_late = true;
        self.context.counters.count_merge();
        self.write_late_run(&all)
    }
}
