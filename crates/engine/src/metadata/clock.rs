//! The time by which data ends, since data that a wrong clock ends cannot be restored.
//!
//! The clock is believed while it advances from the last believed instant like the monotonic clock,
//! and does not jump ahead by more than `clock_jump_max`; small jumps add up, and passing time
//! compensates for them. While the clock is not believed, time goes on from the last believed
//! instant, for each table, until the table's new rows confirm the clock: in as many stretches of
//! `clock_settle` as the jump has `clock_jump_max`, most streams that bring rows bring them at the
//! clock's time. One batch, one stream among others, or a passing hour is not enough.
//!
//! Invariants: the instant for a table is never after the clock; the metadata have only believed
//! instants and, while the clock is not believed, the evidence for it so far; so a restart does not
//! change which instant is believed. Concurrency: one lock; no other is taken under it; writers
//! take it only while the clock is not believed.

use crate::common::ids::{StreamId, TableId};
use crate::metadata::tables::PartitionRecord;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_io::Clock;
use headwater_types::invariant::wide;
use headwater_types::{ClosedRange, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The believed instant, under its name among the persisted counters, ns since 1970. Before
/// [`PERSISTED_BELIEVED`] was stored beside it, it was the clock's time, believed or not.
const PERSISTED_INSTANT: &str = "clock_ns";
/// 1 = the instant was believed.
const PERSISTED_BELIEVED: &str = "clock_believed";
/// Sum of the clock's jumps ahead, ns, less the time that has compensated for them.
const PERSISTED_JUMPED: &str = "clock_jumped_ns";
/// The number of the newest doubt; each clock that is not believed gets a new number.
const PERSISTED_DOUBT: &str = "clock_doubt";
/// Lead of the clock over the believed instant, ns as i64; 0 = the clock is believed.
const PERSISTED_AHEAD: &str = "clock_ahead_ns";
/// Time that the process has run under the clock that is not believed, ns.
const PERSISTED_RUN: &str = "clock_doubt_run_ns";
/// Followed by a table's number: the number of the doubt · 2^32 + stretches in which the table
/// confirmed the clock.
const PERSISTED_WITNESS: &str = "clock_witness_";

/// Maximum stretches needed to confirm a jump: at an hour each, a long weekend.
const STRETCHES_MAX: u64 = 96;
/// Minimum stretches needed to confirm a jump.
const STRETCHES_MIN: u64 = 2;
/// Maximum streams of a table that count as evidence in a stretch.
const STREAMS_MAX: usize = 4096;
/// 2020-01-01, ns since 1970. A clock that shows less was not set yet: advancing from such a time
/// is not a jump.
const SET_FROM: i64 = 1_577_836_800_000_000_000;
/// Share (1/n) of the events of a database that may be after the time that is used as their newest.
const STRAY_PART: u64 = 32;

/// Provides the believed instant.
#[derive(Debug)]
pub(crate) struct ClockGuard {
    jump_max: Duration,
    settle: Duration,
    state: Mutex<GuardState>,
    /// True while the clock is doubted, so that writers report evidence.
    doubts: AtomicBool,
    /// The fixed time of a past state, regardless of the clock.
    fixed: Option<ClockReading>,
}

#[derive(Debug, Default)]
struct GuardState {
    /// Believed instant as of the last reading; before the first, the persisted value.
    believed: Option<i64>,
    /// The believed instant was not in the metadata.
    is_guess: bool,
    /// Monotonic time of the last change of the metadata.
    persisted: Option<Duration>,
    /// Monotonic time of the last reading.
    monotonic: Option<Duration>,
    /// Sum of the clock's jumps ahead, ns, less the time that has compensated for them.
    jumped: i128,
    doubts_so_far: u64,
    doubt: Option<Doubt>,
}

/// A clock that is not believed.
#[derive(Debug)]
struct Doubt {
    number: u64,
    /// Lead of the clock over the believed instant, ns.
    ahead: i128,
    /// Time that the process has run under it.
    run: Duration,
    witnesses: BTreeMap<TableId, Witness>,
    /// Not yet reported in the log of this process.
    unreported: bool,
}

/// Evidence of a table's new rows for the clock.
#[derive(Debug, Default)]
struct Witness {
    /// Stretches of time that confirmed it.
    stretches: u64,
    /// Number of the present stretch.
    stretch: u64,
    /// Streams with rows in the present stretch, and whether their last rows had the clock's time.
    heard: HashMap<StreamId, bool>,
}

impl Witness {
    fn hear(&mut self, stretch: u64, stream: StreamId, bears_out: bool) {
        if self.stretch != stretch {
            let out = self.heard.values().filter(|h| **h).count();
            let against = self.heard.len() - out;
            if out > against {
                self.stretches += 1;
            } else if against > 0 {
                self.stretches = 0;
            }
            self.heard.clear();
            self.stretch = stretch;
        }
        if self.heard.len() < STREAMS_MAX || self.heard.contains_key(&stream) {
            self.heard.insert(stream, bears_out);
        }
    }
}

/// One reading of the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    clock: i64,
    /// The instant for tables that have not confirmed the clock; `None` = the clock is believed.
    instead: Option<i64>,
    borne_out: Vec<TableId>,
}

