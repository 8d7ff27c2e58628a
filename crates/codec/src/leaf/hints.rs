//! What the encoder remembers from leaf to leaf: per column the way that was found best, because searching costs several
//! times the encoding.
//!
//! Invariant: hints change sizes and times, never the values read back.

use crate::value::FieldId;
use std::collections::BTreeMap;

/// Leaves after which a search is made again.
pub(super) const SEARCH_EVERY: u32 = 64;
/// Columns remembered at most; further ones are searched each time.
const COLUMNS_MAX: usize = 4_096;

/// What the encoder remembers from leaf to leaf of one table, per column, so that it need not search again.
#[derive(Clone, Debug, Default)]
pub struct EncodeHints {
    pub(super) times: ColumnHint,
    columns: BTreeMap<FieldId, ColumnHint>,
    spare: ColumnHint,
}

impl EncodeHints {
    /// The hint of a field's column.
    pub(super) fn column(&mut self, field: FieldId) -> &mut ColumnHint {
        if self.columns.len() >= COLUMNS_MAX && !self.columns.contains_key(&field) {
            self.spare = ColumnHint::default();
            return &mut self.spare;
        }
        self.columns.entry(field).or_default()
    }
}

/// The choices of one column: for its integers (or decimals), and for floats that are no decimals.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnHint {
    pub(super) integers: Option<Choice>,
    pub(super) floats: Option<Choice>,
}

/// What was found best, and how it did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) way: Way,
    /// Size when it was found, in bits per value.
    pub(super) bits: f32,
    /// Leaves since.
    pub(super) age: u32,
}

/// The ways to write numbers in pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// Bit packing for integers, eight bytes each for floats.
    Plain,
    /// pco with this mode and this order of differences.
    Pco(Mode, usize),
}

/// pco's ways to split a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Classic,
    IntegerMultiple(u64),
    FloatMultiple(f64),
    FloatQuant(u32),
}

impl Choice {
    pub(super) fn new(way: Way, bits: f32) -> Choice {
        Choice { way, bits, age: 0 }
    }

    /// True when the choice is old, or this leaf came out clearly larger than the one it was found on.
    pub(super) fn is_stale(&self, bits: f32) -> bool {
        self.age >= SEARCH_EVERY || bits > self.bits * 1.2 + 0.5
    }
}
