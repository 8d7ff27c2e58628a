//! Whole rows of a table or of streams, streamed as CSV, line protocol, Arrow or Parquet.
//!
//! Invariants: the bytes queued for the client are bounded for any size of export; when the client
//! disconnects, reading ends; an error of reading ends the answer in the middle, so that the client
//! notices the truncation. Concurrency: one blocking thread for each export, at most
//! [`EXPORTS_MAX`] at once.

use crate::access::Access;
use crate::access::visible_tables::VisibleTable;
use crate::app::App;
use crate::columnar::{ColumnarFormat, ColumnarWriter};
use crate::components::columnar_formats;
use crate::error::ApiError;
use crate::request::{self, answer, at_most, not_found, now, ok_if_found, parse_stream, query};
use crate::routes::{Needs, Route};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use futures_util::StreamExt;
use headwater::{FieldType, ScanChunk, ScanSpec, Snapshot, StreamName, Timestamp};
use headwater_wire::csv::{CsvWriter, CsvWriterOptions, TimeFormat, TimeUnit};
use headwater_wire::lineprotocol::LineWriter;
use headwater_wire::query::QueryError;
use std::io;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Exports at once.
const EXPORTS_MAX: usize = 8;
/// Maximum streams requested by name.
const NAMES_MAX: usize = 1_000;
/// Names read at once.
const NAMES_AT_ONCE: usize = 1_024;
/// Bytes sent together.
const PIECE_BYTES: usize = 64 * 1024;
/// Chunks that wait for the client.
const PIECES_WAITING: usize = 4;

static EXPORTS: Semaphore = Semaphore::const_new(EXPORTS_MAX);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/export", Needs::Read, export)]
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Csv,
    Lines,
    Columnar(&'static ColumnarFormat),
}

impl Form {
    fn of(name: Option<&str>) -> Result<Form, QueryError> {
        match name {
            None | Some("csv") => Ok(Form::Csv),
            Some("lp") => Ok(Form::Lines),
            Some(other) => {
                let columnar = columnar_formats();
                let format = columnar.iter().find(|format| format.name == other);
                let expected = match columnar {
                    [] => "expected csv or lp; this program was built without arrow and parquet",
                    _ => "expected csv, lp, arrow or parquet",
                };
                format
                    .map(Form::Columnar)
                    .ok_or_else(|| QueryError::value("format", expected, other))
            }
        }
    }

    fn content_type(self) -> HeaderValue {
        match self {
            Form::Csv => request::CSV,
            Form::Lines => HeaderValue::from_static("text/plain; charset=utf-8"),
            Form::Columnar(format) => HeaderValue::from_static(format.content_type),
        }
    }

    fn disposition(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Form::Csv => "attachment; filename=\"export.csv\"",
            Form::Lines => "attachment; filename=\"export.lp\"",
            Form::Columnar(format) => format.disposition,
        })
    }
}

#[derive(Debug)]
struct ExportRequest {
    table: String,
    /// `None` = all visible streams.
    streams: Option<Vec<StreamName>>,
    spec: ScanSpec,
    form: Form,
    time: TimeFormat,
    /// The named snapshot to read; `None` = the present.
    past: Option<String>,
}

async fn export(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = ExportRequest::of(&uri)?;
    let form = asked.form;
    let Ok(permit) = EXPORTS.try_acquire() else {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_BUSY",
            format!("{EXPORTS_MAX} exports are running, which is the maximum"),
        )
        .retry_after(10));
    };
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    // The request is checked before the answer begins; a snapshot keeps its result valid.
    let mut asked = asked;
    let (snapshot, columns) = {
        let (access, table, streams) = (access.clone(), asked.table.clone(), asked.streams.clone());
        let (fields, past) = (asked.spec.fields.clone(), asked.past.clone());
        app.blocking(move |app| {
            let snapshot = app.snapshot_of(past.as_deref())?;
            let columns = columns(&snapshot, &access, &table, streams.as_deref(), fields)?;
            Ok((snapshot, columns))
        })
        .await?
    };
    if !access.shows_all_fields(&asked.table) {
        let told = columns.fields.iter().map(|(name, _)| name.clone());
        asked.spec.fields = Some(told.collect());
    }
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut out = Out {
            sender,
            bytes: Vec::with_capacity(2 * PIECE_BYTES),
        };
        match asked.write(&snapshot, &access, &columns, &mut out) {
            Ok(()) | Err(ExportEnd::Disconnected) => {}
            Err(ExportEnd::Failed(error)) => {
                span.in_scope(|| tracing::error!(%error, "an export was interrupted"));
                let broken = io::Error::other("the export failed; the server's log says more");
                // The client may have disconnected as well.
                let _ = out.sender.blocking_send(Err(broken));
            }
        }
    });
    let mut response = answer(form.content_type(), Bytes::new());
    *response.body_mut() = Body::from_stream(ReceiverStream::new(receiver).map(|piece| piece));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_DISPOSITION, form.disposition());
    Ok(response)
}

