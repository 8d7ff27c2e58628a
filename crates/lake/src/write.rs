//! Writing: the days that are due become files, and files become part of the table by a commit.
//!
//! Invariants: the database is read after the table, so that a commit never replaces newer rows
//! with older ones: a writer whose commit fails since another one committed reads both again. The
//! sources of a day are committed with its files, so that a write that ended at any step is
//! continued by the next one from the table alone. Memory: a scan and a row group; per day that is
//! due the numbers of its streams. Failure: days that cannot be read are reported, and the others
//! written.

use crate::columns::Columns;
use crate::datafile::{DataFileTarget, DayWriter};
use crate::day::Day;
use crate::error::{LakeError, Result};
use crate::location::LakeLocation;
use crate::manifest::DataFile;
use crate::metadata::Recorded;
use crate::names::folder_of;
use crate::plan::{DayRows, Plan, PlanRequest, is_local};
use crate::report::{Blocked, TableWritten, Tally, Written};
use crate::rollup::{Rollup, SUFFIX, grown};
use crate::rows::{Fingerprint, NeedsRest, column_keys};
use crate::steps::Steps;
use crate::sweep::sweep;
use crate::table::{Change, Table};
use headwater::io::{Chance, Clock, SystemChance, SystemClock};
use headwater::{Snapshot, Stretches, Timestamp};
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Days of a commit.
const COMMIT_DAYS: usize = 64;
/// Bytes of a commit, about.
const COMMIT_BYTES: u64 = 1 << 30;
/// Most retries of a write after commits of others.
const CONFLICTS_MAX: u32 = 16;

/// Options of a write.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WriteOptions {
    /// The tables; empty = all.
    pub tables: Vec<String>,
    /// Days that end at or after this instant are left for a later write; `None` = no limit.
    pub until: Option<Timestamp>,
    /// Time for which older snapshots of a table are retained for their readers.
    pub keep_snapshots: Duration,
    /// Minimum age at which a file that no snapshot names is removed: longer than the duration of a
    /// write, since another one may be in progress.
    pub orphan_age: Duration,
    /// A file is closed at about this many bytes.
    pub file_bytes: u64,
    /// A row group is closed at about this many bytes: it is the memory of a write.
    pub row_group_bytes: usize,
    /// Rewrites all days, the unchanged ones too.
    pub rebuild: bool,
    /// Where tests end a write.
    pub steps: Steps,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions {
            tables: Vec::new(),
            until: None,
            keep_snapshots: Duration::from_secs(5 * 86_400),
            orphan_age: Duration::from_secs(86_400),
            file_bytes: 256 << 20,
            row_group_bytes: 32 << 20,
            rebuild: false,
            steps: Steps::default(),
        }
    }
}

/// Takes a snapshot of the database: each call sees all writes acknowledged before it.
pub type SnapshotSource<'a> = &'a dyn Fn() -> headwater::Result<Snapshot>;

/// Writes the tables of a database to a lake: all missing or differing days.
///
/// ```
/// use headwater::{Batch, Database, Options, StreamName};
/// use headwater_lake::{WriteOptions, write};
/// let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(Options::new(dir.path().join("db")))?;
/// let pump = StreamName::new("pumps", [("id", "p1")]);
/// let mut batch = Batch::new();
/// batch.stream(&pump).row(1_700_000_000_000_000_000, [("pressure", 4.2.into())]).unwrap();
/// db.commit(batch)?;
/// let lake = dir.path().join("lake");
/// let written = write(&|| db.snapshot(), &lake, &WriteOptions::default())?;
/// assert_eq!((written.tables[0].days_written, written.tables[0].rows), (1, 1));
/// let again = write(&|| db.snapshot(), &lake, &WriteOptions::default())?;
/// assert_eq!(again.tables[0].days_written, 0);
/// # Ok::<(), headwater_lake::LakeError>(())
/// ```
///
/// # Errors
/// If the database or the lake cannot be read or written; `lake.conflict` if others write all the
/// time, `lake.foreign` if others have changed a table, `lake.database` if it is of another
/// database, `lake.moved` if it was created in another folder.
pub fn write(
    look: SnapshotSource<'_>,
    lake: impl Into<LakeLocation>,
    options: &WriteOptions,
) -> Result<Written> {
    let lake = lake.into().prepared()?;
    let names = match options.tables.is_empty() {
        true => look()?.table_names(),
        false => options.tables.clone(),
    };
    let mut written = Written::default();
    for table in names {
        for is_rollup in [false, true] {
            let mut job = Job::new(look, &lake, (&table, is_rollup), options);
            job.run()?;
            // Most tables have no aged data.
            if job.is_there {
                written.tables.push(job.report);
            }
        }
    }
    Ok(written)
}

