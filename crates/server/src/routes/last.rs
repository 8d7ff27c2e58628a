//! The newest values of streams.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, Deadline, answer, at_most, ok_if_found, parse_stream, query, too_much};
use crate::routes::streams::{StreamFilter, push_last, words};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Uri};
use axum::response::Response;
use headwater::{ClosedRange, Level, Snapshot, StreamHandle, Timestamp};
use headwater_wire::json::push_str;
use headwater_wire::query::QueryError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum streams of an answer.
const STREAMS_MAX: usize = 10_000;
/// Streams of an answer up to which their lag is told.
const LAG_STREAMS_MAX: usize = 256;
/// Header with the lag of newest events, in milliseconds.
const LIVE_LAG: HeaderName = HeaderName::from_static("x-headwater-live-lag");

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/last", Needs::Read, last)]
}

/// Greatest lag of the edges that the newest values of streams are from, by part.
fn lag_of(
    lags: &BTreeMap<String, u64>,
    snapshot: &Snapshot,
    seen: &[(StreamHandle, ClosedRange)],
) -> Result<Option<u64>, ApiError> {
    let mut most = None;
    for (handle, range) in seen.iter().filter(|_| !lags.is_empty()) {
        // The coarsest level: an answer exists already, so all levels that it needs are present.
        let found = ok_if_found(handle.coverage(snapshot, *range, Some(Level::MAX)))?;
        let parts = found.iter().flatten().filter_map(|of| of.part.as_deref());
        most = most.max(parts.filter_map(|part| lags.get(part)).max().copied());
    }
    Ok(most)
}

/// Streams that are absent or not visible are left out.
async fn last(State(app): State<Arc<App>>, access: Access, uri: Uri) -> Result<Response, ApiError> {
    let query = query(&uri, &["stream", "table", "search", "snapshot"])?;
    let mut streams = query
        .all("stream")
        .map(parse_stream)
        .collect::<Result<Vec<_>, _>>()?;
    at_most(streams.len(), STREAMS_MAX, "streams")?;
    let table = query.one("table")?.map(str::to_owned);
    let search = query.one("search")?;
    let past = request::past(&query)?;
    match (streams.is_empty(), table.as_deref().or(search)) {
        (true, None) => {
            query.required(
                "stream",
                "table,tag=value, at least once; or table, or search",
            )?;
        }
        (false, Some(value)) => {
            let reason = "`stream` cannot be combined with `table` or `search`";
            let name = if table.is_some() { "table" } else { "search" };
            return Err(QueryError::value(name, reason, value).into());
        }
        _ => {}
    }
    let wanted = StreamFilter {
        words: words(search.unwrap_or_default())?,
        table,
    };
    let (body, until, lag) = app
        .blocking(move |app| {
            let deadline = Deadline::after(app.settings.request_timeout);
            let snapshot = app.snapshot_of(past.as_deref())?;
            if streams.is_empty() {
                wanted.walk(&snapshot, &access, None, deadline, &mut |stream| {
                    streams.push(stream);
                    streams.len() <= STREAMS_MAX
                })?;
                if streams.len() > STREAMS_MAX {
                    return Err(too_much(format!(
                        "more than {STREAMS_MAX} streams; narrow the search"
                    )));
                }
            } else {
                streams.retain(|s| access.may_read_stream(s));
            }
            let mut out = Vec::with_capacity(64 + streams.len() * 256);
            out.extend_from_slice(b"{\"streams\":[");
            let mut is_first = true;
            let mut seen = Vec::new();
            for stream in &streams {
                deadline.check()?;
                if let Some(handle) = ok_if_found(snapshot.handle(stream))? {
                    let Some(last) = ok_if_found(handle.last(&snapshot))? else {
                        continue;
                    };
                    if !is_first {
                        out.push(b',');
                    }
                    is_first = false;
                    let newest = last.iter().map(|value| value.time).max();
                    let newest = newest.unwrap_or(Timestamp::MIN);
                    seen.push((handle, ClosedRange::new(newest, Timestamp::MAX)));
                    out.extend_from_slice(b"{\"stream\":");
                    push_str(&mut out, &stream.to_string());
                    out.extend_from_slice(b",\"fields\":{");
                    for (index, value) in last.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        push_str(&mut out, &value.field);
                        out.push(b':');
                        push_last(&mut out, value);
                    }
                    out.extend_from_slice(b"}}");
                }
            }
            out.extend_from_slice(b"]}");
            let lags = match (&app.fleet, &past) {
                (Some(fleet), None) if seen.len() <= LAG_STREAMS_MAX => fleet.live_lags(),
                _ => BTreeMap::new(),
            };
            let lag = lag_of(&lags, &snapshot, &seen)?;
            let seen = seen.iter().map(|(handle, range)| (handle, *range));
            let until = app.until(&snapshot, seen)?;
            Ok((out, until, lag))
        })
        .await?;
    let mut answer = request::with_until(answer(request::JSON, body), until);
    if let Some(lag) = lag {
        answer
            .headers_mut()
            .insert(LIVE_LAG, HeaderValue::from(lag));
    }
    Ok(answer)
}
