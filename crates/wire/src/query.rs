//! Query strings of URLs: `name=value&name=value`, percent-encoded.
//!
//! Invariants: no text makes the parser panic or store more than [`PAIRS_MAX`] pairs; an unknown
//! name, or a repeated name that is allowed once, is an error, never ignored. Times, levels and
//! numbers are read by the functions here, so that all routes understand the same texts.

use crate::durations::{DurationError, parse_duration_ns};
use crate::instant::{InstantError, Rfc3339, parse_instant};
use headwater_types::{ClosedRange, Timestamp};
use std::borrow::Cow;
use std::str::FromStr;

/// The most pairs of a query string.
pub const PAIRS_MAX: usize = 2_048;

/// Errors of a query string or one of its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// A `%` without two base-16 digits, or bytes that are not UTF-8.
    #[error("`{0}` is not percent-encoded UTF-8: a percent sign itself is written %25")]
    Encoding(String),
    /// More pairs than allowed.
    #[error("more than {PAIRS_MAX} parameters")]
    TooMany,
    /// No parameter has this name.
    #[error("unknown parameter `{name}`; known parameters: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Names that could be meant.
        known: String,
    },
    /// A name that is allowed once is repeated.
    #[error("parameter `{0}` is repeated: give it once")]
    Repeated(String),
    /// A required name is missing.
    #[error("parameter `{name}` is missing: {expected}")]
    Missing {
        /// The name.
        name: String,
        /// The form that was expected.
        expected: &'static str,
    },
    /// A value that cannot be read.
    #[error("parameter `{name}`: {reason}, found `{found}`")]
    Value {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
        /// The value, cut.
        found: String,
    },
}

impl QueryError {
    /// A value that cannot be read.
    pub fn value(name: &str, reason: impl Into<String>, found: &str) -> QueryError {
        QueryError::Value {
            name: name.to_owned(),
            reason: reason.into(),
            found: shorten(found),
        }
    }
}

/// At most 100 characters of a text.
fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

/// A parsed query string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads a query string without its `?`. A `+` is a space; a name without `=` has an empty
    /// value.
    ///
    /// ```
    /// use headwater_wire::query::Query;
    /// let query = Query::parse("channel=a.x&channel=b.x&level=-3")?;
    /// assert_eq!(query.all("channel").collect::<Vec<_>>(), ["a.x", "b.x"]);
    /// assert_eq!(query.number("level")?, Some(-3));
    /// # Ok::<(), headwater_wire::query::QueryError>(())
    /// ```
    ///
    /// # Errors
    /// For text that is not percent-encoded UTF-8, and for too many pairs.
    pub fn parse(raw: &str) -> Result<Query, QueryError> {
        let mut pairs = Vec::new();
        for part in raw.split('&').filter(|p| !p.is_empty()) {
            if pairs.len() == PAIRS_MAX {
                return Err(QueryError::TooMany);
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decoded = |text| {
                percent_decode(text, true).ok_or_else(|| QueryError::Encoding(shorten(part)))
            };
            pairs.push((decoded(name)?.into_owned(), decoded(value)?.into_owned()));
        }
        Ok(Query { pairs })
    }

    /// Refuses names that are not among `known`.
    ///
    /// # Errors
    /// For the first such name.
    pub fn only(&self, known: &[&str]) -> Result<(), QueryError> {
        match self
            .pairs
            .iter()
            .find(|(name, _)| !known.contains(&name.as_str()))
        {
            None => Ok(()),
            Some((name, _)) => Err(QueryError::Unknown {
                name: shorten(name),
                known: known.join(", "),
            }),
        }
    }

    /// All values of a name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a name that is allowed once.
    ///
    /// # Errors
    /// When the name is repeated.
    pub fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, QueryError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(QueryError::Repeated(name.to_owned())),
        }
    }

    /// The value of a required name.
    ///
    /// # Errors
    /// When the name is missing or repeated.
    pub fn required<'a>(
        &'a self,
        name: &'a str,
        expected: &'static str,
    ) -> Result<&'a str, QueryError> {
        self.one(name)?.ok_or_else(|| QueryError::Missing {
            name: name.to_owned(),
            expected,
        })
    }

    /// A number.
    ///
    /// # Errors
    /// When the name is repeated, or the value is not an integer of the requested type.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, QueryError> {
        self.one(name)?
            .map(|text| {
                text.parse()
                    .map_err(|_| QueryError::value(name, "expected an integer in its range", text))
            })
            .transpose()
    }

    /// An instant: integer nanoseconds, RFC 3339, `now`, `now-1h`, `now+5m`.
    ///
    /// # Errors
    /// When the name is repeated, or the value is not an instant.
    pub fn instant(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>, QueryError> {
        self.one(name)?
            .map(|text| {
                parse_instant_at(text, now)
                    .map_err(|e| QueryError::value(name, e.to_string(), text))
            })
            .transpose()
    }

    /// The instants from `from` (included) to `to` (not included); by default from the beginning to
    /// the end of time.
    ///
    /// # Errors
    /// As [`Query::instant`].
    pub fn range(&self, now: Timestamp) -> Result<ClosedRange, QueryError> {
        let from = self.instant("from", now)?.unwrap_or(Timestamp::MIN);
        Ok(match self.instant("to", now)? {
            Some(to) => ClosedRange::half_open(from, to),
            None => ClosedRange::new(from, Timestamp::MAX),
        })
    }

    /// A list of names between commas, or `None`. A backslash escapes the next character.
    ///
    /// # Errors
    /// When the name is repeated.
    pub fn list(&self, name: &str) -> Result<Option<Vec<String>>, QueryError> {
        let Some(text) = self.one(name)? else {
            return Ok(None);
        };
        let mut out = vec![String::new()];
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match (c, out.last_mut()) {
                (',', _) => out.push(String::new()),
                ('\\', Some(last)) => last.extend(chars.next()),
                (c, Some(last)) => last.push(c),
                (_, None) => {}
            }
        }
        Ok(Some(out))
    }
}

