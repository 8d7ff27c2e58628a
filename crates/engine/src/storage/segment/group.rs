//! Writes one group: leaves, blocks, footer, after the committed length of a segment.
//!
//! Invariants: nothing below the committed length changes; nothing counts until the metadata have
//! the new length; parts are in the order of [`super::layout`]. Failure: an error leaves bytes
//! after the committed length, which the next group overwrites.

use super::format::{BlockEntry, Footer, HEADER_BYTES, LeafEntry, SegmentHeader, StreamDelta};
use super::index::GroupIndex;
use super::layout::{BlockKind, PendingBlocks, in_order};
use crate::memory::expiry::ExpirySpan;
use crate::metadata::ledger::{self, GroupHasher, GroupHashes, Hash};
use crate::{Error, Result};
use headwater_codec::block::BucketBlock;
use headwater_codec::leaf::{EncodingCache, encode_leaf};
use headwater_io::{Completion, File};
use headwater_types::{Level, Rows, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes buffered before they are written to the file.
const BUFFER_BYTES: usize = 1 << 20;

/// Bytes written, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupBytes {
    pub(crate) leaf: u64,
    pub(crate) index: u64,
}

pub(crate) struct GroupWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    group_offset: u64,
    written_to: u64,
    buffer: Vec<u8>,
    blocks: PendingBlocks,
    /// True when some blocks were written before the end of the leaves.
    is_divided: bool,
    hasher: GroupHasher,
    /// Hashes of the groups that are finished.
    hashes: Vec<GroupHashes>,
    /// The head of the segment's chain; `None` = the chain of the earlier groups is unknown.
    chain: Option<Hash>,
    pub(crate) bytes: GroupBytes,
    /// The span in which the values of the group expire; `None` = the group has no rows.
    pub(crate) expiry: Option<ExpirySpan>,
}

/// Location of a finished group's footer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedGroup {
    pub(crate) footer_offset: u64,
    pub(crate) footer_bytes: u32,
    pub(crate) end: u64,
    /// The head of the segment's chain, if it is known.
    pub(crate) chain: Option<Hash>,
}

impl GroupWriter {
    /// A group after `committed` bytes; the head of the chain at this length may be unknown. A new
    /// file starts with its header.
    pub(crate) fn new(
        file: Arc<dyn File>,
        path: PathBuf,
        (committed, chain): (u64, Option<Hash>),
        header: &SegmentHeader,
    ) -> GroupWriter {
        let (start, buffer) = if committed == 0 {
            (0, header.encode())
        } else {
            (committed, Vec::new())
        };
        let chain = match committed {
            0 => Some(ledger::begin(&buffer)),
            _ => chain,
        };
        GroupWriter {
            file,
            path,
            group_offset: committed.max(HEADER_BYTES),
            written_to: start,
            buffer,
            blocks: PendingBlocks::default(),
            is_divided: false,
            hasher: GroupHasher::default(),
            hashes: Vec::new(),
            chain,
            bytes: GroupBytes::default(),
            expiry: None,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.written_to + self.buffer.len() as u64
    }

    fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.offset();
        self.hasher.put(bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()?;
        }
        Ok(at)
    }

