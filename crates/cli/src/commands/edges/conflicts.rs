//! `headwater edges conflicts`: streams that several databases have in the same stretch of time.

use super::parts::{decoded, instant};
use crate::commands::sync::ListFormat;
use crate::failure::Failure;
use crate::grid::{Heading, grouped, printable, render};
use crate::output::{print, print_json};
use crate::server::Server;
use headwater_cluster::{ConflictCounts, StreamConflict};
use serde_json::{Value, json};

/// Counts of an edge, in words.
pub(super) fn text(counts: &ConflictCounts) -> String {
    let streams = match counts.streams {
        1 => "1 stream is".to_owned(),
        n => format!("{} streams are", grouped(n)),
    };
    let least = match counts.is_complete {
        true => "",
        false => "at least ",
    };
    format!(
        "{streams} also in another database, in the same stretch of time; {least}{} rows are hidden: `headwater edges conflicts` lists them",
        grouped(counts.hidden_rows)
    )
}

/// Lists all conflicts.
pub(super) fn list(server: &Server, format: ListFormat) -> Result<(), Failure> {
    let answer = server.sync(&json!({ "op": "conflicts" }))?;
    if format == ListFormat::Json {
        return print_json(&answer.body);
    }
    let listed = answer.body.get("conflicts").cloned().unwrap_or(Value::Null);
    let listed: Vec<StreamConflict> = decoded(listed)?;
    let headings = [
        Heading::text("stream"),
        Heading::text("part"),
        Heading::text("first"),
        Heading::text("last"),
        Heading::number("hidden rows"),
    ];
    let rows = listed.iter().map(|conflict| {
        vec![
            printable(&conflict.stream),
            printable(&conflict.part),
            instant(Some(conflict.first_ns)),
            instant(Some(conflict.last_ns)),
            conflict.hidden_rows.map_or_else(|| "?".to_owned(), grouped),
        ]
    });
    print(&render(&headings, &rows.collect::<Vec<_>>()))?;
    let is_complete = answer.body.get("is_complete").and_then(Value::as_bool);
    if is_complete != Some(true) {
        eprintln!("headwater: there may be more: not all streams were examined, or listed");
    }
    if !listed.is_empty() {
        eprintln!(
            "headwater: rows of all parts are shown; at an equal instant the row of the edge that was added first. `headwater edges move` or `headwater edges tag` ends a conflict"
        );
    }
    Ok(())
}
