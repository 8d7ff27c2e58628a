//! Messages as bytes: any that is made is read back, and any bytes are refused or read.

use crate::dispatch::world::random_registry;
use headwater_protocol::dispatch::{decode, encode};
use headwater_testing::Dice;
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_told_is_read_back(seed: u64, steps in 0u64..200) {
        let mut dice = Dice(seed);
        let registry = random_registry(&mut dice, steps);
        let from = dice.below(registry.version() + 2);
        let epoch = if dice.chance(80) { registry.epoch() } else { 0 };
        let held = registry.since(epoch, from);
        prop_assert_eq!(decode(&encode(&held)), Ok(held));
    }

    #[test]
    fn damage_is_refused(seed: u64, at: proptest::sample::Index, bit in 0u8..8) {
        let registry = random_registry(&mut Dice(seed), 20);
        let mut bytes = encode(&registry.since(0, 0));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = decode(&bytes);
    }
}
