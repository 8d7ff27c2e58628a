//! Rows in memory, each row with the sequence of its write. Chunks of a reader or a job never
//! change.

use crate::common::ids::Sequence;
use headwater_types::{ClosedRange, Rows, Timestamp};
use std::sync::Arc;

/// Memory of a chunk in addition to its rows: itself, its counters and its slot in a list, with the
/// allocator's share.
const OWN_BYTES: usize = size_of::<Chunk>() + 48;

/// Sequences of the rows of a chunk.
#[derive(Clone, Debug)]
pub(crate) enum Sequences {
    /// All rows are from one write.
    One(Sequence),
    /// One per row.
    Many(Vec<Sequence>),
}

impl Sequences {
    fn of(all: Vec<Sequence>) -> Sequences {
        match all.first() {
            Some(first) if all.iter().all(|s| s == first) => Sequences::One(*first),
            _ => Sequences::Many(all),
        }
    }

    #[inline]
    pub(crate) fn get(&self, row: usize) -> Sequence {
        match self {
            Sequences::One(s) => *s,
            Sequences::Many(v) => {
                let sequence = v.get(row);
                assert!(sequence.is_some(), "row {row} of {} in a chunk", v.len());
                sequence.copied().unwrap_or_default()
            }
        }
    }
}

/// Rows of one stream in memory.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: Rows,
    pub(crate) sequences: Sequences,
    pub(crate) first_sequence: Sequence,
    pub(crate) last_sequence: Sequence,
    /// From the first time to the last.
    pub(crate) span: ClosedRange,
    /// True when times never decrease from row to row.
    pub(crate) sorted: bool,
    /// True when times increase with every row: no rows of one time have to be merged.
    pub(crate) rising: bool,
    /// Version of the shard from which on readers see this chunk: older readers see the chunk it
    /// was split from.
    pub(crate) born: u64,
    pub(crate) bytes: usize,
}

