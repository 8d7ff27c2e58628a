//! Distribution of the device's bytes: stripes go round the sets.
//!
//! Invariants: every byte of the device belongs to one location of one set, and no two to the same.
//! Concurrency and failure: plain functions of plain values.

use crate::BLOCK_BYTES;
use crate::numbers::long;

/// The shape of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Bytes of the device.
    pub(crate) size: u64,
    /// Number of sets.
    pub(crate) sets: u32,
    /// Number of contiguous bytes in a set.
    pub(crate) stripe_bytes: u32,
}

/// A range of one set's data that belongs to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetRange {
    /// Number of the set.
    pub(crate) set: u32,
    /// Offset in the set's data.
    pub(crate) offset: u64,
    /// Distance from the start of the request.
    pub(crate) within: u64,
    /// Number of bytes.
    pub(crate) length: u64,
}

impl Layout {
    /// Number of blocks of each set: enough for the largest share of stripes of any set.
    pub(crate) fn blocks_of_a_set(&self) -> u64 {
        let stripes = self.size.div_ceil(u64::from(self.stripe_bytes));
        let own = stripes.div_ceil(u64::from(self.sets));
        own * u64::from(self.stripe_bytes) / long(BLOCK_BYTES)
    }

    /// Whether the range is within the device.
    pub(crate) fn contains(&self, offset: u64, length: u64) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.size)
    }

    /// The ranges of the sets that a range of the device covers, in its order.
    pub(crate) fn ranges(self, offset: u64, length: u64) -> impl Iterator<Item = SetRange> {
        let stripe_bytes = u64::from(self.stripe_bytes);
        let sets = u64::from(self.sets);
        let mut within = 0;
        std::iter::from_fn(move || {
            if within >= length {
                return None;
            }
            let at = offset.saturating_add(within);
            let stripe = at / stripe_bytes;
            let behind = at % stripe_bytes;
            let range = SetRange {
                set: u32::try_from(stripe % sets).unwrap_or(0),
                offset: stripe / sets * stripe_bytes + behind,
                within,
                length: (stripe_bytes - behind).min(length - within),
            };
            within += range.length;
            Some(range)
        })
    }

    /// The sets that contain a part of a range.
    pub(crate) fn sets_of(self, offset: u64, length: u64) -> Vec<u32> {
        let mut sets = Vec::new();
        for range in self.ranges(offset, length) {
            if sets.contains(&range.set) {
                break;
            }
            sets.push(range.set);
        }
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LAYOUT: Layout = Layout {
        size: 10 * 8192 + 4096,
        sets: 3,
        stripe_bytes: 8192,
    };

    #[test]
    fn stripes_go_round_the_sets() {
        let ranges: Vec<SetRange> = LAYOUT.ranges(8000, 20_000).collect();
        let range = |set, offset, within, length| SetRange {
            set,
            offset,
            within,
            length,
        };
        assert_eq!(
            ranges,
            [
                range(0, 8000, 0, 192),
                range(1, 0, 192, 8192),
                range(2, 0, 8384, 8192),
                range(0, 8192, 16_576, 3424),
            ]
        );
        assert_eq!(LAYOUT.sets_of(8000, 20_000), [0, 1, 2]);
        assert_eq!(LAYOUT.sets_of(8192, 1), [1]);
        assert!(LAYOUT.sets_of(8192, 0).is_empty());
    }

    #[test]
    fn every_block_has_a_place_of_its_own() {
        let blocks = LAYOUT.blocks_of_a_set();
        assert_eq!(blocks, 8, "11 stripes on 3 sets, 2 blocks each");
        let mut seen = BTreeSet::new();
        for range in LAYOUT
            .ranges(0, LAYOUT.size)
            .flat_map(|p| (0..p.length / 4096).map(move |n| (p.set, p.offset / 4096 + n)))
        {
            assert!(range.1 < blocks && seen.insert(range));
        }
        assert_eq!(seen.len(), 21);
    }

    #[test]
    fn ranges_end_with_the_device() {
        assert!(LAYOUT.contains(0, LAYOUT.size) && LAYOUT.contains(LAYOUT.size, 0));
        assert!(!LAYOUT.contains(1, LAYOUT.size) && !LAYOUT.contains(u64::MAX, 2));
    }
}
