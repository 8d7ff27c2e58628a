//! Creating and opening the file of a set: the blocks of redo slots are written to their locations.
//!
//! Invariants: an opened set has the state of its newest valid slot, and all of it is durable.
//! Concurrency: the opener holds the device's lock. Failure: a damaged header or map page prevents
//! the opening; an invalid slot is the result of a power cut, and is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use headwater_io::{File, Files, OpenMode};

use super::blocks::Map;
use super::{Block, SetStore};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::format::{HEADER_BYTES, SetHeader, SlotHeader, Superblock, decode_page, pages_of};
use crate::numbers::{index, long};

/// Locations in the file of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetLayout {
    pub(crate) identity: [u8; 16],
    pub(crate) set: u32,
    pub(crate) redo_blocks: u32,
    /// Blocks that clients have in this set.
    pub(crate) blocks: u64,
}

impl SetLayout {
    pub(crate) fn of(superblock: &Superblock, set: u32) -> SetLayout {
        SetLayout {
            identity: superblock.identity,
            set,
            redo_blocks: superblock.redo_blocks,
            blocks: superblock.layout.blocks_of_a_set(),
        }
    }

    /// The location of a block of data, counted from the first page of the map.
    pub(crate) fn data(&self, block: u64) -> u64 {
        pages_of(self.blocks) + block
    }

    /// Offset of a location in the file.
    pub(crate) fn offset(&self, location: u64) -> u64 {
        long(BLOCK_BYTES) * (1 + location) + 2 * SlotHeader::slot_bytes(self.redo_blocks)
    }

    /// Offset of a block of data in the file.
    pub(crate) fn data_offset(&self, block: u64) -> u64 {
        self.offset(self.data(block))
    }

    /// Offset of the slot with this sequence in the file.
    pub(crate) fn slot_offset(&self, sequence: u64) -> u64 {
        long(BLOCK_BYTES) + sequence % 2 * SlotHeader::slot_bytes(self.redo_blocks)
    }

    fn header(&self) -> SetHeader {
        SetHeader {
            identity: self.identity,
            set: self.set,
            redo_blocks: self.redo_blocks,
            blocks: self.blocks,
        }
    }

    fn file_bytes(&self) -> u64 {
        self.data_offset(self.blocks)
    }
}

/// Creates the file of a set without any blocks, durable except for its name. The slots are
/// allocated at once, so that a full medium is detected before a write is accepted.
pub(crate) fn create(files: &dyn Files, path: &Path, layout: SetLayout) -> Result<(), BlockError> {
    let made = (|| {
        let file = files.open(path, OpenMode::CreateNew)?;
        let mut front = layout.header().encode();
        front.resize(index(layout.offset(0)), 0);
        file.write_all_at(0, &front)?;
        file.set_len(layout.file_bytes())?;
        file.sync_data()
    })();
    made.map_err(|error| BlockError::io("make", path, error))
}

/// Whether no data was ever written to the set in a file: then it may be created again. Writes of
/// clients are visible in a slot or in the map; without a readable header, the whole file is
/// checked.
pub(crate) fn is_unwritten(files: &dyn Files, path: &Path) -> io::Result<bool> {
    const AT_ONCE: usize = 1 << 20;
    let file = files.open(path, OpenMode::Read)?;
    let length = file.len()?;
    let mut front = vec![0; HEADER_BYTES.min(index(length))];
    file.read_exact_at(0, &mut front)?;
    let end = match SetHeader::decode(&front) {
        Some(header) => {
            let layout = SetLayout {
                identity: header.identity,
                set: header.set,
                redo_blocks: header.redo_blocks,
                blocks: header.blocks,
            };
            layout.data_offset(0).min(length)
        }
        None => length,
    };
    let mut at = long(BLOCK_BYTES);
    while at < end {
        let mut part = vec![0; AT_ONCE.min(index(end - at))];
        file.read_exact_at(at, &mut part)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += long(part.len());
    }
    Ok(true)
}

impl SetStore {
    /// Opens the file of a set.
    pub(crate) fn open(
        files: &dyn Files,
        path: &Path,
        layout: SetLayout,
    ) -> Result<SetStore, BlockError> {
        let file = files
            .open(path, OpenMode::Write)
            .map_err(|error| BlockError::io("open", path, error))?;
        let opening = Opening { file, path, layout };
        opening.check_header()?;
        let slots = opening.slots()?;
        // Slots are written again as read: a sync of an earlier process may have failed, after
        // which a system returns bytes that it will never write. No blocks are written to their
        // locations from such a slot.
        for slot in &slots {
            opening.write(layout.slot_offset(slot.sequence), &slot.bytes)?;
        }
        opening.sync()?;
        let sequence = slots.last().map_or(0, |newest| newest.sequence);
        for slot in &slots {
            for (at, block) in &slot.blocks {
                opening.write(layout.offset(*at), block.bytes())?;
            }
        }
        opening.sync()?;
        let map = opening.map()?;
        Ok(SetStore {
            file: opening.file,
            path: path.to_owned(),
            layout,
            map,
            dirty: BTreeMap::new(),
            dirty_pages: BTreeSet::new(),
            newest: BTreeMap::new(),
            is_settled: true,
            sequence,
            failed: None,
        })
    }
}

