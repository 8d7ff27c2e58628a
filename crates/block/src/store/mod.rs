//! The storage of one set: blocks that were written, and how they become durable.
//!
//! A write is first stored in memory. A *commit* writes all blocks that changed since the last one
//! to a redo slot, with one write and one sync, and then to their locations. Two slots alternate:
//! the sync of one makes the blocks of the other durable at their locations, so a slot is
//! overwritten only when it is not needed any more. Opening writes the blocks of both slots to
//! their locations again.
//!
//! Invariants: after a power cut a set has the state of one of its commits, which includes every
//! acknowledged one; so no block is torn. Pending blocks in memory fit one slot. Concurrency: a
//! plain value, guarded by its owner. Failure: after a failed sync all writes are refused, since
//! later syncs cannot be trusted; reads continue. After other errors pending blocks remain in
//! memory, and the next commit retries.

mod blocks;
mod open;

pub(crate) use blocks::Block;
pub(crate) use open::{SetLayout, create, is_unwritten};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_io::File;

use crate::BLOCK_BYTES;
use crate::format::{BLOCKS_OF_A_PAGE, SlotHeader, encode_page};
use crate::numbers::{index, long};
use blocks::{Map, ranges};

/// One set of an open device.
#[derive(Debug)]
pub(crate) struct SetStore {
    file: Arc<dyn File>,
    path: PathBuf,
    layout: SetLayout,
    map: Map,
    /// Written since the last commit; never more than fit into a slot with their pages of the map.
    dirty: BTreeMap<u64, Block>,
    dirty_pages: BTreeSet<u64>,
    /// Blocks of the newest slot, by location. Reads use them until the next slot is durable, since
    /// the writes to their locations are not durable before.
    newest: BTreeMap<u64, Block>,
    /// True when the newest slot's blocks were written to their locations.
    is_settled: bool,
    /// Sequence of the newest slot.
    sequence: u64,
    /// Error of a failed sync.
    failed: Option<String>,
}

