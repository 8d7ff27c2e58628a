//! `MATCH_RECOGNIZE`: the parser supports the clause, but not every pattern, nor `WITHIN`,
//! `SUBSET`, `FINAL` and `SKIP TO symbol`. The pattern and the parts after it become one quoted
//! name, which is parsed when the clause is planned.
//!
//! Invariant: a user's quoted name is never mistaken for such a name, since these contain a special
//! character.

use super::words::{
    bracket_depth, closing_bracket, is_keyword, is_space, keyword, next_token, punctuation,
    quoted_name, skip_keywords, syntax_error,
};
use crate::error::Result;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Separates the pattern, the length and the sets of symbols.
pub(crate) const APART: char = '\u{1}';
/// Replaces a subquery as source.
pub(crate) const SOURCE: &str = "pattern\u{1}source";

pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        out.push(token.clone());
        at += 1;
        let open = next_token(&tokens, at).filter(|open| {
            is_keyword(token, "MATCH_RECOGNIZE")
                && tokens
                    .get(*open)
                    .is_some_and(|token| token.token == Token::LParen)
        });
        if let Some(open) = open {
            let Some(close) = closing_bracket(&tokens, open) else {
                return Err(syntax_error(
                    "MATCH_RECOGNIZE (…) is not closed",
                    Some(token),
                ));
            };
            let source = source(&mut out, token);
            out.push(punctuation(Token::LParen, token.span));
            let inner = clause(tokens.get(open + 1..close).unwrap_or(&[]))?;
            out.extend(match source {
                Some(source) => read_from(source, inner, token),
                None => inner,
            });
            at = close;
        }
    }
    Ok(out)
}

/// Extracts the subquery before the clause from the statement, if it is the source of the clause,
/// and replaces it by a name: the parser supports only tables there.
fn source(out: &mut Vec<TokenWithSpan>, clause: &TokenWithSpan) -> Option<Vec<TokenWithSpan>> {
    let before = |out: &[TokenWithSpan], at: usize| {
        out.get(..at)?.iter().rposition(|token| !is_space(token))
    };
    let own = before(out, out.len() - 1)?;
    let mut close = own;
    let mut alias = None;
    if matches!(out.get(own)?.token, Token::Word(_)) {
        alias = out.get(own).cloned();
        close = before(out, own)?;
        if is_keyword(out.get(close)?, "AS") {
            close = before(out, close)?;
        }
    }
    if out.get(close)?.token != Token::RParen {
        return None;
    }
    let mut deep = 0;
    let open = out.get(..=close)?.iter().rposition(|token| {
        deep += bracket_depth(token);
        deep == 0
    })?;
    let begins = out.get(next_token(out, open + 1)?)?;
    let is_query = ["SELECT", "WITH", "VALUES"]
        .iter()
        .any(|known| is_keyword(begins, known))
        || begins.token == Token::LParen;
    if !is_query {
        return None;
    }
    let query = out.get(open + 1..close)?.to_vec();
    out.truncate(open);
    out.push(quoted_name(SOURCE, clause.span));
    if let Some(alias) = alias {
        out.push(keyword("AS", clause.span));
        out.push(alias);
    }
    out.push(clause.clone());
    Some(query)
}

/// The clause, with the subquery as the first of its partition columns.
fn read_from(
    query: Vec<TokenWithSpan>,
    clause: Vec<TokenWithSpan>,
    token: &TokenWithSpan,
) -> Vec<TokenWithSpan> {
    let span = token.span;
    let mut out: Vec<TokenWithSpan> = ["PARTITION", "BY", "EXISTS"]
        .iter()
        .map(|text| keyword(text, span))
        .collect();
    out.push(punctuation(Token::LParen, span));
    out.extend(query);
    out.push(punctuation(Token::RParen, span));
    match skip_keywords(&clause, 0, &["PARTITION", "BY"]) {
        Some(behind) => {
            out.push(punctuation(Token::Comma, span));
            out.extend(clause.into_iter().skip(behind));
        }
        None => out.extend(clause),
    }
    out
}

