//! The first and the last row of a stream in a range, and what they have of fields.
//!
//! Invariant: all that is told of a row is told of the same one: of several rows of one instant,
//! which only some tables keep, of the first at the beginning and of the last at the end.

use crate::error::found;
use headwater::{ClosedRange, ScanSpec, Snapshot, StreamHandle, Timestamp, Value};

/// The rows at both ends, as far as they were looked for.
pub(super) struct Rows<'a> {
    snapshot: &'a Snapshot,
    stream: &'a StreamHandle,
    range: ClosedRange,
    /// When the first and the last one are.
    ends: [Option<Option<Timestamp>>; 2],
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        stream: &'a StreamHandle,
        range: ClosedRange,
    ) -> Rows<'a> {
        Rows {
            snapshot,
            stream,
            range,
            ends: [None, None],
        }
    }

    /// The instant of the last row, or of the first one; `None` = there is no row.
    pub(super) fn end(&mut self, last: bool) -> headwater::Result<Option<Timestamp>> {
        let [first_known, last_known] = &mut self.ends;
        let known = if last { last_known } else { first_known };
        if let Some(known) = known {
            return Ok(*known);
        }
        let end = match last {
            true => self.stream.last_row_in(self.snapshot, self.range),
            false => self.stream.first_row_in(self.snapshot, self.range),
        };
        let end = found(end)?.flatten();
        *known = Some(end);
        Ok(end)
    }

    /// What the last row, or the first one, has of a field; it is at that instant. `keeps` = there
    /// may be several of one instant.
    pub(super) fn value(
        &self,
        field: &str,
        last: bool,
        at: Timestamp,
        keeps: bool,
    ) -> headwater::Result<Option<Value>> {
        let range = ClosedRange::new(at, at);
        if keeps {
            return self.value_of_several(field, last, range);
        }
        // The newest value there is is known without a leaf.
        let end = self.stream.last_in(self.snapshot, field, range);
        Ok(found(end)?.flatten().map(|(_, value)| value))
    }

    fn value_of_several(
        &self,
        field: &str,
        last: bool,
        range: ClosedRange,
    ) -> headwater::Result<Option<Value>> {
        let spec = ScanSpec {
            range,
            fields: Some(vec![field.to_owned()]),
            filters: Vec::new(),
        };
        let Some(scan) = found(self.stream.scan(self.snapshot, &spec))? else {
            return Ok(None);
        };
        let mut value = None;
        for chunk in scan {
            let chunk = chunk?;
            let row = match last {
                true => chunk.times.len().checked_sub(1),
                false => (!chunk.times.is_empty()).then_some(0),
            };
            if let (Some(row), Some(column)) = (row, chunk.columns.first()) {
                value = column.get(row).map(|value| value.to_owned());
                if !last {
                    break;
                }
            }
        }
        Ok(value)
    }
}
