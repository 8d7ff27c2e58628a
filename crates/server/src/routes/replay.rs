//! Rows of many streams in the order of time, at full speed or at the speed of their times.
//!
//! Invariants: rows have one order, which a cursor resumes; memory is bounded for any size of
//! replay; unreadable rows are absent. When the client disconnects, reading ends. Concurrency: one
//! blocking thread for each replay, at most [`REPLAYS_MAX`] at once. Failure: an error of reading
//! ends the answer in the middle, with the reason in the last line.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, answer, not_found, now, query};
use crate::routes::{Needs, Route};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use headwater::{Replay, ReplayCursor, ReplaySpec, Snapshot, Timestamp};
use headwater_wire::query::QueryError;
use headwater_wire::replay::{Pace, Position, push_cursor, push_row, quoted};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Replays at once.
const REPLAYS_MAX: usize = 32;
/// Bytes sent together.
const PIECE_BYTES: usize = 32 * 1024;
/// Chunks that wait for the client.
const PIECES_WAITING: usize = 4;
/// Longest sleep between two checks of the connection.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Header in which a client of server-sent events reports the last event that it received.
const LAST_EVENT: &str = "last-event-id";

static REPLAYS: Semaphore = Semaphore::const_new(REPLAYS_MAX);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/replay", Needs::Read, replay)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Lines,
    Events,
}

impl Form {
    /// Terminator of a row.
    fn end(self) -> &'static [u8] {
        match self {
            Form::Lines => b"\n",
            Form::Events => b"\n\n",
        }
    }
}

#[derive(Debug)]
struct ReplayRequest {
    spec: ReplaySpec,
    /// Conditions as written.
    filters: Vec<String>,
    pace: Pace,
    form: Form,
    limit: u64,
    /// The named snapshot to read; `None` = the present.
    past: Option<String>,
}

impl ReplayRequest {
    fn of(uri: &Uri, headers: &HeaderMap) -> Result<ReplayRequest, ApiError> {
        let query = query(
            uri,
            &[
                "table", "tag", "from", "to", "fields", "filter", "speed", "after", "format",
                "limit", "snapshot",
            ],
        )?;
        let table = query.required("table", "a table")?;
        let mut spec = ReplaySpec::new(table);
        for tag in query.all("tag") {
            let reason = "expected tag=value";
            let pair = tag.split_once('=');
            let (name, value) = pair.ok_or_else(|| QueryError::value("tag", reason, tag))?;
            let values = spec.tags.iter_mut().find(|(known, _)| known == name);
            match values {
                Some((_, values)) => values.push(value.to_owned()),
                None => spec.tags.push((name.to_owned(), vec![value.to_owned()])),
            }
        }
        spec.range = query.range(now())?;
        spec.fields = query.list("fields")?;
        let last_event = headers.get(LAST_EVENT).and_then(|v| v.to_str().ok());
        if let Some(after) = query.one("after")?.or(last_event) {
            let reason = "expected a cursor: TIME/ROW/STREAM of the last row that was read";
            let position = Position::parse(after);
            let position = position.ok_or_else(|| QueryError::value("after", reason, after))?;
            spec.after = Some(ReplayCursor {
                time: position.time,
                stream: position.stream,
                row: position.row,
            });
        }
        let pace = match query.one("speed")? {
            None => Pace::Max,
            Some(text) => Pace::parse(text).map_err(|e| QueryError::value("speed", e, text))?,
        };
        let form = match query.one("format")? {
            None | Some("ndjson") => Form::Lines,
            Some("sse") => Form::Events,
            Some(other) => {
                return Err(QueryError::value("format", "expected ndjson or sse", other).into());
            }
        };
        Ok(ReplayRequest {
            spec,
            filters: request::filter_texts(&query)?,
            pace,
            form,
            limit: query.number("limit")?.unwrap_or(u64::MAX),
            past: request::past(&query)?,
        })
    }

    /// Restricts the fields to the visible ones; requested fields must be among them.
    fn restrict(&mut self, snapshot: &Snapshot, access: &Access) -> Result<(), ApiError> {
        let table = &self.spec.table;
        let told = match access.may_read_some_of(table) {
            true => access.fields(snapshot, table)?,
            false => None,
        };
        let told = told.ok_or_else(|| not_found("table", table))?;
        self.spec.filters = request::filters(&self.filters, &told)?;
        match &self.spec.fields {
            Some(fields) => {
                for field in fields {
                    if !told.iter().any(|(name, _)| name == field) {
                        return Err(not_found("field", &format!("{table}.{field}")));
                    }
                }
            }
            None => self.spec.fields = Some(told.into_iter().map(|(name, _)| name).collect()),
        }
        Ok(())
    }
}