impl ExportRequest {
    fn of(uri: &Uri) -> Result<ExportRequest, ApiError> {
        let query = query(
            uri,
            &[
                "table", "stream", "from", "to", "fields", "format", "time", "snapshot",
            ],
        )?;
        let streams = query
            .all("stream")
            .map(parse_stream)
            .collect::<Result<Vec<_>, _>>()?;
        at_most(streams.len(), NAMES_MAX, "streams")?;
        let table = match (query.one("table")?, streams.first()) {
            (Some(table), None) => table.to_owned(),
            (None, Some(first)) => first.table().to_owned(),
            (None, None) => query
                .required("table", "a table; or `stream`, at least once")?
                .to_owned(),
            (Some(table), Some(_)) => {
                let reason = "give either `table` or `stream`, not both";
                return Err(QueryError::value("table", reason, table).into());
            }
        };
        if let Some(other) = streams.iter().find(|s| s.table() != table) {
            let reason = format!("the streams of an export belong to one table, `{table}`");
            return Err(QueryError::value("stream", reason, &other.to_string()).into());
        }
        let form = Form::of(query.one("format")?)?;
        let time = match query.one("time")? {
            None | Some("ns") => TimeFormat::Unit(TimeUnit::Nanoseconds),
            Some("us") => TimeFormat::Unit(TimeUnit::Microseconds),
            Some("ms") => TimeFormat::Unit(TimeUnit::Milliseconds),
            Some("s") => TimeFormat::Unit(TimeUnit::Seconds),
            Some("rfc3339") => TimeFormat::Rfc3339,
            Some(other) => {
                let reason = "expected rfc3339, ns, us, ms or s";
                return Err(QueryError::value("time", reason, other).into());
            }
        };
        if !matches!(form, Form::Csv)
            && let Some(time) = query.one("time")?
            && time != "ns"
        {
            let reason = "only CSV supports other time formats than ns";
            return Err(QueryError::value("time", reason, time).into());
        }
        Ok(ExportRequest {
            table,
            streams: (!streams.is_empty()).then_some(streams),
            spec: ScanSpec {
                range: query.range(now())?,
                fields: query.list("fields")?,
                ..ScanSpec::default()
            },
            form,
            time,
            past: request::past(&query)?,
        })
    }

    fn write(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        columns: &Columns,
        out: &mut Out,
    ) -> Result<(), ExportEnd> {
        let mut writer = Writer::new(self, columns, &mut out.bytes)?;
        if let Some(streams) = &self.streams {
            for stream in streams {
                self.write_stream(snapshot, access, stream, &mut writer, out)?;
            }
            writer.finish(&mut out.bytes)?;
            return out.finish();
        }
        let mut last: Option<StreamName> = None;
        loop {
            let page = snapshot.streams_after(&self.table, last.as_ref(), NAMES_AT_ONCE)?;
            for stream in &page {
                self.write_stream(snapshot, access, stream, &mut writer, out)?;
            }
            last = page.last().cloned();
            if page.len() < NAMES_AT_ONCE {
                writer.finish(&mut out.bytes)?;
                return out.finish();
            }
        }
    }

    fn write_stream(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        stream: &StreamName,
        writer: &mut Writer,
        out: &mut Out,
    ) -> Result<(), ExportEnd> {
        if !access.may_read_stream(stream) {
            return Ok(());
        }
        let scan = snapshot.scan(stream, &self.spec)?;
        writer.start_stream(stream, scan.fields().iter().map(|(name, _)| name.as_str()));
        for chunk in scan {
            writer.write(stream, &chunk?, out)?;
            // Without output, the client may have disconnected as well.
            out.check()?;
        }
        Ok(())
    }
}

/// Columns of an export.
#[derive(Debug)]
struct Columns {
    tags: Vec<String>,
    fields: Vec<(String, FieldType)>,
}

