//! Subscription of a copy: rules, pins, requests of readers; and the missing ranges, by reason.

use super::missing::ByScore;
use super::receive::Receiving;
use super::{LeafFacts, Missing, RangeExplanation, RemoteCopy, Tally};
use crate::common::ids::{SegmentId, StreamId};
use crate::metadata::catalog::decode_stream_key;
use crate::replication::needed::{RangeReason, Reason, SubscribedRange};
use crate::replication::state::State;
use crate::replication::subscriptions::{Pin, ReplicationRules};
use crate::storage::segment::Partition;
use crate::{ErrorKind, Result};
use headwater_types::{ByteRange, ClosedRange, StreamName, Timestamp};

/// Maximum segments whose leaves are examined in one call: each requires reads of its blocks.
const LOOKS_MAX: usize = 4;

impl RemoteCopy {
    /// The rules of the subscription.
    #[must_use]
    pub fn rules(&self) -> ReplicationRules {
        self.inner.receiving.lock().rules.clone()
    }

    /// Replaces the rules. Present ranges that are not subscribed any more stay.
    ///
    /// # Errors
    /// `io`, `full`.
    pub fn set_rules(&self, rules: impl Into<ReplicationRules>) -> Result<()> {
        self.inner.receiving.lock().set_rules(rules.into())
    }

    /// Subscribes to all rows of a stretch of time, regardless of the rules; stored with the copy.
    /// Returns the number of the pin.
    ///
    /// # Errors
    /// `invalid` for an empty pin, and beyond 1,024 pins; `io`, `full`.
    pub fn pin(&self, pin: Pin) -> Result<u64> {
        self.inner.receiving.lock().pin(pin)
    }

    /// Removes a pin; false when there is no pin of this number.
    ///
    /// # Errors
    /// `io`, `full`.
    pub fn unpin(&self, number: u64) -> Result<bool> {
        let mut receiving = self.inner.receiving.lock();
        let is_known = receiving.pins.contains_key(&number);
        if is_known {
            receiving.unpin(&[number])?;
        }
        Ok(is_known)
    }

    /// Pins by number.
    #[must_use]
    pub fn pins(&self) -> Vec<(u64, Pin)> {
        let receiving = self.inner.receiving.lock();
        let pins = receiving.pins.iter();
        pins.map(|(number, pin)| (*number, pin.clone())).collect()
    }

    /// Removes pins that have expired at this instant; returns their number. Call it from time to
    /// time.
    ///
    /// # Errors
    /// `io`, `full`.
    pub fn end_pins(&self, now: Timestamp) -> Result<usize> {
        self.inner.receiving.lock().end_pins(now)
    }

    /// Requests a range that a reader has missed: the range is fetched before all others, and then
    /// retained. False where it is refused: the newest state does not name it, or too many ranges
    /// are already requested. Present bytes are not requested.
    #[must_use]
    pub fn request_range(&self, segment: u64, offset: u64, bytes: u64) -> bool {
        let mut receiving = self.inner.receiving.lock();
        let id = SegmentId(segment);
        if !receiving.has_committed(id, offset, bytes) {
            return false;
        }
        let missing = receiving.pack(id).missing(ByteRange::at(offset, bytes));
        receiving.missing.request_range(id, &missing)
    }

    /// Bytes that [`RemoteCopy::request_range`] would request from the other database: those of the
    /// range that are missing, and not requested yet.
    #[must_use]
    pub fn bytes_to_request(&self, segment: u64, offset: u64, bytes: u64) -> u64 {
        let receiving = self.inner.receiving.lock();
        let id = SegmentId(segment);
        if !receiving.has_committed(id, offset, bytes) {
            return 0;
        }
        let missing = receiving.pack(id).missing(ByteRange::at(offset, bytes));
        receiving.missing.bytes_to_request(id, &missing)
    }

