//! `headwater backup`: copies one state of a database into a folder.

use super::check::print_report;
use crate::failure::Failure;
use crate::grid::{bytes, grouped};
use crate::progress::spinner;
use crate::store::DbArgs;
use clap::Args;
use std::path::PathBuf;

/// Back a database up into a folder, also beside a process that has it open
#[derive(Debug, Args)]
#[command(after_help = "\
Into a folder that holds an older backup of the same database, only what is new is copied; the older one counts until the
new one is whole.")]
pub(crate) struct Backup {
    #[command(flatten)]
    db: DbArgs,

    /// Folder of the backup: empty, not there, or an older backup
    #[arg(value_name = "BACKUP")]
    to: PathBuf,

    /// Read the backup again and check all of it
    #[arg(long)]
    verify: bool,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let working = spinner("backing up");
        let taken = headwater::backup(&self.db.options(), &self.to);
        working.finish_and_clear();
        let report = taken?;
        eprintln!(
            "backup {}: {} files, {}, of which {} copied",
            report.number,
            grouped(report.files),
            bytes(report.bytes),
            bytes(report.bytes_copied)
        );
        if !self.verify {
            return Ok(());
        }
        let working = spinner("checking");
        let checked = headwater::verify_backup(&self.to);
        working.finish_and_clear();
        print_report(&checked?)
    }
}
