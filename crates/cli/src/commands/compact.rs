//! `headwater compact`: rewrites what would become smaller or tidier.

use crate::arguments::parse_size;
use crate::failure::Failure;
use crate::grid::bytes;
use crate::progress::spinner;
use crate::store::DbArgs;
use clap::Args;
use headwater::Database;

/// Rewrite partitions that would become smaller or tidier, and carry out deletes, retention and
/// aging
#[derive(Debug, Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    db: DbArgs,

    /// Most bytes to write a second, for media that are slow or wear out: 1MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<usize>,
}

impl Compact {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut options = self.db.options();
        options.must_exist = true;
        options.compaction_bytes_per_second = self.rate.map(|rate| rate as u64);
        let db = Database::open(options)?;
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
