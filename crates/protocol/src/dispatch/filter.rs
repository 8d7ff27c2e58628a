//! Static filter of keys: finds every key that it was built of, and at most a hundredth of the
//! others.
//!
//! A binary fuse filter with three slots for each key and fingerprints of 7 bits (Graf and Lemire,
//! "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022): one in 128 is a false hit, at
//! 7.9 to 9.2 bits a key. For the reasons against a library's see
//! docs/decisions/0016-filter-of-tiles.md.
//!
//! Invariants: every key of the filter is found; no key indexes outside the fingerprints, whatever
//! bytes a filter was decoded from. Concurrency: plain data. Format: docs/format/held.md.

use crate::dispatch::keys::{TileKey, mix};
use headwater_codec::{Cursor, DecodeError, PutBytes};

/// Bits of a fingerprint.
const PRINT_BITS: u64 = 7;
const PRINT_MASK: u64 = (1 << PRINT_BITS) - 1;
/// Largest segment, as a power of two: beyond it there are more segments.
const SEGMENT_BITS_MAX: u32 = 18;
/// Maximum number of segments in encoded bytes.
const SEGMENTS_MAX: u64 = 1 << 20;
/// Seeds that are tried: each works nine times of ten at least.
const SEEDS_MAX: u64 = 64;

/// A static filter of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Filter {
    seed: u64,
    /// Number of inserted keys.
    keys: u64,
    /// Places of a segment, as a power of two.
    segment_bits: u32,
    /// Number of segments in which the first slot of a key may be; two more follow.
    segments: u64,
    /// Concatenated fingerprints, 7 bits each, and a byte of zeros.
    prints: Vec<u8>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("keys", &self.keys)
            .field("bytes", &self.prints.len())
            .finish_non_exhaustive()
    }
}

/// Dimensions of a filter, which follow from the number of its keys.
#[derive(Clone, Copy, Debug)]
struct Shape {
    segment_bits: u32,
    segments: u64,
}

impl Shape {
    /// Size at which the three slots of each key can be resolved, as measured in the paper.
    fn of(keys: u64) -> Shape {
        // Natural logarithms, times 1000, from that of two: rounding here costs a part of a percent
        // of space, and avoids floats where results must be the same everywhere.
        let ln = u64::from(keys.max(2).ilog2()) * 693 + fraction(keys.max(2));
        // floor(ln(n) / ln(3.33) + 2.25)
        let bits = (ln * 1000 / 1203 + 2250) / 1000;
        let segment_bits = u32::try_from(bits)
            .unwrap_or(SEGMENT_BITS_MAX)
            .min(SEGMENT_BITS_MAX);
        // max(1.125, 0.875 + 0.25 ln(10^6) / ln(n)), times 1000
        let factor = (875 + 3_453_878 / ln.max(1)).max(1125);
        let places = keys * factor / 1000;
        let all = places.div_ceil(1 << segment_bits).max(3);
        Shape {
            segment_bits,
            segments: all - 2,
        }
    }

    fn slot_count(self) -> u64 {
        (self.segments + 2) << self.segment_bits
    }
}

/// Natural logarithm of the ratio of a number to its highest bit, times 1000.
fn fraction(keys: u64) -> u64 {
    let high = 1u64 << keys.ilog2();
    // ln(1 + x) by x - x²/2 + x³/3 - x⁴/4 is off by 0.06 at most, at x near 1, where ln 2 bounds
    // it.
    let x = u64::try_from(u128::from(keys - high) * 1000 / u128::from(high)).unwrap_or(0);
    let (x2, x3) = (x * x / 1000, x * x * x / 1_000_000);
    (x + x3 / 3)
        .saturating_sub(x2 / 2 + x2 * x2 / 4000)
        .min(693)
}

/// The three places of a hash, and its fingerprint.
#[derive(Clone, Copy, Debug)]
struct Slots {
    at: [u64; 3],
    print: u8,
}

impl Shape {
    fn slots_of(self, hash: u64) -> Slots {
        let span = self.segments << self.segment_bits;
        // The high half of the product is below `span`.
        let first = u64::try_from((u128::from(hash) * u128::from(span)) >> 64).unwrap_or(0);
        let (length, mask) = (1u64 << self.segment_bits, (1u64 << self.segment_bits) - 1);
        let second = (first + length) ^ ((hash >> 18) & mask);
        let third = (first + 2 * length) ^ (hash & mask);
        let print = (hash ^ (hash >> 32)) & PRINT_MASK;
        Slots {
            at: [first, second, third],
            print: u8::try_from(print).unwrap_or(0),
        }
    }
}

