//! Answers that are written while they are computed, part by part.
//!
//! Invariants: at most a part or a piece of an answer is buffered, and the rows of one read,
//! however many rows there are; a part reports whether another one follows; an error is reported
//! after the rows before it.

use super::document::{Document, PIECE_BYTES};
use super::taker::Taker;
use super::write::{Form, Out, Sheet, begin, push_series, whole};
use super::{Answer, Evaluator, Series};
use crate::error::{Error, Result};
use headwater::Snapshot;
use headwater_wire::influxql::Statement;
use jiff::tz::TimeZone;

/// Default rows of a part.
const ROWS: usize = 10_000;

impl Evaluator<'_> {
    /// As [`Evaluator::answers`], but written to `out` piece by piece: as one JSON document, as one
    /// document per part if the form has [`Form::chunk_rows`], or as CSV. Raw rows are not
    /// buffered, however many there are.
    ///
    /// # Errors
    /// Errors of `out`, and as [`Evaluator::answers`] before the first piece was sent.
    pub fn in_parts(
        &self,
        statements: &[Statement],
        database: Option<&str>,
        form: Form,
        as_csv: bool,
        out: &mut Out<'_>,
    ) -> Result<()> {
        if form.chunk_rows.is_none() && !as_csv {
            return self.in_one(statements, database, form, out);
        }
        let mut writer = Writer {
            out,
            form,
            number: 0,
            zone: None,
            sheet: as_csv.then(Sheet::default),
            unsent: Vec::new(),
            waiting: None,
            wrote: false,
            has_output: false,
        };
        let mut fresh: Option<Snapshot> = None;
        for (number, statement) in statements.iter().enumerate() {
            let asker = self.on(fresh.as_ref().unwrap_or(self.snapshot), database);
            writer.number = number;
            writer.wrote = false;
            let answer = asker.answer_into(statement, &mut writer);
            let failed = answer.is_err();
            match answer {
                Err(error) if error.kind().is_of_server() && !writer.has_output => {
                    return Err(error);
                }
                answer => writer.finish(&answer)?,
            }
            if failed {
                break;
            }
            if let Some(changed) = self.after(statement)? {
                fresh = Some(changed);
            }
        }
        writer.hand_out(0)
    }

    /// Writes one JSON document.
    fn in_one(
        &self,
        statements: &[Statement],
        database: Option<&str>,
        form: Form,
        out: &mut Out<'_>,
    ) -> Result<()> {
        let mut document = Document::new(out, form);
        let mut fresh: Option<Snapshot> = None;
        for (number, statement) in statements.iter().enumerate() {
            let asker = self.on(fresh.as_ref().unwrap_or(self.snapshot), database);
            document.begin(number);
            let answer = asker.answer_into(statement, &mut document);
            let failed = answer.is_err();
            match answer {
                Err(error) if error.kind().is_of_server() && !document.has_sent => {
                    return Err(error);
                }
                answer => document.finish(&answer)?,
            }
            if failed {
                break;
            }
            if let Some(changed) = self.after(statement)? {
                fresh = Some(changed);
            }
        }
        document.end()
    }

    fn answer_into(&self, statement: &Statement, writer: &mut dyn Zoned) -> Result<Answer> {
        self.budget.check()?;
        let select = match statement {
            Statement::Select(select) if select.into.is_none() => Some(select),
            _ => None,
        };
        let Some(select) = select else {
            let mut answer = self.answer(statement)?;
            for series in answer.series.iter_mut().flat_map(|series| series.drain(..)) {
                writer.taker().take(series, false)?;
            }
            return Ok(answer);
        };
        let (answer, ()) = self.selected(select, |zone| {
            writer.write_in(zone);
            self.select(select, None, writer.taker())
        })?;
        Ok(answer)
    }
}

/// Receives series, and writes their times in a zone.
trait Zoned {
    fn write_in(&mut self, zone: &Option<TimeZone>);
    fn taker(&mut self) -> &mut dyn Taker;
}

impl Zoned for Writer<'_> {
    fn write_in(&mut self, zone: &Option<TimeZone>) {
        self.zone.clone_from(zone);
    }

    fn taker(&mut self) -> &mut dyn Taker {
        self
    }
}

