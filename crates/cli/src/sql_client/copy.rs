//! `COPY (SELECT …) TO 'file'`: rows into a file of this machine. Servers do not write files; the
//! command line does, wherever the rows come from.
//!
//! Invariant: the file has its name only once it is whole; until then it is called `….partial`.

use super::Rows;
use crate::failure::Failure;
use crate::grid::grouped;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use headwater_columnar::{Format, TimeText, Writer};
use headwater_query::{Error, datafusion};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// A COPY statement: its query, and its file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// The query.
    pub(crate) sql: String,
    /// Position of the query in the statement: line and column, from 1.
    pub(crate) position: (u32, u32),
    file: PathBuf,
    format: Format,
}

const SHAPE: &str = "expected COPY (SELECT …) TO 'FILE.parquet', or COPY TABLE TO 'FILE.csv', followed by (FORMAT json|csv|arrow|parquet) if the name of the file has no such ending";

impl Copy {
    /// `None` for a statement that is no COPY.
    pub(crate) fn parse(statement: &str) -> Result<Option<Copy>, Error> {
        // A statement that cannot be read at all fails when it is run.
        let Ok(tokens) = Tokenizer::new(&GenericDialect {}, statement).tokenize_with_location()
        else {
            return Ok(None);
        };
        let tokens: Vec<TokenWithSpan> = tokens
            .into_iter()
            .filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF))
            .collect();
        if !is_word(tokens.first(), "copy") {
            return Ok(None);
        }
        let wrong = |at: Option<&TokenWithSpan>, message: &str| {
            let error = Error::new("syntax_error", "42601", message).with_hint(SHAPE);
            error.located(at.map(|t| position(t.span.start)))
        };
        let rest = tokens.get(1..).unwrap_or_default();
        // The query, or the table, ends where the parentheses are closed again.
        let mut depth = 0i32;
        let to = rest.iter().position(|t| {
            match t.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            depth == 0 && is_word(Some(t), "to")
        });
        let Some(to) = to.filter(|to| *to > 0) else {
            return Err(wrong(
                rest.last(),
                "COPY is supported only with TO and a file",
            ));
        };
        let (what, rest) = rest.split_at(to);
        let (sql, position) = match what {
            [open, inner @ .., close]
                if open.token == Token::LParen && close.token == Token::RParen =>
            {
                let Some(first) = inner.first() else {
                    return Err(wrong(
                        Some(close),
                        "there is no query between the parentheses",
                    ));
                };
                let (from, to) = (first.span.start, close.span.start);
                let text = between(statement, from, to).trim_end().to_owned();
                (text, position(from))
            }
            [first, ..] => {
                let end = rest.first().map_or(first.span.end, |t| t.span.start);
                let table = between(statement, first.span.start, end).trim_end();
                let (line, column) = position(first.span.start);
                // As if the query had been written so that the table stands where it does.
                let before = "SELECT * FROM ";
                let column = column.saturating_sub(before.len() as u32);
                (format!("{before}{table}"), (line, column))
            }
            [] => return Err(wrong(rest.first(), "there is nothing to copy")),
        };
        let file = match rest.get(1).map(|t| &t.token) {
            Some(Token::SingleQuotedString(file)) if !file.is_empty() => file.clone(),
            _ => {
                return Err(wrong(
                    rest.get(1).or(rest.first()),
                    "expected the name of a file in single quotes after TO",
                ));
            }
        };
        let options: Vec<&TokenWithSpan> = rest
            .iter()
            .skip(2)
            .filter(|t| {
                !matches!(t.token, Token::LParen | Token::RParen) && !is_word(Some(t), "with")
            })
            .collect();
        let format = match options.as_slice() {
            [] => Format::of_file(&file).ok_or_else(|| {
                wrong(
                    rest.get(1),
                    "the format is not clear from the name of the file: expected .json, .csv, .arrow or .parquet",
                )
            })?,
            [word, name] if is_word(Some(word), "format") => {
                let text = name.token.to_string();
                let text = text.trim_matches('\'').to_ascii_lowercase();
                Format::from_name(&text)
                    .ok_or_else(|| wrong(Some(name), "expected json, csv, arrow or parquet"))?
            }
            [other, ..] => return Err(wrong(Some(other), "unknown option of COPY")),
        };
        Ok(Some(Copy {
            sql,
            position,
            file: file.into(),
            format,
        }))
    }

    /// Writes the file, and says so.
    pub(crate) fn write(&self, rows: Rows<'_>) -> Result<(), Failure> {
        let shown = self.file.display();
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot write {shown}: {error}"))
        };
        let mut partial = self.file.clone().into_os_string();
        partial.push(".partial");
        let mut writer = Writer::new(self.format, &rows.schema, TimeText::Rfc3339)
            .map_err(|error| failed(&error))?;
        let file = File::create(&partial).map_err(|error| failed(&error))?;
        let written = (|| {
            let mut file = BufWriter::new(file);
            let mut out = Vec::new();
            for batch in rows.batches {
                writer
                    .write(&batch.map_err(|e| failed(&e))?, &mut out)
                    .map_err(|e| failed(&e))?;
                file.write_all(&out).map_err(|e| failed(&e))?;
                out.clear();
            }
            let count = writer.rows();
            writer.finish(&mut out).map_err(|e| failed(&e))?;
            file.write_all(&out).map_err(|e| failed(&e))?;
            let file = file.into_inner().map_err(|e| failed(&e))?;
            file.sync_all().map_err(|e| failed(&e))?;
            std::fs::rename(&partial, &self.file).map_err(|e| failed(&e))?;
            Ok(count)
        })();
        match written {
            Ok(count) => {
                eprintln!("{} rows written to {shown}", grouped(count));
                Ok(())
            }
            Err(failure) => {
                // The reason is reported; a partial file that stays behind is not worth another
                // failure.
                let _ = std::fs::remove_file(&partial);
                Err(failure)
            }
        }
    }
}

