//! Deletes that are in the log and not yet carried out everywhere.

use crate::common::ids::{Sequence, StreamId, TableId};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{ClosedRange, Timestamp};
use std::sync::Arc;

/// A delete of every event of some streams in a range with a smaller sequence than the delete.
///
/// A partition whose newest group has this sequence or a higher one has no such events any more: a
/// maintenance job carries out every delete up to its sequence before it stores anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) sequence: Sequence,
    pub(crate) table: TableId,
    /// Sorted; `None` = every stream of the table.
    pub(crate) streams: Option<Arc<[StreamId]>>,
    pub(crate) range: ClosedRange,
}

/// The record of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeleteRecord {
    pub(crate) table: TableId,
    /// Sorted; `None` = every stream of the table.
    pub(crate) streams: Option<Arc<[StreamId]>>,
    pub(crate) range: ClosedRange,
    /// The streams themselves are removed too: a later write of the same tags creates new ones.
    pub(crate) drops_streams: bool,
}

const WHOLE_TABLE: u8 = 1;
const DROPS_STREAMS: u8 = 2;

impl DeleteRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        if self.streams.is_none() {
            flags |= WHOLE_TABLE;
        }
        if self.drops_streams {
            flags |= DROPS_STREAMS;
        }
        let mut out = vec![flags];
        out.put_varint(u64::from(self.table.0));
        out.put_i64(self.range.first.as_nanos());
        out.put_i64(self.range.last.as_nanos());
        if let Some(streams) = &self.streams {
            out.put_varint(streams.len() as u64);
            let mut before = 0;
            for stream in &**streams {
                out.put_varint(u64::from(stream.0.wrapping_sub(before)));
                before = stream.0;
            }
        }
        out
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<DeleteRecord, DecodeError> {
        let flags = cursor.u8("delete flags")?;
        if flags & !(WHOLE_TABLE | DROPS_STREAMS) != 0 {
            return Err(cursor.expected("delete flags 0 to 3"));
        }
        let table = cursor.varint_up_to(u64::from(u32::MAX), "table id")? as u32;
        let first = cursor.i64("first instant")?;
        let last = cursor.i64("last instant")?;
        let streams = if flags & WHOLE_TABLE == 0 {
            let count = cursor.varint_up_to(cursor.remaining() as u64, "stream count")?;
            let mut ids = Vec::with_capacity(count);
            let mut before = 0u32;
            for _ in 0..count {
                let step = cursor.varint_up_to(u64::from(u32::MAX), "stream id")? as u32;
                before = before.wrapping_add(step);
                if ids.last().is_some_and(|l: &StreamId| l.0 >= before) {
                    return Err(cursor.expected("ascending stream ids"));
                }
                ids.push(StreamId(before));
            }
            Some(ids.into())
        } else {
            None
        };
        Ok(DeleteRecord {
            table: TableId(table),
            streams,
            range: ClosedRange::nanos(first, last),
            drops_streams: flags & DROPS_STREAMS != 0,
        })
    }

    pub(crate) fn tombstone(&self, sequence: Sequence) -> Tombstone {
        Tombstone {
            sequence,
            table: self.table,
            streams: self.streams.clone(),
            range: self.range,
        }
    }
}

impl Tombstone {
    pub(crate) fn concerns(&self, table: TableId, stream: StreamId) -> bool {
        self.table == table
            && self
                .streams
                .as_ref()
                .is_none_or(|ids| ids.binary_search(&stream).is_ok())
    }

    /// True when the delete removes an event of one of its streams.
    pub(crate) fn removes(&self, time: Timestamp, sequence: Sequence) -> bool {
        sequence < self.sequence && self.range.contains(time)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn records_come_back_and_bad_ones_are_refused() {
        for streams in [None, Some(vec![]), Some(vec![StreamId(3), StreamId(900)])] {
            let record = DeleteRecord {
                table: TableId(7),
                streams: streams.map(Into::into),
                range: ClosedRange::nanos(-5, i64::MAX),
                drops_streams: true,
            };
            let bytes = record.encode();
            assert_eq!(
                DeleteRecord::decode(&mut Cursor::new(&bytes)).unwrap(),
                record
            );
            for len in 0..bytes.len() {
                assert!(DeleteRecord::decode(&mut Cursor::new(&bytes[..len])).is_err());
            }
        }
        assert!(DeleteRecord::decode(&mut Cursor::new(&[4; 40])).is_err());
    }
}
