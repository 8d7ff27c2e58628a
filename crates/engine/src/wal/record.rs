//! The bytes of a log record and of a log file's header.
//!
//! A record is a 32-byte header, the payload, and zeros up to the next multiple of 8. The header's
//! checksum covers the file's generation, so that records left over in a recycled file are never
//! taken for new ones.

use crate::common::ids::Sequence;
use headwater_codec::checksum::{crc32c, crc32c_append};
use headwater_types::invariant::part_of;

pub(crate) const FILE_MAGIC: [u8; 8] = *b"HWLOG\x00\x00\x01";
/// Bytes of a file's header; the first record follows.
pub(crate) const FILE_HEADER_BYTES: u64 = 64;
pub(crate) const RECORD_HEADER_BYTES: usize = 32;
const ALIGN: usize = 8;

/// Kind of a record. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// Events: a batch.
    Write = 1,
    /// A table's definition, whole.
    Table = 2,
    /// Definitions of new streams.
    Streams = 3,
    /// Removal of events with smaller sequences, perhaps of their streams too.
    Delete = 4,
    /// Events: a batch with its producer and number.
    NumberedWrite = 5,
    /// Fields added to a table.
    Fields = 6,
}

impl RecordKind {
    pub(crate) fn from_number(number: u8) -> Option<RecordKind> {
        [
            RecordKind::Write,
            RecordKind::Table,
            RecordKind::Streams,
            RecordKind::Delete,
            RecordKind::NumberedWrite,
            RecordKind::Fields,
        ]
        .into_iter()
        .find(|kind| kind.number() == number)
    }

    /// Encoded value.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }
}

/// The header of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Ascending over the files in the order they were started.
    pub(crate) generation: u64,
    /// The last sequence in the log before this file.
    pub(crate) previous: Sequence,
    /// Length of the file, this header included.
    pub(crate) bytes: u64,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_BYTES as usize] {
        let mut out = [0u8; FILE_HEADER_BYTES as usize];
        out[..8].copy_from_slice(&FILE_MAGIC);
        out[8..16].copy_from_slice(&self.generation.to_le_bytes());
        out[16..24].copy_from_slice(&self.previous.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` when the bytes are not a header: the file was never started, or its header was torn
    /// before anything was synced.
    pub(crate) fn decode(bytes: &[u8]) -> Option<FileHeader> {
        let bytes: &[u8; FILE_HEADER_BYTES as usize] =
            bytes.get(..FILE_HEADER_BYTES as usize)?.try_into().ok()?;
        let crc = u32::from_le_bytes(bytes[60..64].try_into().ok()?);
        if bytes[..8] != FILE_MAGIC || crc32c(&bytes[..60]) != crc {
            return None;
        }
        Some(FileHeader {
            generation: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            previous: Sequence(u64::from_le_bytes(bytes[16..24].try_into().ok()?)),
            bytes: u64::from_le_bytes(bytes[24..32].try_into().ok()?),
        })
    }
}

/// The header of a record, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) payload_bytes: u32,
    pub(crate) payload_crc: u32,
    pub(crate) sequence: Sequence,
    /// All records up to here were known to be on the medium when this record was written.
    pub(crate) synced: Sequence,
    pub(crate) kind: u8,
}

impl RecordHeader {
    fn crc(generation: u64, bytes: &[u8]) -> u32 {
        crc32c_append(crc32c(&generation.to_le_bytes()), bytes)
    }

    pub(crate) fn encode(&self, generation: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.payload_bytes.to_le_bytes());
        out.extend_from_slice(&self.payload_crc.to_le_bytes());
        out.extend_from_slice(&self.sequence.0.to_le_bytes());
        out.extend_from_slice(&self.synced.0.to_le_bytes());
        out.push(self.kind);
        out.extend_from_slice(&[0; 3]);
        let crc = Self::crc(generation, part_of(out, start.., "a record's header"));
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// The header at the start of `bytes`, if one of this generation is there.
    pub(crate) fn decode(generation: u64, bytes: &[u8]) -> Option<RecordHeader> {
        let bytes: &[u8; RECORD_HEADER_BYTES] =
            bytes.get(..RECORD_HEADER_BYTES)?.try_into().ok()?;
        let crc = u32::from_le_bytes(bytes[28..32].try_into().ok()?);
        if bytes[25..28] != [0; 3] || Self::crc(generation, &bytes[..28]) != crc {
            return None;
        }
        Some(RecordHeader {
            payload_bytes: u32::from_le_bytes(bytes[0..4].try_into().ok()?),
            payload_crc: u32::from_le_bytes(bytes[4..8].try_into().ok()?),
            sequence: Sequence(u64::from_le_bytes(bytes[8..16].try_into().ok()?)),
            synced: Sequence(u64::from_le_bytes(bytes[16..24].try_into().ok()?)),
            kind: bytes[24],
        })
    }
}

/// Appends zeros up to the next record's position.
pub(crate) fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

/// Bytes a record with this payload takes in the file.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(ALIGN)
}