impl Zoned for Document<'_, '_> {
    fn write_in(&mut self, zone: &Option<TimeZone>) {
        self.zone.clone_from(zone);
    }

    fn taker(&mut self) -> &mut dyn Taker {
        self
    }
}

struct Writer<'a> {
    out: &'a mut Out<'a>,
    form: Form,
    /// Number of the statement.
    number: usize,
    zone: Option<TimeZone>,
    /// The state of a CSV text; `None` for JSON.
    sheet: Option<Sheet>,
    /// CSV that was not sent yet.
    unsent: Vec<u8>,
    /// The series that is not written yet, since it is unknown whether more of it follows.
    waiting: Option<Series>,
    /// True if a part of the statement was written.
    wrote: bool,
    /// True if anything was written.
    has_output: bool,
}

impl Writer<'_> {
    fn write(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.wrote = true;
        self.has_output = true;
        (self.out)(bytes)
    }

    /// Writes cells of a series; `more` of the series follow, or another part.
    fn part(
        &mut self,
        series: &Series,
        cells: (usize, usize),
        more: bool,
        follows: bool,
    ) -> Result<()> {
        let mut bytes = b"{\"results\":[".to_vec();
        begin(&mut bytes, self.number);
        bytes.extend_from_slice(b",\"series\":[");
        push_series(
            &mut bytes,
            series,
            cells,
            self.form.epoch,
            self.zone.as_ref(),
            more,
        );
        bytes.push(b']');
        if follows {
            bytes.extend_from_slice(b",\"partial\":true");
        }
        bytes.extend_from_slice(b"}]}\n");
        self.write(bytes)
    }

    fn hand_out(&mut self, from: usize) -> Result<()> {
        match self.unsent.len() < from.max(1) {
            true => Ok(()),
            false => {
                let held = std::mem::take(&mut self.unsent);
                self.write(held)
            }
        }
    }

    /// Writes the rest of a statement.
    fn finish(&mut self, answer: &std::result::Result<Answer, Error>) -> Result<()> {
        if let Some(series) = self.waiting.take() {
            let more = answer.as_ref().map_or(true, |a| a.warning.is_some());
            self.part(&series, (0, series.cells.len()), false, more)?;
        }
        let mut bytes = Vec::new();
        match (&mut self.sheet, answer) {
            (Some(sheet), Err(error)) => sheet.error(&mut self.unsent, error),
            (Some(_), Ok(_)) => {}
            (None, answer) => {
                if self.wrote && answer.as_ref().is_ok_and(|a| a.warning.is_none()) {
                    return Ok(());
                }
                bytes.extend_from_slice(b"{\"results\":[");
                whole(&mut bytes, self.number, answer, self.form);
                bytes.extend_from_slice(b"]}\n");
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.write(bytes)
    }
}

impl Taker for Writer<'_> {
    fn take(&mut self, mut series: Series, goes_on: bool) -> Result<()> {
        if let Some(sheet) = &mut self.sheet {
            sheet.series(&mut self.unsent, &series, self.form, self.zone.as_ref());
            // Parts of a chunked answer are sent at once.
            let from = if self.form.chunk_rows.is_some() {
                1
            } else {
                PIECE_BYTES
            };
            return self.hand_out(from);
        }
        let mut waiting = match self.waiting.take() {
            Some(mut waiting) if goes_on => {
                waiting.cells.append(&mut series.cells);
                waiting
            }
            Some(waiting) => {
                self.part(&waiting, (0, waiting.cells.len()), false, true)?;
                series
            }
            None => series,
        };
        let rows = self.form.chunk_rows.unwrap_or(ROWS).max(1);
        let step = rows.saturating_mul(waiting.columns.len().max(1));
        let mut from = 0;
        while waiting.cells.len() - from > step {
            self.part(&waiting, (from, from + step), true, true)?;
            from += step;
        }
        waiting.cells.drain(..from);
        self.waiting = Some(waiting);
        Ok(())
    }

    fn hands_on(&self) -> bool {
        true
    }
}
