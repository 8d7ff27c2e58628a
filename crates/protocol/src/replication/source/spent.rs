//! Bytes sent in the current day and month, persisted over restarts: docs/format/spent.md.
//!
//! Invariants: when the clock returns to an earlier day or month, counting continues with the bytes
//! sent in it, if it is among the last few: a machine whose clock starts in 1970 at each boot has
//! one such day, not one for each start. Concurrency: plain data.

use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};

const MAGIC: [u8; 7] = *b"HWSPENT";
const VERSION: u8 = 1;
const CRC_BYTES: usize = 4;
/// Number of earlier days, and of earlier months, that are remembered.
const OTHERS: usize = 3;

/// A day or month since 1970 (UTC), and bytes that were sent in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Number of the day or month.
    pub number: i64,
    /// Bytes of it.
    pub bytes: u64,
}

/// Bytes sent, persisted over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Days since 1970 UTC.
    pub day: i64,
    /// Bytes of that day.
    pub day_bytes: u64,
    /// Months since 1970 UTC.
    pub month: i64,
    /// Bytes of that month.
    pub month_bytes: u64,
    /// Days that it was before, by the clock of then, the newest first.
    pub other_days: [Period; OTHERS],
    /// Months that it was before.
    pub other_months: [Period; OTHERS],
}

/// Starts another period, or resumes one of the earlier ones.
fn go_to(number: i64, now: &mut Period, others: &mut [Period; OTHERS]) {
    if now.number == number {
        return;
    }
    let known = others
        .iter()
        .position(|p| p.number == number && p.bytes > 0);
    let next = Period {
        number,
        bytes: known
            .and_then(|at| others.get(at))
            .map_or(0, |period| period.bytes),
    };
    // The previous period replaces the resumed one, or the oldest.
    let last = known.unwrap_or(OTHERS - 1);
    if let Some(part) = others.get_mut(..=last) {
        part.rotate_right(1);
    }
    if let Some(first) = others.first_mut() {
        *first = std::mem::replace(now, next);
    }
}

impl Spent {
    /// Sets the current day and month.
    pub(crate) fn begin(&mut self, day: i64, month: i64) {
        let mut now = Period {
            number: self.day,
            bytes: self.day_bytes,
        };
        go_to(day, &mut now, &mut self.other_days);
        (self.day, self.day_bytes) = (now.number, now.bytes);
        let mut now = Period {
            number: self.month,
            bytes: self.month_bytes,
        };
        go_to(month, &mut now, &mut self.other_months);
        (self.month, self.month_bytes) = (now.number, now.bytes);
    }

    /// True if `kept` is of the same day and month, and its spending is not lower.
    pub(crate) fn is_within(&self, kept: &Spent) -> bool {
        (self.day, self.month) == (kept.day, kept.month)
            && self.day_bytes <= kept.day_bytes
            && self.month_bytes <= kept.month_bytes
    }

    /// Encoded spending.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u8(VERSION);
        out.put_i64(self.day);
        out.put_u64(self.day_bytes);
        out.put_i64(self.month);
        out.put_u64(self.month_bytes);
        for period in self.other_days.iter().chain(&self.other_months) {
            out.put_i64(period.number);
            out.put_u64(period.bytes);
        }
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// Decodes the spending.
    ///
    /// # Errors
    /// The expected content, and its offset.
    pub fn decode(bytes: &[u8]) -> Result<Spent, DecodeError> {
        let wrong = |expected| DecodeError {
            expected,
            offset: 0,
        };
        let Some((body, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(wrong("a file of the budget of at least four bytes"));
        };
        let mut cursor = Cursor::new(body);
        if cursor.take(MAGIC.len(), "the magic of a file of the budget")? != MAGIC {
            return Err(wrong("the magic of a file of the budget"));
        }
        if cursor.u8("the version of a file of the budget")? != VERSION {
            return Err(wrong("a file of the budget of version 1"));
        }
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(wrong("a file of the budget with the right checksum"));
        }
        let mut spent = Spent {
            day: cursor.i64("day")?,
            day_bytes: cursor.u64("bytes of a day")?,
            month: cursor.i64("month")?,
            month_bytes: cursor.u64("bytes of a month")?,
            ..Spent::default()
        };
        for period in spent.other_days.iter_mut().chain(&mut spent.other_months) {
            period.number = cursor.i64("day or month")?;
            period.bytes = cursor.u64("bytes of a day or month")?;
        }
        cursor.finish()?;
        Ok(spent)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
    use super::*;

    #[test]
    fn what_was_spent_comes_back_and_its_bytes_do_not_change() {
        let mut spent = Spent::default();
        for (day, month) in [(20_000, 657), (0, 0), (20_001, 657), (47_000, 1_544)] {
            spent.begin(day, month);
            spent.day_bytes += 1_000;
            spent.month_bytes += 3_000;
        }
        let bytes = spent.encode();
        assert_eq!(Spent::decode(&bytes).unwrap(), spent);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 4;
            assert!(Spent::decode(&other).is_err() && Spent::decode(&bytes[..at]).is_err());
        }
        let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let text = digits + "\n";
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/spent.hex");
        if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            text, known,
            "the bytes changed: give the new shape a new version, and keep reading the old one"
        );
    }

    #[test]
    fn a_day_that_comes_again_goes_on_with_what_was_sent_in_it() {
        let mut spent = Spent::default();
        let mut sum = 0;
        for start in 0..5 {
            // A machine without a battery-backed clock starts, and then gets the time.
            spent.begin(0, 0);
            assert_eq!(spent.day_bytes, 10 * start);
            spent.day_bytes += 10;
            spent.begin(20_000 + i64::try_from(start / 2).unwrap(), 657);
            spent.month_bytes += 7;
            sum += 7;
            assert_eq!(spent.month_bytes, sum);
        }
        let days = spent.other_days.map(|p| (p.number, p.bytes));
        assert_eq!(days[0], (0, 50));
    }
}
