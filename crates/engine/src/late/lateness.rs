//! How late events are: what the analyzer keeps of each shard.
//!
//! The lateness of an event is the number of events of its stream that arrived since the stream's newest timestamp passed it;
//! 0 for an event that is the newest. Unlike a delay it needs no arrival time, no clock and no fixed interval, and it does
//! not change when all delays grow alike. While events arrive as fast as they are generated it is the delay in generation
//! intervals, less that of the newest event: so it may stand wherever the model asks for a delay.
//! Two histograms with 8 buckets per octave: one of all events, one of the deepest event in each block of arrivals. From both
//! comes the extremal index: 1 when late events come independently, near 0 when they come in batches.
//!
//! Invariants: a tracker's `borders` rise in time and in count; a histogram's weight is at most `events`.
//! Concurrency: values; the shard's lock guards the ones in use.
//! Failure: none. Memory is bounded: [`BORDERS_MAX`] borders a stream, [`STREAMS_TRACKED_MAX`] streams a shard.

use super::law::DelayLaw;
use headwater_codec::{Cursor, DecodeError, PutBytes};

/// Buckets per octave, and values below this have one each.
const PER_OCTAVE: usize = 8;
/// Deeper lateness counts as 2^40.
const OCTAVES: usize = 40;
const BUCKETS: usize = PER_OCTAVE + (OCTAVES - 3) * PER_OCTAVE;
/// Arrivals between two borders.
const BORDER_SPACING: u64 = 16;
/// Borders of a stream; the older half is thinned when there are so many.
const BORDERS_MAX: usize = 384;
/// Streams tracked in a shard. Others are taken to be like them.
pub const STREAMS_TRACKED_MAX: usize = 64;
/// Blocks deeper than a depth that its extremal index needs to be believed.
const BLOCKS_MIN: f64 = 8.0;

/// Log-spaced counts of lateness.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    counts: Vec<f64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0.0; BUCKETS],
        }
    }
}

fn bucket_of(lateness: u64) -> usize {
    if lateness < PER_OCTAVE as u64 {
        return lateness as usize;
    }
    let octave = (63 - lateness.leading_zeros() as usize).min(OCTAVES - 1);
    let within = (lateness >> (octave - 3)) as usize & (PER_OCTAVE - 1);
    PER_OCTAVE + (octave - 3) * PER_OCTAVE + within
}

/// The smallest lateness of a bucket.
fn bucket_start(bucket: usize) -> u64 {
    if bucket < PER_OCTAVE {
        return bucket as u64;
    }
    let octave = (bucket - PER_OCTAVE) / PER_OCTAVE;
    let within = (bucket - PER_OCTAVE) % PER_OCTAVE;
    ((PER_OCTAVE + within) as u64) << octave
}

impl Histogram {
    fn add(&mut self, lateness: u64, events: usize) {
        if let Some(count) = self.counts.get_mut(bucket_of(lateness)) {
            *count += events as f64;
        }
    }

    fn decay(&mut self, factor: f64) {
        for count in &mut self.counts {
            *count *= factor;
        }
    }

    /// Weight of each bucket that has any, with the smallest lateness in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, f64)> {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| **count > 0.0)
            .map(|(bucket, count)| (bucket_start(bucket), *count))
    }
}

/// What was seen of lateness, decaying.
#[derive(Clone, Debug, PartialEq)]
pub struct Lateness {
    /// Weight of all events.
    events: f64,
    late: Histogram,
    /// Weight of finished blocks.
    blocks: f64,
    deepest: Histogram,
    block_events: u64,
}

impl Lateness {
    /// Nothing seen yet; the deepest event is noted for each block of `block_events` arrivals, at least 16.
    #[must_use]
    pub fn new(block_events: u64) -> Lateness {
        Lateness {
            events: 0.0,
            late: Histogram::default(),
            blocks: 0.0,
            deepest: Histogram::default(),
            block_events: block_events.max(16),
        }
    }

