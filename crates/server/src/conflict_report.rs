//! Conflicts between the databases that a cloud shows as one: a report is made now and then, for
//! the status of edges, metrics and warnings of answers.
//!
//! Invariants: a report takes at most a fiftieth of the time between two. Without edges none is
//! made, and where nothing has changed nothing is read. Concurrency: one worker, which reads away
//! from the runtime. Failure: a failed report is logged, and the one before stays.

use crate::app::App;
use crate::error::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::Response;
use headwater_wire::query::{Query, percent_decode};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest interval between two reports.
const INTERVAL: Duration = Duration::from_secs(60);
/// Share of the time that reports may take, as its divisor.
const SHARE: u32 = 50;

/// Makes reports until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let mut pause = Duration::from_secs(1);
    loop {
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let begin = Instant::now();
        let found = app.blocking(refresh).await;
        if let Err(error) = found {
            tracing::warn!(?error, "streams of equal names cannot be compared");
        }
        pause = INTERVAL.max(begin.elapsed() * SHARE);
    }
}

/// Makes a report, whatever has changed.
pub(crate) fn find(app: &App) -> Result<(), ApiError> {
    match &app.fleet {
        Some(fleet) => Ok(fleet.find_conflicts(app.db().snapshot()?)?),
        None => Ok(()),
    }
}

/// Makes a report if anything has changed since the one before.
fn refresh(app: &App) -> Result<(), ApiError> {
    if let Some(fleet) = &app.fleet {
        fleet.refresh_conflicts(app.db().snapshot()?)?;
    }
    Ok(())
}

const WARNING: HeaderName = HeaderName::from_static("x-headwater-warning");
const HIDDEN: HeaderValue = HeaderValue::from_static(
    "rows are hidden: several edges have rows of a stream at the same instant; see headwater edges conflicts",
);

/// Adds a warning to answers from tables of which rows are hidden. A query that names no table in
/// its address, as SQL does, is warned of any such table.
pub(crate) async fn warn(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let fleet = app.fleet.as_ref();
    let is_concerned = fleet.is_some_and(|fleet| {
        let report = fleet.conflicts();
        let hidden = report.tables();
        !hidden.is_empty() && concerns(request.uri(), &hidden)
    });
    let mut answer = next.run(request).await;
    if is_concerned && answer.status().is_success() {
        answer.headers_mut().append(WARNING, HIDDEN);
    }
    answer
}

/// Whether an address names one of these tables, or none at all.
fn concerns(uri: &Uri, tables: &BTreeSet<&str>) -> bool {
    let is_hidden = |text: &str| tables.contains(&*table_of(text));
    if let Some(tile) = uri.path().strip_prefix("/tiles/") {
        return percent_decode(tile, false).is_none_or(|tile| is_hidden(&tile));
    }
    // A query string that cannot be read is refused by its route.
    let Ok(query) = Query::parse(uri.query().unwrap_or_default()) else {
        return false;
    };
    let named = ["channel", "stream", "table"].map(|key| query.all(key));
    let mut named = named.into_iter().flatten().peekable();
    named.peek().is_none() || named.any(is_hidden)
}

/// Name of the table in the text of a stream, a channel, or a table.
fn table_of(text: &str) -> String {
    let mut table = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ',' | '.' => break,
            '\\' => table.extend(letters.next()),
            letter => table.push(letter),
        }
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn uri(query: &str) -> Uri {
        format!("/api/v1/scan?{query}").parse().unwrap()
    }

    #[test]
    fn a_tile_concerns_the_table_in_its_path() {
        let hidden = BTreeSet::from(["cpu"]);
        let of = |path: &'static str| concerns(&Uri::from_static(path), &hidden);
        assert!(of("/tiles/cpu%2Chost=pi.usage/3.17.json"));
        assert!(!of("/tiles/mem%2Chost=pi.usage/3.17.json"));
    }

    #[test]
    fn a_query_concerns_the_tables_that_it_names() {
        let hidden = BTreeSet::from(["cpu", "a,b"]);
        for query in [
            "stream=cpu,host=pi.usage&z=3",
            "table=cpu",
            "table=mem&table=cpu",
            "stream=a%5C%2Cb%2Chost=pi",
            "q=select",
            "channel=mem.x&channel=cpu.x",
            "",
        ] {
            assert!(concerns(&uri(query), &hidden), "{query}");
        }
        for query in ["stream=cpu2,host=pi", "table=mem", "stream=a"] {
            assert!(!concerns(&uri(query), &hidden), "{query}");
        }
    }
}
