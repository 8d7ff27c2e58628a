//! The change of a stream by a group, as a footer encodes it; lists of leaves and blocks. Docs:
//! docs/format/segment.md.
//!
//! Invariants: numbers are little-endian or LEB128; times and offsets are differences from their
//! predecessors, so that most take few bytes. Failure: invalid bytes are refused with an error that
//! has the expected value and the offset.

use crate::common::ids::{Sequence, StreamId};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{ClosedRange, Level, Timestamp};

/// Location of the rows of one stream in a leaf. A leaf may be shared by several streams, each with
/// a range of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafEntry {
    /// Time of the first row.
    pub(crate) first: Timestamp,
    /// Time of the last row.
    pub(crate) last: Timestamp,
    /// Rows of this stream.
    pub(crate) count: u32,
    /// The stream's first row in the leaf.
    pub(crate) row_start: u32,
    /// Offset of the leaf in the segment.
    pub(crate) offset: u64,
    /// Length of the leaf.
    pub(crate) bytes: u32,
    /// All rows of the leaf; more than `count` when it is shared.
    pub(crate) leaf_rows: u32,
}

impl LeafEntry {
    pub(crate) fn range(&self) -> ClosedRange {
        ClosedRange::new(self.first, self.last)
    }

    /// This stream's share of the leaf's bytes.
    pub(crate) fn share_bytes(&self) -> u64 {
        (u64::from(self.bytes) * u64::from(self.count)).div_ceil(u64::from(self.leaf_rows.max(1)))
    }
}

/// Location of a block of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub(crate) level: Level,
    pub(crate) first_bucket: i64,
    pub(crate) last_bucket: i64,
    pub(crate) count: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// Every event of the stream with a sequence up to `sequence` and a time in `range` is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) sequence: Sequence,
    pub(crate) range: ClosedRange,
}

/// The change of one stream by a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamDelta {
    pub(crate) stream: StreamId,
    /// The stream's key bytes, when it is new in the segment.
    pub(crate) key: Option<Box<[u8]>>,
    /// Offset and first row of leaves that left the main run.
    pub(crate) removed: Vec<(u64, u32)>,
    pub(crate) added: Vec<LeafEntry>,
    /// True when the existing late runs are merged into the main run.
    pub(crate) clear_late: bool,
    pub(crate) late_runs: Vec<Vec<LeafEntry>>,
    /// Base level of the pyramid, if there is one.
    pub(crate) base: Option<Level>,
    /// Offsets of blocks that are no longer valid.
    pub(crate) removed_blocks: Vec<u64>,
    pub(crate) added_blocks: Vec<BlockEntry>,
    /// Ranges in which levels above the base are stale; replaces the previous list.
    pub(crate) stale: Option<Vec<ClosedRange>>,
    pub(crate) covers: Vec<Cover>,
    /// The newest row of the main run, if it changed; no bytes = it must be looked up in the newest
    /// leaf.
    pub(crate) last_row: Option<Box<[u8]>>,
}

/// The parts of a stream's change that a reader decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// The whole change.
    All,
    /// The stream's state: without its key and covers.
    State,
}

const HAS_KEY: u8 = 1;
const CLEAR_LATE: u8 = 2;
const HAS_PYRAMID: u8 = 4;
const HAS_STALE: u8 = 8;
const HAS_LAST_ROW: u8 = 16;
const HAS_REMOVED: u8 = 32;
const HAS_LATE: u8 = 64;

/// Decodes the number of the next stream in a footer; numbers ascend.
pub(super) fn next_stream(before: u32, cursor: &mut Cursor<'_>) -> Result<u32, DecodeError> {
    let step = cursor.varint_up_to(u64::from(u32::MAX), "stream id")? as u32;
    match before.checked_add(step) {
        Some(stream) => Ok(stream),
        None => Err(cursor.expected("a stream id below 2^32")),
    }
}

/// The difference of two offsets, as it is encoded.
pub(super) fn apart(offset: u64, from: u64) -> i64 {
    offset.cast_signed().wrapping_sub(from.cast_signed())
}

/// The offset at a difference by [`apart`].
pub(super) fn behind(from: u64, apart: i64) -> u64 {
    from.cast_signed().wrapping_add(apart).cast_unsigned()
}

