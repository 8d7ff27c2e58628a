//! Comparison of a lake with its database: by counts, or row by row.
//!
//! Invariants: read-only. Days that the database has changed since are behind and not wrong; a day
//! that it reports as unchanged has to be equal. Memory: as a write, and a row group in a reader of
//! Parquet.

use crate::columns::{ColumnKind, Columns};
use crate::day::Day;
use crate::error::{LakeError, Result};
use crate::location::LakeLocation;
use crate::manifest::DataFile;
use crate::metadata::Recorded;
use crate::names::folder_of;
use crate::plan::{DayRows, Plan, PlanRequest, is_local};
use crate::report::{Blocked, Difference, TableVerified, Verified};
use crate::rollup::{Rollup, SUFFIX, grown};
use crate::rows::{ColumnKey, Fingerprint, column_keys};
use crate::table::Table;
use headwater::Snapshot;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Compares a lake with a database: for each day the number of rows in the database with the
/// numbers stated by the table and its files; with `deep` also all values.
///
/// # Errors
/// If the database or the lake cannot be read; a mismatch is not an error.
pub fn verify(snapshot: &Snapshot, lake: impl Into<LakeLocation>, deep: bool) -> Result<Verified> {
    let lake = lake.into().existing()?;
    let mut verified = Verified::default();
    for name in snapshot.table_names() {
        let told = of_table(snapshot, &lake, (&name, false), deep)?;
        verified.tables.push(told.unwrap_or_else(|| TableVerified {
            table: name.clone(),
            ..TableVerified::default()
        }));
        let rollup = of_table(snapshot, &lake, (&name, true), deep)?;
        verified.tables.extend(rollup);
    }
    Ok(verified)
}

/// Result of a table; `None` = the table is not in the lake.
fn of_table(
    snapshot: &Snapshot,
    lake: &LakeLocation,
    (name, is_rollup): (&str, bool),
    deep: bool,
) -> Result<Option<TableVerified>> {
    let suffix = if is_rollup { SUFFIX } else { "" };
    let dir = lake.root().join(format!("{}{suffix}", folder_of(name)));
    let table = Table::find(lake, &dir)?;
    let Some(table) = table.filter(|table| table.metadata.is_of(name, is_rollup)) else {
        return Ok(None);
    };
    let mut check = Check {
        snapshot,
        location: lake,
        deep,
        sizes: lake.sizes(&dir.join("data"))?,
        report: TableVerified {
            table: format!("{name}{suffix}"),
            ..TableVerified::default()
        },
    };
    check.table((name, is_rollup), &table)?;
    Ok(Some(check.report))
}

struct Check<'a> {
    snapshot: &'a Snapshot,
    location: &'a LakeLocation,
    deep: bool,
    /// Sizes of files as listed; `None` = each is looked up.
    sizes: Option<BTreeMap<PathBuf, u64>>,
    report: TableVerified,
}

