//! Packs: objects that never change, with the new ranges of many copies since the packs before, and
//! an index at the end.
//!
//! Invariants: an encoded index is decoded to an equal one; malformed bytes are refused before more
//! memory is allocated than their length justifies. Every named range of bytes has a checksum of
//! its own. Format: docs/format/bucket.md.

use crate::head::checked;
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::ByteRange;
use headwater_types::invariant::wide;

const MAGIC: [u8; 6] = *b"HWPACK";
const INDEX_MAGIC: [u8; 6] = *b"HWINDX";
const VERSION: u8 = 1;

/// A range of a segment of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The segment.
    pub segment: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Range {
    /// Creates a range of bytes of a segment.
    #[must_use]
    pub fn of(segment: u64, bytes: ByteRange) -> Range {
        Range {
            segment,
            offset: bytes.start(),
            bytes: bytes.len(),
        }
    }

    /// First byte after the range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLocation {
    /// The first one.
    pub at: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Their CRC-32C.
    pub crc: u32,
}

/// A copy in the index of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The copy.
    pub name: String,
    /// History of the copy.
    pub history: u64,
    /// The number of its state.
    pub state: u64,
    /// Location of the description.
    pub description: PackLocation,
    /// All present ranges of the copy, in this pack or earlier ones, by segment and offset.
    pub present: Vec<Range>,
    /// Extents of the copy in this pack, which replace the same bytes of earlier packs.
    pub pieces: Vec<(Range, PackLocation)>,
}

/// The index of a pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackIndex {
    /// Entries, sorted by copy name.
    pub entries: Vec<IndexEntry>,
}

/// Ranges of a copy to be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The copy.
    pub name: String,
    /// History of the copy.
    pub history: u64,
    /// The number of its state.
    pub state: u64,
    /// The description of the copy, from which it is restored, but for bytes of segments.
    pub description: Vec<u8>,
    /// All present ranges of the copy, by segment and offset, disjoint.
    pub present: Vec<Range>,
    /// Bytes that are missing in the bucket.
    pub pieces: Vec<(Range, Vec<u8>)>,
}

/// A pack that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The whole object.
    pub bytes: Vec<u8>,
    /// Bytes of the index at the end.
    pub index_bytes: u32,
    /// The index.
    pub index: PackIndex,
}

impl Pack {
    /// Builds a pack. Of two additions of one name the later one counts.
    ///
    /// # Panics
    /// With an index of 4 GiB.
    #[must_use]
    pub fn build(mut additions: Vec<Addition>) -> Pack {
        additions.sort_by(|a, b| a.name.cmp(&b.name));
        additions.reverse();
        additions.dedup_by(|a, b| a.name == b.name);
        additions.reverse();
        let mut bytes = MAGIC.to_vec();
        bytes.put_u8(VERSION);
        let mut put = |found: &[u8]| {
            let place = PackLocation {
                at: wide(bytes.len()),
                bytes: wide(found.len()),
                crc: crc32c(found),
            };
            bytes.extend_from_slice(found);
            place
        };
        let entries = additions.into_iter().map(|addition| IndexEntry {
            name: addition.name,
            history: addition.history,
            state: addition.state,
            description: put(&addition.description),
            present: addition.present,
            pieces: (addition.pieces.iter())
                .map(|(range, found)| (*range, put(found)))
                .collect(),
        });
        let index = PackIndex {
            entries: entries.collect(),
        };
        let encoded = index.encode();
        bytes.extend_from_slice(&encoded);
        let index_bytes = u32::try_from(encoded.len());
        assert!(index_bytes.is_ok(), "an index of a pack is below 4 GiB");
        Pack {
            bytes,
            index_bytes: index_bytes.unwrap_or(u32::MAX),
            index,
        }
    }
}

