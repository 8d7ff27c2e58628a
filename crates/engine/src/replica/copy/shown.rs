//! Chooses the versions of partitions that a copy shows.
//!
//! A new version replaces the previous ones when all of its subscribed ranges are present, together
//! with all others that overlap the same span: the parts of a rewriting are shown at once. Until
//! then the previous versions stay, unless unknown deletes since may concern them. A partition in a
//! span where nothing was shown before is left out until then, as long as the tail of newest events
//! goes on from what is shown: what a copy shows does not go backwards.
//!
//! Invariants: the partitions shown of a shard are disjoint; every span that the state names is
//! shown in some version or left out, and no other span is shown. A partition that was shown once
//! is not left out later. Concurrency: pure.

use crate::common::ids::{ShardIndex, TableId};
use crate::replication::state::{State, StatePartition};
use headwater_types::{ClosedRange, Timestamp};

/// Previous and present partitions whose spans overlap, directly or through others.
#[derive(Default)]
struct OverlappingPartitions<'a> {
    before: Vec<&'a StatePartition>,
    now: Vec<&'a StatePartition>,
    last: Option<(TableId, ShardIndex, Timestamp)>,
}

impl<'a> OverlappingPartitions<'a> {
    /// True when a partition that begins no earlier than the group is disjoint from all of it.
    fn is_apart_from(&self, partition: &StatePartition) -> bool {
        let record = &partition.record;
        self.last.is_none_or(|(table, shard, last)| {
            (table, shard) != (record.table, record.shard) || last < record.span().first
        })
    }

    fn put(&mut self, partition: &'a StatePartition, is_now: bool) {
        let record = &partition.record;
        let last = record.span().last;
        let last = self.last.map_or(last, |(.., known)| last.max(known));
        self.last = Some((record.table, record.shard, last));
        match is_now {
            true => self.now.push(partition),
            false => self.before.push(partition),
        }
    }

    /// The partitions shown of the group.
    fn shown(&self, state: &State, known: &Known<'_>) -> &[&'a StatePartition] {
        // A version that the state names has no deleted rows, or its pending deletes are listed.
        let is_true = |p: &&StatePartition| {
            state.newest_delete(p.record.table) <= p.record.sequence
                || (known.deletes_known)(p)
                || state.partition(p.id).is_some_and(|now| now.is_same(p))
        };
        let may_stay = match self.before.is_empty() {
            true => self.now.iter().all(|p| (known.may_wait)(p)),
            false => self.before.iter().all(is_true),
        };
        let is_complete = self.now.iter().all(|p| (known.is_complete)(p));
        match may_stay && !is_complete {
            true => &self.before,
            false => &self.now,
        }
    }
}

/// Facts about partitions by which the versions shown are chosen.
pub(super) struct Known<'a> {
    /// All subscribed ranges of the partition are present.
    pub(super) is_complete: &'a dyn Fn(&StatePartition) -> bool,
    /// The deletes in the partition are known.
    pub(super) deletes_known: &'a dyn Fn(&StatePartition) -> bool,
    /// The partition may be left out where nothing was shown before: the newest events go on from
    /// what is shown.
    pub(super) may_wait: &'a dyn Fn(&StatePartition) -> bool,
}

/// A span of a table's shard.
pub(super) type ShardSpan = (TableId, ShardIndex, ClosedRange);

/// The partitions to show.
#[derive(Default)]
pub(super) struct NextShown {
    /// By id.
    pub(super) partitions: Vec<StatePartition>,
    /// Spans of partitions that the state names and that are left out.
    pub(super) left_out: Vec<ShardSpan>,
}

impl NextShown {
    fn put(&mut self, met: &OverlappingPartitions<'_>, state: &State, known: &Known<'_>) {
        let shown = met.shown(state, known);
        self.partitions.extend(shown.iter().copied().cloned());
        if shown.is_empty() {
            let records = met.now.iter().map(|p| &p.record);
            let spans = records.map(|record| (record.table, record.shard, record.span()));
            self.left_out.extend(spans);
        }
    }
}

