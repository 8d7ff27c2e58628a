//! Blocks in memory, ranges by blocks, and the map of written blocks.
//!
//! Invariants: a block has [`BLOCK_BYTES`] bytes; a map has whole pages. Concurrency: plain values.
//! Failure: none; a block beyond the map was never written.

use std::fmt;
use std::ops::Range;

use crate::BLOCK_BYTES;
use crate::format::{BLOCKS_OF_A_PAGE, words_of_a_page};
use crate::numbers::{index, long};

/// The bytes of a block.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Block(Box<[u8; BLOCK_BYTES]>);

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Block")
    }
}

impl Block {
    /// All zeros.
    pub(crate) fn zeros() -> Block {
        Block(Box::new([0; BLOCK_BYTES]))
    }

    /// The front of some bytes, filled up with zeros.
    pub(crate) fn of(bytes: &[u8]) -> Block {
        let mut out = Block::zeros();
        out.copy_from(0..bytes.len().min(BLOCK_BYTES), bytes);
        out
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &*self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut *self.0
    }

    /// Copies bytes to a part of the block, up to the shorter length.
    pub(crate) fn copy_from(&mut self, part: Range<usize>, from: &[u8]) {
        if let Some(to) = self.0.get_mut(part) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }

    /// Copies a part of the block.
    pub(crate) fn copy_to(&self, part: Range<usize>, to: &mut [u8]) {
        if let Some(from) = self.0.get(part) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }

    /// Sets all bytes of a part of the block to `byte`.
    pub(crate) fn fill(&mut self, part: Range<usize>, byte: u8) {
        if let Some(to) = self.0.get_mut(part) {
            to.fill(byte);
        }
    }
}

/// The part of a range inside one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockRange {
    /// Number of the block.
    pub(crate) block: u64,
    /// Bytes of the block.
    pub(crate) inside: Range<usize>,
    /// Bytes of the range.
    pub(crate) within: Range<usize>,
}

/// The blocks of a range, in its order.
pub(crate) fn ranges(offset: u64, length: u64) -> impl Iterator<Item = BlockRange> {
    let block_bytes = long(BLOCK_BYTES);
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= length {
            return None;
        }
        let at = offset.saturating_add(done);
        let start = at % block_bytes;
        let bytes = (block_bytes - start).min(length - done);
        let range = BlockRange {
            block: at / block_bytes,
            inside: index(start)..index(start + bytes),
            within: index(done)..index(done + bytes),
        };
        done += bytes;
        Some(range)
    })
}

/// Blocks that were written.
#[derive(Debug)]
pub(crate) struct Map(Vec<Vec<u64>>);

impl Map {
    /// The map of pages as they are in the file.
    pub(crate) fn of(pages: Vec<Vec<u64>>) -> Map {
        let words = words_of_a_page();
        assert!(
            pages.iter().all(|page| long(page.len()) == words),
            "pages of the map are whole"
        );
        Map(pages)
    }

    pub(crate) fn has(&self, block: u64) -> bool {
        let (page, word, bit) = map_position(block);
        let word = self.0.get(page).and_then(|page| page.get(word));
        word.is_some_and(|word| word & bit != 0)
    }

    pub(crate) fn set(&mut self, block: u64, is_written: bool) {
        let (page, word, bit) = map_position(block);
        if let Some(word) = self.0.get_mut(page).and_then(|page| page.get_mut(word)) {
            if is_written {
                *word |= bit;
            } else {
                *word &= !bit;
            }
        }
    }

    /// The words of a page; empty beyond the map.
    pub(crate) fn page(&self, page: u64) -> &[u64] {
        self.0.get(index(page)).map_or(&[], Vec::as_slice)
    }
}

/// Page, word and bit of a block.
fn map_position(block: u64) -> (usize, usize, u64) {
    let inside = block % BLOCKS_OF_A_PAGE;
    (
        index(block / BLOCKS_OF_A_PAGE),
        index(inside / 64),
        1 << (inside % 64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_blocks() {
        let found: Vec<_> = ranges(4000, 5000)
            .map(|p| (p.block, p.inside, p.within))
            .collect();
        assert_eq!(
            found,
            [
                (0, 4000..4096, 0..96),
                (1, 0..4096, 96..4192),
                (2, 0..808, 4192..5000)
            ]
        );
        assert_eq!(ranges(5, 0).count(), 0);
    }

    #[test]
    fn a_map_remembers_the_last_block_of_a_page_and_the_first_of_the_next() {
        let words = index(words_of_a_page());
        let mut map = Map::of(vec![vec![0; words]; 2]);
        for block in [0, BLOCKS_OF_A_PAGE - 1, BLOCKS_OF_A_PAGE] {
            assert!(!map.has(block));
            map.set(block, true);
            assert!(map.has(block));
        }
        map.set(BLOCKS_OF_A_PAGE, false);
        assert!(map.has(BLOCKS_OF_A_PAGE - 1) && !map.has(BLOCKS_OF_A_PAGE));
        assert!(!map.has(u64::MAX));
        let page = crate::format::encode_page(map.page(0));
        assert_eq!(
            crate::format::decode_page(&page).as_deref(),
            Some(map.page(0))
        );
    }
}