impl ClockReading {
    /// The instant by which data of a table end.
    pub(crate) fn of(&self, table: TableId) -> Timestamp {
        Timestamp::from_nanos(match self.instead {
            Some(instead) if !self.borne_out.contains(&table) => instead.min(self.clock),
            _ => self.clock,
        })
    }

    /// True when the clock itself is not believed.
    pub(crate) fn is_doubted(&self) -> bool {
        self.instead.is_some()
    }

    pub(crate) fn is_borne_out(&self, table: TableId) -> bool {
        self.borne_out.contains(&table)
    }

    /// The believed instant, without evidence of tables: never after the clock.
    pub(crate) fn believed(&self) -> Timestamp {
        Timestamp::from_nanos(self.instead.map_or(self.clock, |i| i.min(self.clock)))
    }

    #[cfg(test)]
    pub(crate) fn doubted<const N: usize>(clock: i64, instead: i64, out: [u32; N]) -> ClockReading {
        ClockReading {
            clock,
            instead: Some(instead),
            borne_out: out.map(TableId).to_vec(),
        }
    }

    /// Encodes the moment, for records that fix it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_i64(self.clock);
        out.put_u8(u8::from(self.instead.is_some()));
        if let Some(instead) = self.instead {
            out.put_i64(instead);
            out.put_varint(wide(self.borne_out.len()));
            for table in &self.borne_out {
                out.put_varint(u64::from(table.0));
            }
        }
    }

    /// Reads the output of [`ClockReading::put`].
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<ClockReading, DecodeError> {
        let clock = cursor.i64("instant of the clock")?;
        let mut moment = ClockReading {
            clock,
            instead: None,
            borne_out: Vec::new(),
        };
        match cursor.u8("clock distrust flag")? {
            0 => return Ok(moment),
            1 => moment.instead = Some(cursor.i64("trusted instant")?),
            _ => return Err(cursor.expected("0 or 1")),
        }
        let count = cursor.varint_up_to(wide(cursor.remaining()), "number of tables")?;
        for _ in 0..count {
            let table = cursor.varint_up_to(u64::from(u32::MAX), "table id")?;
            let table = u32::try_from(table).map_err(|_| cursor.expected("a table id"))?;
            moment.borne_out.push(TableId(table));
        }
        Ok(moment)
    }
}

/// The newest time, at most `at`, that more than a few events of the database reach; `at` without
/// events.
fn newest_of(partitions: &[&PartitionRecord], at: i64) -> i64 {
    let spans = partitions.iter().map(|p| EventSpan {
        range: p.span(),
        // An aged partition has a count of 0 events: it counts as at least one.
        events: p.events.max(1),
    });
    newest_of_spans(spans.collect(), Timestamp::from_nanos(at)).as_nanos()
}

