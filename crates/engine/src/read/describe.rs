//! Lists streams and describes their contents, without reading their rows.

use super::single::{ResolvedStream, SingleSnapshot};
use super::view::StreamView;
use crate::common::error::Damage;
use crate::core::Core;
use crate::metadata::catalog::{Table, TagFilter, decode_stream_key, push_tags_text, stream_key};
use crate::{Error, Result};
use headwater_codec::DecodeError;
use headwater_types::{ClosedRange, FieldType, Level, StreamName, Timestamp, push_stream_text};

/// Description of a stream: its events and their span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its earliest event; where rows have been aged away, the start of the earliest bucket.
    pub first: Option<Timestamp>,
    /// Its latest event; where rows have been aged away, the end of the latest bucket.
    pub last: Option<Timestamp>,
    /// Number of its rows. While rewritten rows or deletes wait to be merged, the rows that they
    /// replace or remove are included.
    pub rows: u64,
}

/// Some streams of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPage {
    /// The requested streams, in the order of the catalog.
    pub streams: Vec<StreamName>,
    /// The last examined stream, to continue after it; `None` at the end of the table.
    pub next: Option<StreamName>,
}

impl SingleSnapshot {
    /// As `Snapshot::stream_info`.
    pub(super) fn stream_info(&self, stream: &StreamName) -> Result<StreamInfo> {
        self.info_found(self.find(stream)?)
    }

    pub(super) fn info_found(&self, found: ResolvedStream<'_>) -> Result<StreamInfo> {
        info(&self.view(found, &ClosedRange::ALL)?)
    }

    /// As `Snapshot::aged_level`.
    pub(super) fn aged_level(
        &self,
        stream: &StreamName,
        range: &ClosedRange,
    ) -> Result<Option<Level>> {
        let view = self.view(self.find(stream)?, range)?;
        let mut coarsest = None;
        for partition in view.partitions_in(range) {
            let state = view.state(&partition)?.filter(|state| state.is_aged());
            coarsest = coarsest.max(state.and_then(|state| state.base()));
        }
        Ok(coarsest)
    }

    /// As `Snapshot::field_type`.
    pub(super) fn field_type(&self, stream: &StreamName, field: &str) -> Result<FieldType> {
        SingleSnapshot::field_type_found(&self.find(stream)?, field)
    }

    pub(super) fn field_type_found(found: &ResolvedStream<'_>, field: &str) -> Result<FieldType> {
        let table = found.table;
        let id = SingleSnapshot::field(table, field)?;
        let field = table.field(id).map(|f| f.field_type);
        field.ok_or_else(|| Error::internal("a field without its definition"))
    }

    /// As `Snapshot::streams_after`.
    pub(super) fn streams_after(
        &self,
        table: &str,
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<StreamName>> {
        let mut streams = Vec::new();
        let table = self.table(table)?;
        self.each_key_after(table, after, &TagFilter::default(), limit, &mut |key| {
            streams.push(decode_stream_key(&table.name, key)?);
            Ok(())
        })?;
        Ok(streams)
    }

    /// As `Snapshot::streams_where`.
    pub(super) fn streams_where(
        &self,
        table: &str,
        after: Option<&StreamName>,
        limit: usize,
        wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Result<StreamPage> {
        let table = self.table(table)?;
        let mut page = StreamPage::default();
        let mut last = Vec::new();
        let mut looked_at = 0;
        let mut text = String::new();
        push_stream_text(&mut text, &table.name, []);
        let of_table = text.len();
        self.each_key_after(table, after, &TagFilter::default(), limit, &mut |key| {
            looked_at += 1;
            last.clear();
            last.extend_from_slice(key);
            text.truncate(of_table);
            push_tags_text(&mut text, key)?;
            if wanted(&text) {
                page.streams.push(decode_stream_key(&table.name, key)?);
            }
            Ok(())
        })?;
        if looked_at == limit && limit > 0 {
            page.next = Some(
                decode_stream_key(&table.name, &last)
                    .map_err(|e| Error::decode(self.core().meta.path(), 0, e))?,
            );
        }
        Ok(page)
    }

    pub(super) fn each_key_after(
        &self,
        table: &Table,
        after: Option<&StreamName>,
        having: &TagFilter,
        limit: usize,
        each: &mut dyn FnMut(&[u8]) -> std::result::Result<(), DecodeError>,
    ) -> Result<()> {
        let core = self.core();
        let mut from = Vec::new();
        if let Some(after) = after {
            stream_key(table.id, after.tags(), &mut from);
        }
        let mut failed = None;
        let mut until_failed = |key: &[u8]| {
            if failed.is_none() {
                failed = each(key).err();
            }
        };
        core.catalog.stream_keys_after(
            &*core.meta,
            table.id,
            &from,
            having,
            limit,
            self.at(),
            &mut until_failed,
        )?;
        match failed {
            Some(error) => Err(Error::decode(core.meta.path(), 0, error)),
            None => Ok(()),
        }
    }

    /// As `Snapshot::stream_count`.
    pub(super) fn stream_count(&self, table: &str) -> Result<u64> {
        Ok(self.core().catalog.stream_count(self.table(table)?.id))
    }

    /// As `Snapshot::table_info`.
    pub(super) fn table_info(&self, table: &str) -> Result<crate::TableInfo> {
        Ok(self.core().catalog.table_info(self.table(table)?))
    }

    /// As `Snapshot::table_names`.
    pub(super) fn table_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tables().iter().map(|t| t.name.clone()).collect();
        names.sort_unstable();
        names
    }
}

/// Description of a partition: a file of a table's events in a span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The table.
    pub table: String,
    /// Its file.
    pub file: std::path::PathBuf,
    /// The span of time of the partition.
    pub range: ClosedRange,
    /// Length of the file in bytes, including dead bytes.
    pub bytes: u64,
    /// Its events, including late runs.
    pub events: u64,
    /// Late runs that wait to be merged.
    pub late_runs: u64,
    /// True when its rows were aged away and only their buckets remain.
    pub is_aged: bool,
    /// The damage that makes it unreadable; `None` = none known.
    pub unreadable: Option<Damage>,
}

