//! The bytes of `ID.idx`: a header, and batches of pieces of a segment, each followed by a record.
//! Docs: docs/format/fastindex.md.
//!
//! Invariants: the record of a batch follows its bytes, and ends with a 16-byte trailer, so that
//! the newest batch can be located from the end of the file; every piece has its own checksum.
//! Failure: invalid bytes are refused; the reader drops the file then.

use crate::common::ids::SegmentId;
use crate::metadata::ledger::{self, Hash};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::wide;

const HEADER_MAGIC: [u8; 8] = *b"HWIDX\x00\x00\x01";
const TRAILER_MAGIC: [u8; 8] = *b"HWIDXB\x00\x01";
/// Bytes of the header; the first batch follows.
pub(super) const HEADER_BYTES: u64 = 64;
/// [`HEADER_BYTES`] as a `usize`.
const HEADER_LEN: usize = 64;
/// Bytes of the end of a record, by which the record is located.
pub(super) const TRAILER_BYTES: u64 = 16;
/// [`TRAILER_BYTES`] as a `usize`.
const TRAILER_LEN: usize = 16;
/// Bytes of a stretch under one checksum; the last piece of a stretch may be shorter.
pub(super) const PIECE_BYTES: u64 = 4096;

fn wrong(expected: &'static str) -> DecodeError {
    DecodeError {
        expected,
        offset: 0,
    }
}

/// The segment that a file indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexHeader {
    /// The number of the database's set of tiers.
    pub(super) set: u64,
    pub(super) segment: SegmentId,
}

impl IndexHeader {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = HEADER_MAGIC.to_vec();
        out.put_u64(self.set);
        out.put_u64(self.segment.0);
        out.resize(HEADER_LEN - 4, 0);
        out.put_u32(crc32c(&out));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<IndexHeader, DecodeError> {
        let Some((content, checksum)) = bytes.split_at_checked(HEADER_LEN - 4) else {
            return Err(wrong("a header of 64 bytes"));
        };
        if Cursor::new(checksum).u32("checksum of a header")? != crc32c(content) {
            return Err(wrong("a header with a valid checksum"));
        }
        let mut cursor = Cursor::new(content);
        if cursor.take(8, "header of an index")? != HEADER_MAGIC {
            return Err(wrong("the magic of an index, version 1"));
        }
        Ok(IndexHeader {
            set: cursor.u64("number of the set")?,
            segment: SegmentId(cursor.u64("segment id")?),
        })
    }
}

/// The footer of a segment up to which its contents are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpTo {
    pub(crate) footer_offset: u64,
    pub(crate) footer_bytes: u32,
    /// The head of the chain of the segment's hashes at this footer; `None` = unknown.
    pub(crate) chain: Option<Hash>,
}

impl UpTo {
    /// End of the footer.
    pub(crate) fn end(&self) -> u64 {
        self.footer_offset
            .saturating_add(u64::from(self.footer_bytes))
    }
}

/// A stretch of a segment that is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Offset of the stretch in the segment.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Checksums of the pieces of the stretch.
    pub(super) checksums: Box<[u32]>,
}

impl Stretch {
    /// End of the stretch in the segment.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The record after a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Offset of its first byte in the file.
    pub(super) start: u64,
    pub(super) segment: SegmentId,
    pub(super) up_to: UpTo,
    /// The checksum in the trailer of the footer.
    pub(super) footer_crc: u32,
    /// Sorted, and contiguous in the file from `start` on.
    pub(super) stretches: Vec<Stretch>,
}

