//! The bytes of a segment file: its header and the footers of its groups. Docs:
//! docs/format/segment.md.
//!
//! Invariants: a footer ends with a 16-byte trailer (length, checksum, magic), so that one can be
//! found from the end of a file without the metadata; numbers are little-endian or LEB128.

use crate::catalog::Table;
use crate::ids::{SegmentId, Sequence, ShardIndex, StreamId, TableId};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{ClosedRange, Level, Timestamp};

pub(super) const HEADER_MAGIC: [u8; 8] = *b"HWSEG\x00\x00\x01";
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"HWFOOT\x00\x01";
/// Bytes of a segment's header; the first group follows.
pub(crate) const HEADER_BYTES: u64 = 64;
const TRAILER_BYTES: usize = 16;
const FOOTER_VERSION: u8 = 1;
/// A rewriting of more streams is written as several groups, each with so many streams but for the
/// last, so that it holds the changes of so many at once. Part of the format: a repair tells by it
/// whether a rewriting was finished.
pub(crate) const GROUP_STREAMS: usize = 4096;

/// The header of a segment: which partition it belongs to. Never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: SegmentId,
    pub(crate) table: TableId,
    pub(crate) shard: ShardIndex,
    pub(crate) level: Level,
    pub(crate) bucket: i64,
    /// What was rewritten into this segment; `None` = nothing, it was begun empty.
    pub(crate) replaces: Option<Replaces>,
}

/// What a segment takes the place of, so that the metadata can be rebuilt from segments alone: a
/// rewrite that was never committed, and a segment that was not removed in time, are told from
/// those in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replaces {
    /// The segment that was rewritten.
    pub(crate) id: SegmentId,
    /// Its last footer then.
    pub(crate) footer_offset: u64,
    /// Which of the segments that take its place together; their ids follow one another.
    pub(crate) part: u16,
    pub(crate) parts: u16,
    /// Covers up to this sequence were left out: the log up to it is not needed for what this
    /// segment holds.
    pub(crate) covers_after: Sequence,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = HEADER_MAGIC.to_vec();
        out.put_u64(self.id.0);
        out.put_u32(self.table.0);
        out.put_u16(self.shard.0);
        out.put_u16(self.level.get() as i16 as u16);
        out.put_i64(self.bucket);
        if let Some(replaces) = self.replaces {
            out.put_u64(replaces.id.0);
            out.put_u64(replaces.footer_offset);
            out.put_u16(replaces.part);
            out.put_u16(replaces.parts);
            out.put_u64(replaces.covers_after.0);
        }
        out.resize(HEADER_BYTES as usize - 4, 0);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let covered = bytes.get(..HEADER_BYTES as usize - 4).unwrap_or_default();
        if cursor.take(8, "segment header")? != HEADER_MAGIC {
            return Err(DecodeError {
                expected: "the magic of a segment, version 1",
                offset: 0,
            });
        }
        let id = SegmentId(cursor.u64("segment id")?);
        let table = TableId(cursor.u32("table id")?);
        let shard = ShardIndex(cursor.u16("shard")?);
        let level = i32::from(cursor.u16("level")? as i16);
        let bucket = cursor.i64("bucket")?;
        let replaces = Replaces {
            id: SegmentId(cursor.u64("replaced segment")?),
            footer_offset: cursor.u64("replaced footer")?,
            part: cursor.u16("part")?,
            parts: cursor.u16("parts")?,
            covers_after: Sequence(cursor.u64("sequence of covers")?),
        };
        if cursor.u32("header checksum")? != crc32c(covered) {
            return Err(DecodeError {
                expected: "a segment header with the right checksum",
                offset: 60,
            });
        }
        let Some(level) = Level::new(level) else {
            return Err(DecodeError {
                expected: "a level in -20 to 40",
                offset: 22,
            });
        };
        Ok(SegmentHeader {
            id,
            table,
            shard,
            level,
            bucket,
            replaces: (replaces.parts > 0).then_some(replaces),
        })
    }
}

/// Where rows of one stream lie in a leaf. A leaf may be shared by several streams, each with a
/// range of its rows.
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

/// Where a block of buckets lies.
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

/// What a group changes for one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamDelta {
    pub(crate) stream: StreamId,
    /// The stream's key bytes, when it is new in the segment.
    pub(crate) key: Option<Box<[u8]>>,
    /// Offset and first row of leaves that left the main run.
    pub(crate) removed: Vec<(u64, u32)>,
    pub(crate) added: Vec<LeafEntry>,
    /// The late runs there were are folded into the main run.
    pub(crate) clear_late: bool,
    pub(crate) late_runs: Vec<Vec<LeafEntry>>,
    /// Base level of the pyramid, when it has one.
    pub(crate) base: Option<Level>,
    /// Offsets of blocks that are no longer true.
    pub(crate) removed_blocks: Vec<u64>,
    pub(crate) added_blocks: Vec<BlockEntry>,
    /// Where levels above the base are not true; replaces the list before.
    pub(crate) stale: Option<Vec<ClosedRange>>,
    pub(crate) covers: Vec<Cover>,
    /// The newest row of the main run, when it changed; no bytes = it must be looked up in the
    /// newest leaf.
    pub(crate) last_row: Option<Box<[u8]>>,
}