    /// Weight of the events seen.
    #[must_use]
    pub fn events(&self) -> f64 {
        self.events
    }

    /// Weight of the events that were not the newest of their stream.
    #[must_use]
    pub fn late_events(&self) -> f64 {
        self.late.counts.iter().sum()
    }

    /// Arrivals of a block.
    #[must_use]
    pub fn block_events(&self) -> u64 {
        self.block_events
    }

    /// The histogram of late events.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.late
    }

    /// Lets what was seen so far count less by this factor.
    pub fn decay(&mut self, factor: f64) {
        self.events *= factor;
        self.blocks *= factor;
        self.late.decay(factor);
        self.deepest.decay(factor);
    }

    /// The law to predict with. `None` before the first event.
    #[must_use]
    pub fn law(&self) -> Option<LatenessLaw> {
        LatenessLaw::new(self)
    }

    /// Appends what has to be kept over a restart: weights in 1/16, buckets as (lateness, weight).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let weight = |w: f64| (w * 16.0).round().clamp(0.0, 1e15) as u64;
        out.put_varint(self.block_events);
        out.put_varint(weight(self.events));
        out.put_varint(weight(self.blocks));
        for histogram in [&self.late, &self.deepest] {
            let full: Vec<(u64, u64)> = histogram
                .buckets()
                .map(|(lateness, w)| (lateness, weight(w)))
                .filter(|(_, w)| *w > 0)
                .collect();
            out.put_varint(full.len() as u64);
            for (lateness, weight) in full {
                out.put_varint(lateness);
                out.put_varint(weight);
            }
        }
    }

    /// Reads what [`Lateness::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes are not that.
    pub fn decode(cursor: &mut Cursor<'_>) -> Result<Lateness, DecodeError> {
        let mut new = Lateness::new(cursor.varint("events of a block")?);
        new.events = cursor.varint("weight of events")? as f64 / 16.0;
        new.blocks = cursor.varint("weight of blocks")? as f64 / 16.0;
        for histogram in [&mut new.late, &mut new.deepest] {
            for _ in 0..cursor.varint_up_to(BUCKETS as u64, "buckets of lateness")? {
                let lateness = cursor.varint("lateness")?;
                let weight = cursor.varint("weight of lateness")? as f64 / 16.0;
                if let Some(count) = histogram.counts.get_mut(bucket_of(lateness)) {
                    *count += weight;
                }
            }
        }
        Ok(new)
    }
}

/// Follows one stream.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    newest: Option<i64>,
    arrivals: u64,
    /// Newest time, and arrivals when it was that.
    borders: Vec<(i64, u64)>,
    next_border: u64,
    block_end: u64,
    block_deepest: u64,
}

impl Tracker {
    /// A stream nothing is known of.
    #[must_use]
    pub fn new() -> Tracker {
        Tracker::default()
    }

