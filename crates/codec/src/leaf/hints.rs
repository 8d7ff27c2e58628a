//! Hints that the encoder retains from leaf to leaf: the best encoding per column so far, because a
//! search costs several times as much as encoding.
//!
//! Invariant: hints change sizes and times, never the values read back.

use headwater_types::FieldId;
use std::collections::BTreeMap;

/// Leaves after which a search is made again.
pub(super) const SEARCH_EVERY: u32 = 64;
/// Leaves after which a thorough encoder searches again.
const SEARCH_EVERY_THOROUGH: u32 = 4;
/// Columns remembered at most; further ones are searched each time.
const COLUMNS_MAX: usize = 4_096;

/// Hints that the encoder retains from leaf to leaf of one table, per column, so that it need not
/// search again.
#[derive(Clone, Debug, Default)]
pub struct EncodeHints {
    times: ColumnHint,
    columns: BTreeMap<FieldId, ColumnHint>,
    spare: ColumnHint,
    /// Leaves that each leaf adds to the age of a choice beyond one.
    ageing: u32,
}

impl EncodeHints {
    /// Hints for rows that are written once and retained for long: searches sixteen times as often,
    /// which costs a little more time and saves some percent of the bytes.
    #[must_use]
    pub fn thorough() -> EncodeHints {
        EncodeHints {
            ageing: SEARCH_EVERY / SEARCH_EVERY_THOROUGH - 1,
            ..EncodeHints::default()
        }
    }

    /// The hint of the times.
    pub(super) fn times(&mut self) -> &mut ColumnHint {
        self.times.grow_older(self.ageing);
        &mut self.times
    }

    /// The hint of a field's column.
    pub(super) fn column(&mut self, field: FieldId) -> &mut ColumnHint {
        if self.columns.len() >= COLUMNS_MAX && !self.columns.contains_key(&field) {
            self.spare = ColumnHint::default();
            return &mut self.spare;
        }
        let hint = self.columns.entry(field).or_default();
        hint.grow_older(self.ageing);
        hint
    }
}

/// Choices of one column: for its integers (or decimals), and for floats that are not decimals.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnHint {
    pub(super) integers: Option<Choice>,
    pub(super) floats: Option<Choice>,
}

impl ColumnHint {
    fn grow_older(&mut self, by: u32) {
        for choice in [&mut self.integers, &mut self.floats].into_iter().flatten() {
            choice.age += by;
        }
    }
}

/// Best encoding of a search, and its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) encoding: Encoding,
    /// Size at the time of the search, in bits per value.
    pub(super) bits: f32,
    /// Leaves since.
    pub(super) age: u32,
}

/// Encodings of numbers in pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Encoding {
    /// Bit packing for integers, eight bytes each for floats.
    Plain,
    /// pco with this mode and this order of differences.
    Pco(Mode, usize),
}

/// Modes in which pco splits a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Classic,
    IntegerMultiple(u64),
    FloatMultiple(f64),
    FloatQuant(u32),
}

impl Choice {
    pub(super) fn new(encoding: Encoding, bits: f32) -> Choice {
        Choice {
            encoding,
            bits,
            age: 0,
        }
    }

    /// Whether the choice is old, or this leaf is clearly larger or smaller than the leaf of the
    /// search: then the data have changed, and another encoding may be better.
    pub(super) fn is_stale(&self, bits: f32) -> bool {
        self.age >= SEARCH_EVERY || bits > self.bits * 1.2 + 0.5 || bits < self.bits * 0.8 - 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of leaves after which a choice is searched again.
    fn kept(mut hints: EncodeHints) -> usize {
        let field = FieldId(3);
        hints.column(field).integers = Some(Choice::new(Encoding::Plain, 8.0));
        let ages = |hints: &mut EncodeHints| {
            let choice = hints.column(field).integers.as_mut()?;
            // As the encoder of a column does.
            choice.age += 1;
            (!choice.is_stale(8.0)).then_some(())
        };
        (0..100).take_while(|_| ages(&mut hints).is_some()).count()
    }

    #[test]
    fn a_thorough_encoder_searches_more_often() {
        assert_eq!(kept(EncodeHints::default()), 63);
        assert_eq!(kept(EncodeHints::thorough()), 3);
    }
}
