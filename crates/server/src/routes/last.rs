//! The newest values of streams.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, Deadline, answer, at_most, found, parse_stream, query, too_much};
use crate::routes::streams::{StreamFilter, push_last, words};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater::{ClosedRange, Timestamp};
use headwater_wire::json::push_str;
use headwater_wire::query::QueryError;
use std::sync::Arc;

/// Maximum streams of an answer.
const STREAMS_MAX: usize = 10_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/last", Needs::Read, last)]
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
            let reason =
                "streams are asked for by `stream` or by what they have in common, not by both";
            let name = if table.is_some() { "table" } else { "search" };
            return Err(QueryError::value(name, reason, value).into());
        }
        _ => {}
    }
    let wanted = StreamFilter {
        words: words(search.unwrap_or_default())?,
        table,
    };
    let (body, until) = app
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
                let Some(last) = found(snapshot.last(stream))? else {
                    continue;
                };
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                let newest = last.iter().map(|value| value.time).max();
                let newest = newest.unwrap_or(Timestamp::MIN);
                seen.push((stream, ClosedRange::new(newest, Timestamp::MAX)));
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
            out.extend_from_slice(b"]}");
            let until = app.until(&snapshot, seen)?;
            Ok((out, until))
        })
        .await?;
    Ok(request::with_until(answer(request::JSON, body), until))
}
