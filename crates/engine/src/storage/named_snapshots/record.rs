//! The record of a named snapshot, as bytes.

use crate::common::ids::{SegmentId, Sequence};
use crate::metadata::clock::ClockReading;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::Timestamp;
use headwater_types::invariant::wide;

const VERSION: u8 = 1;

/// Reason for the end of a snapshot that was not dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotEnd {
    /// The snapshot was older than [`crate::Options::snapshot_age_max`].
    Age,
    /// Snapshots retained more than [`crate::Options::snapshot_bytes_max`], and this snapshot was
    /// the oldest.
    Bytes,
    /// The disk was full, and this snapshot was the oldest.
    FullDisk,
    /// More deletes followed than can be stored for the snapshot.
    Deletes,
}

impl SnapshotEnd {
    const ALL: [SnapshotEnd; 4] = [
        SnapshotEnd::Age,
        SnapshotEnd::Bytes,
        SnapshotEnd::FullDisk,
        SnapshotEnd::Deletes,
    ];

    fn number(self) -> u8 {
        match self {
            SnapshotEnd::Age => 1,
            SnapshotEnd::Bytes => 2,
            SnapshotEnd::FullDisk => 3,
            SnapshotEnd::Deletes => 4,
        }
    }

    /// The reason in words, as the end of a sentence.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            SnapshotEnd::Age => "it was older than snapshots.age_max",
            SnapshotEnd::Bytes => "named snapshots retained more than snapshots.bytes_max",
            SnapshotEnd::FullDisk => "the disk was full",
            SnapshotEnd::Deletes => "it could not record all the later deletes",
        }
    }
}

/// Instant and reason of the end of a snapshot.
pub(crate) type Ended = (Timestamp, SnapshotEnd);

/// The record of a snapshot, beside its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRecord {
    pub(crate) name: String,
    /// The moment of its creation: values that had expired then are not part of the snapshot.
    pub(crate) moment: ClockReading,
    /// Sequence of the last record of the log that is part of the snapshot.
    pub(crate) sequence: Sequence,
    pub(crate) tables: u64,
    pub(crate) streams: u64,
    /// Events in its segments.
    pub(crate) events: u64,
    /// `None` = the snapshot has not ended.
    pub(crate) ended: Option<Ended>,
    /// Its segments, sorted, with the bytes of each that count.
    pub(crate) segments: Vec<(SegmentId, u64)>,
}

impl SnapshotRecord {
    /// The record of the same snapshot after its end.
    pub(crate) fn ended(&self, ended: Ended) -> SnapshotRecord {
        SnapshotRecord {
            ended: Some(ended),
            segments: Vec::new(),
            ..self.clone()
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_prefixed(self.name.as_bytes());
        self.moment.put(&mut out);
        for number in [self.sequence.0, self.tables, self.streams, self.events] {
            out.put_varint(number);
        }
        out.put_u8(self.ended.map_or(0, |(_, end)| end.number()));
        if let Some((at, _)) = self.ended {
            out.put_i64(at.as_nanos());
        }
        out.put_varint(wide(self.segments.len()));
        let mut before = 0;
        for (id, bytes) in &self.segments {
            out.put_varint(id.0.wrapping_sub(before));
            out.put_varint(*bytes);
            before = id.0;
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SnapshotRecord, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of a snapshot's record")? != VERSION {
            return Err(cursor.expected("a snapshot's record of version 1"));
        }
        let name = cursor.text("name of a snapshot")?.to_owned();
        let moment = ClockReading::read(&mut cursor)?;
        let mut record = SnapshotRecord {
            name,
            moment,
            sequence: Sequence(cursor.varint("sequence")?),
            tables: cursor.varint("number of tables")?,
            streams: cursor.varint("number of streams")?,
            events: cursor.varint("events")?,
            ended: None,
            segments: Vec::new(),
        };
        let end = cursor.u8("reason of a snapshot's end")?;
        if end != 0 {
            let Some(end) = SnapshotEnd::ALL.into_iter().find(|e| e.number() == end) else {
                return Err(cursor.expected("a reason of 0 to 4"));
            };
            record.ended = Some((Timestamp::from_nanos(cursor.i64("end of a snapshot")?), end));
        }
        let count = cursor.varint_up_to(wide(cursor.remaining()), "number of segments")?;
        let mut before = 0u64;
        for number in 0..count {
            let step = cursor.varint("segment id")?;
            let Some(id) = before.checked_add(step).filter(|_| step > 0 || number == 0) else {
                return Err(cursor.expected("segments in ascending order"));
            };
            let bytes = cursor.varint("bytes of a segment")?;
            record.segments.push((SegmentId(id), bytes));
            before = id;
        }
        cursor.finish()?;
        Ok(record)
    }
}

/// Reads bytes that may be a snapshot's record: for the fuzz target.
#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Ok(record) = SnapshotRecord::decode(bytes) {
        assert_eq!(SnapshotRecord::decode(&record.encode()), Ok(record));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::common::ids::TableId;

    fn record() -> SnapshotRecord {
        SnapshotRecord {
            name: "before the change".into(),
            moment: ClockReading::doubted(
                1_700_000_000_000_000_000,
                1_600_000_000_000_000_000,
                [3],
            ),
            sequence: Sequence(77),
            tables: 2,
            streams: 900,
            events: 1 << 40,
            ended: None,
            segments: vec![(SegmentId(4), 900), (SegmentId(70), 1 << 33)],
        }
    }

    #[test]
    fn records_come_back_from_their_bytes_which_do_not_change() {
        let record = record();
        crate::golden::check("snapshot", &record.encode());
        let at = Timestamp::from_nanos(1_800_000_000_000_000_000);
        let ended = record.ended((at, SnapshotEnd::FullDisk));
        crate::golden::check("snapshot_ended", &ended.encode());
        for end in SnapshotEnd::ALL {
            let ended = record.ended((at, end));
            assert_eq!(SnapshotRecord::decode(&ended.encode()).unwrap(), ended);
        }
        let bytes = record.encode();
        assert_eq!(SnapshotRecord::decode(&bytes).unwrap(), record);
        assert_eq!(
            record.moment.of(TableId(3)).as_nanos(),
            1_700_000_000_000_000_000
        );
        assert_eq!(
            record.moment.of(TableId(4)).as_nanos(),
            1_600_000_000_000_000_000
        );
        for at in 0..bytes.len() {
            assert!(SnapshotRecord::decode(&bytes[..at]).is_err());
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(SnapshotRecord::decode(&longer).is_err());
    }
}
