//! Streams selected by conditions: a few in memory, or many that are read page by page.
//!
//! Invariants: a stream that the session may not read is never included; a page has a bounded
//! number of names, and is dropped after it was read. Concurrency: threads that share [`Pages`]
//! take one page after another.

use super::{Streams, TableView, View};
use crate::error::Result;
use arrow::array::{Array, BooleanArray};
use datafusion::common::cast::as_boolean_array;
use datafusion::physical_expr::PhysicalExpr;
use headwater::{PageStart, StreamName};
use parking_lot::Mutex;
use std::sync::Arc;

/// Conditions on tags.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Conditions over the table's columns of tags; all must be true.
    pub(crate) conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// Permitted values of tags, by key, as far as the conditions list them.
    pub(crate) having: Vec<(String, Vec<String>)>,
}

/// The streams of a table that a statement reads.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// Some of the streams in memory, by index, sorted ascending.
    Loaded(Arc<Streams>, Vec<u32>),
    /// More than fit into memory.
    Many(Arc<Choice>),
}

impl Choice {
    /// The indexes of the streams that satisfy the conditions, sorted ascending.
    pub(crate) fn matching_indexes(
        &self,
        table: &TableView,
        streams: &Streams,
    ) -> Result<Vec<u32>> {
        let count = streams.len();
        let mut wanted = vec![true; count];
        if !self.conditions.is_empty() {
            let rows = table.tag_rows(streams)?;
            for condition in &self.conditions {
                let values = condition.evaluate(&rows)?.into_array(count)?;
                retain_true(&mut wanted, as_boolean_array(&values)?);
            }
        }
        let all = (0u32..).zip(wanted);
        Ok(all.filter(|(_, w)| *w).map(|(stream, _)| stream).collect())
    }
}

fn retain_true(wanted: &mut [bool], values: &BooleanArray) {
    for (row, wanted) in wanted.iter_mut().enumerate() {
        *wanted &= row < values.len() && values.is_valid(row) && values.value(row);
    }
}

impl View {
    /// The streams of a table that satisfy conditions.
    pub(crate) fn choose(&self, table: &TableView, choice: Choice) -> Result<Chosen> {
        if let Some(streams) = &table.streams {
            let places = choice.matching_indexes(table, streams)?;
            return Ok(Chosen::Loaded(Arc::clone(streams), places));
        }
        if choice.having.is_empty() {
            return Ok(Chosen::Many(Arc::new(choice)));
        }
        // Usually one, or a few: then all are loaded before rows are read.
        let mut names = Vec::new();
        let mut from = Some(PageBegin::Behind(None));
        while let Some(place) = from {
            let (page, next) = self.page(table, &choice, &place)?;
            let places = choice.matching_indexes(table, &page)?;
            names.extend(places.iter().filter_map(|at| page.name(*at)).cloned());
            if names.len() > self.cache.names_max {
                return Ok(Chosen::Many(Arc::new(choice)));
            }
            from = next;
        }
        let streams = self.sorted(names, &table.keys);
        let all = (0u32..).take(streams.len()).collect();
        Ok(Chosen::Loaded(Arc::new(streams), all))
    }

    /// Some streams of a table from a position on, and the position after them.
    fn page(
        &self,
        table: &TableView,
        choice: &Choice,
        from: &PageBegin,
    ) -> Result<(Streams, Option<PageBegin>)> {
        let (snapshot, name) = (&self.snapshot, &table.name);
        let may_read =
            |tags: &[(String, String)]| self.reads_all() || self.access.reads(&table.name, tags);
        match from {
            PageBegin::Number(start) => {
                let mut page = snapshot.handles_from(name, *start, self.page_len())?;
                page.streams.retain(|s| may_read(s.name().tags()));
                let streams =
                    Streams::of_handles(page.streams, Arc::clone(&table.keys), &self.cache.names);
                Ok((streams, page.next.map(PageBegin::Number)))
            }
            PageBegin::Behind(last) => {
                let most = self.page_len();
                let mut page =
                    snapshot.streams_having(name, &choice.having, last.as_ref(), most)?;
                let next = page.last().filter(|_| page.len() == most).cloned();
                page.retain(|s| may_read(s.tags()));
                let streams = self.sorted(page, &table.keys);
                Ok((streams, next.map(|last| PageBegin::Behind(Some(last)))))
            }
        }
    }

