//! Rules and pins, applied to the tables and streams of a state.
//!
//! Concurrency: plain data.

use super::{Pin, ReplicationRules, StreamShare};
use crate::common::ids::{StreamId, TableId};
use crate::metadata::catalog::{Cutoff, TableLifetime, decode_stream_key};
use crate::replication::state::State;
use headwater_types::ClosedRange;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The decision of rules on streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) want: StreamShare,
    pub(crate) priority: u8,
}

/// A pin, and its streams.
#[derive(Clone, Debug)]
struct ResolvedPin {
    number: u64,
    table: TableId,
    /// `None` = all.
    streams: Option<BTreeSet<StreamId>>,
    range: ClosedRange,
}

/// The subscription to a state.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    tables: BTreeMap<TableId, Outcome>,
    /// Streams with another outcome than their table.
    streams: BTreeMap<StreamId, Outcome>,
    otherwise: Outcome,
    pins: Vec<ResolvedPin>,
    /// Rows of streams with summaries only may be prefetched.
    pub(crate) looks_ahead: bool,
    /// The time for which data that the source removed is retained.
    retained_for: Duration,
}

impl From<StreamShare> for Subscription {
    fn from(want: StreamShare) -> Subscription {
        Subscription {
            tables: BTreeMap::new(),
            streams: BTreeMap::new(),
            otherwise: Outcome { want, priority: 0 },
            pins: Vec::new(),
            looks_ahead: false,
            retained_for: Duration::ZERO,
        }
    }
}

impl Subscription {
    pub(crate) fn of(
        rules: &ReplicationRules,
        pins: &BTreeMap<u64, Pin>,
        state: &State,
    ) -> Subscription {
        let tables = state.tables.iter();
        let mut subscription = Subscription {
            tables: tables.map(|t| (t.id, rules.of_table(&t.name))).collect(),
            looks_ahead: rules.ahead_bytes() > 0,
            retained_for: rules.retained_for,
            ..Subscription::from(rules.otherwise)
        };
        for (number, pin) in pins {
            // A dropped one may have had the same name.
            let mut alive = state.tables.iter().filter(|t| !t.lifetime.dropped);
            if let Some(table) = alive.find(|t| t.name == pin.table) {
                subscription.pins.push(ResolvedPin {
                    number: *number,
                    table: table.id,
                    streams: (!pin.tags.is_empty()).then(BTreeSet::new),
                    range: pin.range,
                });
            }
        }
        let has_tags = pins.values().any(|pin| !pin.tags.is_empty());
        if rules.looks_at_tags() || has_tags {
            subscription.look_at_streams(rules, pins, state);
        }
        subscription
    }

    fn look_at_streams(
        &mut self,
        rules: &ReplicationRules,
        pins: &BTreeMap<u64, Pin>,
        state: &State,
    ) {
        for record in state.streams.iter() {
            let table = state.table(record.table);
            let name = table.and_then(|t| decode_stream_key(&t.name, &record.key).ok());
            // A stream with an invalid key cannot be selected by a rule.
            if let Some(name) = name {
                let outcome = rules.of_stream(name.table(), name.tags());
                if outcome != self.of_table(record.table) {
                    self.streams.insert(record.id, outcome);
                }
                for pinned in self.pins.iter_mut().filter(|p| p.table == record.table) {
                    let pin = pins.get(&pinned.number);
                    let fits = |pin: &Pin| pin.tags.iter().all(|tag| name.tags().contains(tag));
                    if let Some(streams) = &mut pinned.streams
                        && pin.is_some_and(fits)
                    {
                        streams.insert(record.id);
                    }
                }
            }
        }
    }

    /// True when data that the source has removed is retained.
    pub(crate) fn retains(&self) -> bool {
        !self.retained_for.is_zero()
    }

    /// The cutoff before which no rows are shown: retained data is removed as a whole when its
    /// time has come.
    pub(crate) fn cutoff(&self, lifetime: &TableLifetime) -> Cutoff {
        match self.retains() {
            true => Cutoff::NONE,
            false => lifetime.retention_cutoff,
        }
    }

    /// The cutoff before which data is not retained that ended before `cutoff` at the source.
    pub(crate) fn retained_from(&self, cutoff: Cutoff) -> Cutoff {
        let instant = cutoff.instant();
        instant.map_or(Cutoff::NONE, |at| {
            Cutoff::behind(at, Some(self.retained_for))
        })
    }

    pub(crate) fn of_table(&self, table: TableId) -> Outcome {
        self.tables.get(&table).copied().unwrap_or(self.otherwise)
    }

    pub(crate) fn of_stream(&self, table: TableId, stream: StreamId) -> Outcome {
        let known = self.streams.get(&stream).copied();
        known.unwrap_or_else(|| self.of_table(table))
    }

    /// Pins of a stream: number and range.
    pub(crate) fn pins(&self, table: TableId, stream: StreamId) -> Vec<(u64, ClosedRange)> {
        let is_of = |p: &&ResolvedPin| {
            let streams = p.streams.as_ref();
            p.table == table && streams.is_none_or(|streams| streams.contains(&stream))
        };
        let pins = self.pins.iter().filter(is_of);
        pins.map(|p| (p.number, p.range)).collect()
    }
}
