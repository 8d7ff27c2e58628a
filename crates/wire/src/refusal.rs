//! Lines that were not stored, and why.
//!
//! Invariant: the texts of [`RefusalCode::as_str`] are a promise to programs and never change their
//! meaning.

use std::fmt;

/// Longest part of a refused line that is retained, in characters.
const ORIGINAL_CHARS_MAX: usize = 200;

/// Reason why a line was refused. The text of a code is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The line does not follow the format.
    Parse,
    /// A value does not fit the type of its field.
    Type,
    /// The time is missing, malformed, or outside the years 1677 to 2262.
    Time,
    /// The time is further ahead of the clock than the receiver allows.
    TimeFuture,
    /// The line is longer than allowed.
    LimitLine,
    /// A string value is longer than allowed.
    LimitString,
    /// More fields than allowed.
    LimitFields,
    /// More streams than allowed.
    LimitStreams,
    /// Text that is not UTF-8.
    Utf8,
    /// A row with another number of cells than the header.
    Fields,
    /// A topic without a matching rule.
    Topic,
}

impl RefusalCode {
    /// Every code.
    pub const ALL: [RefusalCode; 11] = [
        RefusalCode::Parse,
        RefusalCode::Type,
        RefusalCode::Time,
        RefusalCode::TimeFuture,
        RefusalCode::LimitLine,
        RefusalCode::LimitString,
        RefusalCode::LimitFields,
        RefusalCode::LimitStreams,
        RefusalCode::Utf8,
        RefusalCode::Fields,
        RefusalCode::Topic,
    ];

    /// The stable text, such as `E_PARSE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusalCode::Parse => "E_PARSE",
            RefusalCode::Type => "E_TYPE",
            RefusalCode::Time => "E_TIME",
            RefusalCode::TimeFuture => "E_TIME_FUTURE",
            RefusalCode::LimitLine => "E_LIMIT_LINE",
            RefusalCode::LimitString => "E_LIMIT_STRING",
            RefusalCode::LimitFields => "E_LIMIT_FIELDS",
            RefusalCode::LimitStreams => "E_LIMIT_STREAMS",
            RefusalCode::Utf8 => "E_UTF8",
            RefusalCode::Fields => "E_FIELDS",
            RefusalCode::Topic => "E_TOPIC",
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A line that was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    /// Number of the line in the input; the first line is 1.
    pub line: u64,
    /// The kind of fault.
    pub code: RefusalCode,
    /// Message: the expected and the found text, and the remedy.
    pub message: String,
    /// The beginning of the line, at most 200 characters; bytes that are not UTF-8 show as
    /// `U+FFFD`.
    pub original: String,
}

impl RefusedLine {
    /// A refused line; `original` is cut.
    #[must_use]
    pub fn new(line: u64, fault: Fault, original: &[u8]) -> RefusedLine {
        RefusedLine {
            line,
            code: fault.code,
            message: fault.message,
            original: cut_line(original),
        }
    }
}

impl fmt::Display for RefusedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.code, self.message)
    }
}

/// A fault whose line number is not assigned yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub code: RefusalCode,
    /// Message: the expected and the found text, and the remedy.
    pub message: String,
}

impl Fault {
    /// A fault.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Fault {
        Fault {
            code,
            message: message.into(),
        }
    }
}

/// Refused lines, counted by code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts([u64; RefusalCode::ALL.len()]);

impl RefusalCounts {
    /// Counts one more line.
    pub fn add(&mut self, code: RefusalCode) {
        if let Some(count) = self.0.get_mut(code as usize) {
            *count += 1;
        }
    }

    /// Adds other counts.
    pub fn merge(&mut self, other: &RefusalCounts) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Lines in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The codes that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (RefusalCode, u64)> + '_ {
        RefusalCode::ALL
            .into_iter()
            .zip(self.0)
            .filter(|(_, count)| *count > 0)
    }
}

/// The beginning of a line for an answer or a report: at most 200 characters; bytes that are not
/// UTF-8 show as `U+FFFD`.
///
/// ```
/// assert_eq!(headwater_wire::cut_line(&[b'x'; 300]).len(), 200);
/// ```
#[must_use]
pub fn cut_line(original: &[u8]) -> String {
    // Four bytes hold any character, and an invalid one becomes at most one replacement character
    // per byte.
    let head = original.get(..ORIGINAL_CHARS_MAX * 4).unwrap_or(original);
    let text = String::from_utf8_lossy(head);
    match text.char_indices().nth(ORIGINAL_CHARS_MAX) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text.into_owned(),
    }
}

/// A piece of input for a message: quoted, printable and short.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const CHARS_MAX: usize = 40;
    let head = bytes.get(..CHARS_MAX * 4).unwrap_or(bytes);
    let text = String::from_utf8_lossy(head);
    let mut out = String::from("`");
    for (count, c) in text.chars().enumerate() {
        if count == CHARS_MAX {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push('`');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_original_is_cut_on_a_character() {
        assert_eq!(cut_line("é".repeat(300).as_bytes()), "é".repeat(200));
        assert_eq!(cut_line(b"short"), "short");
        assert_eq!(cut_line(&[0xFF; 900]).chars().count(), 200);
    }

    #[test]
    fn codes_count_where_they_belong() {
        for (index, code) in RefusalCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, index);
        }
        let mut counts = RefusalCounts::default();
        counts.add(RefusalCode::Fields);
        counts.add(RefusalCode::Fields);
        assert_eq!(counts.total(), 2);
        assert_eq!(
            counts.iter().collect::<Vec<_>>(),
            [(RefusalCode::Fields, 2)]
        );
    }
}