/// A slot that is whole.
struct Slot {
    sequence: u64,
    /// Blocks with their locations.
    blocks: Vec<(u64, Block)>,
    /// All of it as it was read, as far as it is used.
    bytes: Vec<u8>,
}

struct Opening<'a> {
    file: Arc<dyn File>,
    path: &'a Path,
    layout: SetLayout,
}

impl Opening<'_> {
    fn check_header(&self) -> Result<(), BlockError> {
        let length = self.file.len();
        let length = length.map_err(|error| BlockError::io("look at", self.path, error))?;
        let wanted = self.layout.file_bytes();
        if length != wanted {
            let expected = format!("{wanted} bytes, the file has {length}");
            return Err(BlockError::corrupt(self.path, length, &expected));
        }
        let header = self.read(0, HEADER_BYTES)?;
        let Some(header) = SetHeader::decode(&header) else {
            let expected = "the header of a set, with a valid checksum";
            return Err(BlockError::corrupt(self.path, 0, expected));
        };
        let wanted = self.layout.header();
        if header != wanted {
            let expected = format!(
                "set {} of this device, found set {} of device {}",
                wanted.set,
                header.set,
                hex(&header.identity)
            );
            return Err(BlockError::corrupt(self.path, 8, &expected));
        }
        Ok(())
    }

    /// The slots that are whole, older first.
    fn slots(&self) -> Result<Vec<Slot>, BlockError> {
        let mut found = Vec::new();
        for number in 0..2 {
            let at = self.layout.slot_offset(number);
            let bytes = self.read(at, index(SlotHeader::slot_bytes(self.layout.redo_blocks)))?;
            found.extend(self.decode_slot(number, bytes));
        }
        found.sort_unstable_by_key(|slot| slot.sequence);
        Ok(found)
    }

    /// Decodes a slot, if it is whole and of this set.
    fn decode_slot(&self, number: u64, mut bytes: Vec<u8>) -> Option<Slot> {
        let (front, blocks) = bytes.split_at_checked(BLOCK_BYTES)?;
        let header = SlotHeader::decode(front)?;
        let blocks = blocks.get(..header.locations.len() * BLOCK_BYTES)?;
        let locations = pages_of(self.layout.blocks) + self.layout.blocks;
        let is_ours = header.identity == self.layout.identity
            && header.set == self.layout.set
            && header.sequence % 2 == number
            && header
                .locations
                .iter()
                .all(|location| *location < locations)
            && crc32c::crc32c(blocks) == header.contents_crc;
        if !is_ours {
            return None;
        }
        let used = BLOCK_BYTES + blocks.len();
        let blocks = blocks.chunks_exact(BLOCK_BYTES).map(Block::of);
        let blocks = header.locations.iter().copied().zip(blocks).collect();
        bytes.truncate(used);
        Some(Slot {
            sequence: header.sequence,
            blocks,
            bytes,
        })
    }

    fn sync(&self) -> Result<(), BlockError> {
        let synced = self.file.sync_data();
        synced.map_err(|error| BlockError::io("sync", self.path, error))
    }

    fn map(&self) -> Result<Map, BlockError> {
        let mut pages = Vec::new();
        for page in 0..pages_of(self.layout.blocks) {
            let at = self.layout.offset(page);
            let bytes = self.read(at, BLOCK_BYTES)?;
            let Some(words) = decode_page(&bytes) else {
                let expected = "a page of the map, with a valid checksum";
                return Err(BlockError::corrupt(self.path, at, expected));
            };
            pages.push(words);
        }
        Ok(Map::of(pages))
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, BlockError> {
        let mut buf = vec![0; bytes];
        let read = self.file.read_exact_at(at, &mut buf);
        read.map_err(|error| BlockError::io("read", self.path, error))?;
        Ok(buf)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let written = self.file.write_all_at(at, bytes);
        written.map_err(|error| BlockError::io("write", self.path, error))
    }
}

fn hex(identity: &[u8; 16]) -> String {
    identity.iter().map(|byte| format!("{byte:02x}")).collect()
}
