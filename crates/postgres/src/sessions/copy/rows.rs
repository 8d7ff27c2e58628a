//! Incoming rows: parsed from the client's messages, and buffered until there are enough to store.
//!
//! Invariant: no more than [`BATCH_ROWS`](super::unfit::BATCH_ROWS) rows are buffered, and little
//! more than [`BATCH_BYTES`](super::unfit::BATCH_BYTES).

use super::Form;
use super::columns::Columns;
use super::lines::Lines;
use super::unfit::Unfit;
use crate::messages::{BinaryFault, BinaryRows, CopyRows, Format};
use headwater_query::arrow::array::RecordBatch;
use headwater_query::arrow::datatypes::Schema;
use std::collections::VecDeque;

impl Form {
    /// The format that clients are sent for it.
    pub(in crate::sessions) fn format(&self) -> Format {
        match self {
            Form::Lines(_) => Format::Text,
            Form::Binary => Format::Binary,
        }
    }
}

/// Line or row number in the input of each row of a copy that is not stored yet.
#[derive(Debug, Default)]
pub(in crate::sessions) struct InputPositions {
    /// First rows of ranges with consecutive numbers, and their numbers.
    stretches: VecDeque<(u64, u64)>,
    rows: u64,
}

impl InputPositions {
    /// Appends the numbers of the next rows.
    pub(in crate::sessions) fn push(&mut self, numbers: &[u64]) {
        for number in numbers {
            let follows = |(row, first): &(u64, u64)| first + (self.rows - row) == *number;
            if !self.stretches.back().is_some_and(follows) {
                self.stretches.push_back((self.rows, *number));
            }
            self.rows += 1;
        }
    }

    /// The number of a row.
    pub(in crate::sessions) fn of(&self, row: u64) -> Option<u64> {
        let behind = self.stretches.partition_point(|(first, _)| *first <= row);
        let (first, number) = self.stretches.get(behind.checked_sub(1)?)?;
        Some(number + (row - first))
    }

    /// Forgets rows that are stored.
    pub(in crate::sessions) fn forget(&mut self, stored: u64) {
        while self.stretches.get(1).is_some_and(|(row, _)| *row <= stored) {
            self.stretches.pop_front();
        }
    }
}

/// Reader of incoming rows, with the bytes that wait.
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

    /// The name of a row.
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

    /// Reads a row, if it is complete. `is_all` = the input has ended.
    pub(in crate::sessions) fn next_row(&mut self, is_all: bool) -> Result<bool, Unfit> {
        match self {
            Incoming::Lines(rows, waiting) => {
                let row = rows.next_row(is_all).map_err(|why| Unfit {
                    position: ("line", why.line),
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
                    position: ("row", why.row),
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

    /// The rows that wait, with the number of each.
    pub(in crate::sessions) fn batch(&mut self) -> Result<Option<(RecordBatch, Vec<u64>)>, String> {
        match self {
            Incoming::Lines(_, waiting) => waiting.batch(),
            Incoming::Binary(_, waiting) => waiting.batch(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_its_number_until_it_is_stored() {
        let mut places = InputPositions::default();
        places.push(&[2, 3, 4]);
        places.push(&[5, 8, 9, 12]);
        let all: Vec<_> = (0..7).map(|row| places.of(row)).collect();
        assert_eq!(all, [2, 3, 4, 5, 8, 9, 12].map(Some));
        places.forget(5);
        assert_eq!((places.of(5), places.of(6)), (Some(9), Some(12)));
        assert_eq!(places.stretches.len(), 2);
        assert_eq!(InputPositions::default().of(0), None);
    }
}