    /// Arrivals seen.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// The newest timestamp seen.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        self.newest
    }

    /// The mean distance of two events, from the newest borders, in ns.
    #[must_use]
    pub fn interval_ns(&self) -> f64 {
        let from = self.borders.len().saturating_sub(64);
        let (Some(a), Some(b)) = (self.borders.get(from), self.borders.last()) else {
            return 1.0;
        };
        let span = b.0.wrapping_sub(a.0) as u64;
        (span as f64 / (b.1 - a.1).max(1) as f64).max(1.0)
    }

    /// Bytes of memory in use, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.borders.capacity() * size_of::<(i64, u64)>()
    }

    /// Takes in events in order of arrival.
    pub fn observe(&mut self, times: &[i64], seen: &mut Lateness) {
        let Some(first) = times.first() else { return };
        seen.events += times.len() as f64;
        // The common case by far: everything newer than what there was, in order.
        if self.newest.is_none_or(|newest| *first > newest) && times.is_sorted_by(|a, b| a < b) {
            self.advance(times, seen);
            return;
        }
        let mut rest = times;
        while let Some(time) = rest.first() {
            let count = match self.newest {
                Some(newest) if *time <= newest => {
                    let count = self.late_stretch(rest, newest);
                    self.observe_late(rest.get(..count).unwrap_or_default(), seen);
                    count
                }
                _ => {
                    self.arrivals += 1;
                    self.newest = Some(*time);
                    self.mark(*time);
                    1
                }
            };
            rest = rest.get(count..).unwrap_or_default();
            self.end_blocks(seen);
        }
    }

    /// How many late times at the front rise and end with the block at the latest; the first of them is late.
    fn late_stretch(&self, times: &[i64], newest: i64) -> usize {
        let most = self.block_end.saturating_sub(self.arrivals).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let rising = times.windows(2).take(most.saturating_sub(1));
        1 + rising
            .take_while(|w| matches!(w, [a, b] if a <= b && *b <= newest))
            .count()
    }

    /// Takes late times that rise. Lateness falls with the time and rises with every arrival: where both bounds of a stretch are in
    /// one bucket, all of it is, and is not looked at one by one.
    fn observe_late(&mut self, times: &[i64], seen: &mut Lateness) {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return;
        };
        let count = times.len();
        let least = self.lateness_of(*last, self.arrivals + 1);
        let most = if count == 1 {
            least
        } else {
            self.lateness_of(*first, self.arrivals + count as u64)
        };
        if bucket_of(least) == bucket_of(most) {
            self.arrivals += count as u64;
            seen.late.add(most, count);
            self.block_deepest = self.block_deepest.max(most);
            return;
        }
        let (front, back) = times.split_at(count / 2);
        self.observe_late(front, seen);
        self.observe_late(back, seen);
    }

    fn advance(&mut self, times: &[i64], seen: &mut Lateness) {
        let before = self.arrivals;
        self.arrivals += times.len() as u64;
        self.newest = times.last().copied();
        while self.next_border <= self.arrivals {
            let index = self.next_border.saturating_sub(before + 1) as usize;
            let at = self.next_border.max(before + 1);
            let time = times.get(index).copied().unwrap_or(i64::MAX);
            self.push_border(time, at);
        }
        self.end_blocks(seen);
    }

    fn mark(&mut self, time: i64) {
        if self.arrivals >= self.next_border {
            self.push_border(time, self.arrivals);
        }
    }

    fn push_border(&mut self, time: i64, arrivals: u64) {
        if self.borders.len() >= BORDERS_MAX {
            // What lies further back is known less exactly.
            let half = BORDERS_MAX / 2;
            let mut index = 0;
            self.borders.retain(|_| {
                index += 1;
                index > half || index % 2 == 0
            });
        }
        self.borders.push((time, arrivals));
        self.next_border = arrivals + BORDER_SPACING;
    }

    fn end_blocks(&mut self, seen: &mut Lateness) {
        if self.block_end == 0 {
            self.block_end = self.arrivals + seen.block_events;
        }
        while self.arrivals >= self.block_end {
            seen.blocks += 1.0;
            if self.block_deepest > 0 {
                seen.deepest.add(self.block_deepest, 1);
            }
            self.block_deepest = 0;
            self.block_end += seen.block_events;
        }
    }

    /// Arrivals since the newest time passed this one, itself, the `arrivals`-th, among them: at least 1.
    fn lateness_of(&self, time: i64, arrivals: u64) -> u64 {
        // Most are only a little late: look from the newest border back, in growing steps.
        let count = self.borders.len();
        let (mut low, mut step) = (count, 1);
        while low > 0 && self.borders.get(low - 1).is_some_and(|b| b.0 > time) {
            low = low.saturating_sub(step);
            step *= 2;
        }
        let high = (low + step).min(count);
        let part = self.borders.get(low..high).unwrap_or_default();
        let right = low + part.partition_point(|(at, _)| *at <= time);
        let Some(a) = right.checked_sub(1).and_then(|i| self.borders.get(i)) else {
            return self.lateness_before(time, arrivals);
        };
        let newest = (self.newest.unwrap_or(time), arrivals);
        let b = self.borders.get(right).unwrap_or(&newest);
        // Times rise from a to this one to b, so their distances fit into 64 bits without a sign.
        let span = b.0.wrapping_sub(a.0) as u64;
        let into = time.wrapping_sub(a.0) as u64;
        let share = if span > 0 {
            into as f64 / span as f64
        } else {
            1.0
        };
        let passed = a.1 as f64 + share * (b.1 - a.1) as f64;
        ((arrivals as f64 - passed + 0.5) as u64).max(1)
    }

    /// As [`Tracker::lateness_of`], for a time before the oldest border: events are taken to have come as fast before.
    fn lateness_before(&self, time: i64, arrivals: u64) -> u64 {
        let (Some(first), Some(newest)) = (self.borders.first(), self.newest) else {
            return arrivals.max(1);
        };
        let known = (i128::from(newest) - i128::from(first.0)) as f64;
        let beyond = (i128::from(first.0) - i128::from(time)) as f64;
        let counted = (arrivals - first.1) as f64;
        let more = if known > 0.0 {
            beyond / known * counted
        } else {
            0.0
        };
        ((counted + more) as u64).clamp(1, 1 << OCTAVES)
    }
}

