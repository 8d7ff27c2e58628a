//! Spans: stretches of a stream of which more is present than is subscribed, since it was
//! prefetched, pinned, or fetched for a reader; and, of a copy that is still growing, what is
//! present of the subscribed rows: buckets come before rows, and rows not in the order of time.
//!
//! Invariants: data of a span was found to be present, by the reader's own rules. The number of
//! coverages for a stream is bounded, and so is the number of spans; what is not found for that
//! reason is requested from the edge as before. Concurrency: none. Failure: of a stream that cannot
//! be read no span is reported.

use headwater_engine::Snapshot;
use headwater_protocol::dispatch::{Reach, SPANS_MAX};
use headwater_types::{ClosedRange, Level, StreamName, TILE_BUCKETS, Timestamp};

/// Parts of a stream's time, at whose begins stretches are looked for.
const CELLS: i128 = 16;
/// Coverages that find the begin of a stretch between two cells.
const BISECTIONS: usize = 7;
/// Levels below the subscribed one that are examined.
const LEVELS: i32 = 8;
/// Most coverages for a stream.
const COVERAGES_MAX: usize = 160;

/// A stretch, and the level from which on its tiles are present.
pub type Stretch = (Reach, ClosedRange);

/// A stream that is examined.
struct Examined<'a> {
    /// Instant up to which all data of a level is present, from the begin of a range on.
    until: &'a dyn Fn(ClosedRange, Level) -> Option<Timestamp>,
    range: ClosedRange,
    left: usize,
}

impl Examined<'_> {
    /// Last instant of the present data at the begin of a range; `None` if there is none.
    fn until(&mut self, range: ClosedRange, level: Level) -> Option<Timestamp> {
        self.left = self.left.saturating_sub(1);
        let until = (self.until)(range, level)?.min(range.last);
        (until >= range.first).then_some(until)
    }

    /// The first begin of a cell after an instant.
    fn next_cell(&self, after: Timestamp) -> Option<Timestamp> {
        let first = i128::from(self.range.first.as_nanos());
        let width = (i128::from(self.range.last.as_nanos()) - first) / CELLS + 1;
        let passed = (i128::from(after.as_nanos()) - first) / width;
        let next = i64::try_from(first + (passed + 1) * width).ok()?;
        Some(Timestamp::from_nanos(next)).filter(|next| *next <= self.range.last)
    }

    /// Begin of a stretch that is present from `to` on, and not at `from`.
    fn begin(&mut self, from: Timestamp, to: Timestamp, level: Level) -> Timestamp {
        let (mut missing, mut present) = (from.as_nanos(), to.as_nanos());
        for _ in 0..BISECTIONS {
            let middle = missing.midpoint(present);
            let range = ClosedRange::nanos(middle, present);
            if middle <= missing || self.left == 0 {
                break;
            }
            match self.until(range, level) == Some(range.last) {
                true => present = middle,
                false => missing = middle,
            }
        }
        Timestamp::from_nanos(present)
    }

    /// Stretches of which all tiles from a level on are present.
    fn stretches(&mut self, level: Level) -> Vec<ClosedRange> {
        let last = self.range.last;
        let mut found: Vec<ClosedRange> = Vec::new();
        let mut at = Some(self.range.first);
        // The newest instant that is known to be missing before `at`.
        let mut missing = None;
        while let Some(begin) = at.filter(|_| self.left > 0 && found.len() < SPANS_MAX) {
            let Some(until) = self.until(ClosedRange { first: begin, last }, level) else {
                missing = Some(begin);
                at = self.next_cell(begin);
                continue;
            };
            let first = missing.map_or(begin, |missing| self.begin(missing, begin, level));
            found.push(ClosedRange { first, last: until });
            missing = until.next();
            at = self.next_cell(until);
        }
        found
    }
}

/// Spans of a stream with this reach, and the number of coverages that it took. A copy that is
/// current has everything after its newest row.
#[must_use]
pub fn spans(
    snapshot: &Snapshot,
    stream: &StreamName,
    (below, is_current): (Reach, bool),
) -> (Vec<Stretch>, usize) {
    let info = snapshot.stream_info(stream).ok();
    let ends = info.and_then(|info| info.first.zip(info.last));
    let has_all = below == Reach::Rows && is_current;
    let Some((first, last)) = ends.filter(|_| !has_all) else {
        return (Vec::new(), 0);
    };
    let until = |range: ClosedRange, level: Level| {
        let parts = snapshot.coverage(stream, range, Some(level)).ok()?;
        let ends = parts
            .iter()
            .map(|part| match part.is_here && !part.is_older {
                true => Some(range.last),
                false => part.until,
            });
        ends.min().flatten()
    };
    let range = ClosedRange { first, last };
    let (mut spans, used) = examine(&until, range, below);
    for (_, span) in &mut spans {
        // Before the first row there is nothing, and after the last of a current copy neither.
        if span.first == first {
            span.first = Timestamp::MIN;
        }
        if span.last == last && is_current {
            span.last = Timestamp::MAX;
        }
    }
    (spans, used)
}

/// The finest level at which a range is within two tiles.
fn overview(range: ClosedRange) -> Level {
    let width = |level: Level| level.bucket_start_wide(TILE_BUCKETS);
    let length = i128::from(range.last.as_nanos()) - i128::from(range.first.as_nanos());
    let mut levels = (Level::MIN.get()..Level::MAX.get()).map(Level::clamped);
    let found = levels.find(|level| width(*level) >= length);
    found.unwrap_or(Level::MAX)
}

