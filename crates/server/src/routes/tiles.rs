//! Tiles: one in Respawn's shape, or several at once as JSON or in binary form.
//!
//! Invariants: `Access::resolve` checks the rights for each channel, and a stream that the client
//! may not read is answered like an unknown one; a tile is answered from one snapshot; its `ETag`
//! is made of the versions of its data, so the answer 304 is sent only for the same bytes; a cached
//! answer is sent only to a client that may read every stream in it, and only while its versions
//! equal the current versions of the data. Concurrency: cached answers are sent on the runtime's
//! thread, since comparing versions never waits; so are tiles of a kind that was quick to read
//! before ([`crate::tile_costs`]). All other tiles are read on other threads.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, not_found, query};
use crate::routes::{Needs, Route};
use crate::tile_cache::{CacheEntry, TileCache, VersionedRange, etag_of, is_known};
use crate::tile_costs::TileCost;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use headwater::{Level, Snapshot};
use headwater_wire::channel::{Channel, TileName};
use headwater_wire::json::{push_i64, push_integer_text, push_str};
use headwater_wire::query::{QueryError, percent_decode};
use headwater_wire::tile::{TileColumn, push_fields_and_data, push_tile_json};
use headwater_wire::tiles::{TILES_MEDIA_TYPE, TileStatus, push_tile, push_tiles_head};
use std::sync::Arc;
use std::time::Instant;

/// Cache control of closed data: clients may cache it for an hour without revalidation.
const CLOSED_FOR: HeaderValue = HeaderValue::from_static("private, max-age=3600");

/// The columns of the routes of our own; Respawn's route has Respawn's.
const COLUMNS: [TileColumn; 6] = [
    TileColumn::Time,
    TileColumn::Mean,
    TileColumn::Min,
    TileColumn::Max,
    TileColumn::Count,
    TileColumn::Stddev,
];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/tiles/{channel}/{tile}", Needs::Read, tiles),
        Route::get("/api/v1/tiles", Needs::Read, tiles),
    ]
}

/// Parsed request.
#[derive(Debug)]
struct TileRequest {
    channels: Vec<(String, Channel)>,
    tile: TileName,
    columns: Vec<TileColumn>,
    form: Form,
    /// The named snapshot to read; `None` = the present.
    past: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One tile, in Respawn's shape.
    Respawn,
    Json,
    Binary,
}

/// Both routes.
async fn tiles(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // Versions of data in copies cannot be compared without waiting.
    let key = TileCache::key(&access, &uri).filter(|_| app.fleet.is_none());
    if let Some(entry) = key
        .as_deref()
        .and_then(|key| app.tiles.get(&app.db(), &access, key))
    {
        return Ok(respond(&entry, &headers));
    }
    let asked = TileRequest::of(&uri)?;
    let known = headers.clone();
    // Opening a snapshot takes longer than reading its tiles.
    let is_quick = app.fleet.is_none() && asked.past.is_none() && asked.cost(&app).is_quick();
    let read = move |app: &App| {
        let begun = Instant::now();
        let read = asked.read(app, &access, &known, key.as_deref());
        // An error or a 304 does not measure the cost of reading.
        if let Ok(Answered::Read(entry)) = &read
            && asked.past.is_none()
        {
            asked.cost(app).learn(begun.elapsed());
            asked.note(app, entry);
        }
        read
    };
    let answered = if is_quick {
        read(&app)?
    } else {
        app.blocking(read).await?
    };
    Ok(match answered {
        Answered::Read(entry) => respond(&entry, &headers),
        Answered::NotModified(etag) => not_modified(etag),
    })
}

/// Result of reading.
enum Answered {
    Read(Arc<CacheEntry>),
    /// The client has the answer with this tag.
    NotModified(HeaderValue),
}

fn respond(entry: &CacheEntry, headers: &HeaderMap) -> Response {
    if let Some(etag) = &entry.etag
        && is_known(etag, headers)
    {
        return not_modified(etag.clone());
    }
    let mut response = Bytes::clone(&entry.body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, entry.content_type.clone());
    let control = if entry.is_closed {
        CLOSED_FOR
    } else {
        request::NO_CACHE
    };
    headers.insert(CACHE_CONTROL, control);
    if let Some(etag) = &entry.etag {
        headers.insert(ETAG, etag.clone());
    }
    request::with_until(response, entry.until)
}

