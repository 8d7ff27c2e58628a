//! The bytes of a device on its medium; docs/format/device.md.
//!
//! Invariants: numbers are little-endian; all bytes except the blocks of clients have a CRC-32C;
//! decoders need no more memory than their input and never panic. Concurrency and failure: plain
//! functions; invalid bytes decode to `None`.

mod headers;
mod map;
mod redo;

pub(crate) use headers::{HEADER_BYTES, SetHeader, Superblock};
pub(crate) use map::{BLOCKS_OF_A_PAGE, decode_page, encode_page, pages_of, words_of_a_page};
pub(crate) use redo::{REDO_BLOCKS_MAX, SlotHeader};

/// A number of four bytes at an offset.
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let found = bytes.get(offset..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*found))
}

/// A number of eight bytes at an offset.
fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let found = bytes.get(offset..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*found))
}

/// Sixteen bytes at an offset.
fn identity_at(bytes: &[u8], offset: usize) -> Option<[u8; 16]> {
    bytes.get(offset..)?.first_chunk::<16>().copied()
}