/// The law of lateness, for the model: survival and tail in events, with the extremal index.
#[derive(Clone, Debug, PartialEq)]
pub struct LatenessLaw {
    /// Rising places; survival, tail and extremal index there.
    places: Vec<f64>,
    survival: Vec<f64>,
    tail: Vec<f64>,
    extremal: Vec<f64>,
}

impl LatenessLaw {
    /// The lateness that a share of the events does not exceed, about.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let at = self.survival.partition_point(|s| *s > 1.0 - share);
        match (at, self.places.get(at)) {
            (0, _) => 0.0,
            (_, Some(place)) => *place,
            (_, None) => get(&self.places, BUCKETS - 1),
        }
    }

    fn new(seen: &Lateness) -> Option<LatenessLaw> {
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
        let mut law = LatenessLaw {
            places: Vec::with_capacity(BUCKETS),
            survival: Vec::with_capacity(BUCKETS),
            tail: vec![0.0; BUCKETS],
            extremal: Vec::with_capacity(BUCKETS),
        };
        let mut known = None;
        for bucket in 0..BUCKETS {
            // A lateness of L means more than L − ½ and at most L + ½ places behind.
            let start = bucket_start(bucket);
            let place = if start == 0 { 0.0 } else { start as f64 - 0.5 };
            let survival = get(&late, bucket) / seen.events;
            law.places.push(place);
            law.survival.push(survival);
            let blocks = get(&deep, bucket);
            let share = blocks / seen.blocks.max(f64::MIN_POSITIVE);
            let per_block = survival * seen.block_events as f64;
            let index = if blocks >= BLOCKS_MIN && share < 0.98 && per_block > 0.0 {
                let index = (-(-share).ln_1p() / per_block).clamp(0.01, 1.0);
                known = Some(index);
                index
            } else {
                f64::NAN
            };
            law.extremal.push(index);
        }
        // Depths too common or too rare to tell take the index of the nearest that does.
        let mut last = known.unwrap_or(1.0);
        let first = law.extremal.iter().copied().find(|i| !i.is_nan());
        let mut before = first.unwrap_or(last);
        for index in &mut law.extremal {
            if index.is_nan() {
                *index = before;
            }
            before = *index;
        }
        last = before;
        if let Some(slot) = law.extremal.last_mut() {
            *slot = last;
        }
        for bucket in (0..BUCKETS - 1).rev() {
            let width = get(&law.places, bucket + 1) - get(&law.places, bucket);
            let height = (get(&law.survival, bucket) + get(&law.survival, bucket + 1)) / 2.0;
            let sum = get(&law.tail, bucket + 1) + width * height;
            if let Some(slot) = law.tail.get_mut(bucket) {
                *slot = sum;
            }
        }
        Some(law)
    }

    /// The bucket a place lies in, and how far into it.
    fn at(&self, x: f64) -> (usize, f64) {
        let bucket = bucket_of((x + 0.5).clamp(0.0, 1e15) as u64);
        let bucket = bucket.min(BUCKETS - 2);
        let (a, b) = (get(&self.places, bucket), get(&self.places, bucket + 1));
        (bucket, ((x - a) / (b - a)).clamp(0.0, 1.0))
    }
}

