//! A grid of braille dots in two layers.
//!
//! Invariant: where the mean passes through a character, only the mean shows there, so that it
//! stands out.

/// Dots in one character.
pub(super) const DOTS_WIDE: usize = 2;
/// Dots in one character.
pub(super) const DOTS_HIGH: usize = 4;

/// The bits of the dots of U+2800 characters, by column and row.
const DOT_BITS: [[u8; DOTS_HIGH]; DOTS_WIDE] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

const ENVELOPE_STYLE: &str = "\u{1b}[36m";
const MEAN_STYLE: &str = "\u{1b}[1;33m";
const PLAIN_STYLE: &str = "\u{1b}[0m";

/// Layer that a dot belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Envelope,
    Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    envelope: u8,
    mean: u8,
}

/// The dots; (0, 0) is at the top left.
#[derive(Debug)]
pub(super) struct Canvas {
    width: usize,
    cells: Vec<Cell>,
}

impl Canvas {
    pub(super) fn new(width: usize, height: usize) -> Canvas {
        Canvas {
            width,
            cells: vec![Cell::default(); width * height],
        }
    }

    /// Sets a dot; outside the canvas nothing happens.
    pub(super) fn set(&mut self, layer: Layer, x: usize, y: usize) {
        let column = x / DOTS_WIDE;
        if column >= self.width {
            return;
        }
        if let Some(cell) = self.cells.get_mut(y / DOTS_HIGH * self.width + column) {
            let bit = DOT_BITS
                .get(x % DOTS_WIDE)
                .and_then(|rows| rows.get(y % DOTS_HIGH))
                .copied()
                .unwrap_or(0);
            match layer {
                Layer::Envelope => cell.envelope |= bit,
                Layer::Mean => cell.mean |= bit,
            }
        }
    }

    /// Sets the dots between two points, both included; `from` lies left of `to`.
    pub(super) fn line(&mut self, layer: Layer, from: (usize, usize), to: (usize, usize)) {
        let steps = to.0.abs_diff(from.0).max(to.1.abs_diff(from.1)).max(1);
        let between = |a: usize, b: usize, step: usize| {
            if b >= a {
                a + ((b - a) * step + steps / 2) / steps
            } else {
                a - ((a - b) * step + steps / 2) / steps
            }
        };
        for step in 0..=steps {
            self.set(
                layer,
                between(from.0, to.0, step),
                between(from.1, to.1, step),
            );
        }
    }

    /// Appends a row of characters.
    pub(super) fn push_row(&self, row: usize, is_colored: bool, out: &mut String) {
        let start = row * self.width;
        let mut style = PLAIN_STYLE;
        for cell in self.cells.iter().skip(start).take(self.width) {
            let (bits, wanted) = if cell.mean != 0 {
                (cell.mean, MEAN_STYLE)
            } else if cell.envelope != 0 {
                (cell.envelope, ENVELOPE_STYLE)
            } else {
                (0, PLAIN_STYLE)
            };
            if is_colored && wanted != style {
                out.push_str(wanted);
                style = wanted;
            }
            out.push(char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' '));
        }
        if style != PLAIN_STYLE {
            out.push_str(PLAIN_STYLE);
        }
    }
}