fn not_modified(etag: HeaderValue) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    response.headers_mut().insert(ETAG, etag);
    response
        .headers_mut()
        .insert(CACHE_CONTROL, request::NO_CACHE);
    response
}

impl TileRequest {
    fn of(uri: &Uri) -> Result<TileRequest, ApiError> {
        match uri.path().strip_prefix("/tiles/") {
            Some(rest) => TileRequest::of_path(rest, uri),
            None => TileRequest::of_query(uri),
        }
    }

    /// Reads `CHANNEL/LEVEL.OFFSET.json`.
    fn of_path(rest: &str, uri: &Uri) -> Result<TileRequest, ApiError> {
        let query = query(uri, &["fields", "snapshot"])?;
        let bad = || {
            ApiError::new(
                StatusCode::BAD_REQUEST,
                "E_PARAMETER",
                "expected /tiles/CHANNEL/LEVEL.OFFSET.json with CHANNEL = table,tag=value.field, percent-encoded, LEVEL -20 to 40, and OFFSET an integer",
            )
        };
        let (channel, tile) = rest.split_once('/').ok_or_else(bad)?;
        let channel = percent_decode(channel, false).ok_or_else(bad)?;
        let tile = percent_decode(tile, false).ok_or_else(bad)?;
        Ok(TileRequest {
            channels: vec![(
                channel.clone().into_owned(),
                Channel::parse(&channel).ok_or_else(bad)?,
            )],
            tile: TileName::parse(&tile).ok_or_else(bad)?,
            columns: columns(query.list("fields")?, &TileColumn::DEFAULT)?,
            form: Form::Respawn,
            past: request::past(&query)?,
        })
    }

    fn of_query(uri: &Uri) -> Result<TileRequest, ApiError> {
        let query = query(
            uri,
            &["channel", "level", "offset", "fields", "format", "snapshot"],
        )?;
        let channels = request::channels(&query)?;
        let written = query.required("level", "-20 to 40")?;
        query.required("offset", "the number of the tile")?;
        let level = query
            .number("level")?
            .and_then(Level::new)
            .ok_or_else(|| QueryError::value("level", "expected -20 to 40", written))?;
        let form = match query.one("format")? {
            None | Some("json") => Form::Json,
            Some("binary") => Form::Binary,
            Some(other) => {
                return Err(QueryError::value("format", "expected json or binary", other).into());
            }
        };
        let fields = query.list("fields")?;
        if form == Form::Binary && fields.is_some() {
            let reason = "the binary format has all fields; leave the parameter out";
            return Err(QueryError::value("fields", reason, "").into());
        }
        Ok(TileRequest {
            channels,
            tile: TileName {
                level,
                offset: query.number("offset")?.unwrap_or_default(),
            },
            columns: columns(fields, &COLUMNS)?,
            form,
            past: request::past(&query)?,
        })
    }

    /// Records tiles that were answered from copies for the inventory.
    fn note(&self, app: &App, entry: &CacheEntry) {
        if app.fleet.is_none() {
            return;
        }
        let TileName { level, offset } = self.tile;
        let tiles = entry.shown.iter().filter(|s| s.status == TileStatus::Tile);
        for tile in tiles {
            app.inventory.answered(&tile.stream, level, offset);
        }
    }

