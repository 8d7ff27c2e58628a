//! Records of a CSV file with the lines they start on, robust against open quotes.
//!
//! The `csv` crate splits and unquotes. This module also buffers the bytes of the record being
//! read, so that a record that swallowed several lines because of a stray quote can be undone: only
//! its first line is refused and reading continues at the next.
//!
//! Invariants: `buffer` contains the input from `buffer_start` on, and never much more than the
//! longest record; the line `line` starts at or before the end of the last record; offsets count
//! from the start of the input, after a byte order mark.

use crate::refusal::{Fault, RefusalCode};
use csv::{ByteRecord, ReaderBuilder};
use memchr::{memchr, memchr_iter};
use std::io::{self, Read, Seek, SeekFrom};

/// Bytes passed to the `csv` crate at once.
const PIECE_BYTES: usize = 64 << 10;

/// Outcome of reading the next record.
#[derive(Debug)]
pub(super) enum Next {
    /// The record is in the caller's buffer; it starts on this line.
    Record { line: u64, bytes: usize },
    /// Not a record of the right shape.
    Refused {
        line: u64,
        fault: Fault,
        original: Vec<u8>,
    },
    /// The end of the input.
    End,
}

/// Reads records.
pub(super) struct Records<R> {
    reader: csv::Reader<RecordBuffer<R>>,
    delimiter: u8,
    /// The end of the last record.
    at: u64,
    line: u64,
}

/// Passes bytes to the `csv` crate and buffers the bytes of its current record.
struct RecordBuffer<R> {
    inner: R,
    buffer: Vec<u8>,
    buffer_start: u64,
    /// Length of the part of `buffer` that was delivered.
    delivered: usize,
    /// Bytes before this offset are not needed again.
    needed_from: u64,
    record_bytes_max: usize,
    is_at_end: bool,
    is_too_long: bool,
}

impl<R: Read> Read for RecordBuffer<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.delivered == self.buffer.len() && !self.is_at_end {
            self.drop_unneeded();
            if self.buffer.len() > self.record_bytes_max {
                self.is_too_long = true;
                return Err(io::Error::other("record too long"));
            }
            self.fetch()?;
        }
        let rest = self.buffer.get(self.delivered..).unwrap_or_default();
        let count = rest.len().min(out.len());
        if let (Some(from), Some(to)) = (rest.get(..count), out.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        self.delivered += count;
        Ok(count)
    }
}

/// Minimal implementation for the rewinds of the `csv` crate: a start within the buffered bytes.
impl<R> Seek for RecordBuffer<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if let SeekFrom::Start(offset) = to
            && let Some(index) = offset.checked_sub(self.buffer_start)
            && let Ok(index) = usize::try_from(index)
            && index <= self.buffer.len()
        {
            self.delivered = index;
            return Ok(offset);
        }
        Err(io::Error::other(
            "the bytes before the present record are gone",
        ))
    }
}

impl<R: Read> RecordBuffer<R> {
    /// Drops the rest of a line that is not buffered completely, and returns the offset of the next
    /// line.
    fn skip_line(&mut self) -> io::Result<u64> {
        loop {
            self.buffer_start = self.buffer_end();
            self.buffer.clear();
            self.delivered = 0;
            self.fetch()?;
            match memchr(b'\n', &self.buffer) {
                Some(end) => return Ok(self.buffer_start + end as u64 + 1),
                None if self.is_at_end => return Ok(self.buffer_end()),
                None => {}
            }
        }
    }

    /// Drops the first line before any bytes were delivered: offsets count from its end. False at
    /// the end of the input.
    fn drop_line(&mut self) -> io::Result<bool> {
        loop {
            if let Some(end) = memchr(b'\n', &self.buffer) {
                self.buffer.drain(..=end);
                return Ok(true);
            }
            self.buffer.clear();
            if self.is_at_end {
                return Ok(false);
            }
            self.fetch()?;
        }
    }

