//! A stream's definition and its key bytes.

use crate::common::ids::{ShardIndex, StreamId, TableId};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{StreamName, push_tag_text};
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Key bytes of a stream: table id, then tags sorted by key. Unique per stream.
pub(crate) fn stream_key(table: TableId, tags: &[(String, String)], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&table.0.to_be_bytes());
    for (key, value) in tags {
        out.put_prefixed(key.as_bytes());
        out.put_prefixed(value.as_bytes());
    }
}

/// The name of the stream with these key bytes.
pub(crate) fn decode_stream_key(table_name: &str, key: &[u8]) -> Result<StreamName, DecodeError> {
    let mut cursor = Cursor::new(key);
    cursor.u32("table id")?;
    let mut tags = Vec::new();
    while cursor.remaining() > 0 {
        let key = cursor.text("tag key")?.to_owned();
        tags.push((key, cursor.text("tag value")?.to_owned()));
    }
    Ok(StreamName::new(table_name, tags))
}

/// Appends the tags of key bytes in text form, each after a comma.
pub(crate) fn push_tags_text(out: &mut String, key: &[u8]) -> Result<(), DecodeError> {
    let mut cursor = Cursor::new(key);
    cursor.u32("table id")?;
    while cursor.remaining() > 0 {
        let tag = cursor.text("tag key")?;
        push_tag_text(out, tag, cursor.text("tag value")?);
    }
    Ok(())
}

/// A stream as stored in the log and the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecord {
    pub(crate) id: StreamId,
    pub(crate) table: TableId,
    pub(crate) shard: ShardIndex,
    pub(crate) key: Box<[u8]>,
}

/// Memory of a stream until the metadata have it, in addition to its key bytes: its record, and its
/// slots in a growing list and set, with the allocator's share.
const PENDING_BYTES: usize = 160;

impl StreamRecord {
    /// Approximate bytes of memory of the stream's definition until it is in the metadata.
    pub(crate) fn pending_bytes(&self) -> usize {
        PENDING_BYTES + self.key.len()
    }

    /// Keys of the stream's tags, sorted; what follows damaged bytes is left out.
    pub(crate) fn tag_keys(&self) -> impl Iterator<Item = &str> {
        let mut cursor = Cursor::new(self.key.get(4..).unwrap_or_default());
        std::iter::from_fn(move || {
            let key = cursor.text("tag key").ok()?;
            cursor.text("tag value").ok()?;
            Some(key)
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.id.0));
        out.put_varint(u64::from(self.table.0));
        out.put_varint(u64::from(self.shard.0));
        out.put_prefixed(&self.key);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<StreamRecord, DecodeError> {
        let id = cursor.varint_up_to(u64::from(u32::MAX), "stream id")? as u32;
        let table = cursor.varint_up_to(u64::from(u32::MAX), "table id")? as u32;
        let shard = cursor.varint_up_to(u64::from(u16::MAX), "shard")? as u16;
        let key: Box<[u8]> = cursor.prefixed("stream key")?.into();
        Ok(StreamRecord {
            id: StreamId(id),
            table: TableId(table),
            shard: ShardIndex(shard),
            key,
        })
    }
}

/// A stream, found by its key bytes.
#[derive(Debug)]
pub(super) struct ByKey(pub(super) Arc<StreamRecord>);

impl Borrow<[u8]> for ByKey {
    fn borrow(&self) -> &[u8] {
        &self.0.key
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hashes like its key bytes, which are the lookup key.
        (*self.0.key).hash(state);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &ByKey) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}
