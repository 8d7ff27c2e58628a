//! Line protocol from a reader, batch by batch.
//!
//! Invariant: memory is bounded by the batch size and the longest line; line numbers count from the
//! start of the input.

use super::faults::line_too_long;
use super::options::ParserOptions;
use super::parser::LineParser;
use crate::parsed_batch::ParsedBatch;
use memchr::memchr;
use std::io::{self, Read};

/// Reads lines from any reader.
///
/// ```
/// use headwater_types::Timestamp;
/// use headwater_wire::lineprotocol::{LineStream, ParserOptions};
/// let input = &b"t v=1 1\nt v=2 2\n"[..];
/// let mut lines = LineStream::new(input, ParserOptions::new(Timestamp::from_nanos(0)));
/// let parsed = lines.next_batch(1 << 20)?.unwrap();
/// assert_eq!(parsed.batch.row_count(), 2);
/// assert!(lines.next_batch(1 << 20)?.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LineStream<R> {
    reader: R,
    parser: LineParser,
    buffer: Vec<u8>,
    line_bytes_max: usize,
    next_line: u64,
    is_at_end: bool,
    is_inside_refused_line: bool,
}

impl<R: Read> LineStream<R> {
    /// Creates a stream, without reading yet.
    pub fn new(reader: R, options: ParserOptions) -> LineStream<R> {
        LineStream {
            reader,
            line_bytes_max: options.line_bytes_max,
            parser: LineParser::new(options),
            buffer: Vec::new(),
            next_line: 1,
            is_at_end: false,
            is_inside_refused_line: false,
        }
    }

    /// Parses the next piece of about `bytes` bytes; `None` at the end of the input.
    ///
    /// # Errors
    /// When the reader fails.
    pub fn next_batch(&mut self, bytes: usize) -> io::Result<Option<ParsedBatch>> {
        let mut wanted = bytes.max(1);
        loop {
            self.fill(wanted)?;
            if self.is_inside_refused_line && !self.skip_to_line_end() {
                continue;
            }
            if self.buffer.is_empty() {
                if self.is_at_end {
                    return Ok(None);
                }
                continue;
            }
            let (parsed, taken) =
                self.parser
                    .parse_part(&self.buffer, self.next_line, self.is_at_end);
            if taken > 0 {
                self.buffer.drain(..taken);
                self.next_line += parsed.line_count;
                return Ok(Some(parsed));
            }
            if self.buffer.len() > self.line_bytes_max && memchr(b'\n', &self.buffer).is_none() {
                return Ok(Some(self.refuse_endless_line()));
            }
            wanted = self.buffer.len().saturating_mul(2);
        }
    }

    /// Drops the rest of a refused line. False when its end is not in the buffer yet.
    fn skip_to_line_end(&mut self) -> bool {
        match memchr(b'\n', &self.buffer) {
            Some(end) => {
                self.buffer.drain(..=end);
            }
            None => {
                self.buffer.clear();
                if !self.is_at_end {
                    return false;
                }
            }
        }
        self.is_inside_refused_line = false;
        true
    }

    /// Refuses a line that exceeds `line_bytes_max` although its end is not read yet.
    fn refuse_endless_line(&mut self) -> ParsedBatch {
        let mut parsed = ParsedBatch {
            line_count: 1,
            ..ParsedBatch::default()
        };
        parsed.refuse(
            self.next_line,
            line_too_long(self.line_bytes_max),
            &self.buffer,
        );
        self.buffer.clear();
        self.is_inside_refused_line = true;
        self.next_line += 1;
        parsed
    }

    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let missing = wanted.saturating_sub(self.buffer.len());
        if missing == 0 || self.is_at_end {
            return Ok(());
        }
        let read = self
            .reader
            .by_ref()
            .take(missing as u64)
            .read_to_end(&mut self.buffer)?;
        self.is_at_end = read < missing;
        Ok(())
    }
}
