//! PostgreSQL's text formats of intervals: `1 day 02:03:04`, `01:00`, `1-2`, `P1DT2H`, `-1.5
//! hours`, `3 mons ago`.

use crate::error::Error;
use arrow::datatypes::IntervalMonthDayNano;

const SECOND_NS: i128 = 1_000_000_000;
const DAY_NS: i128 = 86_400 * SECOND_NS;

/// A sum of months, days and nanoseconds.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    ns: i128,
}

/// Kinds of units: months, days or nanoseconds.
#[derive(Clone, Copy)]
enum Unit {
    Months(i64),
    Days(i64),
    Ns(i128),
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name {
        "ns" | "nanosecond" | "nanoseconds" | "nanosecs" | "nanosec" => Unit::Ns(1),
        "us" | "µs" | "usec" | "usecs" | "microsecond" | "microseconds" | "microsecs"
        | "microsec" => Unit::Ns(1_000),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" | "millisecs" | "millisec" => {
            Unit::Ns(1_000_000)
        }
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Ns(SECOND_NS),
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Ns(60 * SECOND_NS),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Ns(3_600 * SECOND_NS),
        "d" | "day" | "days" => Unit::Days(1),
        "w" | "week" | "weeks" => Unit::Days(7),
        "mon" | "mons" | "month" | "months" => Unit::Months(1),
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Months(12),
        "dec" | "decs" | "decade" | "decades" => Unit::Months(120),
        "c" | "cent" | "century" | "centuries" => Unit::Months(1_200),
        "mil" | "mils" | "millennium" | "millennia" | "millenniums" => Unit::Months(12_000),
        _ => return None,
    })
}

/// A number with a sign and a fraction.
#[derive(Clone, Copy)]
struct Number {
    negative: bool,
    whole: i64,
    /// In units of 10^-12.
    parts: i128,
}

const PARTS: i128 = 1_000_000_000_000;

fn number(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if !whole
        .bytes()
        .chain(fraction.bytes())
        .all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut parts = 0i128;
    for at in 0..12 {
        let digit = fraction.as_bytes().get(at).map_or(0, |b| b - b'0');
        parts = parts * 10 + i128::from(digit);
    }
    Some(Number {
        negative,
        whole,
        parts,
    })
}

impl Sum {
    /// Adds a number of units; a fraction of a month becomes days, a fraction of a day hours.
    fn add(&mut self, number: Number, unit: Unit) -> Option<()> {
        let sign = if number.negative { -1 } else { 1 };
        let days = |sum: &mut Sum, parts: i128| -> Option<()> {
            // In units of 10^-12 days.
            let whole = i64::try_from(parts / PARTS).ok()?;
            sum.days = sum.days.checked_add(i64::from(sign) * whole)?;
            sum.ns += i128::from(sign) * (parts % PARTS) * DAY_NS / PARTS;
            Some(())
        };
        match unit {
            Unit::Ns(ns) => {
                let whole = i128::from(number.whole).checked_mul(ns)?;
                let part = (number.parts * ns + PARTS / 2) / PARTS;
                self.ns = self.ns.checked_add(i128::from(sign) * (whole + part))?;
            }
            Unit::Days(width) => {
                let whole = number
                    .whole
                    .checked_mul(width)?
                    .checked_mul(i64::from(sign))?;
                self.days = self.days.checked_add(whole)?;
                days(self, number.parts * i128::from(width))?;
            }
            Unit::Months(width) => {
                let parts = number.parts * i128::from(width);
                let whole = number.whole.checked_mul(width)?;
                let whole = whole.checked_add(i64::try_from(parts / PARTS).ok()?)?;
                self.months = self
                    .months
                    .checked_add(whole.checked_mul(i64::from(sign))?)?;
                // A fraction of a month is a part of 30 days; a fraction of a year is whole months
                // only.
                if width == 1 {
                    days(self, parts % PARTS * 30)?;
                }
            }
        }
        Some(())
    }

    fn clock(&mut self, text: &str) -> Option<()> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let mut parts = rest.split(':');
        let hours: i128 = parts.next()?.parse::<u32>().ok()?.into();
        let minutes: i128 = parts.next()?.parse::<u32>().ok()?.into();
        let seconds = match parts.next() {
            None => Number {
                negative: false,
                whole: 0,
                parts: 0,
            },
            Some(text) if text.starts_with(|c: char| c.is_ascii_digit()) => number(text)?,
            Some(_) => return None,
        };
        if parts.next().is_some() || minutes > 59 || seconds.whole > 60 {
            return None;
        }
        let ns = (hours * 3_600 + minutes * 60 + i128::from(seconds.whole)) * SECOND_NS
            + (seconds.parts * SECOND_NS + PARTS / 2) / PARTS;
        self.ns += if negative { -ns } else { ns };
        Some(())
    }

    /// `P1Y2M3DT4H5M6.7S`, without the `P`.
    fn iso(&mut self, text: &str) -> Option<()> {
        let mut rest = text;
        let mut clock = false;
        let mut any = false;
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix(['T', 't']) {
                clock = true;
                rest = behind;
                continue;
            }
            let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let (digits, behind) = rest.split_at_checked(end)?;
            let letter = behind.chars().next()?.to_ascii_uppercase();
            let unit = match (letter, clock) {
                ('Y', false) => Unit::Months(12),
                ('M', false) => Unit::Months(1),
                ('W', false) => Unit::Days(7),
                ('D', false) => Unit::Days(1),
                ('H', true) => Unit::Ns(3_600 * SECOND_NS),
                ('M', true) => Unit::Ns(60 * SECOND_NS),
                ('S', true) => Unit::Ns(SECOND_NS),
                _ => return None,
            };
            self.add(number(digits)?, unit)?;
            any = true;
            rest = behind.get(1..)?;
        }
        any.then_some(())
    }

    fn finish(self) -> Option<IntervalMonthDayNano> {
        Some(IntervalMonthDayNano::new(
            i32::try_from(self.months).ok()?,
            i32::try_from(self.days).ok()?,
            i64::try_from(self.ns).ok()?,
        ))
    }
}

