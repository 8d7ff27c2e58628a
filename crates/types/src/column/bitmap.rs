//! Bits, one per row.
//!
//! Invariant: there are `ceil(len / 64)` words, and bits past the length are zero.

use std::ops::Range;

/// A growable list of bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// `len` bits of one value.
    #[must_use]
    pub fn filled(value: bool, len: usize) -> Self {
        let mut bitmap = Bitmap {
            words: vec![if value { u64::MAX } else { 0 }; len.div_ceil(64)],
            len,
        };
        bitmap.clear_slack();
        bitmap
    }

    /// Bitmap of whole words; bits past `len` are cleared. `None` if there are too few words.
    #[must_use]
    pub fn from_words(mut words: Vec<u64>, len: usize) -> Option<Self> {
        if words.len() < len.div_ceil(64) {
            return None;
        }
        words.truncate(len.div_ceil(64));
        let mut bitmap = Bitmap { words, len };
        bitmap.clear_slack();
        Some(bitmap)
    }

    /// The words, the first bit in the lowest place of the first word; bits past the length are
    /// zero.
    #[must_use]
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    fn clear_slack(&mut self) {
        let used = self.len % 64;
        if used > 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1u64 << used) - 1;
        }
    }

    /// Number of bits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the bitmap has no bits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words, low bit first; bits past the length are zero.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Bit `index`; false beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> bool {
        self.words
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Appends a bit.
    #[inline]
    pub fn push(&mut self, value: bool) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        if value && let Some(last) = self.words.last_mut() {
            *last |= 1u64 << (self.len % 64);
        }
        self.len += 1;
    }

    /// Appends `count` bits of one value.
    pub fn push_many(&mut self, value: bool, count: usize) {
        let before = self.len;
        self.len += count;
        let fill = if value { u64::MAX } else { 0 };
        if value
            && !before.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            *last |= u64::MAX << (before % 64);
        }
        self.words.resize(self.len.div_ceil(64), fill);
        self.clear_slack();
    }

    /// Drops the bits from `count` on.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len {
            self.len = count;
            self.words.truncate(count.div_ceil(64));
            self.clear_slack();
        }
    }

    /// Appends bits `range` of `other`; bits beyond its end are clear.
    pub fn extend_from(&mut self, other: &Bitmap, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(64);
            self.push_word(other.word_at(at), count);
            at += count;
        }
    }

    /// 64 bits from bit `index` on; clear beyond the end.
    fn word_at(&self, index: usize) -> u64 {
        let word = |i: usize| self.words.get(i).copied().unwrap_or(0);
        let shift = index % 64;
        word(index / 64) >> shift | (word(index / 64 + 1) << 1) << (63 - shift)
    }

    /// Appends the low `count` bits (at most 64) of a word.
    fn push_word(&mut self, word: u64, count: usize) {
        let shift = self.len % 64;
        if shift == 0 {
            self.words.push(word);
        } else {
            if let Some(last) = self.words.last_mut() {
                *last |= word << shift;
            }
            if shift + count > 64 {
                self.words.push(word >> (64 - shift));
            }
        }
        self.len += count;
        self.clear_slack();
    }

    /// Set bits of `range`.
    #[must_use]
    pub fn count_ones_in(&self, range: Range<usize>) -> usize {
        let mut ones = 0;
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(64);
            let word = self.word_at(at) & (u64::MAX >> (64 - count));
            ones += word.count_ones() as usize;
            at += count;
        }
        ones
    }

    /// Number of set bits.
    #[must_use]
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Approximate bytes of memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}
