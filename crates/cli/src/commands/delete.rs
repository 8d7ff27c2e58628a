//! `headwater delete`: removes events in a range, or streams.

use crate::arguments::{RemovedRange, parse_tag};
use crate::failure::Failure;
use crate::server::Server;
use crate::store::{DbArgs, DbTarget, TargetArgs};
use clap::Args;
use headwater::DeleteSpec;
use headwater_wire::instant::format_instant;
use serde_json::{Value, json};

/// Delete the events of a range, or drop streams
#[derive(Debug, Args)]
#[command(after_help = "\
The delete is in force when the command ends, for everything written before; space is freed over time, or at once by `compact`.

Examples:
  headwater delete --db ./data weather --where origin=EWR --from 2013-07-04 --to 2013-07-05
  headwater delete --db ./data weather --to 2013-02-01
  headwater delete --db ./data weather --where origin=EWR --drop-streams
  headwater delete --url http://127.0.0.1:7373 weather --to now-30d")]
pub(crate) struct Delete {
    #[command(flatten)]
    target: TargetArgs,

    /// Name of the table
    #[arg(value_name = "TABLE")]
    table: String,

    /// Only streams with this tag; may be repeated
    #[arg(long = "where", value_name = "TAG=VALUE", value_parser = parse_tag)]
    filters: Vec<(String, String)>,

    #[command(flatten)]
    range: RemovedRange,

    /// All events, whatever their time
    #[arg(long, conflicts_with_all = ["from", "to"])]
    all_time: bool,

    /// Drop the streams too, with all their events
    #[arg(long, requires = "filters", conflicts_with_all = ["from", "to", "all_time"])]
    drop_streams: bool,
}

impl Delete {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let bounded = self.range.from.is_some() || self.range.to.is_some();
        if !bounded && !self.all_time && !self.drop_streams {
            return Err(Failure::usage(
                "the range of time is missing: give --from, --to or both, --all-time, or --drop-streams",
            ));
        }
        let count = match self.target.open()? {
            DbTarget::Local(db) => self.local(&db)?,
            DbTarget::Remote(server) => self.remote(&server)?,
        };
        if count == 0 && !self.drop_streams {
            eprintln!("nothing was deleted: no stream has an event in the range");
            return Ok(());
        }
        let what = if self.drop_streams {
            "dropped"
        } else {
            "deleted from"
        };
        eprintln!("{what} {count} stream{}", if count == 1 { "" } else { "s" });
        Ok(())
    }

    /// Deletes in a directory, and returns the number of streams concerned.
    fn local(&self, db: &DbArgs) -> Result<u64, Failure> {
        let db = db.open_existing()?;
        let count = if self.drop_streams {
            db.drop_streams(&self.table, &self.filters)?
        } else {
            let spec = DeleteSpec {
                table: self.table.clone(),
                tags: self.filters.clone(),
                range: self.range.range(),
            };
            let count = db
                .snapshot()?
                .streams_in(&spec.table, &spec.tags, spec.range)?;
            db.delete(&spec)?;
            count
        };
        db.close()?;
        Ok(count)
    }

    fn remote(&self, server: &Server) -> Result<u64, Failure> {
        let tags = self.filters.iter();
        let tags: serde_json::Map<String, Value> = tags
            .map(|(tag, value)| (tag.clone(), Value::from(value.as_str())))
            .collect();
        let asked = if self.drop_streams {
            json!({ "op": "drop_streams", "table": self.table, "tags": tags })
        } else {
            // Instants, so that `now` is that of this machine, as it would be without a server.
            let at = |at: Option<headwater::Timestamp>| at.map(format_instant);
            json!({
                "op": "delete", "table": self.table, "tags": tags,
                "from": at(self.range.from), "to": at(self.range.to), "all_time": self.all_time,
            })
        };
        let done = server.manage(&asked)?;
        done.number("streams")
            .ok_or_else(|| Failure::failed("the server did not say how many streams it concerned"))
    }
}
