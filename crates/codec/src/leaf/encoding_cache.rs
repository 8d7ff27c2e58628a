//! Cache of the best encoding of each column, reused from leaf to leaf, because a search costs
//! several times as much as encoding.
//!
//! Invariant: cached encodings change sizes and times, never the values read back.

use headwater_types::FieldId;
use std::collections::BTreeMap;

/// Leaves after which a search is made again.
pub(super) const SEARCH_EVERY: u32 = 64;
/// Leaves after which a thorough encoder searches again.
const SEARCH_EVERY_THOROUGH: u32 = 4;
/// Columns remembered at most; further ones are searched each time.
const COLUMNS_MAX: usize = 4_096;

/// Best known encoding of each column of a table, reused from leaf to leaf instead of a search.
#[derive(Clone, Debug, Default)]
pub struct EncodingCache {
    times: ColumnEncodings,
    columns: BTreeMap<FieldId, ColumnEncodings>,
    spare: ColumnEncodings,
    /// Leaves that each leaf adds to the age of a choice beyond one.
    ageing: u32,
}

impl EncodingCache {
    /// Cache for rows that are written once and retained for long: searches sixteen times as often,
    /// which costs a little more time and saves some percent of the bytes.
    #[must_use]
    pub fn thorough() -> EncodingCache {
        EncodingCache {
            ageing: SEARCH_EVERY / SEARCH_EVERY_THOROUGH - 1,
            ..EncodingCache::default()
        }
    }

    /// Encodings of the times.
    pub(super) fn times(&mut self) -> &mut ColumnEncodings {
        self.times.grow_older(self.ageing);
        &mut self.times
    }

    /// Encodings of a field's column.
    pub(super) fn column(&mut self, field: FieldId) -> &mut ColumnEncodings {
        if self.columns.len() >= COLUMNS_MAX && !self.columns.contains_key(&field) {
            self.spare = ColumnEncodings::default();
            return &mut self.spare;
        }
        let column = self.columns.entry(field).or_default();
        column.grow_older(self.ageing);
        column
    }
}

/// Choices of one column: for its integers (or decimals), and for floats that are not decimals.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnEncodings {
    pub(super) integers: Option<Choice>,
    pub(super) floats: Option<Choice>,
}

impl ColumnEncodings {
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
    fn leaves_until_retry(mut encodings: EncodingCache) -> usize {
        let field = FieldId(3);
        encodings.column(field).integers = Some(Choice::new(Encoding::Plain, 8.0));
        let ages = |encodings: &mut EncodingCache| {
            let choice = encodings.column(field).integers.as_mut()?;
            // As the encoder of a column does.
            choice.age += 1;
            (!choice.is_stale(8.0)).then_some(())
        };
        (0..100)
            .take_while(|_| ages(&mut encodings).is_some())
            .count()
    }

    #[test]
    fn a_thorough_encoder_searches_more_often() {
        assert_eq!(leaves_until_retry(EncodingCache::default()), 63);
        assert_eq!(leaves_until_retry(EncodingCache::thorough()), 3);
    }
}