    /// True when a part of a range is requested, and has not been received.
    #[must_use]
    pub fn is_requested(&self, segment: u64, offset: u64, bytes: u64) -> bool {
        let receiving = self.inner.receiving.lock();
        let id = SegmentId(segment);
        receiving
            .missing
            .is_requested(id, ByteRange::at(offset, bytes))
    }

    /// Drops the requests of readers for a range: it cannot be fetched.
    pub fn cancel_request(&self, segment: u64, offset: u64, bytes: u64) {
        let mut receiving = self.inner.receiving.lock();
        let id = SegmentId(segment);
        let range = ByteRange::at(offset, bytes);
        receiving.missing.cancel_request(id, range);
    }

    /// The missing ranges of a reason, those worth most first, about `bytes_max` bytes in total.
    #[must_use]
    pub fn missing_for(&self, reason: Reason, bytes_max: u64) -> Vec<Missing> {
        let receiving = self.inner.receiving.lock();
        receiving.missing.missing_for(reason, bytes_max)
    }

    /// Missing rows, those with the highest `score` first, about `bytes_max` bytes in total: rows
    /// that are subscribed, and rows that may be prefetched. Segments whose blocks are still
    /// missing are left out.
    ///
    /// # Errors
    /// `io`.
    pub fn missing_by_score(
        &self,
        score: &dyn Fn(&LeafFacts) -> f64,
        bytes_max: u64,
    ) -> Result<Vec<Missing>> {
        self.missing_by_score_among(score, &|_| true, bytes_max)
    }

    /// Missing rows like [`RemoteCopy::missing_by_score`], only of rows that can be fetched: the
    /// others do not count for the limit of prefetched rows.
    ///
    /// # Errors
    /// `io`.
    pub fn missing_by_score_among(
        &self,
        score: &dyn Fn(&LeafFacts) -> f64,
        can_be_had: &dyn Fn(&Missing) -> bool,
        bytes_max: u64,
    ) -> Result<Vec<Missing>> {
        let mut receiving = self.inner.receiving.lock();
        receiving.look_at_leaves()?;
        let by = ByScore {
            score,
            can_be_had,
            ahead_bytes: receiving.rules.ahead_bytes(),
        };
        Ok(receiving.missing.missing_by_score(&by, bytes_max))
    }

    /// True when every byte of a segment of the state is present, subscribed or not: then it can be
    /// proven ([`State::proof`]).
    #[must_use]
    pub fn is_complete(&self, segment: u64) -> bool {
        let receiving = self.inner.receiving.lock();
        let id = SegmentId(segment);
        let partition = receiving.state.partition(id);
        partition.is_some_and(|p| {
            let all = ByteRange::new(0, p.record.committed_bytes);
            receiving.pack(id).has(all)
        })
    }

    /// Subscribed and missing bytes for each reason.
    #[must_use]
    pub fn tallies(&self) -> Vec<Tally> {
        self.inner.receiving.lock().missing.tallies()
    }

    /// Explains why a byte of a segment is present, or is subscribed, by the present rules and
    /// pins; `None` when it is not subscribed: it was once, or a reader requested it.
    ///
    /// # Errors
    /// `not_found` for a segment that the state does not name, `corrupt`, `io`.
    pub fn explain(
        &self,
        segment: u64,
        offset: u64,
        score: &dyn Fn(&LeafFacts) -> f64,
    ) -> Result<Option<RangeExplanation>> {
        let receiving = self.inner.receiving.lock();
        let id = SegmentId(segment);
        let Some(partition) = receiving.state.partition(id) else {
            return Err(crate::Error::not_found(format!(
                "segment {segment} does not belong to the state of this copy"
            )));
        };
        let store = receiving.store(&[partition]);
        let needed = receiving.needed(&store, partition)?;
        let mut ranges = needed.ranges.into_iter();
        let found = ranges.find(|r| r.range.byte_range().contains(offset));
        Ok(found.map(|wanted| receiving.explanation(id, &wanted, score)))
    }

