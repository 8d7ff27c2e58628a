//! The law of lateness, for the model: survival and tail in events, with the extremal index.
//!
//! Invariants: between the borders of two buckets the survival is a straight line, and the tail its
//! integral. A query of a prediction, of which a ranking makes some hundred thousand, is one table
//! lookup. Concurrency: a value. Failure: none; not-a-number in returns not-a-number.

use super::{BUCKETS, Histogram, Lateness, PER_OCTAVE, bucket_start};
use crate::law::DelayLaw;

/// Number of deeper blocks for which the extremal index of a depth is reliable.
const BLOCKS_MIN: f64 = 8.0;

/// The law of lateness: survival and tail in events, with the extremal index.
#[derive(Clone, Debug, PartialEq)]
pub struct LatenessLaw {
    /// One segment for each bucket but the last.
    pieces: Vec<LawSegment>,
    /// Extremal index at the first node of each bucket.
    extremal: Vec<f64>,
}

/// The law from one node to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LawSegment {
    /// The next node.
    end: f64,
    /// Survival and tail there.
    survival: f64,
    tail: f64,
    /// Half of the decrease of the survival for each event.
    half_slope: f64,
}

const NOTHING: LawSegment = LawSegment {
    end: 0.0,
    survival: 0.0,
    tail: 0.0,
    half_slope: 0.0,
};

/// Start of a bucket: a lateness of L means more than L − ½ and at most L + ½ events behind.
fn bucket_lower_bound(bucket: usize) -> f64 {
    match bucket_start(bucket) {
        0 => 0.0,
        start => start as f64 - 0.5,
    }
}

/// The bucket of a lateness of at least 0, except the last bucket.
#[inline]
fn bucket_at(x: f64) -> usize {
    let lateness = x + 0.5;
    if lateness < PER_OCTAVE as f64 {
        return lateness as usize;
    }
    // In floating point the exponent is the octave, and the first three bits of the fraction are
    // the bucket in it.
    let octaves = (lateness.to_bits() >> 49) as usize;
    (octaves - FIRST_OCTAVE).min(BUCKETS - 2)
}

/// The exponent of 8 followed by three bits, less the buckets before.
const FIRST_OCTAVE: usize = ((1023 + 3) << 3) - PER_OCTAVE;

impl LatenessLaw {
    /// The approximate lateness that a share of the events does not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let above = |bucket: usize| match bucket.checked_sub(1) {
            None => self.survival(0.0),
            Some(before) => self.piece(before).survival,
        };
        let at = (0..BUCKETS).find(|bucket| above(*bucket) <= 1.0 - share);
        bucket_lower_bound(at.unwrap_or(BUCKETS - 1))
    }

    pub(super) fn new(seen: &Lateness) -> Option<LatenessLaw> {
        if seen.events <= 0.0 {
            return None;
        }
        let above = |histogram: &Histogram| -> Vec<f64> {
            let mut sum = 0.0;
            let mut sums: Vec<f64> = histogram
                .counts
                .iter()
                .rev()
                .map(|count| {
                    sum += count;
                    sum
                })
                .collect();
            sums.reverse();
            sums
        };
        let (late, deep) = (above(&seen.late), above(&seen.deepest));
        let survival = |bucket: usize| get(&late, bucket) / seen.events;
        let mut law = LatenessLaw {
            pieces: vec![NOTHING; BUCKETS - 1],
            extremal: Vec::with_capacity(BUCKETS),
        };
        let mut known = None;
        for bucket in 0..BUCKETS {
            let blocks = get(&deep, bucket);
            let share = blocks / seen.blocks.max(f64::MIN_POSITIVE);
            let per_block = survival(bucket) * seen.block_events as f64;
            let index = if blocks >= BLOCKS_MIN && share < 0.98 && per_block > 0.0 {
                let index = (-(-share).ln_1p() / per_block).clamp(0.01, 1.0);
                known = Some(index);
                index
            } else {
                f64::NAN
            };
            law.extremal.push(index);
        }
        // Depths too common or too rare to measure take the index of the nearest measured one.
        let last = known.unwrap_or(1.0);
        let first = law.extremal.iter().copied().find(|i| !i.is_nan());
        let mut before = first.unwrap_or(last);
        for index in &mut law.extremal {
            if index.is_nan() {
                *index = before;
            }
            before = *index;
        }
        let mut tail = 0.0;
        for (bucket, piece) in law.pieces.iter_mut().enumerate().rev() {
            let end = bucket_lower_bound(bucket + 1);
            let width = end - bucket_lower_bound(bucket);
            let (a, b) = (survival(bucket), survival(bucket + 1));
            *piece = LawSegment {
                end,
                survival: b,
                tail,
                half_slope: (a - b) / width / 2.0,
            };
            tail += width * (a + b) / 2.0;
        }
        Some(law)
    }

    #[inline]
    fn piece(&self, bucket: usize) -> &LawSegment {
        self.pieces.get(bucket).unwrap_or(&NOTHING)
    }

    /// The segment of a lateness of at least 0, and the distance from its end.
    #[inline]
    fn at(&self, x: f64) -> (&LawSegment, f64) {
        let piece = self.piece(bucket_at(x));
        (piece, (piece.end - x).max(0.0))
    }
}

fn get(values: &[f64], index: usize) -> f64 {
    values.get(index).copied().unwrap_or(0.0)
}

impl DelayLaw for LatenessLaw {
    #[inline]
    fn survival(&self, x: f64) -> f64 {
        if x < 0.0 {
            return 1.0;
        }
        let (piece, left) = self.at(x);
        piece.survival + 2.0 * piece.half_slope * left
    }

    #[inline]
    fn tail(&self, x: f64) -> f64 {
        let (piece, left) = self.at(x.max(0.0));
        // The tail after this segment, and the trapezoid from here to the next node.
        let here = piece.tail + left * (piece.survival + piece.half_slope * left);
        here - x.min(0.0)
    }

    fn extremal_index(&self, x: f64) -> f64 {
        let x = x.max(0.0);
        let bucket = bucket_at(x);
        let (from, end) = (bucket_lower_bound(bucket), bucket_lower_bound(bucket + 1));
        let share = ((x - from) / (end - from)).clamp(0.0, 1.0);
        let (a, b) = (get(&self.extremal, bucket), get(&self.extremal, bucket + 1));
        a + (b - a) * share
    }
}
