//! Instants of queries: seconds, milliseconds, dates, and how long ago.

use headwater_types::Timestamp;

/// A text that is not an instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a time: expected seconds or milliseconds since 1970, 2013/07/04-12:00:00 (UTC), 1h-ago, or now"
)]
pub struct TimeError(String);

/// Units of lengths of time, longest name first; a month has 30 days and a year 365.
const UNITS: [(&str, i64); 8] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
    ("n", 2_592_000_000_000_000),
    ("y", 31_536_000_000_000_000),
];

/// A length of time such as `30m`, in ns, above 0.
pub(super) fn length(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number
        .parse::<i64>()
        .ok()?
        .checked_mul(*unit_ns)
        .filter(|ns| *ns > 0)
}

/// Reads an instant: seconds (also with a fraction) up to 32 bits or milliseconds since 1970,
/// `2013/07/04-12:00:00` and shorter in UTC, `1h-ago`, `now`.
///
/// ```
/// use headwater_types::Timestamp;
/// use headwater_wire::opentsdb::parse_time;
/// let now = Timestamp::from_nanos(3_600_000_000_001);
/// assert_eq!(parse_time("1h-ago", now).unwrap().as_nanos(), 1);
/// assert_eq!(parse_time("1970/01/02", now).unwrap().as_nanos(), 86_400_000_000_000);
/// ```
///
/// # Errors
/// When the text is not a time, or is outside the range of instants.
pub fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, TimeError> {
    let wrong = || TimeError(text.chars().take(60).collect());
    let text = text.trim();
    if text == "now" {
        return Ok(now);
    }
    if let Some(length_text) = text.strip_suffix("-ago") {
        let ns = length(length_text).ok_or_else(wrong)?;
        return Ok(Timestamp::from_nanos(now.as_nanos().saturating_sub(ns)));
    }
    if text.contains('/') {
        return date(text).ok_or_else(wrong);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let number: i64 = whole.parse().map_err(|_| wrong())?;
    let is_seconds = number.unsigned_abs() <= u64::from(u32::MAX);
    let ns = if is_seconds {
        number.checked_mul(1_000_000_000)
    } else {
        number.checked_mul(1_000_000)
    };
    let ns = ns.ok_or_else(wrong)?;
    if fraction.is_empty() {
        return Ok(Timestamp::from_nanos(ns));
    }
    if !is_seconds || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let part: i64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    Ok(Timestamp::from_nanos(ns.saturating_add(part)))
}

/// `2013/07/04`, with an optional `-12`, `-12:30` or `-12:30:15` after it.
fn date(text: &str) -> Option<Timestamp> {
    let (day, time) = text.split_once(['-', ' ']).unwrap_or((text, "00:00:00"));
    let mut parts = time.split(':');
    let mut part = || parts.next().unwrap_or("00");
    let time = format!("{:0>2}:{:0>2}:{:0>2}", part(), part(), part());
    if parts.next().is_some() {
        return None;
    }
    let text = format!("{}T{time}Z", day.replace('/', "-"));
    crate::instant::parse_instant(&text).ok()
}
