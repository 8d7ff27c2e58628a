//! Lists of streams, with their fields and newest values.
//!
//! Invariant: a page costs as much as its streams; only a search, or rules that hide streams, read
//! the names of all streams, one page of names at a time.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, Deadline, answer, at_most, ok_if_found, parse_stream, query};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater::{FieldType, LastValue, Snapshot, StreamInfo, StreamName, Timestamp};
use headwater_wire::json::{push_integer_text, push_str, push_streams_end, push_u64, push_value};
use headwater_wire::query::QueryError;
use std::sync::Arc;

/// Streams of a page.
const LIMIT_MAX: usize = 1_000;
const LIMIT: usize = 100;
/// Maximum streams requested by name.
const NAMES_MAX: usize = 64;
/// Names read at once.
const NAMES_AT_ONCE: usize = 4_096;
/// Number of matches beyond which a search stops counting.
const TOTAL_MAX: u64 = 100_000;
/// Number of tables after which further tables are not counted one by one.
const TABLES_MAX: usize = 1_000;
/// Words of a search, and characters of it.
const WORDS_MAX: usize = 16;
const SEARCH_CHARS_MAX: usize = 512;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/streams", Needs::Read, streams)]
}

async fn streams(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = query(
        &uri,
        &["search", "table", "limit", "after", "stream", "snapshot"],
    )?;
    let names = query
        .all("stream")
        .map(parse_stream)
        .collect::<Result<Vec<_>, _>>()?;
    at_most(names.len(), NAMES_MAX, "streams")?;
    for other in ["search", "table", "limit", "after"] {
        if let (false, Some(value)) = (names.is_empty(), query.one(other)?) {
            let reason = "`stream` cannot be combined with `table` or `search`";
            return Err(QueryError::value(other, reason, value).into());
        }
    }
    let limit = query.number("limit")?.unwrap_or(LIMIT);
    if limit > LIMIT_MAX {
        let reason = format!("expected 0 to {LIMIT_MAX}");
        return Err(QueryError::value("limit", reason, &limit.to_string()).into());
    }
    let after = query.one("after")?.map(parse_stream).transpose()?;
    let wanted = StreamFilter {
        table: query.one("table")?.map(str::to_owned),
        words: words(query.one("search")?.unwrap_or_default())?,
    };
    let past = request::past(&query)?;
    let body = app
        .blocking(move |app| {
            let deadline = Deadline::after(app.settings.request_timeout);
            let snapshot = app.snapshot_of(past.as_deref())?;
            let page = if names.is_empty() {
                wanted.page(&snapshot, &access, after.as_ref(), limit, deadline)?
            } else {
                by_name(&snapshot, &access, names)?
            };
            page.json(&snapshot, &access, deadline)
        })
        .await?;
    Ok(answer(request::JSON, body))
}

/// The words of a search, in lower case.
pub(crate) fn words(search: &str) -> Result<Vec<String>, ApiError> {
    let words: Vec<String> = search.split_whitespace().map(str::to_lowercase).collect();
    if words.len() > WORDS_MAX || search.len() > SEARCH_CHARS_MAX {
        let reason = format!("expected at most {WORDS_MAX} words, {SEARCH_CHARS_MAX} bytes");
        return Err(QueryError::value("search", reason, search).into());
    }
    Ok(words)
}

