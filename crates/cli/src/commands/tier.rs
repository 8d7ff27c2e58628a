//! `headwater tier`: the fast tier of a database.

use crate::failure::Failure;
use crate::output::print;
use crate::server::Server;
use crate::store::{DbArgs, DbTarget, TargetArgs};
use clap::{Args, Subcommand};
use headwater::io::{PmemFiles, Standing};
use headwater::{FastTier, TierParts};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show or change what is stored in the fast tier of a database
#[derive(Debug, Args)]
#[command(after_help = "\
A fast tier is a folder on a small fast device beside the large one of the database. A database of --db must not be open,
except for `show`; a server (--url) moves the parts while it serves, and at its next start reads the tier from the
setting tier.fast, which should name the same. docs/operate/tiers.md says what to place where.")]
pub(crate) struct Tier {
    #[command(subcommand)]
    command: TierCommand,
}

#[derive(Debug, Subcommand)]
enum TierCommand {
    /// Show which tier the database uses: `fast: DIR (PARTS)`, or `fast: none`
    Show {
        #[command(flatten)]
        db: DbArgs,
    },
    /// Use a tier, or place other parts in it
    Use {
        #[command(flatten)]
        target: TargetArgs,
        /// Folder of the tier
        #[arg(long, value_name = "DIR")]
        fast: PathBuf,
        /// Parts to place there: log, pins, index, newest, or several with commas between
        #[arg(long, value_name = "PARTS", default_value = "log,pins")]
        parts: TierParts,
    },
    /// Stop using the tier: everything is moved back to the directory of the database
    Leave {
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Record that a database and its tier were moved to other folders
    Adopt {
        #[command(flatten)]
        db: DbArgs,
        /// Folder of the tier
        #[arg(long, value_name = "DIR")]
        fast: PathBuf,
    },
}

impl Tier {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = match self.command {
            TierCommand::Show { db } => db,
            TierCommand::Use {
                target,
                fast,
                parts,
            } => {
                if parts.is_empty() {
                    return Err(Failure::usage(
                        "--parts: expected log, pins, index, newest, or several; `headwater tier leave` uses none",
                    ));
                }
                let tier = FastTier {
                    folder: fast,
                    parts,
                };
                match target.open()? {
                    DbTarget::Remote(server) => return remote(&server, Some(&tier)),
                    DbTarget::Local(db) => {
                        headwater::use_fast_tier(&db.options(), Some(&tier))?;
                        db
                    }
                }
            }
            TierCommand::Leave { target } => match target.open()? {
                DbTarget::Remote(server) => return remote(&server, None),
                DbTarget::Local(db) => {
                    headwater::use_fast_tier(&db.options(), None)?;
                    db
                }
            },
            TierCommand::Adopt { db, fast } => {
                let mut options = db.options();
                options.fast_dir = Some(fast);
                headwater::adopt_fast_tier(&options)?;
                db
            }
        };
        match headwater::fast_tier(&db.db)? {
            Some(tier) => print(&format!(
                "fast: {} ({}){}\n",
                tier.folder.display(),
                tier.parts,
                standing(&tier.folder)
            )),
            None => print("fast: none\n"),
        }
    }
}

/// Makes a server move the parts in the tier, while it serves.
fn remote(server: &Server, tier: Option<&FastTier>) -> Result<(), Failure> {
    let asked = json!({
        "op": "move_tier",
        "fast": tier.map(|tier| &tier.folder),
        "parts": tier.map(|tier| tier.parts.to_string()),
    });
    let now = server.manage(&asked)?;
    match (now.text("fast"), now.text("parts")) {
        (Some(fast), Some(parts)) => print(&format!("fast: {fast} ({parts})\n")),
        _ => print("fast: none\n"),
    }
}

/// Note on the medium of a tier, where it is more or less than files of the system.
fn standing(folder: &Path) -> &'static str {
    match PmemFiles::new().standing(folder) {
        Ok(Standing::Persistent) => " on persistent memory",
        Ok(Standing::Memory) => " in the machine's memory: lost on power failure",
        Ok(_) => "",
        Err(_) => ": cannot be written to",
    }
}
