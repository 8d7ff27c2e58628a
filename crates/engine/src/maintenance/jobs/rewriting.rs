//! The rewriting of a partition stream by stream: rows merged and cut into new leaves, or only
//! their buckets copied.
//!
//! Invariants: the rows written are exactly the partition's rows in the range, except expired ones;
//! except all rows where the whole range has ended; and, in an aging, except rows before the
//! retention cutoff. Failure: a damaged leaf or block is an error, and the partition stays as it
//! is.

use super::append::last_row;
use super::cutter::{Destination, LeafCutter};
use super::stream_writer::GroupOutput;
use super::throttle::note_compacted;
use crate::Result;
use crate::core::Core;
use crate::memory::expiry::without_expired;
use crate::metadata::catalog::Table;
use crate::read::merge::{Merge, Source};
use crate::storage::segment::pyramid::{PyramidWriter, choose_base, rows_min};
use crate::storage::segment::{GroupWriter, Partition, StreamDelta, StreamState};
use headwater_types::{ClosedRange, Level, Rows, Timestamp};

/// Purpose of a rewriting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Compaction,
    /// The rows are removed, their buckets stay.
    Aging,
}

/// The rewriting of a partition, or of a part of it, stream by stream.
pub(super) struct Rewriting<'a> {
    pub(super) core: &'a Core,
    pub(super) old: &'a Partition,
    pub(super) table: &'a Table,
    pub(super) range: ClosedRange,
    pub(super) top: Level,
    pub(super) purpose: Purpose,
    /// Values that have expired by this instant are dropped.
    pub(super) now: Option<Timestamp>,
    /// There are later partitions: hardly any events will be appended to this one.
    pub(super) is_last: bool,
}

impl Rewriting<'_> {
    /// A stream's rows in the range, by time.
    pub(super) fn merged(&self, state: &StreamState) -> Merge<'_> {
        let segment = self.old.id();
        let runs = std::iter::once(&state.main).chain(&state.late);
        let sources = runs
            .map(|run| Source::leaves(segment, run.iter().copied()))
            .collect();
        Merge::new(&self.core.store, self.table, self.range, None, sources)
    }

    /// Rows without expired ones. The retention cutoff ends partitions as a whole: while a part of
    /// one is after it, the part before it stays, so that no rewriting has fewer rows than the
    /// segment it replaces in a copy. Aging drops that part: an aged bucket is on one side of the
    /// cutoff.
    pub(super) fn living(&self, mut rows: Rows) -> Rows {
        let cut = self.table.lifetime.retention_cutoff;
        if cut.ends(self.range.last) {
            return Rows::default();
        }
        if self.purpose == Purpose::Aging {
            let ended = |time: &i64| cut.ends(Timestamp::from_nanos(*time));
            let gone = rows.times.partition_point(ended);
            if gone > 0 {
                rows = rows.slice(gone..rows.len());
            }
        }
        match self.now {
            Some(now) => without_expired(rows, now),
            None => rows,
        }
    }

    /// Writes one stream's rows; returns the number of rows.
    pub(super) fn stream(
        &self,
        state: &StreamState,
        out: &mut GroupOutput<'_>,
        delta: &mut StreamDelta,
    ) -> Result<u64> {
        let GroupOutput {
            group,
            encodings,
            shared,
        } = out;
        let mut merge = self.merged(state);
        let mut count = 0u64;
        let mut pyramid: Option<PyramidWriter> = None;
        let mut held = Rows::default();
        let mut cutter = LeafCutter::new(self.table.leaf_events as usize);
        let ages = self.purpose == Purpose::Aging;
        while let Some(rows) = merge.next_rows()? {
            let rows = self.living(rows);
            if rows.is_empty() {
                continue;
            }
            count += rows.len() as u64;
            if !ages {
                delta.last_row = last_row(&rows);
            }
            let before = group.bytes.leaf;
            match &mut pyramid {
                Some(pyramid) => {
                    pyramid.push_rows(&rows, group, delta)?;
                    if !ages {
                        cutter.push(&rows, group, encodings)?;
                    }
                }
                None => {
                    held.extend_from(&rows, 0..rows.len());
                    if held.len() as u64 >= self.rows_min().max(shared.rows_max() as u64 + 1) {
                        let mut begun = PyramidWriter::new(self.base(state, &held), self.top)
                            .closing(self.is_last);
                        let rows = std::mem::take(&mut held);
                        begun.push_rows(&rows, group, delta)?;
                        if !ages {
                            cutter.push(&rows, group, encodings)?;
                        }
                        pyramid = Some(begun);
                    }
                }
            }
            note_compacted(self.core, group.bytes.leaf - before);
        }
        match pyramid {
            Some(pyramid) => pyramid.finish(group, delta)?,
            None if held.is_empty() => {}
            None if ages => self.small_pyramid(state, &held, group, delta)?,
            None if held.len() <= shared.rows_max() => {
                delta.last_row = None;
                if held.len() as u64 >= self.rows_min() {
                    self.small_pyramid(state, &held, group, delta)?;
                }
                shared.push(delta.stream, Destination::Main, &held, group, encodings)?;
            }
            None => {
                if held.len() as u64 >= self.rows_min() {
                    self.small_pyramid(state, &held, group, delta)?;
                }
                cutter.push(&held, group, encodings)?;
            }
        }
        delta.added.extend(cutter.finish(group, encodings)?);
        Ok(count)
    }

    fn rows_min(&self) -> u64 {
        rows_min(self.core.options.bucket_events)
    }

    fn small_pyramid(
        &self,
        state: &StreamState,
        rows: &Rows,
        group: &mut GroupWriter,
        delta: &mut StreamDelta,
    ) -> Result<()> {
        let writer = PyramidWriter::new(self.base(state, rows), self.top);
        let mut writer = writer.closing(self.is_last);
        writer.push_rows(rows, group, delta)?;
        writer.finish(group, delta)
    }

    /// The base level that suits the present rows.
    fn base(&self, state: &StreamState, first_rows: &Rows) -> Level {
        let old = state.base.filter(|b| *b != Level::MAX);
        let buckets: u64 = old.map_or(0, |b| {
            state.blocks_of(b).iter().map(|e| u64::from(e.count)).sum()
        });
        match old {
            Some(base) if buckets > 0 => {
                let per_bucket = state.main_rows() as f64 / buckets as f64;
                let finer = (per_bucket / f64::from(self.core.options.bucket_events))
                    .log2()
                    .round()
                    .clamp(-20.0, 20.0) as i32;
                Level::clamped((base.get() - finer).min(self.top.get()))
            }
            _ => choose_base(&first_rows.times, self.top, self.core.options.bucket_events),
        }
    }
}
