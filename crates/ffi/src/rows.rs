//! Rows as results: times and columns.
//!
//! Invariants: what `hw_rows` points to belongs to the object behind its handle and never changes.

use crate::column::{Layout, hw_column};
use crate::handles::{self, Handled};
use crate::status::{Outcome, invalid};
use crate::stream::{Named, hw_stream_name};
use crate::text::pointer;
use headwater::{Column, Scan, ScanChunk, Values};
use std::sync::Arc;

/// Rows of one stream, by time; of equal times by arrival. Release the handle when they have been
/// read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_rows {
    /// To release. 0 = a scan is at its end; the rest is zeros then.
    pub handle: u64,
    /// The number of rows.
    pub row_count: usize,
    /// Their times, ns since 1970.
    pub times_ns: *const i64,
    /// Columns: those asked for, in that order.
    pub column_count: usize,
    /// Each with row_count rows.
    pub columns: *const hw_column,
    /// The stream of the rows.
    pub stream: hw_stream_name,
}

impl hw_rows {
    /// The end of a scan.
    pub(crate) const END: hw_rows = hw_rows {
        handle: 0,
        row_count: 0,
        times_ns: std::ptr::null(),
        column_count: 0,
        columns: std::ptr::null(),
        stream: hw_stream_name::NONE,
    };
}

/// Names of columns; those of a prepared query are shared by all of its results.
pub(crate) type FieldNames = Arc<[Box<str>]>;

/// Rows behind a handle.
pub(crate) struct Rows {
    times: Vec<i64>,
    columns: Vec<Column>,
    names: FieldNames,
    named: Arc<Named>,
    views: Vec<hw_column>,
    /// The memory that the views point into, besides the columns and names.
    _layouts: Vec<Layout>,
}

// SAFETY: the pointers in `views` lead to the other fields, which live as long, are never changed,
// and may be read by any thread.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Handled for Rows {
    const KIND: &'static str = "rows";
}

impl Rows {
    pub(crate) fn new(chunk: ScanChunk, names: FieldNames, named: Arc<Named>) -> Rows {
        let mut layouts = Vec::new();
        let mut views = Vec::with_capacity(chunk.columns.len());
        // Moving columns and layouts moves no value: those are behind pointers of their own.
        for (column, name) in chunk.columns.iter().zip(&names[..]) {
            let layout = Layout::of(column);
            views.push(layout.view(name, column));
            if layout.is_referenced() {
                layouts.push(layout);
            }
        }
        Rows {
            views,
            times: chunk.times,
            columns: chunk.columns,
            names,
            named,
            _layouts: layouts,
        }
    }

    pub(crate) fn times(&self) -> &[i64] {
        &self.times
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn names(&self) -> &FieldNames {
        &self.names
    }

    /// The columns as callers see them.
    pub(crate) fn views(&self) -> &[hw_column] {
        &self.views
    }

    /// The stream.
    pub(crate) fn name(&self) -> &headwater::StreamName {
        &self.named.name
    }

    /// Keeps the rows; gives what the caller sees of them.
    pub(crate) fn hand_out(self) -> hw_rows {
        let (handle, rows) = handles::register(self);
        hw_rows {
            handle,
            row_count: rows.times.len(),
            times_ns: pointer(&rows.times),
            column_count: rows.views.len(),
            columns: pointer(&rows.views),
            stream: rows.named.view(),
        }
    }
}

/// The names of a scan's columns.
pub(crate) fn names_of(scan: &Scan) -> FieldNames {
    scan.fields()
        .iter()
        .map(|(n, _)| n.as_str().into())
        .collect()
}

/// All rows of a scan at once.
pub(crate) fn gather(scan: &mut Scan) -> Outcome<ScanChunk> {
    let Some(first) = scan.next() else {
        let empty = scan.fields().iter().map(|(_, t)| Column::new(*t));
        return Ok(ScanChunk {
            times: Vec::new(),
            columns: empty.collect(),
        });
    };
    let mut all = first?;
    for chunk in scan {
        let chunk = chunk?;
        all.times.extend_from_slice(&chunk.times);
        for (mine, theirs) in all.columns.iter_mut().zip(&chunk.columns) {
            if text_bytes(mine) + text_bytes(theirs) > u32::MAX as usize {
                return Err(invalid(
                    "the text of a field exceeds 4 GiB: read it with hw_scan_open, or read a shorter range",
                ));
            }
            mine.extend_from(theirs, 0..theirs.len());
        }
    }
    Ok(all)
}

fn text_bytes(column: &Column) -> usize {
    match column.values() {
        Values::String(text) | Values::Bytes(text) => text.bytes().len(),
        _ => 0,
    }
}
