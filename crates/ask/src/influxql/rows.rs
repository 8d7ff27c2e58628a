//! Rows of a series that satisfy a condition.

use super::Evaluator;
use super::field::ReadField;
use super::measurements::{ChunkVisitor, Member, Rows};
use super::predicate::TIME;
use crate::error::{Error, ok_if_found};
use headwater::{ClosedRange, Column, FieldType, Filter, ScanChunk, ScanSpec, ValueRef};

impl Evaluator<'_> {
    /// Passes chunks of rows, sorted by time, to `each`, with the numbers of the rows that satisfy
    /// the condition, until it returns false. The columns are `read`. `filters` are optional: rows
    /// of subqueries ignore them.
    pub(super) fn each_chunk(
        &self,
        member: &Member,
        read: &[ReadField],
        range: ClosedRange,
        filters: &[Filter],
        each: &mut ChunkVisitor<'_>,
    ) -> Result<(), Error> {
        self.budget.check()?;
        let mut rows: Vec<u32> = Vec::new();
        match &member.rows {
            Rows::Stored => {}
            Rows::Passed(passed) => return passed.each_chunk(self, member, (read, range), each),
            Rows::Buffered(held) => {
                let tag = |key: &str, rows: usize| member.tag_column(key, rows);
                let chunk = held.of(read, range, &tag);
                if !chunk.times.is_empty() {
                    let_through(member, &chunk, &mut rows);
                    each(&chunk, &rows)?;
                }
                return Ok(());
            }
        }
        let range = range.intersect(&member.extent);
        if range.is_empty() {
            return Ok(());
        }
        let mut all_filters = member.rest.filters(read);
        all_filters.extend_from_slice(filters);
        // A field may be read as several types.
        let mut names: Vec<String> = Vec::with_capacity(read.len());
        let mut places: Vec<usize> = Vec::with_capacity(read.len());
        for field in read {
            let at = names.iter().position(|name| *name == field.name);
            places.push(at.unwrap_or(names.len()));
            if at.is_none() {
                names.push(field.name.clone());
            }
        }
        let is_as_stored = names.len() == read.len() && !read.iter().any(ReadField::is_cast);
        let spec = ScanSpec {
            range,
            fields: Some(names),
            filters: all_filters,
            any_of: Vec::new(),
        };
        let Some(scan) = ok_if_found(self.snapshot.scan(&member.stream, &spec))? else {
            return Ok(());
        };
        for chunk in scan {
            self.budget.check()?;
            let mut chunk = chunk?;
            if !is_as_stored {
                let columns = places.iter().zip(read).map(|(place, field)| {
                    let column = chunk.columns.get(*place);
                    column.map_or_else(|| Column::new(field.field_type()), |c| field.read(c))
                });
                chunk.columns = columns.collect();
            }
            let_through(member, &chunk, &mut rows);
            if !each(&chunk, &rows)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The numbers of the rows of a chunk that satisfy a member's condition.
pub(super) fn let_through(member: &Member, chunk: &ScanChunk, rows: &mut Vec<u32>) {
    let count = u32::try_from(chunk.times.len()).unwrap_or(u32::MAX);
    rows.clear();
    if member.matches_all_rows() {
        rows.extend(0..count);
    } else {
        rows.extend((0..count).filter(|row| {
            let at = row_index(*row);
            let value = |column: usize| match column {
                TIME => chunk.times.get(at).copied().map(ValueRef::I64),
                column => chunk.columns.get(column)?.get(at),
            };
            member.rest.is_satisfied_by(&value)
        }));
    }
}

/// The number of a row as an index in its columns.
pub(super) fn row_index(row: u32) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

/// One column of the rows of a chunk that satisfy the condition.
pub(super) fn chosen(chunk: &ScanChunk, rows: &[u32], column: usize) -> (Vec<i64>, Column) {
    let Some(column) = chunk.columns.get(column) else {
        return (Vec::new(), Column::new(FieldType::F64));
    };
    if rows.len() == chunk.times.len() {
        return (chunk.times.clone(), column.clone());
    }
    let times = rows
        .iter()
        .filter_map(|row| chunk.times.get(row_index(*row)));
    (times.copied().collect(), column.gather(rows))
}
