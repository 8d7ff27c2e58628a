//! Values as text: sizes, durations, counts, switches, addresses.
//!
//! Invariant: a shown value reads back as the same value.

use headwater_wire::durations::parse_duration_ns;
use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

/// Units of sizes, largest first.
const UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Reads `64MiB`, `64MB` or `65536`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1));
    let number = digits.trim_ascii_end();
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    plain
        .then(|| number.parse::<u64>().ok()?.checked_mul(unit))
        .flatten()
        .ok_or_else(|| "expected a size such as 64MiB, 64MB or 65536".to_owned())
}

pub(crate) fn show_size(bytes: u64) -> String {
    let unit = UNITS[..3]
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    match unit {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}"),
    }
}

/// Reads `10s`, `1h30m`, `250ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let ns = parse_duration_ns(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_nanos(ns.unsigned_abs()))
}

pub(crate) fn show_duration(duration: Duration) -> String {
    const PARTS: [(&str, u128); 7] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (name, unit) in PARTS {
        if rest >= unit {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}{name}", rest / unit);
            rest %= unit;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

pub(crate) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Reads a whole number.
pub(crate) fn parse_count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "expected a whole number that is not too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_read_back() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("65537", 65_537),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes));
            assert_eq!(show_size(bytes), text);
        }
        assert_eq!(parse_size("64 MB"), Ok(64_000_000));
        for text in ["", "MiB", "1.5GiB", "-1", "+1", "99999999999GiB", "1 2"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in ["10s", "1h30m", "250ms", "1d", "1s5ns"] {
            let read = parse_duration(text).map(show_duration);
            assert_eq!(read.as_deref(), Ok(text));
        }
        assert!(parse_duration("1").is_err() && parse_duration("0s").is_err());
    }
}
