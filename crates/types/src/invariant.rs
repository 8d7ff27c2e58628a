//! Access to parts of lists that exist by an own invariant, and conversions of lengths.
//!
//! Invariants: a missing part is a broken invariant: rows would be omitted from a write or read
//! without an error. So the thread panics, also in release builds, and the engine latches the
//! database. Bytes of a device are never read through this module. Concurrency: pure functions.
//! Failure: panics with the position and the expected content.

use std::fmt::Debug;
use std::slice::SliceIndex;

/// The part of a list at `range`; `what` names the list in the panic message.
#[track_caller]
#[inline]
pub fn part_of<'a, T, R>(list: &'a [T], range: R, what: &str) -> &'a [T]
where
    R: SliceIndex<[T], Output = [T]> + Clone + Debug,
{
    let part = list.get(range.clone());
    assert!(
        part.is_some(),
        "{what}: {range:?} of {} are asked for",
        list.len()
    );
    part.unwrap_or_default()
}

/// As [`part_of`], mutable: the first `count` items.
#[track_caller]
#[inline]
pub fn first_mut<'a, T>(list: &'a mut [T], count: usize, what: &str) -> &'a mut [T] {
    let len = list.len();
    let part = list.get_mut(..count);
    assert!(part.is_some(), "{what}: {count} of {len} are asked for");
    part.unwrap_or_default()
}

/// A count as `u64`, as formats store it; saturates, though no memory has 2^64 bytes.
pub fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A stored length as a length in memory; `usize` has at least 32 bits.
pub fn length(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{first_mut, part_of};

    #[test]
    fn a_part_is_given_as_it_is() {
        assert_eq!(part_of(&[1, 2, 3], 1..3, "numbers"), [2, 3]);
        assert!(part_of(&[1, 2, 3], 3.., "numbers").is_empty());
        assert_eq!(first_mut(&mut [1, 2, 3], 2, "numbers"), [1, 2]);
    }

    #[test]
    #[should_panic(expected = "numbers: 4 of 3 are asked for")]
    fn nothing_is_written_to_a_part_that_is_not_there() {
        first_mut(&mut [1, 2, 3], 4, "numbers");
    }

    #[test]
    #[should_panic(expected = "numbers: 2..4 of 3 are asked for")]
    fn a_part_that_is_not_there_is_no_empty_one() {
        part_of(&[1, 2, 3], 2..4, "numbers");
    }
}
