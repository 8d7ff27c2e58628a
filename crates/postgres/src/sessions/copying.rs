//! Execution of a copy.
//!
//! Invariants: outgoing rows are sent as they are computed, and incoming rows are read as they
//! arrive, in bounded memory. Incoming rows are stored as by `INSERT`: up to about 4 MiB as a whole
//! or not at all, more in several such parts; an error says how many rows were stored. Failure: an
//! error names the line or row of the data; the rest of the client's data is skipped.

use super::connection::Connection;
use super::copy::{Copied, Copy, Form, Incoming, InputPositions};
use super::errors::{Failure, error, fatal, information, of_query};
use super::link::{FLUSH, Stream};
use super::statement::columns;
use crate::messages::{Format, Message, put_binary_end, put_binary_header, put_binary_row};
use crate::values::{TimeFormat, cell, whole};
use futures_util::StreamExt;
use headwater_query::arrow::array::ArrayRef;
use headwater_query::{CopyIn, Outcome, Parameters, Stored};
use std::sync::Arc;

impl<S: Stream> Connection<S> {
    pub(super) async fn copy(&mut self, copy: &Copy) -> Result<(), Failure> {
        let count = if copy.out {
            self.copy_out(copy).await?
        } else {
            let stored = self.copy_in(copy).await?;
            self.notify_replaced(stored);
            stored.rows
        };
        self.link.out.command_complete(&format!("COPY {count}"));
        Ok(())
    }

