//! The map of a set: which of its blocks were written; the others read as zeros.
//!
//! Invariants: a page of zeros means that none of its blocks were written, as in a new file; every
//! other page has a checksum. Concurrency and failure: plain functions; invalid bytes decode to
//! `None`.

use super::u32_at;
use crate::BLOCK_BYTES;
use crate::numbers::long;

const CRC_AT: usize = BLOCK_BYTES - 4;

/// Blocks that a page of the map covers.
pub(crate) const BLOCKS_OF_A_PAGE: u64 = 8 * (4096 - 4);

/// A page from its bits: bit `n % 64` of word `n / 64` is block `n`.
pub(crate) fn encode_page(words: &[u64]) -> Vec<u8> {
    let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    // The last word is half a word long.
    out.truncate(CRC_AT);
    out.resize(CRC_AT, 0);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// The bits of a page, in as many words as [`encode_page`] takes.
pub(crate) fn decode_page(page: &[u8]) -> Option<Vec<u64>> {
    let bits = page.get(..CRC_AT)?;
    let is_new = page.iter().all(|byte| *byte == 0);
    if !is_new && crc32c::crc32c(bits) != u32_at(page, CRC_AT)? {
        return None;
    }
    let words = bits.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    });
    Some(words.collect())
}

/// Number of pages that cover `blocks` blocks.
pub(crate) const fn pages_of(blocks: u64) -> u64 {
    blocks.div_ceil(BLOCKS_OF_A_PAGE)
}

/// Words of a page in memory.
pub(crate) fn words_of_a_page() -> u64 {
    long(CRC_AT).div_ceil(8)
}
