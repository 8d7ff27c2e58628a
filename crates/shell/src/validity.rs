//! Validity of certificates: the time in which they are valid, and how it is told to people.
//!
//! Purpose: rustls says only whether a certificate is valid at an instant. This module reads the
//! two instants from its encoding, so that an expiry is known before it comes. Invariant: bytes
//! that are not a certificate have no validity. Concurrency: plain data. Source: RFC 5280, section
//! 4.1.

use data_encoding::HEXLOWER;
use headwater::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

/// Time before the expiry of a certificate in which it is reported.
const WARNED_SECONDS: i64 = 30 * 86_400;
const NANOS: i64 = 1_000_000_000;
const SEQUENCE: u8 = 0x30;
/// Tag of the version, which certificates of version 1 do not have.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Instants between which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first one.
    pub not_before: i64,
    /// The last one.
    pub not_after: i64,
}

/// SHA-256 of a certificate, which is its fingerprint, as 64 hexadecimal digits.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(certificate))
}

/// Elements of an encoding by DER.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// Tag and content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let len = digits.iter().fold(0, |len, d| (len << 8) | usize::from(*d));
                (len, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Content of the next element, which has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|(_, content)| content)
    }

    /// The next element as an instant.
    fn time(&mut self) -> Option<i64> {
        let (tag, content) = self.next()?;
        let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
        let text = match tag {
            GENERALIZED_TIME => text.to_owned(),
            // Two digits of a year between 1950 and 2049.
            UTC_TIME => {
                let year: u32 = text.get(..2)?.parse().ok()?;
                format!("{}{text}", if year < 50 { "20" } else { "19" })
            }
            _ => return None,
        };
        let read = DateTime::strptime("%Y%m%d%H%M%S", &text).ok()?;
        let zoned = read.to_zoned(TimeZone::UTC).ok()?;
        Some(zoned.timestamp().as_second())
    }
}

/// An instant in seconds since 1970 as text.
fn instant(seconds: i64) -> String {
    let known = jiff::Timestamp::from_second(seconds);
    known.map_or_else(|_| format!("{seconds} s since 1970"), |at| at.to_string())
}

/// An instant as text in whole seconds.
#[must_use]
pub fn instant_text(at: Timestamp) -> String {
    instant(seconds(at))
}

/// The instant of the header `Date`, or of another date as mail has it.
#[must_use]
pub fn date_of_header(text: &str) -> Option<Timestamp> {
    let read = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    let seconds = read.timestamp().as_second();
    Some(Timestamp::from_nanos(seconds.saturating_mul(NANOS)))
}

/// The seconds of an instant since 1970.
fn seconds(at: Timestamp) -> i64 {
    at.as_nanos().div_euclid(NANOS)
}

/// Notice about the validity of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Expiry within thirty days.
    Ends(String),
    /// Invalidity by the clock.
    Invalid(String),
}

impl Validity {
    /// Validity of a certificate in DER; `None` for bytes that are none.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Validity> {
        let whole = Elements(certificate).take(SEQUENCE)?;
        let mut parts = Elements(Elements(whole).take(SEQUENCE)?);
        let (tag, _) = parts.next()?;
        if tag == VERSION {
            // The serial number.
            parts.next()?;
        }
        // The algorithm of the signature, and the issuer.
        parts.take(SEQUENCE)?;
        parts.take(SEQUENCE)?;
        let mut times = Elements(parts.take(SEQUENCE)?);
        Some(Validity {
            not_before: times.time()?,
            not_after: times.time()?,
        })
    }

    /// The time in which certificates are valid together; `None` without any.
    #[must_use]
    pub fn together<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Option<Validity> {
        let known = certificates.into_iter().filter_map(Validity::of);
        known.reduce(|a, b| Validity {
            not_before: a.not_before.max(b.not_before),
            not_after: a.not_after.min(b.not_after),
        })
    }

    /// True when it is valid at an instant.
    #[must_use]
    pub fn contains(&self, at: Timestamp) -> bool {
        (self.not_before..=self.not_after).contains(&seconds(at))
    }

    /// Seconds from an instant until the expiry; negative after it.
    #[must_use]
    pub fn seconds_left(&self, at: Timestamp) -> i64 {
        self.not_after.saturating_sub(seconds(at))
    }

    /// Notice about a certificate that is valid for less than 30 days, or not at all.
    pub(crate) fn notice(&self, at: Timestamp) -> Option<Notice> {
        let clock = instant(seconds(at));
        if !self.contains(at) {
            return Some(Notice::Invalid(format!(
                "it {self}; the clock here says {clock}"
            )));
        }
        let left = self.seconds_left(at);
        (left <= WARNED_SECONDS).then(|| {
            let days = left / 86_400;
            Notice::Ends(format!("it {self}, {days} days from now ({clock})"))
        })
    }
}

impl std::fmt::Display for Validity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, to) = (instant(self.not_before), instant(self.not_after));
        write!(f, "is valid from {from} until {to}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(from: i32, to: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 12, 31);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn at(text: &str) -> Timestamp {
        let known: jiff::Timestamp = text.parse().unwrap();
        Timestamp::from_nanos(known.as_second() * NANOS)
    }

    #[test]
    fn the_validity_of_any_century_is_read() {
        for (from, to) in [(1970, 1999), (2026, 2049), (2026, 2050), (1999, 2098)] {
            let found = Validity::of(&certificate(from, to)).unwrap();
            let first = format!("{from}-01-01T00:00:00Z");
            let last = format!("{to}-12-31T00:00:00Z");
            let text = format!("is valid from {first} until {last}");
            assert_eq!(found.to_string(), text);
            assert!(found.contains(at(&first)) && found.contains(at(&last)));
        }
        let both = [certificate(2020, 2030), certificate(2025, 2040)];
        let both = Validity::together(both.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(
            both.to_string(),
            "is valid from 2025-01-01T00:00:00Z until 2030-12-31T00:00:00Z"
        );
    }

    #[test]
    fn other_bytes_have_no_validity() {
        let whole = certificate(2026, 2027);
        for cut in 0..whole.len() {
            assert_eq!(Validity::of(&whole[..cut]), None);
        }
        // Whatever byte is changed, reading ends.
        for at in 0..200 {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            let _ = Validity::of(&changed);
        }
        assert_eq!(Validity::together([]), None);
    }

    #[test]
    fn an_expiry_is_told_thirty_days_before_with_the_clock() {
        let found = Validity::of(&certificate(2026, 2027)).unwrap();
        assert_eq!(found.notice(at("2027-11-30T00:00:00Z")), None);
        let Some(Notice::Ends(text)) = found.notice(at("2027-12-02T00:00:00Z")) else {
            panic!("nothing is told");
        };
        assert_eq!(
            text,
            "it is valid from 2026-01-01T00:00:00Z until 2027-12-31T00:00:00Z, 29 days from now (2027-12-02T00:00:00Z)"
        );
        for clock in ["1970-01-01T00:00:05Z", "2098-01-01T00:00:00Z"] {
            let Some(Notice::Invalid(text)) = found.notice(at(clock)) else {
                panic!("nothing is told");
            };
            assert!(
                text.ends_with(&format!("the clock here says {clock}")),
                "{text}"
            );
        }
        assert_eq!(found.seconds_left(at("2028-01-01T00:00:00Z")), -86_400);
    }
}