/// Tokens between the brackets of the clause.
fn clause(tokens: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut deep = 0;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        deep += bracket_depth(token);
        at += 1;
        if let Some(called) = prefixed(tokens, at - 1) {
            // A function name encodes FINAL; RUNNING is the default.
            let function = tokens
                .get(called)
                .map_or_else(String::new, |t| t.token.to_string());
            out.push(match is_keyword(token, "FINAL") {
                true => quoted_name(&format!("final{APART}{function}"), token.span),
                false => keyword(&function, token.span),
            });
            at = called + 1;
            continue;
        }
        if deep == 0 && is_keyword(token, "PATTERN") {
            let (text, behind) = pattern(tokens, at)?;
            out.push(token.clone());
            out.push(punctuation(Token::LParen, token.span));
            out.push(quoted_name(&text, token.span));
            out.push(punctuation(Token::RParen, token.span));
            at = behind;
            continue;
        }
        out.push(token.clone());
        // SKIP TO symbol means its last row.
        if deep == 0
            && is_keyword(token, "TO")
            && let Some(symbol) = next_token(tokens, at).and_then(|at| tokens.get(at))
            && !["NEXT", "FIRST", "LAST"]
                .iter()
                .any(|known| is_keyword(symbol, known))
        {
            out.push(keyword("LAST", token.span));
        }
    }
    Ok(out)
}

/// The position of the function after `FINAL` or `RUNNING`.
fn prefixed(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let token = tokens.get(at)?;
    if !is_keyword(token, "FINAL") && !is_keyword(token, "RUNNING") {
        return None;
    }
    let function = next_token(tokens, at + 1)?;
    let open = next_token(tokens, function + 1)?;
    let is_call = matches!(tokens.get(function)?.token, Token::Word(_))
        && tokens.get(open)?.token == Token::LParen;
    is_call.then_some(function)
}

/// The pattern from a position on, with its length and its sets of symbols, and the position after
/// it.
fn pattern(tokens: &[TokenWithSpan], from: usize) -> Result<(String, usize)> {
    let open = next_token(tokens, from);
    let found = open.and_then(|open| tokens.get(open));
    let close = open
        .filter(|_| found.is_some_and(|token| token.token == Token::LParen))
        .and_then(|open| Some((open, closing_bracket(tokens, open)?)));
    let Some((open, close)) = close else {
        return Err(
            syntax_error("PATTERN: expected a pattern in brackets", found)
                .with_hint("for example: PATTERN (A B+ C)"),
        );
    };
    let end = (close..tokens.len()).find(|at| {
        tokens
            .get(*at)
            .is_some_and(|token| is_keyword(token, "DEFINE"))
    });
    let end = end.unwrap_or(tokens.len());
    let place = |wanted: &str| {
        (close + 1..end).find(|at| {
            tokens
                .get(*at)
                .is_some_and(|token| is_keyword(token, wanted))
        })
    };
    let (within, subset) = (place("WITHIN"), place("SUBSET"));
    let stop = |from: usize| {
        let ends = [within, subset]
            .into_iter()
            .flatten()
            .filter(|at| *at > from);
        ends.min().unwrap_or(end)
    };
    let part = |begin: Option<usize>| match begin {
        Some(begin) => text(tokens.get(begin + 1..stop(begin)).unwrap_or(&[])),
        None => String::new(),
    };
    let between = stop(close);
    if let Some(stray) = next_token(tokens, close + 1).filter(|at| *at < between) {
        return Err(syntax_error(
            "PATTERN (…) is followed by WITHIN, SUBSET and DEFINE",
            tokens.get(stray),
        ));
    }
    let inner = text(tokens.get(open + 1..close).unwrap_or(&[]));
    let all = format!("{inner}{APART}{}{APART}{}", part(within), part(subset));
    if skip_keywords(tokens, end, &["DEFINE"]).is_none() {
        return Err(
            syntax_error("MATCH_RECOGNIZE: expected DEFINE", tokens.get(close))
                .with_hint("DEFINE A AS price > 10, …; symbols without a condition are left out"),
        );
    }
    Ok((all, end))
}

fn text(tokens: &[TokenWithSpan]) -> String {
    let mut text = String::new();
    for token in tokens {
        match is_space(token) {
            true => text.push(' '),
            false => text.push_str(&token.token.to_string()),
        }
    }
    text.trim().to_owned()
}