    /// Number of streams of a table that the session sees.
    pub(crate) fn stream_count(self: &Arc<View>, table: &Arc<TableView>) -> Result<u64> {
        if let Some(streams) = &table.streams {
            return Ok(u64::try_from(streams.len()).unwrap_or(u64::MAX));
        }
        if self.reads_all() {
            return Ok(self.snapshot.stream_count(&table.name)?);
        }
        let mut count = 0;
        let pages = Pages::new(Arc::clone(self), Arc::clone(table), Arc::default());
        while let Some((_, places)) = pages.next()? {
            count += u64::try_from(places.len()).unwrap_or(u64::MAX);
        }
        Ok(count)
    }

    /// The names of chosen streams, all at once.
    pub(crate) fn names(
        self: &Arc<View>,
        table: &Arc<TableView>,
        chosen: Chosen,
    ) -> Result<Vec<StreamName>> {
        let mut names = Vec::new();
        let mut take = |streams: &Streams, places: &[u32]| {
            names.extend(places.iter().filter_map(|at| streams.name(*at)).cloned());
        };
        match chosen {
            Chosen::Loaded(streams, places) => take(&streams, &places),
            Chosen::Many(choice) => {
                let pages = Pages::new(Arc::clone(self), Arc::clone(table), choice);
                while let Some((streams, places)) = pages.next()? {
                    take(&streams, &places);
                }
            }
        }
        Ok(names)
    }

    /// True when the session may read every stream of every table.
    pub(crate) fn reads_all(&self) -> bool {
        self.access.reads_all()
    }

    /// True when the session may read a stream.
    pub(crate) fn may_read(&self, stream: &StreamName) -> bool {
        self.reads_all() || self.access.reads(stream.table(), stream.tags())
    }

    /// Streams, sorted by their tags' columns.
    pub(crate) fn sorted_streams(&self, table: &TableView, names: Vec<StreamName>) -> Streams {
        self.sorted(names, &table.keys)
    }
}

/// Beginning of a page.
#[derive(Debug)]
enum PageBegin {
    /// By number, in the order of segments.
    Number(PageStart),
    /// By name, after this one.
    Behind(Option<StreamName>),
}

/// The streams that satisfy conditions, page by page.
#[derive(Debug)]
pub(crate) struct Pages {
    view: Arc<View>,
    table: Arc<TableView>,
    choice: Arc<Choice>,
    /// Beginning of the next page; `None` = at the end.
    next: Mutex<Option<PageBegin>>,
}

impl Pages {
    pub(crate) fn new(view: Arc<View>, table: Arc<TableView>, choice: Arc<Choice>) -> Pages {
        let first = match choice.having.is_empty() {
            true => PageBegin::Number(PageStart::default()),
            false => PageBegin::Behind(None),
        };
        Pages {
            view,
            table,
            choice,
            next: Mutex::new(Some(first)),
        }
    }

    /// The next page, and the indexes of its chosen streams; `None` at the end.
    pub(crate) fn next(&self) -> Result<Option<(Streams, Vec<u32>)>> {
        let page = {
            let mut next = self.next.lock();
            let Some(place) = next.take() else {
                return Ok(None);
            };
            let (page, behind) = self.view.page(&self.table, &self.choice, &place)?;
            *next = behind;
            page
        };
        let places = self.choice.matching_indexes(&self.table, &page)?;
        Ok(Some((page, places)))
    }
}
