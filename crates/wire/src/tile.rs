//! A tile as JSON, in the shape Respawn's clients read.
//!
//! `{"fields":["time","mean","stddev","count"],"data":[[t,mean,stddev,count],…],"level":L,"offset":O}`
//!
//! Invariants: `time` is the mean time of the bucket's events in seconds since 1970; numbers read
//! back to the same bits; a number that is not finite is `null`; a bucket without events has no
//! row. Format: docs/format/tile.md.

use crate::json::{push_extreme, push_i64, push_optional_f64, push_sum, push_u64};
use headwater_types::{Aggregate, Level};

/// Integers up to this size are exact in JavaScript.
const EXACT_IN_JAVASCRIPT_MAX: u64 = 1 << 53;

/// A column of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TileColumn {
    /// Mean time of the events, in seconds since 1970.
    Time,
    /// Mean of the finite values.
    Mean,
    /// Population standard deviation of the finite values.
    Stddev,
    /// Number of present values.
    Count,
    /// Smallest finite value.
    Min,
    /// Largest finite value.
    Max,
    /// Sum of the finite values: exact for integers, mean times count for floats.
    Sum,
}

impl TileColumn {
    /// Respawn's columns.
    pub const DEFAULT: [TileColumn; 4] = [
        TileColumn::Time,
        TileColumn::Mean,
        TileColumn::Stddev,
        TileColumn::Count,
    ];

    /// Every column.
    pub const ALL: [TileColumn; 7] = [
        TileColumn::Time,
        TileColumn::Mean,
        TileColumn::Stddev,
        TileColumn::Count,
        TileColumn::Min,
        TileColumn::Max,
        TileColumn::Sum,
    ];

    /// The name in `fields`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TileColumn::Time => "time",
            TileColumn::Mean => "mean",
            TileColumn::Stddev => "stddev",
            TileColumn::Count => "count",
            TileColumn::Min => "min",
            TileColumn::Max => "max",
            TileColumn::Sum => "sum",
        }
    }

    /// The column of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<TileColumn> {
        TileColumn::ALL.into_iter().find(|c| c.name() == name)
    }

    fn push(self, out: &mut Vec<u8>, aggregate: &Aggregate) {
        match self {
            TileColumn::Time => push_optional_f64(out, mean_time_seconds(aggregate)),
            TileColumn::Mean => push_optional_f64(out, aggregate.mean()),
            TileColumn::Stddev => push_optional_f64(out, aggregate.stddev()),
            TileColumn::Count => push_u64(out, aggregate.count),
            TileColumn::Min => push_extreme(out, aggregate.extremes, false),
            TileColumn::Max => push_extreme(out, aggregate.extremes, true),
            TileColumn::Sum => push_sum(out, aggregate.sum()),
        }
    }
}

/// Writes a tile. `buckets` are the buckets with events, in order; the number is for the caller's
/// own use.
///
/// ```
/// use headwater_types::{Aggregate, Level};
/// use headwater_wire::tile::{tile_json, TileColumn};
/// let empty: [(i64, &Aggregate); 0] = [];
/// assert_eq!(
///     tile_json(Level::clamped(-2), 7, &TileColumn::DEFAULT, empty),
///     r#"{"fields":["time","mean","stddev","count"],"data":[],"level":-2,"offset":7}"#
/// );
/// ```
#[must_use]
pub fn tile_json<'a>(
    level: Level,
    offset: i64,
    columns: &[TileColumn],
    buckets: impl IntoIterator<Item = (i64, &'a Aggregate)>,
) -> String {
    let mut out = Vec::new();
    push_tile_json(&mut out, level, offset, columns, buckets);
    // JSON is UTF-8, so the conversion is lossless.
    String::from_utf8(out).unwrap_or_default()
}

/// As [`tile_json`], appended to `out`.
pub fn push_tile_json<'a>(
    out: &mut Vec<u8>,
    level: Level,
    offset: i64,
    columns: &[TileColumn],
    buckets: impl IntoIterator<Item = (i64, &'a Aggregate)>,
) {
    out.push(b'{');
    push_fields_and_data(out, columns, buckets);
    out.extend_from_slice(b",\"level\":");
    push_i64(out, i64::from(level.get()));
    out.extend_from_slice(b",\"offset\":");
    push_i64(out, offset);
    if offset.unsigned_abs() > EXACT_IN_JAVASCRIPT_MAX {
        out.extend_from_slice(b",\"offset_text\":");
        crate::json::push_integer_text(out, offset);
    }
    out.push(b'}');
}