    fn drop_unneeded(&mut self) {
        let count = usize::try_from(self.needed_from.saturating_sub(self.buffer_start))
            .unwrap_or(usize::MAX)
            .min(self.delivered);
        self.buffer.drain(..count);
        self.buffer_start += count as u64;
        self.delivered -= count;
    }

    fn fetch(&mut self) -> io::Result<()> {
        let before = self.buffer.len();
        let read = self
            .inner
            .by_ref()
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut self.buffer);
        self.is_at_end = self.buffer.len() - before < PIECE_BYTES;
        read.map(|_| ())
    }

    /// Buffered bytes between two offsets.
    fn slice(&self, from: u64, to: u64) -> &[u8] {
        let index = |offset: u64| usize::try_from(offset.saturating_sub(self.buffer_start)).ok();
        match (index(from), index(to)) {
            (Some(from), Some(to)) => self.buffer.get(from..to).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Offset after the last buffered byte.
    fn buffer_end(&self) -> u64 {
        self.buffer_start + self.buffer.len() as u64
    }
}

impl<R: Read> Records<R> {
    /// Starts after a number of skipped lines.
    pub(super) fn new(
        inner: R,
        delimiter: u8,
        record_bytes_max: usize,
        skip_lines: u64,
    ) -> io::Result<Records<R>> {
        let mut keeper = RecordBuffer {
            inner,
            buffer: Vec::new(),
            buffer_start: 0,
            delivered: 0,
            needed_from: 0,
            record_bytes_max,
            is_at_end: false,
            is_too_long: false,
        };
        keeper.fetch()?;
        if keeper.buffer.starts_with(b"\xEF\xBB\xBF") {
            keeper.buffer.drain(..3);
        }
        let mut line = 1;
        while line <= skip_lines && keeper.drop_line()? {
            line += 1;
        }
        Ok(Records {
            reader: ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .delimiter(delimiter)
                .buffer_capacity(PIECE_BYTES)
                .from_reader(keeper),
            delimiter,
            at: 0,
            line,
        })
    }

    /// The number of lines that were passed.
    pub(super) fn lines_passed(&self) -> u64 {
        self.line - 1
    }

    /// Reads the next record; with `cells`, refuses a record of another length.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(super) fn next(
        &mut self,
        record: &mut ByteRecord,
        cells: Option<usize>,
    ) -> io::Result<Next> {
        self.reader.get_mut().needed_from = self.at;
        match self.reader.read_byte_record(record) {
            Ok(true) => {}
            Ok(false) => {
                self.pass_blank_end();
                return Ok(Next::End);
            }
            Err(_) if self.reader.get_ref().is_too_long => return self.refuse_endless(),
            Err(error) => return Err(into_io(error)),
        }
        let end = self.reader.position().byte();
        let keeper = self.reader.get_ref();
        let raw = keeper.slice(self.at, end);
        let blank = raw
            .iter()
            .take_while(|b| matches!(b, b'\r' | b'\n'))
            .count();
        let (before, body) = raw.split_at_checked(blank).unwrap_or((&[], raw));
        let line = self.line + memchr_iter(b'\n', before).count() as u64;
        let found = record.len();
        let line_end = memchr(b'\n', body);
        let is_long = line_end.is_some_and(|end| end < body.trim_ascii_end().len());
        // The `csv` crate allows a quote to end anywhere, so a stray one would swallow good lines.
        let is_last = keeper.is_at_end && end == keeper.buffer_end();
        let is_torn = memchr(b'"', body).is_some()
            && match quotes_of(body, self.delimiter) {
                Quotes::Sound => false,
                Quotes::Loose => true,
                Quotes::Open => is_long || is_last,
            };
        let fault = if is_torn {
            Some(open_quote())
        } else {
            cells
                .filter(|expected| *expected != found)
                .map(|expected| wrong_count(expected, found))
        };
        if let Some(fault) = fault {
            let first_line = match line_end {
                Some(end) => body.get(..end).unwrap_or_default(),
                None => body,
            };
            let original = first_line.trim_ascii_end().to_vec();
            if is_torn && is_long {
                let next = self.at + (blank + first_line.len() + 1) as u64;
                self.line = line + 1;
                self.resume_at(next)?;
            } else {
                self.line = line + memchr_iter(b'\n', body).count() as u64;
                self.at = end;
            }
            return Ok(Next::Refused {
                line,
                fault,
                original,
            });
        }
        let bytes = raw.len();
        self.line = line
            + match line_end {
                None => 0,
                Some(end) if end + 1 == body.len() => 1,
                Some(_) => memchr_iter(b'\n', body).count() as u64,
            };
        self.at = end;
        Ok(Next::Record { line, bytes })
    }

    /// Refuses the first line of a record that is longer than allowed.
    fn refuse_endless(&mut self) -> io::Result<Next> {
        let record_bytes_max = self.reader.get_ref().record_bytes_max;
        let keeper = self.reader.get_mut();
        keeper.is_too_long = false;
        let kept = keeper.slice(self.at, keeper.buffer_end());
        let blank = kept
            .iter()
            .take_while(|b| matches!(b, b'\r' | b'\n'))
            .count();
        let (before, body) = kept.split_at_checked(blank).unwrap_or((&[], kept));
        let line = self.line + memchr_iter(b'\n', before).count() as u64;
        let original: Vec<u8> = body
            .iter()
            .take(1_000)
            .take_while(|b| **b != b'\n')
            .copied()
            .collect();
        let next = match memchr(b'\n', body) {
            Some(end) => self.at + (blank + end + 1) as u64,
            None => keeper.skip_line()?,
        };
        self.line = line + 1;
        self.resume_at(next)?;
        Ok(Next::Refused {
            line,
            fault: Fault::new(
                RefusalCode::LimitLine,
                format!("the row is longer than {record_bytes_max} bytes; is a quote left open?"),
            ),
            original,
        })
    }

    /// Goes on at an offset that is still buffered.
    fn resume_at(&mut self, offset: u64) -> io::Result<()> {
        self.reader.get_mut().needed_from = offset;
        let mut position = csv::Position::new();
        position.set_byte(offset);
        self.at = offset;
        self.reader
            .seek_raw(SeekFrom::Start(offset), position)
            .map_err(into_io)
    }

    /// Counts the lines after the last record.
    fn pass_blank_end(&mut self) {
        let keeper = self.reader.get_ref();
        let rest = keeper.slice(self.at, keeper.buffer_end());
        let lines = memchr_iter(b'\n', rest).count() as u64;
        self.at = keeper.buffer_end();
        self.line += lines;
    }
}