impl Batch {
    /// The record, trailer included.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_varint(self.start);
        out.put_varint(self.segment.0);
        out.put_varint(self.up_to.footer_offset);
        out.put_varint(u64::from(self.up_to.footer_bytes));
        out.put_u32(self.footer_crc);
        out.put_u8(u8::from(self.up_to.chain.is_some()));
        if let Some(chain) = &self.up_to.chain {
            out.extend_from_slice(chain);
        }
        out.put_varint(wide(self.stretches.len()));
        let mut before = 0;
        for stretch in &self.stretches {
            out.put_varint(stretch.offset.wrapping_sub(before));
            out.put_varint(stretch.bytes);
            for checksum in &stretch.checksums {
                out.put_u32(*checksum);
            }
            before = stretch.end();
        }
        let checksum = crc32c(&out);
        let len = out.len() + TRAILER_LEN;
        out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        out.put_u32(checksum);
        out.extend_from_slice(&TRAILER_MAGIC);
        out
    }

    /// The length of the record that ends with these 16 bytes.
    pub(super) fn record_bytes(trailer: &[u8]) -> Result<u64, DecodeError> {
        let mut cursor = Cursor::new(trailer);
        let bytes = cursor.u32("length of a record")?;
        cursor.u32("checksum of a record")?;
        if cursor.take(8, "end of a record")? != TRAILER_MAGIC {
            return Err(wrong("the end of a record, version 1"));
        }
        cursor.finish()?;
        Ok(u64::from(bytes))
    }

    /// Reads a record, trailer included, at offset `at` of its file.
    pub(super) fn decode(bytes: &[u8], at: u64) -> Result<Batch, DecodeError> {
        let split = bytes.len().checked_sub(TRAILER_LEN);
        let Some((content, trailer)) = split.map(|split| bytes.split_at(split)) else {
            return Err(wrong("a record of at least 16 bytes"));
        };
        if Batch::record_bytes(trailer)? != wide(bytes.len()) {
            return Err(wrong("a record of the declared length"));
        }
        let mut end = Cursor::new(trailer);
        end.u32("length of a record")?;
        if end.u32("checksum of a record")? != crc32c(content) {
            return Err(wrong("a record with a valid checksum"));
        }
        let mut cursor = Cursor::new(content);
        let start = cursor.varint("start of a batch")?;
        let segment = SegmentId(cursor.varint("segment id")?);
        let footer_offset = cursor.varint("offset of a footer")?;
        let footer_bytes = cursor.varint("length of a footer")?;
        let footer_bytes =
            u32::try_from(footer_bytes).map_err(|_| cursor.expected("a length below 4 GiB"))?;
        let footer_crc = cursor.u32("checksum of a footer")?;
        let chain = match cursor.u8("chain flag")? {
            0 => None,
            1 => Some(ledger::hash(&mut cursor)?),
            _ => return Err(cursor.expected("0 or 1")),
        };
        let batch = Batch {
            start,
            segment,
            up_to: UpTo {
                footer_offset,
                footer_bytes,
                chain,
            },
            footer_crc,
            stretches: stretches(&mut cursor)?,
        };
        cursor.finish()?;
        let held: Option<u64> = batch
            .stretches
            .iter()
            .try_fold(start, |end, stretch| end.checked_add(stretch.bytes));
        if held != Some(at) {
            return Err(wrong("a record after the bytes that it describes"));
        }
        Ok(batch)
    }
}

fn stretches(cursor: &mut Cursor<'_>) -> Result<Vec<Stretch>, DecodeError> {
    let left = wide(cursor.remaining());
    let count = cursor.varint_up_to(left, "number of ranges")?;
    let mut out: Vec<Stretch> = Vec::new();
    let mut before = 0u64;
    for _ in 0..count {
        let offset = before.checked_add(cursor.varint("offset of a range")?);
        let bytes = cursor.varint("length of a range")?;
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        let (Some(offset), Some(end)) = (offset, end.filter(|_| bytes > 0)) else {
            return Err(cursor.expected("a range that is not empty"));
        };
        let pieces = usize::try_from(bytes.div_ceil(PIECE_BYTES)).unwrap_or(usize::MAX);
        let len = pieces.saturating_mul(4);
        let mut checksums = Cursor::new(cursor.take(len, "checksums of a range")?);
        let checksums = (0..pieces).map(|_| checksums.u32("checksum of a piece"));
        out.push(Stretch {
            offset,
            bytes,
            checksums: checksums.collect::<Result<_, _>>()?,
        });
        before = end;
    }
    Ok(out)
}

