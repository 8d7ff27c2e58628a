//! Redo slots: blocks that are written in place once they are durable here.
//!
//! Invariants: a slot is valid as a whole or not at all: its header has a checksum, which covers
//! the list of locations, and so do the blocks after it. Concurrency and failure: plain functions;
//! invalid bytes decode to `None`.

use super::{identity_at, u32_at, u64_at};
use crate::BLOCK_BYTES;
use crate::numbers::long;

const MAGIC: &[u8; 8] = b"HWREDO\x00\x01";
const CRC_AT: usize = 60;
const LOCATIONS_AT: usize = 64;

/// A header and its locations fit into one block.
pub(crate) const REDO_BLOCKS_MAX: u32 = 480;

/// The first block of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlotHeader {
    /// The device's.
    pub(crate) identity: [u8; 16],
    /// The number of the set.
    pub(crate) set: u32,
    /// Larger in every slot that is written: 1, 2, 3 and so on.
    pub(crate) sequence: u64,
    /// CRC-32C of the concatenated blocks.
    pub(crate) contents_crc: u32,
    /// Location of each of the blocks, counted in blocks from the first page of the map on.
    pub(crate) locations: Vec<u64>,
}

impl SlotHeader {
    /// Size of a slot for `redo_blocks` blocks, in bytes.
    pub(crate) fn slot_bytes(redo_blocks: u32) -> u64 {
        (u64::from(redo_blocks) + 1) * long(BLOCK_BYTES)
    }

    /// The first block of the slot.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.locations.len()).unwrap_or(u32::MAX);
        assert!(count <= REDO_BLOCKS_MAX, "a slot has room for no more");
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.identity);
        out.extend_from_slice(&self.set.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.contents_crc.to_le_bytes());
        out.resize(LOCATIONS_AT, 0);
        for location in &self.locations {
            out.extend_from_slice(&location.to_le_bytes());
        }
        let crc = checksum(&out).unwrap_or(0);
        if let Some(at) = out.get_mut(CRC_AT..LOCATIONS_AT) {
            at.copy_from_slice(&crc.to_le_bytes());
        }
        out.resize(BLOCK_BYTES, 0);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<SlotHeader> {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        let count = u32_at(bytes, 28)?;
        if count > REDO_BLOCKS_MAX {
            return None;
        }
        let end = LOCATIONS_AT + usize::try_from(count).ok()? * 8;
        let covered = bytes.get(..end)?;
        if checksum(covered)? != u32_at(bytes, CRC_AT)? {
            return None;
        }
        let zeros = bytes.get(44..CRC_AT)?.iter().all(|byte| *byte == 0);
        let locations = covered.get(LOCATIONS_AT..)?;
        zeros.then_some(SlotHeader {
            identity: identity_at(bytes, 8)?,
            set: u32_at(bytes, 24)?,
            sequence: u64_at(bytes, 32)?,
            contents_crc: u32_at(bytes, 40)?,
            locations: locations
                .chunks_exact(8)
                .filter_map(|location| u64_at(location, 0))
                .collect(),
        })
    }
}

/// Checksum of the header without the checksum field, and of the locations.
fn checksum(covered: &[u8]) -> Option<u32> {
    let crc = crc32c::crc32c(covered.get(..CRC_AT)?);
    Some(crc32c::crc32c_append(crc, covered.get(LOCATIONS_AT..)?))
}