fn examine(
    until: &dyn Fn(ClosedRange, Level) -> Option<Timestamp>,
    range: ClosedRange,
    below: Reach,
) -> (Vec<Stretch>, usize) {
    let mut examined = Examined {
        until,
        range,
        left: COVERAGES_MAX,
    };
    let rows = examined.stretches(Level::MIN);
    let mut spans: Vec<Stretch> = rows.iter().map(|range| (Reach::Rows, *range)).collect();
    let below = match below {
        Reach::Level(below) => Some(below),
        Reach::Rows => Some(overview(range)),
        Reach::None => None,
    };
    if let Some(below) = below {
        for level in (below.get().saturating_sub(LEVELS)..below.get()).rev() {
            let Some(level) = Level::new(level) else {
                break;
            };
            let found = examined.stretches(level);
            if found.is_empty() || found == rows {
                break;
            }
            spans.extend(found.into_iter().map(|range| (Reach::Level(level), range)));
        }
    }
    (spans, COVERAGES_MAX - examined.left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(range: ClosedRange) -> (i64, i64) {
        (range.first.as_nanos(), range.last.as_nanos())
    }

    /// Spans of a stream from 0 to 15,999, with these stretches present, from a level on.
    fn found(present: &[(i32, i64, i64)], below: Reach) -> (Vec<Stretch>, usize) {
        let until = |range: ClosedRange, level: Level| {
            let (first, _) = nanos(range);
            let here = |(from, begin, end): &(i32, i64, i64)| {
                (*from <= level.get() && (*begin..=*end).contains(&first)).then_some(*end)
            };
            let last = present.iter().filter_map(here).max();
            last.map(Timestamp::from_nanos)
        };
        examine(&until, ClosedRange::nanos(0, 15_999), below)
    }

    #[test]
    fn stretches_are_found_with_few_coverages_and_are_present() {
        let six = Reach::Level(Level::clamped(6));
        let rows = Level::MIN.get();
        let present = [(rows, 2_900, 5_100), (rows, 9_000, 9_000), (4, 100, 7_000)];
        let (spans, used) = found(&present, six);
        let of = |wanted: Reach| -> Vec<(i64, i64)> {
            let of = spans.iter().filter(|(reach, _)| *reach == wanted);
            of.map(|(_, range)| nanos(*range)).collect()
        };
        let fine = of(Reach::Rows);
        assert!(
            fine.iter()
                .all(|(first, last)| *first >= 2_900 && *last <= 5_100 || *first == 9_000),
            "{spans:?}"
        );
        let (first, last) = fine.first().copied().unwrap_or_default();
        assert!(first < 2_920 && last == 5_100, "{spans:?}");
        assert_eq!(of(Reach::Level(Level::clamped(5))).len(), 2, "{spans:?}");
        assert!(of(Reach::Level(Level::clamped(3))).is_empty());
        assert!(used < COVERAGES_MAX, "{used}");
        // Nothing is there: as many coverages as cells, for rows and one level.
        assert_eq!(found(&[], six), (Vec::new(), 32));
        // Everything is there.
        let all = ClosedRange::nanos(0, 15_999);
        assert_eq!(
            found(&[(rows, 0, 20_000)], six),
            (vec![(Reach::Rows, all)], 2)
        );
    }

    #[test]
    fn of_rows_that_still_arrive_stretches_and_fine_levels_are_found() {
        // A range of 16 µs is within two tiles at the finest level.
        assert_eq!(overview(ClosedRange::nanos(0, 15_999)), Level::MIN);
        let week = ClosedRange::nanos(0, 7 * 86_400 * 1_000_000_000);
        assert_eq!(overview(week).get(), 11);
        let seconds =
            |first: i64, last: i64| ClosedRange::nanos(first * 1_000_000_000, last * 1_000_000_000);
        // Buckets from level 6 on of all, rows of two days.
        let (all, rows) = (seconds(0, 604_800), seconds(172_800, 345_600));
        let until = |range: ClosedRange, level: Level| {
            let here = if level.get() >= 6 { all } else { rows };
            let is_inside = here.first <= range.first && range.first <= here.last;
            is_inside.then_some(here.last)
        };
        let (spans, used) = examine(&until, week, Reach::Rows);
        assert!(used < COVERAGES_MAX, "{used}");
        let levels: Vec<i32> = spans
            .iter()
            .filter_map(|(reach, range)| match reach {
                Reach::Level(level) if *range == all => Some(level.get()),
                _ => None,
            })
            .collect();
        assert_eq!(levels, [10, 9, 8, 7, 6], "{spans:?}");
        let fine: Vec<ClosedRange> = spans
            .iter()
            .filter_map(|(reach, range)| (*reach == Reach::Rows).then_some(*range))
            .collect();
        assert_eq!(fine.len(), 1, "{spans:?}");
        let one = fine.first().copied().unwrap_or(ClosedRange::EMPTY);
        assert!(rows.intersect(&one) == one && one.last == rows.last);
    }

    #[test]
    fn the_work_for_a_stream_is_bounded() {
        let rows = Level::MIN.get();
        let many: Vec<(i32, i64, i64)> = (0..800).map(|n| (rows, n * 20, n * 20 + 10)).collect();
        let (spans, used) = found(&many, Reach::Level(Level::clamped(6)));
        assert!(used <= COVERAGES_MAX, "{used}");
        assert!(!spans.is_empty());
    }
}
