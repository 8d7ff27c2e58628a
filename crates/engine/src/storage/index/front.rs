//! The front of a run's file: the leaves that the run covers, and the locations of its blocks.
//!
//! Invariants: leaves are sorted by stream, offset and first row, so the leaves of a stream are
//! contiguous; rows are numbered over all leaves in this order, from 0. Blocks are in the order of
//! their keys. Format: docs/format/index.md.

use super::definition::{IndexId, number};
use crate::common::ids::{SegmentId, StreamId};
use crate::storage::segment::LeafEntry;
use headwater_codec::entries::{ENTRIES_MAX, KEY_BYTES_MAX};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::{part_of, wide};
use headwater_types::{FieldId, FieldType, Timestamp};
use std::ops::Range;

const FRONT_VERSION: u8 = 1;

/// A leaf of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafSlot {
    pub(crate) stream: StreamId,
    pub(crate) entry: LeafEntry,
    /// The number of its first row.
    pub(crate) start: u32,
}

impl LeafSlot {
    /// The key by which leaves are sorted and distinguished.
    pub(crate) fn key(&self) -> (StreamId, u64, u32) {
        (self.stream, self.entry.offset, self.entry.row_start)
    }

    /// The number after its last row.
    pub(crate) fn end(&self) -> u32 {
        self.start.saturating_add(self.entry.count)
    }
}

/// A block of entries in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLocation {
    pub(crate) first_key: Box<[u8]>,
    pub(crate) entries: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// The checksum at the end of the block, so that no block of another run is taken for it.
    pub(crate) crc: u32,
}

/// The front of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) index: IndexId,
    pub(crate) segment: SegmentId,
    /// The fields, with the types that the values had when the run was written.
    pub(crate) fields: Vec<(FieldId, FieldType)>,
    pub(crate) leaves: Vec<LeafSlot>,
    pub(crate) blocks: Vec<BlockLocation>,
}

impl Front {
    /// Sorts leaves and numbers their rows. `None` when there are more than 2^32 rows.
    pub(crate) fn numbered(mut leaves: Vec<(StreamId, LeafEntry)>) -> Option<Vec<LeafSlot>> {
        leaves.sort_by_key(|(stream, entry)| (*stream, entry.offset, entry.row_start));
        let mut start = 0u32;
        let mut out = Vec::with_capacity(leaves.len());
        for (stream, entry) in leaves {
            out.push(LeafSlot {
                stream,
                entry,
                start,
            });
            start = start.checked_add(entry.count)?;
        }
        Some(out)
    }

    /// Rows of all leaves.
    pub(crate) fn rows(&self) -> u32 {
        self.leaves.last().map_or(0, LeafSlot::end)
    }

    /// The leaves of a stream.
    pub(crate) fn of_stream(&self, stream: StreamId) -> &[LeafSlot] {
        let from = self.leaves.partition_point(|leaf| leaf.stream < stream);
        let to = self.leaves.partition_point(|leaf| leaf.stream <= stream);
        part_of(&self.leaves, from..to, "leaves of a stream in an index run")
    }

    /// The slot of the leaf of this entry, if the run covers it.
    pub(crate) fn slot(&self, stream: StreamId, entry: &LeafEntry) -> Option<&LeafSlot> {
        let place = (stream, entry.offset, entry.row_start);
        let found = self.leaves.binary_search_by_key(&place, LeafSlot::key);
        let found = found.ok().and_then(|at| self.leaves.get(at));
        found.filter(|leaf| leaf.entry == *entry)
    }

    /// True when the run covers this leaf.
    pub(crate) fn covers(&self, stream: StreamId, entry: &LeafEntry) -> bool {
        self.slot(stream, entry).is_some()
    }

    /// The leaf of a row.
    pub(crate) fn leaf_of(&self, row: u32) -> Option<&LeafSlot> {
        let behind = self.leaves.partition_point(|leaf| leaf.start <= row);
        let at = behind.checked_sub(1)?;
        self.leaves.get(at).filter(|leaf| row < leaf.end())
    }

    /// The blocks that may have keys of a range; `place` compares a key with the range.
    pub(crate) fn blocks_of(&self, place: impl Fn(&[u8]) -> std::cmp::Ordering) -> Range<usize> {
        let is_below = |b: &BlockLocation| place(&b.first_key) == std::cmp::Ordering::Less;
        let is_above = |b: &BlockLocation| place(&b.first_key) == std::cmp::Ordering::Greater;
        let from = self.blocks.partition_point(is_below).saturating_sub(1);
        let to = self.blocks.partition_point(|b| !is_above(b));
        // Entries of a key may start in the block before the first block that starts with it.
        from..to.max(from)
    }

    pub(crate) fn weight(&self) -> u64 {
        let leaves = wide(self.leaves.len() * size_of::<LeafSlot>());
        leaves + wide(self.blocks.len() * (size_of::<BlockLocation>() + 16)) + 128
    }