    /// Explains each subscribed range of rows of a stream that overlaps a span of time, by segment,
    /// at most `ranges_max` ranges. A segment that has instants of the span but no subscribed rows
    /// of the stream is listed without a range. Ranges with rows of several streams are listed for
    /// one of them, so that the ranges of a stream may begin before the span.
    ///
    /// # Errors
    /// `corrupt`, `io`.
    pub fn explain_stream(
        &self,
        stream: &StreamName,
        span: ClosedRange,
        score: &dyn Fn(&LeafFacts) -> f64,
        ranges_max: usize,
    ) -> Result<Vec<(u64, Option<RangeExplanation>)>> {
        let receiving = self.inner.receiving.lock();
        let mut found = Vec::new();
        let overlaps = |range: ClosedRange| range.first <= span.last && span.first <= range.last;
        let of_table = |id| {
            let table = receiving.state.table(id);
            table.is_some_and(|table| table.name == stream.table())
        };
        for partition in &receiving.state.partitions {
            if found.len() >= ranges_max {
                break;
            }
            if !of_table(partition.record.table) || !overlaps(partition.record.span()) {
                continue;
            }
            let store = receiving.store(&[partition]);
            let needed = receiving.needed(&store, partition)?;
            let before = found.len();
            let is_its = |id| name_of(&receiving.state, id).as_ref() == Some(stream);
            let ranges = needed.ranges.iter().filter(|wanted| {
                let rows = wanted.rows.as_ref();
                rows.is_some_and(|(of, rows)| overlaps(*rows) && is_its(*of))
            });
            for wanted in ranges.take(ranges_max.saturating_sub(before)) {
                let why = receiving.explanation(partition.id, wanted, score);
                found.push((partition.id.0, Some(why)));
            }
            if found.len() == before {
                found.push((partition.id.0, None));
            }
        }
        Ok(found)
    }
}

fn name_of(state: &State, stream: StreamId) -> Option<StreamName> {
    let at = state.streams.binary_search_by_key(&stream, |r| r.id).ok()?;
    let record = state.streams.get(at)?;
    let table = state.table(record.table)?;
    decode_stream_key(&table.name, &record.key).ok()
}

impl Receiving {
    /// True when the newest state names all bytes of a range.
    fn has_committed(&self, id: SegmentId, offset: u64, bytes: u64) -> bool {
        let committed = self.state.partition(id);
        let committed = committed.map_or(0, |p| p.record.committed_bytes);
        offset
            .checked_add(bytes)
            .is_some_and(|end| end <= committed)
    }

    fn explanation(
        &self,
        id: SegmentId,
        wanted: &SubscribedRange,
        score: &dyn Fn(&LeafFacts) -> f64,
    ) -> RangeExplanation {
        let facts = self.missing.facts.of(id, wanted.range.offset);
        let facts = facts.filter(|_| wanted.rows.is_some());
        let stream = wanted.rows.map(|(stream, _)| stream);
        RangeExplanation {
            range: wanted.range,
            is_here: self.pack(id).has(wanted.range.byte_range()),
            why: RangeReason {
                reason: wanted.reason,
                priority: wanted.priority,
                pin: wanted.pin,
                score: facts.map(|facts| score(&facts)),
            },
            stream: stream.and_then(|stream| name_of(&self.state, stream)),
        }
    }

    /// Examines the leaves of some new segments.
    fn look_at_leaves(&mut self) -> Result<()> {
        let ids: Vec<SegmentId> = self.missing.without_facts().take(LOOKS_MAX).collect();
        let state = std::sync::Arc::clone(&self.state);
        for id in ids {
            if let Some(partition) = state.partition(id) {
                let store = self.store(&[partition]);
                let opened = Partition::new(partition.record.clone(), store.segment_file(id));
                match self.missing.facts.look(&store, &opened) {
                    // Readers report it, and so does a comparison of the two; it stays missing.
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        self.missing.facts.put_nothing(id);
                    }
                    looked => looked?,
                }
            }
        }
        Ok(())
    }
}
