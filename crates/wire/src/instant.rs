//! Instants as text: RFC 3339 and integer nanoseconds.
//!
//! Invariants: reading and writing are exact to the nanosecond over the whole range of
//! [`Timestamp`] (1677-09-21T00:12:43.145224192Z to 2262-04-11T23:47:16.854775807Z); no computation
//! uses a float; [`parse_instant`] reads the output of [`format_instant`] back.

use headwater_types::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use std::fmt;

pub(crate) const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// Digits of a second that an instant has.
const FRACTION_DIGITS: usize = 9;

/// Text that is not an instant. The message states the expected form and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstantError {
    /// Neither RFC 3339 nor an integer.
    #[error(
        "expected an RFC 3339 instant such as 2013-07-04T12:00:00Z, or integer nanoseconds since 1970"
    )]
    Shape,
    /// A local time without an offset, which is not an instant.
    #[error("the time has no offset from UTC: add Z, or an offset such as +02:00")]
    NoOffset,
    /// A part of the date or time is out of its range.
    #[error("the {0} is out of range")]
    NoSuch(&'static str),
    /// Outside the range of 64-bit nanoseconds.
    #[error("outside the range of instants, 1677-09-21 to 2262-04-11")]
    Range,
    /// Digits below a nanosecond that are not zero.
    #[error("finer than a nanosecond: at most 9 digits after the point can be stored")]
    TooFine,
}

/// Reads an instant: RFC 3339 with an offset, a plain date (midnight UTC), or integer nanoseconds
/// since 1970.
///
/// ```
/// use headwater_wire::instant::parse_instant;
/// assert_eq!(parse_instant("1970-01-01T00:00:01.5Z")?.as_nanos(), 1_500_000_000);
/// assert_eq!(parse_instant("-5")?.as_nanos(), -5);
/// assert!(parse_instant("2013-07-04T12:00:00").is_err()); // no offset
/// # Ok::<(), headwater_wire::instant::InstantError>(())
/// ```
///
/// # Errors
/// When the text is not an instant, or an instant outside the range.
pub fn parse_instant(text: &str) -> Result<Timestamp, InstantError> {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return text
            .parse()
            .map(Timestamp::from_nanos)
            .map_err(|_| InstantError::Range);
    }
    if text.len() == 10
        && let Ok((days, [])) = date(text.as_bytes())
    {
        return join(days, 0, 0).map(Timestamp::from_nanos);
    }
    parse_rfc3339(text.as_bytes()).map(Timestamp::from_nanos)
}

/// Writes an instant as RFC 3339 in UTC, with 0, 3, 6 or 9 digits after the second.
///
/// ```
/// use headwater_wire::instant::format_instant;
/// use headwater_types::Timestamp;
/// assert_eq!(format_instant(Timestamp::from_nanos(1_500_000_000)), "1970-01-01T00:00:01.500Z");
/// ```
#[must_use]
pub fn format_instant(at: Timestamp) -> String {
    Rfc3339(at).to_string()
}

/// Formats an instant as [`format_instant`] does, without allocating a string; with a precision,
/// with so many digits after the second, the others cut off.
///
/// ```
/// use headwater_wire::instant::Rfc3339;
/// use headwater_types::Timestamp;
/// let at = Rfc3339(Timestamp::from_nanos(1_599_999_999));
/// assert_eq!(format!("{at:.0} {at:.1}"), "1970-01-01T00:00:01Z 1970-01-01T00:00:01.5Z");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The calendar library's range of instants is larger than ours.
        let at = jiff::Timestamp::from_nanosecond(self.0.as_nanos().into());
        let at = Offset::UTC.to_datetime(at.map_err(|_| fmt::Error)?);
        let fraction = at.subsec_nanosecond();
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        )?;
        let digits = match f.precision() {
            Some(digits) => digits.min(FRACTION_DIGITS),
            None if fraction == 0 => 0,
            None if fraction % 1_000_000 == 0 => 3,
            None if fraction % 1_000 == 0 => 6,
            None => FRACTION_DIGITS,
        };
        if digits > 0 {
            let shown = (digits..FRACTION_DIGITS).fold(fraction, |rest, _| rest / 10);
            write!(f, ".{shown:0digits$}")?;
        }
        f.write_str("Z")
    }
}