impl Check<'_> {
    fn table(&mut self, (name, is_rollup): (&str, bool), table: &Table) -> Result<()> {
        let recorded = table.metadata.days(&table.dir)?;
        let columns = table.metadata.columns(&table.dir)?;
        let growth = grown(self.snapshot, (name, is_rollup), &columns)?;
        let stretches = self.snapshot.stretches(name)?;
        let rollup = || Rollup::of(self.snapshot, name, &stretches, &growth.columns);
        let rollup = is_rollup.then(rollup).transpose()?;
        let plan = Plan::make(PlanRequest {
            snapshot: self.snapshot,
            table: name,
            columns: &growth.columns,
            stretches,
            recorded: &recorded,
            all: true,
            rollup,
            until: None,
        })?;
        let files = table.files()?;
        let days: BTreeSet<Day> = recorded.keys().chain(files.keys()).copied().collect();
        for day in days {
            let of = recorded.get(&day);
            let none = Vec::new();
            let files = files.get(&day).unwrap_or(&none);
            let Some(of) = of.filter(|of| self.files_agree(day, of, files)) else {
                if of.is_none() {
                    self.differs(day, "files of a day that was not committed".into());
                }
                continue;
            };
            let held = match self.deep {
                true => match read_all(self.location, &columns, files) {
                    Ok(held) => held,
                    Err(error) => {
                        self.differs(day, error.to_string());
                        continue;
                    }
                },
                false => Fingerprint {
                    rows: of.rows,
                    sum: 0,
                },
            };
            if self.deep && format!("{:032x}", held.sum) != of.sum {
                self.differs(
                    day,
                    "the values in its files differ from the committed ones".into(),
                );
                continue;
            }
            self.day(&plan, &columns, (day, of), held, growth.is_other)?;
        }
        let absent = plan.absent(self.snapshot, &growth.columns, &recorded)?;
        self.report.days_behind += headwater_types::invariant::wide(absent.len());
        let blocked = plan.blocked.into_iter();
        self.report
            .blocked
            .extend(blocked.map(|(day, why)| Blocked { day, why }));
        Ok(())
    }

    fn differs(&mut self, day: Day, what: String) {
        self.report.differences.push(Difference { day, what });
    }

    /// Whether files are there with as many rows and bytes as was committed.
    fn files_agree(&mut self, day: Day, of: &Recorded, files: &[DataFile]) -> bool {
        let before = self.report.differences.len();
        let listed: u64 = files.iter().map(|file| file.rows).sum();
        if listed != of.rows {
            let what = format!(
                "{} rows were committed; the manifests list {listed}",
                of.rows
            );
            self.differs(day, what);
        }
        for file in files {
            match self.counted(file) {
                Ok((rows, bytes)) if (rows, bytes) == (file.rows, file.bytes) => {}
                Ok((rows, bytes)) => {
                    let what = format!(
                        "{}: expected {} rows in {} bytes; found {rows} in {bytes}",
                        file.path, file.rows, file.bytes
                    );
                    self.differs(day, what);
                }
                Err(error) => self.differs(day, error.to_string()),
            }
        }
        self.report.differences.len() == before
    }

    /// Rows and bytes of a file, as stated by the file itself.
    fn counted(&self, file: &DataFile) -> Result<(u64, u64)> {
        let path = Path::new(&file.path);
        let bytes = match &self.sizes {
            Some(sizes) => *sizes.get(path).ok_or_else(|| LakeError::missing(path))?,
            None => std::fs::metadata(path)
                .map_err(|e| LakeError::io(path, e))?
                .len(),
        };
        let rows = self.location.rows(path, bytes)?;
        let rows = u64::try_from(rows);
        let rows =
            rows.map_err(|_| LakeError::format(path, "a count of rows", "a negative number"));
        Ok((rows?, bytes))
    }

    /// Compares a day with the database.
    fn day(
        &mut self,
        plan: &Plan,
        columns: &Columns,
        (day, of): (Day, &Recorded),
        held: Fingerprint,
        is_other: bool,
    ) -> Result<()> {
        if plan.retained.contains(&day) {
            self.report.days_kept += 1;
            return Ok(());
        }
        if plan.blocked.contains_key(&day) {
            return Ok(());
        }
        let nothing = DayRows::default();
        let found = plan.due.get(&day).unwrap_or(&nothing);
        let mut rows = found.rows;
        let mut is_equal = rows == held.rows;
        if !plan.counts() || self.deep && is_equal && !is_other {
            match self.of_database(plan, columns, day, found)? {
                Some(now) => {
                    rows = now.rows;
                    is_equal = rows == held.rows && (!self.deep || now == held);
                }
                None => return Ok(()),
            }
        }
        let is_unchanged = of.version.is_some() && of.version == plan.version(day) && !is_other;
        match (is_equal && !is_other, is_unchanged) {
            (true, _) => {
                self.report.days += 1;
                self.report.rows += held.rows;
            }
            (false, true) => {
                let (have, what) = (held.rows, "the database has not changed since");
                let what =
                    format!("{what}, and has {rows} rows; the lake has {have}, or other rows");
                self.differs(day, what);
            }
            (false, false) => self.report.days_behind += 1,
        }
        Ok(())
    }

    /// The rows of a day in the database; `None` if they cannot be read, which is reported.
    fn of_database(
        &mut self,
        plan: &Plan,
        columns: &Columns,
        day: Day,
        found: &DayRows,
    ) -> Result<Option<Fingerprint>> {
        let mut all = Fingerprint::default();
        // Times whose remainder was zero when the columns were determined may have one now.
        let columns = columns.with_rest();
        let known = column_keys(&columns);
        let walked = plan.walk(self.snapshot, &columns, (day, found), &mut |batch| {
            all.take(batch, &known)
        });
        match walked {
            Ok(_) => Ok(Some(all)),
            Err(LakeError::Engine(error)) if is_local(error.kind()) => {
                let why = error.to_string();
                self.report.blocked.push(Blocked { day, why });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The rows of files.
fn read_all(place: &LakeLocation, columns: &Columns, files: &[DataFile]) -> Result<Fingerprint> {
    let mut all = Fingerprint::default();
    for file in files {
        read(place, file, columns, &mut all)?;
    }
    Ok(all)
}

fn open(place: &LakeLocation, file: &DataFile) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let path = Path::new(&file.path);
    let opened = place.fetch(path, file.bytes)?;
    ParquetRecordBatchReaderBuilder::try_new(opened).map_err(|e| LakeError::parquet(path, e))
}

/// Adds the rows of a file; columns are identified by number.
fn read(
    place: &LakeLocation,
    file: &DataFile,
    columns: &Columns,
    into: &mut Fingerprint,
) -> Result<()> {
    let path = Path::new(&file.path);
    let builder = open(place, file)?;
    let of = |id: i32| -> Option<ColumnKey> {
        let column = columns.all.iter().find(|column| column.id == id)?;
        // The database does not have the former type of a field.
        Some((id, column.kind)).filter(|_| column.kind != ColumnKind::Former)
    };
    let leaves = builder.parquet_schema().columns();
    let known: Vec<Option<ColumnKey>> = leaves
        .iter()
        .map(|leaf| of(leaf.self_type().get_basic_info().id()))
        .collect();
    let batches = builder.build().map_err(|e| LakeError::parquet(path, e))?;
    for batch in batches {
        into.take(&batch.map_err(|e| LakeError::parquet(path, e))?, &known)?;
    }
    Ok(())
}

/// The files of rows that a table of a lake has now.
///
/// # Errors
/// When the lake cannot be read.
pub fn data_files(lake: impl Into<LakeLocation>, table: &str) -> Result<Vec<PathBuf>> {
    let lake = lake.into().existing()?;
    let Some(table) = Table::find(&lake, &lake.root().join(folder_of(table)))? else {
        return Ok(Vec::new());
    };
    let files = table.files()?.into_values().flatten();
    Ok(files.map(|file| PathBuf::from(file.path)).collect())
}
