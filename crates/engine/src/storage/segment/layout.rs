//! The order of the parts of a group: leaves, blocks of the base level, blocks above it, a
//! checkpoint, the footer. All parts of one kind are contiguous for a reader.
//!
//! Blocks are known while leaves are still being written, so they are buffered until the end of the
//! leaves. The first blocks of a very large group are written before that, in stretches of a MiB.
//!
//! Invariants: a block has a number in place of its offset until it has a location; no such number
//! is written to a footer. [`in_order`] checks every group that was not divided. Concurrency: plain
//! data of the job that writes. Failure: a broken invariant is an error of the job, which commits
//! nothing.

use super::format::StreamDelta;
use crate::{Error, Result};

/// Maximum buffered bytes of blocks of a kind; more are written.
const STRETCH_BYTES: usize = 1 << 20;
/// Flag of numbers in place of offsets.
const PENDING: u64 = 1 << 63;

/// The kind of a block, by its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Base,
    Above,
}

impl BlockKind {
    /// In the order of their locations in a group.
    pub(super) const ALL: [BlockKind; 2] = [BlockKind::Base, BlockKind::Above];
}

/// Concatenated blocks of a kind.
#[derive(Debug, Default)]
struct Stretch {
    bytes: Vec<u8>,
    /// For each block its number, and its offset in `bytes`.
    starts: Vec<(usize, u64)>,
}

/// Blocks without a location.
#[derive(Debug, Default)]
pub(super) struct PendingBlocks {
    base: Stretch,
    above: Stretch,
    /// Offsets of blocks by number; `None` = no location yet.
    placed: Vec<Option<u64>>,
}

impl PendingBlocks {
    fn of(&mut self, kind: BlockKind) -> &mut Stretch {
        match kind {
            BlockKind::Base => &mut self.base,
            BlockKind::Above => &mut self.above,
        }
    }

    /// Adds a block; returns the number in place of its offset.
    pub(super) fn take(&mut self, kind: BlockKind, block: &[u8]) -> u64 {
        let number = self.placed.len();
        self.placed.push(None);
        let stretch = self.of(kind);
        stretch.starts.push((number, stretch.bytes.len() as u64));
        stretch.bytes.extend_from_slice(block);
        PENDING | number as u64
    }

    /// True when enough blocks of a kind are buffered to write them.
    pub(super) fn is_full(&self, kind: BlockKind) -> bool {
        let stretch = match kind {
            BlockKind::Base => &self.base,
            BlockKind::Above => &self.above,
        };
        stretch.bytes.len() >= STRETCH_BYTES
    }

    /// Sets the locations of the blocks of a kind from an offset on; returns the bytes to write
    /// there.
    pub(super) fn set_locations(&mut self, kind: BlockKind, offset: u64) -> Vec<u8> {
        let Stretch { bytes, starts } = std::mem::take(self.of(kind));
        for (number, start) in starts {
            if let Some(placed) = self.placed.get_mut(number) {
                *placed = Some(offset + start);
            }
        }
        bytes
    }

    /// Resolves an offset, or the number of a block.
    fn resolved(&self, offset: u64) -> Result<u64> {
        if offset & PENDING == 0 {
            return Ok(offset);
        }
        let number = usize::try_from(offset & !PENDING).ok();
        let placed = number.and_then(|number| self.placed.get(number)?.as_ref());
        placed.copied().ok_or_else(|| {
            Error::internal(format!(
                "a group refers to block {} of {}, which has no location",
                offset & !PENDING,
                self.placed.len()
            ))
        })
    }

    /// Replaces numbers by offsets. All blocks must have locations.
    pub(super) fn resolve(&self, streams: &mut [StreamDelta]) -> Result<()> {
        for delta in streams {
            for block in &mut delta.added_blocks {
                block.offset = self.resolved(block.offset)?;
            }
            for offset in &mut delta.removed_blocks {
                *offset = self.resolved(*offset)?;
            }
        }
        Ok(())
    }
}

/// Refuses a group whose parts are out of order: a reader that fetches one kind would fetch the
/// others with it.
pub(super) fn in_order(group_offset: u64, streams: &[StreamDelta]) -> Result<()> {
    let mut leaves_end = 0;
    let mut base = (u64::MAX, 0);
    let mut above_first = u64::MAX;
    for delta in streams {
        let leaves = delta.added.iter().chain(delta.late_runs.iter().flatten());
        // Bytes before the group existed already; only their list changed.
        for leaf in leaves.filter(|leaf| leaf.offset >= group_offset) {
            leaves_end = leaves_end.max(leaf.offset + u64::from(leaf.bytes));
        }
        for block in &delta.added_blocks {
            if delta.base.is_none_or(|base| block.level <= base) {
                let end = block.offset + u64::from(block.bytes);
                base = (base.0.min(block.offset), base.1.max(end));
            } else {
                above_first = above_first.min(block.offset);
            }
        }
    }
    if leaves_end <= base.0 && leaves_end.max(base.1) <= above_first {
        return Ok(());
    }
    Err(Error::internal(format!(
        "a group at {group_offset} whose leaves end at {leaves_end}, with base blocks from {} to {} and others from {above_first}",
        base.0, base.1
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::format::{BlockEntry, LeafEntry};
    use super::*;
    use headwater_types::{Level, Timestamp};

    fn block(level: i32, offset: u64) -> BlockEntry {
        BlockEntry {
            level: Level::clamped(level),
            first_bucket: 0,
            last_bucket: 1,
            count: 2,
            offset,
            bytes: 10,
        }
    }

    #[test]
    fn blocks_stand_by_kind_in_the_order_they_came() {
        let mut held = PendingBlocks::default();
        let numbers = [
            held.take(BlockKind::Above, &[1; 10]),
            held.take(BlockKind::Base, &[2; 10]),
            held.take(BlockKind::Base, &[3; 10]),
        ];
        let mut delta = StreamDelta {
            base: Level::new(3),
            added_blocks: vec![
                block(5, numbers[0]),
                block(3, numbers[1]),
                block(3, numbers[2]),
            ],
            removed_blocks: vec![77, numbers[1]],
            ..StreamDelta::default()
        };
        // No block has a location yet.
        assert!(held.resolve(std::slice::from_mut(&mut delta)).is_err());
        let base = held.set_locations(BlockKind::Base, 1000);
        assert_eq!(base, [[2; 10], [3; 10]].concat());
        assert_eq!(held.set_locations(BlockKind::Above, 1020), [1; 10]);
        assert!(held.set_locations(BlockKind::Above, 5).is_empty());
        held.resolve(std::slice::from_mut(&mut delta)).unwrap();
        let offsets: Vec<u64> = delta.added_blocks.iter().map(|b| b.offset).collect();
        assert_eq!(offsets, [1020, 1000, 1010]);
        assert_eq!(delta.removed_blocks, [77, 1000]);
        assert!(in_order(64, std::slice::from_ref(&delta)).is_ok());
        // A leaf after blocks, and blocks of the base level after others.
        delta.added.push(LeafEntry {
            first: Timestamp::from_nanos(0),
            last: Timestamp::from_nanos(1),
            count: 1,
            row_start: 0,
            offset: 1005,
            bytes: 9,
            leaf_rows: 1,
        });
        assert!(in_order(64, std::slice::from_ref(&delta)).is_err());
        // The leaf existed before the group.
        assert!(in_order(1006, std::slice::from_ref(&delta)).is_ok());
        delta.added.clear();
        delta.added_blocks[0].offset = 990;
        assert!(in_order(64, std::slice::from_ref(&delta)).is_err());
    }
}
