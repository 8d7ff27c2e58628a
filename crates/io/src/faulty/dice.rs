//! The seeded decisions of the simulated disk.
//!
//! Invariants: the same seed makes the same decisions on every machine. Concurrency: a plain value
//! with one owner. Failure: none.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::chance::{STEP, mix};

/// A sequence of decisions.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(mix(seed))
    }

    /// Decisions about one file, independent of all other files.
    pub(super) fn for_path(seed: u64, path: &Path) -> Self {
        // FNV-1a, since the hashes of the standard library may change between releases.
        let hash = path
            .as_os_str()
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        Dice(mix(seed) ^ hash)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// True in `parts` of 8 cases.
    pub(super) fn in_eight(&mut self, parts: u64) -> bool {
        self.below(8) < parts
    }
}
