//! Row counts of tables, over all of their streams that the client may read.
//!
//! Invariant: rows count as in a scan: rows with equal times that replace each other count once;
//! deleted and expired rows do not count. A stream costs a walk over a few buckets, regardless of
//! its size.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, Deadline, answer, not_found, now, ok_if_found, query};
use crate::routes::streams::{StreamFilter, words};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater::{Bins, ClosedRange, Snapshot, StreamHandle, StreamName, SummarySpec};
use headwater_wire::query::QueryError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/count", Needs::Read, count)]
}

/// Body of the answer. Its names are a promise.
#[derive(Debug, Default, Serialize)]
struct Counts {
    tables: Vec<TableCount>,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct TableCount {
    table: String,
    /// Streams with a row in the range.
    streams: u64,
    rows: u64,
    /// Number of values of each requested field.
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<BTreeMap<String, u64>>,
}

/// Parsed request.
#[derive(Debug)]
struct CountRequest {
    filter: StreamFilter,
    range: ClosedRange,
    fields: Option<Vec<String>>,
    /// The named snapshot to read; `None` = the present.
    past: Option<String>,
}

async fn count(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = CountRequest::of(&uri)?;
    let (counts, until) = app
        .blocking(move |app| {
            let deadline = Deadline::after(app.settings.request_timeout);
            let snapshot = app.snapshot_of(asked.past.as_deref())?;
            let mut seen = app.fleet.is_some().then(Vec::new);
            let counts = asked.counts(&snapshot, &access, deadline, &mut seen)?;
            let seen = seen.iter().flatten().map(|handle| (handle, asked.range));
            let until = app.until(&snapshot, seen)?;
            Ok((counts, until))
        })
        .await?;
    let body = serde_json::to_vec(&counts).map_err(|error| {
        tracing::error!(%error, "writing JSON failed");
        ApiError::internal()
    })?;
    Ok(request::with_until(answer(request::JSON, body), until))
}

impl CountRequest {
    fn of(uri: &Uri) -> Result<CountRequest, ApiError> {
        let query = query(
            uri,
            &["table", "search", "from", "to", "fields", "snapshot"],
        )?;
        let table = query.one("table")?.map(str::to_owned);
        let fields = query.list("fields")?.map(|mut fields| {
            fields.sort_unstable();
            fields.dedup();
            fields
        });
        if let (Some(_), None) = (&fields, &table) {
            let reason = "fields belong to a table: name it with `table`";
            let text = query.one("fields")?.unwrap_or_default();
            return Err(QueryError::value("fields", reason, text).into());
        }
        Ok(CountRequest {
            filter: StreamFilter {
                table,
                words: words(query.one("search")?.unwrap_or_default())?,
            },
            range: query.range(now())?,
            fields,
            past: request::past(&query)?,
        })
    }

    fn counts(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        deadline: Deadline,
        seen: &mut Option<Vec<StreamHandle>>,
    ) -> Result<Counts, ApiError> {
        let mut counts = Counts::default();
        // A table exists for a client that may read everything, or at least one stream of the
        // table.
        if let (Some(table), true) = (&self.filter.table, access.reads_all())
            && snapshot.table_names().contains(table)
        {
            counts.tables.push(self.add_empty(snapshot, access, table)?);
        }
        let mut failed = None;
        self.filter
            .walk(snapshot, access, None, deadline, &mut |stream| {
                let added = deadline
                    .check()
                    .map_err(ApiError::from)
                    .and_then(|()| self.add(snapshot, access, &stream, &mut counts));
                match (added, &mut *seen) {
                    (Ok(handle), Some(seen)) => seen.extend(handle),
                    (Ok(_), None) => {}
                    (Err(error), _) => failed = Some(error),
                }
                failed.is_none()
            })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let (Some(table), []) = (&self.filter.table, &*counts.tables) {
            return Err(not_found("table", table));
        }
        counts.rows = counts.tables.iter().map(|t| t.rows).sum();
        Ok(counts)
    }

    /// Adds an entry for a visible table before its rows are counted.
    fn add_empty(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        table: &str,
    ) -> Result<TableCount, ApiError> {
        let fields = match &self.fields {
            None => None,
            Some(fields) => {
                let known = access.fields(snapshot, table)?.unwrap_or_default();
                let is_known = |field: &&String| known.iter().any(|(name, _)| name == *field);
                if let Some(unknown) = fields.iter().find(|f| !is_known(f)) {
                    return Err(not_found("field", unknown));
                }
                Some(fields.iter().map(|f| (f.clone(), 0)).collect())
            }
        };
        Ok(TableCount {
            table: table.to_owned(),
            streams: 0,
            rows: 0,
            fields,
        })
    }

    /// Counts the rows of a stream; `None` when it was dropped meanwhile and has none.
    fn add(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        stream: &StreamName,
        counts: &mut Counts,
    ) -> Result<Option<StreamHandle>, ApiError> {
        let is_new = |last: &TableCount| last.table != stream.table();
        if counts.tables.last().is_none_or(is_new) {
            counts
                .tables
                .push(self.add_empty(snapshot, access, stream.table())?);
        }
        let spec = SummarySpec {
            range: self.range,
            bins: Bins::Whole,
            fields: self.fields.clone().unwrap_or_default(),
        };
        let handle = ok_if_found(snapshot.handle(stream))?;
        let (Some(handle), Some(table)) = (handle, counts.tables.last_mut()) else {
            return Ok(None);
        };
        let bins = ok_if_found(handle.summary(snapshot, &spec))?.unwrap_or_default();
        for bin in bins {
            table.streams += u64::from(bin.rows > 0);
            table.rows += bin.rows;
            let Some(values) = &mut table.fields else {
                continue;
            };
            for (field, aggregate) in spec.fields.iter().zip(&bin.aggregates) {
                *values.entry(field.clone()).or_default() += aggregate.count;
            }
        }
        Ok(Some(handle))
    }
}
