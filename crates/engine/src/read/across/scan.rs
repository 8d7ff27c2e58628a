//! Rows of a stream whose stretches are in several parts, one stretch after the other.
//!
//! Invariants: as for a scan of one database; a field that a part does not have is absent in its
//! rows. Failure: an error ends the scan only if it ends the scan of its stretch.

use crate::Result;
use crate::read::scan::{ScanChunk, SingleScan};
use headwater_types::{Column, FieldType};
use std::collections::VecDeque;

/// The scan of one stretch.
pub(super) struct PartScan {
    pub(super) scan: SingleScan,
    /// The column of the scan for each requested field.
    pub(super) columns: Vec<Option<usize>>,
}

/// See [`crate::Scan`].
pub(crate) struct AcrossScan {
    fields: Vec<(String, FieldType)>,
    pieces: VecDeque<PartScan>,
}

impl AcrossScan {
    pub(super) fn new(
        fields: Vec<(String, FieldType)>,
        pieces: impl IntoIterator<Item = PartScan>,
    ) -> AcrossScan {
        AcrossScan {
            fields,
            pieces: pieces.into_iter().collect(),
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
            let piece = self.pieces.front_mut()?;
            match piece.scan.next() {
                Some(Ok(chunk)) => return Some(Ok(shaped(chunk, &piece.columns, &self.fields))),
                Some(Err(error)) => return Some(Err(error)),
                None => drop(self.pieces.pop_front()),
            }
        }
    }
}
