//! A stretch of a stream, of one part or of several; the rows of several are merged by time.
//!
//! Invariants: at an instant with rows of several parts, the rows of the part with the lowest rank
//! are shown and no others, whatever is read. Failure: `elsewhere` where the rows of one of several
//! parts are not all here; `gone` for aggregates where rows of several parts meet and some of them
//! were aged away, since nobody can tell any more which of them had equal instants.

use super::merged::Merged;
use super::reading::Reading;
use super::row_merge::{PartRows, RowMerge};
use crate::read::Bins;
use crate::read::aggregate::{AggregateSpec, Bin};
use crate::read::ends::RangeEnd;
use crate::read::filter::Clause;
use crate::read::scan::ScanSpec;
use crate::read::summary::{SummaryBin, SummarySpec};
use crate::{Error, ErrorKind, Result};
use headwater_types::{Aggregate, ClosedRange, FieldId, Level, Rows, StreamName, Timestamp, Value};

/// A stretch of which several parts have rows.
pub(super) struct Several<'a> {
    pub(super) range: ClosedRange,
    /// In the order of the parts.
    pub(super) readings: Vec<Reading<'a>>,
    pub(super) name: &'a StreamName,
    pub(super) is_aged: bool,
}

/// A stretch of a stream.
pub(super) enum Stretch<'a> {
    /// The rows of one part.
    One(Reading<'a>),
    /// The rows of several parts, merged.
    Several(Several<'a>),
}

impl<'a> Stretch<'a> {
    /// The stretch of one part, if it is one.
    pub(super) fn one(self) -> Option<Reading<'a>> {
        match self {
            Stretch::One(reading) => Some(reading),
            Stretch::Several(_) => None,
        }
    }

    /// The stretch of several parts, if it is one.
    pub(super) fn several(self) -> Option<Several<'a>> {
        match self {
            Stretch::One(_) => None,
            Stretch::Several(several) => Some(several),
        }
    }
}

