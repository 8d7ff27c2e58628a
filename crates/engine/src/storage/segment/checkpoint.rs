//! The bytes of a checkpoint: the contents of a segment after a group, so that a reader needs
//! neither the footers before it nor the whole checkpoint. Docs: docs/format/segment.md.
//!
//! Long lists of leaves and blocks are in *pages*; for every stream the *root* has the locations
//! and ranges of its pages, and the rest of its state. Pages that did not change since the previous
//! checkpoint are referred to, not written again.
//!
//! Invariants: a checkpoint equals the fold of the footers up to its own; pages of a list are
//! sorted and overlap only as far as their entries do; every page and the root has a checksum.
//! Failure: invalid bytes are refused; the reader folds the footers then.

use super::change::{apart, behind, next_stream, number_of, put_count, skip_varints};
use super::format::{BlockEntry, CheckpointLocation, Footer, LeafEntry, Parts, StreamDelta};
use crate::common::ids::{Sequence, StreamId};
use crate::metadata::catalog::Table;
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::Level;
use headwater_types::invariant::part_of;
use std::sync::Arc;

const ROOT_VERSION: u8 = 1;
/// In place of a level for a page of leaves.
const LEAVES: i64 = 41;
/// Number of varints in a page's location; its checksum follows.
const LOCATION_VARINTS: usize = 9;

/// The list of a stream that a page is part of: leaves of its main run, or blocks of a level.
pub(super) type List = Option<Level>;

/// The location of a page, and the range of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLocation {
    pub(super) list: List,
    /// First instant of its first leaf, or first bucket of its first block.
    pub(super) low: i64,
    /// Last instant of its last leaf, or last bucket of its last block.
    pub(super) high: i64,
    pub(super) entries: u32,
    /// Rows of its leaves, or buckets of its blocks.
    pub(super) rows: u64,
    /// Offset of its first leaf or block; offsets in the page are relative to it.
    pub(super) origin: u64,
    /// First row of the stream in its first leaf, which streams may share.
    pub(super) origin_row: u32,
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) crc: u32,
}

/// The entries of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageEntries {
    Leaves(Vec<LeafEntry>),
    Blocks(Vec<BlockEntry>),
}

/// The state of a stream in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamHead {
    /// By list, and within a list in the order of its entries.
    pub(super) pages: Vec<PageLocation>,
    /// Lists without pages, and the rest of the state, as a change that adds all of it.
    pub(super) rest: StreamDelta,
}

fn wrong(expected: &'static str) -> DecodeError {
    DecodeError {
        expected,
        offset: 0,
    }
}

fn narrow(value: u64, cursor: &mut Cursor<'_>) -> Result<u32, DecodeError> {
    u32::try_from(value).map_err(|_| cursor.expected("a number below 2^32"))
}

impl PageEntries {
    /// The location of a page with these entries, without its offset, bytes and checksum. `None`
    /// without entries.
    fn outline(&self) -> Option<PageLocation> {
        let nowhere = PageLocation {
            list: None,
            low: 0,
            high: 0,
            entries: 0,
            rows: 0,
            origin: 0,
            origin_row: 0,
            offset: 0,
            bytes: 0,
            crc: 0,
        };
        match self {
            PageEntries::Leaves(leaves) => {
                let (first, last) = (leaves.first()?, leaves.last()?);
                Some(PageLocation {
                    low: first.first.as_nanos(),
                    high: last.last.as_nanos(),
                    entries: u32::try_from(leaves.len()).ok()?,
                    rows: leaves.iter().map(|l| u64::from(l.count)).sum(),
                    origin: first.offset,
                    origin_row: first.row_start,
                    ..nowhere
                })
            }
            PageEntries::Blocks(blocks) => {
                let (first, last) = (blocks.first()?, blocks.last()?);
                Some(PageLocation {
                    list: Some(first.level),
                    low: first.first_bucket,
                    high: last.last_bucket,
                    entries: u32::try_from(blocks.len()).ok()?,
                    rows: blocks.iter().map(|b| u64::from(b.count)).sum(),
                    origin: first.offset,
                    ..nowhere
                })
            }
        }
    }

    /// The bytes of a page, and its location, if it is written at `offset`. `None` without entries.
    pub(super) fn encode(self, offset: u64) -> Option<(PageLocation, Vec<u8>)> {
        let outline = self.outline()?;
        let mut delta = StreamDelta::default();
        match self {
            PageEntries::Leaves(leaves) => delta.added = leaves,
            PageEntries::Blocks(blocks) => {
                delta.base = outline.list;
                delta.added_blocks = blocks;
            }
        }
        let mut bytes = Vec::new();
        delta.encode(outline.origin, Sequence::default(), &mut bytes);
        let place = PageLocation {
            offset,
            bytes: u32::try_from(bytes.len()).ok()?,
            crc: crc32c(&bytes),
            ..outline
        };
        Some((place, bytes))
    }