/// An instant relative to the clock, or an absolute one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelativeInstantError {
    /// Not absolute either.
    #[error("{0}; or now, now-1h")]
    Instant(#[from] InstantError),
    /// After `now-`.
    #[error("{0}")]
    Duration(#[from] DurationError),
    /// A bare number of nanoseconds soon after 1970, where data is removed.
    #[error(
        "a number alone is nanoseconds since 1970, and {0} is {at}: to remove rows, write the instant as {year}-01-01, {year}-01-01T00:00:00Z, or now-30d",
        at = Rfc3339(Timestamp::from_nanos(*.0)),
        year = year_of(*.0)
    )]
    Bare(i64),
}

/// Numbers nearer to 0 are refused as instants where data is removed: as nanoseconds they are
/// within four months of 1970, and they may be years, or seconds to microseconds of our time.
pub const BARE_REMOVAL_MIN: i64 = 10_000_000_000_000_000;

/// The year that a number may be, for advice.
fn year_of(number: i64) -> i64 {
    match number {
        1_678..=2_261 => number,
        _ => 2_024,
    }
}

/// Reads an instant from or to which data is removed: as [`parse_instant_at`], except that a bare
/// number is refused where it is soon before or after 1970.
///
/// ```
/// use headwater_wire::query::parse_removal_at;
/// use headwater_types::Timestamp;
/// let now = Timestamp::from_nanos(10_000_000_000);
/// assert!(parse_removal_at("2020", now).is_err());
/// assert!(parse_removal_at("1700000000000", now).is_err());
/// assert_eq!(parse_removal_at("1970-01-02", now)?.as_nanos(), 86_400_000_000_000);
/// # Ok::<(), headwater_wire::query::RelativeInstantError>(())
/// ```
///
/// # Errors
/// When the text is not an instant, or is such a number.
pub fn parse_removal_at(text: &str, now: Timestamp) -> Result<Timestamp, RelativeInstantError> {
    let at = parse_instant_at(text, now)?;
    let text = text.trim_ascii();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_bare = digits.bytes().all(|b| b.is_ascii_digit());
    match is_bare && at.as_nanos().unsigned_abs() < BARE_REMOVAL_MIN.unsigned_abs() {
        true => Err(RelativeInstantError::Bare(at.as_nanos())),
        false => Ok(at),
    }
}

