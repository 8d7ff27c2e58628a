//! Result of a parser: the good lines as a batch, the bad ones with their reasons.

use crate::refusal::{Fault, RefusalCounts, RefusedLine};
use headwater_types::Batch;

/// Maximum refused lines with text in one batch; further lines are only counted.
const REFUSED_LISTED_MAX: usize = 1_000;

/// The outcome of parsing a piece of input.
///
/// Invariants: `lines` has one list per entry of `batch`, and each list one number per row of that
/// entry; `refused.len() <= refused_counts.total()`.
#[derive(Clone, Debug, Default)]
pub struct ParsedBatch {
    /// The good lines, in columns per stream.
    pub batch: Batch,
    /// For entry `i` and row `j` of the batch, its line number is `lines[i][j]`.
    pub lines: Vec<Vec<u64>>,
    /// The bad lines in the order of the input, at most the first 1,000.
    pub refused: Vec<RefusedLine>,
    /// All bad lines, by code.
    pub refused_counts: RefusalCounts,
    /// Physical lines read for this batch, empty ones and comments included.
    pub line_count: u64,
    /// Rows in which every field was absent; they are not stored.
    pub empty_rows: u64,
}

impl ParsedBatch {
    /// True when the batch has no rows, no refused lines and no empty rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.refused_counts.total() == 0 && self.empty_rows == 0
    }

    /// The line a row of the batch came from.
    #[must_use]
    pub fn line_of(&self, entry_index: usize, row_index: usize) -> Option<u64> {
        self.lines.get(entry_index)?.get(row_index).copied()
    }

    /// Counts a line that is not stored; of the first 1,000 the reason and the beginning of the
    /// `original` are retained.
    pub fn refuse(&mut self, line: u64, fault: Fault, original: &[u8]) {
        self.refused_counts.add(fault.code);
        if self.refused.len() < REFUSED_LISTED_MAX {
            self.refused.push(RefusedLine::new(line, fault, original));
        }
    }
}
