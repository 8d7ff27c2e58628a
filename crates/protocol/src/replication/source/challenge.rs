//! Challenges of a source to its copy: before rows are freed here, the copy computes digests of all
//! bytes of their segments that only a holder of the bytes can compute.
//!
//! A confirmation is the word of the copy, and the chains that it proves segments by stand in the
//! state that the source itself has sent: a copy that lies, is broken, or was restored from an old
//! backup may confirm what it does not have. A challenge names ranges and a fresh nonce; the answer
//! is compared with the same digests of the bytes here.
//!
//! Invariants: a segment counts as held only when each of its bytes was answered for, over the
//! current connection and within [`VALID_FOR`]; a nonce is used once, and unpredictable to whoever
//! does not have the key. At most one challenge is out. Bytes here are read only for an answer,
//! each at most once for a challenge, and the reads are granted before the challenge is sent.
//! A segment that was answered wrongly, or not at all, waits, longer each time, and holds up no
//! other; a copy that answers nothing is challenged ever more rarely. Concurrency: plain data.
//! Failure: a message that is lost costs a challenge; a range that cannot be read here proves
//! nothing.

use crate::replication::digest::{MISSING_DIGEST, NO_DIGEST};
use crate::replication::message::{Digest, Message, Nonce, PIECE_MAX, SegmentRange};
use headwater_types::Now;
use headwater_types::invariant::wide;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most ranges of a challenge, of at most a MiB each: a copy answers 8 MiB at once.
const RANGES_MAX: usize = 8;
/// Time within which an answer counts.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Time for which a segment counts as held, from its first answer on.
pub(super) const VALID_FOR: Duration = Duration::from_secs(15 * 60);
/// Wait after the first failure of a segment, or of the copy to answer; doubled after each.
const WAIT_FIRST: Duration = Duration::from_secs(5);
/// Longest wait.
const WAIT_MOST: Duration = Duration::from_secs(3600);
/// Approximate bytes of a message besides its ranges, and of each range.
const MESSAGE_BYTES: u64 = 80;
const RANGE_BYTES: u64 = 24;

/// Counts of challenges since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChallengeStats {
    /// Challenges that were sent.
    pub sent: u64,
    /// Bytes of which the copy has proven that it has them.
    pub proven_bytes: u64,
    /// Segments answered for with a wrong digest: the copy has other bytes, or none, and says that
    /// it has them.
    pub wrong: u64,
    /// Segments that the copy has confirmed, and says that it lacks or cannot read.
    pub lacking: u64,
    /// Challenges without an answer in time.
    pub unanswered: u64,
    /// Segments whose last answer was wrong or lacking, over this connection.
    pub refuted_segments: u64,
    /// Challenges without an answer since the last answer.
    pub unanswered_in_a_row: u32,
}

/// Reason why a segment does not count as held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerFailure {
    /// The digest is another one.
    Wrong,
    /// The copy says that it does not have the bytes.
    Lacking,
    /// No answer came in time.
    Unanswered,
    /// The bytes cannot be read here.
    Unreadable,
}

/// Bytes of a segment that were answered for.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Committed bytes of the segment.
    bytes: u64,
    /// End of the bytes that were answered for, from the start of the segment.
    proven_to: u64,
    /// Time of the first answer.
    since: Duration,
}

/// A segment that waits after a failure.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    failure: AnswerFailure,
    failures: u32,
    until: Duration,
}

/// A challenge that has no answer yet.
#[derive(Debug)]
pub(super) struct OpenChallenge {
    request: u64,
    pub(super) nonce: Nonce,
    /// Committed bytes of the segment.
    pub(super) bytes: u64,
    /// Ranges of one segment, in order.
    pub(super) ranges: Vec<SegmentRange>,
    until: Duration,
}

/// Ranges of a segment to be challenged next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextRanges {
    segment: u64,
    /// Committed bytes of the segment.
    bytes: u64,
    from: u64,
}

impl NextRanges {
    /// Ranges of at most a MiB, as many as one challenge has.
    pub(super) fn ranges(&self) -> Vec<SegmentRange> {
        let mut ranges = Vec::new();
        let mut offset = self.from;
        while offset < self.bytes && ranges.len() < RANGES_MAX {
            let bytes = (self.bytes - offset).min(u64::from(PIECE_MAX));
            ranges.push(SegmentRange {
                segment: self.segment,
                offset,
                bytes: u32::try_from(bytes).unwrap_or(PIECE_MAX),
            });
            offset += bytes;
        }
        ranges
    }
}

