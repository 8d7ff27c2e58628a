//! Named snapshots: `snapshot('table', 'name')` as a table, and the statements `CREATE SNAPSHOT`,
//! `DROP SNAPSHOT` and `SHOW SNAPSHOTS`.
//!
//! The call becomes a name of two parts that cannot be typed: a table in a schema that represents
//! the snapshot.

use super::words::{self, next_token, punctuation, quoted_name, skip_keywords, syntax_error};
use crate::error::Result;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Encloses the name of a snapshot in a schema name. Names of this crate do not contain it, and a
/// statement that contains it is refused.
const MARK: char = '\u{1f}';

/// Splits the name of a table of a snapshot: the snapshot, and the table. `None` = a current table.
pub(crate) fn past_table(name: &str) -> Option<(&str, &str)> {
    let (snapshot, table) = name.strip_prefix(MARK)?.split_once(MARK)?;
    Some((snapshot, table.strip_prefix('.')?))
}

/// Statements about snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Create { name: String, if_not_exists: bool },
    Drop { name: String, if_exists: bool },
    Show,
}

/// Parses a statement about snapshots; `None` for other statements.
pub(crate) fn about(tokens: &[TokenWithSpan]) -> Result<Option<About>> {
    let is_marked =
        |t: &&TokenWithSpan| matches!(&t.token, Token::Word(w) if w.value.contains(MARK));
    if let Some(token) = tokens.iter().find(is_marked) {
        return Err(syntax_error(
            "expected a name without control characters",
            Some(token),
        ));
    }
    if let Some(at) = skip_keywords(tokens, 0, &["SHOW", "SNAPSHOTS"]) {
        return at_end(tokens, at).map(|()| Some(About::Show));
    }
    let (mut at, creates) = match skip_keywords(tokens, 0, &["CREATE", "SNAPSHOT"]) {
        Some(at) => (at, true),
        None => match skip_keywords(tokens, 0, &["DROP", "SNAPSHOT"]) {
            Some(at) => (at, false),
            None => return Ok(None),
        },
    };
    let condition: &[&str] = match creates {
        true => &["IF", "NOT", "EXISTS"],
        false => &["IF", "EXISTS"],
    };
    let conditional = skip_keywords(tokens, at, condition);
    at = conditional.unwrap_or(at);
    let place = next_token(tokens, at);
    let token = place.and_then(|at| tokens.get(at));
    let name = match token.map(|token| &token.token) {
        Some(Token::Word(word)) => match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_lowercase(),
        },
        Some(Token::SingleQuotedString(text)) => text.clone(),
        _ => return Err(syntax_error("expected the name of a snapshot", token)),
    };
    at_end(tokens, place.map_or(at, |at| at + 1))?;
    Ok(Some(match creates {
        true => About::Create {
            name,
            if_not_exists: conditional.is_some(),
        },
        false => About::Drop {
            name,
            if_exists: conditional.is_some(),
        },
    }))
}

fn at_end(tokens: &[TokenWithSpan], from: usize) -> Result<()> {
    let ends = |token: &TokenWithSpan| matches!(token.token, Token::SemiColon | Token::EOF);
    let rest = tokens.iter().skip(from);
    let left = rest.filter(|t| !words::is_space(t)).find(|t| !ends(t));
    match left {
        None => Ok(()),
        more => Err(syntax_error("expected the end of the statement", more)),
    }
}

/// Replaces `snapshot('table', 'name')` by the name of a table, at any position.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let call = words::is_keyword(token, "SNAPSHOT")
            .then(|| called(&tokens, at))
            .flatten();
        match call {
            None => {
                out.push(token.clone());
                at += 1;
            }
            Some((table, snapshot, behind)) => {
                let span = token.span;
                out.push(quoted_name(&format!("{MARK}{snapshot}{MARK}"), span));
                out.push(punctuation(Token::Period, span));
                out.push(quoted_name(&table, span));
                at = behind;
            }
        }
    }
    Ok(out)
}

/// Table and snapshot of a call at a position, and the position after it.
fn called(tokens: &[TokenWithSpan], at: usize) -> Option<(String, String, usize)> {
    let text = |at: usize| match &tokens.get(at)?.token {
        Token::SingleQuotedString(text) => Some(text.clone()),
        _ => None,
    };
    let open = next_token(tokens, at + 1)?;
    let table = next_token(tokens, open + 1)?;
    let comma = next_token(tokens, table + 1)?;
    let snapshot = next_token(tokens, comma + 1)?;
    let close = next_token(tokens, snapshot + 1)?;
    let is = |at: usize, wanted: &Token| tokens.get(at).is_some_and(|t| t.token == *wanted);
    let fits = is(open, &Token::LParen) && is(comma, &Token::Comma) && is(close, &Token::RParen);
    let (table, snapshot) = (text(table)?, text(snapshot)?);
    fits.then_some((table, snapshot, close + 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::complexity;

    fn written(sql: &str) -> String {
        let tokens = rewrite(complexity::tokens(sql).unwrap()).unwrap();
        let all = tokens.iter().map(|token| token.token.to_string());
        all.collect::<String>().replace(MARK, "^")
    }

    #[test]
    fn a_table_of_a_snapshot_becomes_a_name() {
        let sql = "SELECT * FROM snapshot('t', 'a b') s JOIN Snapshot ( 'u','x' ) ON true";
        let expected = "SELECT * FROM \"^a b^\".\"t\" s JOIN \"^x^\".\"u\" ON true";
        assert_eq!(written(sql), expected);
        for same in ["SELECT snapshot FROM t", "SELECT snapshot(1) FROM t"] {
            assert_eq!(written(same), same);
        }
        assert_eq!(past_table("\u{1f}a.b\u{1f}.t.u"), Some(("a.b", "t.u")));
        assert_eq!(past_table("t"), None);
    }

    #[test]
    fn statements_about_snapshots_are_read() {
        let read = |sql: &str| about(&complexity::tokens(sql).unwrap());
        let create = |name: &str, if_not_exists| {
            Some(About::Create {
                name: name.into(),
                if_not_exists,
            })
        };
        assert_eq!(
            read("create snapshot Monday;").unwrap(),
            create("monday", false)
        );
        assert_eq!(
            read("CREATE SNAPSHOT IF NOT EXISTS \"Monday 1\"").unwrap(),
            create("Monday 1", true)
        );
        let drop = About::Drop {
            name: "it's".into(),
            if_exists: true,
        };
        assert_eq!(read("DROP SNAPSHOT IF EXISTS 'it''s'").unwrap(), Some(drop));
        assert_eq!(read("SHOW SNAPSHOTS").unwrap(), Some(About::Show));
        assert_eq!(read("SELECT 1").unwrap(), None);
        for wrong in ["CREATE SNAPSHOT", "DROP SNAPSHOT a b", "SHOW SNAPSHOTS x"] {
            assert_eq!(read(wrong).unwrap_err().code, "syntax_error", "{wrong}");
        }
    }
}