/// Parses an interval; `None` = invalid or out of range.
pub(crate) fn read(text: &str) -> Option<IntervalMonthDayNano> {
    let text = text.trim();
    let mut sum = Sum::default();
    if let Some(iso) = text.strip_prefix(['P', 'p']) {
        sum.iso(iso)?;
        return sum.finish();
    }
    let lower = text.to_lowercase();
    let lower = lower.strip_prefix('@').unwrap_or(&lower);
    let mut words = words(lower);
    let ago = words.last().is_some_and(|last| *last == "ago");
    if ago {
        words.pop();
    }
    let mut any = false;
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        any = true;
        if word.contains(':') {
            sum.clock(word)?;
        } else if let Some((years, months)) = years_and_months(word) {
            let sign = if word.starts_with('-') { -1 } else { 1 };
            sum.months += sign * (years * 12 + months);
        } else {
            let number = number(word)?;
            match rest.peek().map(|next| unit(next)) {
                Some(Some(unit)) => {
                    rest.next();
                    sum.add(number, unit)?;
                }
                // Days before a time of day, or seconds.
                Some(None) if rest.peek().is_some_and(|next| next.contains(':')) => {
                    sum.add(number, Unit::Days(1))?;
                }
                None => sum.add(number, Unit::Ns(SECOND_NS))?,
                Some(None) => return None,
            }
        }
    }
    if !any {
        return None;
    }
    if ago {
        sum = Sum {
            months: -sum.months,
            days: -sum.days,
            ns: -sum.ns,
        };
    }
    sum.finish()
}

/// Nanoseconds of an interval as text; `None` unless it has no months and is greater than zero.
pub(crate) fn nanoseconds(text: &str) -> Option<i64> {
    const DAY_NS: i64 = 86_400_000_000_000;
    let read = read(text).filter(|read| read.months == 0)?;
    let days = i64::from(read.days).checked_mul(DAY_NS)?;
    days.checked_add(read.nanoseconds).filter(|ns| *ns > 0)
}

/// Error for a text that is not an interval.
pub(crate) fn no_interval(text: &str) -> Error {
    Error::invalid_value(format!("'{text}' is not an interval"))
        .with_hint("for example: '1 day', '90 minutes', '01:30:00', 'P1DT2H'")
}

/// Splits a text into numbers and words: a number ends where a letter begins.
fn words(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for part in text.split(|c: char| c.is_whitespace() || c == ',') {
        let mut rest = part;
        while !rest.is_empty() {
            let letters = rest.starts_with(char::is_alphabetic);
            let end = rest
                .find(|c: char| c.is_alphabetic() != letters)
                .unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            out.push(word);
            rest = behind;
        }
    }
    out
}

/// `1-2`, years and months.
fn years_and_months(word: &str) -> Option<(i64, i64)> {
    let (years, months) = word.trim_start_matches(['-', '+']).split_once('-')?;
    let months: i64 = months.parse().ok()?;
    (0..12)
        .contains(&months)
        .then_some((years.parse().ok()?, months))
}

/// The same interval in the SQL library's format.
pub(super) fn canonical(text: &str) -> Option<String> {
    let of = read(text)?;
    Some(format!(
        "{} months {} days {} nanoseconds",
        of.months, of.days, of.nanoseconds
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn intervals_are_read_as_postgresql_reads_them() {
        const HOUR: i64 = 3_600_000_000_000;
        const S: i64 = 1_000_000_000;
        for (text, months, days, ns) in [
            ("1 day", 0, 1, 0),
            ("01:00:00", 0, 0, HOUR),
            ("01:30", 0, 0, HOUR + HOUR / 2),
            ("-01:30", 0, 0, -HOUR - HOUR / 2),
            ("1 day 02:03:04.5", 0, 1, 2 * HOUR + 184 * S + S / 2),
            ("1 day -02:00", 0, 1, -2 * HOUR),
            ("3 04:00", 0, 3, 4 * HOUR),
            ("P1DT2H", 0, 1, 2 * HOUR),
            ("P1Y2M3W4DT5H6M7.25S", 14, 25, 5 * HOUR + 367 * S + S / 4),
            ("PT-1H", 0, 0, -HOUR),
            ("1-2", 14, 0, 0),
            (
                "1 year 2 mons 3 days 4 hours 5 mins 6 secs",
                14,
                3,
                4 * HOUR + 306 * S,
            ),
            ("1.5 days", 0, 1, 12 * HOUR),
            ("1.5 months", 1, 15, 0),
            ("1.5 years", 18, 0, 0),
            ("1.5 hours", 0, 0, HOUR + HOUR / 2),
            ("2 hours ago", 0, 0, -2 * HOUR),
            ("-1 day", 0, -1, 0),
            ("5m", 0, 0, 300 * S),
            ("1h30m", 0, 0, HOUR + HOUR / 2),
            ("90", 0, 0, 90 * S),
            ("250 ms", 0, 0, S / 4),
            ("7 ns", 0, 0, 7),
            ("1 week", 0, 7, 0),
        ] {
            let read = read(text).map(|of| (of.months, of.days, of.nanoseconds));
            assert_eq!(read, Some((months, days, ns)), "{text}");
        }
        for text in [
            "",
            "day",
            "1 fortnight",
            "P",
            "P1H",
            "1:2:3:4",
            "x",
            "1 2 3",
            "ago",
        ] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
