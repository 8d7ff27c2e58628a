//! The earliest and the latest instant of a stream in a range, and the values there, without reading what lies between.
//!
//! Invariants: what is found is what a scan of the range would give: of several rows of one instant the one that comes first, or
//! last; absent values, what has been deleted and what has expired are passed over.
//! Cost: what is known about a stream's files says where to begin; from there ranges are read that grow until a row is found.
//! Where a field is rarely present, the stored aggregates say what to skip.

use super::plan::{End, Of};
use crate::error::external;
use crate::view::TableView;
use datafusion::common::{Result, ScalarValue};
use headwater::{
    ClosedRange, Comparison, FieldType, Filter, LastValue, ScanSpec, Snapshot, StreamHandle,
    Timestamp, Value,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that a range holds on average, after the first one, of one instant.
const ROWS: i128 = 2_048;

/// An instant and the value there; of an end that is only an instant, that instant.
pub(super) type Found = (i64, ScalarValue);

/// One stream in a range.
pub(super) struct Ends<'a> {
    pub(super) table: &'a TableView,
    pub(super) handle: &'a StreamHandle,
    pub(super) snapshot: &'a Snapshot,
    pub(super) range: ClosedRange,
    /// Nobody waits any more.
    pub(super) stop: &'a AtomicBool,
}

/// Where a stream's rows may lie.
#[derive(Clone, Copy)]
struct Extent {
    first: i128,
    last: i128,
    /// The width of a range that holds about [`ROWS`] rows.
    width: i128,
}

impl Ends<'_> {
    /// One answer per end; `None` where there is nothing.
    pub(super) fn find(&self, ends: &[End]) -> Result<Vec<Option<Found>>> {
        let Some(extent) = self.extent()? else {
            return Ok(vec![None; ends.len()]);
        };
        let is_newest = |end: &End| end.last && matches!(end.of, Of::Field(_));
        let newest = if ends.iter().any(is_newest) {
            match self.handle.last(self.snapshot) {
                Err(error) if error.kind() == headwater::ErrorKind::NotFound => Vec::new(),
                other => other.map_err(external)?,
            }
        } else {
            Vec::new()
        };
        let found = ends.iter().map(|end| match &end.of {
            Of::Field(field) if end.last => self.newest(*field, &newest, extent),
            of => self.search(of, end.last, extent),
        });
        found.collect()
    }

    /// True when there is a row.
    pub(super) fn has_rows(&self) -> Result<bool> {
        let Some(extent) = self.extent()? else {
            return Ok(false);
        };
        Ok(self.search(&Of::Time, true, extent)?.is_some())
    }

    fn extent(&self) -> Result<Option<Extent>> {
        let info = match self.snapshot.stream_info(self.handle.name()) {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(external)?,
        };
        let (Some(first), Some(last)) = (info.first, info.last) else {
            return Ok(None);
        };
        let wide = |at: Timestamp| i128::from(at.as_nanos());
        let all = wide(last) - wide(first) + 1;
        let inside = ClosedRange::new(first, last).intersect(&self.range);
        Ok((!inside.is_empty()).then(|| Extent {
            first: wide(inside.first),
            last: wide(inside.last),
            width: (all * ROWS / i128::from(info.rows.max(1))).max(1),
        }))
    }

    /// The latest value of a field: the engine knows the latest of all, which may lie behind the range.
    fn newest(&self, field: usize, known: &[LastValue], extent: Extent) -> Result<Option<Found>> {
        let Some((name, _)) = self.table.fields.get(field) else {
            return Ok(None);
        };
        let Some(known) = known.iter().find(|known| known.field == *name) else {
            return Ok(None);
        };
        if known.time > self.range.last {
            return self.search(&Of::Field(field), true, extent);
        }
        let inside = known.time >= self.range.first;
        Ok(inside.then(|| (known.time.as_nanos(), scalar(known.value.clone()))))
    }

    fn search(&self, of: &Of, last: bool, extent: Extent) -> Result<Option<Found>> {
        let (mut first, mut end) = (extent.first, extent.last);
        let mut width: i128 = 1;
        while first <= end && !self.stop.load(Ordering::Relaxed) {
            // Both are instants: they lie within the stream's.
            let part = if last {
                (end.saturating_sub(width - 1).max(first), end)
            } else {
                (first, first.saturating_add(width - 1).min(end))
            };
            let range = ClosedRange::nanos(part.0 as i64, part.1 as i64);
            if let Some(found) = self.within(of, last, range)? {
                return Ok(Some(found));
            }
            if last {
                end = part.0 - 1;
            } else {
                first = part.1 + 1;
            }
            width = extent.width.max(width.saturating_mul(2));
        }
        Ok(None)
    }

    fn within(&self, of: &Of, last: bool, range: ClosedRange) -> Result<Option<Found>> {
        let field = match of {
            Of::Time => None,
            Of::Field(at) => self.table.fields.get(*at),
        };
        let spec = ScanSpec {
            range,
            fields: Some(field.iter().map(|(name, _)| name.clone()).collect()),
            filters: field
                .iter()
                .map(|(name, of)| is_present(name, *of))
                .collect(),
        };
        let scan = match self.handle.scan(self.snapshot, &spec) {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(external)?,
        };
        let mut found = None;
        for chunk in scan {
            let chunk = chunk.map_err(external)?;
            let row = if last {
                chunk.times.len().checked_sub(1)
            } else {
                Some(0)
            };
            let Some((row, time)) = row.and_then(|row| Some((row, *chunk.times.get(row)?))) else {
                continue;
            };
            let value = match of {
                Of::Time => Some(instant(time)),
                Of::Field(_) => {
                    let value = chunk.columns.first().and_then(|column| column.get(row));
                    value.map(|value| scalar(value.to_owned()))
                }
            };
            if let Some(value) = value {
                found = Some((time, value));
            }
            if (!last && found.is_some()) || self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(found)
    }
}

pub(super) fn instant(time: i64) -> ScalarValue {
    ScalarValue::TimestampNanosecond(Some(time), Some("UTC".into()))
}

/// A condition that every present value fulfils.
fn is_present(field: &str, of: FieldType) -> Filter {
    Filter {
        field: field.to_owned(),
        comparison: Comparison::TotalGreaterOrEqual,
        value: match of {
            // The lowest of the total order: a NaN with its sign and every other bit set.
            FieldType::F64 => Value::F64(f64::from_bits(u64::MAX)),
            FieldType::I64 => Value::I64(i64::MIN),
            FieldType::U64 => Value::U64(0),
            FieldType::Bool => Value::Bool(false),
            FieldType::String => Value::String(String::new()),
            FieldType::Bytes => Value::Bytes(Vec::new()),
        },
    }
}

fn scalar(value: Value) -> ScalarValue {
    match value {
        Value::F64(v) => ScalarValue::from(v),
        Value::I64(v) => ScalarValue::from(v),
        Value::U64(v) => ScalarValue::from(v),
        Value::Bool(v) => ScalarValue::from(v),
        Value::String(v) => ScalarValue::from(v),
        Value::Bytes(v) => ScalarValue::Binary(Some(v)),
    }
}
