//! The time column: how its cells are read and written.
//!
//! Invariants: reading is exact, in integers; a cell with a complete RFC 3339 instant is also
//! accepted where a unit is configured, since it is unambiguous; a local time that its zone has
//! twice means the first, and a local time that its zone skips is refused.

use super::error::CsvError;
use crate::instant::{self, InstantError, Rfc3339};
use crate::number;
use crate::refusal::{Fault, RefusalCode, shown};
use headwater_types::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::fmt;

/// A unit of decimal time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the unit it is named for")]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

/// Form of the cells of a time column.
#[derive(Clone, Debug)]
pub enum TimeFormat {
    /// Decimal numbers; a fraction is allowed down to the nanosecond.
    Unit(TimeUnit),
    /// RFC 3339 with an offset.
    Rfc3339,
    /// A pattern of [`jiff::fmt::strtime`].
    Pattern {
        /// The pattern.
        pattern: String,
        /// Zone of local times; UTC by default.
        zone: TimeZone,
    },
}

impl TimeUnit {
    /// Digits of a second below the unit's own.
    fn fraction_digits(self) -> usize {
        match self {
            TimeUnit::Seconds => 9,
            TimeUnit::Milliseconds => 6,
            TimeUnit::Microseconds => 3,
            TimeUnit::Nanoseconds => 0,
        }
    }

    fn nanos(self) -> i64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Nanoseconds => 1,
        }
    }
}

impl TimeFormat {
    /// Reads `s ms us ns rfc3339` or `STRFTIME[@ZONE]`.
    ///
    /// ```
    /// use headwater_wire::csv::TimeFormat;
    /// let format = TimeFormat::parse("%Y-%m-%d %H:%M:%S@Europe/Berlin")?;
    /// assert_eq!(format.read("1970-01-01 01:00:00").unwrap().as_nanos(), 0);
    /// # Ok::<(), headwater_wire::csv::CsvError>(())
    /// ```
    ///
    /// # Errors
    /// When the text is not a format, or the zone is unknown.
    pub fn parse(text: &str) -> Result<TimeFormat, CsvError> {
        let unit = match text {
            "s" => TimeUnit::Seconds,
            "ms" => TimeUnit::Milliseconds,
            "us" | "µs" => TimeUnit::Microseconds,
            "ns" => TimeUnit::Nanoseconds,
            "rfc3339" => return Ok(TimeFormat::Rfc3339),
            _ => return TimeFormat::parse_pattern(text),
        };
        Ok(TimeFormat::Unit(unit))
    }

    fn parse_pattern(text: &str) -> Result<TimeFormat, CsvError> {
        let fault = |reason: String| CsvError::TimeFormat {
            text: text.to_owned(),
            reason,
        };
        let (pattern, zone) = match text.rsplit_once('@') {
            Some((pattern, zone)) if !zone.contains('%') => {
                let zone = TimeZone::get(zone).map_err(|_| {
                    fault(format!(
                        "there is no time zone `{zone}`; use a name such as Europe/Berlin or UTC"
                    ))
                })?;
                (pattern, zone)
            }
            _ => (text, TimeZone::UTC),
        };
        if !pattern.contains('%') {
            return Err(fault(
                "expected s, ms, us, ns, rfc3339 or a pattern such as %Y-%m-%d %H:%M:%S@Europe/Berlin"
                    .to_owned(),
            ));
        }
        let sample = jiff::Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        jiff::fmt::strtime::format(pattern, &sample).map_err(|error| fault(error.to_string()))?;
        Ok(TimeFormat::Pattern {
            pattern: pattern.to_owned(),
            zone,
        })
    }

    /// The format that a value shows: RFC 3339, or a unit by the size of the number.
    pub(crate) fn of_value(text: &str) -> Option<TimeFormat> {
        if instant::parse_rfc3339(text.as_bytes()).is_ok() {
            return Some(TimeFormat::Rfc3339);
        }
        let whole = text.split('.').next()?;
        let stamp = number::whole_integer(whole.as_bytes())?;
        let unit = match stamp.unsigned_abs() {
            10_000_000_000_000_000.. => TimeUnit::Nanoseconds,
            10_000_000_000_000.. => TimeUnit::Microseconds,
            10_000_000_000.. => TimeUnit::Milliseconds,
            _ => TimeUnit::Seconds,
        };
        let format = TimeFormat::Unit(unit);
        format.read(text).ok()?;
        Some(format)
    }

    /// Reads one cell.
    ///
    /// # Errors
    /// `E_TIME` when the cell does not follow the format or is outside the range of instants.
    pub fn read(&self, text: &str) -> Result<Timestamp, Fault> {
        let text = text.trim_ascii();
        let read = match self {
            TimeFormat::Unit(unit) => read_decimal(*unit, text.as_bytes()).or_else(|error| {
                // `YYYY-` cannot start a number.
                match text.as_bytes().get(4) {
                    Some(b'-') => instant::parse_rfc3339(text.as_bytes()),
                    _ => Err(error),
                }
            }),
            TimeFormat::Rfc3339 => instant::parse_rfc3339(text.as_bytes()),
            TimeFormat::Pattern { pattern, zone } => {
                return read_pattern(pattern, zone, text).map(Timestamp::from_nanos);
            }
        };
        read.map(Timestamp::from_nanos)
            .map_err(|error| self.fault(text, error))
    }

