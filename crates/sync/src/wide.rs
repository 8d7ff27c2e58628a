//! Lengths in memory as they are counted and written.

/// How many things there are: no memory holds 2^64.
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
