//! One state: at one sequence the owner, a reader beside it and the next opening answer alike; and
//! layouts that change while the database is open.

use super::compare::{rows_of, same_fields};
use super::world::{Trouble, World};
use crate::support::Fields;
use headwater_engine::{
    AggregateSpec, Bins, Database, FastTier, Reader, ScanSpec, Snapshot, TableInfo, TierParts,
};
use headwater_io::Survival;
use headwater_types::{ClosedRange, StreamName, Timestamp};
use std::collections::BTreeMap;

/// What a stream has: its rows, and of each field how many values aggregates know.
#[derive(Default)]
struct StreamContents {
    rows: Vec<(i64, Fields)>,
    counts: Vec<(String, u64)>,
}

/// The limits of a table, and its streams.
type TableContents = ((i64, i64), BTreeMap<StreamName, StreamContents>);
type Contents = BTreeMap<String, TableContents>;

fn all_of(tables: &[TableInfo], snapshot: &Snapshot) -> Result<Contents, String> {
    let whole = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let mut all = Contents::new();
    for table in tables {
        let mut streams = BTreeMap::new();
        for name in snapshot
            .streams(&table.name, &[])
            .map_err(|e| e.to_string())?
        {
            let rows = rows_of(snapshot, &name, &ScanSpec::default())?;
            let mut counts = Vec::new();
            for field in &table.fields {
                let bins = snapshot.aggregate(&name, &field.name, &whole);
                let bins = bins.map_err(|e| format!("{name}.{}: {e}", field.name))?;
                let count = bins.iter().map(|bin| bin.aggregate.count).sum();
                counts.push((field.name.clone(), count));
            }
            streams.insert(name, StreamContents { rows, counts });
        }
        let limit = |at: Option<Timestamp>| at.map_or(i64::MIN, Timestamp::as_nanos);
        let limits = (limit(table.cut), limit(table.aged_to));
        all.insert(table.name.clone(), (limits, streams));
    }
    Ok(all)
}

/// Where both know the same limits; at an opening they may go back. How many tables that were.
fn assert_same(own: &Contents, other: &Contents, what: &str) -> u64 {
    let names = |seen: &Contents| seen.keys().cloned().collect::<Vec<String>>();
    assert_eq!(names(own), names(other), "{what}");
    let mut compared = 0;
    for (table, (limits, streams)) in own {
        let (others, found) = &other[table];
        if others != limits {
            continue;
        }
        compared += 1;
        let none = StreamContents::default();
        for name in streams.keys().chain(found.keys()) {
            let (own, other) = (
                streams.get(name).unwrap_or(&none),
                found.get(name).unwrap_or(&none),
            );
            let is_same =
                |(a, b): &(&(i64, Fields), &(i64, Fields))| a.0 == b.0 && same_fields(&a.1, &b.1);
            let differs = own.rows.iter().zip(&other.rows).find(|pair| !is_same(pair));
            assert!(
                own.rows.len() == other.rows.len() && differs.is_none(),
                "{name}: {} rows at the owner, {} {what}; first of {differs:?}",
                own.rows.len(),
                other.rows.len()
            );
            assert_eq!(
                own.counts, other.counts,
                "{name}: what aggregates know {what}"
            );
        }
    }
    compared
}

impl World {
    /// Compares what the owner sees with what a reader beside it and the next opening see, after a
    /// kill or after a power cut that leaves what was synced.
    pub(super) fn agree(&mut self) {
        if self.must_reopen || self.trouble != Trouble::None {
            return;
        }
        // Where a clock is wrong, or nobody has stored anything for long, an opening may believe
        // another time, by which values expire; rows of a partition that cannot be read wait in
        // memory.
        let is_in_doubt = self.expires && !self.time.is_agreed();
        if is_in_doubt || self.db().partitions_unreadable() > 0 {
            return;
        }
        let snapshot = self.db().snapshot().unwrap();
        let own = all_of(&self.db().tables(), &snapshot);
        let own = own.unwrap_or_else(|e| panic!("the owner: {e}"));
        let beside = Reader::open_in(self.env_on(&self.disk), self.options.clone()).unwrap();
        let seen = all_of(&beside.tables(), &beside.snapshot()).unwrap();
        let mut compared = assert_same(&own, &seen, "beside it");
        // What was acknowledged is durable: nothing else need survive.
        let is_durable = self.acknowledged == 0 && self.ops.is_empty();
        let (what, survival) = match is_durable && self.step.is_multiple_of(2) {
            true => ("a power cut", Survival::Nothing),
            false => ("a kill", Survival::Everything),
        };
        let after = self.disk.after_crash_with(survival);
        let next = Database::open_in(self.env_on(&after), self.options.clone());
        let next = next.unwrap_or_else(|e| panic!("after {what}: {e}"));
        let seen = all_of(&next.tables(), &next.snapshot().unwrap()).unwrap();
        compared += assert_same(&own, &seen, &format!("after {what}"));
        self.transcript.add("tables agreed upon", compared);
    }

    /// Has other parts lie in a fast tier, or in another one, or nothing any more.
    pub(super) fn move_tier(&mut self) {
        if self.trouble == Trouble::Full || self.db().partitions_unreadable() > 0 {
            return;
        }
        let parts = self
            .random
            .pick(&["none", "log", "log,pins,index", "newest", "log,newest"]);
        let folder = self.random.pick(&["/fast", "/other"]);
        let parts: TierParts = parts.parse().unwrap();
        let tier = FastTier {
            folder: folder.into(),
            parts,
        };
        let wanted = (!parts.is_empty()).then_some(tier);
        self.log(format!("move to {wanted:?}"));
        match self.db().move_tier(wanted.as_ref()) {
            Ok(()) => {
                self.transcript.count("layouts changed");
                self.options.fast_dir = wanted.map(|tier| tier.folder);
                self.options.fast_parts = parts;
            }
            Err(error) => self.failed("changing the layout", &error),
        }
    }
}