/// Filter of streams.
#[derive(Debug)]
pub(crate) struct StreamFilter {
    pub(crate) table: Option<String>,
    /// Each occurs in the text of a stream or in a name of a field.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Default)]
struct Page {
    streams: Vec<StreamName>,
    total: u64,
    has_more: bool,
    /// The first tables with matching streams, and the number of each.
    tables: Vec<(String, u64)>,
}

impl Page {
    /// Counts matching streams of a table; the streams of a table are consecutive.
    fn count(&mut self, table: &str, streams: u64) {
        if streams == 0 {
            return;
        }
        self.total += streams;
        if let Some((_, count)) = self.tables.last_mut().filter(|(last, _)| last == table) {
            *count += streams;
        } else if self.tables.len() < TABLES_MAX {
            self.tables.push((table.to_owned(), streams));
        }
    }
}

impl StreamFilter {
    /// Passes the matching visible streams to `each`, in the order of tables and of the catalog,
    /// until `each` returns false.
    pub(crate) fn walk(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        after: Option<&StreamName>,
        deadline: Deadline,
        each: &mut dyn FnMut(StreamName) -> bool,
    ) -> Result<(), ApiError> {
        for table in self.tables(snapshot, access)? {
            let mut last = after.filter(|a| a.table() == table).cloned();
            if last.is_none() && after.is_some_and(|a| table.as_str() < a.table()) {
                continue;
            }
            let mut search = Search::new(self.words_for_streams(snapshot, access, &table)?);
            loop {
                deadline.check()?;
                let page = ok_if_found(snapshot.streams_where(
                    &table,
                    last.as_ref(),
                    NAMES_AT_ONCE,
                    &mut |text| search.finds(text),
                ))?;
                let Some(page) = page else { break };
                for stream in page.streams {
                    if access.may_read_stream(&stream) && !each(stream) {
                        return Ok(());
                    }
                }
                last = page.next;
                if last.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Page for a client that may read everything: names are made of the streams of the page only,
    /// the others are counted.
    fn page_of_all(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        after: Option<&StreamName>,
        limit: usize,
        deadline: Deadline,
    ) -> Result<Page, ApiError> {
        let mut page = Page::default();
        // End of the previous page; streams up to there are skipped.
        let mut behind = after.map(StreamName::to_string);
        let mut taken = 0;
        for table in self.tables(snapshot, access)? {
            let mut search = Search::new(self.words_for_streams(snapshot, access, &table)?);
            let mut last = None;
            loop {
                deadline.check()?;
                let mut fitting = 0;
                let found = ok_if_found(snapshot.streams_where(
                    &table,
                    last.as_ref(),
                    NAMES_AT_ONCE,
                    &mut |text| {
                        if !search.finds(text) {
                            return false;
                        }
                        fitting += 1;
                        if let Some(end) = &behind {
                            if end == text {
                                behind = None;
                            }
                            return false;
                        }
                        page.has_more = taken == limit;
                        taken += usize::from(taken < limit);
                        !page.has_more
                    },
                ))?;
                page.count(&table, fitting);
                let Some(found) = found else { break };
                page.streams.extend(found.streams);
                if page.total >= TOTAL_MAX && page.has_more {
                    page.total = TOTAL_MAX;
                    return Ok(page);
                }
                last = found.next;
                if last.is_none() {
                    break;
                }
            }
        }
        Ok(page)
    }

    /// Names of the tables that match. A copy that cannot be read may have more of them, which is
    /// an error: `partial=allow` reads `Snapshot::allowing_partial`.
    fn tables(&self, snapshot: &Snapshot, access: &Access) -> Result<Vec<String>, ApiError> {
        snapshot.require_whole()?;
        let mut tables = snapshot.table_names();
        tables.retain(|t| {
            self.table.as_ref().is_none_or(|wanted| wanted == t) && access.may_read_some_of(t)
        });
        Ok(tables)
    }

    /// Words that no visible field of the table contains: each stream's text must contain them.
    fn words_for_streams(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        table: &str,
    ) -> Result<Vec<&str>, ApiError> {
        if self.words.is_empty() {
            return Ok(Vec::new());
        }
        let fields = access.fields(snapshot, table)?.unwrap_or_default();
        let fields: Vec<String> = fields.iter().map(|(name, _)| name.to_lowercase()).collect();
        Ok(self
            .words
            .iter()
            .filter(|word| !fields.iter().any(|f| f.contains(word.as_str())))
            .map(String::as_str)
            .collect())
    }

    fn page(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        after: Option<&StreamName>,
        limit: usize,
        deadline: Deadline,
    ) -> Result<Page, ApiError> {
        let mut page = Page::default();
        if self.words.is_empty() && access.reads_all() {
            for table in self.tables(snapshot, access)? {
                page.count(
                    &table,
                    ok_if_found(snapshot.stream_count(&table))?.unwrap_or(0),
                );
                let behind = after.is_none_or(|a| table.as_str() >= a.table());
                let room = limit + 1 - page.streams.len();
                if behind && room > 0 {
                    let last = after.filter(|a| a.table() == table);
                    let more = ok_if_found(snapshot.streams_after(&table, last, room))?;
                    page.streams.extend(more.unwrap_or_default());
                }
            }
            page.has_more = page.streams.len() > limit;
            page.streams.truncate(limit);
            return Ok(page);
        }
        if access.reads_all() {
            return self.page_of_all(snapshot, access, after, limit, deadline);
        }
        let mut is_behind = after.is_none();
        self.walk(snapshot, access, None, deadline, &mut |stream| {
            page.count(stream.table(), 1);
            if !is_behind {
                is_behind = after == Some(&stream);
            } else if page.streams.len() < limit {
                page.streams.push(stream);
            } else {
                page.has_more = true;
            }
            page.total < TOTAL_MAX || !page.has_more
        })?;
        Ok(page)
    }
}

/// Searches for words in lower case in texts of any case.
struct Search<'a> {
    words: Vec<&'a str>,
    /// The current text, in lower case.
    text: String,
}

impl Search<'_> {
    fn new(words: Vec<&str>) -> Search<'_> {
        Search {
            words,
            text: String::new(),
        }
    }