async fn replay(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let mut asked = ReplayRequest::of(&uri, &headers)?;
    let form = asked.form;
    let Ok(permit) = REPLAYS.try_acquire() else {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_BUSY",
            format!("{REPLAYS_MAX} replays are running, which is the maximum"),
        )
        .retry_after(10));
    };
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let (snapshot, asked, access) = app
        .blocking(move |app| {
            let snapshot = app.snapshot_of(asked.past.as_deref())?;
            asked.restrict(&snapshot, &access)?;
            // Errors of the query are reported before the answer begins.
            let mut accepts = |stream: &headwater::StreamName| access.may_read_stream(stream);
            drop(snapshot.replay(&asked.spec, Some(&mut accepts))?);
            Ok((snapshot, asked, access))
        })
        .await?;
    let span = tracing::Span::current();
    let stopping = app.shell.stopping();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut accepts = |stream: &headwater::StreamName| access.may_read_stream(stream);
        let mut out = Out {
            sender,
            bytes: Vec::with_capacity(2 * PIECE_BYTES),
        };
        let goes_on = || access.is_current() && !*stopping.borrow();
        let told = snapshot
            .replay(&asked.spec, Some(&mut accepts))
            .map_err(ReplayEnd::Failed)
            .and_then(|replay| write(replay, &asked, &mut out, &goes_on));
        if let Err(ReplayEnd::Failed(error)) = told {
            let error = ApiError::from(error);
            span.in_scope(|| tracing::warn!(code = error.code, "a replay was interrupted"));
            out.broke_off(form, error);
        }
    });
    let content_type = match form {
        Form::Lines => HeaderValue::from_static("application/x-ndjson"),
        Form::Events => HeaderValue::from_static("text/event-stream"),
    };
    let mut response = answer(content_type, Bytes::new());
    *response.body_mut() = Body::from_stream(ReceiverStream::new(receiver));
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    Ok(response)
}

/// Reason why a replay ended early.
enum ReplayEnd {
    /// The client has disconnected, or has lost its rights.
    Disconnected,
    Failed(headwater::Error),
}

struct Out {
    sender: mpsc::Sender<io::Result<Bytes>>,
    bytes: Vec<u8>,
}

impl Out {
    fn send(&mut self) -> Result<(), ReplayEnd> {
        if self.bytes.is_empty() {
            return match self.sender.is_closed() {
                true => Err(ReplayEnd::Disconnected),
                false => Ok(()),
            };
        }
        let piece = Bytes::from(std::mem::take(&mut self.bytes));
        let sent = self.sender.blocking_send(Ok(piece));
        sent.map_err(|_| ReplayEnd::Disconnected)
    }

    /// Reports why the answer ends, and aborts the transfer.
    fn broke_off(&mut self, form: Form, error: ApiError) {
        let answer = headwater_shell::ErrorAnswer::from(error);
        let told = serde_json::json!({ "error": answer.into_body() }).to_string();
        if form == Form::Events {
            self.bytes.extend_from_slice(b"event: error\ndata: ");
        }
        self.bytes.extend_from_slice(told.as_bytes());
        self.bytes.extend_from_slice(b"\n\n");
        // The client may have disconnected as well.
        let _ = self.send();
        let broken = io::Error::other("the replay was interrupted; its last line says why");
        let _ = self.sender.blocking_send(Err(broken));
    }
}

fn write(
    mut replay: Replay<'_>,
    asked: &ReplayRequest,
    out: &mut Out,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), ReplayEnd> {
    let fields: Vec<Vec<u8>> = replay.fields().iter().map(|(n, _)| quoted(n)).collect();
    let mut left = asked.limit;
    let mut begun: Option<(Instant, Timestamp)> = None;
    while let Some(chunk) = replay.next() {
        let chunk = chunk.map_err(ReplayEnd::Failed)?;
        for row in chunk.rows() {
            // A row that has none of the fields is left out, but counted.
            if !chunk
                .columns
                .iter()
                .any(|column| column.is_present(row.index))
            {
                continue;
            }
            if left == 0 {
                return out.send();
            }
            left -= 1;
            let (start, first) = *begun.get_or_insert_with(|| (Instant::now(), row.time));
            wait(start, asked.pace.due(first, row.time), out, goes_on)?;
            if let Some(stream) = replay.stream(row.stream) {
                if asked.form == Form::Events {
                    out.bytes.extend_from_slice(b"id: ");
                    push_cursor(&mut out.bytes, row.time, row.number, stream);
                    out.bytes.extend_from_slice(b"\ndata: ");
                }
                let values = chunk.columns.iter().map(|column| column.get(row.index));
                let values = fields.iter().map(Vec::as_slice).zip(values);
                let name = quoted(&stream.to_string());
                push_row(&mut out.bytes, row.time, row.number, &name, values);
                out.bytes.extend_from_slice(asked.form.end());
            }
            if out.bytes.len() >= PIECE_BYTES {
                out.send()?;
            }
        }
        if !goes_on() {
            return Err(ReplayEnd::Disconnected);
        }
    }
    out.send()
}

/// Waits until a row is due; earlier output is flushed first.
fn wait(
    start: Instant,
    due: Duration,
    out: &mut Out,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), ReplayEnd> {
    loop {
        let left = due.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        out.send()?;
        if !goes_on() {
            return Err(ReplayEnd::Disconnected);
        }
        std::thread::sleep(left.min(SLEEP_MAX));
    }
}
