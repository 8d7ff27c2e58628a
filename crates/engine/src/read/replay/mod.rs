//! Rows of many streams as one sequence in the order of time.
//!
//! The range is read in slabs of time, each small enough that its rows of all streams fit into the
//! permitted memory: a slab that turns out to be larger ends earlier, and rows read after its end
//! are read again with the next slab. The width of a slab follows from the size of the previous
//! one. The memory is the caller's limit, or a share of the database's memory for replays, reserved
//! for each slab.
//!
//! Invariants: a row is returned once, at its time. Rows of equal time are grouped by stream, in
//! the order of [`Snapshot::streams`]; within a stream they have the order of a scan. A chunk ends
//! between two rows of different time or stream. Memory is bounded, except for the rows of one
//! instant and the size of one chunk of a scan. Concurrency: one reader; between two slabs only the
//! snapshot is pinned. Failure: the first error ends the replay; no later row is returned.

use super::filter::Filter;
use super::handle::StreamHandle;
use super::scan::{ScanChunk, ScanSpec};
use super::snapshot::Snapshot;
use crate::common::ids::TableId;
use crate::core::{ReplayMemory, ReplayShare};
use crate::metadata::catalog::stream_key;
use crate::{Error, Result};
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Column, FieldType, StreamName, Timestamp};
use std::sync::Arc;

/// Approximate number of rows of a chunk.
const CHUNK_ROWS: usize = 8_192;
/// Names per page.
const PAGE: usize = 4_096;
/// Growth of the slab after an empty one, so that a gap takes few slabs.
const EMPTY_GROWTH: u64 = 64;
/// Bytes of a row besides its values: time, stream, and position in the order while it is sorted.
const ROW_BYTES: usize = 32;

/// A replay to make.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaySpec {
    /// The table.
    pub table: String,
    /// Tags of the streams, each with its accepted values; empty = all streams.
    pub tags: Vec<(String, Vec<String>)>,
    /// The fields, in this order; `None` = all.
    pub fields: Option<Vec<String>>,
    /// Conditions that must all hold.
    pub filters: Vec<Filter>,
    /// Lists of conditions: at least one of each list must hold.
    pub any_of: Vec<Vec<Filter>>,
    /// The instants, both ends included.
    pub range: ClosedRange,
    /// Continues after the row of this cursor.
    pub after: Option<ReplayCursor>,
    /// Approximate bytes of rows in memory at once; 0 = a share of the quarter of the memory budget
    /// that all replays of the database have together.
    pub memory_bytes: usize,
}

impl ReplaySpec {
    /// All rows of a table.
    pub fn new(table: impl Into<String>) -> ReplaySpec {
        ReplaySpec {
            table: table.into(),
            tags: Vec::new(),
            fields: None,
            filters: Vec::new(),
            any_of: Vec::new(),
            range: ClosedRange::ALL,
            after: None,
            memory_bytes: 0,
        }
    }
}

/// A row of a replay, to continue after it: in the same snapshot or in a later one, which does not
/// show rows that were inserted before it in the meantime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayCursor {
    /// Its time.
    pub time: Timestamp,
    /// Its stream.
    pub stream: StreamName,
    /// Number of the row among the rows of this stream and time, from 1 on.
    pub row: u64,
}

/// Rows of a replay, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayChunk {
    /// Nanoseconds since 1970 UTC.
    pub times: Vec<i64>,
    /// The stream of each row, by its position in [`Replay::stream`].
    pub streams: Vec<u32>,
    /// One column per field of [`Replay::fields`].
    pub columns: Vec<Column>,
    /// Number of earlier rows with the stream and time of the first row.
    before: u64,
}

/// The rows of a slab, stream by stream, and their order.
struct Slab {
    times: Vec<i64>,
    streams: Vec<u32>,
    columns: Vec<Column>,
    order: Vec<u32>,
    /// Number of rows of the order that were returned.
    given: usize,
    /// Number of rows with the stream and time of the first row that a cursor passed over.
    before: u64,
}

/// Rows of a stream that were read for a slab.
struct StreamRows {
    stream: u32,
    chunk: ScanChunk,
}

impl StreamRows {
    fn bytes(&self) -> usize {
        let columns: usize = self.chunk.columns.iter().map(Column::heap_bytes).sum();
        columns + self.chunk.times.len() * ROW_BYTES
    }