/// What is wanted of a stream's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Everything that the change says.
    All,
    /// What makes the stream's state: neither its key nor covers.
    State,
}

/// The footer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Offset and length of the footer before, if any.
    pub(crate) previous: Option<(u64, u32)>,
    /// Where the group begins.
    pub(crate) group_offset: u64,
    pub(crate) sequence: Sequence,
    /// The table's definition, when it changed since the footer before.
    pub(crate) table: Option<Table>,
    /// By stream, rising.
    pub(crate) streams: Vec<StreamDelta>,
}

const HAS_KEY: u8 = 1;
const CLEAR_LATE: u8 = 2;
const HAS_PYRAMID: u8 = 4;
const HAS_STALE: u8 = 8;
const HAS_LAST_ROW: u8 = 16;
const HAS_REMOVED: u8 = 32;
const HAS_LATE: u8 = 64;

impl Footer {
    /// The footer's bytes, trailer included.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_noting(|_, _, _| ())
    }

    /// As [`Footer::encode`]; tells of each stream where its change begins and ends.
    pub(super) fn encode_noting(&self, mut note: impl FnMut(StreamId, usize, usize)) -> Vec<u8> {
        let mut out = vec![FOOTER_VERSION];
        let (offset, bytes) = self.previous.unwrap_or((0, 0));
        out.put_varint(offset);
        out.put_varint(u64::from(bytes));
        out.put_varint(self.group_offset);
        out.put_varint(self.sequence.0);
        let mut table = Vec::new();
        if let Some(t) = &self.table {
            t.encode(&mut table);
        }
        out.put_prefixed(&table);
        out.put_varint(self.streams.len() as u64);
        let mut before = 0u32;
        for delta in &self.streams {
            out.put_varint(u64::from(delta.stream.0.wrapping_sub(before)));
            before = delta.stream.0;
            let at = out.len();
            delta.encode(self.group_offset, self.sequence, &mut out);
            note(delta.stream, at, out.len());
        }
        let crc = crc32c(&out);
        let len = out.len() + TRAILER_BYTES;
        out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        out.put_u32(crc);
        out.extend_from_slice(&FOOTER_MAGIC);
        out
    }

    /// Reads a footer, trailer included.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Footer, DecodeError> {
        let mut streams = Vec::new();
        let footer = Footer::decode_each(bytes, |delta| streams.push(delta))?;
        Ok(Footer { streams, ..footer })
    }

    /// Reads a footer but for its streams, which are handed over one by one: all of them decoded
    /// take ten times their bytes.
    pub(super) fn decode_each(
        bytes: &[u8],
        mut each: impl FnMut(StreamDelta),
    ) -> Result<Footer, DecodeError> {
        let (footer, mut cursor, count) = Footer::open(bytes)?;
        let mut before = 0u32;
        for _ in 0..count {
            before = next_stream(before, &mut cursor)?;
            let stream = StreamId(before);
            let (offset, sequence) = (footer.group_offset, footer.sequence);
            each(StreamDelta::decode(
                stream,
                offset,
                sequence,
                Parts::All,
                &mut cursor,
            )?);
        }
        cursor.finish()?;
        Ok(footer)
    }

    /// Reads a footer but for its streams; tells of each of them where its change begins and ends.
    pub(super) fn decode_noting(
        bytes: &[u8],
        mut note: impl FnMut(StreamId, usize, usize),
    ) -> Result<Footer, DecodeError> {
        let (footer, mut cursor, count) = Footer::open(bytes)?;
        let mut before = 0u32;
        for _ in 0..count {
            before = next_stream(before, &mut cursor)?;
            let at = cursor.offset();
            StreamDelta::skip(&mut cursor)?;
            note(StreamId(before), at, cursor.offset());
        }
        cursor.finish()?;
        Ok(footer)
    }

    /// Checks a footer and reads what stands before its streams; these follow, so many.
    fn open(bytes: &[u8]) -> Result<(Footer, Cursor<'_>, usize), DecodeError> {
        let at = bytes.len().checked_sub(TRAILER_BYTES);
        let Some((body, trailer)) = at.map(|at| bytes.split_at(at)) else {
            return Err(DecodeError {
                expected: "a footer of at least 16 bytes",
                offset: 0,
            });
        };
        let mut cursor = Cursor::new(trailer);
        let (len, crc) = (cursor.u32("footer length")?, cursor.u32("footer checksum")?);
        if cursor.take(8, "footer magic")? != FOOTER_MAGIC || len as usize != bytes.len() {
            return Err(DecodeError {
                expected: "the trailer of a footer, version 1",
                offset: body.len(),
            });
        }
        if crc32c(body) != crc {
            return Err(DecodeError {
                expected: "a footer with the right checksum",
                offset: 0,
            });
        }
        let mut cursor = Cursor::new(body);
        if cursor.u8("footer version")? != FOOTER_VERSION {
            return Err(DecodeError {
                expected: "footer version 1",
                offset: 0,
            });
        }
        let previous = (
            cursor.varint("previous footer")?,
            cursor.varint("previous length")?,
        );
        let previous = match previous {
            (_, 0) => None,
            (offset, len) => {
                let len =
                    u32::try_from(len).map_err(|_| cursor.fail("a footer length below 4 GiB"))?;
                Some((offset, len))
            }
        };
        let group_offset = cursor.varint("group offset")?;
        let sequence = Sequence(cursor.varint("sequence")?);
        let table_bytes = cursor.prefixed("table definition")?;
        let table = if table_bytes.is_empty() {
            None
        } else {
            Some(Table::decode(&mut Cursor::new(table_bytes))?)
        };
        let count = cursor.varint_up_to(cursor.remaining() as u64, "stream count")?;
        let footer = Footer {
            previous,
            group_offset,
            sequence,
            table,
            streams: Vec::new(),
        };
        Ok((footer, cursor, count))
    }
}

