//! Decides which streams a job stores, and up to which time.
//!
//! Invariants: pure functions of their arguments; a cut never splits equal times.

use headwater_late::{LatePolicy, Split, flank_capacity};
use headwater_types::{ClosedRange, Timestamp};

/// Reason of a job; determines how many events it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    /// Memory is used up: whole leaves first, then the largest.
    Memory,
    /// The log is too long: streams with old events, whole.
    Log,
    /// Everything: the database is flushed or closed.
    All,
}

/// Which events of a shard a job takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffers {
    /// In-order events.
    Flank,
    /// Late events.
    Late,
    /// In-order and late events.
    Both,
}

/// View of a shard for the planner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardView {
    pub(crate) flank_events: usize,
    pub(crate) late_events: usize,
}

/// In exact engine mode: the buffers that are full, to be stored right after the insertion that
/// filled them. Memory has a fixed number of events.
pub(crate) fn full_buffers(
    memory_events: u32,
    policy: &LatePolicy,
    shard: ShardView,
) -> Option<Buffers> {
    let memory = memory_events as usize;
    match policy.split {
        Split::Conventional => {
            (shard.flank_events + shard.late_events >= memory).then_some(Buffers::Both)
        }
        Split::Separate { flank_share } => {
            let flank = flank_capacity(memory, flank_share);
            if shard.flank_events >= flank {
                Some(Buffers::Flank)
            } else if shard.late_events >= memory - flank {
                Some(Buffers::Late)
            } else {
                None
            }
        }
    }
}

/// In all other engine modes: the buffers to store when memory is used up.
pub(crate) fn buffers_to_store(policy: &LatePolicy, shard: ShardView) -> Buffers {
    match policy.split {
        Split::Conventional => Buffers::Both,
        Split::Separate { flank_share } => {
            let total = (shard.flank_events + shard.late_events).max(1) as f64;
            // The late buffer is merged when it has reached its share, otherwise it waits for more
            // events.
            if shard.late_events as f64 >= (1.0 - flank_share) * total {
                if shard.flank_events == 0 {
                    Buffers::Late
                } else {
                    Buffers::Both
                }
            } else {
                Buffers::Flank
            }
        }
    }
}

/// The last time a job takes of a stream's sorted times: all but the newest `retain`, in whole
/// leaves when `whole_leaves`.
pub(crate) fn cut(
    times: &[i64],
    retain: usize,
    leaf_events: usize,
    whole_leaves: bool,
) -> Option<Timestamp> {
    let mut count = times.len().saturating_sub(retain);
    if whole_leaves {
        count -= count % leaf_events.max(1);
    }
    if count == 0 {
        return None;
    }
    let splits =
        |count: usize| count > 0 && count < times.len() && times.get(count - 1) == times.get(count);
    let wished = count;
    while splits(count) {
        count -= 1;
    }
    if count == 0 {
        count = wished;
        while splits(count) {
            count += 1;
        }
    }
    times.get(count - 1).map(|t| Timestamp::from_nanos(*t))
}

/// The times a job takes of a stream.
pub(crate) fn take_range(
    buffers: Buffers,
    watermark: Option<Timestamp>,
    cut: Option<Timestamp>,
) -> ClosedRange {
    let above = |w: Option<Timestamp>| match w {
        Some(w) => w.next(),
        None => Some(Timestamp::MIN),
    };
    match buffers {
        Buffers::Late => {
            watermark.map_or(ClosedRange::EMPTY, |w| ClosedRange::new(Timestamp::MIN, w))
        }
        Buffers::Flank => match (above(watermark), cut) {
            (Some(first), Some(last)) if first <= last => ClosedRange::new(first, last),
            _ => ClosedRange::EMPTY,
        },
        Buffers::Both => match cut.max(watermark) {
            Some(last) => ClosedRange::new(Timestamp::MIN, last),
            None => ClosedRange::EMPTY,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_takes_whole_leaves_and_keeps_equal_times_together() {
        let times: Vec<i64> = (0..10).collect();
        let at = |ns| Some(Timestamp::from_nanos(ns));
        assert_eq!(cut(&times, 0, 4, true), at(7));
        assert_eq!(cut(&times, 0, 4, false), at(9));
        assert_eq!(cut(&times, 3, 4, false), at(6));
        assert_eq!(cut(&times, 0, 16, true), None);
        assert_eq!(cut(&[1, 2, 2, 2, 3], 2, 1, false), at(1));
        assert_eq!(cut(&[2, 2, 2, 3], 2, 1, false), at(2));
    }

    #[test]
    fn buffers_act_when_they_are_full() {
        let rule = 512;
        let view = |flank_events, late_events| ShardView {
            flank_events,
            late_events,
        };
        let separate = LatePolicy::separate(0.5);
        assert_eq!(full_buffers(rule, &separate, view(255, 255)), None);
        assert_eq!(
            full_buffers(rule, &separate, view(256, 0)),
            Some(Buffers::Flank)
        );
        assert_eq!(
            full_buffers(rule, &separate, view(10, 256)),
            Some(Buffers::Late)
        );
        assert_eq!(
            full_buffers(rule, &LatePolicy::conventional(), view(512, 0)),
            Some(Buffers::Both)
        );
    }
}
