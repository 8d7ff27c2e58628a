//! Errors of a text, and their locations.

/// The first mistake of a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing query: {message} at line {line}, char {column}")]
pub struct ParseError {
    /// Names the found text, and the expected one.
    pub message: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in its line, from 1.
    pub column: usize,
    /// The byte in the text, from 0.
    pub offset: usize,
}

impl ParseError {
    /// A mistake at a byte of a text.
    pub(super) fn at(text: &str, offset: usize, message: impl Into<String>) -> ParseError {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        ParseError {
            message: message.into(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or("").chars().count() + 1,
            offset,
        }
    }
}
