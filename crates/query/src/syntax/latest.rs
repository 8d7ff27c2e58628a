//! `SELECT … FROM t [WHERE …] LATEST ON time PARTITION BY tags`, as in QuestDB: a read of the
//! newest row of each partition, by `DISTINCT ON`.

use super::words::{
    bracket_depth, closing_bracket, is_keyword, is_space, keyword, next_token, punctuation,
    skip_keywords, syntax_error,
};
use crate::error::{Error, Result};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

pub(super) fn rewrite(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    // The innermost first: the enclosing query may have its own.
    while let Some(found) = find(&tokens) {
        let made = Latest::read(&tokens, found)?;
        tokens = made.replace_table(tokens);
    }
    Ok(tokens)
}

/// The position of the last `LATEST ON`.
fn find(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut places = tokens.iter().enumerate().rev();
    let found = places.find(|(at, token)| {
        is_keyword(token, "LATEST") && skip_keywords(tokens, at + 1, &["ON"]).is_some()
    });
    found.map(|(at, _)| at)
}

/// A part of a statement that selects newest rows.
struct Latest {
    /// The position after `FROM`.
    from: usize,
    /// The position of `LATEST`.
    at: usize,
    /// The position after the partition.
    end: usize,
    time: Vec<TokenWithSpan>,
    partition: Vec<TokenWithSpan>,
    /// Alias of the table in the enclosing query.
    alias: Vec<TokenWithSpan>,
}

/// Words that end a list of columns.
const ENDS: [&str; 12] = [
    "GROUP",
    "HAVING",
    "WINDOW",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "FOR",
    "WHERE",
];

fn unsupported(message: &str, token: Option<&TokenWithSpan>) -> Error {
    Error::unsupported(message.to_owned())
        .with_hint(
            "DISTINCT ON (tags) … ORDER BY tags, time DESC returns the newest rows of any query",
        )
        .located(super::words::position(token))
}

impl Latest {
    fn read(tokens: &[TokenWithSpan], at: usize) -> Result<Latest> {
        let token = tokens.get(at);
        let from =
            from(tokens, at).ok_or_else(|| syntax_error("LATEST ON without a FROM", token))?;
        let on = skip_keywords(tokens, at + 1, &["ON"]).unwrap_or(at + 1);
        let by = (on..tokens.len()).find(|place| {
            tokens
                .get(*place)
                .is_some_and(|token| is_keyword(token, "PARTITION"))
        });
        let by =
            by.and_then(|place| Some((place, skip_keywords(tokens, place, &["PARTITION", "BY"])?)));
        let Some((partition, begin)) = by else {
            let example = "FROM weather LATEST ON time PARTITION BY station";
            return Err(syntax_error("LATEST ON: expected PARTITION BY", token).with_hint(example));
        };
        let mut deep = 0;
        let end = tokens.iter().enumerate().skip(begin).find(|(_, token)| {
            deep += bracket_depth(token);
            deep < 0
                || (deep == 0 && ENDS.iter().any(|end| is_keyword(token, end)))
                || matches!(token.token, Token::SemiColon | Token::EOF)
        });
        let end = end.map_or(tokens.len(), |(place, _)| place);
        let part = |range: std::ops::Range<usize>| tokens.get(range).unwrap_or(&[]).to_vec();
        Ok(Latest {
            alias: alias(tokens.get(from..at).unwrap_or(&[]))?,
            from,
            at,
            end,
            time: part(on..partition),
            partition: part(begin..end),
        })
    }

    /// The statement with a query of the newest rows in place of the table.
    fn replace_table(self, tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
        let span = tokens
            .get(self.at)
            .map_or(Span::empty(), |token| token.span);
        let text = |words: &[&str]| -> Vec<TokenWithSpan> {
            words.iter().map(|text| keyword(text, span)).collect()
        };
        let open = || punctuation(Token::LParen, span);
        let close = || punctuation(Token::RParen, span);
        let range = |range: std::ops::Range<usize>| tokens.get(range).unwrap_or(&[]).to_vec();
        let mut out = range(0..self.from);
        out.push(open());
        out.extend(text(&["SELECT", "DISTINCT", "ON"]));
        out.push(open());
        out.extend(self.partition.iter().cloned());
        out.push(close());
        out.push(punctuation(Token::Mul, span));
        out.extend(text(&["FROM"]));
        out.extend(range(self.from..self.at));
        out.extend(text(&["ORDER", "BY"]));
        out.extend(self.partition);
        out.push(punctuation(Token::Comma, span));
        out.extend(self.time);
        out.extend(text(&["DESC"]));
        out.push(close());
        out.extend(text(&["AS"]));
        out.extend(self.alias);
        out.extend(range(self.end..tokens.len()));
        out
    }
}

/// The position after the `FROM` of the query that contains a position.
fn from(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let mut deep = 0;
    let before = tokens.get(..at)?.iter().enumerate().rev();
    for (place, token) in before {
        deep -= bracket_depth(token);
        if deep < 0 {
            return None;
        }
        if deep == 0 && is_keyword(token, "FROM") {
            return Some(place + 1);
        }
    }
    None
}

/// Alias of the only table of a query.
fn alias(source: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let mut deep = 0;
    for token in source {
        deep += bracket_depth(token);
        let several = matches!(token.token, Token::Comma) || is_keyword(token, "JOIN");
        if deep == 0 && several {
            return Err(unsupported(
                "LATEST ON supports a single table only",
                Some(token),
            ));
        }
        if deep == 0 && is_keyword(token, "WHERE") {
            break;
        }
    }
    let first = next_token(source, 0);
    let Some(first) = first else {
        return Err(syntax_error("LATEST ON without a table", source.first()));
    };
    let is_query = source
        .get(first)
        .is_some_and(|token| matches!(token.token, Token::LParen));
    let own = match is_query {
        true => closing_bracket(source, first).map(|close| (close, close + 1)),
        false => Some((first, first + 1)),
    };
    let Some((table, mut behind)) = own else {
        return Err(syntax_error(
            "LATEST ON: unclosed parenthesis",
            source.get(first),
        ));
    };
    // A schema before the name.
    let mut named = table;
    while let Some(dot) = next_token(source, behind).filter(|at| {
        source
            .get(*at)
            .is_some_and(|token| matches!(token.token, Token::Period))
    }) {
        let Some(part) = next_token(source, dot + 1) else {
            break;
        };
        (named, behind) = (part, part + 1);
    }
    let behind = skip_keywords(source, behind, &["AS"]).unwrap_or(behind);
    let given = next_token(source, behind).and_then(|at| source.get(at));
    let given =
        given.filter(|token| matches!(token.token, Token::Word(_)) && !is_keyword(token, "WHERE"));
    let known = match (given, is_query) {
        (Some(given), _) => given.clone(),
        (None, true) => keyword(
            "latest_rows",
            source.first().map_or(Span::empty(), |t| t.span),
        ),
        (None, false) => match source.get(named) {
            Some(token) if !is_space(token) => token.clone(),
            _ => return Err(syntax_error("LATEST ON without a table", source.get(first))),
        },
    };
    Ok(vec![known])
}
