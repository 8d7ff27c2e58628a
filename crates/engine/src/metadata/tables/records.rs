//! The bytes of a partition's record.

use crate::common::ids::{Sequence, ShardIndex, TableId};
use crate::metadata::ledger::{self, Hash};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{ClosedRange, Level, Timestamp};

/// The metadata of a partition: its span, its segment's committed length, its last footer, its
/// sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    pub(crate) table: TableId,
    pub(crate) shard: ShardIndex,
    /// The span is bucket `bucket` of this level.
    pub(crate) level: Level,
    pub(crate) bucket: i64,
    pub(crate) committed_bytes: u64,
    pub(crate) footer_offset: u64,
    pub(crate) footer_bytes: u32,
    /// Sequence of the newest job that wrote here.
    pub(crate) sequence: Sequence,
    pub(crate) events: u64,
    pub(crate) live_bytes: u64,
    pub(crate) groups: u32,
    pub(crate) leaves: u64,
    pub(crate) late_runs: u64,
    /// The rows were aged and left their buckets.
    pub(crate) aged: bool,
    /// The smallest expiry of any value; `None` = no value expires.
    pub(crate) expires_first: Option<Timestamp>,
    /// From this instant on every value has expired; `None` = some values never expire.
    pub(crate) expires_last: Option<Timestamp>,
    /// The head of the chain of the segment's hashes; `None` = not known yet.
    pub(crate) chain: Option<Hash>,
}

const VERSION: u8 = 2;
/// Version with the head of a chain.
const VERSION_WITH_CHAIN: u8 = 3;
const AGED: u64 = 1;
const EXPIRES_FIRST: u64 = 2;
const EXPIRES_LAST: u64 = 4;

impl PartitionRecord {
    /// The instants the partition owns.
    pub(crate) fn span(&self) -> ClosedRange {
        self.level.bucket_span(self.bucket)
    }

    /// True when neither rows nor buckets are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.events == 0 && !self.aged
    }

    #[cfg(test)]
    pub(crate) fn of_nothing() -> PartitionRecord {
        PartitionRecord {
            table: TableId(0),
            shard: ShardIndex(0),
            level: Level::MIN,
            bucket: 0,
            committed_bytes: 0,
            footer_offset: 0,
            footer_bytes: 0,
            sequence: Sequence(0),
            events: 0,
            live_bytes: 0,
            groups: 0,
            leaves: 0,
            late_runs: 0,
            aged: false,
            expires_first: None,
            expires_last: None,
            chain: None,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.chain.map_or(VERSION, |_| VERSION_WITH_CHAIN)];
        out.put_varint(u64::from(self.table.0));
        out.put_varint(u64::from(self.shard.0));
        out.put_signed(i64::from(self.level.get()));
        out.put_signed(self.bucket);
        for value in [
            self.committed_bytes,
            self.footer_offset,
            u64::from(self.footer_bytes),
            self.sequence.0,
            self.events,
            self.live_bytes,
            u64::from(self.groups),
            self.leaves,
            self.late_runs,
        ] {
            out.put_varint(value);
        }
        let mut flags = if self.aged { AGED } else { 0 };
        flags |= self.expires_first.map_or(0, |_| EXPIRES_FIRST);
        flags |= self.expires_last.map_or(0, |_| EXPIRES_LAST);
        out.put_varint(flags);
        for instant in [self.expires_first, self.expires_last]
            .into_iter()
            .flatten()
        {
            out.put_i64(instant.as_nanos());
        }
        if let Some(chain) = &self.chain {
            out.extend_from_slice(chain);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<PartitionRecord, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let version = cursor.u8("partition record version")?;
        if !(1..=VERSION_WITH_CHAIN).contains(&version) {
            return Err(cursor.expected("partition record version 1 to 3"));
        }
        let table = cursor.varint_up_to(u64::from(u32::MAX), "table id")? as u32;
        let shard = cursor.varint_up_to(u64::from(u16::MAX), "shard")? as u16;
        let level = cursor.signed("level")?;
        let Some(level) = i32::try_from(level).ok().and_then(Level::new) else {
            return Err(cursor.expected("a level in -20 to 40"));
        };
        let bucket = cursor.signed("bucket")?;
        let mut record = PartitionRecord {
            table: TableId(table),
            shard: ShardIndex(shard),
            level,
            bucket,
            committed_bytes: cursor.varint("committed length")?,
            footer_offset: cursor.varint("footer offset")?,
            footer_bytes: cursor.varint_up_to(u64::from(u32::MAX), "footer length")? as u32,
            sequence: Sequence(cursor.varint("sequence")?),
            events: cursor.varint("events")?,
            live_bytes: cursor.varint("live bytes")?,
            groups: cursor.varint_up_to(u64::from(u32::MAX), "groups")? as u32,
            leaves: cursor.varint("leaves")?,
            late_runs: cursor.varint("late runs")?,
            aged: false,
            expires_first: None,
            expires_last: None,
            chain: None,
        };
        if version > 1 {
            let flags = cursor.varint("partition flags")?;
            if flags & !(AGED | EXPIRES_FIRST | EXPIRES_LAST) != 0 {
                return Err(cursor.expected("partition flags 0 to 7"));
            }
            record.aged = flags & AGED != 0;
            if flags & EXPIRES_FIRST != 0 {
                record.expires_first = Some(Timestamp::from_nanos(cursor.i64("first expiry")?));
            }
            if flags & EXPIRES_LAST != 0 {
                record.expires_last = Some(Timestamp::from_nanos(cursor.i64("last expiry")?));
            }
        }
        if version == VERSION_WITH_CHAIN {
            record.chain = Some(ledger::hash(&mut cursor)?);
        }
        cursor.finish()?;
        Ok(record)
    }
}
