//! Persistent state of an analyzer: the policy in force, the observed lateness and the last
//! decisions (docs/format/meta.md).
//!
//! Invariants: encoded state decodes to an analyzer that continues in the same way, except trackers
//! of streams and replays, which start empty. Failure: other bytes are an error, never a panic.

use super::{Analyzer, DECISIONS_MAX, Decision, Reason};
use crate::lateness::Lateness;
use crate::model::Candidate;
use crate::{LatePolicy, MergeScope, Split};
use headwater_codec::{Cursor, DecodeError, PutBytes};

const STATE_VERSION: u8 = 1;

impl Analyzer {
    /// Appends the persistent state (docs/format/meta.md).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(STATE_VERSION);
        out.put_u8(u8::from(self.adaptive));
        put_candidate(out, &self.in_force);
        out.put_varint(self.events);
        out.put_varint(self.memory_events.round().max(0.0) as u64);
        self.lateness.encode(out);
        out.put_varint(self.decisions.len() as u64);
        for decision in &self.decisions {
            out.put_varint(decision.at_events);
            put_candidate(out, &decision.from);
            put_candidate(out, &decision.to);
            out.put_u64(decision.expected_from.to_bits());
            out.put_u64(decision.expected_to.to_bits());
            out.put_u8(u8::from(decision.reason == Reason::Replayed));
        }
    }

    /// Decodes an analyzer, which continues where it stopped.
    ///
    /// # Errors
    /// When the bytes are not the output of [`Analyzer::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Analyzer, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("analyzer version")? != STATE_VERSION {
            return Err(cursor.expected("analyzer version 1"));
        }
        let adaptive = match cursor.u8("adaptive")? {
            0 => false,
            1 => true,
            _ => return Err(cursor.expected("0 or 1")),
        };
        let mut new = Analyzer::new(candidate(&mut cursor)?, adaptive);
        new.events = cursor.varint("events seen")?;
        new.memory_events = cursor.varint("memory in events")? as f64;
        new.lateness = Lateness::decode(&mut cursor)?;
        for _ in 0..cursor.varint_up_to(DECISIONS_MAX as u64, "decisions")? {
            let at_events = cursor.varint("events at a decision")?;
            let (from, to) = (candidate(&mut cursor)?, candidate(&mut cursor)?);
            let expected_from = f64::from_bits(cursor.u64("expected before")?);
            let expected_to = f64::from_bits(cursor.u64("expected after")?);
            let reason = match cursor.u8("reason")? {
                0 => Reason::Predicted,
                1 => Reason::Replayed,
                _ => return Err(cursor.expected("reason 0 or 1")),
            };
            new.decisions.push_back(Decision {
                at_events,
                from,
                to,
                expected_from,
                expected_to,
                reason,
            });
        }
        cursor.finish()?;
        Ok(new)
    }
}

fn put_candidate(out: &mut Vec<u8>, candidate: &Candidate) {
    let policy = &candidate.policy;
    out.put_u64(match policy.split {
        Split::Conventional => 0,
        Split::Separate { flank_share } => flank_share.to_bits(),
    });
    out.put_varint(u64::from(policy.retain_events));
    out.put_u8(u8::from(policy.merge_scope == MergeScope::Overlap));
    out.put_varint(u64::from(candidate.leaf_events));
}

fn candidate(cursor: &mut Cursor<'_>) -> Result<Candidate, DecodeError> {
    let split = match cursor.u64("flank share")? {
        0 => Split::Conventional,
        bits => Split::Separate {
            flank_share: f64::from_bits(bits),
        },
    };
    let retain =
        cursor.varint_up_to(u64::from(LatePolicy::RETAIN_EVENTS_MAX), "retained events")?;
    let merge_scope = match cursor.u8("merge scope")? {
        0 => MergeScope::Touched,
        1 => MergeScope::Overlap,
        _ => return Err(cursor.expected("merge scope 0 or 1")),
    };
    let policy = LatePolicy {
        split,
        retain_events: retain as u32,
        merge_scope,
    };
    if policy.validate().is_err() {
        return Err(cursor.expected("a flank share above 0 and below 1"));
    }
    let leaf_events = cursor.varint_up_to(65_536, "leaf events")?.max(1) as u32;
    Ok(Candidate {
        policy,
        leaf_events,
    })
}
