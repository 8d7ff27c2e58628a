//! Rows on their way into the engine: batches within the allowed size, several of them in flight.
//!
//! Invariants: rows that fit one batch are one atomic write; larger inputs are written in parts, in
//! order, with at most [`IN_FLIGHT`] unacknowledged ones. A write that must be atomic
//! (`require_all`, a producer's number) is refused before any row is stored if it does not fit one
//! batch.

use crate::errors::{Outcome, Problem};
use crate::input::{Origin, TableRows};
use crate::shared::Shared;
use headwater::{Batch, StreamRows, Ticket, Timestamp};
use std::collections::VecDeque;
use std::ops::Range;

/// Pieces of a large write that wait for their acknowledgement.
const IN_FLIGHT: usize = 4;
/// Rows of a piece of a write that is larger than a batch.
const PIECE_ROWS: usize = 65_536;
/// Refused rows that are listed; the others are counted.
const LISTED_MAX: usize = 1000;

/// Options of a write.
#[derive(Clone, Default)]
pub(crate) struct WriteOptions {
    pub(crate) expires_at: Option<i64>,
    pub(crate) producer: Option<(String, u64)>,
    pub(crate) require_all: bool,
}

/// A row that was not stored: its number in the input, a code, and why.
pub(crate) type RefusedRow = (usize, &'static str, String);

/// Result of a write.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) accepted: u64,
    pub(crate) replaced: u64,
    pub(crate) refused_count: u64,
    pub(crate) refused: Vec<RefusedRow>,
    pub(crate) repeated: bool,
}

/// Collects rows and writes them.
pub(crate) struct Writer {
    options: WriteOptions,
    bytes_max: usize,
    batch: Batch,
    origins: Vec<Origin>,
    bytes: usize,
    rows: usize,
    in_flight: VecDeque<Ticket>,
    done: Done,
}

impl Writer {
    pub(crate) fn new(options: WriteOptions, bytes_max: usize) -> Writer {
        Writer {
            options,
            bytes_max,
            batch: Batch::new(),
            origins: Vec::new(),
            bytes: 0,
            rows: 0,
            in_flight: VecDeque::new(),
            done: Done::default(),
        }
    }

    /// Adds rows `rows` of a part: as many as fit a batch of their own if not all fit. Returns the
    /// number added.
    pub(crate) fn take(
        &mut self,
        shared: &Shared,
        part: &TableRows<'_>,
        mut rows: Range<usize>,
        first_row: usize,
    ) -> Outcome<usize> {
        let mut bytes = part.bytes(&rows);
        if self.bytes + bytes > self.bytes_max {
            if self.options.require_all || self.options.producer.is_some() {
                return Err(Problem::invalid(format!(
                    "the rows exceed {} bytes, the maximum of one batch (batch_bytes_max), and require_all or a producer needs a single batch: write fewer rows at once, or open the database with a larger batch_bytes_max",
                    self.bytes_max
                )));
            }
            self.flush(shared)?;
            if bytes > self.bytes_max {
                rows.end = rows.end.min(rows.start + PIECE_ROWS);
                bytes = part.bytes(&rows);
                while bytes > self.bytes_max && rows.len() > 1 {
                    rows.end = rows.start + rows.len() / 2;
                    bytes = part.bytes(&rows);
                }
            }
        }
        let (batch, origins) = (&mut self.batch, &mut self.origins);
        part.entries(rows.clone(), first_row, |entry, origin| {
            batch.push(entry);
            origins.push(origin);
        })?;
        self.bytes += bytes;
        self.rows += rows.len();
        Ok(rows.len())
    }

    /// Adds one small entry.
    pub(crate) fn take_entry(&mut self, entry: StreamRows) {
        self.rows += entry.times.len();
        self.batch.push(entry);
        self.origins.push(Origin::From(0));
    }

    /// Submits the added rows.
    pub(crate) fn flush(&mut self, shared: &Shared) -> Outcome<()> {
        while self.in_flight.len() >= IN_FLIGHT {
            self.wait_one()?;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let origins = std::mem::take(&mut self.origins);
        self.bytes = 0;
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        if let Some(at) = self.options.expires_at {
            batch.expire_at(Timestamp::from_nanos(at));
        }
        if let Some((name, number)) = &self.options.producer {
            batch.set_producer(name.clone(), *number);
        }
        if self.options.require_all {
            batch.require_all();
        }
        let ticket = shared.with(|opened| Ok(opened.owner()?.write(batch)?))?;
        for refused in ticket.refused() {
            self.done.refused_count += 1;
            if self.done.refused.len() < LISTED_MAX {
                let row = origins.get(refused.entry).map_or(0, |o| o.row(refused.row));
                self.done
                    .refused
                    .push((row, refused.code, refused.message.clone()));
            }
        }
        self.in_flight.push_back(ticket);
        Ok(())
    }

    fn wait_one(&mut self) -> Outcome<()> {
        if let Some(ticket) = self.in_flight.pop_front() {
            let written = ticket.wait()?;
            self.done.accepted += written.accepted;
            self.done.replaced += written.replaced;
            self.done.repeated |= written.repeated;
        }
        Ok(())
    }

    /// Rows that were acknowledged so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.done.accepted
    }

    /// Waits until all submitted batches are acknowledged.
    pub(crate) fn wait(mut self) -> Outcome<Done> {
        while !self.in_flight.is_empty() {
            self.wait_one()?;
        }
        self.done.refused.sort_by_key(|(row, ..)| *row);
        Ok(self.done)
    }
}