/// The challenges of a source over one connection.
#[derive(Debug, Default)]
pub(super) struct Challenges {
    /// Key of the nonces; `None` = the copy answers no challenges.
    key: Option<[u8; 32]>,
    /// Nonces that were drawn.
    drawn: u64,
    /// Segments that are to be freed, and their committed bytes, the first ones first.
    to_free: Vec<(u64, u64)>,
    progress: BTreeMap<u64, Progress>,
    backoffs: BTreeMap<u64, Backoff>,
    open: Option<OpenChallenge>,
    /// No challenge is sent before this.
    not_before: Duration,
    stats: ChallengeStats,
}

impl Challenges {
    /// Starts over another connection: nothing counts as held, and the copy has yet to say that it
    /// answers challenges.
    pub(super) fn restart(&mut self) {
        *self = Challenges {
            stats: ChallengeStats {
                refuted_segments: 0,
                unanswered_in_a_row: 0,
                ..self.stats
            },
            ..Challenges::default()
        };
    }

    pub(super) fn set_key(&mut self, key: [u8; 32]) {
        (self.key, self.drawn) = (Some(key), 0);
    }

    pub(super) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    pub(super) fn set_to_free(&mut self, segments: &[(u64, u64)]) {
        self.to_free = segments.to_vec();
    }

    pub(super) fn stats(&self) -> ChallengeStats {
        let refuted = |backoff: &&Backoff| {
            matches!(
                backoff.failure,
                AnswerFailure::Wrong | AnswerFailure::Lacking
            )
        };
        ChallengeStats {
            refuted_segments: wide(self.backoffs.values().filter(refuted).count()),
            ..self.stats
        }
    }

    /// True if the copy has answered for all of a segment.
    pub(super) fn is_held(&self, now: Now, segment: u64, bytes: u64) -> bool {
        let progress = self.progress.get(&segment);
        progress.is_some_and(|progress| {
            let is_whole = progress.bytes == bytes && progress.proven_to == bytes;
            is_whole && now.monotonic < progress.since.saturating_add(VALID_FOR)
        })
    }

    /// True while an answer is on its way, or no failure is waited for before the next challenge.
    /// The copy may have yet to say that it answers challenges.
    pub(super) fn may_prove_more(&self, now: Now) -> bool {
        self.open.is_some() || self.due(now, &self.to_free).is_some()
    }

    /// Gives up the challenge that was not answered in time, and forgets what has become invalid
    /// or is not confirmed any more.
    pub(super) fn expire(&mut self, now: Now, confirmed: &[(u64, u64)]) {
        let is_over = |open: &mut OpenChallenge| open.until <= now.monotonic;
        if let Some(open) = self.open.take_if(is_over) {
            self.stats.unanswered += 1;
            let wait = wait_after(self.stats.unanswered_in_a_row);
            self.stats.unanswered_in_a_row = self.stats.unanswered_in_a_row.saturating_add(1);
            self.not_before = now.monotonic.saturating_add(wait);
            if let Some(range) = open.ranges.first() {
                self.fail(now, range.segment, AnswerFailure::Unanswered);
            }
        }
        self.progress
            .retain(|_, progress| now.monotonic < progress.since.saturating_add(VALID_FOR));
        let is_confirmed = |segment: &u64| confirmed.iter().any(|(id, _)| id == segment);
        self.backoffs.retain(|segment, _| is_confirmed(segment));
    }

    /// Ranges for the next challenge, of segments that are confirmed.
    pub(super) fn next(&self, now: Now, confirmed: &[(u64, u64)]) -> Option<NextRanges> {
        if self.open.is_some() || self.key.is_none() {
            return None;
        }
        self.due(now, confirmed)
    }

    fn due(&self, now: Now, confirmed: &[(u64, u64)]) -> Option<NextRanges> {
        if now.monotonic < self.not_before {
            return None;
        }
        let to_free = self.to_free.iter().copied();
        let mut confirmed = to_free.filter(|segment| confirmed.contains(segment));
        confirmed.find_map(|(segment, bytes)| {
            let backoff = self.backoffs.get(&segment);
            if backoff.is_some_and(|backoff| now.monotonic < backoff.until) {
                return None;
            }
            let progress = self.progress.get(&segment);
            let progress = progress.filter(|progress| progress.bytes == bytes);
            let from = progress.map_or(0, |progress| progress.proven_to);
            (from < bytes).then_some(NextRanges {
                segment,
                bytes,
                from,
            })
        })
    }

