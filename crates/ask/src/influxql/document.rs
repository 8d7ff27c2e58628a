//! An answer as one JSON document that is written while it is computed.
//!
//! Invariants: the document equals the one that [`super::json`] makes of the same answers, unless a
//! statement fails after some of its rows were sent; then these rows are before its `error`. At
//! most one piece is buffered. Failure: an error after the first piece is part of the document,
//! which is ended as any other.

use super::taker::Taker;
use super::write::{Form, Out, begin, messages, push_error, push_head, push_rows};
use super::{Answer, Series};
use crate::error::{Error, Result};
use jiff::tz::TimeZone;

/// Bytes of a piece of an answer without chunking; the last piece may be smaller.
pub const PIECE_BYTES: usize = 256 << 10;

pub(super) struct Document<'a, 'o> {
    out: &'a mut Out<'o>,
    form: Form,
    /// Bytes that were written and not sent yet.
    unsent: Vec<u8>,
    /// Offset of the statement in the buffer; `None` after a part of it was sent.
    statement: Option<usize>,
    number: usize,
    pub(super) zone: Option<TimeZone>,
    /// Number of series of the statement that were started.
    series: usize,
    /// True if rows of the last series were written.
    has_rows: bool,
    /// True if a piece was sent.
    pub(super) has_sent: bool,
}

impl<'a, 'o> Document<'a, 'o> {
    pub(super) fn new(out: &'a mut Out<'o>, form: Form) -> Document<'a, 'o> {
        Document {
            out,
            form,
            unsent: b"{\"results\":[".to_vec(),
            statement: None,
            number: 0,
            zone: None,
            series: 0,
            has_rows: false,
            has_sent: false,
        }
    }

    /// Starts a statement, by its number.
    pub(super) fn begin(&mut self, number: usize) {
        if number > 0 {
            self.unsent.push(b',');
        }
        self.statement = Some(self.unsent.len());
        (self.number, self.series, self.has_rows) = (number, 0, false);
        self.zone = None;
        begin(&mut self.unsent, number);
    }

    /// Ends a statement.
    pub(super) fn finish(&mut self, answer: &std::result::Result<Answer, Error>) -> Result<()> {
        if let (Err(_), Some(start)) = (answer, self.statement) {
            // No byte of it was sent.
            self.unsent.truncate(start);
            self.series = 0;
            begin(&mut self.unsent, self.number);
        }
        self.end_series();
        if self.series > 0 {
            self.unsent.push(b']');
        }
        match answer {
            Err(error) => push_error(&mut self.unsent, error),
            Ok(answer) => {
                if self.series == 0 && answer.series.is_some() {
                    self.unsent.extend_from_slice(b",\"series\":[]");
                }
                messages(&mut self.unsent, answer);
            }
        }
        self.unsent.push(b'}');
        self.hand_out(PIECE_BYTES)
    }

    /// Ends the document.
    pub(super) fn end(mut self) -> Result<()> {
        self.unsent.extend_from_slice(b"]}\n");
        self.hand_out(0)
    }

    fn end_series(&mut self) {
        if self.series > 0 {
            if self.has_rows {
                self.unsent.push(b']');
            }
            self.unsent.push(b'}');
        }
        self.has_rows = false;
    }

    fn hand_out(&mut self, from: usize) -> Result<()> {
        if self.unsent.len() < from.max(1) {
            return Ok(());
        }
        self.statement = None;
        self.has_sent = true;
        (self.out)(std::mem::take(&mut self.unsent))
    }
}

impl Taker for Document<'_, '_> {
    fn take(&mut self, series: Series, goes_on: bool) -> Result<()> {
        if !goes_on || self.series == 0 {
            self.end_series();
            let before: &[u8] = if self.series == 0 {
                b",\"series\":["
            } else {
                b","
            };
            self.unsent.extend_from_slice(before);
            push_head(&mut self.unsent, &series);
            self.series += 1;
        }
        let width = series.columns.len().max(1);
        for rows in series.cells.chunks(width.saturating_mul(1_024)) {
            let before: &[u8] = if self.has_rows {
                b","
            } else {
                b",\"values\":["
            };
            self.unsent.extend_from_slice(before);
            self.has_rows = true;
            push_rows(
                &mut self.unsent,
                rows,
                width,
                self.form.epoch,
                self.zone.as_ref(),
            );
            self.hand_out(PIECE_BYTES)?;
        }
        Ok(())
    }

    fn hands_on(&self) -> bool {
        true
    }
}
