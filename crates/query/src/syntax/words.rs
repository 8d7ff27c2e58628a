//! Tokens of a statement: keywords, brackets, punctuation and their positions.

use crate::error::Error;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// Whether the token is this keyword, unquoted.
pub(crate) fn is_keyword(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

pub(crate) fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// The position of the next non-whitespace token, from a position on.
pub(crate) fn next_token(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let rest = tokens.get(from..)?;
    let found = rest.iter().position(|token| !is_space(token))?;
    Some(from + found)
}

/// The position after these keywords, if they follow from a position on.
pub(crate) fn skip_keywords(
    tokens: &[TokenWithSpan],
    from: usize,
    words: &[&str],
) -> Option<usize> {
    let mut at = from;
    for word in words {
        at = next_token(tokens, at)?;
        if !is_keyword(tokens.get(at)?, word) {
            return None;
        }
        at += 1;
    }
    Some(at)
}

/// Change of the depth of brackets by a token.
pub(crate) fn bracket_depth(token: &TokenWithSpan) -> i32 {
    match token.token {
        Token::LParen | Token::LBracket | Token::LBrace => 1,
        Token::RParen | Token::RBracket | Token::RBrace => -1,
        _ => 0,
    }
}

/// The position of the bracket that closes the one at a position.
pub(crate) fn closing_bracket(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut deep = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        deep += bracket_depth(token);
        if deep == 0 {
            return Some(at);
        }
    }
    None
}

/// A keyword at a position of the text.
pub(crate) fn keyword(text: &str, span: Span) -> TokenWithSpan {
    TokenWithSpan::new(Token::make_word(text, None), span)
}

/// A name in quotes at a position of the text.
pub(crate) fn quoted_name(text: &str, span: Span) -> TokenWithSpan {
    TokenWithSpan::new(Token::make_word(text, Some('"')), span)
}

/// A punctuation token at a position of the text.
pub(crate) fn punctuation(token: Token, span: Span) -> TokenWithSpan {
    TokenWithSpan::new(token, span)
}

/// Line and column of a token.
pub(crate) fn position(token: Option<&TokenWithSpan>) -> Option<(u32, u32)> {
    let start = token?.span.start;
    let number = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
    number(start.line).zip(number(start.column))
}

/// A syntax error at a token.
pub(crate) fn syntax_error(message: impl Into<String>, token: Option<&TokenWithSpan>) -> Error {
    Error::syntax(message).located(position(token))
}
