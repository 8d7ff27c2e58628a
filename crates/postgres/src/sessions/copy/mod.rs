//! `COPY … TO STDOUT` and `COPY … FROM STDIN`: the reader of such statements.
//!
//! Incoming rows are read in [`rows`]; a session carries the statement out.

mod columns;
mod lines;
mod rows;
mod unfit;

pub(super) use rows::{Incoming, InputPositions};

use super::errors::error;
use super::tokens::{Token, tokens, wrong};
use crate::messages::{CopyFormat, Notice};

/// Source or target of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Copied {
    /// Columns of a table; empty = all. The name is spelled as in the statement.
    Table { name: String, columns: Vec<String> },
    /// The rows of a query.
    Query(String),
}

/// A statement that copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) source: Copied,
    /// True for a copy to the client; false for a copy from it.
    pub(super) out: bool,
    pub(super) form: Form,
}

/// Form of written rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// As lines of text or of CSV.
    Lines(CopyFormat),
    /// PostgreSQL's binary format.
    Binary,
}

const HOW: &str = "COPY table [(columns)] TO STDOUT, COPY (query) TO STDOUT or COPY table [(columns)] FROM STDIN, then WITH (FORMAT csv, HEADER)";

/// Reads the tokens of a statement from one to the next.
struct Words<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    at: usize,
}

