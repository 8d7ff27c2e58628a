//! The first and the last row of a stream in a range, and their values of fields.
//!
//! Invariant: all values of a row are from the same row: among several rows of one instant, which
//! only some tables keep, from the first at the beginning and from the last at the end.

use crate::error::ok_if_found;
use headwater::{
    ClosedRange, ErrorKind, LastValue, ScanSpec, Snapshot, StreamHandle, Timestamp, Value,
};

/// The rows at both ends, as far as they were looked up.
pub(super) struct Rows<'a> {
    snapshot: &'a Snapshot,
    stream: &'a StreamHandle,
    range: ClosedRange,
    /// Instants of the first and the last row; `None` = not looked up yet.
    ends: [Option<Option<Timestamp>>; 2],
    newest: Newest,
}

/// The newest values of a stream's fields.
enum Newest {
    /// This many fields were looked up one by one.
    Apart(usize),
    /// The newest values of all fields that have a value.
    Together(Vec<LastValue>),
    /// Some of the values cannot be read on this node.
    Elsewhere,
}

/// Number of fields looked up one by one, before the newest values of all fields are read at once.
const ONE_BY_ONE: usize = 2;

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
            newest: Newest::Apart(0),
        }
    }

    /// The instant of the last or of the first row; `None` = there are no rows.
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
        let end = ok_if_found(end)?.flatten();
        *known = Some(end);
        Ok(end)
    }

    /// The value of a field in the last or the first row, which is at that instant. `keeps` = there
    /// may be several rows of one instant.
    pub(super) fn value(
        &mut self,
        field: &str,
        last: bool,
        at: Timestamp,
        keeps: bool,
    ) -> headwater::Result<Option<Value>> {
        let range = ClosedRange::new(at, at);
        if keeps {
            return self.value_of_several(field, last, range);
        }
        let until = self.range.last;
        if last && let Some(newest) = self.newest()? {
            // A field whose newest value is older has no value in the last row of a range that
            // extends after it; a field whose newest value is younger needs a lookup.
            match newest.iter().find(|newest| newest.field == field) {
                None => return Ok(None),
                Some(newest) if newest.time <= until => {
                    return Ok((newest.time == at).then(|| newest.value.clone()));
                }
                Some(_) => {}
            }
        }
        // The newest value is available without reading a leaf.
        let end = self.stream.last_in(self.snapshot, field, range);
        Ok(ok_if_found(end)?.flatten().map(|(_, value)| value))
    }

    /// The newest values of all fields, after some fields were looked up one by one.
    fn newest(&mut self) -> headwater::Result<Option<&[LastValue]>> {
        if let Newest::Apart(fields) = &mut self.newest {
            if *fields < ONE_BY_ONE {
                *fields += 1;
                return Ok(None);
            }
            self.newest = match ok_if_found(self.stream.last(self.snapshot)) {
                Ok(newest) => Newest::Together(newest.unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Elsewhere => Newest::Elsewhere,
                Err(error) => return Err(error),
            };
        }
        Ok(match &self.newest {
            Newest::Together(newest) => Some(newest),
            _ => None,
        })
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
            ..ScanSpec::default()
        };
        let Some(scan) = ok_if_found(self.stream.scan(self.snapshot, &spec))? else {
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