    /// The challenge for some of the next ranges, at least one.
    pub(super) fn send(
        &mut self,
        now: Now,
        next: NextRanges,
        ranges: Vec<SegmentRange>,
    ) -> Option<Message> {
        let nonce = self.draw()?;
        // An answer to any other challenge, of whichever connection, has another number.
        let (number, _) = nonce.split_first_chunk::<8>()?;
        let request = u64::from_le_bytes(*number);
        self.stats.sent += 1;
        self.open = Some(OpenChallenge {
            request,
            nonce,
            bytes: next.bytes,
            ranges: ranges.clone(),
            until: now.monotonic.saturating_add(ANSWER_WITHIN),
        });
        Some(Message::Challenge {
            request,
            nonce,
            ranges,
        })
    }

    /// A nonce that was not used before.
    fn draw(&mut self) -> Option<Nonce> {
        let mut hasher = Sha256::new();
        hasher.update(b"headwater nonce");
        hasher.update(self.key?);
        hasher.update(self.drawn.to_le_bytes());
        self.drawn = self.drawn.wrapping_add(1);
        Some(hasher.finalize().into())
    }

    /// The challenge that an answer is for; `None` if it is for none that is out.
    pub(super) fn take_answered(&mut self, request: u64) -> Option<OpenChallenge> {
        let open = self.open.take_if(|open| open.request == request)?;
        self.stats.unanswered_in_a_row = 0;
        self.not_before = Duration::ZERO;
        Some(open)
    }

    /// Records that a range of a segment was answered for.
    pub(super) fn prove(&mut self, now: Now, bytes: u64, range: &SegmentRange) {
        let begun = Progress {
            bytes,
            proven_to: 0,
            since: now.monotonic,
        };
        let progress = self.progress.entry(range.segment).or_insert(begun);
        if progress.bytes != bytes {
            *progress = begun;
        }
        if progress.proven_to == range.offset {
            progress.proven_to = range.range().end();
            let proven = self.stats.proven_bytes;
            self.stats.proven_bytes = proven.saturating_add(u64::from(range.bytes));
        }
        if progress.proven_to == bytes {
            self.backoffs.remove(&range.segment);
        }
    }

    /// Records that a segment does not count as held, and is challenged again after a wait.
    pub(super) fn fail(&mut self, now: Now, segment: u64, failure: AnswerFailure) {
        self.progress.remove(&segment);
        match failure {
            AnswerFailure::Wrong => self.stats.wrong += 1,
            AnswerFailure::Lacking => self.stats.lacking += 1,
            AnswerFailure::Unanswered | AnswerFailure::Unreadable => {}
        }
        let failures = self.backoffs.get(&segment).map_or(0, |b| b.failures);
        let backoff = Backoff {
            failure,
            failures: failures.saturating_add(1),
            until: now.monotonic.saturating_add(wait_after(failures)),
        };
        self.backoffs.insert(segment, backoff);
    }

    /// Forgets a segment that cannot be challenged now, since it has changed here.
    pub(super) fn forget(&mut self, segment: u64) {
        self.progress.remove(&segment);
        self.backoffs.remove(&segment);
    }
}

/// Wait after so many earlier failures.
fn wait_after(failures: u32) -> Duration {
    let doubled = WAIT_FIRST.saturating_mul(1 << failures.min(16));
    doubled.min(WAIT_MOST)
}

/// Approximate bytes of a challenge.
pub(super) fn size(ranges: usize) -> u64 {
    MESSAGE_BYTES + RANGE_BYTES * wide(ranges)
}