/// Writes the number of the items that follow.
pub(super) fn put_count(count: usize, out: &mut Vec<u8>) {
    out.put_varint(count as u64);
}

/// Decodes the number of items that follow; each takes at least one byte.
pub(super) fn number_of(cursor: &mut Cursor<'_>, what: &'static str) -> Result<usize, DecodeError> {
    cursor.varint_up_to(cursor.remaining() as u64, what)
}

fn put_leaves(leaves: &[LeafEntry], group_offset: u64, out: &mut Vec<u8>) {
    put_count(leaves.len(), out);
    let mut before = 0i64;
    for leaf in leaves {
        let (first, last) = (leaf.first.as_nanos(), leaf.last.as_nanos());
        out.put_signed(first.wrapping_sub(before));
        out.put_varint(last.wrapping_sub(first).cast_unsigned());
        before = last;
        out.put_varint(u64::from(leaf.count));
        out.put_signed(apart(leaf.offset, group_offset));
        out.put_varint(u64::from(leaf.bytes));
        // Mostly leaves are not shared: one byte for these.
        if leaf.row_start == 0 && leaf.leaf_rows == leaf.count {
            out.put_u8(0);
        } else {
            out.put_u8(1);
            out.put_varint(u64::from(leaf.row_start));
            out.put_varint(u64::from(leaf.leaf_rows));
        }
    }
}

fn leaves(group_offset: u64, cursor: &mut Cursor<'_>) -> Result<Vec<LeafEntry>, DecodeError> {
    let count = number_of(cursor, "leaf count")?;
    let mut out = Vec::with_capacity(count);
    let mut before = 0i64;
    for _ in 0..count {
        let first = before.wrapping_add(cursor.signed("leaf first time")?);
        let last = first.wrapping_add(cursor.varint("leaf last time")?.cast_signed());
        before = last;
        let rows = cursor.varint_up_to(1 << 24, "leaf rows")? as u32;
        let offset = behind(group_offset, cursor.signed("leaf offset")?);
        let bytes = cursor.varint_up_to(u64::from(u32::MAX), "leaf length")? as u32;
        let (row_start, leaf_rows) = match cursor.u8("leaf kind")? {
            0 => (0, rows),
            1 => (
                cursor.varint_up_to(1 << 24, "first row")? as u32,
                cursor.varint_up_to(1 << 24, "rows of the leaf")? as u32,
            ),
            _ => return Err(cursor.expected("leaf kind 0 or 1")),
        };
        if last < first
            || rows == 0
            || u64::from(row_start) + u64::from(rows) > u64::from(leaf_rows)
        {
            return Err(cursor.expected("a leaf entry whose rows and times are in order"));
        }
        out.push(LeafEntry {
            first: Timestamp::from_nanos(first),
            last: Timestamp::from_nanos(last),
            count: rows,
            row_start,
            offset,
            bytes,
            leaf_rows,
        });
    }
    Ok(out)
}

/// Decodes an entry of a block.
fn block(group_offset: u64, cursor: &mut Cursor<'_>) -> Result<BlockEntry, DecodeError> {
    let level = level(cursor)?;
    let first_bucket = cursor.signed("first bucket")?;
    let last_bucket = first_bucket.wrapping_add(cursor.varint("last bucket")?.cast_signed());
    let rows = cursor.varint_up_to(64, "buckets of a block")? as u32;
    let offset = behind(group_offset, cursor.signed("block offset")?);
    let bytes = cursor.varint_up_to(u64::from(u32::MAX), "block length")? as u32;
    if last_bucket < first_bucket || rows == 0 {
        return Err(cursor.expected("a block entry whose buckets are in order"));
    }
    Ok(BlockEntry {
        level,
        first_bucket,
        last_bucket,
        count: rows,
        offset,
        bytes,
    })
}

/// Decodes the ranges in which levels above the base are stale.
fn stale_ranges(cursor: &mut Cursor<'_>) -> Result<Vec<ClosedRange>, DecodeError> {
    let count = cursor.varint_up_to(cursor.remaining() as u64 / 16, "stale ranges")?;
    let mut stale = Vec::with_capacity(count);
    for _ in 0..count {
        stale.push(ClosedRange::nanos(
            cursor.i64("stale from")?,
            cursor.i64("stale to")?,
        ));
    }
    Ok(stale)
}