/// Events within a stretch of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventSpan {
    pub(crate) range: ClosedRange,
    pub(crate) events: u64,
}

/// The newest time like [`newest_of`], of stretches of events.
fn newest_of_spans(mut spans: Vec<EventSpan>, at: Timestamp) -> Timestamp {
    spans.retain(|span| span.range.first <= at);
    spans.sort_unstable_by_key(|span| std::cmp::Reverse(span.range.last));
    let all: u64 = spans.iter().map(|span| span.events).sum();
    let mut later = 0;
    for span in spans {
        later += span.events;
        if later > all / STRAY_PART {
            return span.range.last.min(at);
        }
    }
    at
}

/// Counters of time for rebuilt metadata: the instant that the events of the database confirm, at
/// most the clock's. Without it a clock that has been wrong for long would be believed at once, and
/// would end all data that has expired by it.
pub(crate) fn borne_out_by(spans: Vec<EventSpan>, clock: Timestamp) -> Vec<(String, u64)> {
    match u64::try_from(newest_of_spans(spans, clock).as_nanos()) {
        Ok(instant) => vec![
            (PERSISTED_INSTANT.to_owned(), instant),
            (PERSISTED_BELIEVED.to_owned(), 1),
        ],
        Err(_) => Vec::new(),
    }
}

impl ClockGuard {
    /// `kept` is the output of [`ClockGuard::to_persist`] for the last commit.
    pub(crate) fn new(
        jump_max: Duration,
        settle: Duration,
        kept: &BTreeMap<String, u64>,
        partitions: &[&PartitionRecord],
    ) -> ClockGuard {
        let number = |name: &str| kept.get(name).copied().unwrap_or(0);
        let instant = kept
            .get(PERSISTED_INSTANT)
            .and_then(|ns| i64::try_from(*ns).ok());
        let is_believed = number(PERSISTED_BELIEVED) == 1;
        // Instants of earlier versions may come from a wrong clock, and rebuilt metadata have none:
        // the events prove a minimum time.
        let believed = match instant {
            Some(at) if is_believed => Some(at),
            at => Some(newest_of(partitions, at.unwrap_or(i64::MAX))).filter(|n| *n < i64::MAX),
        };
        let doubt = number(PERSISTED_DOUBT);
        let ahead = number(PERSISTED_AHEAD).cast_signed();
        let witnesses = kept.iter().filter_map(|(name, value)| {
            let table = name.strip_prefix(PERSISTED_WITNESS)?.parse().ok()?;
            let stretches = value & u64::from(u32::MAX);
            let witness = Witness {
                stretches,
                ..Witness::default()
            };
            (value >> 32 == doubt).then_some((TableId(table), witness))
        });
        let doubted = (is_believed && ahead != 0).then(|| Doubt {
            number: doubt,
            ahead: i128::from(ahead),
            run: Duration::from_nanos(number(PERSISTED_RUN)),
            witnesses: witnesses.collect(),
            unreported: true,
        });
        ClockGuard {
            jump_max,
            settle: settle.max(Duration::from_nanos(1)),
            fixed: None,
            doubts: AtomicBool::new(doubted.is_some()),
            state: Mutex::new(GuardState {
                believed,
                is_guess: !is_believed,
                persisted: None,
                monotonic: None,
                jumped: i128::from(number(PERSISTED_JUMPED)),
                doubts_so_far: doubt,
                doubt: doubted,
            }),
        }
    }

    /// The guard, fixed at this moment for ever if there is one.
    pub(crate) fn at(self, fixed: Option<ClockReading>) -> ClockGuard {
        ClockGuard { fixed, ..self }
    }

    fn jump_max(&self) -> i128 {
        self.jump_max.as_nanos().max(1).cast_signed()
    }