/// Reads an instant as [`parse_instant`] does, or `now`, `now-1h`, `now+5m`.
///
/// ```
/// use headwater_wire::query::parse_instant_at;
/// use headwater_types::Timestamp;
/// let now = Timestamp::from_nanos(10_000_000_000);
/// assert_eq!(parse_instant_at("now-3s", now)?.as_nanos(), 7_000_000_000);
/// # Ok::<(), headwater_wire::query::RelativeInstantError>(())
/// ```
///
/// # Errors
/// When the text is not an instant. Instants beyond the range are clamped to its end.
pub fn parse_instant_at(text: &str, now: Timestamp) -> Result<Timestamp, RelativeInstantError> {
    let Some(rest) = text.strip_prefix("now") else {
        return Ok(parse_instant(text)?);
    };
    let ns = now.as_nanos();
    Ok(Timestamp::from_nanos(match rest.split_at_checked(1) {
        None => ns,
        Some(("-", by)) => ns.saturating_sub(parse_duration_ns(by)?),
        // An unencoded `+` in a query string is a space.
        Some(("+" | " ", by)) => ns.saturating_add(parse_duration_ns(by)?),
        Some(_) => return Ok(parse_instant(text)?),
    }))
}

/// Decodes `%41` to `A`; with `plus`, `+` to a space. `None` for bad escapes and for results that
/// are not UTF-8.
#[must_use]
pub fn percent_decode(text: &str, plus: bool) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|b| b == b'%' || (plus && b == b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let (high, low) = (base16(bytes.next()?)?, base16(bytes.next()?)?);
                high << 4 | low
            }
            b'+' if plus => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

fn base16(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pairs_are_decoded() {
        let query = Query::parse("a=1+2&b=%C3%A9%2c&&c&d=x=y").unwrap();
        assert_eq!(query.one("a").unwrap(), Some("1 2"));
        assert_eq!(query.one("b").unwrap(), Some("é,"));
        assert_eq!(query.one("c").unwrap(), Some(""));
        assert_eq!(query.one("d").unwrap(), Some("x=y"));
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff", "%=1"] {
            assert!(
                matches!(Query::parse(bad), Err(QueryError::Encoding(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn names_are_checked() {
        let query = Query::parse("limit=5&limit=6&level=x").unwrap();
        assert_eq!(
            query.only(&["limit"]),
            Err(QueryError::Unknown {
                name: "level".into(),
                known: "limit".into()
            })
        );
        assert_eq!(
            query.one("limit"),
            Err(QueryError::Repeated("limit".into()))
        );
        assert!(query.number::<i32>("level").is_err());
        assert!(query.required("stream", "a stream").is_err());
        let many = "a&".repeat(PAIRS_MAX + 1);
        assert_eq!(Query::parse(&many), Err(QueryError::TooMany));
    }

    #[test]
    fn times_are_absolute_or_relative() {
        let now = Timestamp::from_nanos(100);
        let range = |text: &str| Query::parse(text).unwrap().range(now);
        assert_eq!(range("from=5&to=10"), Ok(ClosedRange::nanos(5, 9)));
        assert_eq!(range("").unwrap(), ClosedRange::ALL);
        assert_eq!(
            range("from=now-40ns&to=now").unwrap(),
            ClosedRange::nanos(60, 99)
        );
        assert_eq!(range("from=now%2B1ns").unwrap().first.as_nanos(), 101);
        assert_eq!(
            range("from=now-292y").unwrap().first.as_nanos(),
            100 - 292 * 31_536_000_000_000_000
        );
        assert!(range("from=9&to=3").unwrap().is_empty());
        assert!(range("from=nowhere").is_err() && range("from=now-5").is_err());
    }

    #[test]
    fn lists_are_cut_at_commas() {
        let query = Query::parse("fields=a,b%5C,c,,").unwrap();
        assert_eq!(query.list("fields").unwrap().unwrap(), ["a", "b,c", "", ""]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            if let Ok(query) = Query::parse(&text) {
                let _ = query.range(Timestamp::from_nanos(0));
                let _ = query.list("fields");
            }
            let _ = parse_instant_at(&text, Timestamp::MAX);
        }
    }
}