/// The partitions shown of a state, where `before` was shown until now.
pub(super) fn next_shown(before: &[StatePartition], state: &State, known: &Known<'_>) -> NextShown {
    let mut all: Vec<(&StatePartition, bool)> = Vec::new();
    all.extend(before.iter().map(|p| (p, false)));
    all.extend(state.partitions.iter().map(|p| (p, true)));
    all.sort_by_key(|(p, _)| (p.record.table, p.record.shard, p.record.span().first));
    let mut next = NextShown::default();
    let mut meeting = OverlappingPartitions::default();
    for (partition, is_now) in all {
        if meeting.is_apart_from(partition) {
            next.put(&meeting, state, known);
            meeting = OverlappingPartitions::default();
        }
        meeting.put(partition, is_now);
    }
    next.put(&meeting, state, known);
    next.partitions.sort_by_key(|p| p.id);
    next
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::common::ids::{SegmentId, Sequence};
    use crate::metadata::tables::PartitionRecord;
    use headwater_types::Level;

    fn partition(id: u64, level: i32, bucket: i64, sequence: u64, end: u64) -> StatePartition {
        StatePartition {
            id: SegmentId(id),
            record: PartitionRecord {
                level: Level::clamped(level),
                bucket,
                committed_bytes: end,
                footer_offset: end - 20,
                footer_bytes: 20,
                sequence: Sequence(sequence),
                ..PartitionRecord::of_nothing()
            },
            footers: [(end - 20, 20)].into(),
            uppers: std::sync::Arc::default(),
        }
    }

    fn state(deleted: u64, partitions: &[StatePartition]) -> State {
        State {
            newest_deletes: vec![(TableId(0), Sequence(deleted))],
            partitions: partitions.to_vec(),
            ..crate::replication::state::tests::two().0
        }
    }

    fn ids(shown: &[StatePartition]) -> Vec<(u64, u64)> {
        let ids = shown.iter().map(|p| (p.id.0, p.record.committed_bytes));
        ids.collect()
    }

    /// The partitions shown where some are complete; whether deletes are known, and whether new
    /// partitions may wait.
    fn shown_of(
        before: &[StatePartition],
        state: &State,
        complete: &[u64],
        [deletes_known, may_wait]: [bool; 2],
    ) -> Vec<StatePartition> {
        let known = Known {
            is_complete: &|p| complete.contains(&p.id.0),
            deletes_known: &|_| deletes_known,
            may_wait: &|_| may_wait,
        };
        let next = next_shown(before, state, &known);
        let is_named = |p: &&StatePartition| next.partitions.iter().all(|shown| shown.id != p.id);
        let named = state.partitions.iter().filter(is_named).count();
        assert!(next.left_out.len() <= named);
        next.partitions
    }

    #[test]
    fn a_rewriting_is_shown_with_all_its_parts_at_once() {
        // Level 4 bucket 0 was split into two of level 3; bucket 1 has grown.
        let before = [partition(1, 4, 0, 50, 900), partition(2, 4, 1, 50, 400)];
        let now = [
            partition(2, 4, 1, 60, 700),
            partition(5, 3, 0, 50, 300),
            partition(6, 3, 1, 50, 300),
        ];
        let state = state(40, &now);
        let shown = |complete: &[u64]| ids(&shown_of(&before, &state, complete, [false, false]));
        assert_eq!(shown(&[]), [(1, 900), (2, 400)]);
        assert_eq!(shown(&[5]), [(1, 900), (2, 400)]);
        assert_eq!(shown(&[2]), [(1, 900), (2, 700)]);
        assert_eq!(shown(&[5, 6]), [(2, 400), (5, 300), (6, 300)]);
    }

    #[test]
    fn what_is_new_is_shown_at_once_and_what_is_gone_goes() {
        let before = [partition(1, 4, 0, 50, 900)];
        let now = [partition(3, 4, 7, 60, 200)];
        let shown = shown_of(&before, &state(0, &now), &[], [false, false]);
        assert_eq!(ids(&shown), [(3, 200)]);
    }

    #[test]
    fn what_is_new_waits_while_newest_events_go_on_and_never_goes_again() {
        let before = [partition(1, 4, 0, 50, 900)];
        let now = [
            partition(1, 4, 0, 50, 900),
            partition(3, 4, 7, 60, 200),
            partition(4, 4, 8, 60, 200),
        ];
        let state = state(0, &now);
        let shown = |before: &[StatePartition], complete: &[u64], may_wait: bool| {
            ids(&shown_of(before, &state, complete, [false, may_wait]))
        };
        assert_eq!(shown(&before, &[1], true), [(1, 900)]);
        assert_eq!(shown(&before, &[1, 4], true), [(1, 900), (4, 200)]);
        assert_eq!(shown(&before, &[1], false), [(1, 900), (3, 200), (4, 200)]);
        assert_eq!(shown(&now, &[1], true), [(1, 900), (3, 200), (4, 200)]);
    }

    #[test]
    fn what_may_hold_deleted_rows_does_not_stay() {
        let before = [partition(1, 4, 0, 50, 900), partition(2, 4, 1, 70, 400)];
        let now = [partition(8, 4, 0, 61, 800), partition(9, 4, 1, 70, 300)];
        let shown = shown_of(&before, &state(61, &now), &[], [false, false]);
        assert_eq!(ids(&shown), [(2, 400), (8, 800)]);
        // The new version counts where the deletes are known.
        let shown = shown_of(&before, &state(61, &now), &[], [true, false]);
        assert_eq!(ids(&shown), [(1, 900), (2, 400)]);
        // The version that the state itself names stays: pending deletes are listed.
        let shown = shown_of(&before, &state(99, &before), &[], [false, false]);
        assert_eq!(ids(&shown), [(1, 900), (2, 400)]);
    }
}
