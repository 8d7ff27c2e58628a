//! PostgreSQL's text formats of times: `2016-01-01 12:30`, `20160101`, `2001-01-01 06:00+00`,
//! `today`; a year out of the range of instants is an open end.

use headwater_wire::instant::format_instant;
use std::fmt;

const DAY_NS: i64 = 86_400_000_000_000;

/// A day and a time of day, with an offset from UTC if the text has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    year: i32,
    month: u32,
    day: u32,
    /// Nanoseconds of the day; 24 hours mean the end of the day.
    ns: i64,
    offset_seconds: Option<i32>,
}

/// A special word for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Now,
    /// The day this many days after today.
    Day(i64),
    Epoch,
    /// After, or before, every instant.
    End {
        last: bool,
    },
}

/// Parses a special word.
pub(crate) fn word(text: &str) -> Option<Word> {
    let text = text.trim();
    if text.len() > 9 {
        return None;
    }
    Some(match text.to_ascii_lowercase().as_str() {
        "now" => Word::Now,
        "today" => Word::Day(0),
        "tomorrow" => Word::Day(1),
        "yesterday" => Word::Day(-1),
        "epoch" => Word::Epoch,
        "infinity" => Word::End { last: true },
        "-infinity" => Word::End { last: false },
        _ => return None,
    })
}

fn digits<T: std::str::FromStr>(text: &str, at_most: usize) -> Option<T> {
    let all = text.bytes().all(|b| b.is_ascii_digit());
    (all && !text.is_empty() && text.len() <= at_most)
        .then(|| text.parse().ok())
        .flatten()
}

fn days_of(year: i32, month: u32) -> u32 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `2016-01-31`, `2016/1/31`, `20160131`.
fn date(text: &str) -> Option<(i32, u32, u32)> {
    let separator = if text.contains('/') { '/' } else { '-' };
    let (year, month, day) = match text.split_once(separator) {
        Some((year, rest)) => {
            let (month, day) = rest.split_once(separator)?;
            if year.len() < 4 {
                return None;
            }
            (digits(year, 6)?, digits(month, 2)?, digits(day, 2)?)
        }
        None if text.len() == 8 && text.is_ascii() => (
            digits(text.get(..4)?, 4)?,
            digits(text.get(4..6)?, 2)?,
            digits(text.get(6..)?, 2)?,
        ),
        None => return None,
    };
    let is_day = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    is_day.then_some((year, month, day))
}

/// `12:30`, `12:30:05.25`, `123005`; the nanoseconds of the day.
fn clock(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let (hours, minutes, seconds): (i64, i64, i64) = match whole.contains(':') {
        true => (
            digits(parts.next()?, 2)?,
            digits(parts.next()?, 2)?,
            parts.next().map_or(Some(0), |s| digits(s, 2))?,
        ),
        false if whole.len() == 6 && whole.is_ascii() => (
            digits(whole.get(..2)?, 2)?,
            digits(whole.get(2..4)?, 2)?,
            digits(whole.get(4..)?, 2)?,
        ),
        false => return None,
    };
    if whole.contains(':') && parts.next().is_some() {
        return None;
    }
    if hours > 24 || minutes > 59 || seconds > 60 {
        return None;
    }
    let mut ns = 0i64;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    for at in 0..9 {
        let digit = fraction.as_bytes().get(at).map_or(0, |b| b - b'0');
        ns = ns * 10 + i64::from(digit);
    }
    let ns = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + ns;
    (ns <= DAY_NS).then_some(ns)
}

/// `Z`, `UTC`, `+02`, `+02:00`, `-0330`; seconds east of UTC.
fn offset(text: &str) -> Option<i32> {
    if ["z", "utc", "gmt"]
        .iter()
        .any(|utc| text.eq_ignore_ascii_case(utc))
    {
        return Some(0);
    }
    let (sign, rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (1, rest),
        (_, Some(rest)) => (-1, rest),
        _ => return None,
    };
    let mut parts = rest.split(':');
    let (hours, minutes, seconds): (i32, i32, i32) = match (rest.contains(':'), rest.len()) {
        (true, _) => (
            digits(parts.next()?, 2)?,
            digits(parts.next()?, 2)?,
            parts.next().map_or(Some(0), |s| digits(s, 2))?,
        ),
        (false, 4) => (digits(rest.get(..2)?, 2)?, digits(rest.get(2..)?, 2)?, 0),
        (false, _) => (digits(rest, 2)?, 0, 0),
    };
    (hours < 16 && minutes < 60 && seconds < 60)
        .then_some(sign * (hours * 3_600 + minutes * 60 + seconds))
}

/// Parses a time; `None` = invalid, or an unsupported format.
pub(crate) fn read(text: &str) -> Option<Time> {
    let text = text.trim();
    let split = text
        .find(['T', 't', ' '])
        .map(|at| (text.get(..at), text.get(at + 1..)));
    let (day, rest) = match split {
        Some((Some(day), Some(rest))) => (day, rest.trim_start()),
        _ => (text, ""),
    };
    let (year, month, day) = date(day)?;
    let end = rest
        .find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'))
        .unwrap_or(rest.len());
    let (time, zone) = rest.split_at_checked(end)?;
    let ns = if time.is_empty() { 0 } else { clock(time)? };
    let zone = zone.trim();
    let offset_seconds = match zone {
        "" => None,
        zone => Some(offset(zone)?),
    };
    Some(Time {
        year,
        month,
        day,
        ns,
        offset_seconds,
    })
}