impl StreamDelta {
    /// First and last time of the added leaves, the base of the times in covers.
    fn hull(&self) -> (i64, i64) {
        let first = self.added.first().map_or(0, |l| l.first.as_nanos());
        (first, self.added.last().map_or(0, |l| l.last.as_nanos()))
    }

    pub(super) fn encode(&self, group_offset: u64, footer: Sequence, out: &mut Vec<u8>) {
        let mut flags = 0;
        let mut set = |yes: bool, flag: u8| {
            if yes {
                flags |= flag
            }
        };
        set(self.key.is_some(), HAS_KEY);
        set(self.clear_late, CLEAR_LATE);
        set(self.base.is_some(), HAS_PYRAMID);
        set(self.stale.is_some(), HAS_STALE);
        set(self.last_row.is_some(), HAS_LAST_ROW);
        set(!self.removed.is_empty(), HAS_REMOVED);
        set(!self.late_runs.is_empty(), HAS_LATE);
        out.put_u8(flags);
        if let Some(key) = &self.key {
            out.put_prefixed(key);
        }
        if !self.removed.is_empty() {
            put_count(self.removed.len(), out);
            for (offset, row) in &self.removed {
                out.put_varint(*offset);
                out.put_varint(u64::from(*row));
            }
        }
        put_leaves(&self.added, group_offset, out);
        if !self.late_runs.is_empty() {
            put_count(self.late_runs.len(), out);
            for run in &self.late_runs {
                put_leaves(run, group_offset, out);
            }
        }
        if let Some(base) = self.base {
            out.put_signed(i64::from(base.get()));
            put_count(self.removed_blocks.len(), out);
            for offset in &self.removed_blocks {
                out.put_varint(*offset);
            }
            put_count(self.added_blocks.len(), out);
            for block in &self.added_blocks {
                out.put_signed(i64::from(block.level.get()));
                out.put_signed(block.first_bucket);
                out.put_varint(
                    block
                        .last_bucket
                        .wrapping_sub(block.first_bucket)
                        .cast_unsigned(),
                );
                out.put_varint(u64::from(block.count));
                out.put_signed(apart(block.offset, group_offset));
                out.put_varint(u64::from(block.bytes));
            }
        }
        if let Some(stale) = &self.stale {
            put_count(stale.len(), out);
            for range in stale {
                out.put_i64(range.first.as_nanos());
                out.put_i64(range.last.as_nanos());
            }
        }
        put_count(self.covers.len(), out);
        let (first, last) = self.hull();
        for cover in &self.covers {
            out.put_varint(footer.0.wrapping_sub(cover.sequence.0));
            out.put_signed(cover.range.first.as_nanos().wrapping_sub(first));
            out.put_signed(cover.range.last.as_nanos().wrapping_sub(last));
        }
        if let Some(row) = &self.last_row {
            out.put_prefixed(row);
        }
    }

    /// Decodes the bytes of [`StreamDelta::encode`]. All of them must be present, whichever parts
    /// are decoded.
    pub(super) fn decode(
        stream: StreamId,
        group_offset: u64,
        footer: Sequence,
        parts: Parts,
        cursor: &mut Cursor<'_>,
    ) -> Result<StreamDelta, DecodeError> {
        let flags = cursor.u8("stream flags")?;
        if flags & 0x80 != 0 {
            return Err(cursor.expected("stream flags below 128"));
        }
        let mut delta = StreamDelta {
            stream,
            clear_late: flags & CLEAR_LATE != 0,
            ..StreamDelta::default()
        };
        if flags & HAS_KEY != 0 {
            let key = cursor.prefixed("stream key")?;
            delta.key = (parts == Parts::All).then(|| key.into());
        }
        if flags & HAS_REMOVED != 0 {
            let count = number_of(cursor, "removed leaves")?;
            for _ in 0..count {
                let offset = cursor.varint("removed leaf")?;
                delta
                    .removed
                    .push((offset, cursor.varint_up_to(1 << 24, "removed row")? as u32));
            }
        }
        delta.added = leaves(group_offset, cursor)?;
        if flags & HAS_LATE != 0 {
            let count = number_of(cursor, "late runs")?;
            for _ in 0..count {
                delta.late_runs.push(leaves(group_offset, cursor)?);
            }
        }
        if flags & HAS_PYRAMID != 0 {
            delta.decode_pyramid(group_offset, cursor)?;
        }
        if flags & HAS_STALE != 0 {
            delta.stale = Some(stale_ranges(cursor)?);
        }
        delta.decode_covers(footer, parts, cursor)?;
        if flags & HAS_LAST_ROW != 0 {
            delta.last_row = Some(cursor.prefixed("last row")?.into());
        }
        Ok(delta)
    }