    /// Removes the rows after an instant.
    fn cut(&mut self, last: Timestamp) {
        let last = last.as_nanos();
        let keep = self.chunk.times.partition_point(|time| *time <= last);
        if keep < self.chunk.times.len() {
            self.chunk.times.truncate(keep);
            for column in &mut self.chunk.columns {
                column.truncate(keep);
            }
        }
    }
}

/// See [`Snapshot::replay`].
pub struct Replay<'a> {
    snapshot: &'a Snapshot,
    steps: ReplaySteps,
}

/// A replay without its snapshot, for callers that store both. See [`Snapshot::replay_steps`].
pub struct ReplaySteps {
    streams: Vec<StreamHandle>,
    fields: Vec<(String, FieldType)>,
    scan: ScanSpec,
    /// The caller's limit; 0 = a share of `memory`.
    memory_bytes: usize,
    /// The database's memory for replays, and the slab's share of it.
    memory: Option<Arc<ReplayMemory>>,
    share: Option<ReplayShare>,
    /// Start of the next slab; `None` = everything was read.
    next: Option<Timestamp>,
    /// Width of the next slab, in nanoseconds.
    width: u64,
    slab: Option<Slab>,
    after: Option<ReplayCursor>,
}

impl std::fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.steps.fmt(f)
    }
}

impl std::fmt::Debug for ReplaySteps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay")
            .field("streams", &self.streams.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The rows of many streams of a table as one sequence in the order of time. Rows of equal time
    /// are grouped by stream, in the order of [`Snapshot::streams`]; within a stream they have the
    /// order of a scan. Of the streams with the requested tags, those that `accepts` returns true
    /// for are read; `None` accepts all.
    ///
    /// ```
    /// use headwater_engine::{Database, Options, ReplaySpec};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// for (id, times) in [("1", [5, 8]), ("2", [7, 8])] {
    ///     let pump = StreamName::new("pump", [("id", id)]);
    ///     for time in times {
    ///         batch.stream(&pump).row(time, [("rpm", 2150.0.into())]).unwrap();
    ///     }
    /// }
    /// db.commit(batch)?;
    /// let snapshot = db.snapshot()?;
    /// let mut replay = snapshot.replay(&ReplaySpec::new("pump"), None)?;
    /// let chunk = replay.next().unwrap()?;
    /// assert_eq!(chunk.times, [5, 7, 8, 8]);
    /// assert_eq!(chunk.streams, [0, 1, 0, 1]);
    /// // To go on behind the second row.
    /// let after = replay.cursor(&chunk, 1);
    /// let rest = ReplaySpec { after, ..ReplaySpec::new("pump") };
    /// assert_eq!(snapshot.replay(&rest, None)?.next().unwrap()?.times, [8, 8]);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown table or field, `invalid` for a filter of another type than its
    /// field or a cursor of another table. The iterator yields the errors of a scan, and ends after
    /// the first.
    pub fn replay(
        &self,
        spec: &ReplaySpec,
        accepts: Option<&mut dyn FnMut(&StreamName) -> bool>,
    ) -> Result<Replay<'_>> {
        Ok(Replay {
            snapshot: self,
            steps: self.replay_steps(spec, accepts)?,
        })
    }

    /// As [`Snapshot::replay`], for callers that store the snapshot beside the replay and pass it
    /// to each call.
    ///
    /// # Errors
    /// As for [`Snapshot::replay`].
    pub fn replay_steps(
        &self,
        spec: &ReplaySpec,
        accepts: Option<&mut dyn FnMut(&StreamName) -> bool>,
    ) -> Result<ReplaySteps> {
        let known = self.fields(&spec.table)?;
        let names: Vec<String> = match &spec.fields {
            Some(names) => names.clone(),
            None => known.iter().map(|(name, _)| name.clone()).collect(),
        };
        let of = |name: &String| {
            let found = known.iter().find(|(known, _)| known == name).cloned();
            found.ok_or_else(|| {
                Error::not_found(format!("table `{}` has no field `{name}`", spec.table))
            })
        };
        let fields: Vec<_> = names.iter().map(of).collect::<Result<_>>()?;
        if let Some(after) = &spec.after
            && after.stream.table() != spec.table
        {
            return Err(Error::invalid(format!(
                "the cursor belongs to table `{}`, but table `{}` is replayed",
                after.stream.table(),
                spec.table
            )));
        }
        let mut range = spec.range;
        if let Some(after) = &spec.after {
            range.first = range.first.max(after.time);
        }
        let replay = ReplaySteps {
            streams: self.replayed(spec, accepts)?,
            fields,
            scan: ScanSpec {
                range,
                fields: Some(names),
                filters: spec.filters.clone(),
                any_of: spec.any_of.clone(),
            },
            memory_bytes: spec.memory_bytes,
            memory: self.replay_memory(),
            share: None,
            next: Some(range.first).filter(|_| !range.is_empty()),
            width: u64::MAX,
            slab: None,
            after: spec.after.clone(),
        };
        if let Some(stream) = replay.streams.first() {
            // Filters are checked before anything is read.
            let nothing = ClosedRange::EMPTY;
            let spec = ScanSpec {
                range: nothing,
                ..replay.scan.clone()
            };
            stream.scan(self, &spec)?;
        }
        Ok(replay)
    }

    /// The streams of a replay, by name.
    fn replayed(
        &self,
        spec: &ReplaySpec,
        mut accepts: Option<&mut dyn FnMut(&StreamName) -> bool>,
    ) -> Result<Vec<StreamHandle>> {
        let mut streams = Vec::new();
        let mut last: Option<StreamName> = None;
        loop {
            let page = self.streams_having(&spec.table, &spec.tags, last.as_ref(), PAGE)?;
            let is_last = page.len() < PAGE;
            last = page.last().cloned();
            for name in &page {
                if accepts.as_mut().is_none_or(|accepts| accepts(name)) {
                    streams.push(self.handle(name)?);
                }
            }
            if is_last {
                return Ok(streams);
            }
        }
    }
}

