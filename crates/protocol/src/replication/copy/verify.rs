//! Compares the present ranges of a copy with its source, both read from their devices, and proves
//! segments by the ledger, for which the source reads no data.
//!
//! Invariants: a comparison is complete when every present byte was compared in the state that the
//! copy has, and every segment was proven that can be.

use crate::replication::copy::proof::{ProofOutcome, Prover};
use crate::replication::copy::request_order::fill::split;
use crate::replication::digest::{MISSING_DIGEST, digest};
use crate::replication::message::{Digest, SegmentRange};
use headwater_engine::{ErrorKind, RemoteCopy, Result, State, StateName};
use std::collections::BTreeMap;

/// Bytes of segments that are read at once, to prove them.
const PROVE_BYTES: u64 = 1 << 20;

/// Result of a comparison with the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Bytes that are the same on both devices.
    pub equal: u64,
    /// Bytes of ranges that differ, or cannot be read on one side.
    pub different: u64,
    /// Subscribed bytes that are missing, and present bytes that are not proven and could not be
    /// compared, since they are missing at a source that passes on its ranges.
    pub missing: u64,
}

/// Stats of proving segments by the chains of hashes that the state names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvenStats {
    /// Segments proven to match the content written at the source, and their bytes.
    pub proven: Vec<u64>,
    /// Bytes of them.
    pub proven_bytes: u64,
    /// Segments with other content, or unreadable ones.
    pub disproved: Vec<u64>,
    /// Segments that are incomplete here, or without known hashes: comparison is the only check.
    pub unproven: u64,
}

/// A comparison in progress.
#[derive(Debug)]
struct Verifying {
    state: StateName,
    /// Ranges that are not compared yet, the last ones first.
    remaining: Vec<SegmentRange>,
    result: Verified,
    /// Missing bytes of the source, by segment.
    missing: BTreeMap<u64, u64>,
}

#[derive(Debug)]
pub(crate) struct Verifier {
    verifying: Option<Verifying>,
    verified: Option<Verified>,
    /// Ranges that differ by the newest comparison.
    different: Vec<SegmentRange>,
    prover: Prover,
    /// There are segments to be proven.
    proves: bool,
}

impl Default for Verifier {
    fn default() -> Verifier {
        Verifier {
            verifying: None,
            verified: None,
            different: Vec::new(),
            prover: Prover::default(),
            proves: true,
        }
    }
}

impl Verifier {
    pub(crate) fn begin(&mut self, copy: &RemoteCopy) {
        self.prover.reset();
        self.proves = true;
        self.compare_all(copy);
    }

    fn compare_all(&mut self, copy: &RemoteCopy) {
        let present = copy.present();
        let left = present
            .iter()
            .flat_map(|(id, range)| split(*id, range.start(), range.len()));
        self.verified = None;
        self.different.clear();
        self.verifying = Some(Verifying {
            state: copy.state().name(),
            remaining: left.collect(),
            result: Verified::default(),
            missing: BTreeMap::new(),
        });
    }

    /// Records that bytes arrived: more segments may be complete.
    pub(crate) fn look_again(&mut self) {
        self.proves = true;
    }

    /// Proves a part.
    pub(crate) fn work(&mut self, copy: &RemoteCopy) -> Result<()> {
        self.proves = self.prover.work(copy, PROVE_BYTES)?;
        Ok(())
    }

    pub(crate) fn is_proving(&self) -> bool {
        self.proves
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.proves || self.verifying.is_some()
    }

    pub(crate) fn verified(&self) -> Option<Verified> {
        self.verified
    }

    pub(crate) fn different(&self) -> &[SegmentRange] {
        &self.different
    }

    pub(crate) fn proof_outcome(&self, state: &State, segment: u64) -> Option<ProofOutcome> {
        self.prover.outcome(state, segment)
    }