    /// Number of stretches that must confirm a clock so far ahead.
    fn stretches_needed(&self, ahead: i128) -> u64 {
        let jumps = ahead
            .unsigned_abs()
            .div_ceil(self.jump_max().unsigned_abs());
        u64::try_from(jumps)
            .unwrap_or(u64::MAX)
            .clamp(STRETCHES_MIN, STRETCHES_MAX)
    }

    /// True before the first reading in a new database.
    pub(crate) fn knows_nothing(&self) -> bool {
        self.state.lock().believed.is_none()
    }

    /// Reads the clock.
    pub(crate) fn look(&self, clock: &dyn Clock) -> ClockReading {
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let mut state = self.state.lock();
        self.look_at(&mut state, clock)
    }

    fn look_at(&self, state: &mut GuardState, clock: &dyn Clock) -> ClockReading {
        let (wall, monotonic) = (clock.now().as_nanos(), clock.monotonic());
        let passed = state
            .monotonic
            .map_or(Duration::ZERO, |m| monotonic.saturating_sub(m));
        state.monotonic = Some(monotonic);
        let passed_ns = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        let mut believed = state.believed.map(|b| b.saturating_add(passed_ns));
        if std::mem::take(&mut state.is_guess) {
            believed = believed.map(|b| b.min(wall));
        }
        let jump_max = self.jump_max();
        let made_up = i128::from(passed_ns).saturating_mul(jump_max)
            / self.settle.as_nanos().max(1).cast_signed();
        state.jumped = (state.jumped - made_up).max(0);
        let was_set = believed.is_none_or(|b| b < SET_FROM && wall >= SET_FROM);
        let expected = believed.filter(|_| !was_set).unwrap_or(wall);
        let ahead = i128::from(wall) - i128::from(expected);
        if ahead.abs() <= jump_max && state.jumped + ahead.max(0) <= jump_max {
            state.jumped += ahead.max(0);
            state.believed = Some(wall);
            self.believe(state, wall);
            return ClockReading {
                clock: wall,
                instead: None,
                borne_out: Vec::new(),
            };
        }
        state.believed = Some(expected);
        let same = |doubt: &Doubt| (doubt.ahead - ahead).abs() <= jump_max;
        if let Some(doubt) = state.doubt.as_mut().filter(|d| same(d)) {
            doubt.run += passed;
            doubt.ahead = ahead;
        } else {
            state.doubts_so_far += 1;
            state.doubt = Some(Doubt {
                number: state.doubts_so_far,
                ahead,
                run: Duration::ZERO,
                witnesses: BTreeMap::new(),
                unreported: true,
            });
            self.doubts.store(true, Ordering::Release);
        }
        let needed = self.stretches_needed(ahead);
        let mut borne_out = Vec::new();
        if let Some(doubt) = &mut state.doubt {
            if std::mem::take(&mut doubt.unreported) {
                self.report(wall, expected, needed);
            }
            let out = doubt
                .witnesses
                .iter()
                .filter(|(_, w)| w.stretches >= needed);
            borne_out.extend(out.map(|(table, _)| *table));
        }
        ClockReading {
            clock: wall,
            instead: Some(expected),
            borne_out,
        }
    }

    fn report(&self, clock: i64, expected: i64, needed: u64) {
        let (clock, expected) = (
            Timestamp::from_nanos(clock).to_string(),
            Timestamp::from_nanos(expected).to_string(),
        );
        tracing::warn!(
            clock,
            expected,
            "the clock jumped and is not trusted: retention, aging and expiry use the expected time (or the clock, where that is earlier). If the clock is wrong, correct it. If it is right, each table trusts it once new rows of the table confirm it in {needed} intervals of {:?}; to trust it at once, set clock_jump_max above the difference and reopen the database",
            self.settle
        );
    }

    fn believe(&self, state: &mut GuardState, wall: i64) {
        if state.doubt.take().is_some() {
            self.doubts.store(false, Ordering::Release);
            let clock = Timestamp::from_nanos(wall).to_string();
            tracing::info!(clock, "the clock is trusted again");
        }
    }

