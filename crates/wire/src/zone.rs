//! Time zones by their names, and clocks in them.
//!
//! Purpose: one interpretation of zones for every front end: the offset of a zone's clocks from UTC
//! at an instant, and the instant that the clocks show. Invariants: a zone's name reads back as the
//! same zone. A skipped time of day is as long after the change as it is after the beginning of the
//! skipped span, and a time shown twice is the later instant, as in PostgreSQL. Concurrency:
//! immutable, cheap to clone. Failure: [`UnknownZone`] for a name that is not a zone; instants
//! beyond 64-bit nanoseconds are `None`.
//!
//! Source of the zones: the IANA time zone database, which is built in. Source of the forms:
//! PostgreSQL's documentation, "Time Zones" and "POSIX Time Zone Specifications".

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use std::fmt;

/// A time zone.
#[derive(Clone)]
pub struct Zone {
    name: String,
    /// `None` = UTC.
    rules: Option<TimeZone>,
}

/// The time zone does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone \"{0}\"")]
pub struct UnknownZone(String);

impl UnknownZone {
    /// The accepted forms, for messages.
    pub const FORMS: &str = "UTC, a name of the IANA database such as Europe/Berlin, a number of hours east of UTC such as 2, or a POSIX zone such as GMT-2, whose hours count west";
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name).finish()
    }
}

impl Default for Zone {
    fn default() -> Zone {
        Zone::utc()
    }
}