impl Replay<'_> {
    /// Names and types of the columns of every chunk.
    #[must_use]
    pub fn fields(&self) -> &[(String, FieldType)] {
        self.steps.fields()
    }

    /// A stream by its position in the order of streams.
    #[must_use]
    pub fn stream(&self, place: u32) -> Option<&StreamName> {
        self.steps.stream(place)
    }

    /// Number of streams.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.steps.stream_count()
    }

    /// Cursor of a row of a chunk, to continue after it. `None` if the chunk does not have the row.
    #[must_use]
    pub fn cursor(&self, chunk: &ReplayChunk, row: usize) -> Option<ReplayCursor> {
        self.steps.cursor(chunk, row)
    }
}

impl ReplaySteps {
    /// Names and types of the columns of every chunk.
    #[must_use]
    pub fn fields(&self) -> &[(String, FieldType)] {
        &self.fields
    }

    /// The next rows, of the snapshot that the replay was made of; `None` at the end, and after an
    /// error.
    pub fn next_chunk(&mut self, snapshot: &Snapshot) -> Option<Result<ReplayChunk>> {
        if self.slab.is_none() {
            let read = self.read(snapshot);
            if !matches!(read, Ok(Some(_))) {
                self.share = None;
            }
            match read {
                Ok(slab) => self.slab = slab,
                Err(error) => {
                    self.next = None;
                    return Some(Err(error));
                }
            }
        }
        let slab = self.slab.as_mut()?;
        let chunk = slab.chunk();
        if slab.given == slab.order.len() {
            self.slab = None;
        }
        Some(Ok(chunk))
    }

    /// A stream by its position in the order of streams.
    #[must_use]
    pub fn stream(&self, place: u32) -> Option<&StreamName> {
        let place = usize::try_from(place).ok()?;
        self.streams.get(place).map(StreamHandle::name)
    }

    /// Number of streams.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Cursor of a row of a chunk, to continue after it. `None` if the chunk does not have the row.
    #[must_use]
    pub fn cursor(&self, chunk: &ReplayChunk, row: usize) -> Option<ReplayCursor> {
        let (time, stream) = chunk.group(row)?;
        let first = (0..row)
            .rev()
            .take_while(|r| chunk.group(*r) == Some((time, stream)));
        let ahead = first.count();
        let before = if ahead == row { chunk.before } else { 0 };
        Some(ReplayCursor {
            time: Timestamp::from_nanos(time),
            stream: self.stream(stream)?.clone(),
            row: u64::try_from(ahead)
                .ok()?
                .checked_add(before)?
                .checked_add(1)?,
        })
    }

    /// Maximum bytes of the next slab.
    fn allowed(&mut self) -> usize {
        // The share of the previous slab is released first.
        self.share = None;
        match (self.memory_bytes, &self.memory) {
            (0, Some(memory)) => {
                let share = memory.take();
                let bytes = share.bytes();
                self.share = Some(share);
                bytes
            }
            (allowed, _) => allowed,
        }
    }

