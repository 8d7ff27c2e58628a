//! Columns with gaps, and numbers that look like chance and are the same in every run.

use headwater_types::Column;

/// A small generator with a known sequence, so that golden bytes do not hang on a library.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The same column with some rows absent.
pub(crate) fn with_gaps(column: &Column, present: impl Fn(usize) -> bool) -> Column {
    let mut out = Column::new(column.field_type());
    for row in 0..column.len() {
        if present(row) {
            out.extend_from(column, row..row + 1);
        } else {
            out.push_absent(1);
        }
    }
    out
}
