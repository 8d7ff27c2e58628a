//! `headwater tier`: the fast tier of a database.

use crate::failure::Failure;
use crate::output::print;
use crate::store::DbArgs;
use clap::{Args, Subcommand};
use headwater::io::{PmemFiles, Standing};
use headwater::{FastTier, TierParts};
use std::path::{Path, PathBuf};

/// Show or change what lies in the fast tier of a database
#[derive(Debug, Args)]
#[command(after_help = "\
A fast tier is a folder on a small fast medium beside the large one of the database. The database must not be open, but
for `show`. A server takes its tier from the setting tier.fast. docs/operate/tiers.md says what to place where.")]
pub(crate) struct Tier {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say which tier the database uses: `fast: DIR (PARTS)`, or `fast: none`
    Show {
        #[command(flatten)]
        db: DbArgs,
    },
    /// Use a tier, or place other parts in it
    Use {
        #[command(flatten)]
        db: DbArgs,
        /// Folder of the tier
        #[arg(long, value_name = "DIR")]
        fast: PathBuf,
        /// What is to lie there: log, buffers, index, newest, or several with commas between
        #[arg(long, value_name = "PARTS", default_value = "log,buffers")]
        parts: TierParts,
    },
    /// Use no tier any more: everything lies in the directory of the database again
    Leave {
        #[command(flatten)]
        db: DbArgs,
    },
    /// Take up a database and its tier that were moved to other folders
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
        let db = match self.what {
            What::Show { db } => db,
            What::Use { db, fast, parts } => {
                if parts.is_empty() {
                    return Err(Failure::usage(
                        "--parts: expected log, buffers, index, newest, or several; `headwater tier leave` uses none",
                    ));
                }
                let tier = FastTier {
                    folder: fast,
                    parts,
                };
                headwater::use_fast_tier(&db.options(), Some(&tier))?;
                db
            }
            What::Leave { db } => {
                headwater::use_fast_tier(&db.options(), None)?;
                db
            }
            What::Adopt { db, fast } => {
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

/// What the medium of a tier is, where it is more or less than files of the system.
fn standing(folder: &Path) -> &'static str {
    match PmemFiles::new().standing(folder) {
        Ok(Standing::Persistent) => " on persistent memory",
        Ok(Standing::Memory) => " in the machine's memory: gone with its power",
        Ok(_) => "",
        Err(_) => ": cannot be written to",
    }
}
