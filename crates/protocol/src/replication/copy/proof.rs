//! Proves segments of a copy by the chains of hashes in its state, without reads at the source.
//!
//! Invariants: every byte of a proven segment was read from the copy's device. A segment is read in
//! parts, so a large one does not block other work. Failure: a segment that the copy cannot read is
//! not proven.

use crate::replication::message::Digest;
use headwater_engine::{ErrorKind, Proof, RemoteCopy, Result, State};
use std::collections::{BTreeMap, VecDeque};

/// Result of proving a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofOutcome {
    /// The segment matches its source: bytes, and the head of their chain.
    Proven(u64, Digest),
    /// The segment differs, or cannot be read.
    Disproved(u64, Digest),
}

/// Proves one segment after the other.
#[derive(Debug, Default)]
pub(crate) struct Prover {
    current: Option<Proof>,
    waiting: VecDeque<u64>,
    outcomes: BTreeMap<u64, ProofOutcome>,
}

impl Prover {
    /// Drops the results of all segments.
    pub(crate) fn reset(&mut self) {
        *self = Prover::default();
    }

    /// Drops the result of a changed segment.
    pub(crate) fn forget(&mut self, segment: u64) {
        self.outcomes.remove(&segment);
    }

    /// Result for a segment, in the version that a state names.
    pub(crate) fn outcome(&self, state: &State, segment: u64) -> Option<ProofOutcome> {
        let ledger = state.ledger(segment)?;
        let found = self.outcomes.get(&segment).copied();
        found.filter(|found| match found {
            ProofOutcome::Proven(bytes, head) | ProofOutcome::Disproved(bytes, head) => {
                (*bytes, *head) == (ledger.bytes, ledger.head)
            }
        })
    }

    /// Queues complete segments with known hashes and without a result.
    fn look(&mut self, copy: &RemoteCopy, state: &State) {
        let known: Vec<u64> = state.segments().map(|s| s.id).collect();
        self.outcomes
            .retain(|id, _| known.binary_search(id).is_ok());
        let unproven = known.into_iter().filter(|id| {
            let is_known = state.ledger(*id).is_some();
            is_known && self.outcome(state, *id).is_none() && copy.is_complete(*id)
        });
        self.waiting = unproven.collect();
    }

    /// Reads about `bytes_max` bytes; false if there is no segment left to prove.
    pub(crate) fn work(&mut self, copy: &RemoteCopy, bytes_max: u64) -> Result<bool> {
        let state = copy.state();
        // A proof of an older version is started again.
        let is_current = |proof: &Proof| {
            let ledger = proof.ledger();
            state.ledger(ledger.segment).as_ref() == Some(ledger)
        };
        self.current = self.current.take().filter(is_current);
        if self.current.is_none() && self.waiting.is_empty() {
            self.look(copy, &state);
        }
        let mut left = bytes_max.max(1);
        while left > 0 {
            let Some(mut proof) = self.current.take().or_else(|| {
                let next = self.waiting.pop_front();
                next.and_then(|segment| state.proof(segment))
            }) else {
                return Ok(!self.waiting.is_empty());
            };
            let (segment, bytes, head) = {
                let ledger = proof.ledger();
                (ledger.segment, ledger.bytes, ledger.head)
            };
            let Some((offset, length)) = proof.next_range() else {
                let found = match proof.is_equal() {
                    true => ProofOutcome::Proven(bytes, head),
                    false => ProofOutcome::Disproved(bytes, head),
                };
                self.outcomes.insert(segment, found);
                continue;
            };
            match copy.read(segment, offset, length) {
                Ok(read) => proof.take(&read),
                // The segment was dropped, or replaced, meanwhile.
                Err(error) if error.kind() == ErrorKind::Elsewhere => continue,
                Err(_) => {
                    self.outcomes
                        .insert(segment, ProofOutcome::Disproved(bytes, head));
                    continue;
                }
            }
            left = left.saturating_sub(u64::from(length));
            self.current = Some(proof);
        }
        Ok(true)
    }
}