/// RFC 3339 to nanoseconds. Also accepts a space for the `T`, a comma for the point, and offsets
/// without colon or minutes, or with seconds. Second 60 is the first second of the next minute, as
/// in Unix time.
pub(crate) fn parse_rfc3339(text: &[u8]) -> Result<i64, InstantError> {
    let (days, rest) = date(text)?;
    let [b'T' | b't' | b' ', rest @ ..] = rest else {
        return Err(InstantError::Shape);
    };
    let (hour, rest) = two_digits(rest, b':')?;
    let (minute, rest) = two_digits(rest, b':')?;
    let [a @ b'0'..=b'9', b @ b'0'..=b'9', rest @ ..] = rest else {
        return Err(InstantError::Shape);
    };
    let second = i64::from(a - b'0') * 10 + i64::from(b - b'0');
    for (value, max, name) in [
        (hour, 23, "hour"),
        (minute, 59, "minute"),
        (second, 60, "second"),
    ] {
        if value > max {
            return Err(InstantError::NoSuch(name));
        }
    }
    let (nanos, rest) = match rest {
        [b'.' | b',', rest @ ..] => {
            let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            if count == 0 {
                return Err(InstantError::Shape);
            }
            let (digits, rest) = rest.split_at_checked(count).ok_or(InstantError::Shape)?;
            (
                fraction_in_units(digits, FRACTION_DIGITS).ok_or(InstantError::TooFine)?,
                rest,
            )
        }
        rest => (0, rest),
    };
    let offset = offset_seconds(rest)?;
    join(days, hour * 3600 + minute * 60 + second - offset, nanos)
}

/// Parses `YYYY-MM-DD` to days since 1970; returns the rest of the text too.
fn date(text: &[u8]) -> Result<(i64, &[u8]), InstantError> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, rest @ ..] = text else {
        return Err(InstantError::Shape);
    };
    // Four and two digits fit.
    let mut parts = [0i16; 3];
    for (part, digits) in
        parts
            .iter_mut()
            .zip([&[*y1, *y2, *y3, *y4][..], &[*m1, *m2], &[*d1, *d2]])
    {
        for digit in digits {
            if !digit.is_ascii_digit() {
                return Err(InstantError::Shape);
            }
            *part = *part * 10 + i16::from(digit - b'0');
        }
    }
    let [year, month, day] = parts;
    if !(1..=12).contains(&month) {
        return Err(InstantError::NoSuch("month"));
    }
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else {
        return Err(InstantError::NoSuch("day"));
    };
    let date = Date::new(year, month, day);
    let midnight = date.and_then(|date| Offset::UTC.to_timestamp(date.to_datetime(Time::MIN)));
    let midnight = midnight.map_err(|_| InstantError::NoSuch("day"))?;
    Ok((midnight.as_second() / SECONDS_PER_DAY, rest))
}

fn two_digits(text: &[u8], then: u8) -> Result<(i64, &[u8]), InstantError> {
    match text {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c, rest @ ..] if *c == then => {
            Ok((i64::from(a - b'0') * 10 + i64::from(b - b'0'), rest))
        }
        _ => Err(InstantError::Shape),
    }
}

fn offset_seconds(text: &[u8]) -> Result<i64, InstantError> {
    let (sign, digits) = match text {
        [b'Z' | b'z'] => return Ok(0),
        [] => return Err(InstantError::NoOffset),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err(InstantError::Shape),
    };
    // Before zones had whole minutes their clocks were set to the second.
    let (h, m, s) = match digits {
        [h1, h2, b':', m1, m2, b':', s1, s2] | [h1, h2, m1, m2, s1, s2] => {
            ([*h1, *h2], [*m1, *m2], [*s1, *s2])
        }
        [h1, h2, b':', m1, m2] | [h1, h2, m1, m2] => ([*h1, *h2], [*m1, *m2], *b"00"),
        [h1, h2] => ([*h1, *h2], *b"00", *b"00"),
        _ => return Err(InstantError::Shape),
    };
    let number = |[a, b]: [u8; 2]| match (a, b) {
        (b'0'..=b'9', b'0'..=b'9') => Ok(i64::from(a - b'0') * 10 + i64::from(b - b'0')),
        _ => Err(InstantError::Shape),
    };
    let (hours, minutes, seconds) = (number(h)?, number(m)?, number(s)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return Err(InstantError::NoSuch("offset"));
    }
    Ok(sign * (hours * 3600 + minutes * 60 + seconds))
}

/// Digits after a point, as an integer count of the unit that has `unit_digits` of them.
/// `None` when a digit below the unit is not zero.
pub(crate) fn fraction_in_units(digits: &[u8], unit_digits: usize) -> Option<i64> {
    let (kept, lost) = digits.split_at(digits.len().min(unit_digits));
    if lost.iter().any(|d| *d != b'0') {
        return None;
    }
    let mut value = 0i64;
    for digit in kept {
        value = value * 10 + i64::from(digit - b'0');
    }
    for _ in kept.len()..unit_digits {
        value *= 10;
    }
    Some(value)
}