impl SetStore {
    /// Fills `buf` with the content of the set from `offset` on.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        // Contiguous blocks of the file are read together.
        let mut run: Option<(u64, Range<usize>)> = None;
        for range in ranges(offset, long(buf.len())) {
            let is_in_file = self.map.has(range.block)
                && !self.dirty.contains_key(&range.block)
                && !self.newest.contains_key(&self.layout.data(range.block));
            if is_in_file {
                match &mut run {
                    Some((_, bytes)) => bytes.end = range.within.end,
                    None => {
                        let at = self.layout.data_offset(range.block) + long(range.inside.start);
                        run = Some((at, range.within));
                    }
                }
                continue;
            }
            self.read_run(run.take(), buf)?;
            if let Some(to) = buf.get_mut(range.within) {
                match self.in_memory(range.block) {
                    Some(block) => block.copy_to(range.inside, to),
                    None => to.fill(0),
                }
            }
        }
        self.read_run(run, buf)
    }

    fn read_run(&self, run: Option<(u64, Range<usize>)>, buf: &mut [u8]) -> io::Result<()> {
        match run {
            Some((at, bytes)) => match buf.get_mut(bytes) {
                Some(to) => self.file.read_exact_at(at, to),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// A block that was written and is in memory still.
    fn in_memory(&self, block: u64) -> Option<&Block> {
        if !self.map.has(block) {
            return None;
        }
        let newest = || self.newest.get(&self.layout.data(block));
        self.dirty.get(&block).or_else(newest)
    }

    /// Writes, into memory; whole blocks become durable with the next commit.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.require_sound()?;
        for range in ranges(offset, long(data.len())) {
            let Some(from) = data.get(range.within.clone()) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let mut block = if from.len() == BLOCK_BYTES {
                Block::zeros()
            } else {
                self.load(range.block)?
            };
            block.copy_from(range.inside, from);
            self.put(range.block, block)?;
        }
        Ok(())
    }

    /// Makes a range read as zeros. Whole blocks become holes, unless their space is to be
    /// preserved.
    pub(crate) fn zero(&mut self, offset: u64, length: u64, keeps_space: bool) -> io::Result<()> {
        self.require_sound()?;
        for range in ranges(offset, length) {
            let is_whole = range.inside.len() == BLOCK_BYTES;
            if is_whole && !keeps_space {
                self.forget(range.block)?;
            } else if keeps_space || self.map.has(range.block) {
                let mut block = match is_whole {
                    true => Block::zeros(),
                    false => self.load(range.block)?,
                };
                block.fill(range.inside, 0);
                self.put(range.block, block)?;
            }
        }
        Ok(())
    }

    /// Discards the whole blocks of a range; partial blocks are unchanged.
    pub(crate) fn trim(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.require_sound()?;
        for range in ranges(offset, length) {
            if range.inside.len() == BLOCK_BYTES {
                self.forget(range.block)?;
            }
        }
        Ok(())
    }

    /// Written and unwritten parts of a range: runs with their lengths.
    pub(crate) fn status(&self, offset: u64, length: u64) -> Vec<(u64, bool)> {
        let mut runs: Vec<(u64, bool)> = Vec::new();
        for range in ranges(offset, length) {
            let is_written = self.map.has(range.block);
            let bytes = long(range.inside.len());
            match runs.last_mut() {
                Some((length, last)) if *last == is_written => *length += bytes,
                _ => runs.push((bytes, is_written)),
            }
        }
        runs
    }

    /// True when every write so far is durable.
    pub(crate) fn is_clean(&self) -> bool {
        self.failed.is_none() && self.dirty.is_empty() && self.dirty_pages.is_empty()
    }

    /// Makes all earlier writes durable.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        self.require_sound()?;
        if self.is_clean() {
            return Ok(());
        }
        // The slot to be overwritten next is the one before the newest; no block may depend on it
        // or on the newest.
        self.settle()?;
        let batch = self.batch();
        let sequence = self.sequence + 1;
        let (locations, contents): (Vec<u64>, Vec<&Block>) = batch
            .iter()
            .map(|(location, block)| (*location, block))
            .unzip();
        let blocks: Vec<u8> = contents
            .into_iter()
            .flat_map(Block::bytes)
            .copied()
            .collect();
        let header = SlotHeader {
            identity: self.layout.identity,
            set: self.layout.set,
            sequence,
            contents_crc: crc32c::crc32c(&blocks),
            locations,
        };
        let mut slot = header.encode();
        slot.extend_from_slice(&blocks);
        let at = self.layout.slot_offset(sequence);
        self.file.write_all_at(at, &slot)?;
        self.sync()?;
        self.sequence = sequence;
        self.newest = batch;
        self.is_settled = false;
        self.dirty.clear();
        self.dirty_pages.clear();
        if let Err(error) = self.settle() {
            // The batch is durable, and is written to its locations before the next one, which
            // returns the error to its caller if it persists.
            tracing::warn!(%error, file = %self.path.display(), "blocks wait in their redo slot");
        }
        Ok(())
    }

    /// Commits, and makes the blocks durable at their locations.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.commit()?;
        self.settle()?;
        self.sync()
    }

    /// Writes the blocks that are durable in the newest slot to their locations.
    fn settle(&mut self) -> io::Result<()> {
        if self.is_settled {
            return Ok(());
        }
        let mut run: Vec<u8> = Vec::new();
        let mut run_at = 0;
        let mut next = None;
        for (location, block) in &self.newest {
            if next != Some(*location) {
                self.put_in_place(run_at, &run)?;
                run.clear();
                run_at = self.layout.offset(*location);
            }
            run.extend_from_slice(block.bytes());
            next = Some(location + 1);
        }
        self.put_in_place(run_at, &run)?;
        self.is_settled = true;
        Ok(())
    }

    fn put_in_place(&self, at: u64, run: &[u8]) -> io::Result<()> {
        if run.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(at, run)
    }

    /// Changes, by location: blocks, and pages of the map as they are now.
    fn batch(&self) -> BTreeMap<u64, Block> {
        let pages = self.dirty_pages.iter().map(|page| {
            let bytes = encode_page(self.map.page(*page));
            (*page, Block::of(&bytes))
        });
        let blocks = self.dirty.iter();
        let blocks = blocks.map(|(block, bytes)| (self.layout.data(*block), bytes.clone()));
        pages.chain(blocks).collect()
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.file.sync_data();
        if let Err(error) = &synced {
            self.failed = Some(error.to_string());
        }
        synced
    }

    fn require_sound(&self) -> io::Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!(
                "{}: a sync failed ({why}): writes are refused until the device is reopened",
                self.path.display()
            ))),
        }
    }

    /// A block as it is now.
    fn load(&self, block: u64) -> io::Result<Block> {
        let mut out = Block::zeros();
        let offset = block * long(BLOCK_BYTES);
        self.read(offset, out.bytes_mut())?;
        Ok(out)
    }

    fn put(&mut self, block: u64, bytes: Block) -> io::Result<()> {
        let is_new = !self.map.has(block);
        let page = block / BLOCKS_OF_A_PAGE;
        let adds = usize::from(!self.dirty.contains_key(&block))
            + usize::from(is_new && !self.dirty_pages.contains(&page));
        self.make_room(adds)?;
        self.dirty.insert(block, bytes);
        if is_new {
            self.map.set(block, true);
            self.dirty_pages.insert(page);
        }
        Ok(())
    }

    fn forget(&mut self, block: u64) -> io::Result<()> {
        if !self.map.has(block) {
            return Ok(());
        }
        let page = block / BLOCKS_OF_A_PAGE;
        self.make_room(usize::from(!self.dirty_pages.contains(&page)))?;
        self.dirty.remove(&block);
        self.map.set(block, false);
        self.dirty_pages.insert(page);
        Ok(())
    }

    /// Commits first if `adds` more blocks would not fit a slot.
    fn make_room(&mut self, adds: usize) -> io::Result<()> {
        let held = self.dirty.len() + self.dirty_pages.len();
        if held + adds > index(u64::from(self.layout.redo_blocks)) {
            self.commit()?;
        }
        Ok(())
    }
}