/// Zones with equal names are equal.
impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl std::hash::Hash for Zone {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Names of UTC, the only zone without rules.
const UTC: [&str; 11] = [
    "utc",
    "gmt",
    "z",
    "zulu",
    "universal",
    "etc/utc",
    "etc/gmt",
    "+00:00",
    "+00",
    "-00:00",
    "0",
];
/// Farthest offset that is a number of hours, in seconds.
const OFFSET_MAX: i32 = 16 * 3_600;
const SECOND_NS: i128 = 1_000_000_000;

impl Zone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Zone {
        Zone {
            name: "UTC".to_owned(),
            rules: None,
        }
    }

    /// Reads a name: of the IANA database, without regard to case; a number of hours east of UTC;
    /// or a POSIX zone, whose offset counts west. An offset with a colon and no name before it is
    /// refused, since programs disagree about its direction.
    ///
    /// ```
    /// use headwater_wire::zone::Zone;
    /// assert_eq!(Zone::read("europe/berlin")?.name(), "Europe/Berlin");
    /// assert_eq!(Zone::read("GMT-2")?.offset_seconds(0), 7_200);
    /// assert!(Zone::read("Europe/Nowhere").is_err());
    /// # Ok::<(), headwater_wire::zone::UnknownZone>(())
    /// ```
    ///
    /// # Errors
    /// When the zone does not exist.
    pub fn read(text: &str) -> Result<Zone, UnknownZone> {
        let text = text.trim();
        let unknown = || UnknownZone(text.chars().take(80).collect());
        if UTC.contains(&text.to_ascii_lowercase().as_str()) {
            return Ok(Zone::utc());
        }
        if let Some(seconds) = hours(text) {
            if seconds == 0 {
                return Ok(Zone::utc());
            }
            let offset = Some(seconds).filter(|s| s.abs() < OFFSET_MAX);
            let offset = offset.and_then(|s| Offset::from_seconds(s).ok());
            return Ok(Zone {
                name: posix_name(seconds),
                rules: Some(TimeZone::fixed(offset.ok_or_else(unknown)?)),
            });
        }
        if let Ok(found) = TimeZone::get(text)
            && let Some(name) = found.iana_name()
        {
            return Ok(Zone {
                name: name.to_owned(),
                rules: Some(found),
            });
        }
        // Without a name before it, the direction of an offset is ambiguous.
        if !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '<') {
            return Err(unknown());
        }
        let found = TimeZone::posix(text).map_err(|_| unknown())?;
        Ok(Zone {
            name: text.to_owned(),
            rules: Some(found),
        })
    }

    /// Name of the zone, which [`Zone::read`] accepts.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True when the zone is UTC.
    #[must_use]
    pub fn is_utc(&self) -> bool {
        self.rules.is_none()
    }

    /// Offset of the zone's clocks from UTC at an instant, in seconds, positive in the east. The
    /// instant is in nanoseconds since 1970; beyond the years that the calendar library knows
    /// (-9999 to 9999) the offset is constant.
    #[must_use]
    pub fn offset_seconds(&self, at_ns: i128) -> i32 {
        let Some(rules) = &self.rules else {
            return 0;
        };
        let at = Timestamp::from_nanosecond(at_ns).unwrap_or(if at_ns < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        });
        rules.to_offset(at).seconds()
    }

    /// The time of its clocks at an instant: both in nanoseconds since 1970, the first in UTC, the
    /// second as if the zone were UTC. `None` = beyond 64 bits.
    #[must_use]
    pub fn wall_ns(&self, at_ns: i64) -> Option<i64> {
        let offset = i64::from(self.offset_seconds(at_ns.into()));
        at_ns.checked_add(offset.checked_mul(1_000_000_000)?)
    }

    /// The instant at which its clocks show a time: the inverse of [`Zone::wall_ns`]. `None` =
    /// beyond 64 bits.
    #[must_use]
    pub fn instant_ns(&self, wall_ns: i64) -> Option<i64> {
        let Some(rules) = &self.rules else {
            return Some(wall_ns);
        };
        let shown = Timestamp::from_nanosecond(wall_ns.into()).ok()?;
        let shown = TimeZone::UTC.to_datetime(shown);
        let at = rules.to_ambiguous_timestamp(shown).later().ok()?;
        i64::try_from(at.as_nanosecond()).ok()
    }

    /// The first instant at which the zone's clocks show a time or a later one, running on from the
    /// day before. `None` = beyond 64 bits.
    #[must_use]
    pub fn first_showing_ns(&self, wall_ns: i64) -> Option<i64> {
        let Some(rules) = &self.rules else {
            return Some(wall_ns);
        };
        let shown = Timestamp::from_nanosecond(wall_ns.into()).ok()?;
        let ambiguous = rules.to_ambiguous_timestamp(TimeZone::UTC.to_datetime(shown));
        if let AmbiguousOffset::Gap { before, .. } = ambiguous.offset() {
            // A skipped time is counted from the change on: it is earlier than the instant at which
            // the clocks, if not changed, would have shown it.
            let unset = i128::from(wall_ns) - i128::from(before.seconds()) * SECOND_NS;
            let after = Timestamp::from_nanosecond(unset + 1).ok()?;
            let change = rules.preceding(after).next()?.timestamp();
            return i64::try_from(change.as_nanosecond()).ok();
        }
        i64::try_from(ambiguous.earlier().ok()?.as_nanosecond()).ok()
    }

    /// When its clocks are set next after an instant. `None` = never, or beyond 64 bits.
    #[must_use]
    pub fn change_after(&self, at_ns: i64) -> Option<i64> {
        let at = Timestamp::from_nanosecond(at_ns.into()).ok()?;
        let change = self.rules.as_ref()?.following(at).next()?;
        i64::try_from(change.timestamp().as_nanosecond()).ok()
    }

    /// Beginning of the second, minute or hour (of `unit_seconds` seconds) that the clocks show at
    /// an instant. `None` = beyond 64 bits.
    #[must_use]
    pub fn begin_of(&self, at_ns: i64, unit_seconds: u32) -> Option<i64> {
        let unit = i64::from(unit_seconds.max(1)).checked_mul(1_000_000_000)?;
        self.begin_from(at_ns, unit, 0)
    }

    /// Beginning of the interval of `width_ns` nanoseconds that the clocks show at an instant, by
    /// their offset at that instant; one interval begins when the clocks show the origin. `None` =
    /// beyond 64 bits.
    pub(crate) fn begin_from(&self, at_ns: i64, width_ns: i64, origin_ns: i64) -> Option<i64> {
        let offset = i128::from(self.offset_seconds(at_ns.into())) * SECOND_NS;
        let since = i128::from(at_ns) + offset - i128::from(origin_ns);
        let into = since.rem_euclid(i128::from(width_ns.max(1)));
        i64::try_from(i128::from(at_ns) - into).ok()
    }

    /// True when the zone's clocks, since 1970 and within 64 bits, differ from UTC by whole
    /// multiples of `unit_seconds` seconds.
    #[must_use]
    pub fn is_whole(&self, unit_seconds: u32) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        let unit = i64::from(unit_seconds.max(1));
        let whole = |offset: Offset| i64::from(offset.seconds()) % unit == 0;
        let last = Timestamp::from_nanosecond(i64::MAX.into()).unwrap_or(Timestamp::MAX);
        let changes = rules.following(Timestamp::UNIX_EPOCH);
        whole(rules.to_offset(Timestamp::UNIX_EPOCH))
            && changes
                .take_while(|change| change.timestamp() <= last)
                .all(|change| whole(change.offset()))
    }
}

