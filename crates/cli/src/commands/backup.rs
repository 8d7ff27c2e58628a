//! `headwater backup`: copies one state of a database into a folder.

use super::check::print_report;
use crate::failure::Failure;
use crate::grid::{bytes, grouped};
use crate::output::print;
use crate::progress::spinner;
use crate::store::DbArgs;
use clap::Args;
use headwater::BackupOptions;
use std::path::PathBuf;

/// Back a database up into a folder, also beside a process that has it open
#[derive(Debug, Args)]
#[command(after_help = "\
If the folder holds an older backup of the same database, only what is new is copied; the older one stays valid until the
new one is complete. An eighth of its files is compared with their checksums each time, with --verify all of them; damaged
ones are copied again. Exit code 1 when the database, or with --verify the backup, is damaged; damage is listed on stdout.")]
pub(crate) struct Backup {
    #[command(flatten)]
    db: DbArgs,

    /// Folder of the backup: empty, not there, or an older backup
    #[arg(value_name = "BACKUP")]
    to: PathBuf,

    /// Compare the checksums of all that is there already, and check all of the backup afterwards
    #[arg(long)]
    verify: bool,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let working = spinner("backing up");
        let how = BackupOptions {
            verify: self.verify,
        };
        let taken = headwater::backup_with(&self.db.options(), &self.to, &how);
        working.finish_and_clear();
        let report = taken?;
        eprintln!(
            "backup {}: {} files, {}, of which {} copied",
            report.number,
            grouped(report.files),
            bytes(report.bytes),
            bytes(report.bytes_copied)
        );
        if report.files_mended > 0 {
            eprintln!(
                "{} of {} checked files of the backup were damaged and were copied again",
                grouped(report.files_mended),
                grouped(report.files_verified)
            );
        }
        for damage in &report.damages {
            print(&format!("damaged in the database: {damage}\n"))?;
        }
        if !report.damages.is_empty() {
            eprintln!(
                "headwater: {} files of the database are damaged; the backup has them as in an older backup, or damaged: run \
                 `headwater check`, then `headwater repair`",
                grouped(report.damages.len() as u64)
            );
        }
        if !self.verify {
            return match report.damages.is_empty() {
                true => Ok(()),
                false => Err(Failure::Reported),
            };
        }
        let working = spinner("checking");
        let checked = headwater::verify_backup(&self.to);
        working.finish_and_clear();
        print_report(&checked?)?;
        match report.damages.is_empty() {
            true => Ok(()),
            false => Err(Failure::Reported),
        }
    }
}
