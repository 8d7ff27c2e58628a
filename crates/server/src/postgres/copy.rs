//! `COPY … TO STDOUT` and `COPY … FROM STDIN`.
//!
//! Invariants: rows go out as they are computed, and come in as they are sent, in bounded memory. What comes in is stored as
//! by `INSERT`: up to about 4 MiB as a whole or not at all, more in several such parts; an error says how many rows were stored.
//! Failure: an error names the line of the data; what the client still sends of the copy is passed over.

use super::commands::{Token, tokens, wrong};
use super::connection::Connection;
use super::errors::{Failure, error};
use super::link::{FLUSH, Stream};
use super::values::{cell, parameter, whole};
use futures_util::StreamExt;
use headwater_query::arrow::array::{ArrayRef, RecordBatch};
use headwater_query::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::postgres::PgType;
use headwater_query::{CopyIn, Done, Parameters};
use headwater_wire::postgres::{CopyFormat, CopyRow, CopyRows, Format, Message, Notice};
use std::sync::Arc;

/// Rows that are handed to the planner's side at once.
const BATCH_ROWS: usize = 1_024;
/// Bytes of their fields, about, above which fewer are.
const BATCH_BYTES: usize = 1 << 20;

/// What is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Copied {
    /// Columns of a table; none = all. The name is as it stands in the statement.
    Table { name: String, columns: Vec<String> },
    /// The rows of a query.
    Query(String),
}

/// A statement that copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) what: Copied,
    /// To the client; otherwise from it.
    pub(super) out: bool,
    pub(super) format: CopyFormat,
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

    /// Passes over a word or a symbol, if it is the next one.
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

    /// Where the token before the next one ends, in bytes.
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
    /// When it is not understood, or copies what cannot be copied.
    pub(super) fn read(text: &str) -> Result<Copy, Notice> {
        let mut words = Words {
            text,
            tokens: tokens(text),
            at: 1,
        };
        let not_understood = || wrong("COPY", HOW);
        let what = if words.symbol('(') {
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
            // What stands before the last bracket, blanks and comments included.
            let close = words.end_of_last().saturating_sub(1);
            Copied::Query(words.between(from, close.max(to)))
        } else {
            let from = words.end_of_last();
            let is_name = |token: &Token| matches!(token, Token::Word(_) | Token::Name(_));
            loop {
                if !words.take(is_name) {
                    return Err(not_understood());
                }
                // A point belongs to the word before it, and stands alone behind a quoted name.
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
                "COPY reads from and writes to the client only, not files of the server",
            );
            notice.hint = Some(
                "write TO STDOUT or FROM STDIN; in psql, \\copy reads and writes files".to_owned(),
            );
            return Err(notice);
        }
        if !out && matches!(what, Copied::Query(_)) {
            return Err(not_understood());
        }
        let format = options(&mut words)?;
        if words.peek().is_some() {
            return Err(not_understood());
        }
        if let Some(fault) = format.fault() {
            return Err(error("22023", format!("COPY: {fault}")));
        }
        Ok(Copy { what, out, format })
    }
}

/// The options, in brackets or in the older form without.
fn options(words: &mut Words<'_>) -> Result<CopyFormat, Notice> {
    words.word("with");
    let bracketed = words.symbol('(');
    let mut format: Option<bool> = None;
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
        match name {
            "format" if bracketed => match words.next().map(|token| token.value().to_lowercase()) {
                Some(of) if of == "csv" => format = Some(true),
                Some(of) if of == "text" => format = Some(false),
                Some(of) => return Err(refused(&format!("the format {of}"))),
                None => return Err(wrong("COPY", HOW)),
            },
            "csv" if !bracketed => format = Some(true),
            "binary" => return Err(refused("the binary format")),
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
                format!("COPY: {what} is one ASCII character"),
            )),
        },
    };
    let quote = byte(quote, plain.quote, "quote")?;
    Ok(CopyFormat {
        csv,
        delimiter: byte(delimiter, plain.delimiter, "delimiter")?,
        null: null.unwrap_or(plain.null),
        header,
        quote,
        // By default the quote itself.
        escape: byte(escape, quote, "escape")?,
    })
}

/// Whether an option is on: it is when nothing follows its name.
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
            format!("COPY: {other} is neither on nor off"),
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

impl<S: Stream> Connection<S> {
    pub(super) async fn copy(&mut self, copy: &Copy) -> Result<(), Failure> {
        let count = if copy.out {
            self.copy_out(copy).await?
        } else {
            self.copy_in(copy).await?
        };
        self.link.out.command_complete(&format!("COPY {count}"));
        Ok(())
    }