    #[cold]
    fn fault(&self, text: &str, error: InstantError) -> Fault {
        let found = if text.is_empty() {
            "nothing".to_owned()
        } else {
            shown(text.as_bytes())
        };
        let message = match (error, self) {
            (InstantError::Shape, TimeFormat::Unit(unit)) => {
                format!("expected the time in {}, found {found}", unit.name())
            }
            (InstantError::Shape, _) => {
                format!("expected the time as RFC 3339 such as 2013-07-04T12:00:00Z, found {found}")
            }
            (InstantError::NoOffset, _) => format!(
                "the time {found} has no offset from UTC; give a pattern with a zone, such as %Y-%m-%dT%H:%M:%S@Europe/Berlin"
            ),
            (error, _) => format!("the time {found}: {error}"),
        };
        Fault::new(RefusalCode::Time, message)
    }

    /// Shows an instant in this format; patterns are for reading and show RFC 3339.
    pub(super) fn show(&self, at: Timestamp) -> ShownTime<'_> {
        ShownTime { format: self, at }
    }
}

impl TimeUnit {
    fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "seconds since 1970",
            TimeUnit::Milliseconds => "milliseconds since 1970",
            TimeUnit::Microseconds => "microseconds since 1970",
            TimeUnit::Nanoseconds => "integer nanoseconds since 1970",
        }
    }
}

/// An instant in a format.
pub(super) struct ShownTime<'a> {
    format: &'a TimeFormat,
    at: Timestamp,
}

impl fmt::Display for ShownTime<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimeFormat::Unit(unit) = self.format else {
            return Rfc3339(self.at).fmt(f);
        };
        let nanos = self.at.as_nanos();
        let (whole, fraction) = (nanos / unit.nanos(), (nanos % unit.nanos()).unsigned_abs());
        if whole == 0 && nanos < 0 {
            f.write_str("-")?;
        }
        write!(f, "{whole}")?;
        if fraction != 0 {
            let digits = format!("{fraction:0width$}", width = unit.fraction_digits());
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

/// `-123.456` in a unit, to nanoseconds, without a float in between.
fn read_decimal(unit: TimeUnit, text: &[u8]) -> Result<i64, InstantError> {
    if let Some(whole) = number::whole_integer(text) {
        return whole.checked_mul(unit.nanos()).ok_or(InstantError::Range);
    }
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut parts = digits.splitn(2, |b| *b == b'.');
    let (whole, fraction) = (parts.next().unwrap_or_default(), parts.next());
    let are_digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if whole.is_empty()
        || !are_digits(whole)
        || fraction.is_some_and(|f| f.is_empty() || !are_digits(f))
    {
        return Err(InstantError::Shape);
    }
    let mut nanos = 0i128;
    for digit in whole {
        nanos = nanos * 10 + i128::from(digit - b'0');
        if nanos > i128::from(i64::MAX) {
            return Err(InstantError::Range);
        }
    }
    nanos *= i128::from(unit.nanos());
    nanos += i128::from(
        instant::fraction_in_units(fraction.unwrap_or_default(), unit.fraction_digits())
            .ok_or(InstantError::TooFine)?,
    );
    if is_negative {
        nanos = -nanos;
    }
    i64::try_from(nanos).map_err(|_| InstantError::Range)
}

/// The instant of a text by a pattern. Second 60 is the first second of the next minute, as in Unix
/// time.
fn read_pattern(pattern: &str, zone: &TimeZone, text: &str) -> Result<i64, Fault> {
    let at = read_with_59(pattern, zone, text)?;
    // The calendar library parses 60 as 59. Where 60 is a number of seconds, parsing with 58
    // returns a second less.
    let is_60 = text.match_indices("60").any(|(place, _)| {
        let mut other = text.to_owned();
        other.replace_range(place..place + 2, "58");
        let other = read_with_59(pattern, zone, &other);
        other.is_ok_and(|other| at.checked_sub(other) == Some(instant::NANOS_PER_SECOND))
    });
    match is_60 {
        false => Ok(at),
        true => at.checked_add(instant::NANOS_PER_SECOND).ok_or_else(|| {
            let text = shown(text.as_bytes());
            Fault::new(
                RefusalCode::Time,
                format!("the time {text}: {}", InstantError::Range),
            )
        }),
    }
}

fn read_with_59(pattern: &str, zone: &TimeZone, text: &str) -> Result<i64, Fault> {
    let fault = |message: String| Fault::new(RefusalCode::Time, message);
    let does_not_follow = |error: jiff::Error| {
        fault(format!(
            "expected the time as {pattern}, found {}: {error}",
            shown(text.as_bytes())
        ))
    };
    let parts = BrokenDownTime::parse(pattern, text).map_err(does_not_follow)?;
    let instant = if parts.offset().is_some() || pattern.contains("%s") {
        parts.to_timestamp().map_err(does_not_follow)?
    } else {
        let local = parts.to_datetime().map_err(does_not_follow)?;
        let named;
        let zone = match parts.iana_time_zone() {
            Some(name) => {
                named = TimeZone::get(name)
                    .map_err(|_| fault(format!("there is no time zone `{name}`")))?;
                &named
            }
            None => zone,
        };
        let offset = match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Fold { before, .. } => before,
            AmbiguousOffset::Gap { .. } => {
                return Err(fault(format!(
                    "the local time {} does not exist in {}: the clocks were set forward over it; give times in UTC",
                    shown(text.as_bytes()),
                    zone.iana_name().unwrap_or("its zone")
                )));
            }
        };
        offset.to_timestamp(local).map_err(does_not_follow)?
    };
    i64::try_from(instant.as_nanosecond()).map_err(|_| {
        fault(format!(
            "the time {}: {}",
            shown(text.as_bytes()),
            InstantError::Range
        ))
    })
}
