//! PostgreSQL's calendar and text formats: instants, days, spans and floats. A cast to text and an
//! answer to a PostgreSQL client have the same text.
//!
//! Source for the calendar: "chrono-Compatible Low-Level Date Algorithms" (Howard Hinnant), the
//! proleptic Gregorian one.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, IntervalDayTimeType, IntervalMonthDayNanoType,
    IntervalUnit, IntervalYearMonthType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use std::io::Write as _;

/// Nanoseconds of a day.
pub const DAY_NS: i128 = 86_400_000_000_000;

/// A span with separate months, days and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Whole months, without a fixed length.
    pub months: i32,
    /// Whole days.
    pub days: i32,
    /// Time of less than a day, or time that is not counted in days.
    pub ns: i128,
}

/// Nanoseconds since 1970, of an instant with or without zone.
pub fn instant_ns(array: &dyn Array, row: usize) -> Option<i128> {
    let DataType::Timestamp(unit, _) = array.data_type() else {
        return None;
    };
    Some(match unit {
        TimeUnit::Second => {
            i128::from(array.as_primitive::<TimestampSecondType>().value(row)) * 1_000_000_000
        }
        TimeUnit::Millisecond => {
            i128::from(array.as_primitive::<TimestampMillisecondType>().value(row)) * 1_000_000
        }
        TimeUnit::Microsecond => {
            i128::from(array.as_primitive::<TimestampMicrosecondType>().value(row)) * 1_000
        }
        TimeUnit::Nanosecond => {
            i128::from(array.as_primitive::<TimestampNanosecondType>().value(row))
        }
    })
}

/// Days since 1970.
pub fn days(array: &dyn Array, row: usize) -> Option<i64> {
    match array.data_type() {
        DataType::Date32 => Some(array.as_primitive::<Date32Type>().value(row).into()),
        DataType::Date64 => Some(
            array
                .as_primitive::<Date64Type>()
                .value(row)
                .div_euclid(86_400_000),
        ),
        _ => None,
    }
}

/// Nanoseconds since midnight.
pub fn time_ns(array: &dyn Array, row: usize) -> Option<i128> {
    Some(match array.data_type() {
        DataType::Time32(TimeUnit::Second) => {
            i128::from(array.as_primitive::<Time32SecondType>().value(row)) * 1_000_000_000
        }
        DataType::Time32(TimeUnit::Millisecond) => {
            i128::from(array.as_primitive::<Time32MillisecondType>().value(row)) * 1_000_000
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            i128::from(array.as_primitive::<Time64MicrosecondType>().value(row)) * 1_000
        }
        DataType::Time64(TimeUnit::Nanosecond) => array
            .as_primitive::<Time64NanosecondType>()
            .value(row)
            .into(),
        _ => return None,
    })
}

/// A span.
pub fn span(array: &dyn Array, row: usize) -> Option<Span> {
    // The difference of two instants is counted in whole days.
    let whole = |ns: i128| Span {
        months: 0,
        days: i32::try_from(ns / DAY_NS).unwrap_or(i32::MAX),
        ns: ns % DAY_NS,
    };
    Some(match array.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => Span {
            months: array.as_primitive::<IntervalYearMonthType>().value(row),
            days: 0,
            ns: 0,
        },
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(row);
            Span {
                months: 0,
                days: value.days,
                ns: i128::from(value.milliseconds) * 1_000_000,
            }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            Span {
                months: value.months,
                days: value.days,
                ns: value.nanoseconds.into(),
            }
        }
        DataType::Duration(TimeUnit::Second) => {
            whole(i128::from(array.as_primitive::<DurationSecondType>().value(row)) * 1_000_000_000)
        }
        DataType::Duration(TimeUnit::Millisecond) => whole(
            i128::from(array.as_primitive::<DurationMillisecondType>().value(row)) * 1_000_000,
        ),
        DataType::Duration(TimeUnit::Microsecond) => {
            whole(i128::from(array.as_primitive::<DurationMicrosecondType>().value(row)) * 1_000)
        }
        DataType::Duration(TimeUnit::Nanosecond) => whole(
            array
                .as_primitive::<DurationNanosecondType>()
                .value(row)
                .into(),
        ),
        _ => return None,
    })
}