/// A number of hours, as `2`, `-7` or `5.5`, in seconds.
fn hours(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let hours: f64 = text.parse().ok()?;
    let seconds = (hours * 3_600.0).round();
    // A larger offset is not a zone, which the caller reports.
    (seconds.abs() <= 1e6).then_some(seconds as i32)
}

/// A POSIX zone of `east` seconds east: `<+02>-02`, `<+0530>-05:30`.
fn posix_name(east: i32) -> String {
    let part = |seconds: i32, between: &str| {
        let sign = if seconds < 0 { '-' } else { '+' };
        let all = seconds.unsigned_abs();
        let (h, m, s) = (all / 3_600, all / 60 % 60, all % 60);
        match (m, s) {
            (0, 0) => format!("{sign}{h:02}"),
            (m, 0) => format!("{sign}{h:02}{between}{m:02}"),
            (m, s) => format!("{sign}{h:02}{between}{m:02}{between}{s:02}"),
        }
    };
    // No colon may be in the name.
    format!("<{}>{}", part(east, ""), part(-east, ":"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::instant::parse_instant;
    use proptest::prelude::*;

    fn ns(text: &str) -> i64 {
        parse_instant(text).unwrap().as_nanos()
    }

    #[test]
    fn names_are_read_in_every_form() {
        let july = ns("2024-07-01T00:00:00Z").into();
        for (text, name, offset) in [
            ("UTC", "UTC", 0),
            ("etc/utc", "UTC", 0),
            ("+00:00", "UTC", 0),
            ("0", "UTC", 0),
            ("europe/BERLIN", "Europe/Berlin", 7_200),
            ("America/New_York", "America/New_York", -14_400),
            ("Asia/Calcutta", "Asia/Calcutta", 19_800),
            ("CET", "CET", 7_200),
            ("Etc/GMT-2", "Etc/GMT-2", 7_200),
            ("GMT-2", "GMT-2", 7_200),
            ("GMT-02:30", "GMT-02:30", 9_000),
            ("2", "<+02>-02", 7_200),
            ("-7", "<-07>+07", -25_200),
            ("5.5", "<+0530>-05:30", 19_800),
            ("-2.0125", "<-020045>+02:00:45", -7_245),
            ("EST5EDT,M3.2.0,M11.1.0", "EST5EDT,M3.2.0,M11.1.0", -14_400),
        ] {
            let zone = Zone::read(text).unwrap();
            assert_eq!(
                (zone.name(), zone.offset_seconds(july)),
                (name, offset),
                "{text}"
            );
            assert_eq!(zone.is_utc(), offset == 0, "{text}");
            let again = Zone::read(name).unwrap();
            assert_eq!(again, zone, "{text}");
            assert_eq!(again.offset_seconds(july), offset, "{text}");
        }
        for text in [
            "",
            "Europe/Nowhere",
            "+02:00",
            "-05:30",
            "99",
            "1e3",
            ".",
            "now",
            "PST",
            "../etc/passwd",
            "<+02>",
            "ä",
        ] {
            assert!(Zone::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn clocks_skip_and_repeat_hours_as_in_postgresql() {
        let berlin = Zone::read("Europe/Berlin").unwrap();
        let at = |text: &str| berlin.instant_ns(ns(text)).unwrap();
        // Two o'clock becomes three: a skipped time is as long after the change.
        assert_eq!(at("2024-03-31T01:59:59Z"), ns("2024-03-31T00:59:59Z"));
        assert_eq!(at("2024-03-31T02:30:00Z"), ns("2024-03-31T01:30:00Z"));
        assert_eq!(at("2024-03-31T03:00:00Z"), ns("2024-03-31T01:00:00Z"));
        // Three o'clock becomes two: a time shown twice is the later instant.
        assert_eq!(at("2024-10-27T01:59:59Z"), ns("2024-10-26T23:59:59Z"));
        assert_eq!(at("2024-10-27T02:30:00Z"), ns("2024-10-27T01:30:00Z"));
        for (instant, wall) in [
            ("2024-10-27T00:30:00Z", "2024-10-27T02:30:00Z"),
            ("2024-10-27T01:30:00Z", "2024-10-27T02:30:00Z"),
            ("2024-03-31T01:00:00Z", "2024-03-31T03:00:00Z"),
        ] {
            assert_eq!(berlin.wall_ns(ns(instant)), Some(ns(wall)), "{instant}");
        }
        assert_eq!(berlin.wall_ns(i64::MAX), None);
        assert_eq!(berlin.instant_ns(i64::MIN), None);
    }

    #[test]
    fn hours_begin_where_the_clocks_say() {
        let zone = |name: &str| Zone::read(name).unwrap();
        let (berlin, kolkata) = (zone("Europe/Berlin"), zone("Asia/Kolkata"));
        assert!(berlin.is_whole(3_600) && Zone::utc().is_whole(86_400));
        assert!(!kolkata.is_whole(3_600) && kolkata.is_whole(60) && !berlin.is_whole(86_400));
        let at = ns("2024-05-01T10:15:00Z");
        assert_eq!(berlin.begin_of(at, 3_600), Some(ns("2024-05-01T10:00:00Z")));
        assert_eq!(
            kolkata.begin_of(at, 3_600),
            Some(ns("2024-05-01T09:30:00Z"))
        );
        // Also in an hour of which half is shown twice, no instant is before the hour's beginning.
        let lord_howe = zone("Australia/Lord_Howe");
        for at in ["2024-04-06T14:50:00Z", "2024-04-06T15:10:00Z"] {
            assert!(lord_howe.begin_of(ns(at), 3_600).unwrap() <= ns(at));
        }
    }

    proptest! {
        #[test]
        fn what_clocks_show_is_at_the_instant_or_an_hour_that_they_show_twice(
            at in -2_000_000_000_000_000_000..4_000_000_000_000_000_000i64,
            name in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "-7"]),
        ) {
            let zone = Zone::read(name).unwrap();
            let wall = zone.wall_ns(at).unwrap();
            let back = zone.instant_ns(wall).unwrap();
            // The result is a time that was shown, by one of the two offsets around the change.
            prop_assert_eq!(zone.wall_ns(back), Some(wall));
            prop_assert!(back >= at && back - at <= 2 * 3_600_000_000_000);
        }

        #[test]
        fn no_name_panics(text: String, at: i64) {
            if let Ok(zone) = Zone::read(&text) {
                let _ = (zone.wall_ns(at), zone.instant_ns(at), zone.begin_of(at, 60));
                prop_assert_eq!(Zone::read(zone.name()).unwrap().offset_seconds(0), zone.offset_seconds(0));
            }
        }
    }
}
