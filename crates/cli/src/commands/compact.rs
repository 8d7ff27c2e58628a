//! `headwater compact`: rewrites what would become smaller or tidier.

use crate::arguments::parse_size;
use crate::failure::Failure;
use crate::grid::bytes;
use crate::progress::spinner;
use crate::server::Server;
use crate::store::{DbArgs, DbTarget, TargetArgs};
use clap::Args;
use headwater::Database;
use serde_json::json;
use std::time::Duration;

/// Interval between checks of a server that still compacts.
const LOOK: Duration = Duration::from_secs(1);

/// Rewrite partitions with dead bytes or late runs, and carry out deletes, retention and
/// aging
#[derive(Debug, Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    target: TargetArgs,

    /// Most bytes to write a second, for devices that are slow or wear out: 1MiB (a server has a
    /// setting for it)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<usize>,
}

impl Compact {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (before, after) = match self.target.open()? {
            DbTarget::Local(db) => self.local(&db)?,
            DbTarget::Remote(_) if self.rate.is_some() => {
                return Err(Failure::usage(
                    "--rate: a server compacts at the rate of its setting compaction.rate",
                ));
            }
            DbTarget::Remote(server) => remote(&server)?,
        };
        eprintln!("{} on disk before, {} now", bytes(before), bytes(after));
        Ok(())
    }

    /// Bytes of the files before and after.
    fn local(&self, db: &DbArgs) -> Result<(u64, u64), Failure> {
        let mut options = db.options();
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
        Ok((before, after))
    }
}

/// As [`Compact::local`], on a server. One that needs longer than it lets requests take goes on by
/// itself; it is polled until it has nothing left to do.
fn remote(server: &Server) -> Result<(u64, u64), Failure> {
    let spinner = spinner("compacting");
    let mut before = None;
    loop {
        let answered = server.try_manage(&json!({ "op": "compact" }))?;
        let bytes = |key: &str| answered.number(key);
        match (answered.status, answered.code()) {
            (200, _) => {
                spinner.finish_and_clear();
                let (Some(found), Some(after)) = (bytes("bytes_before"), bytes("bytes")) else {
                    return Err(Failure::failed(
                        "the server did not say how much is on disk",
                    ));
                };
                return Ok((before.unwrap_or(found), after));
            }
            (503, "E_TIMEOUT" | "E_BUSY") => {
                before = before.or(bytes("bytes_before"));
                std::thread::sleep(LOOK);
            }
            _ => return Err(answered.failure()),
        }
    }
}
