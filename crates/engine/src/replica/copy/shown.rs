//! Chooses the versions of partitions that a copy shows.
//!
//! A new version replaces the previous ones when all of its subscribed ranges are present, together
//! with all others that overlap the same span: the parts of a rewriting are shown at once. Until
//! then the previous versions stay, unless unknown deletes since may concern them.
//!
//! Invariants: the partitions shown of a shard are disjoint; every span that the state names is
//! shown in some version, and no other span is shown. Concurrency: pure.

use crate::common::ids::{ShardIndex, TableId};
use crate::replication::state::{State, StatePartition};
use headwater_types::Timestamp;

/// Previous and present partitions whose spans overlap, directly or through others.
#[derive(Default)]
struct Meeting<'a> {
    before: Vec<&'a StatePartition>,
    now: Vec<&'a StatePartition>,
    last: Option<(TableId, ShardIndex, Timestamp)>,
}

impl<'a> Meeting<'a> {
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
    fn shown(
        &self,
        state: &State,
        is_complete: &dyn Fn(&StatePartition) -> bool,
        deletes_known: &dyn Fn(&StatePartition) -> bool,
    ) -> &[&'a StatePartition] {
        // A version that the state names has no deleted rows, or its pending deletes are listed.
        let is_true = |p: &&StatePartition| {
            state.newest_delete(p.record.table) <= p.record.sequence
                || deletes_known(p)
                || state.partition(p.id).is_some_and(|now| now.is_same(p))
        };
        let stays = !self.before.is_empty()
            && !self.now.is_empty()
            && self.before.iter().all(is_true)
            && !self.now.iter().all(|p| is_complete(p));
        match stays {
            true => &self.before,
            false => &self.now,
        }
    }
}

/// The partitions shown of a state, where `before` was shown until now. `deletes_known` is true for
/// partitions with known deletes.
pub(super) fn next_shown(
    before: &[StatePartition],
    state: &State,
    is_complete: &dyn Fn(&StatePartition) -> bool,
    deletes_known: &dyn Fn(&StatePartition) -> bool,
) -> Vec<StatePartition> {
    let mut all: Vec<(&StatePartition, bool)> = Vec::new();
    all.extend(before.iter().map(|p| (p, false)));
    all.extend(state.partitions.iter().map(|p| (p, true)));
    all.sort_by_key(|(p, _)| (p.record.table, p.record.shard, p.record.span().first));
    let mut shown: Vec<StatePartition> = Vec::new();
    let mut meeting = Meeting::default();
    for (partition, is_now) in all {
        if meeting.is_apart_from(partition) {
            let of_these = meeting.shown(state, is_complete, deletes_known);
            shown.extend(of_these.iter().copied().cloned());
            meeting = Meeting::default();
        }
        meeting.put(partition, is_now);
    }
    let of_these = meeting.shown(state, is_complete, deletes_known);
    shown.extend(of_these.iter().copied().cloned());
    shown.sort_by_key(|p| p.id);
    shown
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
        let shown = |complete: &[u64]| {
            let is_complete = |p: &StatePartition| complete.contains(&p.id.0);
            ids(&next_shown(&before, &state, &is_complete, &|_| false))
        };
        assert_eq!(shown(&[]), [(1, 900), (2, 400)]);
        assert_eq!(shown(&[5]), [(1, 900), (2, 400)]);
        assert_eq!(shown(&[2]), [(1, 900), (2, 700)]);
        assert_eq!(shown(&[5, 6]), [(2, 400), (5, 300), (6, 300)]);
    }

    #[test]
    fn what_is_new_is_shown_at_once_and_what_is_gone_goes() {
        let before = [partition(1, 4, 0, 50, 900)];
        let now = [partition(3, 4, 7, 60, 200)];
        let shown = next_shown(&before, &state(0, &now), &|_| false, &|_| false);
        assert_eq!(ids(&shown), [(3, 200)]);
    }

    #[test]
    fn what_may_hold_deleted_rows_does_not_stay() {
        let before = [partition(1, 4, 0, 50, 900), partition(2, 4, 1, 70, 400)];
        let now = [partition(8, 4, 0, 61, 800), partition(9, 4, 1, 70, 300)];
        let shown = next_shown(&before, &state(61, &now), &|_| false, &|_| false);
        assert_eq!(ids(&shown), [(2, 400), (8, 800)]);
        // The new version counts where the deletes are known.
        let shown = next_shown(&before, &state(61, &now), &|_| false, &|_| true);
        assert_eq!(ids(&shown), [(1, 900), (2, 400)]);
        // The version that the state itself names stays: pending deletes are listed.
        let shown = next_shown(&before, &state(99, &before), &|_| false, &|_| false);
        assert_eq!(ids(&shown), [(1, 900), (2, 400)]);
    }
}
