//! Rows of a stretch that several parts have, merged by time.
//!
//! Invariants: rows are sorted by time; of an instant at which several parts have rows, the rows of
//! the first of these parts are shown, whatever their fields, and the others are counted.
//! Conditions are applied to the shown rows. Failure: an error of a part is passed on; what follows
//! it may lack rows of that part.

use crate::Result;
use crate::read::filter::Clause;
use crate::read::scan::{ScanChunk, SingleScan};
use headwater_types::{Column, FieldId, FieldType, Rows, Timestamp};

/// Number of rows of a chunk, about.
const CHUNK_ROWS: usize = 4_096;

/// The rows of one part.
pub(super) struct PartRows {
    scan: SingleScan,
    /// The column of the scan for each field that is read.
    columns: Vec<Option<usize>>,
    rows: Rows,
    /// The next row.
    at: usize,
    has_ended: bool,
    /// Number of its rows that are not shown.
    hidden: u64,
}

impl PartRows {
    pub(super) fn new(scan: SingleScan, columns: Vec<Option<usize>>) -> PartRows {
        PartRows {
            scan,
            columns,
            rows: Rows::default(),
            at: 0,
            has_ended: false,
            hidden: 0,
        }
    }

    fn time(&self) -> Option<Timestamp> {
        let time = self.rows.times.get(self.at)?;
        Some(Timestamp::from_nanos(*time))
    }

    /// Reads until there is a next row, or none will follow.
    fn fill(&mut self, fields: &[FieldId]) -> Result<()> {
        while self.time().is_none() && !self.has_ended {
            match self.scan.next().transpose()? {
                Some(chunk) => {
                    self.rows = rows_of(chunk, &self.columns, fields);
                    self.at = 0;
                }
                None => self.has_ended = true,
            }
        }
        Ok(())
    }

    /// Passes over the rows of an instant of which another part's rows are shown.
    fn hide(&mut self, time: Timestamp) {
        let times = &self.rows.times;
        let behind = times.partition_point(|t| *t <= time.as_nanos());
        let rows = behind.saturating_sub(self.at);
        self.at += rows;
        self.hidden = self
            .hidden
            .saturating_add(rows.try_into().unwrap_or(u64::MAX));
    }
}

/// The rows of a chunk, with the columns of the fields that the part has.
fn rows_of(chunk: ScanChunk, columns: &[Option<usize>], fields: &[FieldId]) -> Rows {
    let mut own: Vec<Option<Column>> = chunk.columns.into_iter().map(Some).collect();
    let columns = fields.iter().zip(columns).filter_map(|(field, at)| {
        let column = own.get_mut((*at)?)?.take()?;
        Some((*field, column))
    });
    Rows {
        columns: columns.collect(),
        times: chunk.times,
    }
}

/// The merged rows of several parts.
pub(super) struct RowMerge {
    /// In the order of the parts.
    parts: Vec<PartRows>,
    /// The fields that are read, sorted.
    fields: Vec<FieldId>,
    conditions: Vec<Clause>,
    /// The newest instant that is shown, and its part.
    shown: Option<(Timestamp, usize)>,
    /// Merged rows that an error kept from being returned.
    pending: Rows,
}

impl RowMerge {
    /// Merges scans of the same fields, without conditions, in the order of the parts.
    pub(super) fn new(
        parts: Vec<PartRows>,
        fields: Vec<FieldId>,
        conditions: Vec<Clause>,
    ) -> RowMerge {
        RowMerge {
            parts,
            fields,
            conditions,
            shown: None,
            pending: Rows::default(),
        }
    }

    /// Number of rows of each part that are not shown, of the rows so far.
    pub(super) fn hidden(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|part| part.hidden)
    }

    /// The next shown rows; `None` at the end.
    pub(super) fn next_rows(&mut self) -> Result<Option<Rows>> {
        let mut out = std::mem::take(&mut self.pending);
        loop {
            if let Err(error) = self.fill() {
                self.pending = out;
                return Err(error);
            }
            if !self.take(&mut out) || out.len() >= CHUNK_ROWS {
                let is_end = out.is_empty();
                self.filter(&mut out);
                if is_end {
                    return Ok(None);
                }
                if !out.is_empty() {
                    return Ok(Some(out));
                }
            }
        }
    }

    /// Brings each part to its next row that may be shown.
    fn fill(&mut self) -> Result<()> {
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.fill(&self.fields)?;
            while let Some((time, by)) = self.shown
                && by != index
                && part.time() == Some(time)
            {
                part.hide(time);
                part.fill(&self.fields)?;
            }
        }
        Ok(())
    }

    /// Appends the next rows that one part has before all others; false at the end.
    fn take(&mut self, out: &mut Rows) -> bool {
        let heads = self.parts.iter().enumerate();
        let heads = heads.filter_map(|(index, part)| Some((part.time()?, index)));
        let (mut first, mut second) = (None, None);
        for head in heads {
            if first.is_none_or(|first| head < first) {
                second = first.replace(head);
            } else if second.is_none_or(|second| head < second) {
                second = Some(head);
            }
        }
        let Some((_, index)) = first else {
            return false;
        };
        let Some(part) = self.parts.get_mut(index) else {
            return false;
        };
        let times = &part.rows.times;
        let until = second.map_or(times.len(), |(time, other)| {
            let time = time.as_nanos();
            times.partition_point(|t| *t < time || (*t == time && index < other))
        });
        out.extend_from(&part.rows, part.at..until);
        part.at = until;
        let shown = out.times.last().copied().map(Timestamp::from_nanos);
        self.shown = shown.map(|time| (time, index));
        true
    }

    fn filter(&self, rows: &mut Rows) {
        if self.conditions.is_empty() {
            return;
        }
        let mut picked: Vec<u32> = (0u32..).take(rows.len()).collect();
        for condition in &self.conditions {
            condition.retain(rows, &mut picked);
        }
        if picked.len() < rows.len() {
            *rows = rows.gather(&picked);
        }
    }
}

/// A chunk with these fields, in this order, of rows that lack those that no part has.
pub(super) fn shaped(mut rows: Rows, fields: &[(FieldId, FieldType)]) -> ScanChunk {
    let count = rows.len();
    let mut columns = Vec::with_capacity(fields.len());
    for (at, (field, field_type)) in fields.iter().enumerate() {
        // A field may be requested twice: the column is moved out for its last mention only.
        let mut later = fields.iter().skip(at + 1);
        let column = match later.any(|(other, _)| other == field) {
            true => rows.column(*field).cloned(),
            false => {
                let found = rows.columns.iter().position(|(f, _)| f == field);
                found.map(|at| rows.columns.remove(at).1)
            }
        };
        columns.push(column.unwrap_or_else(|| Column::absent(*field_type, count)));
    }
    ScanChunk {
        times: rows.times,
        columns,
    }
}
