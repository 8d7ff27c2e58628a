//! The tail of a copy after the partitions shown.
//!
//! Invariants: the tail is one stretch without gaps except the reported ones; its memory is
//! limited; definitions that its records need are in the state or in it, and so is every delete
//! known to the state, otherwise it is not shown. Events that all partitions shown cover are
//! dropped. Concurrency: plain data, under the lock of the copy. Failure: a tail that does not
//! continue the known one replaces it, or is left out.

use super::{Tail, TailPoint, TailRecord};
use crate::common::ids::Sequence;
use crate::replication::state::State;
use std::collections::VecDeque;

/// Limit of the memory of a tail, in bytes. Beyond it the oldest events are dropped.
const BYTES_MAX: usize = 4 << 20;

/// The tail of a copy.
#[derive(Debug, Default)]
pub(crate) struct ReceivedTail {
    after: Sequence,
    point: Option<TailPoint>,
    /// Events up to here may be missing from the tail.
    missing_to: Sequence,
    records: VecDeque<TailRecord>,
    bytes: usize,
    /// States from this number on contain every event up to this sequence.
    covered: (u64, Sequence),
    /// All partitions shown have together covered every event up to here.
    shown: Option<Sequence>,
    is_newest: bool,
    /// The newest delete in the state.
    deleted: Sequence,
}

/// The newest delete in a state.
fn newest_delete(state: &State) -> Sequence {
    let deletes = state.newest_deletes.iter().map(|(_, sequence)| *sequence);
    deletes.max().unwrap_or(Sequence(0))
}

impl ReceivedTail {
    /// The point up to which the tail is known, to continue from there.
    pub(crate) fn point(&self) -> Option<TailPoint> {
        self.point
    }

    /// The newest record that it covers.
    pub(crate) fn until(&self) -> Sequence {
        self.point
            .map_or(Sequence(0), |point| Sequence(point.until))
    }

    /// True when no record is missing between the partitions shown and the newest record of the
    /// source, as far as reported.
    pub(crate) fn is_complete(&self) -> bool {
        let is_whole = self.shown.is_some_and(|shown| self.missing_to <= shown);
        self.is_newest && is_whole && !self.is_behind()
    }

    /// True when the partitions shown and the tail have every event up to the end of the tail, and
    /// what it shows is shown at this state, too.
    pub(crate) fn goes_on(&self, state: &State) -> bool {
        let is_whole = self.shown.is_some_and(|shown| self.missing_to <= shown);
        let is_defined = self.after.0 <= state.name().sequence;
        let is_behind = self.until() < newest_delete(state);
        self.point.is_some() && is_whole && is_defined && !is_behind
    }

    /// True when there is a delete after the known records: which events before it were deleted is
    /// unknown.
    fn is_behind(&self) -> bool {
        self.until() < self.deleted
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records to replay after the contents of the state, by sequence.
    pub(crate) fn records(&self, state: &State) -> Vec<TailRecord> {
        // Definitions or deletes that are still missing must be applied first.
        let is_ready = self.after.0 <= state.name().sequence && !self.is_behind();
        match is_ready {
            true => self.records.iter().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// Adds a stretch. False, without a change, when the stretch is of another history than the
    /// state.
    pub(crate) fn take(&mut self, tail: Tail, state: &State) -> bool {
        let name = state.name();
        if tail.history != (name.identity, name.incarnation) {
            return false;
        }
        if self.point.map(|point| point.until) != Some(tail.after.0) {
            *self = ReceivedTail {
                after: tail.after,
                missing_to: tail.after,
                ..self.empty()
            };
        }
        let last = tail.records.last().map(TailRecord::mark);
        self.point = Some(TailPoint {
            until: tail.until.0,
            last: last.or(self.point.and_then(|point| point.last)),
        });
        if let Some(skipped) = tail.skipped {
            self.missing_to = self.missing_to.max(skipped);
        }
        self.covered = (tail.number, tail.floor);
        self.is_newest = tail.is_newest;
        self.bytes += tail.records.iter().map(TailRecord::bytes).sum::<usize>();
        self.records.extend(tail.records);
        if self.bytes > BYTES_MAX {
            self.let_go(BYTES_MAX / 2);
        }
        true
    }

    /// Drops the oldest events until at most `bytes_max` bytes are left.
    fn let_go(&mut self, bytes_max: usize) {
        let mut kept = VecDeque::new();
        for record in std::mem::take(&mut self.records) {
            if self.bytes > bytes_max && record.has_events() {
                self.bytes -= record.bytes();
                self.missing_to = self.missing_to.max(record.sequence);
            } else {
                kept.push_back(record);
            }
        }
        self.records = kept;
        if self.bytes > BYTES_MAX {
            // Nothing but definitions: the next state has them.
            self.drop_all();
        }
    }

    /// Drops the records covered by the state and by its shown partitions; `shows_all` = all of
    /// them are shown.
    pub(crate) fn keep(&mut self, state: &State, shows_all: bool) {
        self.deleted = newest_delete(state);
        let (number, floor) = self.covered;
        if !shows_all || state.name().number < number || self.point.is_none() {
            return;
        }
        self.shown = self.shown.max(Some(floor));
        let defined = Sequence(state.name().sequence);
        let is_needed = |record: &TailRecord| match record.has_events() {
            true => record.sequence > floor,
            false => record.sequence > floor || record.sequence > defined,
        };
        self.records.retain(is_needed);
        self.bytes = self.records.iter().map(TailRecord::bytes).sum();
    }

    /// Drops everything.
    pub(crate) fn drop_all(&mut self) {
        *self = self.empty();
    }

    /// An empty tail, with the same knowledge of the state and of the partitions shown.
    fn empty(&self) -> ReceivedTail {
        ReceivedTail {
            shown: self.shown,
            deleted: self.deleted,
            ..ReceivedTail::default()
        }
    }
}
