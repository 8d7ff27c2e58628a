//! Values of command line arguments: instants, durations, sizes, tag filters.

use crate::clock::now;
use clap::Args;
use headwater::{ClosedRange, Timestamp};
use headwater_wire::durations::parse_duration_ns;
use headwater_wire::query::{parse_instant_at, parse_removal_at};
use std::time::Duration;

pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    parse_instant_at(text, now()).map_err(|error| error.to_string())
}

/// An instant from or to which something is removed.
fn parse_removal(text: &str) -> Result<Timestamp, String> {
    parse_removal_at(text, now()).map_err(|error| error.to_string())
}

pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    parse_duration_ns(text).map_err(|error| error.to_string())
}

/// `64MiB`, `64MB`, `65536`.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, usize); 8] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1));
    digits
        .trim()
        .parse::<usize>()
        .ok()
        .and_then(|n| n.checked_mul(unit))
        .ok_or_else(|| "expected a size such as 64MiB, 64MB or 65536".to_owned())
}

/// A lifetime: a duration, or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime(pub(crate) Option<Duration>);

pub(crate) fn parse_lifetime(text: &str) -> Result<Lifetime, String> {
    if text == "forever" {
        return Ok(Lifetime(None));
    }
    let ns = parse_duration(text).map_err(|error| format!("{error}; or `forever`"))?;
    Ok(Lifetime(Some(Duration::from_nanos(ns.unsigned_abs()))))
}

/// Reads a tag and its value: `TAG=VALUE`.
pub(crate) fn parse_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((tag, value)) if !tag.is_empty() => Ok((tag.to_owned(), value.to_owned())),
        _ => Err("expected TAG=VALUE".to_owned()),
    }
}

/// One byte between cells; `\t` or `tab` is a tab.
pub(crate) fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') && byte.is_ascii() => Ok(*byte),
        _ => Err("expected one ASCII character, or tab".to_owned()),
    }
}

/// A half-open range of time.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RangeArgs {
    /// First instant
    #[arg(long, value_name = "T", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) from: Option<Timestamp>,

    /// End of the range, exclusive
    #[arg(long, value_name = "T", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) to: Option<Timestamp>,
}

/// A half-open range of time of which something is removed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RemovedRange {
    /// First instant to remove; a number alone is refused if it is near 1970
    #[arg(long, value_name = "T", value_parser = parse_removal, allow_hyphen_values = true)]
    pub(crate) from: Option<Timestamp>,

    /// End of the range, exclusive
    #[arg(long, value_name = "T", value_parser = parse_removal, allow_hyphen_values = true)]
    pub(crate) to: Option<Timestamp>,
}

impl RemovedRange {
    pub(crate) fn range(self) -> ClosedRange {
        let RemovedRange { from, to } = self;
        RangeArgs { from, to }.range()
    }
}

impl RangeArgs {
    pub(crate) fn range(self) -> ClosedRange {
        let from = self.from.unwrap_or(Timestamp::MIN);
        match self.to {
            Some(to) => ClosedRange::half_open(from, to),
            None => ClosedRange::new(from, Timestamp::MAX),
        }
    }

    /// The ends that were given, as a server reads them.
    pub(crate) fn texts(self) -> impl Iterator<Item = (&'static str, String)> {
        let ends = [("from", self.from), ("to", self.to)].into_iter();
        ends.filter_map(|(name, at)| Some((name, at?.as_nanos().to_string())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn sizes_and_filters_are_read() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("4MB"), Ok(4_000_000));
        assert_eq!(parse_size("17"), Ok(17));
        assert!(parse_size("MiB").is_err() && parse_size("1.5GiB").is_err());
        assert_eq!(parse_tag("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(parse_tag("a").is_err() && parse_tag("=b").is_err());
        assert_eq!(parse_delimiter("tab"), Ok(b'\t'));
        assert!(parse_delimiter("\"").is_err() && parse_delimiter("ab").is_err());
    }

    #[test]
    fn times_may_be_relative_to_now() {
        let hour = 3_600_000_000_000;
        let ago = parse_time("now-1h").unwrap().as_nanos();
        let passed = now().as_nanos() - ago;
        assert!((hour..2 * hour).contains(&passed), "{passed}");
        assert!(parse_time("now-1").unwrap_err().contains("unit"));
        assert_eq!(parse_time("1970-01-02").unwrap().as_nanos(), 24 * hour);
    }

    #[test]
    fn ranges_leave_their_end_out() {
        let at = |n| Some(Timestamp::from_nanos(n));
        let range = RangeArgs {
            from: at(1),
            to: at(5),
        }
        .range();
        assert_eq!(range, ClosedRange::nanos(1, 4));
        assert_eq!(
            RangeArgs {
                from: None,
                to: None
            }
            .range(),
            ClosedRange::ALL
        );
        assert!(
            RangeArgs {
                from: at(5),
                to: at(5)
            }
            .range()
            .is_empty()
        );
    }
}
