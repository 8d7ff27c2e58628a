//! The first and the last row of a stream in a range, and what they have of fields.
//!
//! Invariant: everything reported of a row is of the same one: of several rows of one instant,
//! which only some tables keep, of the first at the beginning and of the last at the end.

use crate::error::found;
use headwater::{
    ClosedRange, ErrorKind, LastValue, ScanSpec, Snapshot, StreamHandle, Timestamp, Value,
};

/// The rows at both ends, as far as they were looked for.
pub(super) struct Rows<'a> {
    snapshot: &'a Snapshot,
    stream: &'a StreamHandle,
    range: ClosedRange,
    /// When the first and the last one are.
    ends: [Option<Option<Timestamp>>; 2],
    newest: Newest,
}

/// The newest values of a stream's fields.
enum Newest {
    /// So many fields were looked for one by one.
    Apart(usize),
    /// The values of all fields that have one.
    Together(Vec<LastValue>),
    /// Not all of them can be read here.
    Elsewhere,
}

/// So many fields are looked for one by one, before the newest values of all are taken at once.
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

    /// The value of a field in the last row, or the first one, which is at that instant. `keeps` =
    /// there may be several of one instant.
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
            // A field whose newest value is older has none in the last row of a range that reaches
            // beyond it; of one whose newest value is younger nothing is known.
            match newest.iter().find(|newest| newest.field == field) {
                None => return Ok(None),
                Some(newest) if newest.time <= until => {
                    return Ok((newest.time == at).then(|| newest.value.clone()));
                }
                Some(_) => {}
            }
        }
        // The newest value there is is known without a leaf.
        let end = self.stream.last_in(self.snapshot, field, range);
        Ok(found(end)?.flatten().map(|(_, value)| value))
    }

    /// The newest values of all fields, after some were looked for one by one.
    fn newest(&mut self) -> headwater::Result<Option<&[LastValue]>> {
        if let Newest::Apart(fields) = &mut self.newest {
            if *fields < ONE_BY_ONE {
                *fields += 1;
                return Ok(None);
            }
            self.newest = match found(self.stream.last(self.snapshot)) {
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
