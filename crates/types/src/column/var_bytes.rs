//! Strings of any length in one buffer.
//!
//! Invariant: `ends` never falls, and its last is the length of `bytes`.

use std::ops::Range;

/// Byte strings of any length, end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarBytes {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Default for VarBytes {
    fn default() -> Self {
        VarBytes::new()
    }
}

impl VarBytes {
    /// No strings.
    #[must_use]
    pub fn new() -> Self {
        VarBytes {
            ends: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Reserves capacity for the ends of exactly `strings` more strings.
    pub fn reserve_exact(&mut self, strings: usize) {
        self.ends.reserve_exact(strings);
    }

    /// Strings from the end of each in `bytes`. `None` if the ends decrease or the last is not the
    /// end of the bytes.
    #[must_use]
    pub fn from_parts(ends: Vec<u32>, bytes: Vec<u8>) -> Option<Self> {
        let last = ends.last().map_or(0, |end| *end as usize);
        if last != bytes.len() || !ends.is_sorted() {
            return None;
        }
        Some(VarBytes { ends, bytes })
    }

    /// The end of each string in the bytes, and the bytes, by value.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u32>, Vec<u8>) {
        (self.ends, self.bytes)
    }

    /// The end of each string in [`VarBytes::bytes`].
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The strings `range`, end to end.
    #[must_use]
    pub fn slice_bytes(&self, range: Range<usize>) -> &[u8] {
        let offset = |index: usize| match index.checked_sub(1) {
            None => 0,
            Some(before) => self
                .ends
                .get(before)
                .map_or(self.bytes.len(), |e| *e as usize),
        };
        self.bytes
            .get(offset(range.start)..offset(range.end))
            .unwrap_or_default()
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All bytes, end to end.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// String `index`; empty beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        let end = self.ends.get(index).map_or(0, |e| *e as usize);
        let start = if index == 0 {
            0
        } else {
            self.ends.get(index - 1).map_or(0, |e| *e as usize)
        };
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Appends strings `range` of `other`; strings beyond its end are empty.
    pub fn extend_from(&mut self, other: &VarBytes, range: Range<usize>) {
        let known = range.start.min(other.len())..range.end.min(other.len());
        let missing = range.len().saturating_sub(known.len());
        let bytes = other.slice_bytes(known.clone());
        let theirs = other.ends.get(known.clone()).unwrap_or_default();
        let from = match known.start.checked_sub(1) {
            None => 0,
            Some(before) => other.ends.get(before).copied().unwrap_or(0),
        };
        match u32::try_from(self.bytes.len() + bytes.len()) {
            Ok(end) => {
                let base = end - bytes.len() as u32;
                self.bytes.extend_from_slice(bytes);
                self.ends.extend(theirs.iter().map(|e| base + (e - from)));
                self.ends.extend(std::iter::repeat_n(end, missing));
            }
            Err(_) => {
                for index in range {
                    self.push(other.get(index));
                }
            }
        }
    }

    /// Drops the strings from `count` on.
    pub fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.bytes
            .truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// Appends a string. The bytes of one column stay below 4 GiB because a batch is at most 16 MiB
    /// and a leaf is bounded.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    /// Approximate bytes of memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.ends.capacity() * 4 + self.bytes.capacity()
    }
}