/// Reads bytes as a header and as the record of a batch: for the fuzz target. A value that decodes
/// must encode to bytes that decode to the same value. `repair` appends the valid ends to both.
#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8], repair: bool) {
    let (mut header, mut record) = (bytes.to_vec(), bytes.to_vec());
    if repair {
        header.resize(HEADER_LEN - 4, 0);
        header.put_u32(crc32c(&header));
        let checksum = crc32c(&record);
        record.put_u32(u32::try_from(record.len() + TRAILER_LEN).unwrap_or(u32::MAX));
        record.put_u32(checksum);
        record.extend_from_slice(&TRAILER_MAGIC);
    }
    if let Ok(header) = IndexHeader::decode(&header) {
        assert_eq!(IndexHeader::decode(&header.encode()), Ok(header));
    }
    // The offset of the record depends on its contents.
    for at in [64, 4096, 5000, 100_000] {
        if let Ok(batch) = Batch::decode(&record, at) {
            assert_eq!(Batch::decode(&batch.encode(), at), Ok(batch));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    fn batch(chain: Option<Hash>) -> Batch {
        Batch {
            start: 64,
            segment: SegmentId(0x1122),
            up_to: UpTo {
                footer_offset: 9000,
                footer_bytes: 321,
                chain,
            },
            footer_crc: 0x0102_0304,
            stretches: vec![
                Stretch {
                    offset: 0,
                    bytes: 64,
                    checksums: [7].into(),
                },
                Stretch {
                    offset: 4000,
                    bytes: 5321,
                    checksums: [8, u32::MAX].into(),
                },
            ],
        }
    }

    #[test]
    fn the_bytes_of_a_header_and_of_a_record_stay_what_they_are() {
        let header = IndexHeader {
            set: 0x0102_0304_0506_0708,
            segment: SegmentId(77),
        };
        let bytes = header.encode();
        crate::golden::check("index_header", &bytes);
        assert_eq!(wide(bytes.len()), HEADER_BYTES);
        assert_eq!(IndexHeader::decode(&bytes), Ok(header));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 8;
            assert!(IndexHeader::decode(&damaged).is_err(), "{at}");
        }
        let at = 64 + 64 + 5321;
        for (name, chain) in [("index_batch", None), ("index_batch_chain", Some([9; 32]))] {
            let batch = batch(chain);
            let bytes = batch.encode();
            crate::golden::check(name, &bytes);
            assert_eq!(Batch::decode(&bytes, at).as_ref(), Ok(&batch));
            let trailer = &bytes[bytes.len() - TRAILER_LEN..];
            assert_eq!(Batch::record_bytes(trailer), Ok(wide(bytes.len())));
            assert!(Batch::decode(&bytes, at + 1).is_err());
            for at_byte in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at_byte] ^= 8;
                assert!(Batch::decode(&damaged, at).is_err(), "{name}, {at_byte}");
                assert!(Batch::decode(&bytes[..at_byte], at).is_err());
            }
        }
    }

    #[test]
    fn a_stretch_that_is_empty_or_beyond_all_bytes_is_refused() {
        let with = |offset, bytes, pieces: &[u32]| {
            let mut batch = batch(None);
            batch.stretches = vec![Stretch {
                offset,
                bytes,
                checksums: pieces.into(),
            }];
            Batch::decode(&batch.encode(), 64 + bytes.min(1 << 40))
        };
        assert!(with(5, 10, &[1]).is_ok());
        assert!(with(5, 0, &[]).is_err());
        assert!(with(u64::MAX - 3, 10, &[1]).is_err());
        assert!(with(5, u64::MAX - 9, &[1]).is_err());
        assert!(with(5, 10, &[]).is_err());
    }
}
