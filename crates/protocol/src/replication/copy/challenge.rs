//! Answers of a copy to the challenges of its source, from the bytes on the copy's device.
//!
//! Invariants: each answer is computed from bytes that are read for it. The newest challenge
//! replaces one that waits, so that a source has at most one answer to come; ranges, bytes and the
//! rate of reads are bounded, whatever the source requests. Concurrency: plain data. Failure: a
//! range that is missing or cannot be read is answered as that, which no source takes for a proof.

use crate::replication::digest::{MISSING_DIGEST, NO_DIGEST, challenge_digest};
use crate::replication::message::{Digest, Message, Nonce, PIECE_MAX, SegmentRange};
use crate::replication::source::Allowance;
use headwater_engine::{ErrorKind, RemoteCopy};
use headwater_types::Now;

/// Bytes a second that a copy reads for the challenges of one source.
const READS_A_SECOND: u64 = 16 << 20;
/// Least bytes charged for a range: each is a separate location on the device.
const READ_MIN: u64 = 4 << 10;
/// Most bytes that are read for one answer.
const ANSWER_MAX: u64 = 8 << 20;
/// Most ranges of one answer.
const RANGES_MAX: usize = 64;

/// A challenge that is not answered yet.
#[derive(Debug)]
struct PendingChallenge {
    request: u64,
    nonce: Nonce,
    ranges: Vec<SegmentRange>,
}

/// Answers challenges, one after the other.
#[derive(Debug)]
pub(crate) struct ChallengeResponder {
    pending: Option<PendingChallenge>,
    reads: Allowance,
}

impl Default for ChallengeResponder {
    fn default() -> ChallengeResponder {
        ChallengeResponder {
            pending: None,
            reads: Allowance::new(READS_A_SECOND),
        }
    }
}

impl ChallengeResponder {
    /// Takes a challenge in place of one that waits.
    pub(crate) fn take(&mut self, request: u64, nonce: Nonce, mut ranges: Vec<SegmentRange>) {
        ranges.truncate(RANGES_MAX);
        self.pending = Some(PendingChallenge {
            request,
            nonce,
            ranges,
        });
    }

    /// True while a challenge waits for its answer.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The answer to the challenge that waits, once the allowance of reads suffices for a range.
    pub(crate) fn next(&mut self, now: Now, copy: &RemoteCopy) -> Option<Message> {
        let pending = self.pending.take()?;
        let mut digests = Vec::new();
        let mut read = 0;
        for range in &pending.ranges {
            let bytes = u64::from(range.bytes.min(PIECE_MAX)).max(READ_MIN);
            if read >= ANSWER_MAX {
                break;
            }
            if self.reads.take(now, bytes).is_err() {
                if digests.is_empty() {
                    self.pending = Some(pending);
                    return None;
                }
                // The source challenges for the others again.
                break;
            }
            read += bytes;
            digests.push(answer(copy, &pending.nonce, range));
        }
        Some(Message::ChallengeAnswer {
            request: pending.request,
            digests,
        })
    }
}

/// The digest of one range.
fn answer(copy: &RemoteCopy, nonce: &Nonce, range: &SegmentRange) -> Digest {
    if range.bytes > PIECE_MAX {
        return NO_DIGEST;
    }
    match copy.read(range.segment, range.offset, range.bytes) {
        Ok(bytes) => challenge_digest(nonce, range, &bytes),
        Err(error) if error.kind() == ErrorKind::Elsewhere => MISSING_DIGEST,
        Err(_) => NO_DIGEST,
    }
}