    /// True when a text has all words.
    fn finds(&mut self, text: &str) -> bool {
        if self.words.is_empty() {
            return true;
        }
        if text.is_ascii() {
            self.text.clear();
            self.text.push_str(text);
            self.text.make_ascii_lowercase();
        } else {
            self.text = text.to_lowercase();
        }
        self.words.iter().all(|word| self.text.contains(word))
    }
}

fn by_name(snapshot: &Snapshot, access: &Access, names: Vec<StreamName>) -> Result<Page, ApiError> {
    let mut streams = Vec::with_capacity(names.len());
    for name in names {
        if access.may_read_stream(&name)
            && !streams.contains(&name)
            && ok_if_found(snapshot.stream_info(&name))?.is_some()
        {
            streams.push(name);
        }
    }
    Ok(Page {
        total: streams.len() as u64,
        streams,
        has_more: false,
        tables: Vec::new(),
    })
}

impl Page {
    fn json(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        deadline: Deadline,
    ) -> Result<Vec<u8>, ApiError> {
        let mut out = Vec::with_capacity(256 + self.streams.len() * 512);
        out.extend_from_slice(b"{\"streams\":[");
        let mut fields: (&str, Vec<(String, FieldType)>) = ("", Vec::new());
        let mut is_first = true;
        for stream in &self.streams {
            deadline.check()?;
            if fields.0 != stream.table() {
                let known = access.fields(snapshot, stream.table())?.unwrap_or_default();
                fields = (stream.table(), known);
            }
            if let Some(handle) = ok_if_found(snapshot.handle(stream))? {
                let (Some(info), Some(last)) = (
                    ok_if_found(handle.info(snapshot))?,
                    ok_if_found(handle.last(snapshot))?,
                ) else {
                    continue;
                };
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                push_stream(&mut out, stream, &info, &fields.1, &last);
            }
        }
        let next = self.streams.last().filter(|_| self.has_more);
        let next = next.map(StreamName::to_string);
        push_streams_end(&mut out, self.total, &self.tables, next.as_deref());
        Ok(out)
    }
}

fn push_stream(
    out: &mut Vec<u8>,
    stream: &StreamName,
    info: &StreamInfo,
    fields: &[(String, FieldType)],
    last: &[LastValue],
) {
    out.extend_from_slice(b"{\"stream\":");
    push_str(out, &stream.to_string());
    out.extend_from_slice(b",\"table\":");
    push_str(out, stream.table());
    out.extend_from_slice(b",\"tags\":{");
    for (index, (tag, value)) in stream.tags().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_str(out, tag);
        out.push(b':');
        push_str(out, value);
    }
    out.extend_from_slice(b"},\"first\":");
    push_instant(out, info.first);
    out.extend_from_slice(b",\"last\":");
    push_instant(out, info.last);
    out.extend_from_slice(b",\"events\":");
    push_u64(out, info.rows);
    out.extend_from_slice(b",\"fields\":[");
    for (index, (name, field_type)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"name\":");
        push_str(out, name);
        out.extend_from_slice(b",\"type\":");
        push_str(out, field_type.name());
        out.extend_from_slice(b",\"last\":");
        match last.iter().find(|l| l.field == *name) {
            Some(last) => push_last(out, last),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

/// The newest value as an object: `{"time":"ns","value":…}`.
pub(crate) fn push_last(out: &mut Vec<u8>, last: &LastValue) {
    out.extend_from_slice(b"{\"time\":");
    push_integer_text(out, last.time.as_nanos());
    out.extend_from_slice(b",\"value\":");
    push_value(out, last.value.as_ref());
    out.push(b'}');
}

fn push_instant(out: &mut Vec<u8>, at: Option<Timestamp>) {
    match at {
        Some(at) => push_integer_text(out, at.as_nanos()),
        None => out.extend_from_slice(b"null"),
    }
}
