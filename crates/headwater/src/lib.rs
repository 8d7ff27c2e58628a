//! Headwater inside your program: an embedded database for events with timestamps.
//!
//! ```
//! use headwater::{Batch, Database, Options, StreamName};
//! let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(Options::new(dir.path().join("db")))?;
//! let mut batch = Batch::new();
//! let pump = StreamName::new("pumps", [("id", "p1")]);
//! batch.stream(&pump).row(1_700_000_000_000_000_000, [("pressure", 4.2.into())]).unwrap();
//! db.commit(batch)?; // on the medium when this returns
//! let snapshot = db.snapshot()?;
//! assert_eq!(snapshot.last(&pump)?[0].value, 4.2.into());
//! # Ok::<(), headwater::Error>(())
//! ```
//!
//! This crate is the promise to embedders: it re-exports their API and nothing else, and pulls in
//! no async runtime, no SQL engine and no HTTP.

pub use headwater_engine::{
    Across, AddedTags, AggregateSpec, BackupOptions, BackupReport, Bin, Bins, CheckReport,
    ColumnSlice, Comparison, Conflict, ConflictBounds, Conflicts, Coverage, Damage, DataVersion,
    Database, DeleteSpec, DiffSpec, DiffStretch, Differences, Duplicates, Durability,
    EndedSnapshot, Error, ErrorKind, FastTier, Field, FieldSpec, Filter, FlushRule, HandlePage,
    IndexBudget, IndexInfo, IndexPolicy, IndexProgress, IndexSpec, IndexUse, IoBackend, Knobs,
    LastValue, LatePolicy, LateReport, LostRows, MergeScope, MetricName, MissedRange, Options,
    OutermostSpec, Owned, Owners, PageStart, PartitionInfo, PolicyChoice, QueuePlacement,
    REFUSED_ENDED, REFUSED_FIELDS, REFUSED_FUTURE, REFUSED_NAME, REFUSED_STREAMS, REFUSED_STRING,
    REFUSED_TABLES, REFUSED_TYPE, REFUSED_UNREADABLE, ReadStats, Reader, Recovery, Refused,
    RepairFinding, RepairMode, RepairReport, Replay, ReplayChunk, ReplayCursor, ReplayRow,
    ReplaySpec, ReplaySteps, Result, RowBlock, STATS, Scan, ScanChunk, ScanSpec, ShardLateReport,
    Snapshot, SnapshotEnd, SnapshotInfo, SnapshotPart, Split, Stat, StatKind, StatUnit, StatValue,
    Stats, StreamDiff, StreamHandle, StreamInfo, StreamPage, Stretch, Stretches, SummaryBin,
    SummarySpec, TableChange, TableInfo, TableSpec, Ticket, TierParts, TierShares, Written,
    reading_for,
};
pub use headwater_io::{Env, Media};
pub use headwater_types::{
    Aggregate, Batch, Bitmap, ClosedRange, Column, Extremes, FieldType, Ieee, Instants, Level,
    MixedTypes, Producer, StreamName, StreamRows, Sum, TILE_BUCKETS, Timestamp, Value, ValueRef,
    Values, VarBytes,
};

/// The program of the README is compiled with the tests, so that it stays one.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The environment of a database: files, clock, randomness and threads, and what stands for them in
/// tests or on other media.
///
/// ```
/// use headwater::io::MemoryFiles;
/// use headwater::{Batch, Database, Env, Options, Reader, StreamName};
/// use std::sync::Arc;
/// // The log on one medium, everything else on another.
/// let mut env = Env::system();
/// env.files = Arc::new(MemoryFiles::new());
/// env.media.log = Some(Arc::new(MemoryFiles::new()));
/// let pump = StreamName::new("pumps", [("id", "p1")]);
/// let db = Database::open_in(env.clone(), Options::new("/db"))?;
/// let mut batch = Batch::new();
/// batch.stream(&pump).row(1_700_000_000_000_000_000, [("pressure", 4.2.into())]).unwrap();
/// db.commit(batch)?;
/// assert!(env.log_files().exists("/db/log/1.log".as_ref()).unwrap());
/// assert!(!env.files.exists("/db/log/1.log".as_ref()).unwrap());
/// let reader = Reader::open_in(env, Options::new("/db"))?;
/// assert_eq!(reader.snapshot().last(&pump)?.len(), 1);
/// # Ok::<(), headwater::Error>(())
/// ```
pub mod io {
    pub use headwater_io::{
        Chance, Clock, Completer, Completion, FaultKind, FaultyFiles, File, Files, Joiner, Lock,
        LockError, ManualClock, MemoryFiles, NoThreads, OpenMode, PmemCosts, PmemFiles, PmemModel,
        SeededChance, Standing, Survival, SystemChance, SystemClock, SystemFiles, SystemThreads,
        Threads, UringFiles, UringRefused, conformance, pass_on_files,
    };
}