    pub(crate) fn proven(&self, state: &State) -> ProvenStats {
        let mut figures = ProvenStats::default();
        for segment in state.segments() {
            match self.prover.outcome(state, segment.id) {
                Some(ProofOutcome::Proven(bytes, _)) => {
                    figures.proven.push(segment.id);
                    figures.proven_bytes += bytes;
                }
                Some(ProofOutcome::Disproved(..)) => figures.disproved.push(segment.id),
                None => figures.unproven += 1,
            }
        }
        figures
    }

    /// A segment is fetched again.
    pub(crate) fn forget(&mut self, segment: u64) {
        self.prover.forget(segment);
        self.proves = true;
    }

    /// Drops differing ranges, except those proven to be right here.
    pub(crate) fn fetch_again(&mut self, copy: &RemoteCopy) -> Result<()> {
        let state = copy.state();
        for piece in std::mem::take(&mut self.different) {
            let found = self.prover.outcome(&state, piece.segment);
            if matches!(found, Some(ProofOutcome::Proven(..))) {
                self.different.push(piece);
            } else {
                copy.forget(piece.segment, piece.offset, u64::from(piece.bytes))?;
                self.prover.forget(piece.segment);
                self.proves = true;
            }
        }
        Ok(())
    }

    /// Next ranges to compare, for a request of about `bytes_max` bytes.
    pub(crate) fn next(
        &mut self,
        copy: &RemoteCopy,
        request_bytes: u64,
    ) -> Option<(StateName, Vec<SegmentRange>)> {
        let name = copy.state().name();
        if self.verifying.as_ref()?.state != name {
            // Removed segments are not compared; the others are, from the beginning.
            self.compare_all(copy);
        }
        let verifying = self.verifying.as_mut()?;
        if verifying.remaining.is_empty() && self.proves {
            // The segment is read in parts.
            return None;
        }
        if verifying.remaining.is_empty() {
            let mut found = verifying.result;
            found.missing = copy.progress().missing_bytes;
            let state = copy.state();
            for (segment, bytes) in &verifying.missing {
                // A segment proven by its writer's hashes needs no comparison.
                match self.prover.outcome(&state, *segment) {
                    Some(ProofOutcome::Proven(..)) => found.equal += bytes,
                    _ => found.missing += bytes,
                }
            }
            self.verified = Some(found);
            self.verifying = None;
            return None;
        }
        let most = usize::try_from(request_bytes >> 12).unwrap_or(1);
        let from = verifying.remaining.len().saturating_sub(most.clamp(1, 256));
        Some((name, verifying.remaining.split_off(from)))
    }

    /// These were not compared, and are still to be.
    pub(crate) fn put_back(&mut self, these: Vec<SegmentRange>) {
        if let Some(verifying) = &mut self.verifying {
            verifying.remaining.extend(these);
        }
    }

    /// Compares ranges with the digests of the source.
    pub(crate) fn take_digests(
        &mut self,
        copy: &RemoteCopy,
        mut these: Vec<SegmentRange>,
        digests: &[Digest],
    ) {
        // The source chooses the size of an answer.
        let rest = these.split_off(digests.len().min(these.len()));
        self.put_back(rest);
        for (piece, theirs) in these.iter().zip(digests) {
            let bytes = u64::from(piece.bytes);
            if *theirs == MISSING_DIGEST {
                if let Some(verifying) = &mut self.verifying {
                    *verifying.missing.entry(piece.segment).or_default() += bytes;
                }
                continue;
            }
            let ours = match copy.read(piece.segment, piece.offset, piece.bytes) {
                Ok(bytes) => Some(digest(&bytes)),
                // The segment was replaced meanwhile.
                Err(error) if error.kind() == ErrorKind::Elsewhere => continue,
                Err(_) => None,
            };
            let is_equal = ours.is_some_and(|ours| ours == *theirs);
            if !is_equal {
                self.different.push(*piece);
            }
            if let Some(verifying) = &mut self.verifying {
                match is_equal {
                    true => verifying.result.equal += bytes,
                    false => verifying.result.different += bytes,
                }
            }
        }
    }
}
