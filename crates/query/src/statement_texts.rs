//! Splits a text into statements, each with its position, so that errors refer to the whole text.

use crate::{Error, Result, Session};

/// A statement and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementText {
    /// The statement, without separators.
    pub text: String,
    /// Line of its first character, from 1.
    pub line: u32,
    /// Column of its first character, from 1, counted in characters.
    pub column: u32,
}

impl StatementText {
    /// Moves an error of this statement to its position in the whole text.
    #[must_use]
    pub fn locate(&self, error: Error) -> Error {
        error.moved_to(self.line, self.column)
    }
}

/// Splits a text of several statements at its semicolons.
///
/// ```
/// let placed = headwater_query::statements("SELECT 1;\n  SELECT ';'").unwrap();
/// assert_eq!(placed[1].text, "SELECT ';'");
/// assert_eq!((placed[1].line, placed[1].column), (2, 3));
/// ```
///
/// # Errors
/// `syntax_error` when a text or a comment in it does not end.
pub fn statements(sql: &str) -> Result<Vec<StatementText>> {
    if let Some(only) = is_one(sql) {
        return Ok(vec![only]);
    }
    let mut placed = Vec::new();
    let mut from = 0;
    let (mut line, mut column) = (1, 1);
    for text in Session::split(sql)? {
        let rest = sql.get(from..).unwrap_or_default();
        let skipped = rest.find(&text).unwrap_or(0);
        for c in rest.get(..skipped).unwrap_or_default().chars() {
            advance(c, &mut line, &mut column);
        }
        let statement = StatementText { text, line, column };
        for c in statement.text.chars() {
            advance(c, &mut line, &mut column);
        }
        from += skipped + statement.text.len();
        placed.push(statement);
    }
    Ok(placed)
}

/// The statement of a text that obviously has only one: it does not contain separators, and begins
/// with a word. Errors within are reported when it is parsed. Costs one scan of the text.
#[must_use]
pub(crate) fn is_one(sql: &str) -> Option<StatementText> {
    let text = sql.trim();
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if !begins || text.contains(';') {
        return None;
    }
    let (mut line, mut column) = (1, 1);
    for c in sql.chars().take_while(|c| c.is_whitespace()) {
        advance(c, &mut line, &mut column);
    }
    Some(StatementText {
        text: text.to_owned(),
        line,
        column,
    })
}

/// Whether splitting a text is cheap: a single, short statement.
#[must_use]
pub fn is_obvious(sql: &str) -> bool {
    sql.len() <= OBVIOUS_BYTES && is_one(sql).is_some()
}

/// Maximum bytes of a text that is scanned on any thread.
const OBVIOUS_BYTES: usize = 16 << 10;

fn advance(c: char, line: &mut u32, column: &mut u32) {
    if c == '\n' {
        *line += 1;
        *column = 1;
    } else {
        *column += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn statements_know_where_they_begin() {
        let sql = "/* ü; */ SELECT 1 ; ;\n\n  SELECT 'a;\nb';SELECT 1";
        let places: Vec<(u32, u32)> = statements(sql)
            .unwrap()
            .iter()
            .map(|p| (p.line, p.column))
            .collect();
        assert_eq!(places[1..], [(3, 3), (4, 4)]);
        assert!(statements(" ; -- nothing\n").unwrap().is_empty());
        assert!(statements(" -- nothing").unwrap().is_empty());
        let one = statements("\n  SELECT 'ü' -- x\n").unwrap();
        let [one] = one.as_slice() else {
            panic!("{one:?}")
        };
        assert_eq!(
            (one.text.as_str(), one.line, one.column),
            ("SELECT 'ü' -- x", 2, 3)
        );
        assert!(is_obvious("SELECT 1") && !is_obvious("SELECT ';'") && !is_obvious("/**/ x"));
        let error = Error::new("x", "00000", "y").located(Some((1, 5)));
        let placed = &statements(sql).unwrap()[1];
        assert_eq!(placed.locate(error).at, Some((3, 7)));
    }
}
