//! Coverage of streams: the ranges that are here, from which node, up to when, and the ranges
//! elsewhere.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, answer, at_most, now, ok_if_found, parse_stream, query};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater::{ClosedRange, Level, Snapshot, StreamName, Timestamp};
use serde::Serialize;
use std::sync::Arc;

/// Maximum streams of an answer.
const STREAMS_MAX: usize = 1_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/coverage", Needs::Read, coverage)]
}

/// Body of the answer. Its names are a promise.
#[derive(Serialize)]
struct Answer {
    streams: Vec<Covered>,
}

#[derive(Serialize)]
struct Covered {
    stream: String,
    /// The whole range is present.
    is_here: bool,
    /// Instant up to which the stream is present; `None` where the whole stream is present, or no
    /// part of it.
    until: Option<String>,
    stretches: Vec<Stretch>,
}

/// A part of the range that one node has.
#[derive(Serialize)]
struct Stretch {
    /// The edge; `None` for this node's own data, and where the owner is unknown here.
    edge: Option<String>,
    from: String,
    to: String,
    is_here: bool,
    until: Option<String>,
    /// Shown in an older version: the newest one is in transit.
    is_older: bool,
    /// Bytes of missing ranges that are known.
    missing_bytes: u64,
}

fn text(at: Timestamp) -> String {
    at.as_nanos().to_string()
}

fn covered(
    snapshot: &Snapshot,
    stream: &StreamName,
    range: ClosedRange,
    level: Option<Level>,
) -> headwater::Result<Covered> {
    let parts = snapshot.coverage(stream, range, level)?;
    let until = parts.iter().find(|part| !part.is_here);
    let stretches = parts.iter().map(|part| Stretch {
        edge: part
            .part
            .as_deref()
            .filter(|name| *name != headwater_cluster::OWN)
            .map(str::to_owned),
        from: text(part.range.first),
        to: text(part.range.last),
        is_here: part.is_here,
        until: part.until.map(text),
        is_older: part.is_older,
        missing_bytes: part.missing.iter().map(|missed| missed.bytes).sum(),
    });
    Ok(Covered {
        stream: stream.to_string(),
        is_here: until.is_none(),
        until: until.and_then(|part| part.until).map(text),
        stretches: stretches.collect(),
    })
}

/// Streams that are absent or not visible are left out.
async fn coverage(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["stream", "from", "to", "level"])?;
    query.required("stream", "table,tag=value, at least once")?;
    let mut streams = query
        .all("stream")
        .map(parse_stream)
        .collect::<Result<Vec<_>, _>>()?;
    at_most(streams.len(), STREAMS_MAX, "streams")?;
    let range = query.range(now())?;
    let level: Option<i32> = query.number("level")?;
    let level = level.map(Level::clamped);
    let body = app
        .blocking(move |app| {
            let snapshot = app.snapshot()?;
            streams.retain(|stream| access.may_read_stream(stream));
            let mut all = Vec::new();
            for stream in &streams {
                all.extend(ok_if_found(covered(&snapshot, stream, range, level))?);
            }
            let answer = Answer { streams: all };
            serde_json::to_vec(&answer).map_err(|_| ApiError::internal())
        })
        .await?;
    Ok(answer(request::JSON, body))
}
