//! How a lake stands to a database: what is there, and what is not, and why.
//!
//! Invariant: nothing is changed.

use crate::day::Day;
use crate::error::{LakeError, Result};
use crate::names::folder_of;
use crate::plan::{Asked, Plan};
use crate::report::{Missing, Status, TableStatus};
use crate::table::Table;
use crate::wide::wide;
use headwater::Snapshot;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How a lake stands to a database.
///
/// # Errors
/// When the database or the lake cannot be read.
pub fn status(snapshot: &Snapshot, lake: &Path) -> Result<Status> {
    let lake = lake.canonicalize().map_err(|e| LakeError::io(lake, e))?;
    let mut status = Status::default();
    for table in snapshot.table_names() {
        status.tables.push(of_table(snapshot, &lake, &table)?);
    }
    for entry in fs::read_dir(&lake).map_err(|e| LakeError::io(&lake, e))? {
        let entry = entry.map_err(|e| LakeError::io(&lake, e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_of_table = status.tables.iter().any(|table| table.folder == name);
        if entry.path().join("metadata").is_dir() && !is_of_table {
            status.others.push(name);
        }
    }
    status.others.sort();
    Ok(status)
}

fn of_table(snapshot: &Snapshot, lake: &Path, name: &str) -> Result<TableStatus> {
    let folder = folder_of(name);
    let dir = lake.join(&folder);
    let mut told = TableStatus {
        table: name.to_owned(),
        folder,
        ..TableStatus::default()
    };
    let table = Table::find(&dir)?;
    let mut recorded = BTreeMap::new();
    let mut columns = crate::columns::Columns::new();
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
    let tags = snapshot.table_info(name)?.tags;
    let growth = columns.grown(&tags, &snapshot.fields(name)?);
    let plan = Plan::make(Asked {
        snapshot,
        table: name,
        columns: &growth.columns,
        stretches: snapshot.stretches(name)?,
        recorded: &recorded,
        all: growth.is_other,
        until: None,
    })?;
    told.days_kept = wide(plan.kept.len());
    let mut missing: BTreeMap<Day, String> = BTreeMap::new();
    for day in plan.due.keys() {
        let why = match recorded.contains_key(day) {
            true => "changed, or not known to be unchanged, since it was written",
            false => "not written yet",
        };
        missing.insert(*day, why.to_owned());
    }
    for day in &plan.gone {
        missing.insert(
            *day,
            "removed from the database since it was written".to_owned(),
        );
    }
    for day in plan.aged() {
        let why = "only aggregates remain in the database".to_owned();
        missing.entry(day).or_insert(why);
    }
    for (day, why) in &plan.blocked {
        missing.insert(*day, why.clone());
    }
    told.missing = Missing::collect(missing.into_iter());
    Ok(told)
}
