//! Tables and streams of all parts, a page at a time, and the ranges in which parts disagree.
//!
//! Invariants: a stream is listed once, however many parts have it. By name, streams are in the
//! order of one catalog; by number, streams of one part follow the streams of the parts before it,
//! each with its home part. Concurrency: no state is pinned between two pages.

use super::AcrossSnapshot;
use super::catalog::{TableAcross, name_of, unreadable};
use super::index::Entry;
use super::owners::{ShownParts, outside};
use crate::common::ids::TableId;
use crate::common::ranges::union;
use crate::metadata::catalog::{TagFilter, push_tags_text, stream_key};
use crate::read::Bins;
use crate::read::describe::StreamPage;
use crate::read::handle::StreamHandle;
use crate::read::listing::{HandlePage, PageStart};
use crate::read::summary::SummarySpec;
use crate::{ErrorKind, Result, TableInfo};
use headwater_codec::DecodeError;
use headwater_types::{ClosedRange, FieldType, StreamName, push_stream_text};
use std::sync::Arc;

/// Stretches of a stream that a part has beside another part: it does not own them, or nobody does
/// and a part before it has rows there too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The stream.
    pub stream: StreamName,
    /// The part that has it.
    pub part: Arc<str>,
    /// The stretches, as precisely as is known without reading any rows.
    pub spans: Vec<ClosedRange>,
    /// Number of its rows that are not shown; `None` where they were not counted: too many rows
    /// would have to be read, or they are not here. Rows of a stream that nobody owns are not shown
    /// where a part before has rows at the same instant.
    pub hidden_rows: Option<u64>,
    /// True where the stretches belong to other parts by [`crate::Owners`]: none of the part's rows
    /// in them is shown.
    pub is_declared: bool,
}

/// Bounds on the work of looking for conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictBounds {
    /// The largest number of streams of several parts that are examined.
    pub streams: usize,
    /// The largest number of rows that are read to count rows that are not shown.
    pub rows: u64,
}

impl Default for ConflictBounds {
    fn default() -> ConflictBounds {
        ConflictBounds {
            streams: 1_000,
            rows: 1_000_000,
        }
    }
}

/// The conflicts of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// By stream, and by part in their order.
    pub list: Vec<Conflict>,
    /// Number of streams that several parts have, or that are owned by stretches. A stream that
    /// goes on at another part has no conflict.
    pub streams: u64,
    /// False when streams were not examined: there were too many, or a copy does not know yet what
    /// it has.
    pub is_complete: bool,
}

impl AcrossSnapshot {
    /// Passes the streams of a table after `after` to `each`, until it returns false.
    fn walk(
        &self,
        table: &TableAcross,
        after: Option<&StreamName>,
        having: &TagFilter,
        each: &mut dyn FnMut(&Entry) -> std::result::Result<bool, DecodeError>,
    ) -> Result<()> {
        let mut from = Vec::new();
        if let Some(after) = after {
            stream_key(TableId(0), after.tags(), &mut from);
        }
        let walked = table.streams.walk(&from, having, each);
        walked.map_err(|e| unreadable(&e))
    }

    pub(in crate::read) fn streams(
        &self,
        table: &str,
        tags: &[(String, String)],
    ) -> Result<Vec<StreamName>> {
        let wanted = tags
            .iter()
            .map(|(key, value)| (key.clone(), vec![value.clone()]));
        let wanted: Vec<_> = wanted.collect();
        self.streams_having(table, &wanted, None, usize::MAX)
    }

