//! The directory at the end of a footer that changes many pages of streams: the locations of the
//! changes of each page, so that a reader reads only the pages that it needs. Docs:
//! docs/format/segment.md.
//!
//! Invariants: all of its contents repeat parts of the footer; its sections are sorted, are between
//! the front of the footer and the directory, and each has a checksum, as have the front and the
//! directory itself. Failure: invalid bytes are refused; the reader decodes the whole footer then.

use crate::common::ids::StreamId;
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::{part_of, wide};

/// Minimum number of changed pages for a footer with a directory.
pub(super) const DIRECTORY_PAGES: usize = 16;
/// Bytes of its checksum and its length, at its end.
const END_BYTES: usize = 8;

/// The changes of one page in a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// The first stream changed.
    pub(super) first: StreamId,
    /// Offset of the change of that stream in the footer.
    pub(super) at: u32,
    /// Bytes from there to the end of the last change of the page.
    pub(super) bytes: u32,
    pub(super) crc: u32,
}

/// Divides the changes of a footer into pages, one change after the other.
pub(super) struct Sectioner {
    shift: u32,
    sections: Vec<Section>,
    rises: bool,
}

impl Sectioner {
    pub(super) fn new(shift: u32) -> Sectioner {
        Sectioner {
            shift,
            sections: Vec::new(),
            rises: true,
        }
    }

    pub(super) fn note(&mut self, stream: StreamId, from: usize, to: usize) {
        // A footer is shorter than 4 GiB, as its trailer limits it.
        let (from, to) = (from as u32, to as u32);
        match self.sections.last_mut() {
            Some(last) if last.first.0 >> self.shift == stream.0 >> self.shift => {
                last.bytes = to.wrapping_sub(last.at);
            }
            last => {
                self.rises &= last.is_none_or(|last| last.first < stream);
                self.sections.push(Section {
                    first: stream,
                    at: from,
                    bytes: to.wrapping_sub(from),
                    crc: 0,
                });
            }
        }
    }

    /// The sections of a footer's bytes, each with its checksum.
    pub(super) fn finish(mut self, bytes: &[u8]) -> Result<Vec<Section>, DecodeError> {
        if !self.rises {
            return Err(wrong("a footer with streams in ascending order"));
        }
        for section in &mut self.sections {
            section.crc = crc32c(section.of(bytes));
        }
        Ok(self.sections)
    }
}

pub(super) fn wrong(expected: &'static str) -> DecodeError {
    DecodeError {
        expected,
        offset: 0,
    }
}

pub(super) fn length_of(bytes: &[u8]) -> Result<u32, DecodeError> {
    u32::try_from(bytes.len()).map_err(|_| wrong("a footer below 4 GiB"))
}

impl Section {
    pub(super) fn of<'a>(&self, footer: &'a [u8]) -> &'a [u8] {
        let end = self.at as usize + self.bytes as usize;
        footer.get(self.at as usize..end).unwrap_or_default()
    }
}

/// The contents of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    /// Stream numbers of a page, as a power of two.
    pub(super) shift: u32,
    /// Bytes of the footer before its streams.
    pub(super) front_bytes: u32,
    pub(super) front_crc: u32,
    /// One for each page that the footer changes, sorted.
    pub(super) sections: Vec<Section>,
}

