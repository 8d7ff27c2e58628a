//! Random numbers, for samples.
//!
//! Invariant: the same seed gives the same numbers in the same order. The numbers are not secret.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A source of numbers: a counter whose bits are mixed (SplitMix64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// A generator with a seed; `None` = a different seed each time.
    pub(super) fn new(seed: Option<u64>) -> Random {
        Random(seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A uniformly distributed number below `end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // The bias of this method is negligible for 64-bit numbers.
        let wide = u128::from(self.next()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_all_of_a_range() {
        let numbers = |seed| {
            let mut random = Random::new(Some(seed));
            Vec::from_iter((0..1_000).map(|_| random.below(7)))
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        for wanted in 0..7 {
            let count = numbers(3).iter().filter(|n| **n == wanted).count();
            assert!((90..200).contains(&count), "{wanted}: {count}");
        }
        assert_eq!(Random::new(Some(1)).below(0), 0);
    }
}