/// True for a digest by which a copy says that it does not have the bytes.
pub(super) fn is_lacking(digest: &Digest) -> bool {
    *digest == MISSING_DIGEST || *digest == NO_DIGEST
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::Timestamp;

    fn at(seconds: u64) -> Now {
        Now {
            monotonic: Duration::from_secs(seconds),
            wall: Timestamp::from_nanos(0),
        }
    }

    /// Sends the next challenge; the segment, and its number.
    fn send(challenges: &mut Challenges, now: Now, confirmed: &[(u64, u64)]) -> Option<(u64, u64)> {
        challenges.expire(now, confirmed);
        let next = challenges.next(now, confirmed)?;
        let sent = challenges.send(now, next, next.ranges()).unwrap();
        let Message::Challenge { request, .. } = sent else {
            return None;
        };
        Some((next.segment, request))
    }

    /// Answers a challenge for all of its ranges.
    fn answer(challenges: &mut Challenges, now: Now, request: u64) {
        let open = challenges.take_answered(request).unwrap();
        for range in &open.ranges {
            challenges.prove(now, open.bytes, range);
        }
    }

    fn begun(to_free: &[(u64, u64)]) -> Challenges {
        let mut challenges = Challenges::default();
        challenges.set_key([3; 32]);
        challenges.set_to_free(to_free);
        challenges
    }

    #[test]
    fn a_segment_is_held_once_all_of_it_is_answered_for_and_for_a_while() {
        let large = 20 << 20;
        let all = [(1, large), (2, 100)];
        let mut challenges = begun(&all);
        for part in 0..3 {
            assert!(!challenges.is_held(at(part), 1, large));
            let (segment, request) = send(&mut challenges, at(part), &all).unwrap();
            assert_eq!(segment, 1);
            assert_eq!(send(&mut challenges, at(part), &all), None, "one at a time");
            answer(&mut challenges, at(part), request);
            assert!(challenges.take_answered(request).is_none(), "once");
        }
        assert!(challenges.is_held(at(3), 1, large));
        assert!(
            !challenges.is_held(at(3), 1, large + 1),
            "of another length"
        );
        assert_eq!(challenges.stats().proven_bytes, large);
        let end = VALID_FOR.as_secs();
        assert!(challenges.is_held(at(end - 1), 1, large));
        assert!(!challenges.is_held(at(end), 1, large));
        assert_eq!(send(&mut challenges, at(end), &all).unwrap().0, 1, "again");
        challenges.restart();
        assert!(!challenges.is_held(at(end - 1), 1, large));
        assert_eq!(send(&mut challenges, at(end), &all), None, "no key");
    }

    #[test]
    fn segments_that_failed_wait_and_hold_up_no_other() {
        let all = [(1, 100), (2, 100)];
        let mut challenges = begun(&all);
        let (_, request) = send(&mut challenges, at(1), &all).unwrap();
        challenges.take_answered(request).unwrap();
        challenges.fail(at(1), 1, AnswerFailure::Wrong);
        let (segment, request) = send(&mut challenges, at(1), &all).unwrap();
        assert_eq!(segment, 2);
        answer(&mut challenges, at(1), request);
        assert!(challenges.is_held(at(1), 2, 100));
        let stats = challenges.stats();
        assert_eq!((stats.wrong, stats.refuted_segments), (1, 1));
        // Ever later.
        let mut waits = Vec::new();
        let mut failed_at = 1;
        for second in 2..2_000 {
            if let Some((segment, request)) = send(&mut challenges, at(second), &all)
                && segment == 1
            {
                challenges.take_answered(request).unwrap();
                challenges.fail(at(second), 1, AnswerFailure::Wrong);
                waits.push(second - failed_at);
                failed_at = second;
            } else {
                challenges.open = None;
            }
        }
        assert_eq!(waits[..5], [5, 10, 20, 40, 80]);
        // It is not counted any more once it is not confirmed any more.
        challenges.expire(at(2_000), &[(2, 100)]);
        assert_eq!(challenges.stats().refuted_segments, 0);
    }

    #[test]
    fn a_copy_that_answers_nothing_is_challenged_ever_more_rarely() {
        let all: Vec<(u64, u64)> = (0..10_000).map(|id| (id, 100)).collect();
        let mut challenges = begun(&all);
        let day = (0..24 * 3600).step_by(10);
        let sent = day.filter(|second| send(&mut challenges, at(*second), &all).is_some());
        let sent = sent.count();
        assert!((20..50).contains(&sent), "{sent}");
        let stats = challenges.stats();
        assert_eq!((stats.refuted_segments, stats.proven_bytes), (0, 0));
        assert!(stats.unanswered + 1 >= wide(sent));
    }

    #[test]
    fn no_nonce_is_used_twice_and_another_key_gives_others() {
        let mut seen = std::collections::BTreeSet::new();
        for key in [[1; 32], [2; 32]] {
            let mut challenges = Challenges::default();
            assert_eq!(challenges.draw(), None);
            challenges.set_key(key);
            for _ in 0..1_000 {
                assert!(seen.insert(challenges.draw().unwrap()));
            }
        }
    }
}
