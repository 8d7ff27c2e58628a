//! The words, names, texts and signs of the statements that a session reads itself.

use super::errors::error;
use crate::messages::Notice;

/// A word or sign of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word in small letters, or a number.
    Word(String),
    /// A quoted name.
    Name(String),
    /// A text.
    Text(String),
    Symbol(char),
}

impl Token {
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Token::Word(found) if found == word)
    }

    pub(super) fn name(&self) -> Option<String> {
        match self {
            Token::Word(text) | Token::Name(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(super) fn value(&self) -> String {
        match self {
            Token::Word(text) | Token::Name(text) | Token::Text(text) => text.clone(),
            Token::Symbol(symbol) => symbol.to_string(),
        }
    }
}

/// The tokens of a statement, each with the offset of its end.
pub(super) fn tokens(text: &str) -> Vec<(Token, usize)> {
    let mut tokens = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let mut end = at + c.len_utf8();
        let token = match c {
            c if c.is_whitespace() => continue,
            '-' if text[end..].starts_with('-') => {
                while chars.next_if(|(_, c)| *c != '\n').is_some() {}
                continue;
            }
            quote @ ('\'' | '"') => {
                let mut value = String::new();
                while let Some((at, c)) = chars.next() {
                    end = at + c.len_utf8();
                    if c != quote {
                        value.push(c);
                    } else if chars.next_if(|(_, c)| *c == quote).is_some() {
                        end += 1;
                        value.push(quote);
                    } else {
                        break;
                    }
                }
                if quote == '"' {
                    Token::Name(value)
                } else {
                    Token::Text(value)
                }
            }
            c if c.is_alphanumeric() || c == '_' => {
                let mut value = c.to_string();
                while let Some((at, c)) =
                    chars.next_if(|(_, c)| c.is_alphanumeric() || "_.$".contains(*c))
                {
                    end = at + c.len_utf8();
                    value.push(c);
                }
                Token::Word(value.to_lowercase())
            }
            c => Token::Symbol(c),
        };
        tokens.push((token, end));
    }
    tokens
}

/// Error for a statement that cannot be parsed; `how` states the expected form.
pub(super) fn wrong(statement: &str, how: &str) -> Notice {
    let mut notice = error(
        "42601",
        format!("this form of {statement} is not supported"),
    );
    notice.hint = Some(how.to_owned());
    notice
}