    /// Decodes the base level, and the removed and added blocks.
    fn decode_pyramid(
        &mut self,
        group_offset: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), DecodeError> {
        self.base = Some(level(cursor)?);
        let count = number_of(cursor, "removed blocks")?;
        for _ in 0..count {
            self.removed_blocks.push(cursor.varint("removed block")?);
        }
        let count = number_of(cursor, "added blocks")?;
        for _ in 0..count {
            self.added_blocks.push(block(group_offset, cursor)?);
        }
        Ok(())
    }

    /// Decodes the covers, or skips them; the added leaves are decoded already.
    fn decode_covers(
        &mut self,
        footer: Sequence,
        parts: Parts,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), DecodeError> {
        let count = cursor.varint_up_to(cursor.remaining() as u64 / 3, "covers")?;
        let (first, last) = self.hull();
        let wanted = match parts {
            Parts::All => count,
            Parts::State => {
                skip_varints(count * 3, cursor)?;
                0
            }
        };
        for _ in 0..wanted {
            let sequence = Sequence(footer.0.wrapping_sub(cursor.varint("cover sequence")?));
            let from = first.wrapping_add(cursor.signed("cover from")?);
            let to = last.wrapping_add(cursor.signed("cover to")?);
            self.covers.push(Cover {
                sequence,
                range: ClosedRange::nanos(from, to),
            });
        }
        Ok(())
    }

    /// Skips a change: stores nothing of it, and checks only its length.
    pub(super) fn skip(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
        let flags = cursor.u8("stream flags")?;
        let count = |cursor: &mut Cursor<'_>| {
            let most = cursor.remaining() as u64;
            cursor.varint_up_to(most, "a count")
        };
        if flags & HAS_KEY != 0 {
            cursor.prefixed("stream key")?;
        }
        if flags & HAS_REMOVED != 0 {
            skip_varints(count(cursor)?.saturating_mul(2), cursor)?;
        }
        skip_leaves(cursor)?;
        if flags & HAS_LATE != 0 {
            for _ in 0..count(cursor)? {
                skip_leaves(cursor)?;
            }
        }
        if flags & HAS_PYRAMID != 0 {
            skip_varints(1, cursor)?;
            skip_varints(count(cursor)?, cursor)?;
            skip_varints(count(cursor)?.saturating_mul(6), cursor)?;
        }
        if flags & HAS_STALE != 0 {
            let bytes = count(cursor)?.saturating_mul(16);
            cursor.take(bytes, "stale ranges")?;
        }
        skip_varints(count(cursor)?.saturating_mul(3), cursor)?;
        if flags & HAS_LAST_ROW != 0 {
            cursor.prefixed("last row")?;
        }
        Ok(())
    }
}

pub(super) fn skip_varints(count: usize, cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    for _ in 0..count {
        cursor.varint("a number")?;
    }
    Ok(())
}

fn skip_leaves(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    let count = number_of(cursor, "leaf count")?;
    for _ in 0..count {
        skip_varints(5, cursor)?;
        match cursor.u8("leaf kind")? {
            0 => {}
            _ => skip_varints(2, cursor)?,
        }
    }
    Ok(())
}

pub(super) fn level(cursor: &mut Cursor<'_>) -> Result<Level, DecodeError> {
    let raw = cursor.signed("level")?;
    match i32::try_from(raw).ok().and_then(Level::new) {
        Some(level) => Ok(level),
        None => Err(cursor.expected("a level in -20 to 40")),
    }
}
