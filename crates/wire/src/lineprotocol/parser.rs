//! Parses lines into columns.
//!
//! Invariants: lines are read in order; a line is staged as a whole before any column changes;
//! `mark` increases with each line. Speed: a line costs one search for its end, one comparison for
//! the stream's name and one per field's name, as long as lines repeat their order; no memory is
//! allocated per value.

use super::faults::{line_too_long, no_fields, not_utf8};
use super::options::ParserOptions;
use super::scan::unescaped_end;
use super::streams::{RecentFields, Stream, Streams};
use super::value;
use super::write::MARK;
use crate::column_builder::ParsedValue;
use crate::number;
use crate::parsed_batch::ParsedBatch;
use crate::refusal::{Fault, RefusalCode, shown};
use memchr::{memchr, memchr_iter, memchr2};

/// A line-protocol parser that caches names.
///
/// ```
/// use headwater_types::Timestamp;
/// use headwater_wire::lineprotocol::{LineParser, ParserOptions};
/// let mut parser = LineParser::new(ParserOptions::new(Timestamp::from_nanos(0)));
/// let parsed = parser.parse(b"weather,station=EWR temp=39.02 1356998400\nweather temp=cold\n", 1);
/// assert_eq!(parsed.batch.row_count(), 1);
/// assert_eq!(parsed.refused[0].line, 2);
/// ```
#[derive(Debug)]
pub struct LineParser {
    options: ParserOptions,
    streams: Streams,
    mark: u64,
    scratch: Vec<u8>,
}

/// Outcome of a line.
enum Outcome {
    /// Parsed completely; a quoted string may have extended it over several physical lines.
    Read { bytes: usize, is_long: bool },
    /// A string is open at the end of the input.
    Open,
}

/// A fault, and whether more input could still resolve it.
struct Failure {
    fault: Fault,
    is_open: bool,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure {
            fault,
            is_open: false,
        }
    }
}

impl LineParser {
    /// A parser with an empty cache.
    #[must_use]
    pub fn new(options: ParserOptions) -> LineParser {
        LineParser {
            options,
            streams: Streams::default(),
            mark: 0,
            scratch: Vec::new(),
        }
    }

    /// The options; may change between calls.
    pub fn options_mut(&mut self) -> &mut ParserOptions {
        &mut self.options
    }

    /// Parses a whole input; `first_line_number` is the number of its first line.
    pub fn parse(&mut self, bytes: &[u8], first_line_number: u64) -> ParsedBatch {
        self.parse_part(bytes, first_line_number, true).0
    }

    /// Parses the lines that are complete in `bytes` and returns the number of consumed bytes. With
    /// `is_last` the end of the input ends the last line, and all bytes are consumed.
    pub fn parse_part(
        &mut self,
        bytes: &[u8],
        first_line_number: u64,
        is_last: bool,
    ) -> (ParsedBatch, usize) {
        let mut parsed = ParsedBatch::default();
        let (lines, taken) = self.read(bytes, first_line_number, 1, is_last, &mut parsed);
        parsed.line_count = lines;
        self.take_into(&mut parsed);
        (parsed, taken)
    }

    /// Adds a whole input to the collected rows; all its lines have the same number.
    pub(crate) fn add_lines(&mut self, bytes: &[u8], number: u64, parsed: &mut ParsedBatch) {
        self.read(bytes, number, 0, true, parsed);
    }

