//! Instants and conditions as text, for `EXPLAIN` and messages.

use arrow::temporal_conversions::timestamp_ns_to_datetime;
use headwater::{ClosedRange, Comparison, Filter, Timestamp, Value};

/// An instant in UTC, with nanoseconds if not zero.
pub(crate) fn instant(at: Timestamp) -> String {
    match timestamp_ns_to_datetime(at.as_nanos()) {
        Some(time) => format!("{}Z", time.format("%Y-%m-%dT%H:%M:%S%.f")),
        None => format!("{} ns", at.as_nanos()),
    }
}

/// A range, including its ends; an open end is omitted.
pub(crate) fn range(range: &ClosedRange) -> String {
    if range.is_empty() {
        return "never".to_owned();
    }
    let end = |at: Timestamp, open: Timestamp| {
        if at == open {
            String::new()
        } else {
            instant(at)
        }
    };
    format!(
        "{}..{}",
        end(range.first, Timestamp::MIN),
        end(range.last, Timestamp::MAX)
    )
}

/// A condition on a field.
pub(crate) fn filter(filter: &Filter) -> String {
    let operator = match filter.comparison {
        Comparison::Equal | Comparison::TotalEqual => "=",
        Comparison::NotEqual | Comparison::TotalNotEqual => "<>",
        Comparison::Less | Comparison::TotalLess => "<",
        Comparison::LessOrEqual | Comparison::TotalLessOrEqual => "<=",
        Comparison::Greater | Comparison::TotalGreater => ">",
        Comparison::GreaterOrEqual | Comparison::TotalGreaterOrEqual => ">=",
    };
    let value = match &filter.value {
        Value::F64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::String(v) => format!("'{v}'"),
        Value::Bytes(v) => format!("{} bytes", v.len()),
    };
    format!("{} {operator} {value}", filter.field)
}

/// Units of time with their nanoseconds.
const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nanosecond", "nanoseconds"], 1),
    (&["us", "µs", "microsecond", "microseconds"], 1_000),
    (&["ms", "millisecond", "milliseconds"], 1_000_000),
    (&["s", "sec", "second", "seconds"], 1_000_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000_000),
    (&["h", "hour", "hours"], 3_600_000_000_000),
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["w", "week", "weeks"], 604_800_000_000_000),
];

/// Parses a duration such as `5m`, `1h30m`, `250ms`, `1 day`, `300.000s`: numbers, each with a
/// unit, that are whole nanoseconds. `None` for other texts.
pub(crate) fn duration_ns(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at_checked(digits)?;
        let (fraction, behind) = match behind.strip_prefix('.') {
            Some(behind) => behind.split_at_checked(behind.find(|c: char| !c.is_ascii_digit())?)?,
            None => ("", behind),
        };
        let behind = behind.trim_start();
        let letters = behind
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(letters)?;
        let unit = unit.to_lowercase();
        let (_, ns) = UNITS
            .iter()
            .find(|(names, _)| names.contains(&unit.as_str()))?;
        sum = sum.checked_add(number.parse::<i64>().ok()?.checked_mul(*ns)?)?;
        sum = sum.checked_add(part_ns(fraction, *ns)?)?;
        rest = behind.trim_start();
    }
    Some(sum)
}

/// The nanoseconds of a fraction of a unit, given its digits; `None` = not whole.
fn part_ns(digits: &str, unit_ns: i64) -> Option<i64> {
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let tenths = 10i128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let parts = digits.parse::<i128>().ok()?.checked_mul(unit_ns.into())?;
    (parts % tenths == 0)
        .then_some(parts / tenths)
        .and_then(|ns| i64::try_from(ns).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        let minute = 60_000_000_000;
        for (text, ns) in [
            ("5m", Some(5 * minute)),
            ("1h30m", Some(90 * minute)),
            ("1 h 30 min", Some(90 * minute)),
            ("250ms", Some(250_000_000)),
            ("2 days", Some(2 * 1440 * minute)),
            ("1w", Some(7 * 1440 * minute)),
            ("", None),
            ("5", None),
            ("m", None),
            ("1.5h", Some(90 * minute)),
            ("300.000s", Some(5 * minute)),
            ("0.100s", Some(100_000_000)),
            ("0.0000000010s", Some(1)),
            ("0.00000000010s", None),
            ("1.5ns", None),
            ("1.s", Some(1_000_000_000)),
            (".5s", None),
            ("1.5.5s", None),
            ("-5m", None),
            ("5 months", None),
            ("9999999w", None),
        ] {
            assert_eq!(duration_ns(text), ns, "{text}");
        }
    }

    #[test]
    fn ranges_leave_open_ends_out() {
        assert_eq!(range(&ClosedRange::ALL), "..");
        assert_eq!(
            range(&ClosedRange::nanos(0, 1_500_000_000)),
            "1970-01-01T00:00:00Z..1970-01-01T00:00:01.500Z"
        );
    }
}