impl Chunk {
    /// `None` for no rows.
    pub(crate) fn new(rows: Rows, sequences: Sequences, born: u64) -> Option<Arc<Chunk>> {
        assert!(
            rows.columns.iter().all(|(_, c)| c.len() == rows.len()),
            "a column of other rows than the {} of its chunk",
            rows.len()
        );
        let rising = rows.times.is_sorted_by(|a, b| a < b);
        let (span, sorted) = if rising {
            (
                ClosedRange::nanos(*rows.times.first()?, *rows.times.last()?),
                true,
            )
        } else {
            let (first, last) = (rows.times.iter().min()?, rows.times.iter().max()?);
            (ClosedRange::nanos(*first, *last), rows.times.is_sorted())
        };
        let (first_sequence, last_sequence) = match &sequences {
            Sequences::One(s) => (*s, *s),
            Sequences::Many(v) => {
                assert_eq!(v.len(), rows.len(), "a chunk has a sequence for each row");
                (*v.iter().min()?, *v.iter().max()?)
            }
        };
        let mut chunk = Chunk {
            rows,
            sequences,
            first_sequence,
            last_sequence,
            span,
            sorted,
            rising,
            born,
            bytes: 0,
        };
        chunk.bytes = chunk.heap_bytes();
        Some(Arc::new(chunk))
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when any row satisfies the condition.
    pub(crate) fn has(&self, is_so: impl Fn(Timestamp, Sequence) -> bool) -> bool {
        let mut rows = self.rows.times.iter().enumerate();
        rows.any(|(row, time)| is_so(Timestamp::from_nanos(*time), self.sequences.get(row)))
    }

    /// The rows that satisfy `keep`, as a new chunk.
    pub(crate) fn select(
        &self,
        born: u64,
        keep: impl Fn(Timestamp, Sequence) -> bool,
    ) -> Option<Arc<Chunk>> {
        let picked: Vec<u32> = (0u32..)
            .zip(&self.rows.times)
            .filter(|(row, time)| {
                let at = Timestamp::from_nanos(**time);
                keep(at, self.sequences.get(*row as usize))
            })
            .map(|(row, _)| row)
            .collect();
        if picked.is_empty() {
            return None;
        }
        let sequences = match &self.sequences {
            Sequences::One(s) => Sequences::One(*s),
            Sequences::Many(v) => {
                let picked = picked.iter().filter_map(|r| v.get(*r as usize).copied());
                Sequences::of(picked.collect())
            }
        };
        Chunk::new(self.rows.gather(&picked), sequences, born)
    }

    /// Appends the rows of one write, if every field still has the same type as here; otherwise
    /// returns false without a change.
    pub(crate) fn append(&mut self, rows: &Rows, sequence: Sequence) -> bool {
        let (Some(first), Some(newest)) = (rows.times.first(), self.rows.times.last()) else {
            return rows.is_empty();
        };
        let fits = rows.columns.iter().all(|(field, column)| {
            let mine = self.rows.column(*field);
            mine.is_none_or(|c| c.field_type() == column.field_type())
        });
        if !fits {
            return false;
        }
        let rises = rows.times.is_sorted_by(|a, b| a < b);
        self.rising &= newest < first && rises;
        self.sorted &= newest <= first && (rises || rows.times.is_sorted());
        for time in &rows.times {
            let at = Timestamp::from_nanos(*time);
            self.span.first = self.span.first.min(at);
            self.span.last = self.span.last.max(at);
        }
        let before = self.len();
        self.rows.extend_from(rows, 0..rows.len());
        if !matches!(self.sequences, Sequences::One(s) if s == sequence) {
            if let Sequences::One(s) = self.sequences {
                self.sequences = Sequences::Many(vec![s; before]);
            }
            if let Sequences::Many(all) = &mut self.sequences {
                all.resize(before + rows.len(), sequence);
            }
        }
        self.first_sequence = self.first_sequence.min(sequence);
        self.last_sequence = self.last_sequence.max(sequence);
        self.bytes = self.heap_bytes();
        true
    }

    /// Approximate bytes of memory of this chunk.
    fn heap_bytes(&self) -> usize {
        let sequences = match &self.sequences {
            Sequences::One(_) => 0,
            Sequences::Many(all) => all.capacity() * 8,
        };
        self.rows.heap_bytes() + sequences + OWN_BYTES
    }

    /// Both chunks' rows, `self` first. `None` when a field was widened between them.
    pub(crate) fn joined(&self, later: &Chunk) -> Option<Arc<Chunk>> {
        let widened = |(field, column): &(headwater_types::FieldId, headwater_types::Column)| {
            later
                .rows
                .column(*field)
                .is_some_and(|c| c.field_type() != column.field_type())
        };
        if self.rows.columns.iter().any(widened) {
            return None;
        }
        let rows = self.rows.joined(&later.rows);
        let sequences = match (&self.sequences, &later.sequences) {
            (Sequences::One(a), Sequences::One(b)) if a == b => Sequences::One(*a),
            (a, b) => Sequences::Many(
                (0..self.len())
                    .map(|r| a.get(r))
                    .chain((0..later.len()).map(|r| b.get(r)))
                    .collect(),
            ),
        };
        Chunk::new(rows, sequences, self.born)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::{Column, FieldId, Values};

    fn rows(times: &[i64], values: Values) -> Rows {
        Rows {
            times: times.to_vec(),
            columns: vec![(FieldId(3), Column::from_values(values))],
        }
    }

    #[test]
    fn appended_rows_keep_their_sequence_and_move_the_bounds() {
        let first = rows(&[5, 7], Values::I64(vec![50, 70]));
        let mut chunk = Chunk::new(first, Sequences::One(Sequence(4)), 0).unwrap();
        let mine = Arc::get_mut(&mut chunk).unwrap();
        let before = mine.bytes;
        assert!(mine.rising);
        assert!(mine.append(&rows(&[7, 9], Values::I64(vec![71, 90])), Sequence(6)));
        assert!(mine.sorted && !mine.rising && mine.bytes > before);
        assert!(mine.append(&rows(&[2], Values::I64(vec![20])), Sequence(5)));
        assert!(!mine.sorted && !mine.rising);
        assert_eq!(mine.span, ClosedRange::nanos(2, 9));
        assert_eq!(
            (mine.first_sequence, mine.last_sequence),
            (Sequence(4), Sequence(6))
        );
        let sequences: Vec<u64> = (0..5).map(|row| mine.sequences.get(row).0).collect();
        assert_eq!(sequences, [4, 4, 6, 6, 5]);
        // A field of another type requires a new chunk.
        assert!(!mine.append(&rows(&[11], Values::F64(vec![0.5])), Sequence(7)));
        assert_eq!(mine.len(), 5);
    }
}