    /// The entries of the page at a location.
    pub(super) fn decode(place: &PageLocation, bytes: &[u8]) -> Result<PageEntries, DecodeError> {
        if crc32c(bytes) != place.crc {
            return Err(wrong("a page of the index with a valid checksum"));
        }
        let (nobody, sequence) = (StreamId::default(), Sequence::default());
        let mut cursor = Cursor::new(bytes);
        let delta = StreamDelta::decode(nobody, place.origin, sequence, Parts::State, &mut cursor)?;
        cursor.finish()?;
        let entries = match place.list {
            None => PageEntries::Leaves(delta.added),
            Some(_) => PageEntries::Blocks(delta.added_blocks),
        };
        let found = entries.outline().map(|outline| PageLocation {
            offset: place.offset,
            bytes: place.bytes,
            crc: place.crc,
            ..outline
        });
        match found {
            Some(found) if found == *place => Ok(entries),
            _ => Err(wrong("a page of the index that matches its root")),
        }
    }

    /// Approximate bytes of memory.
    pub(super) fn weight(&self) -> u64 {
        let bytes = match self {
            PageEntries::Leaves(leaves) => leaves.len() * size_of::<LeafEntry>(),
            PageEntries::Blocks(blocks) => blocks.len() * size_of::<BlockEntry>(),
        };
        bytes as u64 + 128
    }
}

impl PageLocation {
    fn encode(&self, before: i64, group_offset: u64, out: &mut Vec<u8>) {
        let level = self.list.map_or(LEAVES, |level| i64::from(level.get()));
        out.put_signed(level);
        out.put_signed(self.low.wrapping_sub(before));
        out.put_varint(self.high.wrapping_sub(self.low).cast_unsigned());
        out.put_varint(u64::from(self.entries));
        out.put_varint(self.rows);
        out.put_signed(apart(self.origin, group_offset));
        out.put_varint(u64::from(self.origin_row));
        out.put_signed(apart(self.offset, group_offset));
        out.put_varint(u64::from(self.bytes));
        out.put_u32(self.crc);
    }

    fn decode(
        before: i64,
        group_offset: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<PageLocation, DecodeError> {
        let list = match cursor.signed("level of a page")? {
            LEAVES => None,
            level => match i32::try_from(level).ok().and_then(Level::new) {
                Some(level) => Some(level),
                None => return Err(cursor.expected("a level in -20 to 40, or 41")),
            },
        };
        let low = before.wrapping_add(cursor.signed("first of a page")?);
        let high = low.wrapping_add(cursor.varint("last of a page")?.cast_signed());
        let entries = cursor.varint("entries of a page")?;
        let place = PageLocation {
            list,
            low,
            high,
            entries: narrow(entries, cursor)?,
            rows: cursor.varint("rows of a page")?,
            origin: behind(group_offset, cursor.signed("origin of a page")?),
            origin_row: {
                let row = cursor.varint("first row of a page")?;
                narrow(row, cursor)?
            },
            offset: behind(group_offset, cursor.signed("offset of a page")?),
            bytes: {
                let bytes = cursor.varint("length of a page")?;
                narrow(bytes, cursor)?
            },
            crc: cursor.u32("checksum of a page")?,
        };
        if place.high < place.low || place.entries == 0 || place.bytes == 0 {
            return Err(cursor.expected("a page that is not empty"));
        }
        Ok(place)
    }
}

impl StreamHead {
    fn encode(&self, group_offset: u64, out: &mut Vec<u8>) {
        put_count(self.pages.len(), out);
        let mut before = 0;
        for place in &self.pages {
            place.encode(before, group_offset, out);
            before = place.high;
        }
        self.rest.encode(group_offset, Sequence::default(), out);
    }