fn get(prints: &[u8], place: u64) -> u8 {
    let bit = place * PRINT_BITS;
    let at = usize::try_from(bit / 8).unwrap_or(usize::MAX);
    let low = prints.get(at).copied().unwrap_or(0);
    let high = prints.get(at.saturating_add(1)).copied().unwrap_or(0);
    let two = u16::from_le_bytes([low, high]) >> (bit % 8);
    two.to_le_bytes()[0] & 0x7f
}

fn put(prints: &mut [u8], place: u64, print: u8) {
    let bit = place * PRINT_BITS;
    let at = usize::try_from(bit / 8).unwrap_or(usize::MAX);
    let two = (u16::from(print) << (bit % 8)).to_le_bytes();
    for (to, from) in prints.iter_mut().skip(at).zip(two) {
        *to |= from;
    }
}

/// State of peeling: keys with a slot of their own are removed one after another.
struct Peeling {
    /// Keys at each place, and their hashes, all together by exclusive or.
    counts: Vec<u32>,
    hashes: Vec<u64>,
    /// Removed hashes, each with the slot that only it had.
    order: Vec<(u64, u64)>,
}

impl Peeling {
    fn begin(shape: Shape, hashes: impl Iterator<Item = u64>) -> Peeling {
        let places = usize::try_from(shape.slot_count()).unwrap_or(usize::MAX);
        let mut peeling = Peeling {
            counts: vec![0; places],
            hashes: vec![0; places],
            order: Vec::new(),
        };
        for hash in hashes {
            for place in shape.slots_of(hash).at {
                peeling.change(place, hash, u32::wrapping_add);
            }
        }
        peeling
    }

    /// Adds a hash to a slot, or removes it. Returns the number of hashes there.
    fn change(&mut self, place: u64, hash: u64, count: fn(u32, u32) -> u32) -> u32 {
        let at = usize::try_from(place).unwrap_or(usize::MAX);
        let slots = self.counts.get_mut(at).zip(self.hashes.get_mut(at));
        slots.map_or(0, |(counted, all)| {
            *counted = count(*counted, 1);
            *all ^= hash;
            *counted
        })
    }

    fn alone(&self, place: u64) -> Option<u64> {
        let at = usize::try_from(place).ok()?;
        let is_alone = self.counts.get(at) == Some(&1);
        self.hashes.get(at).copied().filter(|_| is_alone)
    }

    fn run(&mut self, shape: Shape) {
        let mut open: Vec<u64> = (0..shape.slot_count())
            .filter(|place| self.alone(*place).is_some())
            .collect();
        while let Some(place) = open.pop() {
            if let Some(hash) = self.alone(place) {
                self.order.push((hash, place));
                for other in shape.slots_of(hash).at {
                    if self.change(other, hash, u32::wrapping_sub) == 1 {
                        open.push(other);
                    }
                }
            }
        }
    }
}

impl Filter {
    /// Builds a filter of distinct keys; `None` for an empty list, or if no tried seed resolves
    /// them.
    ///
    /// ```
    /// use headwater_protocol::dispatch::{Filter, TileKey};
    /// let keys: Vec<TileKey> = (0..10_000).map(|n| TileKey(n * 7919)).collect();
    /// let filter = Filter::of(&keys).unwrap();
    /// assert!(keys.iter().all(|key| filter.contains(*key)));
    /// ```
    #[must_use]
    pub fn of(keys: &[TileKey]) -> Option<Filter> {
        let count = u64::try_from(keys.len()).ok().filter(|count| *count > 0)?;
        let shape = Shape::of(count);
        (0..SEEDS_MAX).find_map(|number| {
            let seed = mix(number.wrapping_add(0x9e37_79b9));
            let hashes = keys.iter().map(|key| mix(key.0 ^ seed));
            let mut peeling = Peeling::begin(shape, hashes);
            peeling.run(shape);
            (peeling.order.len() == keys.len()).then(|| Filter {
                seed,
                keys: count,
                segment_bits: shape.segment_bits,
                segments: shape.segments,
                prints: prints(shape, &peeling.order),
            })
        })
    }