    async fn copy_out(&mut self, copy: &Copy) -> Result<u64, Failure> {
        let sql = match &copy.what {
            Copied::Query(sql) => sql.clone(),
            Copied::Table { name, columns } => {
                let quoted = columns
                    .iter()
                    .map(|c| format!("\"{}\"", c.replace('"', "\"\"")));
                let columns: Vec<String> = quoted.collect();
                let columns = columns.join(", ");
                let columns = if columns.is_empty() { "*" } else { &columns };
                format!("SELECT {columns} FROM {name}")
            }
        };
        let text = self.text(sql.clone(), 0, &sql)?;
        let _place = self.place().await?;
        // Places in what was made of the statement mean nothing to the client.
        let failed = |mut why: headwater_query::Error| {
            why.at = None;
            Failure::from(why)
        };
        // Prepared first: what changes something must not even begin.
        let prepare = self.session.prepare(text.sql(), &[]);
        let prepared = self.link.wait(prepare).await?.map_err(failed)?;
        if prepared.done() != Done::Select {
            return Err(error("42601", "COPY needs a query that gives rows").into());
        }
        let app = Arc::clone(&self.app);
        let run = async move { prepared.run(Parameters::none()).await };
        let answer = app.sql_threads.answer(run);
        let answer = self.link.wait(answer).await?.map_err(failed)?;
        self.apply(&text)?;
        let fields = answer.schema.fields();
        self.link.out.copy_out(fields.len());
        let mut line = Vec::new();
        if copy.format.header {
            let names =
                super::statement::columns(&answer.schema, text.rewritten.labels.as_deref(), &[]);
            let names = names.iter().map(|column| Some(column.name.as_bytes()));
            copy.format.put_row(names, &mut line);
            self.link.out.copy_data(&line);
        }
        let zone = self.zone();
        let mut rows = answer.rows;
        let mut count = 0u64;
        while let Some(batch) = self.link.wait(rows.next()).await? {
            let batch = batch.map_err(|why| failed(why.into()))?;
            self.check(false)?;
            let columns = whole(&batch).map_err(|why| error("0A000", why))?;
            let mut cells: Vec<Vec<u8>> = vec![Vec::new(); columns.len()];
            let mut present = vec![false; columns.len()];
            for row in 0..batch.num_rows() {
                for ((column, cell_bytes), is) in columns.iter().zip(&mut cells).zip(&mut present) {
                    cell_bytes.clear();
                    *is = cell(column.as_ref(), row, Format::Text, &zone, cell_bytes)
                        .map_err(|why| error("0A000", why))?;
                }
                line.clear();
                let values = cells.iter().zip(&present);
                let values = values.map(|(bytes, is)| is.then_some(bytes.as_slice()));
                copy.format.put_row(values, &mut line);
                self.link.out.copy_data(&line);
                if self.link.out.bytes().len() >= FLUSH {
                    self.link.flush().await?;
                }
            }
            count += batch.num_rows() as u64;
        }
        self.link.out.copy_done();
        Ok(count)
    }

    async fn copy_in(&mut self, copy: &Copy) -> Result<u64, Failure> {
        let Copied::Table { name, columns } = &copy.what else {
            return Err(error("42601", "rows are copied into a table").into());
        };
        let mut into = self.session.copy_in(name, columns)?;
        let mut waiting = Lines::new(into.schema());
        let mut rows = CopyRows::new(copy.format.clone(), self.app.settings.body_max);
        self.link.out.copy_in(into.schema().fields().len());
        loop {
            let is_all = match self.link.next_of_copy().await? {
                Message::CopyData(bytes) => {
                    rows.feed(&bytes);
                    false
                }
                Message::CopyDone => true,
                Message::CopyFail(why) => {
                    let mut notice = error("57014", format!("COPY from stdin failed: {why}"));
                    notice.detail = stored(into.stored());
                    return Err(notice.into());
                }
                // As PostgreSQL does: a client that sends them ahead loses nothing.
                Message::Flush | Message::Sync => continue,
                _ => {
                    return Err(super::errors::fatal(
                        "08P01",
                        "a message that does not belong into a copy",
                    )
                    .into());
                }
            };
            loop {
                let row = rows.next_row(is_all).map_err(|why| {
                    let mut notice = error("22P04", format!("COPY {name}, {why}"));
                    notice.detail = stored(into.stored());
                    notice
                })?;
                let end = row.is_none();
                if let Some(row) = row {
                    waiting
                        .push(row, rows.line())
                        .map_err(|why| why.at(name, into.stored()))?;
                }
                if waiting.is_full() || (end && is_all) {
                    self.store(name, &mut waiting, &mut into).await?;
                }
                if end {
                    break;
                }
            }
            if is_all {
                break;
            }
        }
        let before = into.stored();
        let ended = self.link.wait(into.finish()).await?;
        let count = ended.map_err(|why| {
            let mut notice = super::errors::of_query(why, None);
            notice.detail = notice.detail.or(stored(before));
            notice
        })?;
        self.changed |= count > 0;
        Ok(count)
    }