fn into_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// State of the quotes of a record.
enum Quotes {
    /// Every quoted cell is closed right before a delimiter or the end.
    Sound,
    /// Text follows a closing quote.
    Loose,
    /// The last quoted cell is not closed.
    Open,
}

fn quotes_of(record: &[u8], delimiter: u8) -> Quotes {
    let mut bytes = record.iter().peekable();
    let mut is_cell_start = true;
    let mut quotes = Quotes::Sound;
    while let Some(byte) = bytes.next() {
        if !(is_cell_start && *byte == b'"') {
            is_cell_start = *byte == delimiter;
            continue;
        }
        loop {
            match bytes.next() {
                None => return Quotes::Open,
                Some(b'"') if bytes.next_if_eq(&&b'"').is_none() => break,
                Some(_) => {}
            }
        }
        match bytes.peek() {
            None | Some(b'\r' | b'\n') => {}
            Some(byte) if **byte == delimiter => {}
            Some(_) => quotes = Quotes::Loose,
        }
        is_cell_start = false;
    }
    quotes
}

#[cold]
fn wrong_count(expected: usize, found: usize) -> Fault {
    Fault::new(
        RefusalCode::Fields,
        format!(
            "expected {expected} cells as in the header, found {found}; put double quotes around cells that contain the delimiter"
        ),
    )
}

#[cold]
fn open_quote() -> Fault {
    Fault::new(
        RefusalCode::Parse,
        "a quote opened in this line is not closed before a delimiter; write two quotes for one inside a quoted cell",
    )
}
