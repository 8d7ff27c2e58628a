//! `ASOF [LEFT] JOIN t ON …` in DuckDB's form: the parser supports only Snowflake's form, with a
//! `MATCH_CONDITION`, so one is inserted whose name identifies the kind of join.

use super::words::{
    bracket_depth, is_keyword, keyword, next_token, punctuation, quoted_name, skip_keywords,
    syntax_error,
};
use crate::error::Result;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Marker condition after `ON`, for a join that removes rows without a match.
pub(crate) const INNER: &str = "asof\u{1}inner";
/// Marker condition for a join that keeps rows without a match.
pub(crate) const LEFT: &str = "asof\u{1}left";

pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 8);
    // Positions of the conditions of joins, and the condition to insert before each.
    let mut conditions: Vec<(usize, &str)> = Vec::new();
    let mut skipped_until = 0;
    for (at, token) in tokens.iter().enumerate() {
        if let Some(place) = conditions
            .iter()
            .position(|(condition, _)| *condition == at)
        {
            let (_, kind) = conditions.swap_remove(place);
            let span = token.span;
            out.push(keyword("MATCH_CONDITION", span));
            out.push(punctuation(Token::LParen, span));
            out.push(quoted_name(kind, span));
            out.push(punctuation(Token::RParen, span));
        }
        if at < skipped_until {
            continue;
        }
        out.push(token.clone());
        if is_keyword(token, "ASOF")
            && let Some((kind, join)) = join(&tokens, at + 1)
        {
            skipped_until = join;
            if let Some(condition) = condition(&tokens, join + 1)? {
                conditions.push((condition, kind));
            }
        }
    }
    Ok(out)
}

/// The join that begins after `ASOF`, and the position of its `JOIN`.
fn join(tokens: &[TokenWithSpan], from: usize) -> Option<(&'static str, usize)> {
    let forms: [(&[&str], &'static str); 4] = [
        (&["LEFT", "OUTER", "JOIN"], LEFT),
        (&["LEFT", "JOIN"], LEFT),
        (&["INNER", "JOIN"], INNER),
        (&["JOIN"], INNER),
    ];
    forms.into_iter().find_map(|(words, kind)| {
        let behind = skip_keywords(tokens, from, words)?;
        Some((kind, behind - 1))
    })
}

/// The position of the `ON` of a join; `None` for a condition in Snowflake's form.
fn condition(tokens: &[TokenWithSpan], from: usize) -> Result<Option<usize>> {
    let mut deep = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        deep += bracket_depth(token);
        if deep < 0 || (deep == 0 && is_keyword(token, "JOIN")) {
            break;
        }
        if deep == 0 && is_keyword(token, "MATCH_CONDITION") {
            return Ok(None);
        }
        if deep == 0 && is_keyword(token, "ON") {
            return Ok(Some(at));
        }
        if deep == 0 && is_keyword(token, "USING") {
            return Err(
                syntax_error("ASOF JOIN … USING is not supported", Some(token))
                    .with_hint("write the columns out: ON a.id = b.id AND a.time >= b.time"),
            );
        }
    }
    let found = next_token(tokens, from).and_then(|at| tokens.get(at));
    Err(syntax_error(
        "ASOF JOIN: expected ON or MATCH_CONDITION after the table",
        found,
    )
    .with_hint("ASOF JOIN b ON a.id = b.id AND a.time >= b.time"))
}