    async fn copy_out(&mut self, copy: &Copy) -> Result<u64, Failure> {
        let sql = match &copy.source {
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
        self.session.may_run(&sql)?;
        let _place = self.acquire_slot().await?;
        let text = self.text(sql.clone(), 0, &sql).await?;
        // Positions in the rewritten statement mean nothing to the client.
        let failed = |mut why: headwater_query::Error| {
            why.at = None;
            Failure::from(why)
        };
        // Prepared first: a statement that changes data must not even start.
        let prepare = self.session.prepare(text.sql(), &[]);
        let prepared = self.link.wait(prepare).await?.map_err(failed)?;
        if prepared.outcome() != Outcome::Select {
            return Err(error("42601", "COPY needs a query that returns rows").into());
        }
        let threads = Arc::clone(&self.front_end.statements.threads);
        let run = async move { prepared.run(Parameters::none()).await };
        let answer = threads.answer(run);
        let answer = self.link.wait(answer).await?.map_err(failed)?;
        self.apply(&text)?;
        let fields = answer.schema.fields();
        let (count, format) = (fields.len(), copy.form.format());
        self.link.out.copy_out(count, format);
        let mut written = Vec::new();
        match &copy.form {
            Form::Lines(format) if format.header => {
                let labels = text.rewritten.labels.as_deref();
                let names = columns(&answer.schema, labels, &[]);
                let names = names.iter().map(|column| Some(column.name.as_bytes()));
                format.put_row(names, &mut written);
            }
            Form::Lines(_) => {}
            Form::Binary => put_binary_header(&mut written),
        }
        let mut line = Line::new(copy.form.clone(), self.copy_time_format(), count);
        match copy.form {
            Form::Lines(_) if !written.is_empty() => self.link.out.copy_data(&written),
            Form::Lines(_) => {}
            // Clients with their own parser expect the header in front of the first row.
            Form::Binary => line.bytes = written,
        }
        self.warn_of(&answer.left_out);
        let mut rows = answer.rows;
        let mut count = 0u64;
        while let Some(batch) = self.link.wait(rows.next()).await? {
            let batch = batch.map_err(|why| failed(why.into()))?;
            self.check(false)?;
            let columns = whole(&batch).map_err(|why| error("0A000", why))?;
            for row in 0..batch.num_rows() {
                let written = line.write(&columns, row);
                let written = written.map_err(|why| error("0A000", why))?;
                self.link.out.copy_data(written);
                if self.link.out.bytes().len() >= FLUSH {
                    self.link.flush().await?;
                }
            }
            count += batch.num_rows() as u64;
        }
        if copy.form == Form::Binary {
            if line.sent {
                line.bytes.clear();
            }
            put_binary_end(&mut line.bytes);
            self.link.out.copy_data(&line.bytes);
        }
        self.link.out.copy_done();
        Ok(count)
    }

    async fn copy_in(&mut self, copy: &Copy) -> Result<Stored, Failure> {
        let Copied::Table { name, columns } = &copy.source else {
            return Err(error("42601", "expected rows to copy into a table").into());
        };
        let mut into = self.session.copy_in(name, columns)?;
        let schema = into.schema();
        let mut incoming = Incoming::new(
            &copy.form,
            &schema,
            self.front_end.settings.message_bytes_max,
        );
        let mut places = InputPositions::default();
        let format = copy.form.format();
        self.link.out.copy_in(schema.fields().len(), format);
        loop {
            let is_all = match self.link.next_of_copy().await? {
                Message::CopyData(bytes) => {
                    incoming.feed(&bytes);
                    false
                }
                Message::CopyDone => true,
                Message::CopyFail(why) => {
                    let mut notice = error("57014", format!("COPY from stdin failed: {why}"));
                    notice.detail = stored(into.stored());
                    return Err(notice.into());
                }
                // As in PostgreSQL: a client that sends these messages early is not refused.
                Message::Flush | Message::Sync => continue,
                _ => {
                    return Err(fatal("08P01", "unexpected message during COPY").into());
                }
            };
            loop {
                let taken = incoming.next_row(is_all);
                let more = taken.map_err(|why| why.at(name, stored(into.stored())))?;
                if incoming.is_full() || (!more && is_all) {
                    let at = (name.as_str(), &mut places);
                    self.store(at, &mut incoming, &mut into).await?;
                }
                if !more {
                    break;
                }
            }
            if is_all {
                break;
            }
        }
        let before = into.stored();
        let ended = self.link.wait(into.finish()).await?;
        let written = ended.map_err(|why| {
            let place = why.row.and_then(|row| places.of(u64::from(row.get()) - 1));
            let mut notice = of_query(why, None);
            if let Some(place) = place {
                let unit = incoming.unit();
                notice.message = format!("COPY {name}, {unit} {place}: {}", notice.message);
            }
            notice.detail = joined(notice.detail, stored(before));
            notice
        })?;
        self.changed |= written.rows > 0;
        Ok(written)
    }

    /// Reports that rows of a statement replaced others of it, which its tag does not show.
    pub(super) fn notify_replaced(&mut self, stored: Stored) {
        if stored.replaced > 0 {
            self.link.out.notice(&information(format!(
                "{} of {} rows have the time and tags of another row of the statement, and replaced its values",
                stored.replaced, stored.rows
            )));
        }
    }

    /// Hands the rows that wait on.
    async fn store(
        &mut self,
        (table, places): (&str, &mut InputPositions),
        incoming: &mut Incoming,
        into: &mut CopyIn,
    ) -> Result<(), Failure> {
        let waiting = incoming.batch().map_err(|why| error("XX000", why))?;
        let Some((batch, numbers)) = waiting else {
            return Ok(());
        };
        places.push(&numbers);
        let unit = incoming.unit();
        self.check(false)?;
        let _place = self.acquire_slot().await?;
        let before = into.stored();
        let added = self.link.wait(into.add(&batch)).await?;
        self.changed |= into.stored().rows > before.rows;
        added.map_err(|why| {
            let place = why.row.and_then(|row| places.of(u64::from(row.get()) - 1));
            let mut notice = of_query(why, None);
            let place = match (place, numbers.first(), numbers.last()) {
                (None, Some(first), Some(last)) => format!("{unit}s {first} to {last}"),
                (place, ..) => format!("{unit} {}", place.unwrap_or_default()),
            };
            notice.message = format!("COPY {table}, {place}: {}", notice.message);
            notice.detail = joined(notice.detail, stored(into.stored()));
            Failure::from(notice)
        })?;
        places.forget(into.stored().rows);
        Ok(())
    }
}

/// Joins two details into one.
fn joined(detail: Option<String>, more: Option<String>) -> Option<String> {
    match (detail, more) {
        (Some(detail), Some(more)) => Some(format!("{detail}; {more}")),
        (detail, more) => detail.or(more),
    }
}

/// The detail about rows that stay although the copy failed.
fn stored(before: Stored) -> Option<String> {
    let rows = before.rows;
    (rows > 0).then(|| format!("{rows} earlier rows were stored"))
}

/// Encodes rows for the client, one at a time.
struct Line {
    form: Form,
    time_format: TimeFormat,
    /// Data of a message; for the first message, including the header.
    bytes: Vec<u8>,
    /// True after the first row.
    sent: bool,
    cells: Vec<Vec<u8>>,
    present: Vec<bool>,
}

impl Line {
    fn new(form: Form, time_format: TimeFormat, columns: usize) -> Line {
        Line {
            form,
            time_format,
            bytes: Vec::new(),
            sent: false,
            cells: vec![Vec::new(); columns],
            present: vec![false; columns],
        }
    }

    /// Encodes a row as the data of one message.
    fn write(&mut self, columns: &[ArrayRef], row: usize) -> Result<&[u8], String> {
        if self.sent {
            self.bytes.clear();
        }
        self.sent = true;
        match &self.form {
            Form::Binary => put_binary_row(columns.len(), &mut self.bytes, |column, bytes| {
                let Some(column) = columns.get(column) else {
                    return Ok(false);
                };
                let times = &self.time_format;
                cell(column.as_ref(), row, Format::Binary, times, bytes)
            })?,
            Form::Lines(format) => {
                let cells = self.cells.iter_mut().zip(&mut self.present);
                for (column, (bytes, is)) in columns.iter().zip(cells) {
                    bytes.clear();
                    *is = cell(column.as_ref(), row, Format::Text, &self.time_format, bytes)?;
                }
                let values = self.cells.iter().zip(&self.present);
                let values = values.map(|(bytes, is)| is.then_some(bytes.as_slice()));
                format.put_row(values, &mut self.bytes);
            }
        }
        Ok(&self.bytes)
    }
}
