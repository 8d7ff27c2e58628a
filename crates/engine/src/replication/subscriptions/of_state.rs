//! What rules and pins say of the tables and streams of a state.
//!
//! Concurrency: plain data.

use super::{Pin, Rules, Want};
use crate::common::ids::{StreamId, TableId};
use crate::metadata::catalog::{Horizon, Life, decode_stream_key};
use crate::replication::state::State;
use headwater_types::ClosedRange;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is decided of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) want: Want,
    pub(crate) priority: u8,
}

/// A pin, and which streams it is of.
#[derive(Clone, Debug)]
struct Pinned {
    number: u64,
    table: TableId,
    /// `None` = all.
    streams: Option<BTreeSet<StreamId>>,
    range: ClosedRange,
}

/// What is wanted of a state.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    tables: BTreeMap<TableId, Outcome>,
    /// Those of which it is not what is decided of their table.
    streams: BTreeMap<StreamId, Outcome>,
    otherwise: Outcome,
    pins: Vec<Pinned>,
    /// Rows of streams of which summaries are wanted may be fetched ahead.
    pub(crate) looks_ahead: bool,
    /// For how long what the source cuts away is kept.
    kept_for: Duration,
}

impl From<Want> for Wanted {
    fn from(want: Want) -> Wanted {
        Wanted {
            tables: BTreeMap::new(),
            streams: BTreeMap::new(),
            otherwise: Outcome { want, priority: 0 },
            pins: Vec::new(),
            looks_ahead: false,
            kept_for: Duration::ZERO,
        }
    }
}

impl Wanted {
    pub(crate) fn of(rules: &Rules, pins: &BTreeMap<u64, Pin>, state: &State) -> Wanted {
        let tables = state.tables.iter();
        let mut wanted = Wanted {
            tables: tables.map(|t| (t.id, rules.of_table(&t.name))).collect(),
            looks_ahead: rules.ahead_bytes() > 0,
            kept_for: rules.kept_for,
            ..Wanted::from(rules.otherwise)
        };
        for (number, pin) in pins {
            // A dropped one may have had the same name.
            let mut alive = state.tables.iter().filter(|t| !t.life.dropped);
            if let Some(table) = alive.find(|t| t.name == pin.table) {
                wanted.pins.push(Pinned {
                    number: *number,
                    table: table.id,
                    streams: (!pin.tags.is_empty()).then(BTreeSet::new),
                    range: pin.range,
                });
            }
        }
        let has_tags = pins.values().any(|pin| !pin.tags.is_empty());
        if rules.looks_at_tags() || has_tags {
            wanted.look_at_streams(rules, pins, state);
        }
        wanted
    }

    fn look_at_streams(&mut self, rules: &Rules, pins: &BTreeMap<u64, Pin>, state: &State) {
        for record in &state.streams {
            let table = state.table(record.table);
            let name = table.and_then(|t| decode_stream_key(&t.name, &record.key).ok());
            // A key that is none names no stream that anybody could ask for.
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

    /// Something is kept that the source has cut away.
    pub(crate) fn keeps(&self) -> bool {
        !self.kept_for.is_zero()
    }

    /// Before which instant nothing is found: what is kept goes as a whole when its time has come.
    pub(crate) fn cut(&self, life: &Life) -> Horizon {
        match self.keeps() {
            true => Horizon::NONE,
            false => life.cut,
        }
    }

    /// Before which instant nothing is kept that ended before a horizon at the source.
    pub(crate) fn kept_from(&self, horizon: Horizon) -> Horizon {
        let instant = horizon.instant();
        instant.map_or(Horizon::NONE, |at| Horizon::behind(at, Some(self.kept_for)))
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
        let is_of = |p: &&Pinned| {
            let streams = p.streams.as_ref();
            p.table == table && streams.is_none_or(|streams| streams.contains(&stream))
        };
        let pins = self.pins.iter().filter(is_of);
        pins.map(|p| (p.number, p.range)).collect()
    }
}