/// The number of the next stream in a footer: they rise.
pub(super) fn next_stream(before: u32, cursor: &mut Cursor<'_>) -> Result<u32, DecodeError> {
    let step = cursor.varint_up_to(u64::from(u32::MAX), "stream id")? as u32;
    match before.checked_add(step) {
        Some(stream) => Ok(stream),
        None => Err(cursor.fail("a stream id below 2^32")),
    }
}

fn put_leaves(leaves: &[LeafEntry], group_offset: u64, out: &mut Vec<u8>) {
    out.put_varint(leaves.len() as u64);
    let mut before = 0i64;
    for leaf in leaves {
        let (first, last) = (leaf.first.as_nanos(), leaf.last.as_nanos());
        out.put_signed(first.wrapping_sub(before));
        out.put_varint(last.wrapping_sub(first) as u64);
        before = last;
        out.put_varint(u64::from(leaf.count));
        out.put_signed((leaf.offset as i64).wrapping_sub(group_offset as i64));
        out.put_varint(u64::from(leaf.bytes));
        // Whole leaves are the rule: one byte for them.
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
    let count = cursor.varint_up_to(cursor.remaining() as u64, "leaf count")?;
    let mut out = Vec::with_capacity(count);
    let mut before = 0i64;
    for _ in 0..count {
        let first = before.wrapping_add(cursor.signed("leaf first time")?);
        let last = first.wrapping_add(cursor.varint("leaf last time")? as i64);
        before = last;
        let rows = cursor.varint_up_to(1 << 24, "leaf rows")? as u32;
        let offset = (group_offset as i64).wrapping_add(cursor.signed("leaf offset")?) as u64;
        let bytes = cursor.varint_up_to(u64::from(u32::MAX), "leaf length")? as u32;
        let (row_start, leaf_rows) = match cursor.u8("leaf kind")? {
            0 => (0, rows),
            1 => (
                cursor.varint_up_to(1 << 24, "first row")? as u32,
                cursor.varint_up_to(1 << 24, "rows of the leaf")? as u32,
            ),
            _ => return Err(cursor.fail("leaf kind 0 or 1")),
        };
        if last < first
            || rows == 0
            || u64::from(row_start) + u64::from(rows) > u64::from(leaf_rows)
        {
            return Err(cursor.fail("a leaf entry whose rows and times are in order"));
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

impl StreamDelta {
    /// First and last time of the leaves added, which covers are written relative to.
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
            out.put_varint(self.removed.len() as u64);
            for (offset, row) in &self.removed {
                out.put_varint(*offset);
                out.put_varint(u64::from(*row));
            }
        }
        put_leaves(&self.added, group_offset, out);
        if !self.late_runs.is_empty() {
            out.put_varint(self.late_runs.len() as u64);
            for run in &self.late_runs {
                put_leaves(run, group_offset, out);
            }
        }
        if let Some(base) = self.base {
            out.put_signed(i64::from(base.get()));
            out.put_varint(self.removed_blocks.len() as u64);
            for offset in &self.removed_blocks {
                out.put_varint(*offset);
            }
            out.put_varint(self.added_blocks.len() as u64);
            for block in &self.added_blocks {
                out.put_signed(i64::from(block.level.get()));
                out.put_signed(block.first_bucket);
                out.put_varint(block.last_bucket.wrapping_sub(block.first_bucket) as u64);
                out.put_varint(u64::from(block.count));
                out.put_signed((block.offset as i64).wrapping_sub(group_offset as i64));
                out.put_varint(u64::from(block.bytes));
            }
        }
        if let Some(stale) = &self.stale {
            out.put_varint(stale.len() as u64);
            for range in stale {
                out.put_i64(range.first.as_nanos());
                out.put_i64(range.last.as_nanos());
            }
        }
        out.put_varint(self.covers.len() as u64);
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

    /// Reads what [`StreamDelta::encode`] wrote. All of it must be there, whatever is wanted of it.
    pub(super) fn decode(
        stream: StreamId,
        group_offset: u64,
        footer: Sequence,
        parts: Parts,
        cursor: &mut Cursor<'_>,
    ) -> Result<StreamDelta, DecodeError> {
        let flags = cursor.u8("stream flags")?;
        if flags & 0x80 != 0 {
            return Err(cursor.fail("stream flags below 128"));
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
            let count = cursor.varint_up_to(cursor.remaining() as u64, "removed leaves")?;
            for _ in 0..count {
                let offset = cursor.varint("removed leaf")?;
                delta
                    .removed
                    .push((offset, cursor.varint_up_to(1 << 24, "removed row")? as u32));
            }
        }
        delta.added = leaves(group_offset, cursor)?;
        if flags & HAS_LATE != 0 {
            let count = cursor.varint_up_to(cursor.remaining() as u64, "late runs")?;
            for _ in 0..count {
                delta.late_runs.push(leaves(group_offset, cursor)?);
            }
        }
        if flags & HAS_PYRAMID != 0 {
            delta.base = Some(level(cursor)?);
            let count = cursor.varint_up_to(cursor.remaining() as u64, "removed blocks")?;
            for _ in 0..count {
                delta.removed_blocks.push(cursor.varint("removed block")?);
            }
            let count = cursor.varint_up_to(cursor.remaining() as u64, "added blocks")?;
            for _ in 0..count {
                let level = level(cursor)?;
                let first_bucket = cursor.signed("first bucket")?;
                let last_bucket = first_bucket.wrapping_add(cursor.varint("last bucket")? as i64);
                let rows = cursor.varint_up_to(64, "buckets of a block")? as u32;
                let offset =
                    (group_offset as i64).wrapping_add(cursor.signed("block offset")?) as u64;
                let bytes = cursor.varint_up_to(u64::from(u32::MAX), "block length")? as u32;
                if last_bucket < first_bucket || rows == 0 {
                    return Err(cursor.fail("a block entry whose buckets are in order"));
                }
                delta.added_blocks.push(BlockEntry {
                    level,
                    first_bucket,
                    last_bucket,
                    count: rows,
                    offset,
                    bytes,
                });
            }
        }
        if flags & HAS_STALE != 0 {
            let count = cursor.varint_up_to(cursor.remaining() as u64 / 16, "stale ranges")?;
            let mut stale = Vec::with_capacity(count);
            for _ in 0..count {
                stale.push(ClosedRange::nanos(
                    cursor.i64("stale from")?,
                    cursor.i64("stale to")?,
                ));
            }
            delta.stale = Some(stale);
        }
        let count = cursor.varint_up_to(cursor.remaining() as u64 / 3, "covers")?;
        let (first, last) = delta.hull();
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
            delta.covers.push(Cover {
                sequence,
                range: ClosedRange::nanos(from, to),
            });
        }
        if flags & HAS_LAST_ROW != 0 {
            delta.last_row = Some(cursor.prefixed("last row")?.into());
        }
        Ok(delta)
    }

    /// Goes behind a change without keeping anything of it, or looking closer than its length asks
    /// for.
    fn skip(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
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

fn skip_varints(count: usize, cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    for _ in 0..count {
        cursor.varint("a number")?;
    }
    Ok(())
}

fn skip_leaves(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    let count = cursor.varint_up_to(cursor.remaining() as u64, "leaf count")?;
    for _ in 0..count {
        skip_varints(5, cursor)?;
        match cursor.u8("leaf kind")? {
            0 => {}
            _ => skip_varints(2, cursor)?,
        }
    }
    Ok(())
}

fn level(cursor: &mut Cursor<'_>) -> Result<Level, DecodeError> {
    let raw = cursor.signed("level")?;
    match i32::try_from(raw).ok().and_then(Level::new) {
        Some(level) => Ok(level),
        None => Err(cursor.fail("a level in -20 to 40")),
    }
}
