//! Reads blocks of the pyramid.
//!
//! Invariants: the cache has the stored bytes of blocks, only of blocks that could be decoded; the
//! caller selects the fields to decode. Concurrency, failure: as in [`super`].

use super::{FileOffset, Store};
use crate::common::ids::SegmentId;
use crate::storage::segment::BlockEntry;
use crate::{Error, ErrorKind, Result};
use headwater_codec::block::BucketBlock;
use headwater_types::FieldId;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The bytes of a block, not checked yet if they were just read.
pub(crate) enum RawBlock {
    Cached(Arc<[u8]>),
    Read(Arc<[u8]>),
}

/// The fields and buckets of a block that a reader needs.
pub(crate) struct BlockPart<'a> {
    /// `None` = all.
    pub(crate) fields: Option<&'a [FieldId]>,
    pub(crate) buckets: RangeInclusive<i64>,
}

impl BlockPart<'_> {
    const ALL: BlockPart<'static> = BlockPart {
        fields: None,
        buckets: i64::MIN..=i64::MAX,
    };
}

impl Store {
    /// The block at an entry.
    pub(crate) fn block(&self, id: SegmentId, entry: &BlockEntry) -> Result<BucketBlock> {
        let raw = self.raw_block(id, entry);
        self.decode_block(id, entry, raw, &BlockPart::ALL)
    }

    fn raw_block(&self, id: SegmentId, entry: &BlockEntry) -> Result<RawBlock> {
        if let Some(bytes) = self.cache.blocks.get(&FileOffset(id, entry.offset)) {
            return Ok(RawBlock::Cached(bytes));
        }
        let bytes = Store::read_shared(entry.bytes, |out| self.read_into(id, entry.offset, out))?;
        Ok(RawBlock::Read(bytes))
    }

    /// A few blocks in their stored form, in the order of their entries. Adjacent blocks that are
    /// not cached, as a flush writes them, are read at once.
    pub(crate) fn raw_blocks(
        &self,
        id: SegmentId,
        entries: &[BlockEntry],
    ) -> Vec<Result<RawBlock>> {
        let mut out = Vec::with_capacity(entries.len());
        let mut rest = entries;
        while let Some((entry, behind)) = rest.split_first() {
            if let Some(bytes) = self.cache.blocks.get(&FileOffset(id, entry.offset)) {
                out.push(Ok(RawBlock::Cached(bytes)));
                rest = behind;
                continue;
            }
            let mut together = 1;
            let mut end = entry.offset.saturating_add(u64::from(entry.bytes));
            for next in behind {
                if next.offset != end
                    || self
                        .cache
                        .blocks
                        .peek(&FileOffset(id, next.offset))
                        .is_some()
                {
                    break;
                }
                end = end.saturating_add(u64::from(next.bytes));
                together += 1;
            }
            let (these, after) = rest.split_at(together);
            rest = after;
            let bytes = u32::try_from(end - entry.offset)
                .ok()
                .filter(|_| together > 1);
            match bytes.map(|bytes| self.read(id, entry.offset, bytes)) {
                Some(Ok(bytes)) => {
                    let mut bytes = bytes.as_slice();
                    for entry in these {
                        let (block, more) = bytes.split_at(bytes.len().min(entry.bytes as usize));
                        out.push(Ok(RawBlock::Read(block.into())));
                        bytes = more;
                    }
                }
                // Each block reports the missing part itself.
                Some(Err(_)) | None => out.extend(these.iter().map(|e| self.raw_block(id, e))),
            }
        }
        out
    }

    /// A field of a whole block of a coarse level: overviews read the same few blocks again and
    /// again, and each overview needs many.
    pub(crate) fn coarse_block(
        &self,
        id: SegmentId,
        entry: &BlockEntry,
        field: FieldId,
    ) -> Result<Arc<BucketBlock>> {
        let key = (FileOffset(id, entry.offset), field);
        if let Some(block) = self.cache.coarse.get(&key) {
            return Ok(block);
        }
        let part = BlockPart {
            fields: Some(&[field]),
            ..BlockPart::ALL
        };
        let raw = self.raw_block(id, entry);
        let block = Arc::new(self.decode_block(id, entry, raw, &part)?);
        self.cache.coarse.insert(key, Arc::clone(&block));
        Ok(block)
    }

    /// Decodes a part of a block; a valid block is cached.
    pub(crate) fn decode_block(
        &self,
        id: SegmentId,
        entry: &BlockEntry,
        raw: Result<RawBlock>,
        part: &BlockPart<'_>,
    ) -> Result<BucketBlock> {
        let place = FileOffset(id, entry.offset);
        let block = match self.decode_raw(id, entry, raw?, part) {
            Err(error) if self.drop_doubted_index(id, &error) => {
                self.decode_raw(id, entry, self.raw_block(id, entry)?, part)
            }
            decoded => decoded,
        };
        block.inspect_err(|error| {
            if error.kind() == ErrorKind::Corrupt {
                self.note_damage(place, error);
            }
        })
    }

    fn decode_raw(
        &self,
        id: SegmentId,
        entry: &BlockEntry,
        raw: RawBlock,
        part: &BlockPart<'_>,
    ) -> Result<BucketBlock> {
        let (RawBlock::Cached(bytes) | RawBlock::Read(bytes)) = &raw;
        let place = FileOffset(id, entry.offset);
        let block = BucketBlock::decode_part(bytes, part.fields, part.buckets.clone())
            .map_err(|e| Error::decode(&self.path(id), entry.offset, e))?;
        if let RawBlock::Read(bytes) = raw {
            self.counters.blocks.fetch_add(1, Ordering::Relaxed);
            self.cache.blocks.insert(place, bytes);
        }
        Ok(block)
    }
}
