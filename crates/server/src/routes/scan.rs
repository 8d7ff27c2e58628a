//! Rows of a stream, unaggregated: JSON in columns, or CSV.
//!
//! Invariant: an answer has at most [`VALUES_MAX`] values; rows without a value of a requested
//! field are left out; integers retain all their digits.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{
    self, Deadline, Form, answer, not_found, now, ok_if_found, parse_stream, query, too_much,
};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater::{FieldType, Scan, ScanChunk, ScanSpec, StreamName, Timestamp};
use headwater_wire::csv::{CsvWriter, CsvWriterOptions, TimeFormat, TimeUnit};
use headwater_wire::json::{push_integer_text, push_str, push_value};
use std::sync::Arc;

/// Rows by default.
const LIMIT: usize = 10_000;
/// Values of an answer, times included.
const VALUES_MAX: usize = 4_000_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/scan", Needs::Read, scan)]
}

async fn scan(State(app): State<Arc<App>>, access: Access, uri: Uri) -> Result<Response, ApiError> {
    let query = query(
        &uri,
        &[
            "stream", "from", "to", "fields", "filter", "limit", "format", "snapshot",
        ],
    )?;
    let stream = parse_stream(query.required("stream", "table,tag=value")?)?;
    let mut spec = ScanSpec {
        range: query.range(now())?,
        fields: query.list("fields")?,
        ..ScanSpec::default()
    };
    let past = request::past(&query)?;
    let filters = request::filter_texts(&query)?;
    let limit: usize = query.number("limit")?.unwrap_or(LIMIT);
    let form = Form::of(&query)?;
    let (body, until) = app
        .blocking(move |app| {
            let deadline = Deadline::after(app.settings.request_timeout);
            let snapshot = app.snapshot_of(past.as_deref())?;
            let Some(handle) = access.handle(&snapshot, &stream)? else {
                return Err(not_found("stream", &stream));
            };
            match &spec.fields {
                Some(fields) => {
                    for field in fields {
                        if access.field_type(&snapshot, &handle, field)?.is_none() {
                            return Err(not_found("field", &format!("{stream}.{field}")));
                        }
                    }
                }
                None if access.shows_all_fields(stream.table()) => {}
                None => {
                    let told = access.fields(&snapshot, stream.table())?.unwrap_or_default();
                    spec.fields = Some(told.into_iter().map(|(name, _)| name).collect());
                }
            }
            if !filters.is_empty() {
                let told = access.fields(&snapshot, stream.table())?;
                spec.filters = request::filters(&filters, &told.unwrap_or_default())?;
            }
            // The stream may have been dropped meanwhile.
            let Some(scan) = ok_if_found(handle.scan(&snapshot, &spec))? else {
                return Err(not_found("stream", &stream));
            };
            let most = VALUES_MAX / (scan.fields().len() + 1);
            if limit > most {
                return Err(too_much(format!(
                    "limit={limit}: an answer holds at most {most} rows of {} fields; continue after the last time, or use /api/v1/export",
                    scan.fields().len()
                )));
            }
            let body = match form {
                Form::Json => json(&stream, scan, limit, deadline),
                Form::Csv => csv(&stream, scan, limit, deadline),
            }?;
            let until = app.until(&snapshot, [(&handle, spec.range)])?;
            Ok((body, until))
        })
        .await?;
    let content_type = match form {
        Form::Json => request::JSON,
        Form::Csv => request::CSV,
    };
    Ok(request::with_until(answer(content_type, body), until))
}

/// Passes at most `limit` rows to `each`; true when more rows exist.
fn rows(
    scan: Scan,
    limit: usize,
    deadline: Deadline,
    each: &mut dyn FnMut(&ScanChunk, usize),
) -> Result<bool, ApiError> {
    let mut left = limit;
    for chunk in scan {
        deadline.check()?;
        let chunk = chunk?;
        for row in 0..chunk.times.len() {
            if !chunk.columns.iter().any(|c| c.is_present(row)) {
                continue;
            }
            if left == 0 {
                return Ok(true);
            }
            left -= 1;
            each(&chunk, row);
        }
    }
    Ok(false)
}

fn json(
    stream: &StreamName,
    scan: Scan,
    limit: usize,
    deadline: Deadline,
) -> Result<Vec<u8>, ApiError> {
    let fields: Vec<(String, FieldType)> = scan.fields().to_vec();
    let mut columns: Vec<Vec<u8>> = vec![Vec::new(); fields.len()];
    let mut out = Vec::new();
    out.extend_from_slice(b"{\"stream\":");
    push_str(&mut out, &stream.to_string());
    out.extend_from_slice(b",\"time\":[");
    let mut is_first = true;
    let more = rows(scan, limit, deadline, &mut |chunk, row| {
        if !is_first {
            out.push(b',');
        }
        push_integer_text(&mut out, chunk.times.get(row).copied().unwrap_or_default());
        for (text, column) in columns.iter_mut().zip(&chunk.columns) {
            if !is_first {
                text.push(b',');
            }
            match column.get(row) {
                Some(value) => push_value(text, value),
                None => text.extend_from_slice(b"null"),
            }
        }
        is_first = false;
    })?;
    out.extend_from_slice(b"],\"fields\":{");
    for (index, ((name, _), text)) in fields.iter().zip(&columns).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_str(&mut out, name);
        out.extend_from_slice(b":[");
        out.extend_from_slice(text);
        out.push(b']');
    }
    out.extend_from_slice(if more {
        b"},\"more\":true}"
    } else {
        b"},\"more\":false}"
    });
    Ok(out)
}

fn csv(
    stream: &StreamName,
    scan: Scan,
    limit: usize,
    deadline: Deadline,
) -> Result<Vec<u8>, ApiError> {
    let tags: Vec<&str> = stream.tags().iter().map(|(tag, _)| tag.as_str()).collect();
    let fields: Vec<&str> = scan
        .fields()
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let options = CsvWriterOptions {
        time: TimeFormat::Unit(TimeUnit::Nanoseconds),
        ..CsvWriterOptions::default()
    };
    let mut writer = CsvWriter::new(&tags, &fields, options);
    let mut out = Vec::new();
    writer.write_header(&mut out);
    writer.start_stream(stream);
    rows(scan, limit, deadline, &mut |chunk, row| {
        let at = chunk.times.get(row).copied().unwrap_or_default();
        let values = chunk.columns.iter().map(|c| c.get(row));
        writer.write_row(&mut out, Timestamp::from_nanos(at), values);
    })?;
    Ok(out)
}