    pub(in crate::read) fn streams_after(
        &self,
        table: &str,
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<StreamName>> {
        self.streams_having(table, &[], after, limit)
    }

    pub(in crate::read) fn streams_having(
        &self,
        table: &str,
        wanted: &[(String, Vec<String>)],
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<StreamName>> {
        let found = self.whole_table(table)?;
        let mut keys = Vec::new();
        if limit > 0 {
            self.walk(found, after, &TagFilter::new(wanted), &mut |entry| {
                keys.push(Arc::clone(&entry.key));
                Ok(keys.len() < limit)
            })?;
        }
        keys.iter().map(|key| name_of(table, key)).collect()
    }

    pub(in crate::read) fn streams_where(
        &self,
        table: &str,
        after: Option<&StreamName>,
        limit: usize,
        wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Result<StreamPage> {
        let found = self.whole_table(table)?;
        let mut page = StreamPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let mut text = String::new();
        push_stream_text(&mut text, table, []);
        let of_table = text.len();
        let (mut keys, mut last, mut looked_at) = (Vec::new(), None, 0);
        self.walk(found, after, &TagFilter::default(), &mut |entry| {
            looked_at += 1;
            text.truncate(of_table);
            push_tags_text(&mut text, &entry.key)?;
            if wanted(&text) {
                keys.push(Arc::clone(&entry.key));
            }
            last = Some(Arc::clone(&entry.key));
            Ok(looked_at < limit)
        })?;
        let names = keys.iter().map(|key| name_of(table, key));
        page.streams = names.collect::<Result<_>>()?;
        let last = last.filter(|_| looked_at == limit);
        page.next = last.map(|key| name_of(table, &key)).transpose()?;
        Ok(page)
    }

    pub(in crate::read) fn handles_from(
        &self,
        table: &str,
        start: PageStart,
        limit: usize,
    ) -> Result<HandlePage> {
        let found = self.whole_table(table)?;
        let mut page = HandlePage::default();
        let mut from = start;
        for number in found.parts().filter(|n| *n >= start.part) {
            let part = self.part(number)?;
            let mut next = Some(match number == start.part {
                true => from,
                false => PageStart::default(),
            });
            while let Some(at) = next {
                let left = limit.saturating_sub(page.streams.len());
                from = at.in_part(number);
                if left == 0 {
                    page.next = Some(from).filter(|_| limit > 0);
                    return Ok(page);
                }
                let own = part.snapshot.handles_from(table, at, left)?;
                for stream in own.streams.into_iter().map(|own| part.shown_handle(own)) {
                    if is_at_home(found, &stream, number) {
                        page.streams.push(stream);
                    }
                }
                next = own.next;
            }
        }
        Ok(page)
    }

    pub(in crate::read) fn handle(&self, stream: &StreamName) -> Result<StreamHandle> {
        self.stream(stream)?.handle()
    }

    pub(in crate::read) fn stream_count(&self, table: &str) -> Result<u64> {
        Ok(self.whole_table(table)?.streams.len())
    }

    pub(in crate::read) fn fields(&self, table: &str) -> Result<Vec<(String, FieldType)>> {
        let fields = &self.table(table)?.union()?.table.fields;
        let fields = fields.iter().map(|f| (f.name.clone(), f.field_type));
        Ok(fields.collect())
    }

    pub(in crate::read) fn table_info(&self, table: &str) -> Result<TableInfo> {
        let found = self.table(table)?;
        Ok(found.union()?.info(found.streams.len()))
    }

    pub(in crate::read) fn table_names(&self) -> Vec<String> {
        self.catalog.table_names().cloned().collect()
    }

    /// As `Snapshot::conflicts`.
    pub(in crate::read) fn conflicts(
        &self,
        table: &str,
        bounds: &ConflictBounds,
    ) -> Result<Conflicts> {
        let found = self.whole_table(table)?;
        let contested = &found.streams.contested;
        let mut conflicts = Conflicts {
            list: Vec::new(),
            streams: contested.len().try_into().unwrap_or(u64::MAX),
            is_complete: contested.len() <= bounds.streams,
        };
        let mut rows = bounds.rows;
        let examined = contested.iter().take(bounds.streams);
        for entry in examined.filter_map(|key| found.streams.find(key)) {
            let stream = name_of(table, &entry.key)?;
            match self.conflicts_of(&stream, entry, &mut rows) {
                Ok(list) => conflicts.list.extend(list),
                Err(error) if error.kind() == ErrorKind::Elsewhere => {
                    conflicts.is_complete = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(conflicts)
    }

    /// The conflicts of a stream, by part. At most `rows` rows are read of stretches that several
    /// parts own.
    fn conflicts_of(
        &self,
        stream: &StreamName,
        entry: &Entry,
        rows: &mut u64,
    ) -> Result<Vec<Conflict>> {
        let mut conflicts = match entry.shown {
            ShownParts::Merged => Vec::new(),
            _ => self.not_owned(stream, entry)?,
        };
        if !entry.shown.is_nothing() {
            let stream = self.stream(stream)?;
            let pieces = stream.pieces(&ClosedRange::ALL).into_iter();
            for piece in pieces.filter(|piece| piece.parts.len() > 1) {
                conflicts.extend(stream.conflicts(piece, rows)?);
            }
        }
        let mut by_part = Vec::with_capacity(conflicts.len());
        for holder in &entry.holders {
            let name = &self.part(*holder)?.name;
            for is_declared in [true, false] {
                let own = conflicts.iter();
                let own = own.filter(|one| one.part == *name && one.is_declared == is_declared);
                by_part.extend(own.cloned().reduce(joined));
            }
        }
        Ok(by_part)
    }

    /// Rows that parts have of a stream in stretches that they do not own.
    fn not_owned(&self, stream: &StreamName, entry: &Entry) -> Result<Vec<Conflict>> {
        let mut conflicts = Vec::new();
        for holder in &entry.holders {
            let shown = entry.shown.of_part(*holder);
            let part = self.part(*holder)?;
            if let Some(found) = part.find(stream)? {
                let info = part.snapshot.info_found(found)?;
                // An empty range has no conflict.
                let ends = info.first.zip(info.last);
                let held = ends.map_or(ClosedRange::EMPTY, |(a, b)| ClosedRange::new(a, b));
                let spans = outside(&held, &shown);
                if spans.is_empty() {
                    continue;
                }
                let rows = spans.iter().map(|range| {
                    let spec = SummarySpec {
                        range: *range,
                        bins: Bins::Whole,
                        fields: Vec::new(),
                    };
                    let bins = part.snapshot.summary_found(found, &spec)?;
                    Ok(bins.iter().map(|bin| bin.rows).sum::<u64>())
                });
                let hidden_rows = match rows.sum::<Result<u64>>() {
                    Err(error) if error.kind() == ErrorKind::Elsewhere => None,
                    rows => Some(rows?),
                };
                conflicts.push(Conflict {
                    stream: stream.clone(),
                    part: Arc::clone(&part.name),
                    spans,
                    hidden_rows,
                    is_declared: true,
                });
            }
        }
        Ok(conflicts)
    }
}

/// Conflicts of one part with different stretches as one.
fn joined(mut a: Conflict, b: Conflict) -> Conflict {
    a.spans.extend(b.spans);
    a.spans = union(a.spans);
    let rows = a.hidden_rows.zip(b.hidden_rows);
    a.hidden_rows = rows.map(|(a, b)| a.saturating_add(b));
    a
}

/// True when the home of a stream is the part that it was looked up in.
fn is_at_home(table: &TableAcross, stream: &StreamHandle, number: u32) -> bool {
    let mut key = Vec::with_capacity(64);
    stream_key(TableId(0), stream.name().tags(), &mut key);
    let entry = table.streams.find(&key).filter(|e| !e.shown.is_nothing());
    entry.is_some_and(|e| e.shown.home(&e.holders) == Some(number))
}