impl Directory {
    /// Bytes of the directory at the end of a footer, from the last bytes of the footer without its
    /// trailer. `None` = `tail` is shorter than the length field.
    pub(super) fn bytes_at_end(tail: &[u8]) -> Option<u32> {
        tail.last_chunk::<4>()
            .map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Decodes the directory at the end of a footer's body, and returns it with the bytes before
    /// it.
    pub(super) fn at_end(body: &[u8]) -> Result<(Directory, &[u8]), DecodeError> {
        let bytes = Directory::bytes_at_end(body).and_then(|bytes| usize::try_from(bytes).ok());
        let at = bytes.and_then(|bytes| body.len().checked_sub(bytes));
        let Some((before, directory)) = at.map(|at| body.split_at(at)) else {
            return Err(wrong("a footer with a directory"));
        };
        let directory = Directory::decode(directory, length_of(before)?)?;
        Ok((directory, before))
    }

    /// Checks that the directory agrees with the rest of the footer: its body without the
    /// directory.
    pub(super) fn check(
        &self,
        found: Sectioner,
        body: &[u8],
        front_bytes: usize,
    ) -> Result<(), DecodeError> {
        let front = part_of(body, ..front_bytes, "the beginning of a footer");
        let says = (length_of(front)?, crc32c(front), found.finish(body)?);
        match says == (self.front_bytes, self.front_crc, self.sections.clone()) {
            true => Ok(()),
            false => Err(wrong("a directory that matches the footer")),
        }
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.put_varint(u64::from(self.shift));
        out.put_varint(u64::from(self.front_bytes));
        out.put_u32(self.front_crc);
        out.put_varint(wide(self.sections.len()));
        let (mut stream, mut end) = (0u32, self.front_bytes);
        for section in &self.sections {
            out.put_varint(u64::from(section.first.0.wrapping_sub(stream)));
            out.put_varint(u64::from(section.at.wrapping_sub(end)));
            out.put_varint(u64::from(section.bytes));
            out.put_u32(section.crc);
            (stream, end) = (section.first.0, section.at.wrapping_add(section.bytes));
        }
        let crc = crc32c(part_of(out, begin.., "a directory"));
        out.put_u32(crc);
        let bytes = out.len() - begin + size_of::<u32>();
        // A footer is shorter than 4 GiB, as its trailer limits it.
        out.put_u32(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Decodes exactly the bytes of a directory, before which the footer has `before` bytes.
    pub(super) fn decode(bytes: &[u8], before: u32) -> Result<Directory, DecodeError> {
        let split = bytes.len().checked_sub(END_BYTES);
        let Some((said, end)) = split.map(|at| bytes.split_at(at)) else {
            return Err(wrong("a directory of at least 8 bytes"));
        };
        let mut end = Cursor::new(end);
        if end.u32("checksum of a directory")? != crc32c(said) {
            return Err(wrong("a directory with a valid checksum"));
        }
        let mut cursor = Cursor::new(said);
        let narrow = |cursor: &mut Cursor<'_>, most: u32, expected| {
            let value = cursor.varint_up_to(u64::from(most), expected)?;
            u32::try_from(value).map_err(|_| wrong(expected))
        };
        let shift = narrow(&mut cursor, 31, "streams of a page")?;
        let front_bytes = narrow(&mut cursor, before, "bytes before the streams")?;
        let front_crc = cursor.u32("checksum of the part before the streams")?;
        let count = narrow(&mut cursor, before, "sections of a footer")?;
        let mut sections: Vec<Section> = Vec::new();
        let (mut stream, mut end) = (0u32, front_bytes);
        for _ in 0..count {
            let more = narrow(&mut cursor, u32::MAX - stream, "streams in ascending order")?;
            let gap = narrow(&mut cursor, before - end, "a section within the footer")?;
            let most = before - end - gap;
            let bytes = narrow(&mut cursor, most, "a section within the footer")?;
            let section = Section {
                first: StreamId(stream + more),
                at: end + gap,
                bytes,
                crc: cursor.u32("checksum of a section")?,
            };
            let last = sections.last().map(|last| last.first.0 >> shift);
            if bytes == 0 || last.is_some_and(|last| last >= section.first.0 >> shift) {
                return Err(cursor.expected("sections in ascending order that are not empty"));
            }
            (stream, end) = (section.first.0, section.at + bytes);
            sections.push(section);
        }
        cursor.finish()?;
        Ok(Directory {
            shift,
            front_bytes,
            front_crc,
            sections,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn section(first: u32, at: u32, bytes: u32) -> Section {
        Section {
            first: StreamId(first),
            at,
            bytes,
            crc: first ^ 0x5a5a_5a5a,
        }
    }

    fn directory() -> Directory {
        Directory {
            shift: 6,
            front_bytes: 40,
            front_crc: 7,
            sections: vec![
                section(3, 41, 9),
                section(64, 52, 1),
                section(u32::MAX, 60, 40),
            ],
        }
    }

    fn encode(directory: &Directory) -> Vec<u8> {
        let mut out = vec![9; 100];
        directory.append_to(&mut out);
        out
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = encode(&directory());
        let (read, before) = Directory::at_end(&bytes).unwrap();
        assert_eq!((read, before), (directory(), &[9u8; 100][..]));
        assert_eq!(
            Directory::bytes_at_end(&bytes),
            u32::try_from(bytes.len() - 100).ok()
        );
    }

    #[test]
    fn no_byte_can_change_or_be_missing() {
        let bytes = encode(&directory());
        let alone = &bytes[100..];
        assert_eq!(Directory::decode(alone, 100), Ok(directory()));
        for at in 0..alone.len() - 4 {
            let mut damaged = alone.to_vec();
            damaged[at] ^= 1;
            assert!(Directory::decode(&damaged, 100).is_err(), "byte {at}");
        }
        for len in 0..alone.len() {
            assert!(Directory::decode(&alone[..len], 100).is_err(), "{len}");
            assert!(Directory::at_end(&bytes[..100 + len]).is_err(), "{len}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with = |sections: Vec<Section>| Directory {
            sections,
            ..directory()
        };
        for sections in [
            vec![section(3, 41, 60)],
            vec![section(3, 41, 0)],
            vec![section(3, 41, 2), section(60, 44, 2)],
            vec![section(200, 41, 2), section(60, 44, 2)],
        ] {
            let bytes = encode(&with(sections.clone()));
            assert!(Directory::at_end(&bytes).is_err(), "{sections:?}");
        }
        let front = Directory {
            front_bytes: 101,
            sections: Vec::new(),
            ..directory()
        };
        assert!(Directory::at_end(&encode(&front)).is_err());
    }
}
