//! Randomness as a part that can be replaced.
//!
//! Invariants: a [`SeededChance`] returns the same numbers in the same order for the same seed, on
//! every machine and in every release (tests replay by seed). Concurrency: all methods take `&self`
//! from any thread; with several threads the order of numbers depends on the order of their calls.
//! Failure: none; see [`SystemChance`].

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random numbers.
pub trait Chance: Send + Sync + fmt::Debug {
    /// A number, uniform over all of `u64`.
    fn next_u64(&self) -> u64;
}

/// The randomness of the operating system.
///
/// On Linux every number is drawn from the kernel, suitable for secrets. Elsewhere, or if the
/// kernel refuses, numbers are a keyed hash of a counter, with a key drawn by the operating system:
/// unpredictable, but not suitable for secrets.
#[derive(Debug, Default)]
pub struct SystemChance {
    key: RandomState,
    count: AtomicU64,
}

impl SystemChance {
    /// A source with a key of its own.
    ///
    /// ```
    /// use headwater_io::{Chance, SystemChance};
    /// let chance = SystemChance::new();
    /// assert_ne!(chance.next_u64(), chance.next_u64());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        SystemChance::default()
    }

    #[cfg(target_os = "linux")]
    fn from_kernel() -> Option<u64> {
        let mut bytes = [0_u8; 8];
        // Requests of up to 256 bytes are never cut short once they return at all.
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(8) => Some(u64::from_le_bytes(bytes)),
            Ok(_) | Err(_) => None,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn from_kernel() -> Option<u64> {
        None
    }
}

impl Chance for SystemChance {
    fn next_u64(&self) -> u64 {
        SystemChance::from_kernel().unwrap_or_else(|| {
            // The process number makes the numbers of a forked child differ from its parent's.
            self.key.hash_one((
                std::process::id(),
                self.count.fetch_add(1, Ordering::Relaxed),
            ))
        })
    }
}

/// Numbers that follow from a seed (the splitmix64 generator). For tests and simulation, never for
/// secrets.
#[derive(Debug)]
pub struct SeededChance {
    state: AtomicU64,
}

/// The step of splitmix64: odd, and near 2^64 divided by the golden ratio.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SeededChance {
    /// The sequence of `seed`.
    ///
    /// ```
    /// use headwater_io::{Chance, SeededChance};
    /// assert_eq!(SeededChance::new(7).next_u64(), SeededChance::new(7).next_u64());
    /// ```
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SeededChance {
            state: AtomicU64::new(seed),
        }
    }
}

impl Chance for SeededChance {
    fn next_u64(&self) -> u64 {
        mix(self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP))
    }
}

/// The output function of splitmix64.
pub(crate) fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_numbers_are_those_of_the_published_splitmix64() {
        let chance = SeededChance::new(1_234_567);
        let found: Vec<u64> = (0..5).map(|_| chance.next_u64()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(found, published);
    }

    #[test]
    fn system_numbers_differ_also_without_the_kernel() {
        let chance = SystemChance::new();
        assert_ne!(chance.next_u64(), chance.next_u64());
        assert_ne!(
            chance.key.hash_one((1_u32, 0_u64)),
            chance.key.hash_one((1_u32, 1_u64))
        );
    }
}
