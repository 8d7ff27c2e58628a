//! Reads leaves, and caches their decoded columns.
//!
//! On its first read a leaf is decoded only as far as needed, and only its bytes are cached; on a
//! second read it is decoded completely, and its columns are cached ([`LeafCaching::ReadAgain`]).
//! So a read of more leaves than fit into the cache neither copies their columns nor evicts others.
//! Reads of small parts of many leaves decode their pages each time ([`LeafCaching::UnlessSmall`]):
//! decoding whole leaves takes several times as long, and they would not fit.
//!
//! Invariants: a decoded column in the cache is the stored column of a whole leaf. Concurrency,
//! failure: as in [`super`].

use super::{ColumnKey, DecodedColumn, FileOffset, LeafAhead, Store};
use crate::common::ids::SegmentId;
use crate::metadata::catalog::Table;
use crate::storage::read_stats;
use crate::storage::segment::LeafEntry;
use crate::storage::segment::columns::{LeafColumns, in_table_types, pages_of, rows_in_leaf};
use crate::{Error, Result};
use headwater_codec::leaf::{Leaf, PAGE_ROWS};
use headwater_types::{ClosedRange, FieldId, Rows};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Caching of the decoded columns of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeafCaching {
    /// A leaf that is read again is decoded completely, and cached.
    #[default]
    ReadAgain,
    /// The same if at least half of the leaf is read; otherwise only the read part is decoded,
    /// however often.
    UnlessSmall,
}

impl Store {
    /// The leaf at an entry, header checked.
    pub(crate) fn leaf(&self, id: SegmentId, entry: &LeafEntry) -> Result<Leaf> {
        Ok(self.leaf_again(id, entry, None)?.0)
    }

    /// True when no part of the leaf has to be read, as far as is known.
    pub(super) fn has_leaf(&self, place: FileOffset) -> bool {
        self.cache.leaves.peek(&place).is_some()
            || self.cache.columns.peek(&ColumnKey(place, None)).is_some()
    }

    /// The leaf, and true if its bytes were read before.
    fn leaf_again(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        ahead: Option<LeafAhead>,
    ) -> Result<(Leaf, bool)> {
        let place = FileOffset(id, entry.offset);
        if let Some((leaf, _)) = self.cache.leaves.get(&place) {
            return Ok((leaf, true));
        }
        let arrived = match ahead {
            Some(ahead) => self.arrived(id, entry, ahead)?,
            None => None,
        };
        let (leaf, len) = match arrived {
            Some(bytes) => self.open_leaf(id, entry, bytes)?,
            None => self.without_doubt(id, || self.read_leaf(id, entry))?,
        };
        self.counters.leaves.fetch_add(1, Ordering::Relaxed);
        self.cache.leaves.insert(place, (leaf.clone(), len));
        Ok((leaf, false))
    }

    /// Reads a leaf; returns it and its bytes.
    fn read_leaf(&self, id: SegmentId, entry: &LeafEntry) -> Result<(Leaf, usize)> {
        let bytes = Store::read_shared(entry.bytes, |out| {
            match self.read_newest(id, entry.offset, out) {
                true => Ok(()),
                false => self.read_bulk(id, entry.offset, out),
            }
        })?;
        self.open_leaf(id, entry, bytes)
    }

    fn open_leaf(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        bytes: Arc<[u8]>,
    ) -> Result<(Leaf, usize)> {
        let len = bytes.len();
        let leaf = Leaf::open(bytes).map_err(|e| Error::decode(&self.path(id), entry.offset, e));
        let leaf = leaf.and_then(|leaf| {
            if leaf.rows() == entry.leaf_rows as usize {
                return Ok((leaf, len));
            }
            Err(Error::damage(crate::common::error::Damage {
                file: self.path(id),
                offset: entry.offset,
                expected: format!("a leaf of {} rows", entry.leaf_rows),
                found: format!("a leaf of {} rows", leaf.rows()),
            }))
        });
        leaf.inspect_err(|error| self.note_damage(FileOffset(id, entry.offset), error))
    }