/// Statistics of late data, the policy that they lead to, and the decisions of a database's shards.
pub use headwater_late as late;

/// Every setting of a database, described once: for programs that take settings by name.
///
/// ```
/// use headwater::settings::{Setting, SettingValue};
/// let mut options = headwater::Options::new("data");
/// let setting = Setting::by_field("leaf_events").unwrap();
/// setting.set_within(&mut options, SettingValue::Number(Some(512)))?;
/// assert_eq!(options.leaf_events, 512);
/// let refused = setting.set_within(&mut options, SettingValue::Number(Some(1))).unwrap_err();
/// assert_eq!(refused.to_string(), "leaf_events: expected 16 to 65536");
/// # Ok::<(), headwater::settings::SettingError>(())
/// ```
pub use headwater_engine::settings;

/// Checks the database in `options.dir`: every byte of every committed leaf, block and footer, and
/// the log. Changes nothing, and works beside a process that has it open.
///
/// # Errors
/// When it cannot be looked at: not there, an I/O error, `busy` when its owner changes it too fast.
/// Damage is not an error but part of the report.
pub fn check(options: Options) -> Result<CheckReport> {
    headwater_engine::check(Env::system(), options)
}

/// Backs the database in `options.dir` up into a folder: one state of it, with everything
/// acknowledged before this call. Works beside a process that has it open, and without one; a
/// process that has it open may also call [`Database::backup`]. Into a folder that holds an older
/// backup of the same database, only what is new is copied, and the older one counts until the new
/// one is whole.
///
/// ```
/// use headwater::{Database, Options};
/// let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(Options::new(dir.path().join("db")))?;
/// headwater::backup(&Options::new(dir.path().join("db")), &dir.path().join("backup"))?;
/// let restored = Options::new(dir.path().join("restored"));
/// assert!(headwater::restore(&dir.path().join("backup"), &restored)?.is_sound());
/// Database::open(restored)?;
/// # Ok::<(), headwater::Error>(())
/// ```
///
/// # Errors
/// `not_found` without a database, `invalid` when the folder holds something else or backups of
/// another database, `locked` while another backup into it runs, `busy` when the owner changes the
/// database too fast, `corrupt`, `full`, `io`. The older backup is still good then.
pub fn backup(options: &Options, to: &std::path::Path) -> Result<BackupReport> {
    headwater_engine::backup(&Env::system(), options, to)
}

/// As [`backup`], in a way that is chosen.
///
/// # Errors
/// As [`backup`].
pub fn backup_with(
    options: &Options,
    to: &std::path::Path,
    how: &BackupOptions,
) -> Result<BackupReport> {
    headwater_engine::backup_with(&Env::system(), options, to, how)
}

/// Checks the backup in a folder: the checksum of every file, and all that [`check`] checks of a
/// database.
///
/// # Errors
/// `not_found` without a backup, `io`. Damage is not an error but part of the report.
pub fn verify_backup(dir: &std::path::Path) -> Result<CheckReport> {
    headwater_engine::verify_backup(&Env::system(), dir)
}

/// Makes the database in `options.dir`, which must be empty or not there, of the backup in `from`,
/// and checks all of it.
///
/// # Errors
/// `not_found` without a backup, `invalid` when the folder is not empty, `corrupt` when a file of
/// the backup is not what was backed up, `full`, `io`. Damage found by the check is part of the
/// report.
pub fn restore(from: &std::path::Path, options: &Options) -> Result<CheckReport> {
    headwater_engine::restore(&Env::system(), from, options)
}

/// Repairs the database in `options.dir`, which must not be open: damaged leaves and footers, torn
/// or missing log records, missing files, missing or damaged metadata. Everything that can be read
/// stays; damaged files are copied to `DIR/quarantine` before anything is changed; the report says
/// what is lost. [`RepairMode::DryRun`] changes nothing.
///
/// # Errors
/// `not_found` when there is nothing of a database, `locked` when it is open, `invalid` when it was
/// written by another version, `full`, `io`.
pub fn repair(options: &Options, mode: RepairMode) -> Result<RepairReport> {
    headwater_engine::repair(&Env::system(), options, mode)
}

