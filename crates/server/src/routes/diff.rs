//! Differences between two named snapshots, or between one and the present, streamed during the
//! comparison.
//!
//! Invariants: streams that may not be read are not compared, so that their rows and their damage
//! stay hidden; memory is bounded for any size of data. A complete answer ends with its sums. When
//! the client disconnects, or loses its rights, the comparison ends. Concurrency: one blocking
//! thread for each answer, at most [`DIFFS_MAX`] at once. Failure: an error of reading ends the
//! answer in the middle, with the reason in the last line.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{answer, not_found, now, query};
use crate::routes::{Needs, Route};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use headwater::{
    DiffSpec, DiffStretch, Differences, Error, ErrorKind, Snapshot, StreamDiff, StreamName,
};
use headwater_wire::query::QueryError;
use serde_json::json;
use std::io;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// Maximum concurrent answers: each may read all data.
const DIFFS_MAX: usize = 4;
/// Bytes sent together.
const PIECE_BYTES: usize = 32 * 1024;
/// Chunks that wait for the client.
const PIECES_WAITING: usize = 4;
/// Name of the present.
const NOW: &str = "now";

static DIFFS: Semaphore = Semaphore::const_new(DIFFS_MAX);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/diff", Needs::Read, diff)]
}

#[derive(Debug)]
struct DiffRequest {
    before: String,
    after: String,
    spec: DiffSpec,
}

impl DiffRequest {
    fn of(uri: &Uri) -> Result<DiffRequest, ApiError> {
        let query = query(uri, &["before", "after", "table", "tag", "from", "to"])?;
        let of = |name: &'static str| {
            let state = query.required(name, "the name of a snapshot, or now")?;
            match state.is_empty() {
                true => Err(QueryError::value(
                    name,
                    "expected the name of a snapshot, or now",
                    state,
                )),
                false => Ok(state.to_owned()),
            }
        };
        let mut tags = Vec::new();
        for tag in query.all("tag") {
            let pair = tag.split_once('=');
            let pair = pair.ok_or_else(|| QueryError::value("tag", "expected tag=value", tag))?;
            tags.push((pair.0.to_owned(), pair.1.to_owned()));
        }
        Ok(DiffRequest {
            before: of("before")?,
            after: of("after")?,
            spec: DiffSpec {
                table: query.one("table")?.map(str::to_owned),
                tags,
                range: query.range(now())?,
            },
        })
    }

    /// The two states, both of the server's own database, even if it serves several.
    fn states(&self, app: &App, access: &Access) -> Result<(Snapshot, Snapshot), ApiError> {
        let state = |name: &str| match name {
            NOW => Ok(app.db().snapshot()?),
            name => app.snapshot_of(Some(name)),
        };
        let (before, after) = (state(&self.before)?, state(&self.after)?);
        if let Some(table) = &self.spec.table {
            // A table without readable streams looks like an absent one.
            let mut is_there = false;
            for state in [&before, &after] {
                is_there |=
                    access.may_read_some_of(table) && access.fields(state, table)?.is_some();
            }
            if !is_there {
                return Err(not_found("table", table));
            }
        }
        Ok((before, after))
    }
}

async fn diff(State(app): State<Arc<App>>, access: Access, uri: Uri) -> Result<Response, ApiError> {
    let asked = DiffRequest::of(&uri)?;
    let Ok(permit) = DIFFS.try_acquire() else {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_BUSY",
            format!("{DIFFS_MAX} comparisons are running, which is the maximum"),
        )
        .retry_after(10));
    };
    let (asked, access, states) = app
        .blocking(move |app| {
            let states = asked.states(app, &access)?;
            Ok((asked, access, states))
        })
        .await?;
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let span = tracing::Span::current();
    let stopping = app.shell.stopping();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut writer = DiffWriter {
            sender,
            access,
            stopping,
            bytes: Vec::with_capacity(2 * PIECE_BYTES),
            streams: 0,
            sums: [0; 3],
            is_cancelled: false,
        };
        let (before, after) = &states;
        let compared = before.diff_to(after, &asked.spec, &mut writer);
        match compared.and_then(|()| writer.end()) {
            Err(error) if !writer.is_cancelled => {
                let error = ApiError::from(error);
                span.in_scope(|| tracing::warn!(code = error.code, "a comparison was interrupted"));
                writer.broke_off(error);
            }
            // The client has disconnected.
            Ok(()) | Err(_) => {}
        }
    });
    let mut response = answer(
        HeaderValue::from_static("application/x-ndjson"),
        Bytes::new(),
    );
    *response.body_mut() = Body::from_stream(ReceiverStream::new(receiver));
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    Ok(response)
}

/// Writer of the answer, with its sums so far.
struct DiffWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    access: Access,
    stopping: watch::Receiver<bool>,
    bytes: Vec<u8>,
    streams: u64,
    /// Rows removed, added and changed.
    sums: [u64; 3],
    /// The client has disconnected, or may not read any more.
    is_cancelled: bool,
}

impl Differences for DiffWriter {
    fn accepts_table(&mut self, table: &str) -> bool {
        self.access.may_read_some_of(table)
    }

    fn accepts(&mut self, stream: &StreamName) -> bool {
        self.access.may_read_stream(stream)
    }

    fn goes_on(&mut self) -> headwater::Result<()> {
        let is_there = !self.sender.is_closed();
        match is_there && self.access.is_current() && !*self.stopping.borrow() {
            true => Ok(()),
            false => Err(self.cancelled()),
        }
    }

    fn add_stream(&mut self, found: StreamDiff) -> headwater::Result<()> {
        self.streams += 1;
        let stream = found.stream.to_string();
        for stretch in &found.stretches {
            let DiffStretch {
                range,
                removed,
                added,
                changed,
            } = stretch;
            for (sum, more) in self.sums.iter_mut().zip([removed, added, changed]) {
                *sum += more;
            }
            let line = json!({
                "stream": stream,
                "first": range.first.as_nanos().to_string(),
                "last": range.last.as_nanos().to_string(),
                "removed": removed,
                "added": added,
                "changed": changed,
            });
            self.line(&line);
            if self.bytes.len() >= PIECE_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }
}

impl DiffWriter {
    fn line(&mut self, line: &serde_json::Value) {
        self.bytes.extend_from_slice(line.to_string().as_bytes());
        self.bytes.push(b'\n');
    }

    fn cancelled(&mut self) -> Error {
        self.is_cancelled = true;
        Error::new(
            ErrorKind::Closed,
            "the client of the comparison has disconnected",
        )
    }

    fn send(&mut self) -> headwater::Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.bytes));
        match self.sender.blocking_send(Ok(piece)) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.cancelled()),
        }
    }

    /// The last line of an answer that is whole.
    fn end(&mut self) -> headwater::Result<()> {
        let [removed, added, changed] = self.sums;
        let streams = self.streams;
        self.line(&json!({
            "streams": streams, "removed": removed, "added": added, "changed": changed,
        }));
        self.send()
    }

    /// Reports why the answer ends, and aborts the transfer.
    fn broke_off(&mut self, error: ApiError) {
        let told = headwater_shell::ErrorAnswer::from(error);
        self.line(&json!({ "error": told.into_body() }));
        // The client may have disconnected as well.
        let _ = self.send();
        let broken = io::Error::other("the comparison was interrupted; its last line says why");
        let _ = self.sender.blocking_send(Err(broken));
    }
}
