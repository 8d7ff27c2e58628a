//! Settings of the line-protocol parser.

use headwater_types::{Instants, Timestamp};
use std::sync::Arc;

/// The unit of the integers at the end of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Whole nanoseconds.
    Nanoseconds,
    /// Whole microseconds.
    Microseconds,
    /// Whole milliseconds.
    Milliseconds,
    /// Whole seconds.
    Seconds,
    /// Whole minutes.
    Minutes,
    /// Whole hours.
    Hours,
    /// By the size of each stamp: below 10^10 seconds, below 10^13 milliseconds, below 10^16
    /// microseconds, else nanoseconds. Right for every instant after 26 April 1970 in any of the
    /// units.
    #[default]
    Auto,
}

impl Precision {
    /// Reads `ns n us u ms s m h auto`, and the long names of InfluxDB 3: `nanosecond`,
    /// `microsecond`, `millisecond`, `second`.
    ///
    /// ```
    /// use headwater_wire::lineprotocol::Precision;
    /// assert_eq!(Precision::from_name("ms"), Some(Precision::Milliseconds));
    /// assert_eq!(Precision::from_name("day"), None);
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Option<Precision> {
        match name {
            "ns" | "n" | "nanosecond" => Some(Precision::Nanoseconds),
            "us" | "u" | "µs" | "microsecond" => Some(Precision::Microseconds),
            "ms" | "millisecond" => Some(Precision::Milliseconds),
            "s" | "second" => Some(Precision::Seconds),
            "m" => Some(Precision::Minutes),
            "h" => Some(Precision::Hours),
            "auto" => Some(Precision::Auto),
            _ => None,
        }
    }

    /// A stamp of this unit as nanoseconds; `None` when the result does not fit.
    #[inline]
    pub(crate) fn to_nanos(self, stamp: i64) -> Option<i64> {
        let unit_ns = match self {
            Precision::Nanoseconds => return Some(stamp),
            Precision::Microseconds => 1_000,
            Precision::Milliseconds => 1_000_000,
            Precision::Seconds => 1_000_000_000,
            Precision::Minutes => 60_000_000_000,
            Precision::Hours => 3_600_000_000_000,
            Precision::Auto => match stamp.unsigned_abs() {
                10_000_000_000_000_000.. => return Some(stamp),
                10_000_000_000_000.. => 1_000,
                10_000_000_000.. => 1_000_000,
                _ => 1_000_000_000,
            },
        };
        stamp.checked_mul(unit_ns)
    }
}

/// Settings of [`crate::lineprotocol::LineParser`].
#[derive(Clone, Debug)]
pub struct ParserOptions {
    /// Time of the next line without a time; increases by a nanosecond with each such line.
    pub now: Timestamp,
    /// Source of the instants of lines without a time, `now` or later, for several parsers that use
    /// the source concurrently; `None` = not shared.
    pub instants: Option<Arc<Instants>>,
    /// The unit of the stamps.
    pub precision: Precision,
    /// Later instants are refused with `E_TIME_FUTURE`; `None` accepts all.
    pub latest: Option<Timestamp>,
    /// Longest line.
    pub line_bytes_max: usize,
    /// Longest string value.
    pub string_bytes_max: usize,
    /// Maximum fields of one stream.
    pub fields_max: usize,
    /// Memory for names cached from one call to the next; above this limit all are dropped.
    pub cached_name_bytes_max: usize,
}

impl ParserOptions {
    /// Stamps of any unit, lines up to 4 MiB, strings up to 1 MiB, 1,024 fields.
    #[must_use]
    pub fn new(now: Timestamp) -> ParserOptions {
        ParserOptions {
            now,
            instants: None,
            precision: Precision::Auto,
            latest: None,
            line_bytes_max: 4 << 20,
            string_bytes_max: 1 << 20,
            fields_max: 1_024,
            cached_name_bytes_max: 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_reads_each_unit_by_magnitude() {
        for stamp in [
            1_356_998_400,
            1_356_998_400_000,
            1_356_998_400_000_000,
            1_356_998_400_000_000_000,
        ] {
            assert_eq!(
                Precision::Auto.to_nanos(stamp),
                Some(1_356_998_400_000_000_000)
            );
        }
        assert_eq!(Precision::Auto.to_nanos(-1), Some(-1_000_000_000));
        assert_eq!(Precision::Auto.to_nanos(9_999_999_999), None);
        assert_eq!(Precision::Auto.to_nanos(i64::MIN), Some(i64::MIN));
        assert_eq!(Precision::Seconds.to_nanos(i64::MAX), None);
        assert_eq!(Precision::Minutes.to_nanos(-2), Some(-120_000_000_000));
        assert_eq!(Precision::Hours.to_nanos(1), Some(3_600_000_000_000));
    }
}