    /// Adds one row to the collected rows: a stream spelled as at the front of a line, with the
    /// space after it, and fields whose names are spelled as in a line.
    ///
    /// # Errors
    /// When a name is empty, or there are too many fields; no row is added then.
    pub(crate) fn add_row(
        &mut self,
        stream: &[u8],
        fields: &[(impl AsRef<[u8]>, ParsedValue<'_>)],
        time: headwater_types::Timestamp,
        number: u64,
    ) -> Result<(), Fault> {
        let (stream_at, _) = self.streams.find(stream)?;
        let Some((stream, recent)) = self.streams.get_mut(stream_at) else {
            return Ok(());
        };
        self.mark += 1;
        let known_fields = stream.fields.len();
        let mut staged = Vec::with_capacity(fields.len());
        for (key, found) in fields {
            match stream.field(key.as_ref(), recent, self.options.fields_max) {
                Ok(at) => staged.push((at, *found)),
                Err(fault) => {
                    stream.forget_fields_from(known_fields, recent);
                    return Err(fault);
                }
            }
        }
        stream.keep_last(&mut staged, self.mark);
        if stream.add_row(&staged, time.as_nanos(), number, &mut self.scratch) {
            self.streams.activate(stream_at);
        }
        Ok(())
    }

    /// Hands over the collected rows.
    pub(crate) fn take_into(&mut self, parsed: &mut ParsedBatch) {
        let names_max = self.options.cached_name_bytes_max;
        self.streams.take_rows(names_max, |rows, lines| {
            parsed.batch.push(rows);
            parsed.lines.push(lines);
        });
    }

    /// Parses the complete lines. Each adds `step` to the number of the next. Returns the number of
    /// lines and of consumed bytes.
    fn read(
        &mut self,
        bytes: &[u8],
        first_line_number: u64,
        step: u64,
        is_last: bool,
        parsed: &mut ParsedBatch,
    ) -> (u64, usize) {
        let mut staged = Vec::new();
        let mut rest = bytes;
        if first_line_number == 1 {
            // The byte order mark that some programs write before UTF-8 is not part of a table's
            // name.
            rest = rest.strip_prefix(MARK).unwrap_or(rest);
        }
        let mut line_number = first_line_number;
        let mut line_count = 0;
        while !rest.is_empty() {
            let line = match memchr(b'\n', rest) {
                Some(end) => rest.get(..end).unwrap_or_default(),
                None if is_last => rest,
                None => break,
            };
            let mut taken = line.len() + 1;
            let mut lines = 1;
            if !is_blank_or_comment(line) {
                match self.line(rest, line.len(), line_number, is_last, &mut staged) {
                    Ok(Outcome::Read { bytes, is_long }) => {
                        taken = bytes + 1;
                        if is_long {
                            let text = rest.get(..bytes).unwrap_or_default();
                            lines += memchr_iter(b'\n', text).count() as u64;
                        }
                    }
                    Ok(Outcome::Open) => break,
                    Err(fault) => parsed.refuse(line_number, fault, line),
                }
            }
            line_count += lines;
            line_number += lines * step;
            rest = rest.get(taken..).unwrap_or_default();
        }
        (line_count, bytes.len() - rest.len())
    }

    /// Reads one line. `text` reaches to the end of the input, since a quoted string may cross line
    /// ends; `line_bytes` is the length of the first physical line.
    fn line<'a>(
        &mut self,
        text: &'a [u8],
        line_bytes: usize,
        line_number: u64,
        is_last: bool,
        staged: &mut Vec<(usize, ParsedValue<'a>)>,
    ) -> Result<Outcome, Fault> {
        if line_bytes > self.options.line_bytes_max {
            return Err(line_too_long(self.options.line_bytes_max));
        }
        let line = text.get(..line_bytes).unwrap_or_default();
        let blanks = line
            .iter()
            .take_while(|b| matches!(b, b' ' | b'\t'))
            .count();
        let (stream_at, key_bytes) = self.streams.find(without_carriage_return(
            line.get(blanks..).unwrap_or_default(),
        ))?;
        let Some((stream, recent)) = self.streams.get_mut(stream_at) else {
            return Ok(Outcome::Open);
        };
        self.mark += 1;
        let reader = Reader {
            text,
            options: &self.options,
            mark: self.mark,
            is_last,
        };
        let known_fields = stream.fields.len();
        let read = reader
            .fields_and_time(stream, recent, blanks + key_bytes, line_bytes, staged)
            .map(|(time_ns, end)| {
                let time_ns = time_ns.unwrap_or_else(|| next_instant(&mut self.options));
                let scratch = &mut self.scratch;
                (stream.add_row(staged, time_ns, line_number, scratch), end)
            });
        match read {
            Ok((is_first, end)) => {
                if is_first {
                    self.streams.activate(stream_at);
                }
                Ok(Outcome::Read {
                    bytes: end,
                    is_long: end > line_bytes,
                })
            }
            Err(failure) => {
                stream.forget_fields_from(known_fields, recent);
                if failure.is_open && !is_last {
                    return Ok(Outcome::Open);
                }
                Err(failure.fault)
            }
        }
    }
}

impl From<Box<Fault>> for Failure {
    fn from(fault: Box<Fault>) -> Self {
        Failure::from(*fault)
    }
}

/// Reads the line after the stream's name.
struct Reader<'a, 'o> {
    text: &'a [u8],
    options: &'o ParserOptions,
    mark: u64,
    is_last: bool,
}

impl<'a> Reader<'a, '_> {
    /// Stages the fields and returns the time, if present, and the length of the line without its
    /// line end.
    #[inline]
    fn fields_and_time(
        &self,
        stream: &mut Stream,
        recent: &mut RecentFields,
        start: usize,
        line_bytes: usize,
        staged: &mut Vec<(usize, ParsedValue<'a>)>,
    ) -> Result<(Option<i64>, usize), Failure> {
        staged.clear();
        let mut end = line_bytes;
        let mut rest = self.until(start, end);
        rest = skip_blanks(rest);
        if rest.is_empty() {
            return Err(no_fields().into());
        }
        let mut next_field = 0;
        let mut is_rising = true;
        loop {
            let (at, tail) = self.field(stream, recent, next_field, rest)?;
            is_rising &= at >= next_field;
            next_field = at + 1;
            let tail = if let [b'"', tail @ ..] = tail {
                let inside = end_of(self.text, end) - tail.len();
                let (found, after) = self.string(inside)?;
                if after > end {
                    end = self.line_end(after)?;
                }
                staged.push((at, found));
                self.until(after, end)
            } else {
                let (field_type, bits, tail) = value::plain(tail)?;
                staged.push((at, ParsedValue::plain(field_type, bits)));
                tail
            };
            match tail {
                [b',', tail @ ..] => rest = tail,
                [] => {
                    rest = tail;
                    break;
                }
                [b' ' | b'\t', tail @ ..] => {
                    rest = tail;
                    break;
                }
                _ => return Err(after_value(tail).into()),
            }
        }
        if !is_rising {
            stream.keep_last(staged, self.mark);
        }
        Ok((self.time(skip_blanks(rest))?, end))
    }

    /// The bytes from `start` to the line's `end`, without the carriage return of a line end.
    #[inline]
    fn until(&self, start: usize, end: usize) -> &'a [u8] {
        self.text
            .get(start..end_of(self.text, end))
            .unwrap_or_default()
    }

    /// Index of the field whose key is at the front of `rest`, and the text after the `=`.
    #[inline]
    fn field(
        &self,
        stream: &mut Stream,
        recent: &mut RecentFields,
        guess: usize,
        rest: &'a [u8],
    ) -> Result<(usize, &'a [u8]), Fault> {
        if let Some(field) = stream.fields.get(guess)
            && let Some([b'=', tail @ ..]) = rest.strip_prefix(&*field.key.raw)
        {
            return Ok((guess, tail));
        }
        let end = unescaped_end(rest, |b| matches!(b, b'=' | b',' | b' '));
        let (raw, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        let [b'=', tail @ ..] = tail else {
            return Err(no_equals(raw));
        };
        Ok((stream.field(raw, recent, self.options.fields_max)?, tail))
    }

    /// The string whose first byte is at `start`, and the offset after its closing quote.
    fn string(&self, start: usize) -> Result<(ParsedValue<'a>, usize), Failure> {
        let longest = self.options.line_bytes_max;
        let window = self.text.get(start..).unwrap_or_default();
        let is_cut = window.len() > longest;
        let window = window.get(..longest).unwrap_or(window);
        let mut at = 0;
        let mut has_escapes = false;
        loop {
            let tail = window.get(at..).unwrap_or_default();
            match memchr2(b'"', b'\\', tail) {
                Some(hit) if tail.get(hit) == Some(&b'\\') => {
                    has_escapes = true;
                    at += hit + 2;
                }
                Some(hit) => {
                    let raw = window.get(..at + hit).unwrap_or_default();
                    if raw.len() > self.options.string_bytes_max {
                        return Err(Failure::from(Fault::new(
                            RefusalCode::LimitString,
                            format!(
                                "a string of {} bytes; at most {} are allowed",
                                raw.len(),
                                self.options.string_bytes_max
                            ),
                        )));
                    }
                    let raw = std::str::from_utf8(raw).map_err(|_| not_utf8("a string", raw))?;
                    return Ok((ParsedValue::text(raw, has_escapes), start + at + hit + 1));
                }
                None if is_cut => return Err(line_too_long(longest).into()),
                None => {
                    return Err(Failure {
                        fault: Fault::new(
                            RefusalCode::Parse,
                            format!(
                                "the string {} has no closing quote; write \\\" for a quote inside a string",
                                shown(window)
                            ),
                        ),
                        is_open: true,
                    });
                }
            }
        }
    }

    /// Offset of the end of the line that contains byte `at`.
    fn line_end(&self, at: usize) -> Result<usize, Failure> {
        let longest = self.options.line_bytes_max;
        let tail = self.text.get(at..).unwrap_or_default();
        let end = match memchr(b'\n', tail) {
            Some(end) => at + end,
            None if self.is_last || self.text.len() > longest => self.text.len(),
            None => {
                return Err(Failure {
                    fault: line_too_long(longest),
                    is_open: true,
                });
            }
        };
        if end > longest {
            return Err(line_too_long(longest).into());
        }
        Ok(end)
    }

    /// The time at the end of the line, if present.
    #[inline]
    fn time(&self, text: &[u8]) -> Result<Option<i64>, Fault> {
        if text.is_empty() {
            return Ok(None);
        }
        let stamp = number::whole_integer(text).or_else(|| unusual_integer(text));
        let Some(time_ns) = stamp.and_then(|stamp| self.options.precision.to_nanos(stamp)) else {
            return Err(bad_time(text));
        };
        match self.options.latest {
            Some(latest) if time_ns > latest.as_nanos() => Err(Fault::new(
                RefusalCode::TimeFuture,
                format!(
                    "{} lies after {}, the latest time accepted now; check the clock of the sender and the unit of its timestamps",
                    crate::instant::Rfc3339(headwater_types::Timestamp::from_nanos(time_ns)),
                    crate::instant::Rfc3339(latest)
                ),
            )),
            _ => Ok(Some(time_ns)),
        }
    }
}

/// Instant of a line without a time: each line gets its own, a nanosecond apart, so that no row
/// replaces another.
pub(crate) fn next_instant(options: &mut ParserOptions) -> i64 {
    let own = options.now;
    let given = options.instants.as_ref();
    let instant = given.map_or(own, |all| all.next(own)).as_nanos();
    options.now = headwater_types::Timestamp::from_nanos(instant.saturating_add(1));
    instant
}

/// An integer with a plus sign, leading zeros or trailing spaces.
#[cold]
fn unusual_integer(text: &[u8]) -> Option<i64> {
    match number::scan(text) {
        Some((number, tail)) if skip_blanks(tail).is_empty() => number.to_i64(),
        _ => None,
    }
}

/// `end` without the carriage return before it.
#[inline]
fn end_of(text: &[u8], end: usize) -> usize {
    match end.checked_sub(1) {
        Some(before) if text.get(before) == Some(&b'\r') => before,
        _ => end,
    }
}

fn without_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[inline]
fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', tail @ ..] = text {
        text = tail;
    }
    text
}

