//! Missing ranges that a source, itself a copy, has reported, so that it reports them again when
//! they have changed; and requested ranges to which it has subscribed since.
//!
//! Invariants: reports are of the newest state; no report is made of segments that no copy
//! requested, and no report is made twice. Subscriptions on behalf of others are bounded.
//! Concurrency: plain data. Failure: a lost report is requested again by the other side after its
//! timeout.

use crate::replication::message::Message;
use crate::replication::missing_ranges::{MissingRange, Outlook};
use crate::replication::ranges::{beside, within};
use crate::replication::source::Source;
use headwater_engine::{ErrorKind, PinnedState, Result};
use headwater_types::ByteRange;
use headwater_types::byte_range::joined;
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, VecDeque};

/// Most missing ranges of one message.
const HOLES_MAX: usize = 4096;
/// Approximate bytes of a message of missing ranges, and of each of them.
const MESSAGE_BYTES: u64 = 40;
const HOLE_BYTES: u64 = 10;
/// Most ranges that wait for a subscription here.
const WISHES_MAX: usize = 4096;

/// Reported sums of a segment: its bytes, its missing bytes, and the missing bytes that will be
/// fetched.
type Sums = (u64, u64, u64);

/// Reported missing ranges.
#[derive(Debug, Default)]
pub(crate) struct MissingReports {
    segments: BTreeMap<u64, Sums>,
    /// The source's change counter at the last search for changes.
    looked_at: Option<u64>,
    /// Requested ranges of segments to which the source does not subscribe yet.
    wishes: VecDeque<(u64, ByteRange)>,
    /// The source subscribes to requested ranges, too.
    pub(crate) fetches_requested: bool,
}

/// Approximate bytes of a message.
pub(crate) fn size(message: &Message) -> u64 {
    match message {
        Message::MissingRanges { missing, .. } => MESSAGE_BYTES + HOLE_BYTES * wide(missing.len()),
        _ => MESSAGE_BYTES,
    }
}

/// Missing ranges of a segment.
struct SegmentMissing {
    segment: u64,
    bytes: u64,
    missing: Vec<MissingRange>,
}

impl SegmentMissing {
    /// Missing ranges of a segment; `None` if the state does not contain the segment.
    fn of(
        source: &dyn Source,
        held: &PinnedState,
        segment: u64,
        otherwise: Outlook,
    ) -> Result<Option<SegmentMissing>> {
        let mut segments = held.state().segments();
        let Some(bytes) = segments.find(|s| s.id == segment).map(|s| s.bytes) else {
            return Ok(None);
        };
        let missing = match held.missing(segment, 0, bytes) {
            Ok(missing) => missing,
            Err(error) if error.kind() == ErrorKind::Gone => return Ok(None),
            Err(error) => return Err(error),
        };
        let wants = source.subscribed_missing(segment);
        let wants = wants.map_or_else(|| vec![ByteRange::new(0, bytes)], joined);
        let hole = |range, outlook| MissingRange { range, outlook };
        let mut holes: Vec<MissingRange> = Vec::new();
        for range in missing {
            let comes = within(range, &wants).into_iter();
            holes.extend(comes.map(|part| hole(part, Outlook::Subscribed)));
            let others = beside(range, &wants).into_iter();
            holes.extend(others.map(|part| hole(part, otherwise)));
        }
        holes.sort_unstable_by_key(|hole| hole.range.start());
        Ok(Some(SegmentMissing {
            segment,
            bytes,
            missing: holes,
        }))
    }

    fn sums(&self) -> Sums {
        let sum = |is_meant: &dyn Fn(&&MissingRange) -> bool| {
            let meant = self.missing.iter().filter(is_meant);
            meant.map(|hole| hole.range.len()).sum()
        };
        let comes = sum(&|hole| hole.outlook == Outlook::Subscribed);
        (self.bytes, sum(&|_| true), comes)
    }

    /// Report as a message; if the ranges are too many, of a part of the segment that contains
    /// `place`.
    fn message(self, place: u64) -> Message {
        let SegmentMissing {
            segment,
            bytes,
            mut missing,
        } = self;
        let (mut from, mut until) = (0, bytes);
        if missing.len() > HOLES_MAX {
            missing.retain(|hole| hole.range.end() > place);
            let first = missing.first();
            from = first.map_or(place, |hole| hole.range.start().min(place));
        }
        if missing.len() > HOLES_MAX {
            missing.truncate(HOLES_MAX);
            until = missing.last().map_or(bytes, |hole| hole.range.end());
        }
        Message::MissingRanges {
            segment,
            stretch: ByteRange::new(from, until),
            missing,
        }
    }
}

impl MissingReports {
    /// Forgets the reports: the next copy is another one.
    pub(crate) fn reset(&mut self) {
        self.segments.clear();
        self.wishes.clear();
        self.looked_at = None;
    }

    /// Makes the next search compare again, since the source counts its changes from the start.
    pub(crate) fn look_again(&mut self) {
        self.looked_at = None;
    }

    fn otherwise(&self) -> Outlook {
        match self.fetches_requested {
            true => Outlook::OnRequest,
            false => Outlook::Never,
        }
    }

    /// Missing ranges of a segment, around a requested offset.
    pub(crate) fn report(
        &mut self,
        source: &dyn Source,
        held: &PinnedState,
        (segment, place): (u64, u64),
    ) -> Result<Option<Message>> {
        let lacks = SegmentMissing::of(source, held, segment, self.otherwise())?;
        Ok(lacks.map(|lacks| {
            self.segments.insert(segment, lacks.sums());
            lacks.message(place)
        }))
    }

    /// Queues the missing ranges that were requested.
    pub(crate) fn wish(&mut self, segment: u64, missing: &[ByteRange]) {
        if !self.fetches_requested {
            return;
        }
        for range in missing {
            let wish = (segment, *range);
            if self.wishes.len() < WISHES_MAX && !self.wishes.contains(&wish) {
                self.wishes.push_back(wish);
            }
        }
    }

    /// Subscribes the source to the requested ranges.
    pub(crate) fn pass_on(&mut self, source: &dyn Source) {
        let wishes = std::mem::take(&mut self.wishes);
        for wish in wishes {
            let (segment, range) = wish;
            // A range that is refused because of too many requests is subscribed to later.
            if !source.wish(segment, range) {
                self.wishes.push_back(wish);
            }
        }
    }

    /// Changes since the last reports; each is reported if `may` allows it, or else the next time.
    pub(crate) fn changes(
        &mut self,
        source: &dyn Source,
        held: &PinnedState,
        may: &mut dyn FnMut(&Message) -> bool,
    ) -> Result<Vec<Message>> {
        let mut out = Vec::new();
        let changes = source.changes();
        if self.looked_at == Some(changes) {
            return Ok(out);
        }
        let known: Vec<_> = self.segments.iter().map(|(s, told)| (*s, *told)).collect();
        for (segment, told) in known {
            let lacks = SegmentMissing::of(source, held, segment, self.otherwise())?;
            let Some(lacks) = lacks else {
                self.segments.remove(&segment);
                self.wishes.retain(|(of, ..)| *of != segment);
                continue;
            };
            let now = lacks.sums();
            if now == told {
                continue;
            }
            let is_whole = lacks.missing.is_empty();
            let first = lacks.missing.first().map_or(0, |hole| hole.range.start());
            let message = lacks.message(first);
            if !may(&message) {
                return Ok(out);
            }
            match is_whole {
                true => drop(self.segments.remove(&segment)),
                false => drop(self.segments.insert(segment, now)),
            }
            out.push(message);
        }
        self.looked_at = Some(changes);
        Ok(out)
    }
}
