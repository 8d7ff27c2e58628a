//! Rows of a stream whose stretches are in several parts, one stretch after the other. A stretch is
//! of one part, or is merged from several.
//!
//! Invariants: as for a scan of one database; a field that a part does not have is absent in its
//! rows. Failure: an error ends the scan only if it ends the scan of its stretch.

use super::row_merge::{RowMerge, shaped as shaped_rows};
use crate::Result;
use crate::read::scan::{ScanChunk, SingleScan};
use headwater_types::{Column, FieldId, FieldType};
use std::collections::VecDeque;

/// The scan of a stretch.
#[allow(
    clippy::large_enum_variant,
    reason = "a stretch of one part is the usual one, and takes no allocation"
)]
pub(super) enum StretchScan {
    One(PartScan),
    Several(RowMerge),
}

/// The scan of a stretch of one part.
pub(super) struct PartScan {
    pub(super) scan: SingleScan,
    /// The column of the scan for each requested field.
    pub(super) columns: Vec<Option<usize>>,
}

/// See [`crate::Scan`].
pub(crate) struct AcrossScan {
    fields: Vec<(String, FieldType)>,
    /// The same fields, by number.
    wanted: Vec<(FieldId, FieldType)>,
    stretches: VecDeque<StretchScan>,
}

impl AcrossScan {
    pub(super) fn new(
        fields: Vec<(String, FieldType)>,
        wanted: Vec<(FieldId, FieldType)>,
        stretches: impl IntoIterator<Item = StretchScan>,
    ) -> AcrossScan {
        AcrossScan {
            fields,
            wanted,
            stretches: stretches.into_iter().collect(),
        }
    }

    pub(in crate::read) fn fields(&self) -> &[(String, FieldType)] {
        &self.fields
    }
}

/// A chunk of a stretch with all requested fields.
fn shaped(
    chunk: ScanChunk,
    columns: &[Option<usize>],
    fields: &[(String, FieldType)],
) -> ScanChunk {
    let count = chunk.times.len();
    let mut own: Vec<Option<Column>> = chunk.columns.into_iter().map(Some).collect();
    let wanted = columns.iter().zip(fields);
    let columns = wanted.map(|(at, (_, field_type))| {
        let column = at.and_then(|at| own.get_mut(at)).and_then(Option::take);
        column.unwrap_or_else(|| Column::absent(*field_type, count))
    });
    ScanChunk {
        columns: columns.collect(),
        times: chunk.times,
    }
}

impl Iterator for AcrossScan {
    type Item = Result<ScanChunk>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = match self.stretches.front_mut()? {
                StretchScan::One(part) => part
                    .scan
                    .next()
                    .map(|chunk| Ok(shaped(chunk?, &part.columns, &self.fields))),
                StretchScan::Several(rows) => rows
                    .next_rows()
                    .transpose()
                    .map(|rows| Ok(shaped_rows(rows?, &self.wanted))),
            };
            match next {
                Some(chunk) => return Some(chunk),
                None => drop(self.stretches.pop_front()),
            }
        }
    }
}
