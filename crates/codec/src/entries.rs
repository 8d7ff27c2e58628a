//! Blocks of entries of an index: keys in the order of their bytes, each with the numbers of the
//! rows that have it.
//!
//! Format: docs/format/index.md. If all keys have eight bytes, they are packed as integers;
//! otherwise each key omits the prefix it shares with the previous one. The numbers of all keys are
//! concatenated and packed. Invariants: keys ascend, and so do the numbers of one key; an entry is
//! a key and a number, without duplicates; a block has 1 to [`ENTRIES_MAX`] entries. Failure: bytes
//! that are not a valid block are a [`DecodeError`]; a decoder needs no more memory than
//! [`ENTRIES_MAX`] of the longest keys.

use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::checksum::crc32c;
use crate::pack::{put_integers, take_integers};

/// Most entries of a block.
pub const ENTRIES_MAX: usize = 1024;
/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// Keys are integers, packed.
const INTEGERS: u8 = 1;
/// Each key states the number of bytes it shares with the previous one.
const SHARED: u8 = 2;

/// The entries of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// The bytes of all keys, end to end.
    bytes: Vec<u8>,
    /// For each key, where its bytes end and where its rows end.
    ends: Vec<(usize, usize)>,
    rows: Vec<u32>,
}

impl Entries {
    /// No entries.
    #[must_use]
    pub fn new() -> Entries {
        Entries::default()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True when no entry can be added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.rows.len() >= ENTRIES_MAX
    }

    /// Appends an entry. False, without a change, if it is not greater than the last entry, the key
    /// is too long, or the block is full.
    #[must_use]
    pub fn push(&mut self, key: &[u8], row: u32) -> bool {
        if self.is_full() || key.len() > KEY_BYTES_MAX {
            return false;
        }
        let order = self.last_key().map(|last| key.cmp(last));
        let rises = match order {
            None | Some(std::cmp::Ordering::Greater) => true,
            Some(std::cmp::Ordering::Equal) => self.rows.last().is_some_and(|last| *last < row),
            Some(std::cmp::Ordering::Less) => false,
        };
        if !rises {
            return false;
        }
        if order == Some(std::cmp::Ordering::Equal) {
            self.ends.pop();
        } else {
            self.bytes.extend_from_slice(key);
        }
        self.rows.push(row);
        self.ends.push((self.bytes.len(), self.rows.len()));
        true
    }

    /// The first key.
    #[must_use]
    pub fn first_key(&self) -> Option<&[u8]> {
        self.keys().next().map(|(key, _)| key)
    }

    fn last_key(&self) -> Option<&[u8]> {
        let start = self.ends.iter().rev().nth(1).map_or(0, |(end, _)| *end);
        self.ends
            .last()
            .and_then(|(end, _)| self.bytes.get(start..*end))
    }

    /// Each key, ascending, with its rows, ascending.
    pub fn keys(&self) -> impl Iterator<Item = (&[u8], &[u32])> {
        let starts = std::iter::once((0, 0)).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| {
            let key = self.bytes.get(start.0..end.0)?;
            Some((key, self.rows.get(start.1..end.1)?))
        })
    }

    /// Bytes of memory, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<(usize, usize)>() + self.rows.len() * 4
    }

    /// The bytes of the block, checksum included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let integers: Option<Vec<i64>> = self.keys().map(|(key, _)| integer(key)).collect();
        out.put_u8(if integers.is_some() { INTEGERS } else { SHARED });
        put_count(self.rows.len(), &mut out);
        put_count(self.ends.len(), &mut out);
        match integers {
            Some(integers) => put_integers(&integers, &mut out),
            None => self.put_shared(&mut out),
        }
        if self.ends.len() < self.rows.len() {
            let more = self.keys().map(|(_, rows)| signed(rows.len()) - 1);
            put_integers(&more.collect::<Vec<i64>>(), &mut out);
        }
        let rows: Vec<i64> = self.rows.iter().map(|row| i64::from(*row)).collect();
        put_integers(&rows, &mut out);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    fn put_shared(&self, out: &mut Vec<u8>) {
        let mut before: &[u8] = &[];
        for (key, _) in self.keys() {
            let shared = key.iter().zip(before).take_while(|(a, b)| a == b).count();
            put_count(shared, out);
            out.put_prefixed(key.split_at(shared).1);
            before = key;
        }
    }

    /// Decodes the output of [`Entries::encode`].
    ///
    /// # Errors
    /// If the bytes are not a valid block of entries.
    pub fn decode(bytes: &[u8]) -> Result<Entries, DecodeError> {
        let Some((covered, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(Cursor::new(bytes).expected("a block of index entries"));
        };
        if u32::from_le_bytes(*crc) != crc32c(covered) {
            return Err(DecodeError {
                expected: "index entries with a valid checksum",
                offset: covered.len(),
            });
        }
        let mut cursor = Cursor::new(covered);
        let kind = cursor.u8("kind of index entries")?;
        let rows = cursor.varint_up_to(unsigned(ENTRIES_MAX), "at most 1024 index entries")?;
        let keys = cursor.varint_up_to(unsigned(rows), "no more keys than index entries")?;
        if keys == 0 {
            return Err(cursor.expected("at least one index entry"));
        }
        let keys = match kind {
            INTEGERS => take_integer_keys(&mut cursor, keys)?,
            SHARED => take_shared_keys(&mut cursor, keys)?,
            _ => return Err(cursor.expected("a supported kind of index entries")),
        };
        let counts = match keys.len() < rows {
            true => take_integers(&mut cursor, keys.len())?,
            false => vec![0; keys.len()],
        };
        let numbers = take_integers(&mut cursor, rows)?;
        let mut numbers = numbers.into_iter();
        let mut out = Entries::new();
        for (key, more) in keys.iter().zip(counts) {
            let more = usize::try_from(more).ok().filter(|more| *more < rows);
            let Some(more) = more else {
                return Err(cursor.expected("a number of rows of a key"));
            };
            for _ in 0..=more {
                let row = numbers.next().and_then(|row| u32::try_from(row).ok());
                if !row.is_some_and(|row| out.push(key, row)) {
                    return Err(cursor.expected("ascending keys with ascending rows"));
                }
            }
        }
        if out.len() < rows {
            return Err(cursor.expected("a key for each row"));
        }
        cursor.finish()?;
        Ok(out)
    }
}