/// The stretch as aggregates are read from it; `None` where it has nothing.
pub(super) fn with_aggregates(stretch: Stretch<'_>) -> Result<Option<Stretch<'_>>> {
    let several = match stretch {
        Stretch::Several(several) if several.is_aged => several,
        stretch => return Ok(Some(stretch)),
    };
    let mut filled = Vec::new();
    let (range, name) = (several.range, several.name);
    for reading in several.readings {
        if reading.rows()? > 0 {
            filled.push(reading);
        }
    }
    if filled.len() > 1 {
        let parts = filled.iter().map(|reading| &*reading.part.name);
        let parts: Vec<&str> = parts.take(3).collect();
        return Err(Error::new(
            ErrorKind::Gone,
            format!(
                "stream `{name}` has rows of several databases (`{}`) between {} and {}, and some of them were aged away: rows of equal instants cannot be told apart; query the databases one by one, or declare which one owns this time",
                parts.join("`, `"),
                range.first,
                range.last,
            ),
        ));
    }
    Ok(filled.pop().map(Stretch::One))
}

impl Several<'_> {
    /// The merged rows, with these fields and those of the conditions.
    pub(super) fn merge(&self, fields: &[FieldId], conditions: Vec<Clause>) -> Result<RowMerge> {
        let mut read = fields.to_vec();
        read.extend(conditions.iter().flat_map(Clause::fields));
        read.sort_unstable();
        read.dedup();
        let mut parts = Vec::with_capacity(self.readings.len());
        for reading in &self.readings {
            let (names, columns) = reading.fields(&read);
            let spec = ScanSpec {
                range: self.range,
                fields: Some(names),
                ..ScanSpec::default()
            };
            let scan = reading.part.snapshot.scan_found(reading.found, &spec)?;
            parts.push(PartRows::new(scan, columns));
        }
        Ok(RowMerge::new(parts, read, conditions))
    }

    fn each_rows(&self, fields: &[FieldId], each: &mut dyn FnMut(&Rows)) -> Result<()> {
        let mut merge = self.merge(fields, Vec::new())?;
        while let Some(rows) = merge.next_rows()? {
            each(&rows);
        }
        Ok(())
    }

    pub(super) fn aggregate(
        &self,
        field: FieldId,
        spec: &AggregateSpec,
        merged: &mut Merged<Bin>,
    ) -> Result<()> {
        self.each_rows(&[field], &mut |rows| {
            let Some(column) = rows.column(field) else {
                return;
            };
            for (number, range) in spec.bins.stretches(&rows.times) {
                let aggregate = Aggregate::of(&rows.times, column, range.clone());
                if aggregate.count == 0 {
                    continue;
                }
                let value = |row: usize| {
                    let time = Timestamp::from_nanos(*rows.times.get(row)?);
                    Some((time, column.get(row)?.to_owned()))
                };
                let mut filled = range.filter(|row| spec.first_last && column.is_present(*row));
                let first = filled.next();
                let last = filled.next_back().or(first);
                let bin = Bin {
                    start: spec.bins.start(number, &spec.range),
                    aggregate,
                    first: first.and_then(value),
                    last: last.and_then(value),
                };
                merged.add([(number, bin)]);
            }
        })
    }

    pub(super) fn summary(
        &self,
        fields: &[FieldId],
        spec: &SummarySpec,
        merged: &mut Merged<SummaryBin>,
    ) -> Result<()> {
        self.each_rows(fields, &mut |rows| {
            for (number, range) in spec.bins.stretches(&rows.times) {
                let aggregates = fields.iter().map(|field| match rows.column(*field) {
                    Some(column) => Aggregate::of(&rows.times, column, range.clone()),
                    None => Aggregate::EMPTY,
                });
                let bin = SummaryBin {
                    number,
                    rows: range.len().try_into().unwrap_or(u64::MAX),
                    aggregates: aggregates.collect(),
                };
                merged.add([(number, bin)]);
            }
        })
    }

    pub(super) fn tile(
        &self,
        field: FieldId,
        level: Level,
        merged: &mut Merged<Aggregate>,
    ) -> Result<()> {
        self.each_rows(&[field], &mut |rows| {
            let Some(column) = rows.column(field) else {
                return;
            };
            for (number, range) in Bins::Level(level).stretches(&rows.times) {
                let aggregate = Aggregate::of(&rows.times, column, range);
                if aggregate.count > 0 {
                    merged.add([(number, aggregate)]);
                }
            }
        })
    }

    /// Number of shown rows, and of the rows of each part that are not shown; `None` when more than
    /// `most` rows would have to be read.
    pub(super) fn count(&self, most: &mut u64) -> Result<Option<(u64, Vec<u64>)>> {
        let mut merge = self.merge(&[], Vec::new())?;
        let (mut rows, mut read) = (0u64, 0u64);
        while let Some(next) = merge.next_rows()? {
            rows = rows.saturating_add(next.len().try_into().unwrap_or(u64::MAX));
            let hidden: u64 = merge.hidden().sum();
            if rows.saturating_add(hidden) > *most {
                return Ok(None);
            }
            read = rows.saturating_add(hidden);
        }
        *most = most.saturating_sub(read);
        Ok(Some((rows, merge.hidden().collect())))
    }
    /// The outermost value of a field.
    pub(super) fn end(&self, field: FieldId, side: RangeEnd) -> Result<Option<(Timestamp, Value)>> {
        let mut found = None;
        let mut merge = self.merge(&[field], Vec::new())?;
        while let Some(rows) = merge.next_rows()? {
            let end = rows.column(field).and_then(|column| {
                let mut filled = (0..rows.len()).filter(|row| column.is_present(*row));
                let row = match side {
                    RangeEnd::First => filled.next(),
                    RangeEnd::Last => filled.next_back(),
                }?;
                let time = Timestamp::from_nanos(*rows.times.get(row)?);
                Some((time, column.get(row)?.to_owned()))
            });
            found = end.or(found);
            if side == RangeEnd::First && found.is_some() {
                break;
            }
        }
        Ok(found)
    }
}
