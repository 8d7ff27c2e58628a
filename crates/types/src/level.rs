//! Levels of the pyramid: buckets of 2^level seconds, aligned to 1970 UTC.
//!
//! Invariants: bucket `k` of level `l` contains every `t` with `k·2^l ≤ t/10^9 < (k+1)·2^l`,
//! computed exactly in `i128` for negative times and negative levels alike; its first nanosecond is
//! `ceil(k·10^9·2^l)`. Every bucket of a level is inside one bucket of each higher level. A tile is
//! 512 buckets.

use crate::time::{ClosedRange, Timestamp};

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Buckets in one tile.
pub const TILE_BUCKETS: i64 = 512;

/// A level of the pyramid: its buckets are `2^level` seconds wide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Level(i8);

impl Level {
    /// The finest level: buckets of 2^-20 s, a little under a microsecond.
    pub const MIN: Level = Level(-20);
    /// The coarsest level: buckets of 2^40 s; all of time is bucket -1 and bucket 0.
    pub const MAX: Level = Level(40);

    /// The level, if it is in −20 … 40.
    ///
    /// ```
    /// use headwater_types::Level;
    /// assert!(Level::new(0).is_some() && Level::new(41).is_none());
    /// ```
    #[must_use]
    pub const fn new(level: i32) -> Option<Level> {
        if level >= -20 && level <= 40 {
            Some(Level(level as i8))
        } else {
            None
        }
    }

    /// The level nearest to `level` inside −20 … 40.
    #[must_use]
    pub fn clamped(level: i32) -> Level {
        Level(level.clamp(-20, 40) as i8)
    }

    /// The exponent.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0 as i32
    }

    /// The bucket an instant falls in: floor(t · 2^−level / 10^9).
    #[inline]
    #[must_use]
    pub fn bucket_of(self, at: Timestamp) -> i64 {
        // Whole seconds and the remainder are computed separately, so 64 bits suffice: |seconds| <
        // 2^34, the remainder is below 2^30, levels are ≥ −20.
        const PER_SECOND: i64 = NANOS_PER_SECOND as i64;
        let seconds = at.as_nanos().div_euclid(PER_SECOND);
        if self.0 >= 0 {
            return seconds >> self.0;
        }
        let rest = at.as_nanos().rem_euclid(PER_SECOND);
        let shift = -self.0;
        (seconds << shift) + (rest << shift) / PER_SECOND
    }

    /// First nanosecond of a bucket, which may be outside the `i64` range of instants.
    #[must_use]
    pub fn bucket_start_wide(self, bucket: i64) -> i128 {
        let product = i128::from(bucket) * NANOS_PER_SECOND;
        if self.0 >= 0 {
            product << self.0
        } else {
            let shift = -i32::from(self.0);
            let floor = product >> shift;
            if (floor << shift) == product {
                floor
            } else {
                floor + 1
            }
        }
    }

    /// The instants of the buckets `first ..= last`, cut to the range of instants; empty if all are
    /// outside.
    #[must_use]
    pub fn span(self, first_bucket: i64, last_bucket: i64) -> ClosedRange {
        let first = self.bucket_start_wide(first_bucket);
        let last = self.bucket_start_wide(last_bucket.saturating_add(1)) - 1;
        if first > i128::from(i64::MAX) || last < i128::from(i64::MIN) || first > last {
            return ClosedRange::EMPTY;
        }
        let clamp = |v: i128| v.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        ClosedRange::nanos(clamp(first), clamp(last))
    }

    /// The instants of one bucket.
    #[must_use]
    pub fn bucket_span(self, bucket: i64) -> ClosedRange {
        // Computed in 64 bits if they suffice: 10^9·2^33 is just below 2^63.
        const PER_SECOND: i64 = NANOS_PER_SECOND as i64;
        if (0..=33).contains(&self.0) {
            let width = PER_SECOND << self.0;
            if let Some(first) = bucket.checked_mul(width)
                && let Some(last) = first.checked_add(width - 1)
            {
                return ClosedRange::nanos(first, last);
            }
        }
        self.span(bucket, bucket)
    }

    /// The bucket of the coarser level `parent` that contains `bucket` of this level.
    #[must_use]
    pub fn parent_bucket(self, bucket: i64, parent: Level) -> i64 {
        debug_assert!(parent >= self);
        let shift = u32::from((parent.0 - self.0).unsigned_abs());
        if shift >= 63 {
            if bucket < 0 { -1 } else { 0 }
        } else {
            bucket >> shift
        }
    }

    /// The buckets of tile number `offset`: 512 of them, `offset·512 …`. `None` if the whole tile
    /// is outside the range of instants.
    #[must_use]
    pub fn tile_buckets(self, offset: i64) -> Option<std::ops::RangeInclusive<i64>> {
        let first = offset.checked_mul(TILE_BUCKETS)?;
        let last = first.checked_add(TILE_BUCKETS - 1)?;
        if self.span(first, last).is_empty() {
            None
        } else {
            Some(first..=last)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_of_time_have_buckets_at_every_level() {
        for l in -20..=40 {
            let level = Level::new(l).unwrap();
            for t in [i64::MIN, -1, 0, 1, i64::MAX, 999_999_999, -1_000_000_000] {
                let at = Timestamp::from_nanos(t);
                assert!(
                    level.bucket_span(level.bucket_of(at)).contains(at),
                    "level {l} t {t}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn buckets_partition_time(t: i64, l in -20i32..=40, up in 0i32..=60) {
            let level = Level::new(l).unwrap();
            let at = Timestamp::from_nanos(t);
            let bucket = level.bucket_of(at);
            let start = level.bucket_start_wide(bucket);
            let next = level.bucket_start_wide(bucket + 1);
            prop_assert!(start <= i128::from(t) && i128::from(t) < next);
            prop_assert_eq!(level.bucket_span(bucket), level.span(bucket, bucket));
            let parent = Level::clamped(l + up);
            prop_assert_eq!(level.parent_bucket(bucket, parent), parent.bucket_of(at));
        }
    }
}
