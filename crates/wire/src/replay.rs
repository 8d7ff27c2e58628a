//! Rows of many streams in the order of time, as lines of JSON, and the cursor to resume after
//! them.
//!
//! A line is `{"time":"NS","stream":"table,tag=value","fields":{…}}`, with `"row":N` for rows after
//! the first with the same stream and time. A cursor is `NS/N/STREAM`: time, row and stream of the
//! last line read.

use crate::json::{push_i64, push_integer_text, push_str, push_u64, push_value};
use headwater_types::{StreamName, Timestamp, ValueRef};
use std::time::Duration;

/// The last row that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Time of the row.
    pub time: Timestamp,
    /// Position among the rows with the same stream and time, from 1 on.
    pub row: u64,
    /// Stream of the row.
    pub stream: StreamName,
}

impl Position {
    /// Reads a cursor.
    #[must_use]
    pub fn parse(text: &str) -> Option<Position> {
        let (time, rest) = text.split_once('/')?;
        let (row, stream) = rest.split_once('/')?;
        Some(Position {
            time: Timestamp::from_nanos(time.parse().ok()?),
            row: row.parse().ok().filter(|row| *row > 0)?,
            stream: StreamName::parse(stream)?,
        })
    }
}

/// Writes the cursor of a row.
pub fn push_cursor(out: &mut Vec<u8>, time: Timestamp, row: u64, stream: &StreamName) {
    push_i64(out, time.as_nanos());
    out.push(b'/');
    push_u64(out, row);
    out.push(b'/');
    out.extend_from_slice(stream.to_string().as_bytes());
}

/// Writes a row as an object of JSON, without a line end. `stream` and the names of the fields are
/// strings of JSON already ([`crate::json::push_str`]). Absent values are left out.
pub fn push_row<'v, 'n>(
    out: &mut Vec<u8>,
    time: Timestamp,
    row: u64,
    stream: &[u8],
    values: impl Iterator<Item = (&'n [u8], Option<ValueRef<'v>>)>,
) {
    out.extend_from_slice(b"{\"time\":");
    push_integer_text(out, time.as_nanos());
    out.extend_from_slice(b",\"stream\":");
    out.extend_from_slice(stream);
    if row > 1 {
        out.extend_from_slice(b",\"row\":");
        push_u64(out, row);
    }
    out.extend_from_slice(b",\"fields\":{");
    let mut is_first = true;
    let present = values.filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in present {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        push_value(out, value);
    }
    out.extend_from_slice(b"}}");
}

/// A text as a string of JSON.
#[must_use]
pub fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    push_str(&mut out, text);
    out
}

/// Speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Without pauses.
    Max,
    /// Seconds of data in one second.
    Times(f64),
}

impl Pace {
    /// Reads `max`, or a positive number.
    ///
    /// # Errors
    /// The expected form.
    pub fn parse(text: &str) -> Result<Pace, &'static str> {
        match text {
            "max" => Ok(Pace::Max),
            _ => match text.parse::<f64>() {
                Ok(times) if times.is_finite() && times > 0.0 => Ok(Pace::Times(times)),
                _ => Err("expected max, or the seconds of data to replay per second: 1, 60, 0.5"),
            },
        }
    }

    /// The time after the first row at which another is due.
    #[must_use]
    pub fn due(self, first: Timestamp, time: Timestamp) -> Duration {
        let Pace::Times(times) = self else {
            return Duration::ZERO;
        };
        let passed =
            Duration::from_nanos(time.as_nanos().abs_diff(first.as_nanos())).as_secs_f64() / times;
        Duration::try_from_secs_f64(passed).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_row_is_a_line_of_json_and_a_cursor_reads_back() {
        let stream = StreamName::new("pump", [("id", "a,b")]);
        let name = quoted(&stream.to_string());
        let fields = [quoted("flow"), quoted("on \"x\"")];
        let values = [Some(ValueRef::F64(1.5)), None];
        let mut out = Vec::new();
        let row = |out: &mut Vec<u8>, row| {
            let values = fields.iter().map(Vec::as_slice).zip(values);
            push_row(out, Timestamp::from_nanos(1_700), row, &name, values);
        };
        row(&mut out, 1);
        let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
        assert_eq!(
            text,
            "{\"time\":\"1700\",\"stream\":\"pump,id=a\\\\,b\",\"fields\":{\"flow\":1.5}}"
        );
        row(&mut out, 2);
        assert!(String::from_utf8(out).unwrap().contains("\"row\":2,"));
        let mut cursor = Vec::new();
        push_cursor(&mut cursor, Timestamp::from_nanos(-5), 3, &stream);
        let found = Position::parse(std::str::from_utf8(&cursor).unwrap()).unwrap();
        assert_eq!(
            (found.time.as_nanos(), found.row, found.stream),
            (-5, 3, stream)
        );
        for wrong in ["", "1", "1/2", "1/0/pump", "x/1/pump", "1/1/"] {
            assert_eq!(Position::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rows_are_due_as_their_times_say() {
        assert_eq!(Pace::parse("max"), Ok(Pace::Max));
        let at = Timestamp::from_nanos;
        assert_eq!(Pace::Max.due(at(0), at(i64::MAX)), Duration::ZERO);
        let sixty = Pace::parse("60").unwrap();
        assert_eq!(
            sixty.due(at(1_000_000_000), at(61_000_000_000)),
            Duration::from_secs(1)
        );
        assert_eq!(
            Pace::Times(1e-300).due(at(i64::MIN), at(i64::MAX)),
            Duration::MAX
        );
        for wrong in ["", "0", "-1", "inf", "NaN", "fast"] {
            assert!(Pace::parse(wrong).is_err(), "{wrong}");
        }
    }
}