/// `"fields":[…],"data":[[…]…]`: the members of a tile in a list of tiles besides its name.
pub fn push_fields_and_data<'a>(
    out: &mut Vec<u8>,
    columns: &[TileColumn],
    buckets: impl IntoIterator<Item = (i64, &'a Aggregate)>,
) {
    out.extend_from_slice(b"\"fields\":[");
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        crate::json::push_str(out, column.name());
    }
    out.extend_from_slice(b"],\"data\":[");
    let mut is_first = true;
    for (_, aggregate) in buckets {
        if aggregate.count == 0 {
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        out.push(b'[');
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            column.push(out, aggregate);
        }
        out.push(b']');
    }
    out.push(b']');
}

/// Mean time of the events in seconds; exact to the last bit of a double.
fn mean_time_seconds(aggregate: &Aggregate) -> Option<f64> {
    if aggregate.count == 0 {
        return None;
    }
    let per_second = u128::from(aggregate.count) * 1_000_000_000;
    // Toward zero, so that a time shortly before 1970 keeps its digits too.
    let (seconds, rest) = divided(aggregate.time_sum.unsigned_abs(), per_second);
    let mean = seconds as f64 + rest as f64 / per_second as f64;
    Some(if aggregate.time_sum < 0 { -mean } else { mean })
}

/// Quotient and remainder. A division of 128 bits takes several times as long as estimating the
/// quotient in doubles and verifying it.
fn divided(sum: u128, by: u128) -> (u128, u128) {
    let guess = (sum as f64 / by as f64) as u64;
    for quotient in [guess, guess.saturating_sub(1)] {
        let quotient = u128::from(quotient);
        let rest = quotient.checked_mul(by).and_then(|p| sum.checked_sub(p));
        if let Some(rest) = rest.filter(|rest| *rest < by) {
            return (quotient, rest);
        }
    }
    (sum / by, sum % by)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::Extremes;

    fn aggregate(count: u64, time_sum: i128, extremes: Extremes, sum: i128) -> Aggregate {
        Aggregate {
            count,
            time_sum,
            extremes,
            sum,
            ..Aggregate::EMPTY
        }
    }

    #[test]
    fn a_tile_is_json_with_exact_numbers() {
        let some = aggregate(2, 3_000_000_001, Extremes::I64(-1, i64::MAX), 1 << 100);
        let none = Aggregate::EMPTY;
        let columns = [
            TileColumn::Time,
            TileColumn::Count,
            TileColumn::Min,
            TileColumn::Max,
            TileColumn::Sum,
        ];
        let text = tile_json(
            Level::clamped(0),
            i64::MIN,
            &columns,
            [(0, &some), (1, &none)],
        );
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            json["fields"],
            serde_json::json!(["time", "count", "min", "max", "sum"])
        );
        assert_eq!(json["data"].as_array().unwrap().len(), 1);
        assert_eq!(json["data"][0][0].as_f64(), Some(1.500_000_000_5));
        assert_eq!(json["data"][0][3].as_i64(), Some(i64::MAX));
        assert!(text.contains("1267650600228229401496703205376"));
        assert_eq!(json["offset_text"], i64::MIN.to_string());
        assert_eq!(json["level"], 0);
    }

    #[test]
    fn what_is_not_finite_is_null() {
        let infinite = Aggregate {
            count: 1,
            positive_infinite: 1,
            time_sum: 5,
            ..Aggregate::EMPTY
        };
        let text = tile_json(
            Level::clamped(0),
            0,
            &[TileColumn::Mean, TileColumn::Max, TileColumn::Sum],
            [(0, &infinite)],
        );
        assert!(text.contains("[[null,null,null]]"), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn a_guessed_division_is_a_division(
            sum in proptest::prop_oneof![proptest::prelude::any::<u128>(), 0u128..1 << 100, (1u128 << 60)..1 << 70],
            by in proptest::prop_oneof![1u128..1 << 40, 1u128..1 << 94],
        ) {
            proptest::prop_assert_eq!(divided(sum, by), (sum / by, sum % by));
            let exact = sum / by * by;
            proptest::prop_assert_eq!(divided(exact, by), (exact / by, 0));
        }
    }

    #[test]
    fn times_before_1970_are_right() {
        let at = aggregate(2, -3_000_000_000, Extremes::None, 0);
        assert_eq!(mean_time_seconds(&at), Some(-1.5));
        let shortly_before = aggregate(1, -1, Extremes::None, 0);
        assert_eq!(mean_time_seconds(&shortly_before), Some(-1e-9));
        assert_eq!(mean_time_seconds(&Aggregate::EMPTY), None);
    }
}