    /// Every table that could lose data has confirmed the clock: from now on it is believed.
    pub(crate) fn settle(&self, clock: &dyn Clock) {
        let mut state = self.state.lock();
        let wall = clock.now().as_nanos();
        state.monotonic = Some(clock.monotonic());
        state.believed = Some(wall);
        state.jumped = 0;
        self.believe(&mut state, wall);
    }

    /// Records the times of rows that a stream has just brought, as evidence.
    pub(crate) fn hear(&self, clock: &dyn Clock, table: TableId, stream: StreamId, times: &[i64]) {
        if !self.doubts.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        self.look_at(&mut state, clock);
        let wall = clock.now().as_nanos();
        let jump_max = self.jump_max();
        let near = |time: &&i64| (i128::from(**time) - i128::from(wall)).abs() <= jump_max;
        let bears_out = times.iter().filter(near).count() * 2 > times.len();
        if let Some(doubt) = &mut state.doubt {
            let stretch = doubt.run.as_nanos() / self.settle.as_nanos().max(1);
            let stretch = u64::try_from(stretch).unwrap_or(u64::MAX);
            let witness = doubt.witnesses.entry(table).or_default();
            witness.hear(stretch, stream, bears_out);
        }
    }

    /// True when the persisted instant is so old that an opening after a power cut would treat the
    /// difference as a jump.
    pub(crate) fn must_be_persisted(&self, clock: &dyn Clock) -> bool {
        let state = self.state.lock();
        let since = state.persisted.unwrap_or_default();
        clock.monotonic().saturating_sub(since) > self.jump_max / 4
    }

