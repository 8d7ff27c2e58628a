//! The words of a text.
//!
//! Invariant: every token except the last has at least one byte, so that reading ends. A `/` begins
//! a regular expression only where the parser says that one is allowed.

use super::error::ParseError;
use crate::durations::parse_duration_ns;

/// A word of a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or keyword without quotes.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A text in single quotes.
    Text(String),
    /// A whole number, without sign.
    Integer(u64),
    Float(f64),
    /// A length of time in ns.
    Duration(i64),
    Regex(String),
    /// A parameter such as `$name`.
    Parameter(String),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    End,
}

impl Token {
    /// The name of a token in messages.
    pub(super) fn described(&self) -> String {
        match self {
            Token::Word(word) => word.clone(),
            Token::Quoted(name) => format!("\"{name}\""),
            Token::Text(text) => format!("'{text}'"),
            Token::Integer(number) => number.to_string(),
            Token::Float(number) => number.to_string(),
            Token::Duration(ns) => format!("{ns}ns"),
            Token::Regex(pattern) => format!("/{pattern}/"),
            Token::Parameter(name) => format!("${name}"),
            Token::Symbol(symbol) => (*symbol).to_owned(),
            Token::End => "EOF".to_owned(),
        }
    }
}

/// Sorted so that a longer symbol precedes its prefix.
const SYMBOLS: [&str; 24] = [
    "::", "=~", "!~", "!=", "<>", "<=", ">=", "<", ">", "=", "+", "-", "*", "/", "%", "(", ")",
    ",", ";", ".", "&", "|", "^", ":",
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn error<T>(&self, offset: usize, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError::at(self.text, offset, message))
    }

    /// Skips spaces and comments.
    fn skip(&mut self) -> Result<(), ParseError> {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start().len();
            self.at += blanks;
            let rest = self.rest();
            if rest.starts_with("--") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => self.at += end + 2,
                    None => return self.error(self.at, "a comment without the closing `*/`"),
                }
            } else if blanks == 0 {
                return Ok(());
            }
        }
    }

    /// The next token and its offset.
    pub(super) fn next(&mut self, regex_allowed: bool) -> Result<(Token, usize), ParseError> {
        self.skip()?;
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok((Token::End, start));
        };
        let token = match first {
            '"' => Token::Quoted(self.quoted('"')?),
            '\'' => Token::Text(self.quoted('\'')?),
            '/' if regex_allowed => Token::Regex(self.regex()?),
            '$' => {
                self.at += 1;
                let name = match self.rest().chars().next() {
                    Some('"') => self.quoted('"')?,
                    _ => self.word(),
                };
                if name.is_empty() {
                    return self.error(start, "found `$` without the name of a parameter");
                }
                Token::Parameter(name)
            }
            c if c.is_ascii_digit() => self.number()?,
            '.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => self.number()?,
            c if is_word(c) => Token::Word(self.word()),
            _ => match SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
                Some(symbol) => {
                    self.at += symbol.len();
                    Token::Symbol(symbol)
                }
                None => return self.error(start, format!("found unexpected character {first}")),
            },
        };
        Ok((token, start))
    }

    fn word(&mut self) -> String {
        let rest = self.rest();
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or("").to_owned()
    }

    /// Reads the text between quotes. A backslash escapes a quote and a backslash, and `\n` is a
    /// line feed.
    fn quoted(&mut self, quote: char) -> Result<String, ParseError> {
        let start = self.at;
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + c.len_utf8();
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, c @ ('\\' | '"' | '\''))) => out.push(c),
                    Some((at, c)) => {
                        let message = format!(
                            "found \\{c}: a backslash escapes a quote or a backslash; write a literal backslash as \\\\"
                        );
                        return self.error(self.at + at - 1, message);
                    }
                    None => break,
                },
                c => out.push(c),
            }
        }
        self.error(start, format!("a text without its closing {quote}"))
    }

    /// Reads the text between slashes; `\/` is a slash, other backslashes belong to the expression.
    fn regex(&mut self) -> Result<String, ParseError> {
        let start = self.at;
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '/' => {
                    self.at += at + 1;
                    return Ok(out);
                }
                '\n' => break,
                '\\' => match chars.next() {
                    Some((_, '/')) => out.push('/'),
                    Some((_, c)) => {
                        out.push('\\');
                        out.push(c);
                    }
                    None => break,
                },
                c => out.push(c),
            }
        }
        self.error(start, "a regular expression without its closing /")
    }

    /// A number, or a duration: digits with units after them.
    fn number(&mut self) -> Result<Token, ParseError> {
        let start = self.at;
        let rest = self.rest();
        let digits = |from: usize| {
            let tail = rest.get(from..).unwrap_or("");
            from + tail
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(tail.len())
        };
        let mut end = digits(0);
        if rest.get(end..).is_some_and(|t| t.starts_with('.')) {
            end = digits(end + 1);
            self.at += end;
            let text = rest.get(..end).unwrap_or("");
            return match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Token::Float(number)),
                _ => self.error(start, format!("found {text}, which is not a number")),
            };
        }
        if !rest.get(end..).is_some_and(|t| t.starts_with(is_unit)) {
            self.at += end;
            let text = rest.get(..end).unwrap_or("");
            return match text.parse() {
                Ok(number) => Ok(Token::Integer(number)),
                Err(_) => self.error(start, format!("{text} is greater than the largest integer")),
            };
        }
        let length = rest
            .find(|c: char| !c.is_ascii_digit() && !is_unit(c))
            .unwrap_or(rest.len());
        self.at += length;
        let text = rest.get(..length).unwrap_or("");
        match duration(text) {
            Ok(ns) => Ok(Token::Duration(ns)),
            Err(why) => self.error(start, why),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_unit(c: char) -> bool {
    c.is_ascii_alphabetic() || c == 'µ' || c == 'μ'
}

/// A length of time, with `u` and `µ` for microseconds, as InfluxDB writes them; 0 is allowed.
fn duration(text: &str) -> Result<i64, String> {
    let mut plain = String::with_capacity(text.len() + 4);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            'u' | 'µ' | 'μ' => {
                plain.push_str("us");
                chars.next_if_eq(&'s');
            }
            c => plain.push(c),
        }
    }
    use crate::durations::DurationError;
    match parse_duration_ns(&plain) {
        Ok(ns) => Ok(ns),
        Err(DurationError::Zero) => Ok(0),
        Err(error) => Err(error.to_string()),
    }
}
