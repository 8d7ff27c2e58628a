//! `headwater snapshot`: named snapshots of a database.

use crate::failure::Failure;
use crate::grid::{Heading, bytes, render};
use crate::output::{print, print_json};
use crate::store::{DbTarget, TargetArgs};
use clap::{Args, Subcommand};
use headwater_server::shown_snapshots;
use serde_json::{Value, json};

/// Create, list and drop named snapshots of a database
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot holds everything that was acknowledged before it was made. It lasts until it is dropped, or ends by itself:
by age, by the bytes that only snapshots retain, or on a full disk, the oldest first. Rows that users delete later are
removed from it too. See docs/operate/snapshots.md.

Examples:
  headwater snapshot create --db ./data before-the-import
  headwater snapshot list --url http://127.0.0.1:7373
  headwater diff --db ./data before-the-import now")]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// Flush memory and create a snapshot of the current state
    Create {
        #[command(flatten)]
        target: TargetArgs,

        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the snapshots, the oldest first, and those that have ended
    List {
        #[command(flatten)]
        target: TargetArgs,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Drop a snapshot, and remove the data that only it retains
    Drop {
        #[command(flatten)]
        target: TargetArgs,

        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl Snapshot {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            SnapshotCommand::Create { target, name } => create(&target, &name),
            SnapshotCommand::List { target, json } => list(&target, json),
            SnapshotCommand::Drop { target, name } => drop_named(&target, &name),
        }
    }
}

fn create(target: &TargetArgs, name: &str) -> Result<(), Failure> {
    match target.open()? {
        DbTarget::Local(db) => {
            let db = db.open_existing()?;
            db.create_snapshot(name)?;
            db.close()?;
        }
        DbTarget::Remote(server) => {
            server.manage(&json!({ "op": "create_snapshot", "name": name }))?;
        }
    }
    eprintln!("snapshot `{name}` was created");
    Ok(())
}

fn drop_named(target: &TargetArgs, name: &str) -> Result<(), Failure> {
    match target.open()? {
        DbTarget::Local(db) => {
            let db = db.open_existing()?;
            db.drop_snapshot(name)?;
            db.close()?;
        }
        DbTarget::Remote(server) => {
            server.manage(&json!({ "op": "drop_snapshot", "name": name }))?;
        }
    }
    eprintln!("snapshot `{name}` was dropped");
    Ok(())
}

fn list(target: &TargetArgs, as_json: bool) -> Result<(), Failure> {
    let snapshots = match target.open()? {
        DbTarget::Local(db) => {
            let reader = db.open_to_read()?;
            shown_snapshots(&reader.snapshots(), &reader.ended_snapshots())
        }
        DbTarget::Remote(server) => server.manage(&json!({ "op": "show_snapshots" }))?.body,
    };
    match as_json {
        true => print_json(&snapshots),
        false => print(&text(&snapshots)),
    }
}

fn text(snapshots: &Value) -> String {
    let of = |value: &Value, key: &str| match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "never".to_owned(),
        Some(other) => other.to_string(),
    };
    let size = |value: &Value, key: &str| {
        bytes(value.get(key).and_then(Value::as_u64).unwrap_or_default())
    };
    let list = |key: &str| snapshots.get(key).and_then(Value::as_array).cloned();
    let rows: Vec<Vec<String>> = list("snapshots")
        .unwrap_or_default()
        .iter()
        .map(|one| {
            vec![
                of(one, "name"),
                of(one, "created"),
                of(one, "ends"),
                of(one, "streams"),
                of(one, "events"),
                size(one, "bytes"),
                size(one, "kept_bytes"),
            ]
        })
        .collect();
    let headings = [
        Heading::text("name"),
        Heading::text("created"),
        Heading::text("ends"),
        Heading::number("streams"),
        Heading::number("events"),
        Heading::number("bytes"),
        Heading::number("kept"),
    ];
    let mut out = render(&headings, &rows);
    for one in list("ended").unwrap_or_default() {
        let (name, at, why) = (of(&one, "name"), of(&one, "ended"), of(&one, "reason"));
        out.push_str(&format!("`{name}` ended at {at}: {why}\n"));
    }
    out
}
