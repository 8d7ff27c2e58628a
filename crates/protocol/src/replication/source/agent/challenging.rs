//! Challenges of an agent to its copy: which are granted, and whether an answer is right.
//!
//! Invariants: a segment counts as held only while the copy confirms it, and after it has answered
//! for all of its bytes. Reads and bytes are granted before a challenge is sent. Concurrency and
//! failure: as the agent.

use super::{Agent, READ_MIN};
use crate::replication::digest::challenge_digest;
use crate::replication::message::{Digest, Message};
use crate::replication::source::Source;
use crate::replication::source::challenge::{self, AnswerFailure, ChallengeStats};
use crate::replication::source::reading::{PieceRead, RangeLookup, look, read};
use headwater_engine::Result;
use headwater_types::Now;

impl Agent {
    /// Enables challenges over this connection, whose copy has said that it answers them. The key
    /// is random, and of no other connection: nonces are made from it.
    pub fn set_challenges(&mut self, key: [u8; 32]) {
        self.challenges.set_key(key);
    }

    /// True if challenges are enabled over this connection.
    #[must_use]
    pub fn has_challenges(&self) -> bool {
        self.challenges.has_key()
    }

    /// Sets the segments that are to be freed, and the bytes of each, the first ones first: the
    /// copy is challenged for those of them that it has proven ([`Agent::proven_now`]).
    pub fn set_to_free(&mut self, segments: &[(u64, u64)]) {
        self.challenges.set_to_free(segments);
    }

    /// Segments of [`Agent::proven_now`] of which the copy has answered challenges for all bytes,
    /// over this connection and recently: only these may be freed.
    #[must_use]
    pub fn held_now(&self, now: Now) -> Vec<(u64, u64)> {
        let mut proven = self.proven_now();
        proven.retain(|(segment, bytes)| self.challenges.is_held(now, *segment, *bytes));
        proven
    }

    /// True while more of [`Agent::set_to_free`] may soon be held: an answer is on its way, or no
    /// challenge that failed is waited for before the next one.
    #[must_use]
    pub fn may_prove_more(&self, now: Now) -> bool {
        self.challenges.may_prove_more(now)
    }

    /// Counts of challenges since the start.
    #[must_use]
    pub fn challenge_stats(&self) -> ChallengeStats {
        self.challenges.stats()
    }

    /// The next challenge, if one is due: at most one is out, and reads and bytes are granted
    /// before. To be called now and then; an answer may bring the next one.
    pub fn challenge(&mut self, now: Now) -> Option<Message> {
        let proven = self.proven_now();
        self.challenges.expire(now, &proven);
        let next = self.challenges.next(now, &proven)?;
        let mut ranges = next.ranges();
        let granted = ranges.iter().take_while(|range| {
            let bytes = u64::from(range.bytes).max(READ_MIN);
            self.reads.take(now, bytes).is_ok()
        });
        let granted = granted.count();
        ranges.truncate(granted);
        let size = challenge::size(granted);
        if ranges.is_empty() || self.budget.take(now, size).is_err() {
            return None;
        }
        self.challenges.send(now, next, ranges)
    }

    /// Compares the answer to a challenge with the bytes here.
    pub(super) fn check_answer(
        &mut self,
        db: &dyn Source,
        now: Now,
        request: u64,
        digests: &[Digest],
    ) -> Result<()> {
        let Some(open) = self.challenges.take_answered(request) else {
            return Ok(());
        };
        let newest = self.newest(db)?;
        if digests.is_empty()
            && let Some(first) = open.ranges.first()
        {
            self.challenges
                .fail(now, first.segment, AnswerFailure::Lacking);
        }
        for (range, theirs) in open.ranges.iter().zip(digests) {
            let segment = range.segment;
            let ours = match look(&newest, range)? {
                RangeLookup::Readable(_, missing) if missing.is_empty() => read(&newest, range)?,
                // The segment was freed, replaced or withheld meanwhile.
                _ => PieceRead::Freed,
            };
            let failure = match ours {
                PieceRead::Freed => {
                    self.challenges.forget(segment);
                    return Ok(());
                }
                PieceRead::Damaged => AnswerFailure::Unreadable,
                PieceRead::Bytes(_) if challenge::is_lacking(theirs) => AnswerFailure::Lacking,
                PieceRead::Bytes(bytes)
                    if challenge_digest(&open.nonce, range, &bytes) == *theirs =>
                {
                    self.challenges.prove(now, open.bytes, range);
                    continue;
                }
                PieceRead::Bytes(_) => AnswerFailure::Wrong,
            };
            self.challenges.fail(now, segment, failure);
            return Ok(());
        }
        Ok(())
    }
}
