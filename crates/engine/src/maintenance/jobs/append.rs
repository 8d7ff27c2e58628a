//! Writes a stream's events without rewriting: appended to the main run, or as a separate late run.
//!
//! Invariants: stored data is not rewritten; main-run leaves stay ordered and disjoint (law 2).

use super::cutter::{Destination, LeafCutter};
use super::stream_writer::StreamWriter;
use crate::common::counters::Cause;
use crate::storage::segment::{LeafEntry, pyramid};
use crate::{ErrorKind, Result};
use headwater_types::Rows;

impl StreamWriter<'_, '_> {
    /// Appends events to the main run: written once, no stored data is rewritten.
    pub(super) fn append(&mut self, rows: &Rows) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.append_leaves(rows)?;
        if self.state.base.is_some() {
            pyramid::append(
                &self.context.target(),
                self.out.group,
                (self.state, rows),
                self.is_last,
                self.delta,
            )
        } else if self.state.main_rows() + rows.len() as u64 >= self.context.target().rows_min() {
            let all = match self.read_leaves(&self.state.main) {
                Ok(mut old) => {
                    old.extend_from(rows, 0..rows.len());
                    old
                }
                // Without the old rows there is no pyramid yet; readers report their damage.
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
                Err(error) => return Err(error),
            };
            let target = self.context.target();
            pyramid::build(&target, self.out.group, &all, self.is_last, self.delta)
        } else {
            Ok(())
        }
    }

    /// Appends leaves like [`StreamWriter::append`], without the pyramid.
    pub(super) fn append_leaves(&mut self, rows: &Rows) -> Result<()> {
        self.context
            .counters
            .events_written(Cause::Flush, rows.len() as u64);
        self.delta.last_row = last_row(rows);
        if rows.len() <= self.out.shared.rows_max() {
            // Reading a few rows is as quick as reading a copy of the newest row here.
            self.delta.last_row = Some(Box::default());
            return self.out.shared.push(
                self.delta.stream,
                Destination::Main,
                rows,
                self.out.group,
                self.out.encodings,
            );
        }
        let mut cutter = LeafCutter::new(self.context.leaf_events());
        cutter.push(rows, self.out.group, self.out.encodings)?;
        self.delta
            .added
            .extend(cutter.finish(self.out.group, self.out.encodings)?);
        Ok(())
    }

    /// Writes late events as a separate run, for a later merge.
    pub(super) fn write_late_run(&mut self, late: &Rows) -> Result<()> {
        self.context
            .counters
            .events_written(Cause::LateRun, late.len() as u64);
        if late.len() <= self.out.shared.rows_max() {
            return self.out.shared.push(
                self.delta.stream,
                Destination::LateRun,
                late,
                self.out.group,
                self.out.encodings,
            );
        }
        let mut cutter = LeafCutter::balanced(late.len(), self.context.leaf_events());
        cutter.push(late, self.out.group, self.out.encodings)?;
        self.delta
            .late_runs
            .push(cutter.finish(self.out.group, self.out.encodings)?);
        Ok(())
    }

    fn read_leaves(&self, leaves: &[LeafEntry]) -> Result<Rows> {
        let mut all = Rows::default();
        for leaf in leaves {
            let rows = self.context.rows_of(leaf)?;
            all.extend_from(&rows, 0..rows.len());
        }
        Ok(all)
    }
}

/// The newest row as stored in a delta.
pub(super) fn last_row(rows: &Rows) -> Option<Box<[u8]>> {
    let mut bytes = Vec::new();
    let count = rows.len();
    headwater_codec::light::encode_rows(&rows.slice(count.checked_sub(1)?..count), &mut bytes);
    Some(bytes.into())
}