    fn write_out(&mut self) -> Result<()> {
        self.file
            .write_all_at(self.written_to, &self.buffer)
            .map_err(|e| Error::io("write", &self.path, e))?;
        self.written_to += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes rows as a leaf; the entry covers all of them.
    pub(crate) fn put_leaf(
        &mut self,
        rows: &Rows,
        encodings: &mut EncodingCache,
    ) -> Result<LeafEntry> {
        let bytes = encode_leaf(rows, encodings);
        let offset = self.put(&bytes)?;
        self.expiry.get_or_insert_default().add(rows);
        self.bytes.leaf += bytes.len() as u64;
        let (Some(first), Some(last)) = (rows.times.first(), rows.times.last()) else {
            return Err(Error::internal("a leaf without rows"));
        };
        let count =
            u32::try_from(rows.len()).map_err(|_| Error::internal("a leaf of 2^32 rows"))?;
        let len = u32::try_from(bytes.len()).map_err(|_| Error::internal("a leaf of 4 GiB"))?;
        Ok(LeafEntry {
            first: Timestamp::from_nanos(*first),
            last: Timestamp::from_nanos(*last),
            count,
            row_start: 0,
            offset,
            bytes: len,
            leaf_rows: count,
        })
    }

    /// Adds a block of a pyramid with this base level. Until [`GroupWriter::settle`] its entry has
    /// a number in place of the offset.
    pub(crate) fn put_block(&mut self, block: &BucketBlock, base: Level) -> Result<BlockEntry> {
        let bytes = block.encode();
        let kind = match block.level > base {
            true => BlockKind::Above,
            false => BlockKind::Base,
        };
        let offset = self.blocks.take(kind, &bytes);
        if self.blocks.is_full(kind) {
            self.assign_locations(kind)?;
            self.is_divided = true;
        }
        self.bytes.index += bytes.len() as u64;
        let (Some(first), Some(last)) = (block.buckets.first(), block.buckets.last()) else {
            return Err(Error::internal("a block without buckets"));
        };
        Ok(BlockEntry {
            level: block.level,
            first_bucket: *first,
            last_bucket: *last,
            count: block.buckets.len() as u32,
            offset,
            bytes: u32::try_from(bytes.len()).map_err(|_| Error::internal("a block of 4 GiB"))?,
        })
    }

    fn assign_locations(&mut self, kind: BlockKind) -> Result<()> {
        let bytes = self.blocks.set_locations(kind, self.offset());
        self.put(&bytes).map(drop)
    }

    /// Ends the leaves: the blocks get their locations, after the leaves, and the changes refer to
    /// these.
    pub(super) fn settle(&mut self, streams: &mut [StreamDelta]) -> Result<()> {
        for kind in BlockKind::ALL {
            if kind == BlockKind::Above {
                self.hasher.upper_from(self.offset());
            }
            self.assign_locations(kind)?;
        }
        std::mem::take(&mut self.blocks).resolve(streams)?;
        if !std::mem::take(&mut self.is_divided) {
            in_order(self.group_offset, streams)?;
        }
        Ok(())
    }

    pub(super) fn group_offset(&self) -> u64 {
        self.group_offset
    }

    /// Writes bytes of a checkpoint, after all blocks.
    pub(super) fn put_checkpoint(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.index += bytes.len() as u64;
        self.put(bytes).map(drop)
    }

    /// Writes the footer and all buffered bytes to the file, without a sync. The next bytes start
    /// another group.
    pub(super) fn finish(
        &mut self,
        footer: &Footer,
        page_shift: u32,
    ) -> Result<(GroupIndex, FinishedGroup)> {
        let (bytes, index) = GroupIndex::encode(footer, self.offset(), page_shift)?;
        let footer_offset = self.put(&bytes)?;
        self.bytes.index += bytes.len() as u64;
        self.write_out()?;
        let footer_bytes =
            u32::try_from(bytes.len()).map_err(|_| Error::internal("a footer of 4 GiB"))?;
        self.group_offset = footer_offset + u64::from(footer_bytes);
        let hashes = std::mem::take(&mut self.hasher).finish(self.group_offset);
        self.chain = self.chain.map(|chain| ledger::next(&chain, &hashes));
        self.hashes.push(hashes);
        Ok((
            index,
            FinishedGroup {
                footer_offset,
                footer_bytes,
                end: self.group_offset,
                chain: self.chain,
            },
        ))
    }

    /// Hashes of the groups that are finished.
    pub(crate) fn hashes(&self) -> &[GroupHashes] {
        &self.hashes
    }

    /// Starts to make the group durable; [`GroupWriter::synced`] must be called for the result.
    pub(crate) fn begin_sync(&self) -> Completion<()> {
        self.file.submit_sync()
    }

    /// Waits for a started sync.
    pub(crate) fn synced(&self, sync: Completion<()>) -> Result<()> {
        sync.wait().map_err(|e| Error::io("sync", &self.path, e))
    }
}