/// Checks that the requested columns exist and are visible.
fn columns(
    snapshot: &Snapshot,
    access: &Access,
    table: &str,
    streams: Option<&[StreamName]>,
    fields: Option<Vec<String>>,
) -> Result<Columns, ApiError> {
    let told = match streams {
        None => access.table(snapshot, table)?,
        Some(_) => access.fields(snapshot, table)?.map(|fields| VisibleTable {
            tags: Vec::new(),
            fields,
        }),
    };
    let Some(told) = told else {
        return Err(match streams.and_then(<[StreamName]>::first) {
            Some(stream) => not_found("stream", stream),
            None => not_found("table", &table),
        });
    };
    let known = told.fields;
    let tags: Vec<String> = match streams {
        Some(streams) => {
            for stream in streams {
                if !access.may_read_stream(stream)
                    || ok_if_found(snapshot.stream_info(stream))?.is_none()
                {
                    return Err(not_found("stream", stream));
                }
            }
            let mut tags: Vec<String> = streams
                .iter()
                .flat_map(|s| s.tags().iter().map(|(tag, _)| tag.clone()))
                .collect();
            tags.sort();
            tags.dedup();
            tags
        }
        None => told.tags,
    };
    let fields = match fields {
        None => known,
        Some(fields) => fields
            .into_iter()
            .map(|field| {
                let found = known.iter().find(|(name, _)| *name == field);
                found
                    .cloned()
                    .ok_or_else(|| not_found("field", &format!("{table}.{field}")))
            })
            .collect::<Result<_, _>>()?,
    };
    Ok(Columns { tags, fields })
}

enum Writer {
    Csv(Box<CsvWriter>),
    Lines(LineWriter),
    Columnar(Box<dyn ColumnarWriter>),
}

impl Writer {
    fn new(
        asked: &ExportRequest,
        columns: &Columns,
        out: &mut Vec<u8>,
    ) -> Result<Writer, ExportEnd> {
        match asked.form {
            Form::Lines => Ok(Writer::Lines(LineWriter::new())),
            Form::Csv => {
                let options = CsvWriterOptions {
                    time: asked.time.clone(),
                    ..CsvWriterOptions::default()
                };
                let fields: Vec<&str> = columns.fields.iter().map(|(n, _)| n.as_str()).collect();
                let writer = CsvWriter::new(&columns.tags, &fields, options);
                writer.write_header(out);
                Ok(Writer::Csv(Box::new(writer)))
            }
            Form::Columnar(format) => {
                let writer = (format.open)(&columns.tags, &columns.fields)?;
                Ok(Writer::Columnar(writer))
            }
        }
    }

    fn start_stream<'a>(&mut self, name: &StreamName, fields: impl Iterator<Item = &'a str>) {
        match self {
            Writer::Csv(writer) => writer.start_stream(name),
            Writer::Lines(writer) => {
                if let Err(error) = writer.start_stream(name, fields) {
                    tracing::warn!(%name, %error, "left out of an export as line protocol");
                }
            }
            Writer::Columnar(_) => {}
        }
    }

    /// Writes the rows of a chunk that have a value.
    fn write(
        &mut self,
        stream: &StreamName,
        chunk: &ScanChunk,
        out: &mut Out,
    ) -> Result<(), ExportEnd> {
        if let Writer::Columnar(writer) = self {
            writer.write(stream, chunk, &mut out.bytes)?;
            return out.pass_on();
        }
        for (row, time) in chunk.times.iter().enumerate() {
            if !chunk.columns.iter().any(|c| c.is_present(row)) {
                continue;
            }
            let at = Timestamp::from_nanos(*time);
            let values = chunk.columns.iter().map(|c| c.get(row));
            match self {
                Writer::Csv(writer) => writer.write_row(&mut out.bytes, at, values),
                Writer::Lines(writer) => writer.write_row(&mut out.bytes, at, values),
                Writer::Columnar(_) => {}
            }
            out.pass_on()?;
        }
        Ok(())
    }

    /// Writes buffered rows.
    fn finish(self, out: &mut Vec<u8>) -> Result<(), ExportEnd> {
        match self {
            Writer::Columnar(writer) => Ok(writer.finish(out)?),
            Writer::Csv(_) | Writer::Lines(_) => Ok(()),
        }
    }
}

/// Reason why an export ended early.
enum ExportEnd {
    Disconnected,
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ExportEnd {
    fn from(error: E) -> ExportEnd {
        ExportEnd::Failed(error.into())
    }
}

struct Out {
    sender: mpsc::Sender<io::Result<Bytes>>,
    bytes: Vec<u8>,
}

impl Out {
    fn check(&self) -> Result<(), ExportEnd> {
        if self.sender.is_closed() {
            return Err(ExportEnd::Disconnected);
        }
        Ok(())
    }

    fn pass_on(&mut self) -> Result<(), ExportEnd> {
        if self.bytes.len() < PIECE_BYTES {
            return Ok(());
        }
        self.send()
    }

    fn finish(&mut self) -> Result<(), ExportEnd> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), ExportEnd> {
        let piece = std::mem::replace(&mut self.bytes, Vec::with_capacity(2 * PIECE_BYTES));
        self.sender
            .blocking_send(Ok(piece.into()))
            .map_err(|_| ExportEnd::Disconnected)
    }
}
