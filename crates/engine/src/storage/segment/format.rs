//! The bytes of a segment file: its header and the footers of its groups. Docs:
//! docs/format/segment.md.
//!
//! Invariants: a footer ends with a 16-byte trailer (length, checksum, magic), so that it can be
//! located from the end of a file without the metadata; numbers are little-endian or LEB128.

use super::directory::{Directory, Sectioner};
use crate::common::ids::{SegmentId, Sequence, ShardIndex, StreamId, TableId};
use crate::metadata::catalog::Table;
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::Level;

pub(crate) use super::change::{BlockEntry, Cover, LeafEntry, StreamDelta};
pub(super) use super::change::{Parts, next_stream};

pub(super) const HEADER_MAGIC: [u8; 8] = *b"HWSEG\x00\x00\x01";
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"HWFOOT\x00\x01";
/// Bytes of a segment's header; the first group follows.
pub(crate) const HEADER_BYTES: u64 = 64;
const TRAILER_BYTES: usize = 16;
/// Version of a footer without a checkpoint.
const FOOTER_VERSION: u8 = 1;
/// Version of a footer with a note about checkpoints.
const FOOTER_VERSION_CHECKPOINT: u8 = 2;
/// Added to the version of a footer that ends with a directory (see [`super::directory`]).
const WITH_DIRECTORY: u8 = 2;
/// Number of streams per group of a rewrite, which is written as several groups if it has more;
/// only the last group may have fewer. Bounds the changes in memory. Part of the format: a repair
/// uses it to determine whether a rewrite was finished.
pub(crate) const GROUP_STREAMS: usize = 4096;

/// The header of a segment, with its partition. Never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: SegmentId,
    pub(crate) table: TableId,
    pub(crate) shard: ShardIndex,
    pub(crate) level: Level,
    pub(crate) bucket: i64,
    /// The segment that was rewritten into this one; `None` = the segment was created empty.
    pub(crate) replaces: Option<Replaces>,
}

/// The segment that this one replaces, so that the metadata can be rebuilt from segments alone: a
/// rewrite that was never committed, and a segment that was not removed in time, are distinguished
/// from the segments in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replaces {
    /// The segment that was rewritten.
    pub(crate) id: SegmentId,
    /// Offset of its last footer at that time.
    pub(crate) footer_offset: u64,
    /// Number of this segment among the segments that replace it together; their ids are
    /// consecutive.
    pub(crate) part: u16,
    pub(crate) parts: u16,
    /// Covers up to this sequence were left out: the log up to it is not needed for the rows of
    /// this segment.
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
                expected: "a segment header with a valid checksum",
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

/// Length of a group's checkpoint, which directly precedes its footer (see [`super::checkpoint`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointLocation {
    /// Bytes of the pages that were written with it.
    pub(crate) pages_bytes: u32,
    /// Bytes of the root, which follows the pages.
    pub(crate) root_bytes: u32,
}

impl CheckpointLocation {
    /// Its bytes in this group.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.pages_bytes) + u64::from(self.root_bytes)
    }
}

/// Note of a footer about checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CheckpointNote {
    /// No change: the newest earlier checkpoint counts.
    #[default]
    Nothing,
    /// The group has a checkpoint. Its contents are the segment's state after the group, so the
    /// fold of the footers is the same without it.
    Written(CheckpointLocation),
    /// No earlier checkpoint counts: a repair detected a damaged one.
    Revoked,
}

impl CheckpointNote {
    /// Bytes of the group that belong to a checkpoint.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            CheckpointNote::Written(place) => place.bytes(),
            CheckpointNote::Nothing | CheckpointNote::Revoked => 0,
        }
    }
}

/// The footer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Offset and length of the previous footer, if any.
    pub(crate) previous: Option<(u64, u32)>,
    /// Offset of the group.
    pub(crate) group_offset: u64,
    pub(crate) sequence: Sequence,
    /// The table's definition, if it changed since the previous footer.
    pub(crate) table: Option<Table>,
    pub(crate) checkpoint: CheckpointNote,
    /// Sorted by stream.
    pub(crate) streams: Vec<StreamDelta>,
}

