//! Making the file of a set, and opening it: what redo slots hold is put in place.
//!
//! Invariants: an opened set is as its newest whole slot left it, and all of it is durable.
//! Concurrency: whoever opens has the device's lock.
//! Failure: a damaged header or page of the map keeps the device from opening; a slot that is not
//! whole is what a power cut leaves, and is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use headwater_io::{File, Files, OpenMode};

use super::blocks::Map;
use super::{Block, SetStore};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::format::{HEADER_BYTES, SetHeader, SlotHeader, Superblock, decode_page, pages_of};
use crate::numbers::{index, long};

/// Where everything lies in the file of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetPlace {
    pub(crate) identity: [u8; 16],
    pub(crate) set: u32,
    pub(crate) redo_blocks: u32,
    /// How many blocks clients have here.
    pub(crate) blocks: u64,
}

impl SetPlace {
    pub(crate) fn of(superblock: &Superblock, set: u32) -> SetPlace {
        SetPlace {
            identity: superblock.identity,
            set,
            redo_blocks: superblock.redo_blocks,
            blocks: superblock.layout.blocks_of_a_set(),
        }
    }

    /// The place of a block of data, counted from the first page of the map.
    pub(crate) fn data(&self, block: u64) -> u64 {
        pages_of(self.blocks) + block
    }

    /// Where a place is in the file.
    pub(crate) fn offset(&self, place: u64) -> u64 {
        long(BLOCK_BYTES) * (1 + place) + 2 * SlotHeader::slot_bytes(self.redo_blocks)
    }

    /// Where a block of data is in the file.
    pub(crate) fn data_offset(&self, block: u64) -> u64 {
        self.offset(self.data(block))
    }

    /// Where the slot with this sequence is in the file.
    pub(crate) fn slot_offset(&self, sequence: u64) -> u64 {
        long(BLOCK_BYTES) + sequence % 2 * SlotHeader::slot_bytes(self.redo_blocks)
    }

    fn file_bytes(&self) -> u64 {
        self.data_offset(self.blocks)
    }
}

/// Makes the file of a set without any blocks, durable but for its name. The slots get their space
/// at once, so that a full medium is found out before a write is taken.
pub(crate) fn create(files: &dyn Files, path: &Path, place: SetPlace) -> Result<(), BlockError> {
    let made = (|| {
        let file = files.open(path, OpenMode::CreateNew)?;
        let mut front = SetHeader {
            identity: place.identity,
            set: place.set,
        }
        .encode();
        front.resize(index(place.offset(0)), 0);
        file.write_all_at(0, &front)?;
        file.set_len(place.file_bytes())?;
        file.sync_data()
    })();
    made.map_err(|error| BlockError::io("make", path, error))
}

impl SetStore {
    /// Opens the file of a set.
    pub(crate) fn open(
        files: &dyn Files,
        path: &Path,
        place: SetPlace,
    ) -> Result<SetStore, BlockError> {
        let file = files
            .open(path, OpenMode::Write)
            .map_err(|error| BlockError::io("open", path, error))?;
        let opening = Opening { file, path, place };
        opening.check_header()?;
        let slots = opening.slots()?;
        let sequence = slots.keys().copied().last().unwrap_or(0);
        for blocks in slots.into_values() {
            for (at, block) in blocks {
                opening.write(place.offset(at), block.bytes())?;
            }
        }
        let synced = opening.file.sync_data();
        synced.map_err(|error| BlockError::io("sync", path, error))?;
        let map = opening.map()?;
        Ok(SetStore {
            file: opening.file,
            path: path.to_owned(),
            place,
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

struct Opening<'a> {
    file: Arc<dyn File>,
    path: &'a Path,
    place: SetPlace,
}

impl Opening<'_> {
    fn check_header(&self) -> Result<(), BlockError> {
        let length = self.file.len();
        let length = length.map_err(|error| BlockError::io("look at", self.path, error))?;
        let wanted = self.place.file_bytes();
        if length != wanted {
            let expected = format!("{wanted} bytes, the file has {length}");
            return Err(BlockError::corrupt(self.path, length, &expected));
        }
        let header = self.read(0, HEADER_BYTES)?;
        let Some(header) = SetHeader::decode(&header) else {
            let expected = "the header of a set, whose checksum fits";
            return Err(BlockError::corrupt(self.path, 0, expected));
        };
        let wanted = SetHeader {
            identity: self.place.identity,
            set: self.place.set,
        };
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

    /// The blocks of the slots that are whole, by sequence.
    fn slots(&self) -> Result<BTreeMap<u64, Vec<(u64, Block)>>, BlockError> {
        let mut found = BTreeMap::new();
        for slot in 0..2 {
            let at = self.place.slot_offset(slot);
            let bytes = self.read(at, index(SlotHeader::slot_bytes(self.place.redo_blocks)))?;
            if let Some((header, blocks)) = self.whole(slot, &bytes) {
                found.insert(header.sequence, blocks);
            }
        }
        Ok(found)
    }

    /// What a slot holds, if it is whole and of this set.
    fn whole(&self, slot: u64, bytes: &[u8]) -> Option<(SlotHeader, Vec<(u64, Block)>)> {
        let (front, blocks) = bytes.split_at_checked(BLOCK_BYTES)?;
        let header = SlotHeader::decode(front)?;
        let blocks = blocks.get(..header.places.len() * BLOCK_BYTES)?;
        let places = pages_of(self.place.blocks) + self.place.blocks;
        let is_ours = header.identity == self.place.identity
            && header.set == self.place.set
            && header.sequence % 2 == slot
            && header.places.iter().all(|place| *place < places)
            && crc32c::crc32c(blocks) == header.contents_crc;
        if !is_ours {
            return None;
        }
        let blocks = blocks.chunks_exact(BLOCK_BYTES).map(Block::of);
        let placed = header.places.iter().copied().zip(blocks).collect();
        Some((header, placed))
    }

    fn map(&self) -> Result<Map, BlockError> {
        let mut pages = Vec::new();
        for page in 0..pages_of(self.place.blocks) {
            let at = self.place.offset(page);
            let bytes = self.read(at, BLOCK_BYTES)?;
            let Some(words) = decode_page(&bytes) else {
                let expected = "a page of the map, whose checksum fits";
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