/// Year, month and day of a number of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Writes a day; true when it is before the year 1, in which case the caller appends the era.
pub fn put_day(days: i64, bytes: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil(days);
    let (shown, before) = if year > 0 {
        (year, false)
    } else {
        (1 - year, true)
    };
    put(bytes, format_args!("{shown:04}-{month:02}-{day:02}"));
    before
}

/// Writes a time of day, which may exceed one day, with as many digits as needed.
pub fn put_time(ns: i128, bytes: &mut Vec<u8>) {
    let seconds = ns / 1_000_000_000;
    let (h, m, s) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    put(bytes, format_args!("{h:02}:{m:02}:{s:02}"));
    let rest = ns % 1_000_000_000;
    if rest != 0 {
        put(bytes, format_args!(".{rest:09}"));
        while bytes.last() == Some(&b'0') {
            bytes.pop();
        }
    }
}

/// Writes an instant in local time, `offset_seconds` ahead of UTC, with the offset; `None` = a time
/// without zone.
pub fn put_instant(ns: i128, offset_seconds: Option<i32>, bytes: &mut Vec<u8>) {
    let ns = ns + i128::from(offset_seconds.unwrap_or(0)) * 1_000_000_000;
    // Within the range of 64-bit seconds, as for every unit.
    let days = ns.div_euclid(DAY_NS) as i64;
    let before = put_day(days, bytes);
    bytes.push(b' ');
    put_time(ns.rem_euclid(DAY_NS), bytes);
    if let Some(offset) = offset_seconds {
        bytes.push(if offset < 0 { b'-' } else { b'+' });
        let all = offset.unsigned_abs();
        put(bytes, format_args!("{:02}", all / 3_600));
        let (minutes, seconds) = (all / 60 % 60, all % 60);
        if (minutes, seconds) != (0, 0) {
            put(bytes, format_args!(":{minutes:02}"));
        }
        if seconds != 0 {
            put(bytes, format_args!(":{seconds:02}"));
        }
    }
    if before {
        bytes.extend(b" BC");
    }
}

/// Writes a span in PostgreSQL's own style.
pub fn put_span(span: Span, bytes: &mut Vec<u8>) {
    let begin = bytes.len();
    // A positive part after a negative one is written with its sign.
    let mut is_negative = false;
    let mut part = |value: i32, unit: &str| {
        if value == 0 {
            return;
        }
        if bytes.len() > begin {
            bytes.push(b' ');
        }
        let plural = if value == 1 { "" } else { "s" };
        let sign = if is_negative && value > 0 { "+" } else { "" };
        put(bytes, format_args!("{sign}{value} {unit}{plural}"));
        is_negative = value < 0;
    };
    part(span.months / 12, "year");
    part(span.months % 12, "mon");
    part(span.days, "day");
    if span.ns != 0 || bytes.len() == begin {
        if bytes.len() > begin {
            bytes.push(b' ');
        }
        if span.ns < 0 {
            bytes.push(b'-');
        } else if is_negative {
            bytes.push(b'+');
        }
        put_time(span.ns.abs(), bytes);
    }
}

/// The shortest digits that are read back exactly, with an exponent instead of many digits.
pub fn put_float<T: Into<f64> + Copy + std::fmt::Display + std::fmt::LowerExp>(
    number: T,
    bytes: &mut Vec<u8>,
) {
    let wide: f64 = number.into();
    if wide.is_nan() {
        bytes.extend(b"NaN");
    } else if wide.is_infinite() {
        bytes.extend(if wide > 0.0 {
            &b"Infinity"[..]
        } else {
            b"-Infinity"
        });
    } else if wide == 0.0 || (1e-4..1e15).contains(&wide.abs()) {
        put(bytes, format_args!("{number}"));
    } else {
        let text = format!("{number:e}");
        // PostgreSQL writes the sign of the exponent, and at least two digits.
        let text = match text.split_once('e') {
            Some((digits, exponent)) => match exponent.strip_prefix('-') {
                Some(exponent) => format!("{digits}e-{exponent:0>2}"),
                None => format!("{digits}e+{exponent:0>2}"),
            },
            None => text,
        };
        bytes.extend(text.as_bytes());
    }
}

/// Appends formatted text.
pub fn put(bytes: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = bytes.write_fmt(arguments);
}
