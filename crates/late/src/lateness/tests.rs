//! Lateness of streams that arrive in order, a little late, in batches, and of any shape.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::law::DelayLaw;

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

/// Every third event of a stream with an interval of 1 ms arrives `late` positions late.
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
    assert!(tracker.borders() <= tracker::BORDERS_MAX);
    let law = seen.law().unwrap();
    assert_eq!((law.survival(0.0), law.tail(0.0)), (0.0, 0.0));
    assert_eq!(law.tail(-2.5), 2.5);
}

#[test]
fn batches_have_a_small_extremal_index() {
    // Twenty events in a row are 1,000 positions late; or the same number one by one.
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
    assert!(tracker.borders() <= tracker::BORDERS_MAX);
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

/// The definition, event by event: borders at every sixteenth newest arrival, lateness interpolated
/// between them.
struct Plain {
    borders: Vec<(i64, u64)>,
    newest: i64,
    arrivals: u64,
}

impl Plain {
    fn lateness(&mut self, time: i64) -> Option<u64> {
        self.arrivals += 1;
        if self.arrivals > 1 && time <= self.newest {
            let Some(at) = self.borders.iter().rposition(|b| b.0 <= time) else {
                // Before the oldest border, events are assumed to have arrived at the same rate as
                // since.
                let (from, count) = self.borders[0];
                let counted = (self.arrivals - count) as f64;
                let interval = (self.newest - from) as f64;
                let more = (from - time) as f64 / interval * counted;
                return Some(((counted + more) as u64).max(1));
            };
            let (from, count) = self.borders[at];
            let next = (self.newest, self.arrivals);
            let (to, upto) = self.borders.get(at + 1).copied().unwrap_or(next);
            let share = if to > from {
                (time - from) as f64 / (to - from) as f64
            } else {
                1.0
            };
            let passed = count as f64 + share * (upto - count) as f64;
            return Some(((self.arrivals as f64 - passed + 0.5) as u64).max(1));
        }
        self.newest = time;
        if self
            .borders
            .last()
            .is_none_or(|b| self.arrivals >= b.1 + 16)
        {
            if self.borders.len() >= tracker::BORDERS_MAX {
                let half = tracker::BORDERS_MAX / 2;
                let old: Vec<_> = self.borders.drain(..half).collect();
                let kept: Vec<_> = old.into_iter().skip(1).step_by(2).collect();
                self.borders.splice(..0, kept);
            }
            self.borders.push((time, self.arrivals));
        }
        None
    }
}

#[test]
fn the_tracker_counts_what_the_definition_says() {
    let mut state = 11u64;
    let mut dice = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    // Delays of many sizes, stretches in order, and stretches that ascend but are late.
    let mut times: Vec<i64> = vec![0];
    let mut now = 1_000_000i64;
    while times.len() < 60_000 {
        match dice(8) {
            0 => (0..dice(90)).for_each(|_| {
                now += 1 + dice(20) as i64;
                times.push(now);
            }),
            1 => {
                let begin = dice(now as u64) as i64;
                times.extend((0..dice(60) as i64).map(|i| begin + i * 3));
            }
            _ => (0..dice(90)).for_each(|_| {
                now += 7;
                let depth = 1 << dice(20);
                times.push(now - dice(depth) as i64);
            }),
        }
    }
    let mut plain = Plain {
        borders: Vec::new(),
        newest: i64::MIN,
        arrivals: 0,
    };
    let mut expected = Histogram::default();
    let mut tracker = Tracker::new();
    let mut seen = Lateness::new(64);
    let mut rest: &[i64] = &times;
    while !rest.is_empty() {
        let (part, others) = rest.split_at((dice(900) as usize + 1).min(rest.len()));
        tracker.observe(part, &mut seen);
        for time in part {
            if let Some(lateness) = plain.lateness(*time) {
                expected.add(lateness, 1);
            }
        }
        rest = others;
    }
    assert_eq!(tracker.newest(), Some(plain.newest));
    assert_eq!(tracker.borders(), plain.borders.len());
    assert_eq!(tracker.arrivals(), times.len() as u64);
    assert!(seen.late_events() > 20_000.0);
    assert_eq!(seen.late, expected);
}

#[test]
fn the_law_says_what_the_histogram_holds() {
    let mut seen = Lateness::new(64);
    Tracker::new().observe(&arrivals(40_000, 700), &mut seen);
    let law = seen.law().unwrap();
    // At the first lateness of a bucket: all events that are at least as late, as a share of all
    // events.
    for (lateness, _) in seen.histogram().buckets() {
        let above: f64 = (seen.histogram().buckets())
            .filter(|(other, _)| *other >= lateness)
            .map(|(_, count)| count)
            .sum();
        let place = if lateness == 0 {
            0.0
        } else {
            lateness as f64 - 0.5
        };
        let found = law.survival(place);
        assert!(
            (found - above / seen.events()).abs() < 1e-12,
            "{lateness}: {found}"
        );
    }
    // The tail is the integral of the survival, which decreases.
    let mut x = 0.0;
    while x < 5_000.0 {
        let step = 0.25;
        let middle = law.survival(x + step / 2.0);
        let fallen = law.tail(x) - law.tail(x + step);
        assert!(
            (fallen - middle * step).abs() < 1e-4 * (middle * step) + 1e-9,
            "{x}"
        );
        assert!(law.survival(x) >= law.survival(x + step) && (0.0..=1.0).contains(&middle));
        assert!((0.01..=1.0).contains(&law.extremal_index(x)));
        x += step;
    }
    assert_eq!(
        (law.survival(-1.0), law.tail(-3.0)),
        (1.0, law.tail(0.0) + 3.0)
    );
    for far in [1e9, 1e15, 1e300, f64::INFINITY] {
        assert_eq!((law.survival(far), law.tail(far)), (0.0, 0.0));
    }
}