impl Footer {
    /// The footer's bytes, trailer included.
    pub(crate) fn encode(&self) -> Vec<u8> {
        Footer::with_trailer(self.encode_body(false, |_, _, _| ()).0)
    }

    /// The footer's bytes without its trailer and its directory, if it has one, and the number of
    /// bytes before its streams. Reports the start and the end of the change of each stream.
    pub(super) fn encode_body(
        &self,
        has_directory: bool,
        mut note: impl FnMut(StreamId, usize, usize),
    ) -> (Vec<u8>, usize) {
        let version = match self.checkpoint {
            CheckpointNote::Nothing => FOOTER_VERSION,
            CheckpointNote::Written(_) | CheckpointNote::Revoked => FOOTER_VERSION_CHECKPOINT,
        };
        let mut out = vec![match has_directory {
            true => version + WITH_DIRECTORY,
            false => version,
        }];
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
        match &self.checkpoint {
            CheckpointNote::Nothing => {}
            CheckpointNote::Written(place) => {
                out.put_varint(u64::from(place.pages_bytes));
                out.put_varint(u64::from(place.root_bytes));
            }
            CheckpointNote::Revoked => {
                out.put_varint(0);
                out.put_varint(0);
            }
        }
        out.put_varint(self.streams.len() as u64);
        let front_bytes = out.len();
        let mut before = 0u32;
        for delta in &self.streams {
            out.put_varint(u64::from(delta.stream.0.wrapping_sub(before)));
            before = delta.stream.0;
            let at = out.len();
            delta.encode(self.group_offset, self.sequence, &mut out);
            note(delta.stream, at, out.len());
        }
        (out, front_bytes)
    }

