//! Status of a lake beside its database: days that are there, days that are missing, and why.
//!
//! Invariant: read-only.

use crate::columns::Columns;
use crate::day::Day;
use crate::error::Result;
use crate::location::LakeLocation;
use crate::metadata::Recorded;
use crate::names::folder_of;
use crate::plan::{Plan, PlanRequest};
use crate::report::{Missing, Status, TableStatus};
use crate::rollup::{Rollup, SUFFIX, grown};
use crate::table::Table;
use headwater::Snapshot;
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, BTreeSet};

/// Status of a lake beside its database.
///
/// # Errors
/// When the database or the lake cannot be read.
pub fn status(snapshot: &Snapshot, lake: impl Into<LakeLocation>) -> Result<Status> {
    let lake = lake.into().existing()?;
    let mut status = Status::default();
    for table in snapshot.table_names() {
        for is_rollup in [false, true] {
            let told = of_table(snapshot, &lake, (&table, is_rollup))?;
            status.tables.extend(told);
        }
    }
    for name in lake.folders(lake.root())? {
        let is_of_table = status.tables.iter().any(|table| table.folder == name);
        if !is_of_table && lake.newest(&lake.root().join(&name))?.is_some() {
            status.others.push(name);
        }
    }
    Ok(status)
}

/// Status of a table; `None` = the database has no aged data, so there is no rollup.
fn of_table(
    snapshot: &Snapshot,
    lake: &LakeLocation,
    (name, is_rollup): (&str, bool),
) -> Result<Option<TableStatus>> {
    let suffix = if is_rollup { SUFFIX } else { "" };
    let folder = format!("{}{suffix}", folder_of(name));
    let dir = lake.root().join(&folder);
    let mut told = TableStatus {
        table: format!("{name}{suffix}"),
        folder,
        ..TableStatus::default()
    };
    let table = Table::find(lake, &dir)?;
    let table = table.filter(|table| table.metadata.is_of(name, is_rollup));
    let stretches = snapshot.stretches(name)?;
    if is_rollup && table.is_none() && !stretches.all.iter().any(|s| s.is_aged) {
        return Ok(None);
    }
    let mut recorded = BTreeMap::new();
    let mut columns = Columns::new();
    if let Some(table) = &table {
        recorded = table.metadata.days(&dir)?;
        columns = table.metadata.columns(&dir)?;
        told.version = table.version;
        let current = table.metadata.current();
        told.snapshot = current.map(|s| s.snapshot_id);
        told.committed_ms = current.map(|s| s.timestamp_ms);
        let files = table.files()?;
        told.days = wide(files.len());
        for file in files.values().flatten() {
            told.files += 1;
            told.rows += file.rows;
            told.bytes += file.bytes;
        }
    }
    let growth = grown(snapshot, (name, is_rollup), &columns)?;
    let rollup = || Rollup::of(snapshot, name, &stretches, &growth.columns);
    let rollup = is_rollup.then(rollup).transpose()?;
    let plan = Plan::make(PlanRequest {
        snapshot,
        table: name,
        columns: &growth.columns,
        stretches,
        recorded: &recorded,
        all: growth.is_other,
        rollup,
        until: None,
    })?;
    told.days_kept = wide(plan.retained.len());
    let missing = missing(&plan, snapshot, (&growth.columns, &recorded), is_rollup)?;
    told.missing = Missing::collect(missing.into_iter());
    Ok(Some(told))
}

/// Days that differ between table and database, with reasons.
fn missing(
    plan: &Plan,
    snapshot: &Snapshot,
    (columns, recorded): (&Columns, &BTreeMap<Day, Recorded>),
    is_rollup: bool,
) -> Result<BTreeMap<Day, String>> {
    let mut missing: BTreeMap<Day, String> = BTreeMap::new();
    for day in plan.due.keys().filter(|day| recorded.contains_key(day)) {
        let why = "changed, or possibly changed, since it was written";
        missing.insert(*day, why.to_owned());
    }
    for day in plan.absent(snapshot, columns, recorded)? {
        missing.insert(day, "not written yet".to_owned());
    }
    for day in &plan.emptied {
        missing.insert(
            *day,
            "removed from the database since it was written".to_owned(),
        );
    }
    let aged = if is_rollup {
        BTreeSet::new()
    } else {
        plan.aged()
    };
    for day in aged {
        let why = "only aggregates remain in the database".to_owned();
        missing.entry(day).or_insert(why);
    }
    for (day, why) in &plan.blocked {
        missing.insert(*day, why.clone());
    }
    Ok(missing)
}