/// The writing of one table.
struct Job<'a> {
    look: SnapshotSource<'a>,
    location: &'a LakeLocation,
    dir: PathBuf,
    name: &'a str,
    /// The table is a rollup.
    is_rollup: bool,
    is_there: bool,
    options: &'a WriteOptions,
    clock: SystemClock,
    chance: SystemChance,
    report: TableWritten,
}

/// The next commit.
struct Batch {
    days: BTreeMap<Day, Recorded>,
    replaced: BTreeSet<Day>,
    added: Vec<DataFile>,
    /// Number of days in it.
    day_count: usize,
    tally: Tally,
}

/// Outcome of a day.
enum Outcome {
    /// Files of the day; empty = it has no rows.
    Files(Vec<DataFile>, Fingerprint),
    Blocked(String),
    NeedsRest,
}

impl<'a> Job<'a> {
    fn new(
        look: SnapshotSource<'a>,
        lake: &'a LakeLocation,
        (name, is_rollup): (&'a str, bool),
        options: &'a WriteOptions,
    ) -> Job<'a> {
        let suffix = if is_rollup { SUFFIX } else { "" };
        let folder = format!("{}{suffix}", folder_of(name));
        Job {
            look,
            location: lake,
            dir: lake.root().join(&folder),
            name,
            is_rollup,
            is_there: !is_rollup,
            options,
            clock: SystemClock::new(),
            chance: SystemChance::new(),
            report: TableWritten::new(&format!("{name}{suffix}"), &folder),
        }
    }

    fn now_ms(&self) -> i64 {
        self.clock.now().as_nanos().div_euclid(1_000_000)
    }

    fn run(&mut self) -> Result<()> {
        let mut conflicts = 0;
        while !self.once()? {
            conflicts += 1;
            if conflicts >= CONFLICTS_MAX {
                return Err(LakeError::Conflict {
                    path: self.dir.clone(),
                    times: conflicts,
                });
            }
        }
        // Listing all objects of a bucket costs money: a write without changes skips it.
        if !self.location.is_bucket() || self.report.commits > 0 {
            let now = self.clock.now();
            self.report.swept = sweep(self.location, &self.dir, now, self.options.orphan_age)?;
        }
        self.options.steps.at("swept")
    }

    /// Brings the table to the state of the database; false when another writer committed in
    /// between.
    fn once(&mut self) -> Result<bool> {
        if self.is_rollup && self.is_surely_absent()? {
            return Ok(true);
        }
        let found = Table::find(self.location, &self.dir)?;
        // Read after the table, so that this snapshot is not older than the commits of others.
        let snapshot = (self.look)()?;
        let Some(mut turn) = self.turn(found, &snapshot)? else {
            return Ok(true);
        };
        self.report.begin(&turn.plan);
        for day in &turn.plan.emptied {
            turn.batch.days.remove(day);
            turn.batch.replaced.insert(*day);
            turn.batch.day_count += 1;
            turn.batch.tally.days_removed += 1;
        }
        for (day, rows) in std::mem::take(&mut turn.plan.due) {
            self.day(&mut turn, day, &rows)?;
            if turn.batch.is_large() && !turn.is_other && !self.commit(&mut turn)? {
                return Ok(false);
            }
        }
        self.commit(&mut turn)
    }

    /// Whether there is no aged data, and, for a bucket at the price of one request, there never
    /// was a rollup.
    fn is_surely_absent(&self) -> Result<bool> {
        let is_told =
            !self.location.is_bucket() || self.location.hint_version(&self.dir)?.is_some();
        let stretches = (self.look)()?.stretches(self.name)?;
        Ok(!is_told && !stretches.all.iter().any(|s| s.is_aged))
    }

