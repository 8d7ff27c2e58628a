//! An answer as one JSON document that is written down as it is worked out.
//!
//! Invariants: the document is the one that [`super::json`] makes of the same answers, as long as
//! no statement fails behind rows that were handed out already; then these stand before its
//! `error`. No more than a piece is buffered.
//! Failure: what goes wrong behind the first piece is in the document, which is ended as any other.

use super::taker::Taker;
use super::write::{Form, Out, begin, messages, push_error, push_head, push_rows};
use super::{Answer, Series};
use crate::error::{Error, Result};
use jiff::tz::TimeZone;

/// Bytes of a piece of an answer that is not asked for in parts: what is smaller is its last one.
pub const PIECE_BYTES: usize = 256 << 10;

pub(super) struct Document<'a, 'o> {
    out: &'a mut Out<'o>,
    form: Form,
    /// Bytes that were written and not handed out yet.
    held: Vec<u8>,
    /// Where the statement begins in the buffer, if all of it is.
    statement: Option<usize>,
    number: usize,
    pub(super) zone: Option<TimeZone>,
    /// Series of the statement that were begun.
    series: usize,
    /// Rows of the last series were written.
    has_rows: bool,
    /// Something was handed out.
    pub(super) has_begun: bool,
}

impl<'a, 'o> Document<'a, 'o> {
    pub(super) fn new(out: &'a mut Out<'o>, form: Form) -> Document<'a, 'o> {
        Document {
            out,
            form,
            held: b"{\"results\":[".to_vec(),
            statement: None,
            number: 0,
            zone: None,
            series: 0,
            has_rows: false,
            has_begun: false,
        }
    }

    /// Begins a statement, by its number.
    pub(super) fn begin(&mut self, number: usize) {
        if number > 0 {
            self.held.push(b',');
        }
        self.statement = Some(self.held.len());
        (self.number, self.series, self.has_rows) = (number, 0, false);
        self.zone = None;
        begin(&mut self.held, number);
    }

    /// Ends a statement.
    pub(super) fn finish(&mut self, answer: &std::result::Result<Answer, Error>) -> Result<()> {
        if let (Err(_), Some(start)) = (answer, self.statement) {
            // Nobody has seen anything of it.
            self.held.truncate(start);
            self.series = 0;
            begin(&mut self.held, self.number);
        }
        self.end_series();
        if self.series > 0 {
            self.held.push(b']');
        }
        match answer {
            Err(error) => push_error(&mut self.held, error),
            Ok(answer) => {
                if self.series == 0 && answer.series.is_some() {
                    self.held.extend_from_slice(b",\"series\":[]");
                }
                messages(&mut self.held, answer);
            }
        }
        self.held.push(b'}');
        self.hand_out(PIECE_BYTES)
    }

    /// Ends the document.
    pub(super) fn end(mut self) -> Result<()> {
        self.held.extend_from_slice(b"]}\n");
        self.hand_out(0)
    }

    fn end_series(&mut self) {
        if self.series > 0 {
            if self.has_rows {
                self.held.push(b']');
            }
            self.held.push(b'}');
        }
        self.has_rows = false;
    }

    fn hand_out(&mut self, from: usize) -> Result<()> {
        if self.held.len() < from.max(1) {
            return Ok(());
        }
        self.statement = None;
        self.has_begun = true;
        (self.out)(std::mem::take(&mut self.held))
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
            self.held.extend_from_slice(before);
            push_head(&mut self.held, &series);
            self.series += 1;
        }
        let width = series.columns.len().max(1);
        for rows in series.cells.chunks(width.saturating_mul(1_024)) {
            let before: &[u8] = if self.has_rows {
                b","
            } else {
                b",\"values\":["
            };
            self.held.extend_from_slice(before);
            self.has_rows = true;
            push_rows(
                &mut self.held,
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