    fn decode(
        stream: StreamId,
        group_offset: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<StreamHead, DecodeError> {
        let found = number_of(cursor, "pages of a stream")?;
        let mut pages: Vec<PageLocation> = Vec::new();
        for _ in 0..found {
            let before = pages.last().copied();
            let last = before.map_or(0, |before| before.high);
            let place = PageLocation::decode(last, group_offset, cursor)?;
            let rises = before.is_none_or(|before| {
                before.list < place.list || (before.list == place.list && before.high <= place.low)
            });
            if !rises {
                return Err(cursor.expected("pages in ascending order"));
            }
            pages.push(place);
        }
        let (sequence, parts) = (Sequence::default(), Parts::State);
        let rest = StreamDelta::decode(stream, group_offset, sequence, parts, cursor)?;
        Ok(StreamHead { pages, rest })
    }

    fn skip(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
        let found = number_of(cursor, "pages of a stream")?;
        for _ in 0..found {
            skip_varints(LOCATION_VARINTS, cursor)?;
            cursor.take(4, "checksum of a page")?;
        }
        StreamDelta::skip(cursor)
    }
}

/// The part of a root before its streams.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RootFront {
    /// Offset of the group that contains the root, so that the root of another group is not taken
    /// for it.
    pub(super) group_offset: u64,
    pub(super) sequence: Sequence,
    /// Bytes of footers and checkpoints before this group.
    pub(super) index_bytes: u64,
    /// Number of sections with the changes that are folded here, this group's included.
    pub(super) sections: u64,
    pub(super) table: Option<Arc<Table>>,
}

/// Encodes a root; its streams must be sorted.
pub(super) fn encode_root(front: &RootFront, streams: &[(StreamId, StreamHead)]) -> Vec<u8> {
    let mut out = vec![ROOT_VERSION];
    out.put_varint(front.group_offset);
    out.put_varint(front.sequence.0);
    out.put_varint(front.index_bytes);
    out.put_varint(front.sections);
    let mut table = Vec::new();
    if let Some(definition) = &front.table {
        definition.encode(&mut table);
    }
    out.put_prefixed(&table);
    put_count(streams.len(), &mut out);
    let mut before = 0u32;
    for (stream, head) in streams {
        out.put_varint(u64::from(stream.0.wrapping_sub(before)));
        before = stream.0;
        head.encode(front.group_offset, &mut out);
    }
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

/// The location of a stream's head in a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeadLocation {
    stream: StreamId,
    /// Offset of the head in the root.
    at: u32,
    bytes: u32,
    crc: u32,
}

/// The index of a checkpoint's root, the only part of the root that stays in memory.
#[derive(Debug, PartialEq)]
pub(super) struct CheckpointIndex {
    pub(super) front: RootFront,
    /// Offset and length of the footer that refers to the checkpoint.
    pub(super) footer: (u64, u32),
    pub(super) location: CheckpointLocation,
    heads: Box<[HeadLocation]>,
}

impl CheckpointIndex {
    /// Offset of the root of a checkpoint that the footer at an offset refers to.
    pub(super) fn root_of(
        footer_offset: u64,
        footer: &Footer,
        place: CheckpointLocation,
    ) -> Result<u64, DecodeError> {
        footer_offset
            .checked_sub(place.bytes())
            .filter(|start| *start >= footer.group_offset)
            .map(|start| start + u64::from(place.pages_bytes))
            .ok_or(wrong("a checkpoint that lies in its group"))
    }

    /// Reads and checks the whole root.
    pub(super) fn read(
        bytes: &[u8],
        footer: &Footer,
        footer_at: (u64, u32),
        location: CheckpointLocation,
    ) -> Result<CheckpointIndex, DecodeError> {
        let (front, heads) = decode_root(bytes)?;
        if (front.group_offset, front.sequence) != (footer.group_offset, footer.sequence) {
            return Err(wrong("the root of this group"));
        }
        Ok(CheckpointIndex {
            front,
            footer: footer_at,
            location,
            heads,
        })
    }

    /// Its streams, sorted.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.heads.iter().map(|head| head.stream)
    }

    /// Bytes of all footers and checkpoints up to and including this one.
    pub(super) fn index_bytes(&self) -> u64 {
        let own = self.location.bytes() + u64::from(self.footer.1);
        self.front.index_bytes.saturating_add(own)
    }

    fn between(&self, first: StreamId, last: StreamId) -> &[HeadLocation] {
        let from = self.heads.partition_point(|h| h.stream < first);
        let to = self.heads.partition_point(|h| h.stream <= last);
        part_of(&self.heads, from..to.max(from), "heads of a root")
    }

    /// Location of the heads of these streams in the file; `None` when there are none.
    pub(super) fn location_of_heads(&self, first: StreamId, last: StreamId) -> Option<(u64, u32)> {
        let heads = self.between(first, last);
        let (one, other) = (heads.first()?, heads.last()?);
        let root = self.footer.0 - u64::from(self.location.root_bytes);
        let end = other.at + other.bytes;
        Some((root + u64::from(one.at), end.checked_sub(one.at)?))
    }