    fn shape(&self) -> Shape {
        Shape {
            segment_bits: self.segment_bits,
            segments: self.segments,
        }
    }

    /// Whether a key was inserted; false positives are one in 128.
    #[must_use]
    pub fn contains(&self, key: TileKey) -> bool {
        let places = self.shape().slots_of(mix(key.0 ^ self.seed));
        let found = places.at.iter().map(|place| get(&self.prints, *place));
        found.fold(0, |all, print| all ^ print) == places.print
    }

    /// Number of inserted keys.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.prints.len()
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.seed);
        out.put_varint(self.keys);
        out.put_varint(u64::from(self.segment_bits));
        out.put_varint(self.segments);
        out.put_prefixed(&self.prints);
    }

    pub(crate) fn take(from: &mut Cursor<'_>) -> Result<Filter, DecodeError> {
        let seed = from.u64("the seed of a filter")?;
        let keys = from.varint("the number of keys of a filter")?;
        let bits = from.varint_up_to(u64::from(SEGMENT_BITS_MAX), "the size of a segment")?;
        let segments = from.varint_up_to(SEGMENTS_MAX, "the number of segments")?;
        let shape = Shape {
            segment_bits: u32::try_from(bits).unwrap_or(SEGMENT_BITS_MAX),
            segments: u64::try_from(segments).unwrap_or(0).max(1),
        };
        let prints = from.prefixed("fingerprints")?;
        let wanted = bytes_of(shape);
        if segments == 0 || Ok(wanted) != u64::try_from(prints.len()) {
            return Err(from.expected("as many fingerprints as the segments have slots"));
        }
        Ok(Filter {
            seed,
            keys,
            segment_bits: shape.segment_bits,
            segments: shape.segments,
            prints: prints.to_vec(),
        })
    }
}

/// Bytes of the fingerprints of all places, and one of zeros, so that two can always be read.
fn bytes_of(shape: Shape) -> u64 {
    (shape.slot_count() * PRINT_BITS).div_ceil(8) + 1
}

/// Assigns fingerprints in reverse order of removal: the slot that only one key had compensates for
/// the key's two other slots.
fn prints(shape: Shape, order: &[(u64, u64)]) -> Vec<u8> {
    let mut prints = vec![0; usize::try_from(bytes_of(shape)).unwrap_or(0)];
    for (hash, alone) in order.iter().rev() {
        let places = shape.slots_of(*hash);
        let others = places.at.iter().filter(|place| *place != alone);
        let all = others.fold(places.print, |all, place| all ^ get(&prints, *place));
        put(&mut prints, *alone, all);
    }
    prints
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn keys(count: u64, salt: u64) -> Vec<TileKey> {
        (0..count).map(|n| TileKey(mix(n ^ mix(salt)))).collect()
    }

    #[test]
    fn what_was_put_in_is_found_and_of_the_rest_a_hundredth_at_most() {
        for count in [1, 2, 3, 100, 1_000, 8_193, 10_000, 50_000, 131_072, 300_000] {
            let filter = Filter::of(&keys(count, 1)).unwrap();
            assert!(
                keys(count, 1).iter().all(|key| filter.contains(*key)),
                "{count}"
            );
            let others = keys(200_000, 2);
            let hits = others.iter().filter(|key| filter.contains(**key)).count();
            assert!(hits <= 2_000, "{count}: {hits} of 200,000 are false hits");
        }
    }

    #[test]
    fn a_key_takes_9_6_bits_at_most_from_8192_keys_on() {
        for count in (8_193..400_000).step_by(3_001) {
            let bits = bytes_of(Shape::of(count)) * 8 * 1000 / count;
            // A quarter of a bit is reserved for keys that are not in the filter yet.
            assert!(bits <= 9_350, "{count}: {bits} thousandths of a bit");
        }
    }

    #[test]
    fn bytes_read_back_and_wrong_sizes_are_refused() {
        let filter = Filter::of(&keys(9_000, 3)).unwrap();
        let mut bytes = Vec::new();
        filter.put(&mut bytes);
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(Filter::take(&mut cursor).unwrap(), filter);
        for wrong in [bytes.len() / 2, bytes.len() - 1] {
            assert!(Filter::take(&mut Cursor::new(&bytes[..wrong])).is_err());
        }
        bytes[10] ^= 1;
        let read = Filter::take(&mut Cursor::new(&bytes));
        assert!(read.is_err() || read.unwrap() != filter);
    }
}