    /// Plans the work from the current state of the table and the database; `None` = there is no
    /// work, and no table.
    fn turn<'s>(
        &mut self,
        found: Option<Table>,
        snapshot: &'s Snapshot,
    ) -> Result<Option<Turn<'s>>> {
        let stretches = snapshot.stretches(self.name)?;
        let identity = stretches.identity;
        if self.is_rollup && found.is_none() && !stretches.all.iter().any(|s| s.is_aged) {
            return Ok(None);
        }
        self.is_there = true;
        if self.is_rollup && self.is_name_taken(snapshot) {
            return Ok(None);
        }
        let table = match found {
            Some(table) => self.checked(table, identity)?,
            None => Table::new(self.location, &self.dir, self.uuid(), self.now_ms())?,
        };
        let known = table.metadata.columns(&self.dir)?;
        let growth = grown(snapshot, (self.name, self.is_rollup), &known)?;
        let rollup = match self.is_rollup {
            true => match Rollup::of(snapshot, self.name, &stretches, &growth.columns) {
                Err(LakeError::Engine(error)) if is_local(error.kind()) => {
                    self.block_all(&stretches, error.to_string());
                    return Ok(None);
                }
                rollup => Some(rollup?),
            },
            false => None,
        };
        let mut recorded = table.metadata.days(&self.dir)?;
        let plan = Plan::make(PlanRequest {
            snapshot,
            table: self.name,
            columns: &growth.columns,
            stretches,
            recorded: &recorded,
            all: growth.is_other || self.options.rebuild,
            rollup,
            // If types change, all days have to change at one instant.
            until: self.options.until.filter(|_| !growth.is_other),
        })?;
        if growth.is_other {
            // Days that cannot be rewritten now have to be as soon as possible.
            recorded.values_mut().for_each(|day| day.version = None);
        }
        Ok(Some(Turn {
            snapshot,
            identity,
            prefix: format!("{:016x}", self.chance.next_u64()),
            sort_order_id: table.metadata.sort_order_of(&growth.columns)?,
            batch: Batch::on(recorded),
            columns: growth.columns,
            is_other: growth.is_other,
            table,
            plan,
        }))
    }

    /// True when a table of the database has the name of this rollup, which is reported.
    fn is_name_taken(&mut self, snapshot: &Snapshot) -> bool {
        let names = snapshot.table_names();
        let taken = names
            .iter()
            .find(|name| folder_of(name) == self.report.folder);
        if let Some(name) = taken {
            let why = format!("a table of the database is named `{name}`, as the rollup would be");
            self.report.blocked = vec![Blocked {
                day: Day::of(self.clock.now()),
                why,
            }];
        }
        taken.is_some()
    }

    /// Reports that no aged range can be read.
    fn block_all(&mut self, stretches: &Stretches, why: String) {
        let aged = stretches.all.iter().filter(|stretch| stretch.is_aged);
        let first = aged.map(|stretch| Day::of(stretch.range.first)).min();
        let blocked = first.map(|day| Blocked { day, why });
        self.report.blocked = blocked.into_iter().collect();
    }

    /// The table, if it may be written to.
    fn checked(&self, table: Table, identity: u64) -> Result<Table> {
        table.metadata.check_unchanged(&self.dir)?;
        if let Some(found) = table.metadata.database().filter(|found| *found != identity) {
            return Err(LakeError::OtherDatabase {
                path: self.dir.clone(),
                expected: identity,
                found,
            });
        }
        if !table.metadata.is_of(self.name, self.is_rollup) {
            let expected = format!("the table `{}`", self.report.table);
            let found = table.metadata.of();
            return Err(LakeError::format(&self.dir, expected, found));
        }
        if self.location.hint_version(&self.dir)? != Some(table.version) {
            // A write has ended between its commit and saying so.
            let prefix = format!("{:016x}", self.chance.next_u64());
            self.location
                .write_version_hint(&self.dir, table.version, &prefix)?;
        }
        Ok(table)
    }

    /// A number for a new table: a UUID of chance (version 4).
    fn uuid(&self) -> String {
        let (first, second) = (self.chance.next_u64(), self.chance.next_u64());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            first >> 32,
            (first >> 16) & 0xffff,
            first & 0xfff,
            0x8000 | ((second >> 48) & 0x3fff),
            second & 0xffff_ffff_ffff
        )
    }

    /// Writes a day, and adds it to the batch.
    fn day(&mut self, turn: &mut Turn<'_>, day: Day, found: &DayRows) -> Result<()> {
        let outcome = match self.files(turn, day, found)? {
            Outcome::NeedsRest => {
                turn.columns = turn.columns.with_rest();
                self.files(turn, day, found)?
            }
            outcome => outcome,
        };
        let (files, fingerprint) = match outcome {
            Outcome::Files(files, fingerprint) => (files, fingerprint),
            Outcome::Blocked(why) => {
                self.report.blocked.push(Blocked { day, why });
                return Ok(());
            }
            Outcome::NeedsRest => {
                return Err(LakeError::internal(
                    "times need a column that does not exist",
                ));
            }
        };
        self.options.steps.at("files written")?;
        let recorded = Recorded {
            version: turn.plan.version(day),
            rows: fingerprint.rows,
            sum: format!("{:032x}", fingerprint.sum),
        };
        let is_forced = self.options.rebuild;
        turn.batch
            .take(self.location, day, (recorded, files), is_forced)
    }

    fn files(&self, turn: &Turn<'_>, day: Day, found: &DayRows) -> Result<Outcome> {
        let (columns, plan) = (&turn.columns, &turn.plan);
        let target = DataFileTarget {
            location: self.location,
            table: &self.dir,
            prefix: &turn.prefix,
            sort_order_id: turn.sort_order_id,
            file_bytes: self.options.file_bytes,
            row_group_bytes: self.options.row_group_bytes,
        };
        let mut writer = DayWriter::new(&target, columns, day);
        let mut fingerprint = Fingerprint::default();
        let known = column_keys(columns);
        let walked = plan.walk(turn.snapshot, columns, (day, found), &mut |batch| {
            fingerprint.take(batch, &known)?;
            writer.write(batch)
        });
        match walked {
            Ok(Ok(())) => Ok(Outcome::Files(writer.finish()?, fingerprint)),
            Ok(Err(NeedsRest)) => {
                writer.give_up()?;
                Ok(Outcome::NeedsRest)
            }
            Err(LakeError::Engine(error)) if is_local(error.kind()) => {
                writer.give_up()?;
                Ok(Outcome::Blocked(error.to_string()))
            }
            Err(error) => {
                writer.give_up()?;
                Err(error)
            }
        }
    }

    /// Commits the written days, if there are any changes; false when another writer was first.
    fn commit(&mut self, turn: &mut Turn<'_>) -> Result<bool> {
        let (table, batch) = (&turn.table, &mut turn.batch);
        let is_same = table.version > 0
            && batch.replaced.is_empty()
            && batch.added.is_empty()
            && table.metadata.days(&self.dir)? == batch.days
            && table.metadata.columns(&self.dir)? == turn.columns;
        if is_same {
            return Ok(true);
        }
        let now_ms = self.now_ms();
        let keep = i64::try_from(self.options.keep_snapshots.as_millis()).unwrap_or(i64::MAX);
        let added = std::mem::take(&mut batch.added);
        let tally = std::mem::take(&mut batch.tally);
        batch.day_count = 0;
        let change = Change {
            database: turn.identity,
            table: self.name.to_owned(),
            is_rollup: self.is_rollup,
            columns: turn.columns.clone(),
            days: batch.days.clone(),
            replaced: std::mem::take(&mut batch.replaced),
            added: added.clone(),
            sequence: turn.snapshot.sequence(),
            prefix: format!("{:016x}", self.chance.next_u64()),
            snapshot_id: snapshot_id(&self.chance),
            now_ms,
            keep_from_ms: now_ms.saturating_sub(keep),
        };
        match table.commit(change, &self.options.steps)? {
            Some(next) => {
                turn.table = next;
                self.report.add(tally);
                Ok(true)
            }
            None => {
                remove_files(self.location, &added)?;
                Ok(false)
            }
        }
    }
}

