//! Lengths of time as text: `10s 5m 1h 7d 4w 1y 250ms 10us 5ns`, also joined: `1h30m`.
//!
//! Invariant: a year is 365 days; lengths are positive and at most `i64::MAX` nanoseconds (292
//! years).

/// The units, longest name first so that `ms` is not read as `m`.
const UNITS: [(&str, i64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
    ("y", 31_536_000_000_000_000),
];

/// Text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// The number is missing, or the unit after it.
    #[error(
        "expected a number and a unit (ns us ms s m h d w y), such as 10s, 250ms or 1h30m, found `{0}`"
    )]
    Shape(String),
    /// The shortest duration is a nanosecond.
    #[error("a length of time must be longer than zero")]
    Zero,
    /// Longer than 292 years.
    #[error("`{0}` is longer than 292 years")]
    TooLong(String),
}

/// Reads a length of time, in nanoseconds.
///
/// ```
/// use headwater_wire::durations::parse_duration_ns;
/// assert_eq!(parse_duration_ns("250ms")?, 250_000_000);
/// assert_eq!(parse_duration_ns("1h30m")?, 5_400_000_000_000);
/// # Ok::<(), headwater_wire::durations::DurationError>(())
/// ```
///
/// # Errors
/// When the text has another form, is zero, or is longer than 292 years.
pub fn parse_duration_ns(text: &str) -> Result<i64, DurationError> {
    let shape = || DurationError::Shape(text.to_owned());
    let mut rest = text.trim_ascii();
    if rest.is_empty() {
        return Err(shape());
    }
    let mut total = 0i64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits).ok_or_else(shape)?;
        let letters = tail.bytes().take_while(|b| !b.is_ascii_digit()).count();
        let (unit, tail) = tail.split_at_checked(letters).ok_or_else(shape)?;
        let unit = if unit == "µs" { "us" } else { unit };
        let (_, unit_ns) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(shape)?;
        if number.is_empty() {
            return Err(shape());
        }
        total = number
            .parse::<i64>()
            .ok()
            .and_then(|n| n.checked_mul(*unit_ns))
            .and_then(|n| n.checked_add(total))
            .ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
        rest = tail;
    }
    if total == 0 {
        return Err(DurationError::Zero);
    }
    Ok(total)
}

/// Writes a length of time in its largest whole unit: `90m`, not `1.5h`.
#[must_use]
pub fn format_duration_ns(nanos: i64) -> String {
    let (name, unit_ns) = UNITS
        .iter()
        .rev()
        .find(|(_, unit_ns)| nanos % unit_ns == 0)
        .unwrap_or(&("ns", 1));
    format!("{}{name}", nanos / unit_ns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_mean_what_they_say() {
        for (text, expected) in [
            ("5ns", 5),
            ("10us", 10_000),
            ("10µs", 10_000),
            ("250ms", 250_000_000),
            ("10s", 10_000_000_000),
            ("5m", 300_000_000_000),
            ("1h", 3_600_000_000_000),
            ("7d", 604_800_000_000_000),
            ("4w", 2_419_200_000_000_000),
            ("1y", 31_536_000_000_000_000),
            (" 1d12h ", 129_600_000_000_000),
        ] {
            assert_eq!(parse_duration_ns(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "5", "s", "5 s", "-5s", "5x", "1.5h", "5sm", "µ"] {
            let found = parse_duration_ns(text);
            assert!(
                matches!(found, Err(DurationError::Shape(_))),
                "{text}: {found:?}"
            );
        }
        assert_eq!(parse_duration_ns("0s"), Err(DurationError::Zero));
        assert!(matches!(
            parse_duration_ns("293y"),
            Err(DurationError::TooLong(_))
        ));
    }

    proptest! {
        #[test]
        fn lengths_read_back(nanos in 1i64..) {
            prop_assert_eq!(parse_duration_ns(&format_duration_ns(nanos)), Ok(nanos));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = parse_duration_ns(&text);
        }
    }
}
