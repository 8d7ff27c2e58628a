//! The partitions of a shard, and the span of a new one.
//!
//! Invariants: spans of one table's partitions in a shard are dyadic and disjoint (any two dyadic
//! spans are disjoint, or one contains the other); their shown stretches, in a copy, are disjoint;
//! the lists are sorted by span.

use crate::common::ids::{NumberMap, SegmentId, StreamId, TableId};
use crate::storage::segment::{Partition, ShownStretch, Store};
use crate::{ErrorKind, Result};
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Level, Timestamp};
use std::sync::Arc;

/// The largest useful level: bucket -1 and bucket 0 contain all instants.
const LEVEL_MAX: i32 = 34;
/// Minimum number of events in a span from which a rate is computed.
const DENSE_EVENTS: usize = 256;
/// Minimum number of instants of these events: many devices that report at the same time look
/// infinitely dense.
const DENSE_INSTANTS: usize = 8;

/// The partitions of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionSet {
    tables: NumberMap<TableId, Vec<Arc<Partition>>>,
    /// Number of unreadable partitions.
    unreadable: usize,
}

impl PartitionSet {
    /// Partitions of a table, by span.
    pub(crate) fn of(&self, table: TableId) -> &[Arc<Partition>] {
        self.tables.get(&table).map_or(&[], Vec::as_slice)
    }

    /// Partitions of a table that share an instant with `range`, by span.
    pub(crate) fn overlapping(
        &self,
        table: TableId,
        range: &ClosedRange,
    ) -> impl Iterator<Item = &Arc<Partition>> {
        let range = *range;
        self.of(table)
            .iter()
            .filter(move |p| p.span().overlaps(&range))
    }

    /// The partition that owns an instant.
    pub(crate) fn owner(&self, table: TableId, time: Timestamp) -> Option<&Arc<Partition>> {
        let list = self.of(table);
        let at = list.partition_point(|p| p.span().last < time);
        list.get(at).filter(|p| p.span().contains(time))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.tables.values().flatten()
    }

    /// Inserts a partition, replacing an older version of the same segment.
    pub(crate) fn put(&mut self, partition: Arc<Partition>) {
        self.remove(partition.record.table, partition.id());
        self.put_beside(partition);
    }

    /// Replaces a partition by shown stretches of it.
    pub(crate) fn put_pieces(&mut self, partition: &Partition, pieces: Vec<ShownStretch>) {
        self.remove(partition.record.table, partition.id());
        for piece in pieces {
            self.put_beside(Arc::new(partition.showing(piece)));
        }
    }

    fn put_beside(&mut self, partition: Arc<Partition>) {
        self.unreadable += usize::from(partition.unreadable.is_some());
        let list = self.tables.entry(partition.record.table).or_default();
        let first = partition.span().first;
        let at = list.partition_point(|p| p.span().first < first);
        list.insert(at, partition);
    }

    pub(crate) fn remove(&mut self, table: TableId, id: SegmentId) {
        if let Some(list) = self.tables.get_mut(&table) {
            let unreadable = &mut self.unreadable;
            list.retain(|p| {
                let stays = p.id() != id;
                *unreadable -= usize::from(!stays && p.unreadable.is_some());
                stays
            });
        }
    }

    /// The number of partitions that cannot be read.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Spans of unreadable partitions of a table, by time.
    pub(crate) fn unreadable_spans(&self, table: TableId) -> Vec<ClosedRange> {
        if self.unreadable == 0 {
            return Vec::new();
        }
        let all = self.of(table).iter();
        all.filter(|p| p.unreadable.is_some())
            .map(|p| p.span())
            .collect()
    }
}

/// A possible span of a partition: bucket `bucket` of `level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) level: Level,
    pub(crate) bucket: i64,
}

impl Span {
    pub(crate) fn range(&self) -> ClosedRange {
        self.level.bucket_span(self.bucket)
    }

    fn at(level: i32, time: i64) -> Span {
        let level = Level::clamped(level);
        Span {
            level,
            bucket: level.bucket_of(Timestamp::from_nanos(time)),
        }
    }

    /// The two halves; `None` at the finest level.
    pub(crate) fn halves(&self) -> Option<[Span; 2]> {
        let level = Level::new(self.level.get() - 1)?;
        let bucket = self.bucket.checked_mul(2)?;
        Some([
            Span { level, bucket },
            Span {
                level,
                bucket: bucket + 1,
            },
        ])
    }
}