pub(crate) fn partitions(core: &Core) -> Vec<PartitionInfo> {
    let mut out = Vec::new();
    for shard in &core.shards {
        let partitions = std::sync::Arc::clone(&shard.state.lock().partitions);
        for partition in partitions.all() {
            let record = &partition.record;
            // A dropped table is not listed.
            let Some(table) = core
                .catalog
                .table(record.table)
                .filter(|t| !t.lifetime.dropped)
            else {
                continue;
            };
            out.push(PartitionInfo {
                table: table.name.clone(),
                file: partition.file.path().to_owned(),
                range: partition.span(),
                bytes: record.committed_bytes,
                events: record.events,
                late_runs: record.late_runs,
                is_aged: record.aged,
                unreadable: partition
                    .unreadable
                    .as_ref()
                    .and_then(|e| e.damaged().cloned()),
            });
        }
    }
    out.sort_by(|a, b| (&a.table, a.range.first).cmp(&(&b.table, b.range.first)));
    out
}

/// The first and last event and the number of rows so far.
#[derive(Default)]
struct Extent(StreamInfo);

impl Extent {
    fn add(&mut self, range: ClosedRange, rows: u64) {
        if range.is_empty() {
            return;
        }
        let info = &mut self.0;
        info.first = Some(info.first.map_or(range.first, |f| f.min(range.first)));
        info.last = Some(info.last.map_or(range.last, |l| l.max(range.last)));
        info.rows += rows;
    }
}

fn info(view: &StreamView) -> Result<StreamInfo> {
    let mut extent = Extent::default();
    for partition in view.partitions_in(&ClosedRange::ALL) {
        let Some(state) = view.state(&partition)? else {
            continue;
        };
        let hidden = view.hidden(&partition);
        let store = &view.core.store;
        if let (true, Some(base)) = (state.is_aged(), state.base()) {
            for block in state.blocks_in(store, base, (i64::MIN, i64::MAX))?.iter() {
                let span = base.span(block.first_bucket, block.last_bucket);
                if !hidden.swallows(&span) {
                    extent.add(span.intersect(&partition.span()), 0);
                }
            }
        }
        let late = state.late().iter().flatten();
        if hidden.0.is_empty()
            && let Some(span) = state.main_span()
        {
            extent.add(span, state.rows_in(store, &ClosedRange::ALL)?.0);
            late.for_each(|leaf| extent.add(leaf.range(), u64::from(leaf.count)));
            continue;
        }
        for leaf in state
            .leaves_in(store, &ClosedRange::ALL)?
            .iter()
            .chain(late)
        {
            if !hidden.swallows(&leaf.range()) {
                extent.add(leaf.range(), u64::from(leaf.count));
            }
        }
    }
    for chunk in &view.chunks {
        if chunk.last_sequence <= view.sequence {
            extent.add(chunk.span, chunk.len() as u64);
            continue;
        }
        for (row, time) in chunk.rows.times.iter().enumerate() {
            if chunk.sequences.get(row) <= view.sequence {
                extent.add(ClosedRange::nanos(*time, *time), 1);
            }
        }
    }
    Ok(extent.0)
}
