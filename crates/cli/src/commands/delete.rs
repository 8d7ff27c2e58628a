//! `headwater delete`: removes events in a range, or streams.

use crate::arguments::{RangeArgs, parse_tag};
use crate::failure::Failure;
use crate::store::DbArgs;
use clap::Args;
use headwater::DeleteSpec;

/// Delete the events of a range, or drop streams
#[derive(Debug, Args)]
#[command(after_help = "\
It is in force when the command ends, for everything written before; space is freed by and by, and at once by `compact`.

Examples:
  headwater delete --db ./data weather --where origin=EWR --from 2013-07-04 --to 2013-07-05
  headwater delete --db ./data weather --to 2013-02-01
  headwater delete --db ./data weather --where origin=EWR --drop-streams")]
pub(crate) struct Delete {
    #[command(flatten)]
    db: DbArgs,

    /// Name of the table
    #[arg(value_name = "TABLE")]
    table: String,

    /// Only streams with this tag; may be repeated
    #[arg(long = "where", value_name = "TAG=VALUE", value_parser = parse_tag)]
    filters: Vec<(String, String)>,

    #[command(flatten)]
    range: RangeArgs,

    /// All events, whatever their time
    #[arg(long, conflicts_with_all = ["from", "to"])]
    all_time: bool,

    /// The streams go too, with all their events
    #[arg(long, requires = "filters", conflicts_with_all = ["from", "to", "all_time"])]
    drop_streams: bool,
}

impl Delete {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let bounded = self.range.from.is_some() || self.range.to.is_some();
        if !bounded && !self.all_time && !self.drop_streams {
            return Err(Failure::usage(
                "which events? Give --from, --to or both, --all-time, or --drop-streams",
            ));
        }
        let db = self.db.open_existing()?;
        let count = if self.drop_streams {
            db.drop_streams(&self.table, &self.filters)?
        } else {
            db.delete(&DeleteSpec {
                table: self.table,
                tags: self.filters,
                range: self.range.range(),
            })?
        };
        db.close()?;
        let what = if self.drop_streams {
            "dropped"
        } else {
            "deleted from"
        };
        eprintln!("{what} {count} stream{}", if count == 1 { "" } else { "s" });
        Ok(())
    }
}