    /// The bytes of the front.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FRONT_VERSION];
        out.put_varint(u64::from(self.index.0));
        out.put_varint(self.segment.0);
        out.put_varint(wide(self.fields.len()));
        for (field, field_type) in &self.fields {
            out.put_varint(u64::from(field.0));
            out.put_u8(field_type.number());
        }
        out.put_varint(wide(self.leaves.len()));
        let mut before = (0u32, 0u64, 0i64);
        for leaf in &self.leaves {
            let entry = &leaf.entry;
            let (first, last) = (entry.first.as_nanos(), entry.last.as_nanos());
            out.put_varint(u64::from(leaf.stream.0.wrapping_sub(before.0)));
            out.put_signed(entry.offset.wrapping_sub(before.1).cast_signed());
            out.put_signed(first.wrapping_sub(before.2));
            out.put_varint(last.wrapping_sub(first).cast_unsigned());
            for number in [entry.count, entry.bytes, entry.row_start, entry.leaf_rows] {
                out.put_varint(u64::from(number));
            }
            before = (leaf.stream.0, entry.offset, last);
        }
        out.put_varint(wide(self.blocks.len()));
        for block in &self.blocks {
            out.put_prefixed(&block.first_key);
            out.put_varint(u64::from(block.entries));
            out.put_varint(u64::from(block.bytes));
            out.put_u32(block.crc);
        }
        out
    }

    /// Decodes the bytes of [`Front::encode`]; the blocks precede them, from `first_block` on.
    pub(crate) fn decode(bytes: &[u8], first_block: u64) -> Result<Front, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of a front")? != FRONT_VERSION {
            return Err(cursor.expected("a front of version 1"));
        }
        let index = IndexId(number(&mut cursor, "number of an index")?);
        let segment = SegmentId(cursor.varint("segment of an index run")?);
        let count = cursor.varint_up_to(wide(cursor.remaining()), "fields of an index")?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let field = FieldId(number(&mut cursor, "field of an index")?);
            let Some(field_type) = FieldType::from_number(cursor.u8("type of a field")?) else {
                return Err(cursor.expected("a type of fields"));
            };
            fields.push((field, field_type));
        }
        let leaves = take_leaves(&mut cursor)?;
        let blocks = take_blocks(&mut cursor, first_block)?;
        cursor.finish()?;
        Ok(Front {
            index,
            segment,
            fields,
            leaves,
            blocks,
        })
    }
}

fn take_leaves(cursor: &mut Cursor<'_>) -> Result<Vec<LeafSlot>, DecodeError> {
    let count = cursor.varint_up_to(wide(cursor.remaining()), "leaves of an index run")?;
    let mut leaves: Vec<LeafSlot> = Vec::new();
    let (mut before, mut start) = ((0u32, 0u64, 0i64), 0u32);
    for _ in 0..count {
        let step = number(cursor, "stream of a leaf")?;
        let Some(stream) = before.0.checked_add(step) else {
            return Err(cursor.expected("a stream below 2^32"));
        };
        let offset = before
            .1
            .wrapping_add(cursor.signed("offset of a leaf")?.cast_unsigned());
        let first = before
            .2
            .wrapping_add(cursor.signed("first time of a leaf")?);
        let last = first.wrapping_add(cursor.varint("last time of a leaf")?.cast_signed());
        let entry = LeafEntry {
            first: Timestamp::from_nanos(first),
            last: Timestamp::from_nanos(last),
            count: number(cursor, "rows of a leaf")?,
            offset,
            bytes: number(cursor, "length of a leaf")?,
            row_start: number(cursor, "first row of a leaf")?,
            leaf_rows: number(cursor, "all rows of a leaf")?,
        };
        let leaf = LeafSlot {
            stream: StreamId(stream),
            entry,
            start,
        };
        let rises = leaves.last().is_none_or(|last| last.key() < leaf.key());
        let inside = entry.row_start.checked_add(entry.count);
        let inside = inside.is_some_and(|end| end <= entry.leaf_rows);
        let Some(next) = start.checked_add(entry.count).filter(|_| rises && inside) else {
            return Err(cursor.expected("leaves in order, with fewer than 2^32 rows"));
        };
        leaves.push(leaf);
        (before, start) = ((stream, offset, last), next);
    }
    Ok(leaves)
}

fn take_blocks(cursor: &mut Cursor<'_>, first: u64) -> Result<Vec<BlockLocation>, DecodeError> {
    let count = cursor.varint_up_to(wide(cursor.remaining()), "blocks of an index run")?;
    let mut blocks: Vec<BlockLocation> = Vec::new();
    let mut offset = first;
    for _ in 0..count {
        let key = cursor.prefixed("first key of a block")?;
        let rises = blocks.last().is_none_or(|last| *last.first_key <= *key);
        if key.len() > KEY_BYTES_MAX || !rises {
            return Err(cursor.expected("first keys in order, of at most 64 bytes"));
        }
        let entries = cursor.varint_up_to(wide(ENTRIES_MAX), "entries of a block")?;
        let bytes = number(cursor, "length of a block")?;
        let crc = cursor.u32("checksum of a block")?;
        blocks.push(BlockLocation {
            first_key: key.into(),
            entries: u32::try_from(entries).map_err(|_| cursor.expected("entries of a block"))?,
            offset,
            bytes,
            crc,
        });
        let Some(next) = offset.checked_add(u64::from(bytes)) else {
            return Err(cursor.expected("blocks of fewer than 2^64 bytes"));
        };
        offset = next;
    }
    Ok(blocks)
}
