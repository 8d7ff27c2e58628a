//! Reported matches of a watch, and the events that follow from the current matches.
//!
//! A round contains all matches from [`Begin`] on. A new match is reported once no row that is
//! still to arrive, or may arrive within the allowed lateness, can change it; a reported match that
//! no longer exists is retracted. Matches that began before the time span of corrections are
//! *settled*: they are removed, and the search continues after them.
//!
//! Invariants: after each round, the matches that are reported and not retracted are the current
//! and decided matches. A version of a match is reported once. The watermark and the settled time
//! never decrease. A state is a function of its steps: the same steps give the same state.
//! Concurrency: plain data, one owner. Failure: `TooMany` matches for the memory of one watch; no
//! event is reported then.

use crate::event::{Event, EventKind, Key, Position, digest, position, put_position, small, text};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of unsettled matches of a watch.
pub const MATCHES_MAX: usize = 100_000;
/// Time for which versions of ended absences are retained.
const ENDED_NS: i64 = 86_400_000_000_000;
/// Maximum number of partitions whose search continues at another row.
const PARTITIONS_MAX: u64 = 1 << 32;

/// Position at which a search begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The watermark of the watch.
    pub watermark_ns: i64,
    /// Earliest time of the first row of a search.
    pub settled_ns: i64,
    /// Partitions whose search begins at another row.
    pub resume: BTreeMap<String, Position>,
}

impl Begin {
    /// Position at which the search of a partition begins.
    #[must_use]
    pub fn of(&self, partition: &str) -> Position {
        let begin = Position {
            time_ns: self.settled_ns,
            skip: 0,
        };
        self.resume.get(partition).copied().unwrap_or(begin)
    }
}

/// A match of the current round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// Identity of the match.
    pub key: Key,
    /// The time of its last row.
    pub last_ns: i64,
    /// Watermark from which on no in-order row can change the match.
    pub decided_ns: i64,
    /// Position at which the search continues after the match.
    pub next: Position,
    /// Result row of the statement, as a JSON object.
    pub row: String,
}

/// Durations of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum duration of a match.
    pub within_ns: i64,
    /// Time during which a match is corrected, from when it can no longer grow.
    pub corrections_ns: i64,
    /// True for a watch of absences: it reports streams without rows, not matches.
    pub absence: bool,
}

/// All current matches.
#[derive(Clone, Debug)]
pub struct Round {
    /// The wall clock.
    pub now_ns: i64,
    /// All rows up to this time are expected to be present.
    pub watermark_ns: i64,
    /// True if rows have been absent for so long that the watch no longer waits for rows.
    pub is_quiet: bool,
    /// All matches from the state's [`Begin`] on.
    pub matches: Vec<Match>,
    /// For an absence: time of the newest row of each group.
    pub newest: BTreeMap<String, i64>,
}

/// Changes of a round: its events, and the progress of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The watermark after the step.
    pub watermark_ns: i64,
    /// The settled time after the step.
    pub settled_ns: i64,
    /// Versions of unreported matches that began before this time are removed.
    pub forget_ns: i64,
    /// Events, in this order.
    pub events: Vec<Event>,
}

/// The matches exceed [`MATCHES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "more than {MATCHES_MAX} matches can still change: use a more selective pattern, or shorten WITHIN, lateness or corrections"
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    version: u32,
    /// True if the match is reported and not retracted.
    is_reported: bool,
    digest: [u8; 32],
    last_ns: i64,
    next: Position,
}

/// The reported matches of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    sequence: u64,
    watermark_ns: i64,
    settled_ns: i64,
    resume: BTreeMap<String, Position>,
    entries: BTreeMap<Key, Entry>,
}

impl State {
    /// State of a watch that searches from this time on.
    #[must_use]
    pub fn new(since_ns: i64) -> State {
        State {
            sequence: 0,
            watermark_ns: i64::MIN,
            settled_ns: since_ns,
            resume: BTreeMap::new(),
            entries: BTreeMap::new(),
        }
    }

    /// The number of the newest event; 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Watermark: all rows up to this time are expected to be present.
    #[must_use]
    pub fn watermark_ns(&self) -> i64 {
        self.watermark_ns
    }

    /// Settled time: matches that began before it are final.
    #[must_use]
    pub fn settled_ns(&self) -> i64 {
        self.settled_ns
    }

    /// Number of matches that are reported and neither retracted nor settled.
    #[must_use]
    pub fn live(&self) -> usize {
        self.entries
            .values()
            .filter(|entry| entry.is_reported)
            .count()
    }

    /// Position at which the next search begins.
    #[must_use]
    pub fn begin(&self) -> Begin {
        Begin {
            watermark_ns: self.watermark_ns,
            settled_ns: self.settled_ns,
            resume: self.resume.clone(),
        }
    }

    /// Skips sequence numbers, for the watch of a restored database.
    pub(crate) fn leap(&mut self, by: u64) {
        self.sequence = self.sequence.saturating_add(by);
    }

