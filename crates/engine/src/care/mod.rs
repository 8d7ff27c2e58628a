//! Care of a database beside and after its owner: reading while another process writes, backup, repair.
//!
//! Invariants: what reads beside an owner takes no lock and changes no file of the database.

mod backup;
mod guard;
mod look;
mod reader;
mod repair;
mod reserve;

#[cfg(fuzzing)]
pub(crate) use backup::fuzz_manifest;
pub use backup::{BackupOptions, BackupReport, backup, backup_with, restore, verify_backup};
pub(crate) use guard::{Guard, GuardedFiles};
pub use reader::Reader;
pub(crate) use reader::open_core;
pub use repair::{RepairFinding, RepairMode, RepairReport, repair};
pub(crate) use reserve::{Reserve, ReservedFiles};