    /// Measured cost of reading these tiles.
    fn cost<'a>(&self, app: &'a App) -> TileCost<'a> {
        let channels = self.channels.iter().map(|(text, _)| text.as_str());
        app.tile_costs.of(channels, self.tile.level)
    }

    fn read(
        &self,
        app: &App,
        access: &Access,
        known: &HeaderMap,
        key: Option<&str>,
    ) -> Result<Answered, ApiError> {
        let snapshot = app.snapshot_of(self.past.as_deref())?;
        let shown = self.shown(&snapshot, access)?;
        let etag = etag_of(&shown);
        if let Some(etag) = &etag
            && is_known(etag, known)
        {
            return Ok(Answered::NotModified(etag.clone()));
        }
        let entry = Arc::new(CacheEntry {
            until: app.until(&snapshot, shown.iter().filter_map(VersionedRange::read))?,
            // Another snapshot may have the name later.
            is_closed: self.past.is_none()
                && shown.iter().all(|s| s.version.is_some_and(|v| v.is_closed)),
            body: self.body(&snapshot, &shown)?.into(),
            content_type: self.content_type(),
            shown,
            etag,
        });
        if let Some(key) = key
            && self.past.is_none()
        {
            app.tiles.put(key, &entry);
        }
        Ok(Answered::Read(entry))
    }

    /// Visible part of the requested channels.
    fn shown(&self, snapshot: &Snapshot, access: &Access) -> Result<Vec<VersionedRange>, ApiError> {
        let TileName { level, offset } = self.tile;
        let range = level
            .tile_buckets(offset)
            .map_or(headwater::ClosedRange::EMPTY, |b| {
                level.span(*b.start(), *b.end())
            });
        let mut out = Vec::with_capacity(self.channels.len());
        for (text, channel) in &self.channels {
            let resolved = access.resolve(snapshot, &channel.stream, &channel.field)?;
            if resolved.is_none() && self.form == Form::Respawn {
                return Err(not_found("channel", text));
            }
            out.push(VersionedRange {
                stream: channel.stream.clone(),
                range,
                version: match &resolved {
                    Some((handle, _)) => handle.version(snapshot, &range)?,
                    None => None,
                },
                status: match &resolved {
                    None => TileStatus::Unknown,
                    Some((_, t)) if t.is_numeric() => TileStatus::Tile,
                    Some(_) => TileStatus::NotNumeric,
                },
                handle: resolved.map(|(handle, _)| handle),
            });
        }
        Ok(out)
    }

    fn body(&self, snapshot: &Snapshot, shown: &[VersionedRange]) -> Result<Vec<u8>, ApiError> {
        let TileName { level, offset } = self.tile;
        let mut out = Vec::with_capacity(32 * 1024);
        match self.form {
            Form::Respawn => {}
            Form::Json => out.extend_from_slice(b"{\"tiles\":["),
            Form::Binary => push_tiles_head(&mut out, self.channels.len() as u32),
        }
        for (index, ((text, channel), shown)) in self.channels.iter().zip(shown).enumerate() {
            // Respawn's shape has the counts of a text too.
            let is_read = shown.status == TileStatus::Tile || self.form == Form::Respawn;
            let tile = match &shown.handle {
                Some(handle) if is_read => handle.tile(snapshot, &channel.field, level, offset)?,
                _ => Vec::new(),
            };
            let buckets = tile.iter().map(|(bucket, a)| (*bucket, a));
            match self.form {
                Form::Respawn => push_tile_json(&mut out, level, offset, &self.columns, buckets),
                Form::Binary => push_tile(&mut out, shown.status, level, offset, &tile),
                Form::Json => {
                    if index > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(b"{\"channel\":");
                    push_str(&mut out, text);
                    if let Some((code, message)) = complaint(shown.status) {
                        out.extend_from_slice(b",\"error\":{\"code\":");
                        push_str(&mut out, code);
                        out.extend_from_slice(b",\"message\":");
                        push_str(&mut out, message);
                        out.extend_from_slice(b"}}");
                        continue;
                    }
                    out.extend_from_slice(b",\"level\":");
                    push_i64(&mut out, i64::from(level.get()));
                    out.extend_from_slice(b",\"offset\":");
                    push_integer_text(&mut out, offset);
                    out.push(b',');
                    push_fields_and_data(&mut out, &self.columns, buckets);
                    out.push(b'}');
                }
            }
        }
        if self.form == Form::Json {
            out.extend_from_slice(b"]}");
        }
        Ok(out)
    }

    fn content_type(&self) -> HeaderValue {
        match self.form {
            Form::Respawn | Form::Json => request::JSON,
            Form::Binary => HeaderValue::from_static(TILES_MEDIA_TYPE),
        }
    }
}

fn complaint(status: TileStatus) -> Option<(&'static str, &'static str)> {
    match status {
        TileStatus::Tile => None,
        TileStatus::Unknown => Some(("E_NOT_FOUND", "the stream or field does not exist")),
        TileStatus::NotNumeric => Some((
            "E_NOT_NUMERIC",
            "the field is not numeric; GET /api/v1/scan returns its values",
        )),
    }
}

fn columns(
    names: Option<Vec<String>>,
    default: &[TileColumn],
) -> Result<Vec<TileColumn>, ApiError> {
    let Some(names) = names else {
        return Ok(default.to_vec());
    };
    names
        .iter()
        .map(|name| {
            TileColumn::from_name(name).ok_or_else(|| {
                let reason = "expected time, mean, stddev, count, min, max or sum between commas";
                QueryError::value("fields", reason, name).into()
            })
        })
        .collect()
}
