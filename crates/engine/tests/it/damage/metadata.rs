//! Flipped bits in the metadata.

use super::{Victim, examine, flipped, rich_victim};
use crate::support::Dice;
use std::collections::BTreeMap;
use std::path::Path;

/// Places in pages of the metadata that hold something.
fn used_offsets(victim: &Victim, dice: &mut Dice, per_page: u64) -> Vec<u64> {
    let content = victim.disk.read_file(META).unwrap();
    let mut places: Vec<u64> = (0..64).step_by(3).collect();
    for (page, bytes) in (0..).zip(content.chunks(4096)) {
        if let Some(last) = bytes.iter().rposition(|b| *b != 0) {
            places.extend((0..per_page).map(|_| page * 4096 + dice.below(last as u64 + 1)));
        }
    }
    places
}

const META: &str = "/db/meta.redb";

fn metadata_flips(victim: &Victim, per_page: u64) -> BTreeMap<String, usize> {
    let mut dice = Dice::new(per_page);
    let mut outcomes = BTreeMap::new();
    for offset in used_offsets(victim, &mut dice, per_page) {
        let bit = dice.below(8) as u8;
        let what = format!("{META} bit {bit} of byte {offset}");
        let outcome = examine(
            victim,
            &flipped(victim, Path::new(META), offset, bit),
            &what,
        );
        *outcomes.entry(format!("{outcome:?}")).or_default() += 1;
    }
    outcomes
}

#[test]
fn flipped_bits_in_the_metadata() {
    let victim = rich_victim();
    let outcomes = metadata_flips(&victim, 8);
    // redb goes back to the commit before, and the log still has what that lacks; or it is missed.
    assert!(
        outcomes["Refused"] > 2 && outcomes["Harmless"] > 20,
        "{outcomes:?}"
    );
}

#[test]
fn flipped_bits_in_the_metadata_of_a_database_that_was_closed() {
    let victim = rich_victim().closed();
    let outcomes = metadata_flips(&victim, 8);
    assert!(outcomes["Refused"] > 10, "{outcomes:?}");
}
