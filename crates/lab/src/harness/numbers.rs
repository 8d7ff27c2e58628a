//! Conversions of numbers, for experiments that count with several types.

/// A whole number as a float.
pub(crate) fn real(number: impl TryInto<i64>) -> f64 {
    number
        .try_into()
        .map_or(f64::INFINITY, |number| number as f64)
}

/// A whole number with a sign; the largest where it does not fit.
pub(crate) fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A whole number as a count in memory; 0 for one below it.
pub(crate) fn size(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(0)
}

/// A whole number without a sign; 0 for one below it.
pub(crate) fn unsigned(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(0)
}

/// The whole part of a float.
pub(crate) fn whole(number: f64) -> i64 {
    number as i64
}