fn take_integer_keys(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<Vec<u8>>, DecodeError> {
    let integers = take_integers(cursor, count)?;
    Ok(integers.into_iter().map(|i| key_of(i).to_vec()).collect())
}

fn take_shared_keys(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<Vec<u8>>, DecodeError> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let before: &[u8] = keys.last().map_or(&[], Vec::as_slice);
        let shared = cursor.varint_up_to(unsigned(before.len()), "bytes shared with a key")?;
        let own = cursor.prefixed("own bytes of a key")?;
        let mut key: Vec<u8> = before.iter().take(shared).copied().collect();
        key.extend_from_slice(own);
        if key.len() > KEY_BYTES_MAX {
            return Err(cursor.expected("a key of at most 64 bytes"));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// A key of eight bytes as an integer of the same order.
fn integer(key: &[u8]) -> Option<i64> {
    let bytes: [u8; 8] = key.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ (1 << 63)).cast_signed())
}

/// Inverse of [`integer`].
fn key_of(integer: i64) -> [u8; 8] {
    (integer.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    out.put_varint(unsigned(count));
}

fn unsigned(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn block(entries: &[(&[u8], u32)]) -> Entries {
        let mut out = Entries::new();
        for (key, row) in entries {
            assert!(out.push(key, *row), "{key:?} {row}");
        }
        out
    }

    proptest! {
        #[test]
        fn entries_come_back(keys in prop::collection::btree_set((prop::collection::vec(0u8..3, 0..9), any::<u32>()), 1..200)) {
            let keys: BTreeSet<(Vec<u8>, u32)> = keys;
            let list: Vec<(&[u8], u32)> = keys.iter().map(|(k, r)| (k.as_slice(), *r)).collect();
            let entries = block(&list);
            prop_assert_eq!(Entries::decode(&entries.encode()).unwrap(), entries);
        }

        #[test]
        fn integers_come_back(keys in prop::collection::btree_set((any::<u64>(), 0u32..9), 1..200)) {
            let mut entries = Entries::new();
            for (key, row) in &keys {
                prop_assert!(entries.push(&key.to_be_bytes(), *row));
            }
            prop_assert_eq!(Entries::decode(&entries.encode()).unwrap(), entries);
        }
    }

    #[test]
    fn what_does_not_rise_is_not_taken() {
        let mut entries = block(&[(b"a", 3), (b"b", 1), (b"b", 2)]);
        assert!(!entries.push(b"b", 2) && !entries.push(b"a", 9));
        assert!(!entries.push(&[b'z'; KEY_BYTES_MAX + 1], 0));
        let found: Vec<(&[u8], &[u32])> = entries.keys().collect();
        assert_eq!(found, [(&b"a"[..], &[3u32][..]), (b"b", &[1, 2])]);
    }

    #[test]
    fn a_value_that_all_rows_have_takes_next_to_nothing() {
        let mut entries = Entries::new();
        for row in 0..1024 {
            assert!(entries.push(&7u64.to_be_bytes(), row));
        }
        assert!(entries.is_full() && !entries.push(b"zz", 1));
        assert!(entries.encode().len() < 64, "{}", entries.encode().len());
    }

    #[test]
    fn damage_is_told() {
        let bytes = block(&[(b"alpha", 3), (b"beta", 1)]).encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(Entries::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(Entries::decode(&[]).is_err());
    }
}