    /// All fields of rows `rows` of a stream's entry, counted from the entry's first, in the
    /// current types of the table. Merges and exports read whole leaves once: caching these is not
    /// worth the memory.
    pub(crate) fn leaf_rows(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        rows: Range<usize>,
        table: &Table,
    ) -> Result<Rows> {
        let range = rows_in_leaf(entry, &rows);
        let pages = pages_of(&range);
        read_stats::leaf(pages);
        let leaf = self.leaf(id, entry)?;
        let decoded = if range.len() * 2 >= leaf.rows() {
            let all = leaf.read(0..leaf.rows(), None);
            all.map(|all| match range == (0..all.len()) {
                true => all,
                false => all.slice(range),
            })
        } else {
            leaf.read(range, None)
        };
        self.counters.pages.fetch_add(pages, Ordering::Relaxed);
        let rows = decoded.map_err(|e| self.damaged_leaf(id, entry, e))?;
        Ok(in_table_types(rows, table))
    }

    /// Rows `rows` of a stream's entry, counted from the entry's first, in the types they were
    /// written with, and shared with the cache if they are in it.
    pub(crate) fn leaf_columns(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        rows: Range<usize>,
        fields: &[FieldId],
    ) -> Result<LeafColumns> {
        let rows = rows_in_leaf(entry, &rows);
        if let Some(decoded) = self.decoded(id, entry, rows.clone(), fields) {
            read_stats::leaf(pages_of(&rows));
            return Ok(decoded);
        }
        let (leaf, again) = self.leaf_again(id, entry, None)?;
        self.read_columns(id, entry, &leaf, again, rows, fields)
    }

    /// Times of rows of a stream's entry, counted from the entry's first. If the leaf is not
    /// decoded yet, only its bytes are cached.
    pub(crate) fn leaf_times(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        rows: Range<usize>,
    ) -> Result<LeafColumns> {
        let rows = rows_in_leaf(entry, &rows);
        if let Some(decoded) = self.decoded(id, entry, rows.clone(), &[]) {
            return Ok(decoded);
        }
        let leaf = self.leaf(id, entry)?;
        self.read_columns(id, entry, &leaf, false, rows, &[])
    }

    /// Some fields of all rows of a stream's entry, in the current types of the table, for readers
    /// that go through all leaves once.
    pub(crate) fn leaf_fields(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        fields: &[FieldId],
        table: &Table,
    ) -> Result<Rows> {
        let leaf = self.leaf(id, entry)?;
        let range = rows_in_leaf(entry, &(0..usize::MAX));
        let rows = leaf.read(range, Some(fields));
        let rows = rows.map_err(|e| self.damaged_leaf(id, entry, e))?;
        Ok(in_table_types(rows, table))
    }

    /// As [`Store::leaf_columns`], for the rows of the entry within a range, of a leaf that may
    /// have been requested ahead.
    pub(crate) fn leaf_columns_in(
        &self,
        leaf: (SegmentId, &LeafEntry, Option<LeafAhead>),
        range: &ClosedRange,
        fields: &[FieldId],
        keep: LeafCaching,
    ) -> Result<LeafColumns> {
        let (id, entry, ahead) = leaf;
        let all = rows_in_leaf(entry, &(0..entry.count as usize));
        if let Some(decoded) = self.decoded(id, entry, all, fields) {
            let inside = decoded.within(range);
            read_stats::leaf(pages_of(inside.rows()));
            return Ok(inside);
        }
        let (leaf, again) = self.leaf_again(id, entry, ahead)?;
        let rows = rows_in_leaf(entry, &rows_about(&leaf, entry, range));
        let again = again && (keep == LeafCaching::ReadAgain || rows.len() * 2 >= leaf.rows());
        let columns = self.read_columns(id, entry, &leaf, again, rows, fields)?;
        Ok(columns.within(range))
    }

    /// Rows of an entry's leaf that include all rows within a range: whole pages, or all rows;
    /// counted from the entry's first.
    pub(crate) fn rows_about(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        range: &ClosedRange,
    ) -> Result<Range<usize>> {
        Ok(match is_inside(entry, range) {
            true => 0..entry.count as usize,
            false => rows_about(&self.leaf(id, entry)?, entry, range),
        })
    }