fn get(values: &[f64], index: usize) -> f64 {
    values.get(index).copied().unwrap_or(0.0)
}

impl DelayLaw for LatenessLaw {
    fn survival(&self, x: f64) -> f64 {
        if x < 0.0 {
            return 1.0;
        }
        let (bucket, share) = self.at(x);
        let (a, b) = (get(&self.survival, bucket), get(&self.survival, bucket + 1));
        a + (b - a) * share
    }

    fn tail(&self, x: f64) -> f64 {
        if x < 0.0 {
            return get(&self.tail, 0) - x;
        }
        let (bucket, share) = self.at(x);
        let width = get(&self.places, bucket + 1) - get(&self.places, bucket);
        let (a, b) = (get(&self.survival, bucket), get(&self.survival, bucket + 1));
        // What lies behind, and the trapezoid from here to the next place.
        let here = a + (b - a) * share;
        get(&self.tail, bucket + 1) + (1.0 - share) * width * (here + b) / 2.0
    }

    fn extremal_index(&self, x: f64) -> f64 {
        let (bucket, share) = self.at(x.max(0.0));
        let (a, b) = (get(&self.extremal, bucket), get(&self.extremal, bucket + 1));
        a + (b - a) * share
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_eight_to_the_octave() {
        for lateness in (0..5000).chain([1 << 20, (1 << 39) + 12345]) {
            let bucket = bucket_of(lateness);
            let start = bucket_start(bucket);
            assert!(start <= lateness && lateness < bucket_start(bucket + 1));
            assert!(lateness - start <= lateness / 8, "{lateness}: {start}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    /// Every third event of a stream with an interval of 1 ms comes `late` places late.
    fn arrivals(count: i64, late: i64) -> Vec<i64> {
        let mut all: Vec<(i64, i64)> = (0..count)
            .map(|i| (if i % 3 == 0 { i + late } else { i }, i * 1_000_000))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, time)| time).collect()
    }

    #[test]
    fn lateness_is_the_number_of_arrivals_since() {
        for late in [5, 40, 300, 4000] {
            let mut seen = Lateness::new(64);
            let mut tracker = Tracker::new();
            for chunk in arrivals(30_000, late).chunks(7) {
                tracker.observe(chunk, &mut seen);
            }
            let share = seen.late_events() / seen.events();
            assert!((share - 1.0 / 3.0).abs() < 0.08, "{late}: {share}");
            let law = seen.law().unwrap();
            let (below, above) = (late as f64 * 0.7 - 2.0, late as f64 * 1.3 + 2.0);
            assert!((law.survival(below) - share).abs() < 0.03, "{late}");
            assert!(law.survival(above) < 0.03, "{late}");
            assert!(
                (law.tail(0.0) - share * late as f64).abs() < 0.15 * late as f64 + 1.0,
                "{late}"
            );
        }
    }

    #[test]
    fn stretches_of_late_events_count_as_one_by_one() {
        let mut state = 3u64;
        let mut dice = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut together, mut apart) = (Lateness::new(64), Lateness::new(64));
        let (mut a, mut b) = (Tracker::new(), Tracker::new());
        // Blocks begin at the first call.
        a.observe(&[0], &mut together);
        b.observe(&[0], &mut apart);
        for _ in 0..600 {
            let begin = dice(200_000) as i64 - 20_000;
            let step = dice(4) as i64;
            let mut batch: Vec<i64> = (0..dice(700) as i64).map(|i| begin + i * step).collect();
            if dice(4) == 0 {
                let at = batch.len() / 2;
                batch.rotate_left(at);
            }
            a.observe(&batch, &mut together);
            for time in &batch {
                b.observe(&[*time], &mut apart);
            }
        }
        assert!(together.late_events() > 50_000.0);
        assert_eq!(together.late, apart.late);
        assert_eq!(together.deepest, apart.deepest);
        assert_eq!(together.events(), apart.events());
    }

    #[test]
    fn in_order_events_are_counted_and_nothing_else() {
        let mut seen = Lateness::new(64);
        let mut tracker = Tracker::new();
        let times: Vec<i64> = (0..100_000).map(|i| i * 3).collect();
        for chunk in times.chunks(1000) {
            tracker.observe(chunk, &mut seen);
        }
        assert_eq!(seen.events(), 100_000.0);
        assert_eq!(seen.late_events(), 0.0);
        assert_eq!(tracker.newest(), Some(99_999 * 3));
        assert!(tracker.borders.len() <= BORDERS_MAX);
        let law = seen.law().unwrap();
        assert_eq!((law.survival(0.0), law.tail(0.0)), (0.0, 0.0));
        assert_eq!(law.tail(-2.5), 2.5);
    }

    #[test]
    fn batches_have_a_small_extremal_index() {
        // Twenty events in a row are 1,000 places late; or the same number one by one.
        let batches: Vec<i64> = {
            let late = |i: i64| (i / 20) % 50 == 7;
            let mut all: Vec<(i64, i64)> = (0..400_000)
                .map(|i| (if late(i) { i + 1000 } else { i }, i))
                .collect();
            all.sort_unstable();
            all.into_iter().map(|(_, t)| t).collect()
        };
        let alone: Vec<i64> = {
            let mut all: Vec<(i64, i64)> = (0..400_000)
                .map(|i| (if i % 50 == 7 { i + 1000 } else { i }, i))
                .collect();
            all.sort_unstable();
            all.into_iter().map(|(_, t)| t).collect()
        };
        let index = |times: &[i64]| {
            let mut seen = Lateness::new(32);
            Tracker::new().observe(times, &mut seen);
            assert!((seen.late_events() / seen.events() - 0.02).abs() < 0.002);
            seen.law().unwrap().extremal_index(500.0)
        };
        let (batched, single) = (index(&batches), index(&alone));
        assert!(batched < 0.2 && single > 0.8, "{batched} {single}");
    }

    #[test]
    fn memory_of_a_tracker_is_bounded_and_extreme_times_do_no_harm() {
        let mut seen = Lateness::new(64);
        let mut tracker = Tracker::new();
        let mut state = 1u64;
        for i in 0..50_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(i);
            let time = match i % 5 {
                0 => i64::MIN + (state >> 3) as i64,
                1 => state as i64,
                _ => i as i64,
            };
            tracker.observe(&[time], &mut seen);
        }
        assert!(tracker.borders.len() <= BORDERS_MAX);
        assert!(seen.law().unwrap().tail(0.0).is_finite());
        assert!(seen.late_events() <= seen.events());
    }

    #[test]
    fn what_is_kept_comes_back() {
        let mut seen = Lateness::new(64);
        Tracker::new().observe(&arrivals(20_000, 300), &mut seen);
        seen.decay(0.5);
        let mut bytes = Vec::new();
        seen.encode(&mut bytes);
        let back = Lateness::decode(&mut Cursor::new(&bytes)).unwrap();
        assert_eq!(back, seen);
    }
}