/// The span of a new partition for the middle element of `times` (sorted, none owned by a
/// partition).
///
/// The widest dyadic span that overlaps no other and is expected to have at most `target_bytes`
/// when it closes, with the rate of events in the middle half of its times, so that a few stray
/// times have no effect. At most as wide as `level_max`.
pub(crate) fn choose_span(
    times: &[i64],
    taken: &[ClosedRange],
    bytes_per_event: f64,
    target_bytes: u64,
    level_max: Option<i32>,
) -> Span {
    let middle = times.get(times.len() / 2).copied().unwrap_or(0);
    let mut chosen = Span::at(-20, middle);
    for level in (-20..=level_max.map_or(LEVEL_MAX, |m| m.min(LEVEL_MAX))).rev() {
        let span = Span::at(level, middle);
        let range = span.range();
        if taken.iter().any(|t| t.overlaps(&range)) {
            continue;
        }
        let from = times.partition_point(|t| *t < range.first.as_nanos());
        let to = times.partition_point(|t| *t <= range.last.as_nanos());
        let inside = part_of(times, from..to, "times in a span");
        let now = inside.len() as f64 * bytes_per_event;
        let expected = if inside.len() < DENSE_EVENTS || !has_instants(inside, DENSE_INSTANTS) {
            now
        } else {
            let quarter = |q: usize| inside.get(inside.len() * q / 4).copied().unwrap_or(middle);
            let half_of_events = (i128::from(quarter(3)) - i128::from(quarter(1))).max(1) as f64;
            let width =
                (i128::from(range.last.as_nanos()) - i128::from(range.first.as_nanos()) + 1) as f64;
            now.max(now * width / (2.0 * half_of_events))
        };
        chosen = span;
        if expected <= target_bytes as f64 {
            break;
        }
    }
    chosen
}

/// True when sorted times have at least this many distinct instants.
fn has_instants(times: &[i64], count: usize) -> bool {
    let mut rest = times;
    (0..count).all(|_| {
        let Some(first) = rest.first() else {
            return false;
        };
        let next = rest.partition_point(|t| t <= first);
        rest = part_of(rest, next.., "times behind an instant");
        true
    })
}

/// The newest time of a stream in main runs that can be read.
pub(crate) fn stored_watermark(
    store: &Store,
    partitions: &PartitionSet,
    stream: StreamId,
    table: TableId,
) -> Result<Option<Timestamp>> {
    for partition in partitions.of(table).iter().rev() {
        let segment = store.state(partition);
        let held = match segment.and_then(|segment| store.stream_contents(&segment, stream)) {
            // An unreadable partition accepts no events before it has been repaired; then the
            // watermark is computed again.
            Err(error) if error.kind() == ErrorKind::Corrupt => continue,
            held => held?,
        };
        if let Some(watermark) = held.and_then(|s| s.watermark()) {
            return Ok(Some(watermark));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000_000;

    #[test]
    fn a_dense_stretch_gets_a_span_by_its_rate() {
        let times: Vec<i64> = (0..10_000)
            .map(|i| 19_000 * DAY + i * 1_000_000_000)
            .collect();
        // 10 bytes a second: 128 MiB take 155 days; the widest span below that is 2^23 s = 97 days.
        let span = choose_span(&times, &[], 10.0, 128 << 20, None);
        assert_eq!(span.level.get(), 23);
        // A few stray times change nothing.
        let mut stray = vec![i64::MIN, -5, 0];
        stray.extend(&times);
        stray.push(i64::MAX);
        assert_eq!(choose_span(&stray, &[], 10.0, 128 << 20, None), span);
    }

    #[test]
    fn few_events_get_the_widest_span_that_is_free() {
        assert_eq!(
            choose_span(&[5 * DAY], &[], 10.0, 1 << 20, None)
                .level
                .get(),
            34
        );
        let other = Span::at(20, 0).range();
        let span = choose_span(&[1 << 60], &[other], 10.0, 1 << 20, None);
        assert!(
            !span.range().overlaps(&other) && span.range().contains(Timestamp::from_nanos(1 << 60))
        );
    }

    #[test]
    fn devices_that_report_at_one_instant_do_not_look_dense() {
        // Many streams have one event each in memory, at the same second: that is not a rate of
        // gigabytes per second.
        let times = vec![19_000 * DAY; 50_000];
        assert_eq!(
            choose_span(&times, &[], 24.0, 128 << 20, None).level.get(),
            34
        );
        // With some seconds of them the rate is known: 1.2 MB/s take 107 s for 128 MiB.
        let times: Vec<i64> = (0..500_000)
            .map(|i| 19_000 * DAY + i / 50_000 * 1_000_000_000)
            .collect();
        assert_eq!(
            choose_span(&times, &[], 24.0, 128 << 20, None).level.get(),
            6
        );
    }

    #[test]
    fn a_largest_level_is_kept_to() {
        assert_eq!(
            choose_span(&[5 * DAY], &[], 10.0, 1 << 20, Some(17))
                .level
                .get(),
            17
        );
    }

    #[test]
    fn without_a_target_there_is_one_partition() {
        let times: Vec<i64> = (0..100_000).map(|i| i * 1_000).collect();
        assert_eq!(
            choose_span(&times, &[], 100.0, u64::MAX, None).level.get(),
            34
        );
    }
}