    /// Derives the events of a round.
    ///
    /// # Errors
    /// [`TooMany`] matches.
    pub fn step(&self, bounds: Bounds, round: &Round) -> Result<Step, TooMany> {
        let watermark_ns = self.watermark_ns.max(round.watermark_ns);
        let found: BTreeMap<&Key, &Match> = round.matches.iter().map(|f| (&f.key, f)).collect();
        assert_eq!(
            found.len(),
            round.matches.len(),
            "at most one match begins at a row"
        );
        assert!(
            round
                .matches
                .iter()
                .all(|f| f.key.first.time_ns >= self.settled_ns),
            "what is settled is not looked for"
        );
        let mut events = self.retractions(bounds, round, &found);
        let mut told = 0;
        for (key, found) in found {
            let entry = self.entries.get(key);
            let digest = digest(found.last_ns, &found.row);
            if entry.is_some_and(|entry| entry.is_reported && entry.digest == digest) {
                continue;
            }
            if found.decided_ns > watermark_ns && !round.is_quiet {
                continue;
            }
            told += 1;
            events.push(Event {
                sequence: 0,
                kind: EventKind::Match,
                key: key.clone(),
                version: entry.map_or(0, |entry| entry.version) + 1,
                last_ns: found.last_ns,
                next: found.next,
                reported_ns: round.now_ns,
                row: found.row.clone(),
            });
        }
        if self.entries.len() + told > MATCHES_MAX {
            return Err(TooMany);
        }
        for (event, sequence) in events.iter_mut().zip(self.sequence + 1..) {
            event.sequence = sequence;
        }
        Ok(Step {
            watermark_ns,
            settled_ns: self.settles(bounds, watermark_ns),
            forget_ns: match bounds.absence {
                true => watermark_ns.saturating_sub(ENDED_NS),
                false => i64::MIN,
            },
            events,
        })
    }

    /// Retractions and returns: reported matches that no longer exist, or exist with another
    /// result.
    fn retractions(
        &self,
        bounds: Bounds,
        round: &Round,
        found: &BTreeMap<&Key, &Match>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, entry) in self.entries.iter().filter(|(_, entry)| entry.is_reported) {
            let same = |f: &&Match| digest(f.last_ns, &f.row) == entry.digest;
            if found.get(key).copied().filter(same).is_some() {
                continue;
            }
            let newest = round.newest.get(&key.partition);
            let returned = bounds.absence && newest.is_some_and(|n| *n > key.first.time_ns);
            events.push(Event {
                sequence: 0,
                kind: if returned {
                    EventKind::Return
                } else {
                    EventKind::Retraction
                },
                key: key.clone(),
                version: entry.version,
                last_ns: entry.last_ns,
                next: entry.next,
                reported_ns: round.now_ns,
                row: "null".to_owned(),
            });
        }
        events
    }

    /// The time that a watermark settles.
    fn settles(&self, bounds: Bounds, watermark_ns: i64) -> i64 {
        let reach = bounds.within_ns.saturating_add(bounds.corrections_ns);
        let settled = watermark_ns.saturating_sub(reach);
        match bounds.absence {
            // A reported absence stays, however old its newest row is.
            true => self.settled_ns,
            false => self.settled_ns.max(settled),
        }
    }

    /// Whether a step without events is worth writing: without it, the next start would search the
    /// same rows again.
    #[must_use]
    pub fn is_worth(&self, bounds: Bounds, step: &Step) -> bool {
        let reach = bounds.within_ns.saturating_add(bounds.corrections_ns);
        let gone = step.settled_ns.saturating_sub(self.settled_ns);
        !step.events.is_empty() || gone > reach
    }

    /// Applies a step.
    pub fn apply(&mut self, step: &Step) {
        for event in &step.events {
            self.apply_event(event);
        }
        assert!(
            step.watermark_ns >= self.watermark_ns && step.settled_ns >= self.settled_ns,
            "a step goes on"
        );
        self.watermark_ns = step.watermark_ns;
        self.settle(step.settled_ns);
        // Versions are removed only with persisted steps, so that every reader removes the same
        // ones.
        if !step.events.is_empty() {
            let stays = |key: &Key, entry: &mut Entry| {
                entry.is_reported || key.first.time_ns >= step.forget_ns
            };
            self.entries.retain(stays);
        }
    }

    fn apply_event(&mut self, event: &Event) {
        assert_eq!(
            event.sequence,
            self.sequence + 1,
            "events follow each other"
        );
        self.sequence = event.sequence;
        let known = self.entries.get_mut(&event.key);
        match (event.kind, known) {
            (EventKind::Match, known) => {
                let version = known.map_or(0, |known| {
                    assert!(
                        !known.is_reported,
                        "a match is taken back before another is told"
                    );
                    known.version
                });
                assert_eq!(event.version, version + 1, "versions follow each other");
                let entry = Entry {
                    version: event.version,
                    is_reported: true,
                    digest: digest(event.last_ns, &event.row),
                    last_ns: event.last_ns,
                    next: event.next,
                };
                self.entries.insert(event.key.clone(), entry);
            }
            (EventKind::Retraction | EventKind::Return, Some(known)) => {
                assert!(
                    known.is_reported && known.version == event.version,
                    "what is taken back was told"
                );
                known.is_reported = false;
            }
            (EventKind::Retraction | EventKind::Return, None) => {
                unreachable!("what is taken back was told")
            }
        }
    }

    fn settle(&mut self, settled_ns: i64) {
        self.settled_ns = settled_ns;
        let begin = Position {
            time_ns: settled_ns,
            skip: 0,
        };
        let settled: Vec<Key> = self
            .entries
            .keys()
            .filter(|key| key.first < begin)
            .cloned()
            .collect();
        for key in settled {
            let Some(entry) = self.entries.remove(&key) else {
                unreachable!("its key was just seen")
            };
            if entry.is_reported && entry.next > begin {
                let resume = self.resume.entry(key.partition).or_insert(entry.next);
                *resume = (*resume).max(entry.next);
            }
        }
        self.resume.retain(|_, resume| *resume > begin);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.sequence);
        out.put_i64(self.watermark_ns);
        out.put_i64(self.settled_ns);
        out.put_varint(u64::try_from(self.resume.len()).unwrap_or(u64::MAX));
        for (partition, resume) in &self.resume {
            out.put_prefixed(partition.as_bytes());
            put_position(out, *resume);
        }
        out.put_varint(u64::try_from(self.entries.len()).unwrap_or(u64::MAX));
        for (key, entry) in &self.entries {
            out.put_prefixed(key.partition.as_bytes());
            put_position(out, key.first);
            out.put_varint(u64::from(entry.version));
            out.push(u8::from(entry.is_reported));
            out.extend_from_slice(&entry.digest);
            out.put_i64(entry.last_ns);
            put_position(out, entry.next);
        }
    }

    pub(crate) fn decode(from: &mut Cursor<'_>) -> Result<State, DecodeError> {
        let mut state = State::new(0);
        state.sequence = from.varint("the number of an event")?;
        state.watermark_ns = from.i64("a watermark")?;
        state.settled_ns = from.i64("the settled time")?;
        for _ in 0..from.varint_up_to(PARTITIONS_MAX, "the number of partitions")? {
            let partition = text(from, "a partition")?;
            state.resume.insert(partition, position(from)?);
        }
        let most = u64::try_from(MATCHES_MAX).unwrap_or(u64::MAX);
        for _ in 0..from.varint_up_to(most, "the number of matches")? {
            let key = Key {
                partition: text(from, "a partition")?,
                first: position(from)?,
            };
            let version = small(from, "a version")?;
            let is_reported = match from.u8("the flag of a reported match")? {
                0 => false,
                1 => true,
                _ => return Err(from.expected("0 or 1")),
            };
            let mut digest = [0; 32];
            digest.copy_from_slice(from.take(32, "a hash")?);
            let entry = Entry {
                version,
                is_reported,
                digest,
                last_ns: from.i64("the time of a last row")?,
                next: position(from)?,
            };
            state.entries.insert(key, entry);
        }
        Ok(state)
    }
}