/// As [`repair`], for a database whose fast tier is lost for good: from then on all of it lies in
/// its directory. The report says what is lost with the tier.
///
/// # Errors
/// As [`repair`]; `invalid` when the database has no fast tier, or it is there.
pub fn repair_without_fast_tier(options: &Options, mode: RepairMode) -> Result<RepairReport> {
    headwater_engine::repair_without_fast_tier(&Env::system(), options, mode)
}

/// The fast tier that the database in a directory uses, if it has one, whether or not the tier is
/// there.
///
/// # Errors
/// `invalid` for one of another version, `io`.
pub fn fast_tier(dir: &std::path::Path) -> Result<Option<FastTier>> {
    headwater_engine::fast_tier(&Env::system(), dir)
}

/// Has the database in `options.dir` use a fast tier, another one, or other parts of it; `None` =
/// no tier any more. The database must not be open. Rows in the log are stored before the log
/// moves.
///
/// ```
/// use headwater::{Batch, Database, FastTier, Options, StreamName, TierParts};
/// let dir = tempfile::tempdir().unwrap();
/// let options = Options::new(dir.path().join("db"));
/// let pump = StreamName::new("pumps", [("id", "p1")]);
/// let db = Database::open(options.clone())?;
/// let mut batch = Batch::new();
/// batch.stream(&pump).row(1, [("pressure", 4.2.into())]).unwrap();
/// db.commit(batch)?;
/// db.close()?;
/// drop(db);
/// let tier = FastTier {
///     folder: dir.path().join("fast"),
///     parts: "log".parse()?,
/// };
/// headwater::use_fast_tier(&options, Some(&tier))?;
/// // From now on the database knows it by itself.
/// let db = Database::open(options.clone())?;
/// assert_eq!(db.fast_tier(), Some(tier));
/// assert_eq!(db.snapshot()?.last(&pump)?.len(), 1);
/// # Ok::<(), headwater::Error>(())
/// ```
///
/// # Errors
/// `locked` when it is open, `not_found` without a database, `tier` when the folder belongs to
/// another database or the present tier cannot be used, `busy` when the log holds rows of a
/// partition that cannot be read, `corrupt`, `full`, `io`.
pub fn use_fast_tier(options: &Options, tier: Option<&FastTier>) -> Result<()> {
    headwater_engine::use_fast_tier(&Env::system(), options, tier)
}

/// Takes up a database, or its fast tier, that lies in another folder now; [`Options::fast_dir`]
/// names that of the tier. Both must be of one time.
///
/// # Errors
/// `tier` when they do not belong together, or the database is a copy of one that still uses the
/// tier; `locked`, `io`.
pub fn adopt_fast_tier(options: &Options) -> Result<()> {
    headwater_engine::adopt_fast_tier(&Env::system(), options)
}

/// As [`check`], in another environment.
///
/// # Errors
/// As [`check`].
pub fn check_in(env: &Env, options: Options) -> Result<CheckReport> {
    headwater_engine::check(env.clone(), options)
}

/// As [`backup_with`], in another environment. The backup goes to [`Env::files`], whatever media
/// the database has.
///
/// # Errors
/// As [`backup`].
pub fn backup_in(
    env: &Env,
    options: &Options,
    to: &std::path::Path,
    how: &BackupOptions,
) -> Result<BackupReport> {
    headwater_engine::backup_with(env, options, to, how)
}

/// As [`verify_backup`], in another environment.
///
/// # Errors
/// As [`verify_backup`].
pub fn verify_backup_in(env: &Env, dir: &std::path::Path) -> Result<CheckReport> {
    headwater_engine::verify_backup(env, dir)
}

/// As [`restore`], in another environment: from a backup in [`Env::files`] to the media of the
/// database.
///
/// # Errors
/// As [`restore`].
pub fn restore_in(env: &Env, from: &std::path::Path, options: &Options) -> Result<CheckReport> {
    headwater_engine::restore(env, from, options)
}

/// As [`repair`], in another environment. Damaged files are copied to `DIR/quarantine` in
/// [`Env::files`].
///
/// # Errors
/// As [`repair`].
pub fn repair_in(env: &Env, options: &Options, mode: RepairMode) -> Result<RepairReport> {
    headwater_engine::repair(env, options, mode)
}
