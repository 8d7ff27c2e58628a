//! Rows that come in: read from what the client sends, and kept until there are enough to be
//! stored.
//!
//! Invariant: no more than [`BATCH_ROWS`](super::unfit::BATCH_ROWS) rows wait, and little more than
//! [`BATCH_BYTES`](super::unfit::BATCH_BYTES).

use super::Form;
use super::columns::Columns;
use super::lines::Lines;
use super::unfit::Unfit;
use crate::messages::{BinaryFault, BinaryRows, CopyRows, Format};
use headwater_query::arrow::array::RecordBatch;
use headwater_query::arrow::datatypes::Schema;

impl Form {
    /// What clients are told of it.
    pub(in crate::sessions) fn format(&self) -> Format {
        match self {
            Form::Lines(_) => Format::Text,
            Form::Binary => Format::Binary,
        }
    }
}

/// What comes in, and what of it waits.
pub(in crate::sessions) enum Incoming {
    Lines(CopyRows, Lines),
    Binary(BinaryRows, Columns),
}

impl Incoming {
    pub(in crate::sessions) fn new(form: &Form, schema: &Schema, row_max: usize) -> Incoming {
        match form {
            Form::Lines(format) => {
                Incoming::Lines(CopyRows::new(format.clone(), row_max), Lines::new(schema))
            }
            Form::Binary => Incoming::Binary(
                BinaryRows::new(schema.fields().len(), row_max),
                Columns::new(schema),
            ),
        }
    }

    /// What a row is called.
    pub(in crate::sessions) fn unit(&self) -> &'static str {
        match self {
            Incoming::Lines(..) => "line",
            Incoming::Binary(..) => "row",
        }
    }

    pub(in crate::sessions) fn feed(&mut self, bytes: &[u8]) {
        match self {
            Incoming::Lines(rows, _) => rows.feed(bytes),
            Incoming::Binary(rows, _) => rows.feed(bytes),
        }
    }

    /// Reads a row, if all of it is there. `is_all` = nothing more will come.
    pub(in crate::sessions) fn take(&mut self, is_all: bool) -> Result<bool, Unfit> {
        match self {
            Incoming::Lines(rows, waiting) => {
                let row = rows.next_row(is_all).map_err(|why| Unfit {
                    place: ("line", why.line),
                    sqlstate: "22P04",
                    message: why.fault.to_string(),
                })?;
                let Some(row) = row else {
                    return Ok(false);
                };
                waiting.push(row, rows.line())?;
            }
            Incoming::Binary(rows, waiting) => {
                let number = rows.row() + 1;
                let row = rows.next_row(is_all).map_err(|why| Unfit {
                    place: ("row", why.row),
                    sqlstate: match why.fault {
                        BinaryFault::Flags(_) => "0A000",
                        _ => "22P04",
                    },
                    message: why.fault.to_string(),
                })?;
                let Some(row) = row else {
                    return Ok(false);
                };
                waiting.push(row, number)?;
            }
        }
        Ok(true)
    }

    pub(in crate::sessions) fn is_full(&self) -> bool {
        match self {
            Incoming::Lines(_, waiting) => waiting.is_full(),
            Incoming::Binary(_, waiting) => waiting.is_full(),
        }
    }

    /// The rows that wait, with the numbers of the first and the last.
    pub(in crate::sessions) fn batch(&mut self) -> Result<Option<(RecordBatch, u64, u64)>, String> {
        match self {
            Incoming::Lines(_, waiting) => waiting.batch(),
            Incoming::Binary(_, waiting) => waiting.batch(),
        }
    }
}