    /// Reads the next slab that has a row; `None` at the end.
    fn read(&mut self, snapshot: &Snapshot) -> Result<Option<Slab>> {
        while let Some(first) = self.next {
            let range = self.scan.range;
            let left = range.last.as_nanos().abs_diff(first.as_nanos());
            let width = self.width.min(left);
            let last = first.as_nanos().checked_add_unsigned(width);
            let last = last.map_or(range.last, Timestamp::from_nanos);
            let memory = self.allowed();
            let range_of_slab = ClosedRange::new(first, last);
            let (parts, last) = self.read_streams(snapshot, range_of_slab, memory)?;
            let held: usize = parts.iter().map(StreamRows::bytes).sum();
            self.width = next_width(first, last, held, memory);
            self.next = last.next().filter(|next| *next <= range.last);
            let mut slab = self.slab_of(parts)?;
            if let Some(after) = self.after.take() {
                self.pass_over(&mut slab, &after);
            }
            if slab.given < slab.order.len() {
                return Ok(Some(slab));
            }
        }
        Ok(None)
    }

    /// Reads the rows of all streams from the beginning of a range on, as far as they fit into this
    /// memory, and returns the last instant that was read.
    fn read_streams(
        &self,
        snapshot: &Snapshot,
        range: ClosedRange,
        memory: usize,
    ) -> Result<(Vec<StreamRows>, Timestamp)> {
        let mut last = range.last;
        let mut parts: Vec<StreamRows> = Vec::new();
        let mut held = 0;
        for (stream, handle) in (0u32..).zip(&self.streams) {
            let range = ClosedRange::new(range.first, last);
            let spec = ScanSpec {
                range,
                ..self.scan.clone()
            };
            for chunk in handle.scan(snapshot, &spec)? {
                let mut part = StreamRows {
                    stream,
                    chunk: chunk?,
                };
                part.cut(last);
                if part.chunk.times.is_empty() {
                    // The slab ends before this stream's rows.
                    break;
                }
                held += part.bytes();
                parts.push(part);
                while held > memory && last > range.first {
                    last = middle(&parts, range.first, last);
                    for part in &mut parts {
                        part.cut(last);
                    }
                    parts.retain(|part| !part.chunk.times.is_empty());
                    held = parts.iter().map(StreamRows::bytes).sum();
                }
            }
        }
        Ok((parts, last))
    }

    /// Concatenates the rows of streams, and sorts them.
    fn slab_of(&self, parts: Vec<StreamRows>) -> Result<Slab> {
        let rows: usize = parts.iter().map(|part| part.chunk.times.len()).sum();
        let count = u32::try_from(rows).map_err(|_| {
            Error::invalid("the memory for a replay fits more than 2^32 rows: reduce it")
        })?;
        let (mut times, mut streams) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let of = |(_, field_type): &(String, FieldType)| Column::with_capacity(*field_type, rows);
        let mut columns: Vec<Column> = self.fields.iter().map(of).collect();
        for part in parts {
            let len = part.chunk.times.len();
            times.extend_from_slice(&part.chunk.times);
            streams.resize(streams.len() + len, part.stream);
            for (into, column) in columns.iter_mut().zip(&part.chunk.columns) {
                into.extend_from(column, 0..len);
            }
        }
        // Rows are grouped by stream, each group sorted by time: rows of equal time stay in this
        // order. A sort without indirect comparisons of times is several times as fast.
        let mut by_time: Vec<(i64, u32)> = times.iter().copied().zip(0..count).collect();
        by_time.sort_by_key(|(time, _)| *time);
        let order: Vec<u32> = by_time.into_iter().map(|(_, row)| row).collect();
        Ok(Slab {
            times,
            streams,
            columns,
            order,
            given: 0,
            before: 0,
        })
    }

    /// Passes over the rows up to and including the row of a cursor.
    fn pass_over(&self, slab: &mut Slab, after: &ReplayCursor) {
        let key = |name: &StreamName| {
            let mut key = Vec::with_capacity(64);
            stream_key(TableId(0), name.tags(), &mut key);
            key
        };
        let wanted = key(&after.stream);
        let behind = self.streams.partition_point(|s| key(s.name()) < wanted);
        let is_there = self
            .streams
            .get(behind)
            .is_some_and(|s| *s.name() == after.stream);
        let time = after.time.as_nanos();
        let mut passed: u64 = 0;
        for row in &slab.order {
            let (at, stream) = (time_of(&slab.times, *row), stream_of(&slab.streams, *row));
            let is_before = at < time || (at == time && stream < behind);
            let is_of_group = is_there && at == time && stream == behind;
            if is_of_group && passed < after.row {
                passed += 1;
            } else if !is_before {
                slab.before = if is_of_group { passed } else { 0 };
                break;
            }
            slab.given += 1;
        }
    }
}