impl Time {
    /// Days from 1970-01-01.
    fn days(&self) -> i64 {
        let (year, month) = (i64::from(self.year), i64::from(self.month));
        let year = if month <= 2 { year - 1 } else { year };
        let era = year.div_euclid(400);
        let of_era = year.rem_euclid(400);
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        let of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        era * 146_097 + of_era - 719_468
    }

    /// Nanoseconds since 1970; as UTC without an offset.
    fn nanos(&self) -> i128 {
        let offset = i128::from(self.offset_seconds.unwrap_or(0)) * 1_000_000_000;
        i128::from(self.days()) * i128::from(DAY_NS) + i128::from(self.ns) - offset
    }

    /// The end of time that it exceeds; `None` = a representable instant.
    pub(crate) fn beyond(&self) -> Option<i64> {
        match i64::try_from(self.nanos()) {
            Ok(_) => None,
            Err(_) if self.nanos() > 0 => Some(i64::MAX),
            Err(_) => Some(i64::MIN),
        }
    }

    /// The day only.
    pub(crate) fn date(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// In the SQL library's format.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut day = *self;
        let mut ns = self.ns;
        if ns == DAY_NS {
            ns = 0;
            if day.day < days_of(day.year, day.month) {
                day.day += 1;
            } else if day.month < 12 {
                (day.month, day.day) = (day.month + 1, 1);
            } else {
                (day.year, day.month, day.day) = (day.year + 1, 1, 1);
            }
        }
        let seconds = ns / 1_000_000_000;
        write!(
            f,
            "{}T{:02}:{:02}:{:02}",
            day.date(),
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60
        )?;
        match ns % 1_000_000_000 {
            0 => {}
            part => write!(f, ".{part:09}")?,
        }
        match self.offset_seconds {
            None => Ok(()),
            Some(offset) => {
                let (sign, all) = (if offset < 0 { '-' } else { '+' }, offset.abs());
                write!(f, "{sign}{:02}:{:02}", all / 3_600, all / 60 % 60)
            }
        }
    }
}

/// A text of a time in the SQL library's format; other texts are unchanged.
pub(crate) fn canonical(text: &str) -> std::borrow::Cow<'_, str> {
    match read(text) {
        Some(time) if time.offset_seconds.is_none_or(|offset| offset % 60 == 0) => {
            time.to_string().into()
        }
        // The library does not support seconds in an offset.
        Some(time) => match i64::try_from(time.nanos()) {
            Ok(ns) => format_instant(headwater::Timestamp::from_nanos(ns)).into(),
            Err(_) => text.into(),
        },
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn times_are_read_as_postgresql_reads_them() {
        for (text, made) in [
            ("2016-01-01", "2016-01-01T00:00:00"),
            ("20160101", "2016-01-01T00:00:00"),
            ("2016/1/2", "2016-01-02T00:00:00"),
            ("2016-01-01 12:30", "2016-01-01T12:30:00"),
            ("2016-01-01T12:30Z", "2016-01-01T12:30:00+00:00"),
            ("2001-01-01 06:00+00", "2001-01-01T06:00:00+00:00"),
            (
                "2001-01-01 06:00:07.5 -03:30",
                "2001-01-01T06:00:07.500000000-03:30",
            ),
            ("2001-01-01 06:00-0330", "2001-01-01T06:00:00-03:30"),
            ("2001-01-01 UTC", "2001-01-01T00:00:00+00:00"),
            ("20010101T060000", "2001-01-01T06:00:00"),
            (" 2001-12-31 24:00 ", "2002-01-01T00:00:00"),
        ] {
            assert_eq!(canonical(text), made, "{text}");
        }
        for text in [
            "",
            "x",
            "2016-13-01",
            "2016-02-30",
            "2016-01-01 25:00",
            "2016-01-01 12",
            "12:30",
            "2016-01-01 12:30 Mars",
            "201601",
            "2016-01-01 12:30:",
            "1-2-3",
        ] {
            assert!(read(text).is_none(), "{text}");
            assert_eq!(canonical(text), text);
        }
    }

    #[test]
    fn years_beyond_instants_are_open_ends() {
        for (text, beyond) in [
            ("9999-01-01", Some(i64::MAX)),
            ("0001-01-01", Some(i64::MIN)),
            ("2262-04-11 23:47:16", None),
            ("2262-04-12", Some(i64::MAX)),
            ("1677-09-21", Some(i64::MIN)),
            ("1677-09-22", None),
        ] {
            assert_eq!(read(text).unwrap().beyond(), beyond, "{text}");
        }
        assert_eq!(read("1970-01-01").unwrap().nanos(), 0);
        assert_eq!(
            read("2000-03-01 00:00+01").unwrap().nanos(),
            951_865_200_000_000_000
        );
        assert_eq!(word("Today"), Some(Word::Day(0)));
        assert_eq!(word("day"), None);
    }
}