impl Words<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += 1;
        token
    }

    /// Consumes the next token, if `wanted` accepts it.
    fn take(&mut self, wanted: impl Fn(&Token) -> bool) -> bool {
        let found = self.peek().is_some_and(wanted);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> bool {
        self.take(|token| token.is(word))
    }

    fn symbol(&mut self, symbol: char) -> bool {
        self.take(|token| *token == Token::Symbol(symbol))
    }

    /// Offset of the end of the previous token, in bytes.
    fn end_of_last(&self) -> usize {
        let last = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        last.map_or(0, |(_, end)| *end)
    }

    fn between(&self, from: usize, to: usize) -> String {
        self.text
            .get(from..to)
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

impl Copy {
    /// Reads a statement that begins with `COPY`.
    ///
    /// # Errors
    /// When the statement cannot be parsed, or its source or target cannot be copied.
    pub(super) fn read(text: &str) -> Result<Copy, Notice> {
        let mut words = Words {
            text,
            tokens: tokens(text),
            at: 1,
        };
        let not_understood = || wrong("COPY", HOW);
        let source = if words.symbol('(') {
            let from = words.end_of_last();
            let mut depth = 1;
            let mut to = from;
            while depth > 0 {
                to = words.end_of_last();
                match words.next().ok_or_else(not_understood)? {
                    Token::Symbol('(') => depth += 1,
                    Token::Symbol(')') => depth -= 1,
                    _ => {}
                }
            }
            // Text before the last bracket, spaces and comments included.
            let close = words.end_of_last().saturating_sub(1);
            Copied::Query(words.between(from, close.max(to)))
        } else {
            let from = words.end_of_last();
            let is_name = |token: &Token| matches!(token, Token::Word(_) | Token::Name(_));
            loop {
                if !words.take(is_name) {
                    return Err(not_understood());
                }
                // A point belongs to the word before it, and is a separate token after a quoted
                // name.
                let so_far = words.text.get(..words.end_of_last()).unwrap_or_default();
                if !so_far.ends_with('.') && !words.symbol('.') {
                    break;
                }
            }
            let name = words.between(from, words.end_of_last());
            let mut columns = Vec::new();
            if words.symbol('(') {
                loop {
                    let column = words.next().and_then(|token| token.name());
                    columns.push(column.ok_or_else(not_understood)?);
                    if words.symbol(')') {
                        break;
                    }
                    if !words.symbol(',') {
                        return Err(not_understood());
                    }
                }
            }
            Copied::Table { name, columns }
        };
        let out = match words.next() {
            Some(token) if token.is("to") => true,
            Some(token) if token.is("from") => false,
            _ => return Err(not_understood()),
        };
        if !words.word(if out { "stdout" } else { "stdin" }) {
            let mut notice = error(
                "0A000",
                "COPY supports only STDIN and STDOUT, not files of the server",
            );
            notice.hint = Some(
                "write TO STDOUT or FROM STDIN; in psql, \\copy reads and writes files".to_owned(),
            );
            return Err(notice);
        }
        if !out && matches!(source, Copied::Query(_)) {
            return Err(not_understood());
        }
        let form = options(&mut words)?;
        if words.peek().is_some() {
            return Err(not_understood());
        }
        if let Form::Lines(format) = &form
            && let Some(fault) = format.fault()
        {
            return Err(error("22023", format!("COPY: {fault}")));
        }
        Ok(Copy { source, out, form })
    }
}

/// The options, in brackets or in the older form without.
fn options(words: &mut Words<'_>) -> Result<Form, Notice> {
    // In the oldest form `BINARY` precedes `WITH`.
    let mut binary = words.word("binary");
    words.word("with");
    let bracketed = words.symbol('(');
    let mut format: Option<bool> = None;
    let mut of_lines: Option<String> = None;
    let (mut delimiter, mut null, mut quote, mut escape) = (None, None, None, None);
    let mut header = false;
    let refused = |what: &str| error("0A000", format!("COPY: {what} is not supported"));
    while let Some(token) = words.next() {
        let name = match (&token, bracketed) {
            (Token::Symbol(')'), true) => break,
            (Token::Symbol(','), true) => continue,
            (Token::Word(name), _) => name.as_str(),
            _ => return Err(wrong("COPY", HOW)),
        };
        if matches!(
            name,
            "csv" | "header" | "delimiter" | "delimiters" | "null" | "quote" | "escape"
        ) {
            of_lines = Some(name.to_owned());
        }
        match name {
            "format" if bracketed => match words.next().map(|token| token.value().to_lowercase()) {
                Some(of) if of == "binary" => binary = true,
                Some(of) if of == "csv" => format = Some(true),
                Some(of) if of == "text" => format = Some(false),
                Some(of) => {
                    let what = format!("the format {of}, other than text, csv and binary,");
                    return Err(refused(&what));
                }
                None => return Err(wrong("COPY", HOW)),
            },
            "csv" if !bracketed => format = Some(true),
            "binary" if !bracketed => binary = true,
            "header" => header = on(words, bracketed)?,
            "delimiter" | "delimiters" => delimiter = Some(text(words)?),
            "null" => null = Some(text(words)?),
            "quote" => quote = Some(text(words)?),
            "escape" => escape = Some(text(words)?),
            "encoding" => {
                let encoding = text(words)?.to_lowercase();
                if !matches!(encoding.as_str(), "utf8" | "utf-8" | "unicode") {
                    return Err(refused(&format!("the encoding {encoding}")));
                }
            }
            "freeze" => {
                on(words, bracketed)?;
            }
            other => return Err(refused(&format!("the option {other}"))),
        }
    }
    if binary {
        return match of_lines {
            None => Ok(Form::Binary),
            Some(option) => Err(error(
                "42601",
                format!("COPY: {option} is not an option of the binary format"),
            )),
        };
    }
    let csv = format.unwrap_or(false);
    if !csv && (quote.is_some() || escape.is_some()) {
        return Err(error("0A000", "COPY: quote and escape are options of CSV"));
    }
    let plain = if csv {
        CopyFormat::csv()
    } else {
        CopyFormat::text()
    };
    let byte = |given: Option<String>, default: u8, what: &str| match given {
        None => Ok(default),
        Some(text) => match text.as_bytes() {
            [one] => Ok(*one),
            _ => Err(error(
                "0A000",
                format!("COPY: {what} must be one ASCII character"),
            )),
        },
    };
    let quote = byte(quote, plain.quote, "quote")?;
    Ok(Form::Lines(CopyFormat {
        csv,
        delimiter: byte(delimiter, plain.delimiter, "delimiter")?,
        null: null.unwrap_or(plain.null),
        header,
        quote,
        // By default the quote itself.
        escape: byte(escape, quote, "escape")?,
    }))
}

/// Value of an option; true when only its name is present.
fn on(words: &mut Words<'_>, bracketed: bool) -> Result<bool, Notice> {
    let value = match words.peek() {
        Some(Token::Word(value) | Token::Text(value)) if bracketed => value.to_lowercase(),
        _ => return Ok(true),
    };
    words.at += 1;
    match value.as_str() {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        other => Err(error(
            "0A000",
            format!("COPY: expected on or off, found {other}"),
        )),
    }
}

/// The text that an option is set to.
fn text(words: &mut Words<'_>) -> Result<String, Notice> {
    words.word("as");
    let escapes = words.word("e");
    match words.next() {
        Some(Token::Text(text)) if escapes => Ok(text
            .replace("\\t", "\t")
            .replace("\\n", "\n")
            .replace("\\r", "\r")
            .replace("\\\\", "\\")),
        Some(Token::Text(text)) => Ok(text),
        _ => Err(wrong("COPY", HOW)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn table(name: &str, columns: &[&str]) -> Copied {
        Copied::Table {
            name: name.to_owned(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
        }
    }

    #[test]
    fn statements_of_both_forms_are_read() {
        let csv = CopyFormat::csv();
        let binary = [
            "BINARY",
            "WITH BINARY",
            "(FORMAT binary)",
            "WITH (FORMAT 'binary')",
        ];
        for options in binary {
            let copy = Copy::read(&format!("copy \"t\" (\"a\") from stdin {options}")).unwrap();
            let source = table("\"t\"", &["a"]);
            let form = Form::Binary;
            assert_eq!(
                copy,
                Copy {
                    source,
                    out: false,
                    form
                },
                "{options}"
            );
        }
        for (text, source, out, format) in [
            (
                "COPY t TO STDOUT",
                table("t", &[]),
                true,
                CopyFormat::text(),
            ),
            (
                "copy public.\"T\" (a, \"B\") from stdin",
                table("public.\"T\"", &["a", "B"]),
                false,
                CopyFormat::text(),
            ),
            (
                "COPY t FROM STDIN WITH (FORMAT csv, HEADER, NULL 'x')",
                table("t", &[]),
                false,
                CopyFormat {
                    header: true,
                    null: "x".to_owned(),
                    ..csv.clone()
                },
            ),
            (
                "COPY t FROM stdin CSV HEADER DELIMITER AS ';' QUOTE ''''",
                table("t", &[]),
                false,
                CopyFormat {
                    header: true,
                    delimiter: b';',
                    quote: b'\'',
                    escape: b'\'',
                    ..csv.clone()
                },
            ),
            (
                "COPY (SELECT ')', f(x) FROM t) TO STDOUT (FORMAT 'csv', HEADER off)",
                Copied::Query("SELECT ')', f(x) FROM t".to_owned()),
                true,
                csv,
            ),
            (
                "COPY t TO STDOUT (DELIMITER E'\\t', ENCODING 'UTF8')",
                table("t", &[]),
                true,
                CopyFormat::text(),
            ),
        ] {
            let copy = Copy::read(text).unwrap();
            let form = Form::Lines(format);
            assert_eq!(copy, Copy { source, out, form }, "{text}");
        }
        for (text, sqlstate) in [
            ("COPY", "42601"),
            ("COPY t", "42601"),
            ("COPY t (a TO STDOUT", "42601"),
            ("COPY (SELECT 1 TO STDOUT", "42601"),
            ("COPY (SELECT 1) FROM STDIN", "42601"),
            ("COPY t TO '/tmp/x'", "0A000"),
            ("COPY t TO PROGRAM 'x'", "0A000"),
            ("COPY t FROM STDIN (FORMAT xml)", "0A000"),
            ("COPY t FROM STDIN (FORMAT binary, HEADER)", "42601"),
            ("COPY t TO STDOUT BINARY NULL 'x'", "42601"),
            ("COPY t FROM STDIN (FORCE_NULL (a))", "0A000"),
            ("COPY t FROM STDIN (DELIMITER 'ab')", "0A000"),
            ("COPY t FROM STDIN (FORMAT csv, QUOTE ',')", "22023"),
            ("COPY t FROM STDIN (ENCODING 'latin1')", "0A000"),
            ("COPY t FROM STDIN (FORMAT csv) x", "42601"),
        ] {
            assert_eq!(Copy::read(text).unwrap_err().sqlstate, sqlstate, "{text}");
        }
    }
}
