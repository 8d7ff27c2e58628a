//! Floats that are decimals: `value = integer / 10^places`, verified bit for bit.
//!
//! A decimal of up to 15 digits that was read from text is the double nearest to `i / 10^k`, and
//! one division by a power of ten that is itself exact (k ≤ 22) restores that double. So doubles
//! are encoded as small integers, which compress well. Invariants: `from_integer(integer, places)`
//! has the bits of the value for every value accepted; accepted integers are within ±2^51; -0.0,
//! NaN and infinities are never accepted.

/// Most decimal places looked for.
pub(crate) const PLACES_MAX: u8 = 12;

const POWERS: [f64; PLACES_MAX as usize + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
];

/// 1.5·2^52: adding it rounds a double below 2^51 to an integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
const LIMIT: f64 = 2_251_799_813_685_248.0; // 2^51

/// The power of ten for a number of decimal places; `None` above [`PLACES_MAX`].
#[inline]
pub(crate) fn power(places: u8) -> Option<f64> {
    POWERS.get(usize::from(places)).copied()
}

#[inline(always)]
fn split(value: f64, power: f64) -> (i64, bool) {
    let scaled = value * power;
    let shifted = scaled + ROUND;
    let whole = shifted - ROUND;
    let good = ((whole / power).to_bits() == value.to_bits()) & (scaled.abs() < LIMIT);
    let integer = (shifted.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64);
    (integer, good)
}

/// The value of an integer; any integer is allowed.
#[inline(always)]
pub(crate) fn from_integer(integer: i64, power: f64) -> f64 {
    integer as f64 / power
}

/// The integer of one value at a number of places.
pub(crate) fn to_integer(value: f64, places: u8) -> Option<i64> {
    let (integer, good) = split(value, power(places)?);
    good.then_some(integer)
}

/// The fewest places, at least `least`, at which a value is a decimal.
pub(crate) fn places_of(value: f64, least: u8) -> Option<u8> {
    (least..=PLACES_MAX).find(|places| to_integer(value, *places).is_some())
}

/// Decimal places and integer of a value.
pub(crate) fn single(value: f64) -> Option<(u8, i64)> {
    (0..=PLACES_MAX).find_map(|places| Some((places, to_integer(value, places)?)))
}

/// Form of the decimals, besides their integers.
pub(crate) struct Decimals {
    pub(crate) places: u8,
    /// Index and bits of the values that are not decimals, in ascending order.
    pub(crate) exceptions: Vec<(u32, u64)>,
}

/// Number of values that are tried first.
const SAMPLE: usize = 32;
/// At most one of `EXCEPTION_SHARE` values may be an exception.
const EXCEPTION_SHARE: usize = 8;

/// `values` as decimals, or `None` if too many are not decimals. `integers` then has one entry per
/// value; an exception repeats the previous integer. Earlier content of `integers` is discarded, so
/// that one vector serves many columns.
pub(crate) fn decimals(values: &[f64], integers: &mut Vec<i64>) -> Option<Decimals> {
    let allowed = values.len() / EXCEPTION_SHARE;
    let mut places = 0;
    let step = (values.len() / SAMPLE).max(1);
    let (mut seen, mut odd) = (0, 0);
    for value in values.iter().step_by(step) {
        seen += 1;
        match places_of(*value, places) {
            Some(more) => places = more,
            None => odd += 1,
        }
    }
    if odd * EXCEPTION_SHARE > seen * 2 {
        return None;
    }
    integers.clear();
    integers.resize(values.len(), 0);
    let mut exceptions = Vec::new();
    let mut from = 0;
    loop {
        let power = power(places)?;
        from = convert(values, integers, from, power);
        let Some(value) = values.get(from) else {
            return Some(Decimals { places, exceptions });
        };
        match places_of(*value, places) {
            Some(more) if more > places => {
                // The integers so far gain zeros; decimals are still decimals unless they grow too
                // large.
                places = more;
                exceptions.clear();
                from = 0;
            }
            _ => {
                if exceptions.len() >= allowed {
                    return None;
                }
                exceptions.push((u32::try_from(from).ok()?, value.to_bits()));
                let before = from.checked_sub(1).and_then(|i| integers.get(i)).copied();
                if let Some(slot) = integers.get_mut(from) {
                    *slot = before.unwrap_or(0);
                }
                from += 1;
            }
        }
    }
}

/// Converts from index `from` on, in blocks; returns the index of the first value that is not a
/// decimal, or the length.
fn convert(values: &[f64], integers: &mut [i64], from: usize, power: f64) -> usize {
    const STEP: usize = 64;
    let mut at = from;
    let (Some(values), Some(slots)) = (values.get(from..), integers.get_mut(from..)) else {
        return from;
    };
    for (values, slots) in values.chunks(STEP).zip(slots.chunks_mut(STEP)) {
        let mut all = true;
        for (value, slot) in values.iter().zip(slots.iter_mut()) {
            let (integer, good) = split(*value, power);
            *slot = integer;
            all &= good;
        }
        if !all {
            let bad = values.iter().position(|v| !split(*v, power).1);
            return at + bad.unwrap_or(0);
        }
        at += values.len();
    }
    at
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    /// As [`super::decimals`], with the integers beside it.
    fn decimals(values: &[f64]) -> Option<(Decimals, Vec<i64>)> {
        let mut integers = vec![7; 3];
        super::decimals(values, &mut integers).map(|found| (found, integers))
    }

    fn restored((found, integers): &(Decimals, Vec<i64>)) -> Vec<u64> {
        let power = power(found.places).unwrap();
        let mut bits: Vec<u64> = integers
            .iter()
            .map(|i| from_integer(*i, power).to_bits())
            .collect();
        for (at, value) in &found.exceptions {
            bits[*at as usize] = *value;
        }
        bits
    }

    #[test]
    fn text_with_two_places_is_found_at_two_places() {
        let values: Vec<f64> = (-500..500)
            .map(|i| format!("{}.{:02}", i, i & 63).parse().unwrap())
            .collect();
        let values: Vec<f64> = values
            .into_iter()
            .map(|v| if v == 0.0 { 0.0 } else { v })
            .collect();
        let found = decimals(&values).unwrap();
        assert_eq!(found.0.places, 2);
        assert!(found.0.exceptions.is_empty());
        assert_eq!(
            restored(&found),
            values.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn few_odd_values_are_exceptions_and_many_are_refused() {
        let mut values = vec![20.5; 100];
        values[0] = f64::NAN;
        values[50] = -0.0;
        values[99] = f64::INFINITY;
        let found = decimals(&values).unwrap();
        assert_eq!(found.0.exceptions.len(), 3);
        assert_eq!(
            restored(&found),
            values.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        );
        assert!(decimals(&[f64::NAN; 100]).is_none());
        assert!(decimals(&[-0.0]).is_none());
        assert!(decimals(&[std::f64::consts::PI; 40]).is_none());
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_comes_back_bit_for_bit(
            values in prop::collection::vec(prop_oneof![
                8 => (-1_000_000i64..1_000_000, 0u8..9).prop_map(|(i, k)| i as f64 / POWERS[usize::from(k)]),
                1 => any::<f64>(),
            ], 0..200),
        ) {
            if let Some(found) = decimals(&values) {
                prop_assert_eq!(restored(&found), values.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
            }
        }

        #[test]
        fn one_value_agrees_with_division(value: f64, places in 0u8..=PLACES_MAX) {
            if let Some(integer) = to_integer(value, places) {
                prop_assert_eq!(from_integer(integer, power(places).unwrap()).to_bits(), value.to_bits());
            }
        }
    }
}