    /// Rows of a leaf, all of which are cached if the leaf is read again.
    fn read_columns(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        leaf: &Leaf,
        again: bool,
        rows: Range<usize>,
        fields: &[FieldId],
    ) -> Result<LeafColumns> {
        read_stats::leaf(pages_of(&rows));
        let to_decode = match again {
            true => 0..leaf.rows(),
            false => rows.clone(),
        };
        let pages = pages_of(&to_decode);
        self.counters.pages.fetch_add(pages, Ordering::Relaxed);
        let decoded = leaf.read(to_decode, Some(fields));
        let decoded = decoded.map(|decoded| match again {
            true => self.keep(FileOffset(id, entry.offset), decoded, fields, rows),
            false => LeafColumns::of(decoded),
        });
        decoded.map_err(|e| self.damaged_leaf(id, entry, e))
    }

    fn damaged_leaf(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        error: headwater_codec::DecodeError,
    ) -> Error {
        let error = Error::decode(&self.path(id), entry.offset, error);
        self.note_damage(FileOffset(id, entry.offset), &error);
        error
    }

    /// Rows of an entry's leaf, if all of them are decoded.
    fn decoded(
        &self,
        id: SegmentId,
        entry: &LeafEntry,
        rows: Range<usize>,
        fields: &[FieldId],
    ) -> Option<LeafColumns> {
        let place = FileOffset(id, entry.offset);
        let DecodedColumn::Times(times) = self.cache.columns.get(&ColumnKey(place, None))? else {
            return None;
        };
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            match self.cache.columns.get(&ColumnKey(place, Some(*field)))? {
                DecodedColumn::Column(column) => columns.push((*field, column)),
                DecodedColumn::Missing => {}
                DecodedColumn::Times(_) => return None,
            }
        }
        Some(LeafColumns::new(times, columns, rows))
    }

    /// Caches the decoded rows of a whole leaf.
    fn keep(
        &self,
        place: FileOffset,
        all: Rows,
        fields: &[FieldId],
        range: Range<usize>,
    ) -> LeafColumns {
        let times = Arc::new(all.times);
        let key = ColumnKey(place, None);
        self.cache
            .columns
            .insert(key, DecodedColumn::Times(Arc::clone(&times)));
        let mut columns = Vec::with_capacity(all.columns.len());
        let mut decoded = all.columns;
        for field in fields {
            let kept = match decoded.iter().position(|(f, _)| f == field) {
                Some(at) => {
                    let column = Arc::new(decoded.swap_remove(at).1);
                    columns.push((*field, Arc::clone(&column)));
                    DecodedColumn::Column(column)
                }
                None => DecodedColumn::Missing,
            };
            self.cache
                .columns
                .insert(ColumnKey(place, Some(*field)), kept);
        }
        LeafColumns::new(times, columns, range)
    }
}

fn is_inside(entry: &LeafEntry, range: &ClosedRange) -> bool {
    range.first <= entry.first && entry.last <= range.last
}

/// As [`Store::rows_about`].
fn rows_about(leaf: &Leaf, entry: &LeafEntry, range: &ClosedRange) -> Range<usize> {
    let count = entry.count as usize;
    if is_inside(entry, range) {
        return 0..count;
    }
    let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
    // Only the pages whose first times meet the range. In a shared leaf the stream's part need not
    // start with a page.
    let start = entry.row_start as usize;
    let pages = leaf.page_first_times();
    let page_from = start.div_ceil(PAGE_ROWS);
    let page_to = (start + count).div_ceil(PAGE_ROWS);
    // A damaged entry may refer to pages that the leaf does not have: reading it reports that.
    let inside = pages
        .get(page_from..page_to.max(page_from))
        .unwrap_or_default();
    // Pages before the last one that starts before the range have no rows in it. (`keep`: equal
    // times may start there.)
    let skip = inside.partition_point(|t| *t < first);
    let from = if skip == 0 {
        0
    } else {
        (page_from + skip - 1) * PAGE_ROWS - start
    };
    let keep = inside.partition_point(|t| *t <= last);
    let to = if page_from + keep >= page_to {
        count
    } else {
        ((page_from + keep) * PAGE_ROWS - start).min(count)
    };
    from..to
}
