//! Opening the database a command works on.

use crate::arguments::parse_size;
use crate::failure::Failure;
use crate::server::{Server, ServerArgs, TIMEOUT};
use clap::Args;
use headwater::{Database, Options, Reader};
use std::path::PathBuf;
use std::time::Duration;

/// A directory of a database, and the memory that it may take.
#[derive(Debug, Args)]
pub(crate) struct DbArgs {
    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    pub(crate) db: PathBuf,

    /// Memory for events, caches and flushes
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    pub(crate) memory: usize,
}

/// A database: a directory on this machine, or that of a server.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: Option<PathBuf>,

    /// Memory for events, caches and flushes of a database opened here
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    pub(crate) memory: usize,

    #[command(flatten)]
    server: ServerArgs,
}

/// The database that a command works on.
pub(crate) enum DbTarget {
    Local(DbArgs),
    Remote(Server),
}

impl TargetArgs {
    /// True when a directory or a server is named.
    pub(crate) fn is_named(&self) -> bool {
        self.db.is_some() || self.server.is_named()
    }

    /// A server that was named goes before a directory, which may stand in the environment for
    /// other commands.
    pub(crate) fn open(&self) -> Result<DbTarget, Failure> {
        self.open_for(TIMEOUT)
    }

    /// As [`TargetArgs::open`]; a server's answers take at most so long.
    pub(crate) fn open_for(&self, longest: Duration) -> Result<DbTarget, Failure> {
        if let Some(server) = self.server.open(longest)? {
            return Ok(DbTarget::Remote(server));
        }
        match &self.db {
            Some(db) => Ok(DbTarget::Local(DbArgs {
                db: db.clone(),
                memory: self.memory,
            })),
            None => Err(Failure::usage(
                "no database is given: use --db DIR for a directory, or --url URL for a server that has it open",
            )),
        }
    }
}

impl DbArgs {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new(&self.db);
        options.memory_budget_bytes = self.memory;
        options
    }

    /// Opens a database that must be there.
    pub(crate) fn open_existing(&self) -> Result<Database, Failure> {
        let mut options = self.options();
        options.must_exist = true;
        Ok(Database::open(options)?)
    }

    /// Opens a database that must be there to read only: also beside a process that has it open,
    /// and without changing a file.
    pub(crate) fn open_to_read(&self) -> Result<Reader, Failure> {
        Ok(Reader::open(self.options())?)
    }
}