impl Step {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_i64(self.watermark_ns);
        out.put_i64(self.settled_ns);
        out.put_i64(self.forget_ns);
        out.put_varint(u64::try_from(self.events.len()).unwrap_or(u64::MAX));
        for event in &self.events {
            event.encode(out);
        }
    }

    pub(crate) fn decode(from: &mut Cursor<'_>) -> Result<Step, DecodeError> {
        let watermark_ns = from.i64("a watermark")?;
        let settled_ns = from.i64("the settled time")?;
        let forget_ns = from.i64("the forgotten time")?;
        let mut events = Vec::new();
        // A change is at most a retraction and a new report of each match.
        let most = u64::try_from(2 * MATCHES_MAX).unwrap_or(u64::MAX);
        for _ in 0..from.varint_up_to(most, "the number of events")? {
            events.push(Event::decode(from)?);
        }
        Ok(Step {
            watermark_ns,
            settled_ns,
            forget_ns,
            events,
        })
    }

    /// Whether this step may follow on a state; a step from a damaged file may not.
    pub(crate) fn follows(&self, state: &State) -> bool {
        let mut sequence = state.sequence;
        let mut known: BTreeMap<&Key, (u32, bool)> = BTreeMap::new();
        for event in &self.events {
            let Some(next) = sequence.checked_add(1) else {
                return false;
            };
            sequence = next;
            let before = known.get(&event.key).copied().or_else(|| {
                let entry = state.entries.get(&event.key)?;
                Some((entry.version, entry.is_reported))
            });
            let fits = match event.kind {
                EventKind::Match => {
                    let (version, told) = before.unwrap_or((0, false));
                    !told && Some(event.version) == version.checked_add(1)
                }
                EventKind::Retraction | EventKind::Return => before == Some((event.version, true)),
            };
            if !fits || event.sequence != sequence {
                return false;
            }
            known.insert(&event.key, (event.version, event.kind == EventKind::Match));
        }
        self.watermark_ns >= state.watermark_ns && self.settled_ns >= state.settled_ns
    }
}
