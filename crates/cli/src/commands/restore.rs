//! `headwater restore`: makes a database of a backup.

use super::check::print_report;
use crate::failure::Failure;
use crate::progress::spinner;
use crate::store::DbArgs;
use clap::Args;
use std::path::PathBuf;

/// Restore a database from a backup, and check it
#[derive(Debug, Args)]
#[command(after_help = "\
The directory of the database must be empty or absent. Exit code 1 when the backup cannot be restored or what was
restored is damaged; a restore that was cut short leaves a directory that does not open.")]
pub(crate) struct Restore {
    #[command(flatten)]
    db: DbArgs,

    /// Folder of the backup
    #[arg(value_name = "BACKUP")]
    from: PathBuf,
}

impl Restore {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let working = spinner("restoring");
        let restored = headwater::restore(&self.from, &self.db.options());
        working.finish_and_clear();
        print_report(&restored?)
    }
}