fn join(days: i64, second_of_day: i64, nanos: i64) -> Result<i64, InstantError> {
    let seconds = days * SECONDS_PER_DAY + second_of_day; // four-digit years keep this below 2^38
    let wide = i128::from(seconds) * i128::from(NANOS_PER_SECOND) + i128::from(nanos);
    i64::try_from(wide).map_err(|_| InstantError::Range)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_name_the_instants_they_should() {
        let cases: [(&str, Result<i64, InstantError>); 26] = [
            ("1970-01-01T00:00:00Z", Ok(0)),
            ("1970-01-01 00:00:00.000000001z", Ok(1)),
            ("1969-12-31T23:59:59.999999999Z", Ok(-1)),
            ("1970-01-01T01:00:00+01:00", Ok(0)),
            ("1970-01-01T01:00:00,5+0100", Ok(500_000_000)),
            ("1969-12-31T19:00:00-05", Ok(0)),
            ("1969-12-31 19:03:58-04:56:02", Ok(0)),
            ("1970-01-01T00:19:32.5+001932", Ok(500_000_000)),
            (
                "1970-01-01T00:19:32+00:19:60",
                Err(InstantError::NoSuch("offset")),
            ),
            ("1970-01-01T00:19:32+00:19:3", Err(InstantError::Shape)),
            ("1970-01-01", Ok(0)),
            ("0", Ok(0)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("1677-09-21T00:12:43.145224192Z", Ok(i64::MIN)),
            ("2262-04-11T23:47:16.854775807Z", Ok(i64::MAX)),
            ("2262-04-11T23:47:16.854775808Z", Err(InstantError::Range)),
            ("9223372036854775808", Err(InstantError::Range)),
            ("2016-12-31T23:59:60Z", Ok(1_483_228_800 * NANOS_PER_SECOND)),
            ("2000-02-29T00:00:00Z", Ok(951_782_400 * NANOS_PER_SECOND)),
            ("1900-02-29T00:00:00Z", Err(InstantError::NoSuch("day"))),
            ("2013-13-01T00:00:00Z", Err(InstantError::NoSuch("month"))),
            ("2013-01-01T24:00:00Z", Err(InstantError::NoSuch("hour"))),
            ("2013-01-01T00:00:00", Err(InstantError::NoOffset)),
            (
                "2013-01-01T00:00:00.1234567891Z",
                Err(InstantError::TooFine),
            ),
            (
                "2013-01-01T00:00:00.1234567890Z",
                Ok(1_356_998_400_123_456_789),
            ),
            ("yesterday", Err(InstantError::Shape)),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_instant(text).map(Timestamp::as_nanos),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn texts_at_the_ends_of_time_are_whole_and_a_precision_cuts_them_off() {
        for (at, whole, second) in [
            (
                Timestamp::MIN,
                "1677-09-21T00:12:43.145224192Z",
                "1677-09-21T00:12:43Z",
            ),
            (
                Timestamp::MAX,
                "2262-04-11T23:47:16.854775807Z",
                "2262-04-11T23:47:16Z",
            ),
            (
                Timestamp::from_nanos(-1),
                "1969-12-31T23:59:59.999999999Z",
                "1969-12-31T23:59:59Z",
            ),
        ] {
            assert_eq!(format_instant(at), whole);
            assert_eq!(format!("{:.0}", Rfc3339(at)), second);
            assert_eq!(format!("{:.12}", Rfc3339(at)), whole);
        }
        let at = Rfc3339(Timestamp::from_nanos(20_000_000));
        assert_eq!(
            format!("{at} {at:.1} {at:.3}"),
            "1970-01-01T00:00:00.020Z 1970-01-01T00:00:00.0Z 1970-01-01T00:00:00.020Z"
        );
    }

    proptest! {
        #[test]
        fn any_instant_reads_back_and_agrees_with_the_calendar_library(nanos: i64) {
            let text = format_instant(Timestamp::from_nanos(nanos));
            prop_assert_eq!(parse_instant(&text).unwrap().as_nanos(), nanos);
            let theirs: jiff::Timestamp = text.parse().unwrap();
            prop_assert_eq!(theirs.as_nanosecond(), i128::from(nanos));
        }

        #[test]
        fn no_text_panics(text: String, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_instant(&text);
            let _ = parse_rfc3339(&bytes);
        }
    }
}