    /// Counters for the metadata, by name.
    pub(crate) fn to_persist(&self, clock: &dyn Clock) -> Vec<(String, u64)> {
        let mut state = self.state.lock();
        self.look_at(&mut state, clock);
        state.persisted = state.monotonic;
        let believed = state.believed.unwrap_or(0).max(0).unsigned_abs();
        let mut kept = vec![
            (PERSISTED_INSTANT.to_owned(), believed),
            (PERSISTED_BELIEVED.to_owned(), 1),
            (
                PERSISTED_JUMPED.to_owned(),
                u64::try_from(state.jumped).unwrap_or(u64::MAX),
            ),
            (PERSISTED_DOUBT.to_owned(), state.doubts_so_far),
        ];
        let doubt = state.doubt.as_ref();
        let bound = |ahead: i128| ahead.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let ahead = doubt.map_or(0, |d| bound(d.ahead));
        let run = doubt.map_or(0, |d| d.run.as_nanos());
        kept.push((PERSISTED_AHEAD.to_owned(), ahead.cast_unsigned()));
        kept.push((
            PERSISTED_RUN.to_owned(),
            u64::try_from(run).unwrap_or(u64::MAX),
        ));
        for (doubt, (table, witness)) in doubt
            .iter()
            .flat_map(|d| d.witnesses.iter().map(move |w| (d, w)))
        {
            let stretches = witness.stretches.min(u64::from(u32::MAX));
            kept.push((
                format!("{PERSISTED_WITNESS}{}", table.0),
                doubt.number << 32 | stretches,
            ));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_io::ManualClock;

    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: i64 = 1_700_000_000_000_000_000;
    const LATER: i64 = 1_800_000_000_000_000_000;
    const TABLE: TableId = TableId(3);

    fn guard(kept: Vec<(String, u64)>) -> ClockGuard {
        ClockGuard::new(DAY, HOUR, &kept.into_iter().collect(), &[])
    }

    fn at(ns: i64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    #[test]
    fn a_clock_that_jumps_is_not_believed_and_time_goes_on() {
        let clock = ManualClock::new(at(NOW));
        let guard = guard(Vec::new());
        let now = || guard.look(&clock).of(TABLE).as_nanos();
        assert_eq!(now(), NOW);
        clock.advance(DAY * 3);
        assert_eq!(now(), clock.now().as_nanos(), "time passed, nothing jumped");
        let before = now();
        clock.set(at(LATER));
        assert_eq!(now(), before);
        clock.advance(HOUR * 200);
        assert_eq!(now(), before + 200 * 3600 * 1_000_000_000);
        clock.set(at(before));
        clock.advance(HOUR * 201);
        assert_eq!(now(), clock.now().as_nanos(), "put right again");
        clock.set(at(5));
        assert_eq!(now(), 5, "nothing ends before the clock says so");
    }

    #[test]
    fn an_opening_changes_nothing_about_what_is_believed() {
        let clock = ManualClock::new(at(NOW));
        let mut kept = guard(Vec::new()).to_persist(&clock);
        clock.set(at(LATER));
        for round in 0..5i64 {
            let guard = guard(kept);
            assert_eq!(
                guard.look(&clock).of(TABLE).as_nanos(),
                NOW + round * 1_000_000_000
            );
            clock.advance(Duration::from_secs(1));
            kept = guard.to_persist(&clock);
        }
        clock.set(at(NOW));
        assert_eq!(guard(kept).look(&clock).of(TABLE).as_nanos(), NOW);
    }

    #[test]
    fn most_streams_of_a_table_bear_a_clock_out_over_openings() {
        for others in [0, 1, 2] {
            let clock = ManualClock::new(at(NOW));
            let mut kept = guard(Vec::new()).to_persist(&clock);
            clock.set(at(LATER));
            for round in 0..110 {
                let guard = guard(kept);
                for id in 0..2 {
                    guard.hear(&clock, TABLE, StreamId(id), &[clock.now().as_nanos()]);
                }
                for id in 0..others {
                    guard.hear(&clock, TABLE, StreamId(10 + id), &[NOW]);
                }
                let moment = guard.look(&clock);
                assert!(!moment.is_borne_out(TABLE) || round > 90, "round {round}");
                assert!(moment.of(TableId(9)).as_nanos() < LATER);
                // A stretch is reported only when the next has begun.
                clock.advance(HOUR);
                guard.hear(&clock, TABLE, StreamId(0), &[clock.now().as_nanos()]);
                kept = guard.to_persist(&clock);
            }
            let now = guard(kept).look(&clock).of(TABLE).as_nanos();
            assert_eq!(now >= LATER, others < 2, "{others} others");
        }
    }

    #[test]
    fn a_kept_clock_that_nobody_believed_is_held_against_the_events() {
        let record = |level, at_ns: i64, events| {
            let level = headwater_types::Level::clamped(level);
            PartitionRecord {
                events,
                level,
                bucket: level.bucket_of(at(at_ns)),
                ..PartitionRecord::of_nothing()
            }
        };
        let (old, stray) = (record(17, NOW, 1000), record(17, LATER, 3));
        let span_last = old.span().last.as_nanos();
        assert_eq!(newest_of(&[&old, &stray], LATER + 5), span_last);
        assert_eq!(newest_of(&[&old], NOW), NOW);
        assert_eq!(newest_of(&[], NOW), NOW);
        let many = record(17, LATER, 500);
        assert_eq!(newest_of(&[&old, &many], LATER), LATER);
    }

    #[test]
    fn a_clock_that_was_never_set_is_believed_when_it_is() {
        let clock = ManualClock::new(at(1_000_000_000));
        let mut kept = guard(Vec::new()).to_persist(&clock);
        clock.set(at(NOW));
        assert_eq!(guard(kept).look(&clock).of(TABLE).as_nanos(), NOW);
        kept = guard(Vec::new()).to_persist(&clock);
        // Later the battery is flat.
        clock.set(at(0));
        let guard = guard(kept);
        assert_eq!(guard.look(&clock).of(TABLE).as_nanos(), 0);
        clock.set(at(NOW + 1_000_000_000));
        assert_eq!(guard.look(&clock).of(TABLE).as_nanos(), NOW + 1_000_000_000);
    }
}
