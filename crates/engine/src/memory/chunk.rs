//! Immutable rows in memory, each row with the sequence of its write.

use crate::ids::Sequence;
use headwater_codec::Rows;
use std::sync::Arc;

/// What a chunk takes besides its rows: itself, its counters and its place in a list, with the allocator's share.
const OWN_BYTES: usize = size_of::<Chunk>() + 48;

/// Sequences of the rows of a chunk.
#[derive(Clone, Debug)]
pub(crate) enum Sequences {
    /// One write gave all rows.
    One(Sequence),
    /// One per row.
    Many(Vec<Sequence>),
}

impl Sequences {
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Sequence {
        match self {
            Sequences::One(s) => *s,
            Sequences::Many(v) => v.get(row).copied().unwrap_or_default(),
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
    pub(crate) first_time: i64,
    pub(crate) last_time: i64,
    /// True when times never fall from row to row.
    pub(crate) sorted: bool,
    /// Readers with an older version of the shard do not see this chunk: they see the one it was cut from.
    pub(crate) born: u64,
    pub(crate) bytes: usize,
}

impl Chunk {
    /// `None` for no rows.
    pub(crate) fn new(rows: Rows, sequences: Sequences, born: u64) -> Option<Arc<Chunk>> {
        let first_time = *rows.times.iter().min()?;
        let last_time = *rows.times.iter().max()?;
        let (first_sequence, last_sequence) = match &sequences {
            Sequences::One(s) => (*s, *s),
            Sequences::Many(v) => (*v.iter().min()?, *v.iter().max()?),
        };
        let sorted = rows.times.is_sorted();
        let per_row = if matches!(sequences, Sequences::Many(_)) {
            8
        } else {
            0
        };
        let bytes = rows.heap_bytes() + rows.len() * per_row + OWN_BYTES;
        Some(Arc::new(Chunk {
            rows,
            sequences,
            first_sequence,
            last_sequence,
            first_time,
            last_time,
            sorted,
            born,
            bytes,
        }))
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows that satisfy `keep`, as a chunk of their own.
    pub(crate) fn select(
        &self,
        born: u64,
        keep: impl Fn(i64, Sequence) -> bool,
    ) -> Option<Arc<Chunk>> {
        let picked: Vec<u32> = (0u32..)
            .zip(&self.rows.times)
            .filter(|(row, time)| keep(**time, self.sequences.get(*row as usize)))
            .map(|(row, _)| row)
            .collect();
        if picked.is_empty() {
            return None;
        }
        let sequences = match &self.sequences {
            Sequences::One(s) => Sequences::One(*s),
            Sequences::Many(v) => Sequences::Many(
                picked
                    .iter()
                    .filter_map(|r| v.get(*r as usize).copied())
                    .collect(),
            ),
        };
        Chunk::new(self.rows.gather(&picked), sequences, born)
    }

    /// Both chunks' rows, `self` first. `None` when a field was widened between them.
    pub(crate) fn joined(&self, later: &Chunk) -> Option<Arc<Chunk>> {
        let widened = |(field, column): &(headwater_codec::FieldId, headwater_codec::Column)| {
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
