//! `SHOW SHARDS` and `SHOW SHARD GROUPS`: the partitions of time in which rows are stored.
//!
//! A partition is what InfluxDB calls a shard. Partitions of several tables over one span are one
//! shard of their database, and each shard is a group of its own.
//!
//! Invariant: a client that may not read all data does not see shards, since a span reveals when
//! something was measured; nor does the client of a front end that has only a snapshot.

use super::{Cell, Evaluator, POLICY, Series};
use crate::databases::Space;
use headwater::{Timestamp, Value};
use std::collections::BTreeSet;

/// A span of a database; its rows are before `end`.
struct Shard {
    database: String,
    start: Timestamp,
    end: Timestamp,
}

impl Evaluator<'_> {
    /// The shards of each database, numbered consecutively.
    fn spans(&self) -> Vec<Shard> {
        let Some(db) = self.changes.filter(|_| self.access.reads_all()) else {
            return Vec::new();
        };
        let partitions = db.partitions();
        let others = self.names.others().map(|name| {
            let space = Space::Other(name.to_owned());
            (name.to_owned(), space)
        });
        let main = std::iter::once((self.names.main().to_owned(), Space::Main));
        let mut out = Vec::new();
        for (database, space) in main.chain(others) {
            let own = partitions.iter().filter(|p| {
                self.names.measurement(&space, &p.table).is_some() && !p.range.is_empty()
            });
            let end = |last: Timestamp| Timestamp::from_nanos(last.as_nanos().saturating_add(1));
            let spans: BTreeSet<(Timestamp, Timestamp)> =
                own.map(|p| (p.range.first, end(p.range.last))).collect();
            out.extend(spans.into_iter().map(|(start, end)| Shard {
                database: database.clone(),
                start,
                end,
            }));
        }
        out
    }

    pub(super) fn shards(&self) -> Vec<Series> {
        let columns = [
            "id",
            "database",
            "retention_policy",
            "shard_group",
            "start_time",
            "end_time",
            "expiry_time",
            "owners",
        ];
        let empty = |name: &str| Series {
            name: name.to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            ..Series::default()
        };
        let mut out: Vec<Series> = Vec::new();
        for (number, shard) in (1_i64..).zip(self.spans()) {
            if out.last().is_none_or(|last| last.name != shard.database) {
                out.push(empty(&shard.database));
            }
            if let Some(series) = out.last_mut() {
                let number = || Cell::Value(Value::I64(number));
                series.cells.extend([
                    number(),
                    Cell::text(&shard.database),
                    Cell::text(POLICY),
                    number(),
                    Cell::Time(shard.start.as_nanos()),
                    Cell::Time(shard.end.as_nanos()),
                    Cell::text(""),
                    Cell::text(""),
                ]);
            }
        }
        if out.is_empty() {
            out.push(empty(self.database.unwrap_or(self.names.main())));
        }
        out
    }

    pub(super) fn shard_groups(&self) -> Series {
        let columns = [
            "id",
            "database",
            "retention_policy",
            "start_time",
            "end_time",
            "expiry_time",
        ];
        let cells = (1_i64..).zip(self.spans()).flat_map(|(number, shard)| {
            [
                Cell::Value(Value::I64(number)),
                Cell::text(shard.database),
                Cell::text(POLICY),
                Cell::Time(shard.start.as_nanos()),
                Cell::Time(shard.end.as_nanos()),
                Cell::text(""),
            ]
        });
        Series {
            name: "shard groups".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            cells: cells.collect(),
            ..Series::default()
        }
    }
}
