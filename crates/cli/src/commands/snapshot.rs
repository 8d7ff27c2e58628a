//! `headwater snapshot`: states of a database that are kept under names.

use crate::failure::Failure;
use crate::grid::{Heading, bytes, render};
use crate::output::{print, print_json};
use crate::store::{Place, PlaceArgs};
use clap::{Args, Subcommand};
use headwater_server::shown_snapshots;
use serde_json::{Value, json};

/// Keep the state of a database under a name, to be read later
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot holds everything that was acknowledged before it was made. It lasts until it is dropped, or ends by itself:
by age, by the bytes that only snapshots keep, or on a full disk, the oldest first. What users delete later is not in
it either. docs/operate/snapshots.md says more.

Examples:
  headwater snapshot create --db ./data before-the-import
  headwater snapshot list --url http://127.0.0.1:7373
  headwater diff --db ./data before-the-import now")]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Store what memory holds, and keep the state of now
    Create {
        #[command(flatten)]
        place: PlaceArgs,

        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the snapshots, the oldest first, and those that ended by themselves
    List {
        #[command(flatten)]
        place: PlaceArgs,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Drop a snapshot; what only it keeps is removed
    Drop {
        #[command(flatten)]
        place: PlaceArgs,

        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl Snapshot {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Create { place, name } => create(&place, &name),
            What::List { place, json } => list(&place, json),
            What::Drop { place, name } => drop_named(&place, &name),
        }
    }
}

fn create(place: &PlaceArgs, name: &str) -> Result<(), Failure> {
    match place.open()? {
        Place::Here(db) => {
            let db = db.open_existing()?;
            db.create_snapshot(name)?;
            db.close()?;
        }
        Place::There(server) => {
            server.manage(&json!({ "op": "create_snapshot", "name": name }))?;
        }
    }
    eprintln!("snapshot `{name}` was made");
    Ok(())
}

fn drop_named(place: &PlaceArgs, name: &str) -> Result<(), Failure> {
    match place.open()? {
        Place::Here(db) => {
            let db = db.open_existing()?;
            db.drop_snapshot(name)?;
            db.close()?;
        }
        Place::There(server) => {
            server.manage(&json!({ "op": "drop_snapshot", "name": name }))?;
        }
    }
    eprintln!("snapshot `{name}` was dropped");
    Ok(())
}

fn list(place: &PlaceArgs, as_json: bool) -> Result<(), Failure> {
    let told = match place.open()? {
        Place::Here(db) => {
            let reader = db.open_to_read()?;
            shown_snapshots(&reader.snapshots(), &reader.ended_snapshots())
        }
        Place::There(server) => server.manage(&json!({ "op": "show_snapshots" }))?.body,
    };
    match as_json {
        true => print_json(&told),
        false => print(&text(&told)),
    }
}

fn text(told: &Value) -> String {
    let of = |value: &Value, key: &str| match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "never".to_owned(),
        Some(other) => other.to_string(),
    };
    let size = |value: &Value, key: &str| {
        bytes(value.get(key).and_then(Value::as_u64).unwrap_or_default())
    };
    let list = |key: &str| told.get(key).and_then(Value::as_array).cloned();
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
        out.push_str(&format!("`{name}` ended at {at}, since {why}\n"));
    }
    out
}
