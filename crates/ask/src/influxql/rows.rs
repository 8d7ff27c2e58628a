//! Rows of a series that a condition lets through.

use super::Asker;
use super::measurements::Member;
use crate::error::{Error, found};
use headwater::{ClosedRange, Column, FieldType, Filter, ScanChunk, ScanSpec};

/// Takes a chunk and the numbers of its rows that the condition lets through; false ends the
/// reading.
type Each<'a> = dyn FnMut(&ScanChunk, &[u32]) -> Result<bool, Error> + 'a;

impl Asker<'_> {
    /// Hands out chunks of rows by time, with the numbers of those that the condition lets through,
    /// until `each` says false. The columns are `read`.
    pub(super) fn each_chunk(
        &self,
        member: &Member,
        read: &[(String, FieldType)],
        range: ClosedRange,
        filters: &[Filter],
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        self.budget.check()?;
        let mut all_filters = member.rest.filters(read);
        all_filters.extend_from_slice(filters);
        let spec = ScanSpec {
            range: range.intersect(&member.extent),
            fields: Some(read.iter().map(|(name, _)| name.clone()).collect()),
            filters: all_filters,
        };
        if spec.range.is_empty() {
            return Ok(());
        }
        let Some(scan) = found(self.snapshot.scan(&member.stream, &spec))? else {
            return Ok(());
        };
        let mut rows: Vec<u32> = Vec::new();
        for chunk in scan {
            self.budget.check()?;
            let chunk = chunk?;
            let count = u32::try_from(chunk.times.len()).unwrap_or(u32::MAX);
            rows.clear();
            if member.takes_all_rows() {
                rows.extend(0..count);
            } else {
                rows.extend((0..count).filter(|row| {
                    let value = |column: usize| chunk.columns.get(column)?.get(*row as usize);
                    member.rest.holds(&value)
                }));
            }
            if !each(&chunk, &rows)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The rows of a chunk that were let through, of one column.
pub(super) fn chosen(chunk: &ScanChunk, rows: &[u32], column: usize) -> (Vec<i64>, Column) {
    let Some(column) = chunk.columns.get(column) else {
        return (Vec::new(), Column::new(FieldType::F64));
    };
    if rows.len() == chunk.times.len() {
        return (chunk.times.clone(), column.clone());
    }
    let times = rows.iter().filter_map(|row| chunk.times.get(*row as usize));
    (times.copied().collect(), column.gather(rows))
}
