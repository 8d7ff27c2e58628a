//! Opening, closing, and what concerns a database as a whole.
//!
//! Invariants: a handle of a database keeps it open; streams, queries and batches do not, snapshots
//! and scans keep what they read.
//! Concurrency: any number of threads.
//! Failure: as the engine's; after hw_close calls with streams of the database are `HW_CLOSED`.

use crate::handles::{self, Handled, Object};
use crate::json;
use crate::options::hw_options;
use crate::status::{
    Failure, HW_CLOSED, HW_READ_ONLY, Outcome, guard, hw_error, out, write_result,
};
use crate::text::{hw_str, hw_text};
use headwater::{Database, EndedSnapshot, Options, Reader, RepairMode, Snapshot, SnapshotInfo};
use std::sync::{Arc, Weak};

/// The version of this interface. The number rises when something is added; nothing is ever taken
/// away or changed.
pub const HW_ABI_VERSION: u32 = 4;

/// A database. To end with hw_close.
pub type hw_db = u64;

/// An open database.
pub(crate) struct Store {
    access: Access,
    options: Options,
}

enum Access {
    Owner(Database),
    Reader(Reader),
}

impl Handled for Store {
    const KIND: &'static str = "a database";
    const IS_DATABASE: bool = true;
}

impl Store {
    /// The database, to change it.
    pub(crate) fn owner(&self) -> Outcome<&Database> {
        match &self.access {
            Access::Owner(db) => Ok(db),
            Access::Reader(_) => Err(Failure::new(
                HW_READ_ONLY,
                "the database was opened read-only",
            )),
        }
    }

    /// A view of it as it is now.
    pub(crate) fn snapshot(&self) -> Outcome<Snapshot> {
        match &self.access {
            Access::Owner(db) => Ok(db.snapshot()?),
            Access::Reader(reader) => Ok(reader.snapshot()),
        }
    }

    /// The state that a named snapshot keeps.
    pub(crate) fn snapshot_named(&self, name: &str) -> Outcome<Snapshot> {
        Ok(match &self.access {
            Access::Owner(db) => db.snapshot_named(name)?,
            Access::Reader(reader) => reader.snapshot_named(name)?,
        })
    }

    /// The named snapshots, and those that ended by themselves.
    pub(crate) fn snapshots(&self) -> (Vec<SnapshotInfo>, Vec<EndedSnapshot>) {
        match &self.access {
            Access::Owner(db) => (db.snapshots(), db.ended_snapshots()),
            Access::Reader(reader) => (reader.snapshots(), reader.ended_snapshots()),
        }
    }

    pub(crate) fn tables(&self) -> Vec<headwater::TableInfo> {
        match &self.access {
            Access::Owner(db) => db.tables(),
            Access::Reader(reader) => reader.tables(),
        }
    }
}

/// The database of a stream or a query, while it is open.
pub(crate) fn open_still(store: &Weak<Store>) -> Outcome<Arc<Store>> {
    store
        .upgrade()
        .ok_or_else(|| Failure::new(HW_CLOSED, "the database is closed"))
}

/// The library's version, as "0.1.0"; valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn hw_version() -> hw_str {
    hw_str::of(env!("CARGO_PKG_VERSION"))
}

/// HW_ABI_VERSION of the library, to compare with that of the header: the library's must not be
/// smaller.
#[unsafe(no_mangle)]
pub extern "C" fn hw_abi_version() -> u32 {
    HW_ABI_VERSION
}

/// Opens the database in a folder, or makes it; recovers it if it was not closed. options NULL =
/// the defaults. One process owns a database; others open it read only.
///
/// HW_LOCKED when another process owns it, HW_NOT_FOUND without one where one must exist,
/// HW_CORRUPT, HW_INVALID, HW_FULL, HW_IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_open(
    path: hw_str,
    options: *const hw_options,
    db: *mut hw_db,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(db, "db")?;
        let (options, read_only) = hw_options::read(options)?.settings(path.path("path")?)?;
        let access = if read_only {
            Access::Reader(Reader::open(options.clone())?)
        } else {
            Access::Owner(Database::open(options.clone())?)
        };
        let (handle, _) = handles::register(Store { access, options });
        write_result(db, handle, "db")
    })
}

/// Stores what is in memory, closes the database and ends its handle, also when it fails: what was
/// acknowledged is in the log then, and comes back at the next opening. Snapshots and scans stay
/// readable, and the folder is locked until the last of them is released. Calls with streams and
/// queries of the database are HW_CLOSED from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_close(db: hw_db, error: *mut hw_error) -> i32 {
    guard(error, || {
        let object = handles::remove(db, Store::KIND, Object::is::<Store>)?;
        if let Some(store) = object.into::<Store>()
            && let Access::Owner(db) = &store.access
        {
            db.close()?;
        }
        Ok(())
    })
}

/// Of a database that was opened read only: looks again, so that what is read from now on is as its
/// owner has it now. One that was not always sees its newest state; nothing happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_refresh(db: hw_db, error: *mut hw_error) -> i32 {
    guard(error, || {
        if let Access::Reader(reader) = &handles::get::<Store>(db)?.access {
            reader.refresh()?;
        }
        Ok(())
    })
}