    /// Decodes the heads of these streams from the bytes at [`CheckpointIndex::location_of_heads`].
    pub(super) fn heads_in(
        &self,
        first: StreamId,
        last: StreamId,
        bytes: &[u8],
    ) -> Result<Vec<(StreamId, StreamHead)>, DecodeError> {
        let heads = self.between(first, last);
        let start = heads.first().map_or(0, |head| head.at);
        let mut out = Vec::with_capacity(heads.len());
        for head in heads {
            let from = head.at.saturating_sub(start) as usize;
            let part = bytes.get(from..from + head.bytes as usize);
            let part = part.filter(|part| crc32c(part) == head.crc);
            let part = part.ok_or(wrong("a root that is unchanged since it was checked"))?;
            let mut cursor = Cursor::new(part);
            let found = StreamHead::decode(head.stream, self.front.group_offset, &mut cursor)?;
            cursor.finish()?;
            out.push((head.stream, found));
        }
        Ok(out)
    }

    /// Approximate bytes of memory.
    pub(super) fn weight(&self) -> usize {
        size_of::<CheckpointIndex>() + self.heads.len() * size_of::<HeadLocation>() + 64
    }
}

/// Decodes and checks the part of a root before its streams, and the locations of their heads.
fn decode_root(bytes: &[u8]) -> Result<(RootFront, Box<[HeadLocation]>), DecodeError> {
    let at = bytes.len().checked_sub(4).ok_or(wrong("a root"))?;
    let (body, checksum) = bytes.split_at(at);
    if Cursor::new(checksum).u32("checksum of a root")? != crc32c(body) {
        return Err(wrong("a root with a valid checksum"));
    }
    let mut cursor = Cursor::new(body);
    if cursor.u8("version of a root")? != ROOT_VERSION {
        return Err(wrong("a root of version 1"));
    }
    let group_offset = cursor.varint("group offset")?;
    let sequence = Sequence(cursor.varint("sequence")?);
    let (index_bytes, sections) = (cursor.varint("index bytes")?, cursor.varint("sections")?);
    let definition = cursor.prefixed("table definition")?;
    let table = match definition.is_empty() {
        true => None,
        false => Some(Arc::new(Table::decode(&mut Cursor::new(definition))?)),
    };
    let front = RootFront {
        group_offset,
        sequence,
        index_bytes,
        sections,
        table,
    };
    Ok((front, heads(body, cursor)?))
}

/// Locations of the heads of a root's streams in the root.
fn heads(body: &[u8], mut cursor: Cursor<'_>) -> Result<Box<[HeadLocation]>, DecodeError> {
    let found = number_of(&mut cursor, "stream count")?;
    let mut heads: Vec<HeadLocation> = Vec::new();
    let mut before = 0;
    for _ in 0..found {
        let stream = StreamId(next_stream(before, &mut cursor)?);
        if heads.last().is_some_and(|head| head.stream >= stream) {
            return Err(cursor.expected("streams in ascending order"));
        }
        before = stream.0;
        let from = cursor.offset();
        StreamHead::skip(&mut cursor)?;
        let to = cursor.offset();
        heads.push(HeadLocation {
            stream,
            at: narrow(from as u64, &mut cursor)?,
            bytes: narrow((to - from) as u64, &mut cursor)?,
            crc: crc32c(part_of(body, from..to, "a head in its root")),
        });
    }
    cursor.finish()?;
    Ok(heads.into())
}