impl PackIndex {
    /// Encoded index.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = INDEX_MAGIC.to_vec();
        out.put_u8(VERSION);
        out.put_varint(wide(self.entries.len()));
        for entry in &self.entries {
            out.put_prefixed(entry.name.as_bytes());
            out.put_u64(entry.history);
            out.put_varint(entry.state);
            put_location(&entry.description, &mut out);
            out.put_varint(wide(entry.present.len()));
            for range in &entry.present {
                put_range(range, &mut out);
            }
            out.put_varint(wide(entry.pieces.len()));
            for (range, place) in &entry.pieces {
                put_range(range, &mut out);
                put_location(place, &mut out);
            }
        }
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// Reads the index of a pack.
    ///
    /// # Errors
    /// If the bytes are not a valid index.
    pub fn decode(bytes: &[u8]) -> Result<PackIndex, DecodeError> {
        let mut cursor = Cursor::new(checked(bytes, "checksum of an index")?);
        if cursor.take(INDEX_MAGIC.len(), "an index")? != INDEX_MAGIC {
            return Err(cursor.expected("HWINDX at the beginning"));
        }
        if cursor.u8("version of an index")? != VERSION {
            return Err(cursor.expected("version 1 of an index"));
        }
        let count = cursor.varint_up_to(wide(cursor.remaining()), "number of copies")?;
        let mut entries: Vec<IndexEntry> = Vec::new();
        for _ in 0..count {
            let entry = entry(&mut cursor)?;
            if entries
                .last()
                .is_some_and(|before| before.name >= entry.name)
            {
                return Err(cursor.expected("copies in order of their names"));
            }
            entries.push(entry);
        }
        cursor.finish()?;
        Ok(PackIndex { entries })
    }
}

fn put_range(range: &Range, out: &mut Vec<u8>) {
    out.put_varint(range.segment);
    out.put_varint(range.offset);
    out.put_varint(range.bytes);
}

fn put_location(place: &PackLocation, out: &mut Vec<u8>) {
    out.put_varint(place.at);
    out.put_varint(place.bytes);
    out.put_u32(place.crc);
}

fn range(cursor: &mut Cursor<'_>) -> Result<Range, DecodeError> {
    let range = Range {
        segment: cursor.varint("segment")?,
        offset: cursor.varint("offset of a range")?,
        bytes: cursor.varint("length of a range")?,
    };
    if range.bytes == 0 || range.offset.checked_add(range.bytes).is_none() {
        return Err(cursor.expected("a range that is not empty and ends below 2^64"));
    }
    Ok(range)
}

fn decode_location(cursor: &mut Cursor<'_>) -> Result<PackLocation, DecodeError> {
    let place = PackLocation {
        at: cursor.varint("offset in a pack")?,
        bytes: cursor.varint("length in a pack")?,
        crc: cursor.u32("checksum of a piece")?,
    };
    if place.at.checked_add(place.bytes).is_none() {
        return Err(cursor.expected("a location that ends below 2^64"));
    }
    Ok(place)
}

fn entry(cursor: &mut Cursor<'_>) -> Result<IndexEntry, DecodeError> {
    let name = cursor.text("name of a copy")?.to_owned();
    let history = cursor.u64("history of a copy")?;
    let state = cursor.varint("state of a copy")?;
    let description = decode_location(cursor)?;
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of ranges")?;
    let mut present: Vec<Range> = Vec::new();
    for _ in 0..count {
        let range = range(cursor)?;
        let is_behind = present.last().is_none_or(|before| {
            before.segment < range.segment
                || (before.segment == range.segment && before.end() <= range.offset)
        });
        if !is_behind {
            return Err(cursor.expected("ranges in order of segment and offset that do not touch"));
        }
        present.push(range);
    }
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of pieces")?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        let (range, place) = (range(cursor)?, decode_location(cursor)?);
        if range.bytes != place.bytes {
            return Err(cursor.expected("a piece as long as its range"));
        }
        pieces.push((range, place));
    }
    Ok(IndexEntry {
        name,
        history,
        state,
        description,
        present,
        pieces,
    })
}