impl Iterator for Replay<'_> {
    type Item = Result<ReplayChunk>;

    fn next(&mut self) -> Option<Self::Item> {
        self.steps.next_chunk(self.snapshot)
    }
}

impl Slab {
    fn group(&self, row: u32) -> (i64, usize) {
        (time_of(&self.times, row), stream_of(&self.streams, row))
    }

    /// The next rows.
    fn chunk(&mut self) -> ReplayChunk {
        let left = part_of(&self.order, self.given.., "rows that are left of a slab");
        let mut count = left.len().min(CHUNK_ROWS);
        // Rows of one stream and time are not divided.
        while let (Some(last), Some(next)) = (left.get(count.wrapping_sub(1)), left.get(count))
            && self.group(*last) == self.group(*next)
        {
            count += 1;
        }
        let rows = part_of(left, ..count, "rows of a chunk");
        let chunk = ReplayChunk {
            times: rows.iter().map(|row| time_of(&self.times, *row)).collect(),
            streams: rows
                .iter()
                .filter_map(|row| u32::try_from(stream_of(&self.streams, *row)).ok())
                .collect(),
            columns: self.columns.iter().map(|c| c.gather(rows)).collect(),
            before: std::mem::take(&mut self.before),
        };
        self.given += count;
        chunk
    }
}

/// A row of a [`ReplayChunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRow {
    /// Its position in the columns of the chunk.
    pub index: usize,
    /// Its time.
    pub time: Timestamp,
    /// Its stream, by its position in [`Replay::stream`].
    pub stream: u32,
    /// Number of the row among the rows of this stream and time, from 1 on: for a [`ReplayCursor`].
    pub number: u64,
}

impl ReplayChunk {
    /// The rows of the chunk, in order.
    pub fn rows(&self) -> impl Iterator<Item = ReplayRow> + '_ {
        let mut number = self.before;
        let mut group = self.group(0);
        let all = self.times.iter().zip(&self.streams).enumerate();
        all.map(move |(index, (time, stream))| {
            if group != Some((*time, *stream)) {
                (group, number) = (Some((*time, *stream)), 0);
            }
            number = number.saturating_add(1);
            ReplayRow {
                index,
                time: Timestamp::from_nanos(*time),
                stream: *stream,
                number,
            }
        })
    }

    fn group(&self, row: usize) -> Option<(i64, u32)> {
        Some((*self.times.get(row)?, *self.streams.get(row)?))
    }
}

fn time_of(times: &[i64], row: u32) -> i64 {
    let row = usize::try_from(row).ok();
    row.and_then(|row| times.get(row))
        .copied()
        .unwrap_or(i64::MAX)
}

fn stream_of(streams: &[u32], row: u32) -> usize {
    let row = usize::try_from(row).ok();
    let stream = row.and_then(|row| streams.get(row));
    stream
        .and_then(|s| usize::try_from(*s).ok())
        .unwrap_or(usize::MAX)
}

/// An instant from `first` on and before `last`, up to which there are about half of the rows read.
fn middle(parts: &[StreamRows], first: Timestamp, last: Timestamp) -> Timestamp {
    let mut times: Vec<i64> = Vec::new();
    for part in parts {
        times.extend_from_slice(&part.chunk.times);
    }
    let half = times.len() / 2;
    let middle = match half < times.len() {
        true => *times.select_nth_unstable(half).1,
        false => last.as_nanos(),
    };
    let before = last.as_nanos().saturating_sub(1);
    Timestamp::from_nanos(middle.min(before).max(first.as_nanos()))
}

/// Width of the next slab in nanoseconds, after a slab from `first` to `last` of `held` bytes.
fn next_width(first: Timestamp, last: Timestamp, held: usize, memory: usize) -> u64 {
    let width = last.as_nanos().abs_diff(first.as_nanos()).saturating_add(1);
    if held == 0 {
        return width.saturating_mul(EMPTY_GROWTH);
    }
    // A little more than fits: a surplus is cut off, and a shortfall costs a look at every stream.
    let by = memory.saturating_add(memory / 4) / held;
    let by = u64::try_from(by).unwrap_or(u64::MAX).clamp(1, 16);
    width.saturating_mul(by)
}

#[cfg(test)]
mod tests;
