//! Draws a value over time in the terminal: the envelope from minimum to maximum, the mean as a
//! line, gaps as gaps.
//!
//! Invariants: a chart has two dots per character in width and four in height; each dot column is
//! one bin; the mean line connects neighbours only when they are no further apart than the gap
//! allows.

mod axis;
mod canvas;

pub(crate) use axis::ValueAxis;

use axis::time_ticks;
use canvas::{Canvas, DOTS_HIGH, DOTS_WIDE, Layer};

/// Aggregates of one bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

/// A chart to draw.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    /// One per dot column; `None` where nothing happened.
    pub(crate) points: &'a [Option<Point>],
    /// Start of the first bin.
    pub(crate) from_ns: i64,
    /// Width of a bin.
    pub(crate) bin_ns: i64,
    pub(crate) axis: &'a ValueAxis,
    /// Rows of characters.
    pub(crate) height: usize,
    pub(crate) is_colored: bool,
}

/// Dot columns in this many characters.
pub(crate) fn dot_columns(characters: usize) -> usize {
    characters * DOTS_WIDE
}

impl Chart<'_> {
    /// Lines of text, each with its line end.
    pub(crate) fn draw(&self) -> String {
        let width = self.points.len().div_ceil(DOTS_WIDE);
        let mut canvas = Canvas::new(width, self.height);
        self.draw_envelope(&mut canvas);
        self.draw_mean(&mut canvas);
        let mut out = String::new();
        for row in 0..self.height {
            let label = self.axis.label_of_row(row, self.height);
            let tick = if label.is_some() { '┤' } else { '│' };
            out.push_str(&format!(
                "{:>width$} {tick}",
                label.unwrap_or_default(),
                width = self.axis.label_width()
            ));
            canvas.push_row(row, self.is_colored, &mut out);
            out.push('\n');
        }
        self.push_time_axis(width, &mut out);
        out
    }

    fn dot_of(&self, value: f64) -> usize {
        self.axis.dot_of(value, self.height * DOTS_HIGH)
    }

    /// A loose pattern between the extremes of each bin, closed at its ends.
    fn draw_envelope(&self, canvas: &mut Canvas) {
        for (x, point) in self.points.iter().enumerate() {
            let Some(point) = point else { continue };
            let (top, bottom) = (self.dot_of(point.max), self.dot_of(point.min));
            for y in top..=bottom {
                if y == top || y == bottom || (x + y) % 2 == 0 {
                    canvas.set(Layer::Envelope, x, y);
                }
            }
        }
    }

    fn draw_mean(&self, canvas: &mut Canvas) {
        let gap = self.gap_columns();
        let mut previous: Option<(usize, usize)> = None;
        for (x, point) in self.points.iter().enumerate() {
            let Some(point) = point else { continue };
            let y = self.dot_of(point.mean);
            match previous {
                Some(from) if x - from.0 <= gap => canvas.line(Layer::Mean, from, (x, y)),
                _ => canvas.set(Layer::Mean, x, y),
            }
            previous = Some((x, y));
        }
    }

    /// The longest step between filled bins that is no gap: two and a half times the usual step.
    fn gap_columns(&self) -> usize {
        let filled: Vec<usize> = self
            .points
            .iter()
            .enumerate()
            .filter(|(_, point)| point.is_some())
            .map(|(x, _)| x)
            .collect();
        let mut steps: Vec<usize> = filled.windows(2).map(|pair| pair[1] - pair[0]).collect();
        steps.sort_unstable();
        let usual = steps.get(steps.len() / 2).copied().unwrap_or(1);
        (usual * 5).div_ceil(2)
    }

    fn push_time_axis(&self, width: usize, out: &mut String) {
        let gutter = " ".repeat(self.axis.label_width() + 1);
        let character_ns = i128::from(self.bin_ns) * DOTS_WIDE as i128;
        let ticks = time_ticks(self.from_ns, character_ns, width);
        let mut line: Vec<char> = vec!['─'; width];
        let mut labels = vec![' '; width + 1];
        for (column, label) in ticks {
            let label: Vec<char> = label.chars().collect();
            let start = (column + 1).saturating_sub(label.len() / 2);
            let end = start + label.len();
            // One blank must stay between two labels.
            let is_free = labels
                .get(start.saturating_sub(1)..end)
                .is_some_and(|place| place.iter().all(|c| *c == ' '));
            if !is_free {
                continue;
            }
            if let Some(place) = line.get_mut(column) {
                *place = '┬';
            }
            for (place, c) in labels.iter_mut().skip(start).zip(label) {
                *place = c;
            }
        }
        out.push_str(&gutter);
        out.push('└');
        out.extend(line);
        out.push('\n');
        out.push_str(&gutter);
        out.push_str(labels.iter().collect::<String>().trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(points: &[Option<Point>], height: usize) -> String {
        let values = points.iter().flatten();
        let low = values.clone().map(|p| p.min).fold(f64::INFINITY, f64::min);
        let high = values.map(|p| p.max).fold(f64::NEG_INFINITY, f64::max);
        let axis = ValueAxis::new(low, high, height);
        let chart = Chart {
            points,
            from_ns: 0,
            bin_ns: 1_000_000_000,
            axis: &axis,
            height,
            is_colored: false,
        };
        chart.draw()
    }

    fn flat(value: f64) -> Option<Point> {
        Some(Point {
            min: value,
            max: value,
            mean: value,
        })
    }

    #[test]
    fn a_rising_line_rises() {
        let points: Vec<_> = (0..16).map(|i| flat(f64::from(i))).collect();
        let text = draw(&points, 4);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 6);
        assert!(rows[0].ends_with("⡠⠊"), "{text}");
        assert!(rows[3].contains("⡠⠊"), "{text}");
    }

    #[test]
    fn gaps_stay_empty() {
        let mut points = vec![flat(1.0); 40];
        for point in &mut points[10..30] {
            *point = None;
        }
        let text = draw(&points, 2);
        assert!(text.contains(&"⠀".repeat(10)), "{text}");
    }

    #[test]
    fn sparse_points_are_connected() {
        let points: Vec<_> = (0..40)
            .map(|i| if i % 8 == 0 { flat(1.0) } else { None })
            .collect();
        let text = draw(&points, 1);
        assert!(
            !text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_end_matches('⠀')
                .contains('⠀'),
            "{text}"
        );
    }

    #[test]
    fn extremes_show_around_the_mean() {
        let point = Point {
            min: 0.0,
            max: 10.0,
            mean: 5.0,
        };
        let text = draw(&[Some(point); 20], 5);
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[0].ends_with("⢝⢝"), "{text}");
        assert!(rows[1].ends_with("⢕⢕"), "{text}");
        assert!(rows[2].ends_with("⠒⠒") || rows[2].ends_with("⠤⠤"), "{text}");
        assert!(rows[4].ends_with("⣕⣕"), "{text}");
    }

    #[test]
    fn nothing_and_single_values_can_be_drawn() {
        assert!(!draw(&[None; 8], 3).is_empty());
        assert!(!draw(&[flat(f64::MAX)], 3).is_empty());
        assert!(!draw(&[flat(-1e300), flat(1e300)], 3).is_empty());
    }
}
