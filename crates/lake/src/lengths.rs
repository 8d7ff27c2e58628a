//! Counts as Iceberg writes them.
//!
//! Invariant: no number is truncated. If a number is written with a sign, one that does not fit,
//! which no file can have, saturates.

/// A count as Iceberg writes it.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count of few things as Iceberg writes it.
pub(crate) fn small(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
