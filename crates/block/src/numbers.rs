//! Between lengths in memory and lengths on a medium.
//!
//! Invariants: no number is truncated silently; a length that does not fit memory saturates, and
//! every later slice access refuses it. Concurrency and failure: plain functions.

/// A length in memory, on the medium.
pub(crate) fn long(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A length on the medium, in memory.
pub(crate) fn index(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