#[inline]
fn is_blank_or_comment(line: &[u8]) -> bool {
    match line.first() {
        Some(byte) if *byte > b'#' => false,
        _ => matches!(
            without_carriage_return(line).trim_ascii_start().first(),
            None | Some(b'#')
        ),
    }
}

#[cold]
fn no_equals(raw: &[u8]) -> Fault {
    Fault::new(
        RefusalCode::Parse,
        format!(
            "expected field=value, found {} without `=`; put a backslash before a comma or space that belongs to a name",
            shown(raw)
        ),
    )
}

#[cold]
fn after_value(tail: &[u8]) -> Fault {
    Fault::new(
        RefusalCode::Parse,
        format!(
            "expected a comma, a space or the end of the line after a value, found {}",
            shown(tail)
        ),
    )
}

#[cold]
fn bad_time(text: &[u8]) -> Fault {
    let message = match number::scan(text) {
        Some((number, tail)) if skip_blanks(tail).is_empty() && !number.is_float => format!(
            "the time {} lies outside the years 1677 to 2262; check the precision it is sent with",
            shown(text)
        ),
        _ => format!(
            "expected the time as an integer after the fields, found {}; put a backslash before a space that belongs to a name, and text in double quotes",
            shown(text)
        ),
    };
    Fault::new(RefusalCode::Time, message)
}