/// Stores every event in memory in segments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_flush(db: hw_db, error: *mut hw_error) -> i32 {
    guard(error, || Ok(handles::get::<Store>(db)?.owner()?.flush()?))
}

/// Stores every event in memory, then rewrites every partition that would become smaller or tidier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_compact(db: hw_db, error: *mut hw_error) -> i32 {
    guard(error, || {
        Ok(handles::get::<Store>(db)?.owner()?.compact()?)
    })
}

/// Counters and sizes, as JSON.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_stats(db: hw_db, text: *mut hw_text, error: *mut hw_error) -> i32 {
    guard(error, || {
        out(text, "text")?;
        let stats = match &handles::get::<Store>(db)?.access {
            Access::Owner(db) => db.stats()?,
            Access::Reader(reader) => reader.stats()?,
        };
        write_result(text, hw_text::make(json::stats(&stats).to_string()), "text")
    })
}

/// Statistics of late events and the policy decided from them, as JSON.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_late(db: hw_db, text: *mut hw_text, error: *mut hw_error) -> i32 {
    guard(error, || {
        out(text, "text")?;
        let report = match &handles::get::<Store>(db)?.access {
            Access::Owner(db) => db.late(),
            Access::Reader(reader) => reader.late(),
        };
        write_result(text, hw_text::make(json::late(&report).to_string()), "text")
    })
}

/// Changes the source of the policy for late data, until the database is closed: "adaptive",
/// "separate:0.5", … as in hw_options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_set_late_policy(
    db: hw_db,
    policy: hw_str,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let policy = policy.read("policy")?.parse::<headwater::PolicyChoice>();
        let policy = policy.map_err(headwater::Error::from)?;
        Ok(handles::get::<Store>(db)?
            .owner()?
            .set_late_policy(policy)?)
    })
}

/// Reads every byte of the database and compares checksums, order and aggregates, while it is in
/// use. The report is JSON; is_sound gets 1, or 0 when something is damaged, which is not an error
/// of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_check(
    db: hw_db,
    is_sound: *mut u8,
    report: *mut hw_text,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(is_sound, "is_sound")?;
        out(report, "report")?;
        let store = handles::get::<Store>(db)?;
        let found = headwater::check(store.options.clone())?;
        write_result(is_sound, u8::from(found.is_sound()), "is_sound")?;
        write_result(
            report,
            hw_text::make(json::check(&found).to_string()),
            "report",
        )
    })
}

/// Backs the database up into a folder, while it is in use: one state of it, with everything
/// acknowledged before this call. Into a folder with an older backup of the same database only what
/// is new is copied. The report is JSON; report NULL = no report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_backup(
    db: hw_db,
    folder: hw_str,
    report: *mut hw_text,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let folder = folder.path("folder")?;
        let store = handles::get::<Store>(db)?;
        let done = match &store.access {
            Access::Owner(db) => db.backup(&folder)?,
            Access::Reader(_) => headwater::backup(&store.options, &folder)?,
        };
        give_report(report, || json::backup(&done).to_string())
    })
}

/// Checks a backup: the checksum of every file, and all that hw_check checks of a database. As
/// there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_verify_backup(
    folder: hw_str,
    is_sound: *mut u8,
    report: *mut hw_text,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(is_sound, "is_sound")?;
        let found = headwater::verify_backup(&folder.path("folder")?)?;
        write_result(is_sound, u8::from(found.is_sound()), "is_sound")?;
        give_report(report, || json::check(&found).to_string())
    })
}

/// Makes a database of a backup, in a folder that is empty or not there, and checks all of it. The
/// report is JSON; report NULL = no report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_restore(
    backup_folder: hw_str,
    path: hw_str,
    is_sound: *mut u8,
    report: *mut hw_text,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(is_sound, "is_sound")?;
        let options = Options::new(path.path("path")?);
        let found = headwater::restore(&backup_folder.path("backup_folder")?, &options)?;
        write_result(is_sound, u8::from(found.is_sound()), "is_sound")?;
        give_report(report, || json::check(&found).to_string())
    })
}

/// Repairs the database in a folder, which must not be open. Readable data stay, damaged files are
/// copied to a folder `quarantine` in it before anything is changed, and the report, as JSON, says
/// what is lost. dry_run 1 = change nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_repair(
    path: hw_str,
    dry_run: u8,
    report: *mut hw_text,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(report, "report")?;
        let mode = if dry_run == 0 {
            RepairMode::Act
        } else {
            RepairMode::DryRun
        };
        let done = headwater::repair(&Options::new(path.path("path")?), mode)?;
        write_result(
            report,
            hw_text::make(json::repair(&done).to_string()),
            "report",
        )
    })
}

fn give_report(report: *mut hw_text, text: impl FnOnce() -> String) -> Outcome<()> {
    if report.is_null() {
        return Ok(());
    }
    write_result(report, hw_text::make(text()), "report")
}

/// Checks a handle of a database: HW_OK while it is open. The check does nothing else, so that its
/// time is the cost of a call with a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_is_open(db: hw_db, error: *mut hw_error) -> i32 {
    guard(error, || handles::get::<Store>(db).map(|_| ()))
}