/// The table and the database as read by a write, and the work done since.
struct Turn<'s> {
    snapshot: &'s Snapshot,
    identity: u64,
    /// Prefix of the names of files.
    prefix: String,
    sort_order_id: i32,
    table: Table,
    columns: Columns,
    /// Fields have other types than in the table.
    is_other: bool,
    plan: Plan,
    batch: Batch,
}

impl Batch {
    fn on(days: BTreeMap<Day, Recorded>) -> Batch {
        Batch {
            days,
            replaced: BTreeSet::new(),
            added: Vec::new(),
            day_count: 0,
            tally: Tally::default(),
        }
    }

    /// Adds a day and its files, or only its new version if its rows are unchanged.
    fn take(
        &mut self,
        place: &LakeLocation,
        day: Day,
        (recorded, files): (Recorded, Vec<DataFile>),
        is_forced: bool,
    ) -> Result<()> {
        self.day_count += 1;
        if let Some(known) = self.days.get_mut(&day) {
            if !is_forced && (known.rows, &known.sum) == (recorded.rows, &recorded.sum) {
                known.version = recorded.version;
                self.tally.days_equal += 1;
                return remove_files(place, &files);
            }
            self.replaced.insert(day);
        }
        if recorded.rows == 0 {
            self.days.remove(&day);
            return Ok(());
        }
        self.tally.days_written += 1;
        self.tally.rows += recorded.rows;
        self.tally.files += wide(files.len());
        self.tally.bytes += files.iter().map(|f| f.bytes).sum::<u64>();
        self.days.insert(day, recorded);
        self.added.extend(files);
        Ok(())
    }

    fn is_large(&self) -> bool {
        let bytes: u64 = self.added.iter().map(|file| file.bytes).sum();
        self.day_count >= COMMIT_DAYS || bytes >= COMMIT_BYTES
    }
}

/// A number for a snapshot: positive, as Iceberg requires it.
fn snapshot_id(chance: &SystemChance) -> i64 {
    i64::try_from(chance.next_u64() >> 1).unwrap_or(1).max(1)
}

fn remove_files(place: &LakeLocation, files: &[DataFile]) -> Result<()> {
    let mut paths = files.iter().map(|file| Path::new(&file.path));
    paths.try_for_each(|path| place.remove(path))
}
