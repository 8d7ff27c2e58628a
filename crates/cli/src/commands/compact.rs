//! `headwater compact`: rewrites what would become smaller or tidier.

use crate::failure::Failure;
use crate::grid::bytes;
use crate::progress::spinner;
use crate::store::DbArgs;
use clap::Args;

/// Rewrite partitions that would become smaller or tidier
#[derive(Debug, Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    db: DbArgs,
}

impl Compact {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_existing()?;
        let before = db.stats()?.disk_bytes;
        let spinner = spinner("compacting");
        let done = db.compact();
        spinner.finish_and_clear();
        done?;
        let after = db.stats()?.disk_bytes;
        db.close()?;
        eprintln!("{} on disk before, {} now", bytes(before), bytes(after));
        Ok(())
    }
}