    /// Appends the trailer to the bytes of a footer.
    pub(super) fn with_trailer(mut out: Vec<u8>) -> Vec<u8> {
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

    /// Reads a footer without its streams, which are passed on one by one: all of them decoded take
    /// ten times their bytes.
    pub(super) fn decode_each(
        bytes: &[u8],
        mut each: impl FnMut(StreamDelta),
    ) -> Result<Footer, DecodeError> {
        Footer::walk(bytes, |footer, stream, cursor| {
            let (offset, sequence) = (footer.group_offset, footer.sequence);
            let delta = StreamDelta::decode(stream, offset, sequence, Parts::All, cursor)?;
            each(delta);
            Ok(())
        })
    }

    /// Decodes a footer without its streams; reports the start and the end of the change of each
    /// stream.
    pub(super) fn decode_noting(
        bytes: &[u8],
        mut note: impl FnMut(StreamId, usize, usize),
    ) -> Result<Footer, DecodeError> {
        Footer::walk(bytes, |_, stream, cursor| {
            let at = cursor.offset();
            StreamDelta::skip(cursor)?;
            note(stream, at, cursor.offset());
            Ok(())
        })
    }

    /// Checks the whole footer, including its directory, and reads it without the changes of its
    /// streams, which `read` decodes one after the other.
    fn walk(
        bytes: &[u8],
        mut read: impl FnMut(&Footer, StreamId, &mut Cursor<'_>) -> Result<(), DecodeError>,
    ) -> Result<Footer, DecodeError> {
        let body = Footer::checked(bytes)?;
        let (directory, body) = match Footer::has_directory(body) {
            true => {
                let (directory, before) = Directory::at_end(body)?;
                (Some(directory), before)
            }
            false => (None, body),
        };
        let mut cursor = Cursor::new(body);
        let (footer, count) = Footer::before_streams(&mut cursor)?;
        let front_bytes = cursor.offset();
        let mut found = directory.as_ref().map(|d| Sectioner::new(d.shift));
        let mut before = 0u32;
        for _ in 0..count {
            before = next_stream(before, &mut cursor)?;
            let (stream, at) = (StreamId(before), cursor.offset());
            read(&footer, stream, &mut cursor)?;
            if let Some(found) = &mut found {
                found.note(stream, at, cursor.offset());
            }
        }
        cursor.finish()?;
        if let (Some(directory), Some(found)) = (directory, found) {
            directory.check(found, body, front_bytes)?;
        }
        Ok(footer)
    }

    /// Checks the bytes of a footer, and decodes the part before its streams.
    pub(super) fn front(bytes: &[u8]) -> Result<Footer, DecodeError> {
        let mut cursor = Cursor::new(Footer::checked(bytes)?);
        Footer::before_streams(&mut cursor).map(|(footer, _)| footer)
    }

    /// True when the footer with this front ends with a directory.
    pub(super) fn has_directory(front: &[u8]) -> bool {
        front
            .first()
            .is_some_and(|version| *version > FOOTER_VERSION_CHECKPOINT)
    }

    /// Offset of the trailer in the last bytes of a footer of `footer_bytes` bytes, if the footer
    /// ends with one.
    pub(super) fn trailer_at(tail: &[u8], footer_bytes: u32) -> Option<u32> {
        let at = tail.len().checked_sub(TRAILER_BYTES)?;
        let mut cursor = Cursor::new(tail.get(at..)?);
        let len = cursor.u32("footer length").ok()?;
        let crc = cursor.u32("footer checksum");
        let magic = cursor.take(8, "footer magic").ok()?;
        let is_trailer = crc.is_ok() && magic == FOOTER_MAGIC && len == footer_bytes;
        u32::try_from(at).ok().filter(|_| is_trailer)
    }

    /// Decodes the part before the streams, after the checksum in the directory was verified.
    pub(super) fn read_front(front: &[u8]) -> Result<Footer, DecodeError> {
        let mut cursor = Cursor::new(front);
        let (footer, _) = Footer::before_streams(&mut cursor)?;
        cursor.finish()?;
        Ok(footer)
    }

    /// Checks the trailer of a footer and the bytes that it covers, and returns these bytes.
    pub(super) fn checked(bytes: &[u8]) -> Result<&[u8], DecodeError> {
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
                expected: "a footer with a valid checksum",
                offset: 0,
            });
        }
        Ok(body)
    }

    /// Decodes the part before the streams, and the number of streams that follow.
    fn before_streams(cursor: &mut Cursor<'_>) -> Result<(Footer, usize), DecodeError> {
        let version = match cursor.u8("footer version")? {
            version if version > FOOTER_VERSION_CHECKPOINT => version - WITH_DIRECTORY,
            version => version,
        };
        if !matches!(version, FOOTER_VERSION | FOOTER_VERSION_CHECKPOINT) {
            return Err(DecodeError {
                expected: "footer version 1 to 4",
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
                let len = u32::try_from(len)
                    .map_err(|_| cursor.expected("a footer length below 4 GiB"))?;
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
        let checkpoint = match version {
            FOOTER_VERSION_CHECKPOINT => checkpoint_note(cursor)?,
            _ => CheckpointNote::Nothing,
        };
        // The length is checked where the streams are decoded.
        let count = cursor.varint("stream count")?;
        let count = usize::try_from(count).map_err(|_| cursor.expected("a count of streams"))?;
        let footer = Footer {
            previous,
            group_offset,
            sequence,
            table,
            checkpoint,
            streams: Vec::new(),
        };
        Ok((footer, count))
    }
}

fn checkpoint_note(cursor: &mut Cursor<'_>) -> Result<CheckpointNote, DecodeError> {
    let mut length = |what| {
        let bytes = cursor.varint(what)?;
        u32::try_from(bytes).map_err(|_| cursor.expected("a length below 4 GiB"))
    };
    let (pages_bytes, root_bytes) = (length("bytes of pages")?, length("bytes of a root")?);
    match (pages_bytes, root_bytes) {
        (0, 0) => Ok(CheckpointNote::Revoked),
        (_, 0) => Err(cursor.expected("a checkpoint with a root")),
        _ => Ok(CheckpointNote::Written(CheckpointLocation {
            pages_bytes,
            root_bytes,
        })),
    }
}
