//! Downsampling that preserves the visual shape of the points.
//!
//! `lttb` selects the first and the last point, and, from each of the buckets between them, of
//! equal numbers of points, the point that spans the largest triangle with the previously selected
//! point and the mean of the next bucket (Steinarsson, "Downsampling Time Series for Visual
//! Representation", 2013). `minmax` selects the least and the greatest value of spans of equal
//! length.
//!
//! Invariants: the result is a subset of the points, in their order; points with NaN values are
//! left out.

use super::points::{Point, float, seconds};

fn usable(points: &[Point]) -> Vec<Point> {
    let usable = points.iter().filter(|point| !point.value.is_nan());
    usable.copied().collect()
}

fn as_float(count: usize) -> f64 {
    i64::try_from(count).map_or(f64::NAN, float)
}

/// Index of the first point of a bucket of `lttb`.
fn bucket(number: usize, inner: usize, buckets: usize) -> usize {
    number * inner / buckets + 1
}

/// Selects `count` points, at least three.
pub(super) fn lttb(points: &[Point], count: usize) -> Vec<Point> {
    let all = usable(points);
    let (Some(begin), Some(last)) = (all.first(), all.last()) else {
        return all;
    };
    if all.len() <= count {
        return all;
    }
    let x = |point: &Point| seconds(begin.ns, point.ns);
    let (inner, buckets) = (all.len() - 2, count - 2);
    let mut kept = Vec::with_capacity(count);
    let mut before = *begin;
    kept.push(before);
    for number in 0..buckets {
        let (begins, ends) = (
            bucket(number, inner, buckets),
            bucket(number + 1, inner, buckets),
        );
        // The bucket after the last one is the last point.
        let next = match number + 1 == buckets {
            true => all.get(all.len() - 1..),
            false => all.get(ends..bucket(number + 2, inner, buckets)),
        };
        let next = next.unwrap_or(&[]);
        let many = as_float(next.len());
        let mean_x = next.iter().map(x).sum::<f64>() / many;
        let mean_y = next.iter().map(|point| point.value).sum::<f64>() / many;
        let own = all.get(begins..ends).unwrap_or(&[]);
        let mut best: Option<(f64, Point)> = None;
        for point in own {
            let (ax, ay) = (x(&before), before.value);
            let span = (ax - mean_x) * (point.value - ay) - (ax - x(point)) * (mean_y - ay);
            let span = span.abs();
            if best.is_none_or(|(known, _)| span > known) {
                best = Some((span, *point));
            }
        }
        if let Some((_, point)) = best {
            before = point;
            kept.push(point);
        }
    }
    kept.push(*last);
    kept
}

/// Selects at most `count` points, at least two.
pub(super) fn minmax(points: &[Point], count: usize) -> Vec<Point> {
    let all = usable(points);
    let (Some(begin), Some(end)) = (all.first().copied(), all.last().copied()) else {
        return all;
    };
    if all.len() <= count {
        return all;
    }
    let spans = i128::try_from((count / 2).max(1)).unwrap_or(1);
    let length = i128::from(end.ns) - i128::from(begin.ns) + 1;
    let span = |point: &Point| (i128::from(point.ns) - i128::from(begin.ns)) * spans / length;
    let mut kept = Vec::with_capacity(count);
    for part in all.chunk_by(|a, b| span(a) == span(b)) {
        let by = |a: &&(usize, &Point), b: &&(usize, &Point)| a.1.value.total_cmp(&b.1.value);
        let numbered: Vec<(usize, &Point)> = part.iter().enumerate().collect();
        // Among equal points the first.
        let least = numbered.iter().min_by(by);
        let greatest = numbered.iter().rev().max_by(by);
        if let (Some((low, lowest)), Some((high, highest))) = (least, greatest) {
            match low.cmp(high) {
                std::cmp::Ordering::Less => kept.extend([**lowest, **highest]),
                std::cmp::Ordering::Equal => kept.push(**lowest),
                std::cmp::Ordering::Greater => kept.extend([**highest, **lowest]),
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn points(values: &[f64]) -> Vec<Point> {
        let points = values.iter().enumerate();
        let points = points.map(|(at, value)| Point {
            ns: i64::try_from(at).unwrap() * 1_000_000_000,
            value: *value,
        });
        points.collect()
    }

    fn values(points: &[Point]) -> Vec<f64> {
        points.iter().map(|point| point.value).collect()
    }

    #[test]
    fn the_peak_of_each_bucket_is_kept() {
        let all = points(&[0.0, 1.0, 9.0, 1.0, 0.0, -8.0, 0.0, 1.0]);
        assert_eq!(values(&lttb(&all, 4)), [0.0, 9.0, -8.0, 1.0]);
        assert_eq!(lttb(&all, 8), all);
        assert_eq!(lttb(&[], 3), []);
        let with_nan = points(&[f64::NAN, 1.0, 2.0]);
        assert_eq!(values(&lttb(&with_nan, 3)), [1.0, 2.0]);
    }

    #[test]
    fn the_least_and_the_greatest_of_each_span_are_kept_in_their_order() {
        let all = points(&[0.0, 5.0, -5.0, 0.0, 1.0, 1.0, 7.0, 6.0]);
        assert_eq!(values(&minmax(&all, 4)), [5.0, -5.0, 1.0, 7.0]);
        let flat = points(&[2.0; 6]);
        assert_eq!(values(&minmax(&flat, 4)), [2.0, 2.0]);
    }
}