/// Reads bytes as a root and as a page: for the fuzz target. A value that decodes must encode to
/// bytes that decode to the same value.
#[cfg(any(test, fuzzing))]
pub(crate) fn decodes_again(bytes: &[u8]) {
    let all = |bytes: &[u8]| {
        let (front, heads) = decode_root(bytes)?;
        let mut streams = Vec::new();
        for head in &heads {
            let part = bytes.get(head.at as usize..(head.at + head.bytes) as usize);
            let mut cursor = Cursor::new(part.unwrap_or_default());
            let found = StreamHead::decode(head.stream, front.group_offset, &mut cursor)?;
            cursor.finish()?;
            streams.push((head.stream, found));
        }
        Ok::<_, DecodeError>((front, streams))
    };
    if let Ok((front, streams)) = all(bytes) {
        assert_eq!(all(&encode_root(&front, &streams)), Ok((front, streams)));
    }
    let parts = (StreamId::default(), Sequence::default(), Parts::State);
    let delta = StreamDelta::decode(parts.0, 0, parts.1, parts.2, &mut Cursor::new(bytes));
    let Ok(delta) = delta else {
        return;
    };
    for entries in [
        PageEntries::Leaves(delta.added),
        PageEntries::Blocks(delta.added_blocks),
    ] {
        if let Some((place, page)) = entries.clone().encode(64) {
            // Blocks of several levels, or leaves out of order, have no pages.
            if let Ok(found) = PageEntries::decode(&place, &page) {
                assert_eq!(found, entries);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::super::format::CheckpointNote;
    use super::*;
    use headwater_types::Timestamp;

    pub(in super::super) fn leaf(number: u64) -> LeafEntry {
        let start = i64::try_from(number).unwrap() * 1000 - 5_000;
        LeafEntry {
            first: Timestamp::from_nanos(start),
            last: Timestamp::from_nanos(start + 999),
            count: 7,
            row_start: 0,
            offset: 64 + number * 900,
            bytes: 800,
            leaf_rows: 7,
        }
    }

    fn head(stream: u32) -> (StreamId, StreamHead) {
        let stream = StreamId(stream);
        let page = |from, offset| {
            let leaves = (from..from + 5).map(leaf).collect();
            PageEntries::Leaves(leaves).encode(offset).unwrap().0
        };
        let head = StreamHead {
            pages: vec![page(0, 9000), page(5, 100)],
            rest: StreamDelta {
                stream,
                base: Level::new(3),
                last_row: Some([1, 2].into()),
                ..StreamDelta::default()
            },
        };
        (stream, head)
    }

    fn footer() -> Footer {
        Footer {
            previous: None,
            group_offset: 5000,
            sequence: Sequence(9),
            table: None,
            checkpoint: CheckpointNote::Nothing,
            streams: Vec::new(),
        }
    }

    #[test]
    fn a_page_gives_its_entries_back_and_only_unchanged() {
        let entries = PageEntries::Leaves((3..40).map(leaf).collect());
        let (place, bytes) = entries.clone().encode(700).unwrap();
        crate::golden::check("checkpoint_page", &bytes);
        assert_eq!((place.entries, place.rows), (37, 37 * 7));
        assert_eq!(PageEntries::decode(&place, &bytes), Ok(entries));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(PageEntries::decode(&place, &damaged).is_err(), "{at}");
        }
        let other = PageLocation {
            high: place.high + 1,
            ..place
        };
        assert!(PageEntries::decode(&other, &bytes).is_err());
        assert!(PageEntries::Blocks(Vec::new()).encode(0).is_none());
    }

    #[test]
    fn a_root_gives_the_head_of_each_stream() {
        let front = RootFront {
            group_offset: 5000,
            sequence: Sequence(9),
            index_bytes: 777,
            sections: 12,
            table: None,
        };
        let streams: Vec<_> = [3, 4, 900, u32::MAX].map(head).to_vec();
        let bytes = encode_root(&front, &streams);
        crate::golden::check("checkpoint_root", &bytes);
        let root_bytes = u32::try_from(bytes.len()).unwrap();
        let place = CheckpointLocation {
            pages_bytes: 50,
            root_bytes,
        };
        let at = (5050 + u64::from(root_bytes), 100);
        assert_eq!(CheckpointIndex::root_of(at.0, &footer(), place), Ok(5050));
        let index = CheckpointIndex::read(&bytes, &footer(), at, place).unwrap();
        assert_eq!(index.index_bytes(), 777 + 50 + u64::from(root_bytes) + 100);
        for (first, last, expected) in [
            (0, 2, &streams[..0]),
            (3, 4, &streams[..2]),
            (5, u32::MAX, &streams[2..]),
            (0, u32::MAX, &streams[..]),
        ] {
            let (first, last) = (StreamId(first), StreamId(last));
            let part = index.location_of_heads(first, last);
            assert_eq!(part.is_none(), expected.is_empty());
            let (offset, len) = part.unwrap_or((5050, 0));
            let from = usize::try_from(offset - 5050).unwrap();
            let part = &bytes[from..from + len as usize];
            assert_eq!(index.heads_in(first, last, part).unwrap(), expected);
        }
        decodes_again(&bytes);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode_root(&damaged).is_err(), "{at}");
        }
        // Of another group, or not completely in its own.
        let other = Footer {
            sequence: Sequence(8),
            ..footer()
        };
        assert!(CheckpointIndex::read(&bytes, &other, at, place).is_err());
        assert!(CheckpointIndex::root_of(at.0 - 51, &footer(), place).is_err());
    }
}