    /// Hands the rows that wait on.
    async fn store(
        &mut self,
        table: &str,
        waiting: &mut Lines,
        into: &mut CopyIn,
    ) -> Result<(), Failure> {
        let Some((batch, first, last)) = waiting.batch().map_err(|why| error("XX000", why))? else {
            return Ok(());
        };
        self.check(false)?;
        let _place = self.place().await?;
        let before = into.stored();
        let added = self.link.wait(into.add(&batch)).await?;
        self.changed |= into.stored() > before;
        added.map_err(|why| {
            let mut notice = super::errors::of_query(why, None);
            notice.message = format!("COPY {table}, lines {first} to {last}: {}", notice.message);
            if let Some(stored) = stored(into.stored()) {
                notice.detail = Some(match notice.detail {
                    Some(detail) => format!("{detail}; {stored}"),
                    None => stored,
                });
            }
            Failure::from(notice)
        })
    }
}

/// What is told about rows that stay although the copy failed.
fn stored(rows: u64) -> Option<String> {
    (rows > 0).then(|| format!("{rows} rows before were stored"))
}

/// Rows that wait to be stored, by column.
struct Lines {
    schema: SchemaRef,
    /// Of each column its type's number, and the type that its texts are read as.
    types: Vec<(u32, DataType)>,
    columns: Vec<Vec<ScalarValue>>,
    bytes: usize,
    lines: Option<(u64, u64)>,
}

/// Why a row does not fit.
struct Unfit {
    line: u64,
    sqlstate: &'static str,
    message: String,
}

impl Unfit {
    fn at(self, table: &str, before: u64) -> Failure {
        let text = format!("COPY {table}, line {}: {}", self.line, self.message);
        let mut notice = error(self.sqlstate, text);
        notice.detail = stored(before);
        notice.into()
    }
}

impl Lines {
    fn new(schema: SchemaRef) -> Lines {
        let types = schema.fields().iter().map(|field| {
            let oid = PgType::oid_of(field.data_type());
            match oid {
                16 => (oid, DataType::Boolean),
                20 => (oid, DataType::Int64),
                701 => (oid, DataType::Float64),
                17 => (oid, DataType::Binary),
                // The planner's side reads instants and whole numbers without a sign.
                _ => (25, DataType::Utf8),
            }
        });
        let types: Vec<(u32, DataType)> = types.collect();
        let fields = schema.fields().iter().zip(&types);
        let fields: Vec<Field> = fields
            .map(|(field, (_, of))| Field::new(field.name(), of.clone(), true))
            .collect();
        Lines {
            columns: vec![Vec::new(); types.len()],
            types,
            schema: Arc::new(Schema::new(fields)),
            bytes: 0,
            lines: None,
        }
    }

    fn push(&mut self, row: CopyRow, line: u64) -> Result<(), Unfit> {
        let unfit = |sqlstate, message| Unfit {
            line,
            sqlstate,
            message,
        };
        let (found, wanted) = (row.len(), self.types.len());
        if found != wanted {
            let message = format!("{found} fields, the table takes {wanted} columns here");
            return Err(unfit("22P04", message));
        }
        let mut values = Vec::with_capacity(found);
        for ((field, (oid, of)), named) in row.iter().zip(&self.types).zip(self.schema.fields()) {
            let bytes = field.as_deref().map(str::as_bytes);
            let value = parameter(bytes, *oid, of, Format::Text);
            values.push(value.map_err(|(sqlstate, why)| {
                unfit(sqlstate, format!("column {}: {why}", named.name()))
            })?);
            self.bytes += bytes.map_or(1, <[u8]>::len);
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        self.lines = Some((self.lines.map_or(line, |(first, _)| first), line));
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.columns.first().is_some_and(|c| c.len() >= BATCH_ROWS)
    }

    /// The rows, with their first line and their last.
    fn batch(&mut self) -> Result<Option<(RecordBatch, u64, u64)>, String> {
        let Some((first, last)) = self.lines.take() else {
            return Ok(None);
        };
        self.bytes = 0;
        let columns = self.columns.iter_mut().map(std::mem::take);
        let arrays: Vec<ArrayRef> = columns
            .map(ScalarValue::iter_to_array)
            .collect::<Result<_, _>>()
            .map_err(|why| why.to_string())?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        Ok(Some((batch.map_err(|why| why.to_string())?, first, last)))
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
        for (text, what, out, format) in [
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
            assert_eq!(copy, Copy { what, out, format }, "{text}");
        }
        for (text, sqlstate) in [
            ("COPY", "42601"),
            ("COPY t", "42601"),
            ("COPY t (a TO STDOUT", "42601"),
            ("COPY (SELECT 1 TO STDOUT", "42601"),
            ("COPY (SELECT 1) FROM STDIN", "42601"),
            ("COPY t TO '/tmp/x'", "0A000"),
            ("COPY t TO PROGRAM 'x'", "0A000"),
            ("COPY t FROM STDIN BINARY", "0A000"),
            ("COPY t FROM STDIN (FORMAT binary)", "0A000"),
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
