//! The page: the files of `web/dist`, as they were when this program was built.
//!
//! Invariants: names with a hash never change their contents, so browsers may cache them for ever;
//! the first file of the page is revalidated each time. A file is compressed once: all of them at
//! the first request of the page, since a browser requests the other files as soon as it has read
//! the page.

use crate::error::ApiError;
use crate::page_placeholder;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use headwater_shell::{Needs, Route};
use rust_embed::{EmbeddedFile, RustEmbed};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Once, OnceLock};

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Dist;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Vec<Route<S>> {
    vec![
        Route::get("/", Needs::Public, index),
        Route::get("/assets/{*name}", Needs::Public, asset),
    ]
}

/// A file of the page, ready to be sent.
struct Ready {
    plain: Bytes,
    /// Compressed form; `None` where compression does not shrink the file.
    gzip: Option<Bytes>,
    etag: HeaderValue,
    kind: &'static str,
}

impl Ready {
    fn of(name: &str, file: EmbeddedFile) -> Ready {
        let plain = match file.data {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        // The best compression would take three times as long and save one percent.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to memory cannot fail; without the compressed form the plain form is sent.
        let packed = encoder.write_all(&plain).and_then(|()| encoder.finish());
        let hash = crate::access::token::hex(&file.metadata.sha256_hash()[..16]);
        Ready {
            gzip: packed
                .ok()
                .filter(|packed| packed.len() < plain.len())
                .map(Bytes::from),
            // Hexadecimal digits are always a value.
            etag: HeaderValue::try_from(format!("\"{hash}\""))
                .unwrap_or(HeaderValue::from_static("\"\"")),
            kind: kind(name),
            plain,
        }
    }
}

/// The files by name.
fn files() -> &'static BTreeMap<String, OnceLock<Ready>> {
    static FILES: OnceLock<BTreeMap<String, OnceLock<Ready>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let names = Dist::iter().map(Cow::into_owned);
        names.map(|name| (name, OnceLock::new())).collect()
    })
}

fn find(name: &str) -> Option<&'static Ready> {
    let place = files().get(name)?;
    if let Some(ready) = place.get() {
        return Some(ready);
    }
    let file = Dist::get(name)?;
    Some(place.get_or_init(|| Ready::of(name, file)))
}

/// Compresses the files of the next requests, on a separate thread.
fn prepare() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        tokio::task::spawn_blocking(|| {
            let mut names: Vec<&String> = files().keys().collect();
            // The page is empty before the script runs.
            names.sort_by_key(|name| !name.ends_with(".js"));
            for name in names {
                let _ready = find(name);
            }
        });
    });
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

async fn index(headers: HeaderMap) -> Response {
    prepare();
    match find("index.html") {
        Some(ready) => answer(ready, &headers, "no-cache"),
        None => page_placeholder::answer().into_response(),
    }
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match find(&format!("assets/{name}")) {
        Some(ready) => answer(ready, &headers, "public, max-age=31536000, immutable"),
        None => ApiError::new(
            StatusCode::NOT_FOUND,
            "E_NO_ROUTE",
            "the page has no such file; reload the page if the server was updated",
        )
        .into_response(),
    }
}

fn answer(ready: &'static Ready, headers: &HeaderMap, keep: &'static str) -> Response {
    let has = |name, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|part| {
                let (name, weight) = part.split_once(';').unwrap_or((part, ""));
                let weight = weight.trim().strip_prefix("q=");
                let refused = weight.is_some_and(|q| q.parse() == Ok(0.0));
                name.trim().trim_start_matches("W/") == wanted && !refused
            })
    };
    let known = ready
        .etag
        .to_str()
        .is_ok_and(|etag| has(IF_NONE_MATCH, etag));
    let packed = ready.gzip.as_ref().filter(|_| has(ACCEPT_ENCODING, "gzip"));
    let mut response = match (known, packed) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, Some(packed)) => Body::from(packed.clone()).into_response(),
        (false, None) => Body::from(ready.plain.clone()).into_response(),
    };
    let out = response.headers_mut();
    out.insert(CONTENT_TYPE, HeaderValue::from_static(ready.kind));
    out.insert(ETAG, ready.etag.clone());
    out.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    out.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if !known && packed.is_some() {
        out.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}
