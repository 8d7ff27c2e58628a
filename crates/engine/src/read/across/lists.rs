//! Tables and streams of all parts, a page at a time, and the ranges in which parts disagree.
//!
//! Invariants: a stream is listed once, however many parts have it. By name, streams are in the
//! order of one catalog; by number, streams of one part follow the streams of the parts before it,
//! each with its home part. Concurrency: no state is pinned between two pages.

use super::AcrossSnapshot;
use super::catalog::{TableAcross, name_of, unreadable};
use super::index::Entry;
use super::owners::outside;
use crate::common::ids::TableId;
use crate::metadata::catalog::{Having, push_tags_text, stream_key};
use crate::read::describe::StreamPage;
use crate::read::handle::StreamHandle;
use crate::read::listing::{HandlePage, PageStart};
use crate::{Result, TableInfo};
use headwater_codec::DecodeError;
use headwater_types::{ClosedRange, FieldType, StreamName, push_stream_text};
use std::sync::Arc;

/// Range of a stream that a part has, not shown because another part owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The stream.
    pub stream: StreamName,
    /// The part that has it.
    pub part: Arc<str>,
    /// The stretches with rows that are not shown, as precisely as is known without reading any.
    pub spans: Vec<ClosedRange>,
}

impl AcrossSnapshot {
    /// Passes the streams of a table after `after` to `each`, until it returns false.
    fn walk(
        &self,
        table: &TableAcross,
        after: Option<&StreamName>,
        having: &Having,
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
        let found = self.table(table)?;
        let mut keys = Vec::new();
        if limit > 0 {
            self.walk(found, after, &Having::new(wanted), &mut |entry| {
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
        let found = self.table(table)?;
        let mut page = StreamPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let mut text = String::new();
        push_stream_text(&mut text, table, []);
        let of_table = text.len();
        let (mut keys, mut last, mut looked_at) = (Vec::new(), None, 0);
        self.walk(found, after, &Having::default(), &mut |entry| {
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
        let found = self.table(table)?;
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
                for stream in own.streams {
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
        Ok(self.table(table)?.streams.len())
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
    pub(in crate::read) fn conflicts(&self, table: &str) -> Result<Vec<Conflict>> {
        let found = self.table(table)?;
        let mut conflicts = Vec::new();
        let contested = found.streams.contested.iter();
        for entry in contested.filter_map(|key| found.streams.find(key)) {
            let stream = name_of(table, &entry.key)?;
            for holder in &entry.holders {
                let shown = entry.shown.of_part(*holder);
                let part = self.part(*holder)?;
                let info = part.snapshot.stream_info(&stream)?;
                // An empty range has no conflict.
                let ends = info.first.zip(info.last);
                let held = ends.map_or(ClosedRange::EMPTY, |(a, b)| ClosedRange::new(a, b));
                let spans = outside(&held, &shown);
                if !spans.is_empty() {
                    conflicts.push(Conflict {
                        stream: stream.clone(),
                        part: Arc::clone(&part.name),
                        spans,
                    });
                }
            }
        }
        Ok(conflicts)
    }
}

/// True when the home of a stream is the part that it was looked up in.
fn is_at_home(table: &TableAcross, stream: &StreamHandle, number: u32) -> bool {
    let mut key = Vec::with_capacity(64);
    stream_key(TableId(0), stream.name().tags(), &mut key);
    let entry = table.streams.find(&key).filter(|e| !e.shown.is_nothing());
    entry.is_some_and(|e| e.shown.home(&e.holders) == Some(number))
}