fn is_word(token: Option<&TokenWithSpan>, expected: &str) -> bool {
    matches!(token.map(|t| &t.token), Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

fn position(at: Location) -> (u32, u32) {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    (number(at.line), number(at.column))
}

/// The text between two places.
fn between(text: &str, from: Location, to: Location) -> &str {
    let offset = |at: Location| {
        let line_start = match at.line {
            0 | 1 => 0,
            line => {
                let breaks = text.match_indices('\n').nth(line as usize - 2);
                breaks.map_or(text.len(), |(at, _)| at + 1)
            }
        };
        let rest = text.get(line_start..).unwrap_or_default();
        let within = rest
            .char_indices()
            .nth((at.column as usize).saturating_sub(1));
        line_start + within.map_or(rest.len(), |(at, _)| at)
    };
    text.get(offset(from)..offset(to)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn copies_are_read_and_other_statements_are_not() {
        let copy = Copy::parse("copy (SELECT ')' AS \"to\"\nFROM (t)) TO 'a/b.parquet'")
            .unwrap()
            .unwrap();
        assert_eq!(copy.sql, "SELECT ')' AS \"to\"\nFROM (t)");
        assert_eq!((copy.position, copy.format), ((1, 7), Format::Parquet));
        let copy = Copy::parse("COPY \"My table\" TO 'x' WITH (FORMAT 'CSV')");
        let copy = copy.unwrap().unwrap();
        assert_eq!(copy.sql, "SELECT * FROM \"My table\"");
        assert_eq!((copy.file.to_str(), copy.format), (Some("x"), Format::Csv));
        for other in ["SELECT copy FROM t", "", "'unclosed", "(COPY t TO 'x')"] {
            assert_eq!(Copy::parse(other).unwrap(), None, "{other}");
        }
    }

    #[test]
    fn mistakes_have_their_place() {
        for (sql, at) in [
            ("COPY t", (1, 6)),
            ("COPY (SELECT 1) TO", (1, 17)),
            ("COPY t TO stdout", (1, 11)),
            ("COPY t TO 'x.txt'", (1, 11)),
            ("COPY t TO 'x' (FORMAT xml)", (1, 23)),
            ("COPY t TO 'x.csv' (HEADER true)", (1, 20)),
            ("COPY () TO 'x.csv'", (1, 7)),
        ] {
            let error = Copy::parse(sql).unwrap_err();
            assert_eq!(error.at, Some(at), "{sql}: {error}");
            assert!(error.hint.is_some());
        }
    }
}
