//! The superblock, and the first bytes of each set's file.
//!
//! Invariants: 64 bytes, the last four a CRC-32C of the others; unused bytes are zero. Concurrency
//! and failure: plain functions; invalid bytes decode to `None`.

use super::{identity_at, u32_at, u64_at};
use crate::layout::Layout;

/// Bytes of either header.
pub(crate) const HEADER_BYTES: usize = 64;

const DEVICE_MAGIC: &[u8; 8] = b"HWBDEV\x00\x01";
const SET_MAGIC: &[u8; 8] = b"HWBSET\x00\x01";
const CRC_AT: usize = HEADER_BYTES - 4;

/// The superblock: identity and shape of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    /// Drawn when the device was made.
    pub(crate) identity: [u8; 16],
    /// Size of the device and its sets.
    pub(crate) layout: Layout,
    /// Number of blocks that fit a redo slot.
    pub(crate) redo_blocks: u32,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = DEVICE_MAGIC.to_vec();
        out.extend_from_slice(&self.identity);
        out.extend_from_slice(&self.layout.size.to_le_bytes());
        out.extend_from_slice(&self.layout.sets.to_le_bytes());
        out.extend_from_slice(&self.layout.stripe_bytes.to_le_bytes());
        out.extend_from_slice(&self.redo_blocks.to_le_bytes());
        sealed(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Superblock> {
        let bytes = unsealed(bytes, DEVICE_MAGIC)?;
        let found = Superblock {
            identity: identity_at(bytes, 8)?,
            layout: Layout {
                size: u64_at(bytes, 24)?,
                sets: u32_at(bytes, 32)?,
                stripe_bytes: u32_at(bytes, 36)?,
            },
            redo_blocks: u32_at(bytes, 40)?,
        };
        // These bytes are not checked, so that a later version may use them.
        let rest = bytes.get(44..CRC_AT)?;
        rest.iter().all(|byte| *byte == 0).then_some(found)
    }
}

/// Identity of a file: its device, and its set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetHeader {
    /// The device's.
    pub(crate) identity: [u8; 16],
    /// The number of the set.
    pub(crate) set: u32,
    /// Number of blocks that fit a redo slot, as in the superblock.
    pub(crate) redo_blocks: u32,
    /// Blocks of the set that clients have.
    pub(crate) blocks: u64,
}

impl SetHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = SET_MAGIC.to_vec();
        out.extend_from_slice(&self.identity);
        out.extend_from_slice(&self.set.to_le_bytes());
        out.extend_from_slice(&self.redo_blocks.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        sealed(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<SetHeader> {
        let bytes = unsealed(bytes, SET_MAGIC)?;
        let found = SetHeader {
            identity: identity_at(bytes, 8)?,
            set: u32_at(bytes, 24)?,
            redo_blocks: u32_at(bytes, 28)?,
            blocks: u64_at(bytes, 32)?,
        };
        let rest = bytes.get(40..CRC_AT)?;
        rest.iter().all(|byte| *byte == 0).then_some(found)
    }
}

/// Pads with zeros, and appends the checksum.
fn sealed(mut out: Vec<u8>) -> Vec<u8> {
    out.resize(CRC_AT, 0);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// The header at the front of some bytes, if it is of this kind and its checksum fits.
fn unsealed<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Option<&'a [u8]> {
    let header = bytes.get(..HEADER_BYTES)?;
    let fits = crc32c::crc32c(header.get(..CRC_AT)?) == u32_at(header, CRC_AT)?;
    (fits && header.starts_with(magic)).then_some(header)
}
