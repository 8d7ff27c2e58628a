//! A store with S3's protocol over HTTP: signed addresses (AWS signature 4) of `rusty-s3`, requests
//! by `ureq`.
//!
//! Invariants: a put sends its condition as a signed header, so that no proxy can remove it. A body
//! that is shorter than announced is a failure, never an object. Redirects are not followed. Under
//! `https:` the certificate is verified first. Concurrency: any number of requests at once; each
//! waits for its answer. Failure: temporary errors of a server, timeouts, and cut connections are
//! transient; a refusal is permanent.

use crate::error::BucketError;
use crate::store::{Etag, Listed, Object, ObjectStore, Page, Put, StoreFailure, unreadable};
use headwater_io::Clock;
use headwater_types::Timestamp;
use rusty_s3::actions::{ListObjectsV2, ListObjectsV2Response};
use rusty_s3::{Bucket, S3Action, UrlStyle};
use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Response;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, AsSendBody, Body};

/// Validity of a signed address.
const SIGNED_FOR: Duration = Duration::from_secs(300);
/// Time limit of a request.
const WITHIN: Duration = Duration::from_secs(60);
/// Minimum rate of a put in bytes per second, which extends its time limit.
const SLOWEST: u64 = 1 << 20;
/// Bytes of a body, at the most.
const BODY_MAX: u64 = 1 << 30;
/// Maximum length in bytes of a server's error text that is passed on.
const ERROR_TEXT_MAX: usize = 200;

/// Account of the requests.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Value of `AWS_ACCESS_KEY_ID`.
    pub key: String,
    /// Value of `AWS_SECRET_ACCESS_KEY`.
    pub secret: String,
    /// `AWS_SESSION_TOKEN`, where there is one.
    pub token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is never printed.
        write!(f, "Credentials({})", self.key)
    }
}

/// Where a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    /// `https://s3.eu-central-1.amazonaws.com`, `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The region, which is signed.
    pub region: String,
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of all keys; it ends with `/`, or is empty.
    pub prefix: String,
    /// The name of the bucket is part of the path, not of the host.
    pub is_path_style: bool,
}

/// A bucket.
pub struct S3 {
    bucket: Bucket,
    credentials: rusty_s3::Credentials,
    prefix: String,
    agent: Agent,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3({}, {})", self.bucket.base_url(), self.prefix)
    }
}

impl S3 {
    /// Creates the store of a bucket, without a request.
    ///
    /// # Errors
    /// `invalid` for an invalid address, or when the system trusts no certificates.
    pub fn new(
        place: &S3Location,
        credentials: &Credentials,
        clock: Arc<dyn Clock>,
    ) -> Result<S3, BucketError> {
        let bad = |why: &dyn fmt::Display| {
            BucketError::invalid(format!(
                "{}: {why}; expected an address such as https://s3.eu-central-1.amazonaws.com",
                place.endpoint
            ))
        };
        let endpoint = place.endpoint.parse();
        let endpoint = endpoint.map_err(|_| bad(&"it is not an address"))?;
        let style = if place.is_path_style {
            UrlStyle::Path
        } else {
            UrlStyle::VirtualHost
        };
        let bucket = Bucket::new(endpoint, style, place.bucket.clone(), place.region.clone());
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(WITHIN));
        if place.endpoint.starts_with("https://") {
            config = config.https_only(true).tls_config(tls()?);
        }
        let (key, secret) = (credentials.key.clone(), credentials.secret.clone());
        Ok(S3 {
            bucket: bucket.map_err(|e| bad(&e))?,
            credentials: match &credentials.token {
                None => rusty_s3::Credentials::new(key, secret),
                Some(token) => rusty_s3::Credentials::new_with_token(key, secret, token.clone()),
            },
            prefix: place.prefix.clone(),
            agent: config.build().into(),
            clock,
        })
    }

    fn signed<'a>(&self, action: &impl S3Action<'a>) -> String {
        let now = jiff::Timestamp::from_nanosecond(self.clock.now().as_nanos().into());
        // A clock of 64 bits of nanoseconds is never out of its range.
        let now = now.unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        action.sign_with_time(SIGNED_FOR, &now).into()
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn put(
        &self,
        key: &str,
        body: (impl AsSendBody, u64),
        condition: (&'static str, &str),
    ) -> Result<Put, StoreFailure> {
        let (body, bytes) = body;
        let full = self.key(key);
        let mut action = self.bucket.put_object(Some(&self.credentials), &full);
        action
            .headers_mut()
            .insert(condition.0, condition.1.to_owned());
        let request = self.agent.put(self.signed(&action));
        let request = request.header(condition.0, condition.1);
        let timed = request.config().timeout_global(Some(within(bytes)));
        let answered = timed.build().send(body);
        let answer = answered.map_err(|e| no_answer(key, &e))?;
        match answer.status().as_u16() {
            200 => etag_of(key, &answer).map(Put::Stored),
            // The object differs from the expected one, or does not exist.
            412 => Ok(Put::Refused),
            404 => missing(key, answer).map(|_| Put::Refused),
            _ => Err(refusal(key, answer)),
        }
    }

    fn read(&self, key: &str, range: Option<&str>) -> Result<Option<Object>, StoreFailure> {
        let full = self.key(key);
        let mut action = self.bucket.get_object(Some(&self.credentials), &full);
        if let Some(range) = range {
            action.headers_mut().insert("range", range.to_owned());
        }
        let mut request = self.agent.get(self.signed(&action));
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let answer = request.call().map_err(|e| no_answer(key, &e))?;
        match answer.status().as_u16() {
            200 if range.is_none() => body_of(key, answer).map(Some),
            206 if range.is_some() => body_of(key, answer).map(Some),
            404 => missing(key, answer),
            _ => Err(refusal(key, answer)),
        }
    }

    /// A page of the list of the bucket; from a token of the page before on.
    fn listed(
        &self,
        prefix: &str,
        after: &str,
        token: Option<&str>,
    ) -> Result<ListObjectsV2Response, StoreFailure> {
        let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
        action.with_prefix(self.key(prefix));
        if let Some(token) = token {
            action.with_continuation_token(token.to_owned());
        } else if !after.is_empty() {
            action.with_start_after(self.key(after));
        }
        let answered = self.agent.get(self.signed(&action)).call();
        let answer = answered.map_err(|e| no_answer(prefix, &e))?;
        if answer.status().as_u16() != 200 {
            return Err(refusal(prefix, answer));
        }
        let body = answer
            .into_body()
            .with_config()
            .limit(BODY_MAX)
            .read_to_string();
        let body = body.map_err(|e| no_answer(prefix, &e))?;
        let parsed = ListObjectsV2::parse_response(&body);
        parsed.map_err(|e| {
            StoreFailure::passing(format!(
                "{prefix}: cannot parse the listing of the bucket: {e}"
            ))
        })
    }
}

/// Answer for a missing object, or an error for a missing bucket.
fn missing(key: &str, answer: Response<Body>) -> Result<Option<Object>, StoreFailure> {
    let text = error_body(answer);
    match text.contains("NoSuchBucket") {
        true => Err(StoreFailure::lasting(format!(
            "{key}: the bucket does not exist: create it first ({text})"
        ))),
        false => Ok(None),
    }
}

/// An instant in a list; `None` = outside the supported range.
fn instant(told: jiff::Timestamp) -> Option<Timestamp> {
    let nanos = i64::try_from(told.as_nanosecond()).ok()?;
    Some(Timestamp::from_nanos(nanos))
}

/// Time limit of a put of `bytes` bytes.
fn within(bytes: u64) -> Duration {
    WITHIN + Duration::from_secs(bytes / SLOWEST)
}

fn no_answer(key: &str, error: &ureq::Error) -> StoreFailure {
    StoreFailure::passing(format!("{key}: the bucket does not respond: {error}"))
}

fn error_body(answer: Response<Body>) -> String {
    let body = answer
        .into_body()
        .with_config()
        .limit(64 << 10)
        .read_to_string();
    // An unreadable body is ignored: the status is reported.
    let body = body.unwrap_or_else(|e| e.to_string());
    body.chars().take(ERROR_TEXT_MAX).collect()
}

fn refusal(key: &str, answer: Response<Body>) -> StoreFailure {
    let status = answer.status();
    let text = format!(
        "{key}: the bucket responds {status}: {}",
        error_body(answer)
    );
    match status.as_u16() {
        // Too many requests, an error of the server, or two concurrent puts.
        408 | 409 | 429 | 500.. => StoreFailure::passing(text),
        _ => StoreFailure::lasting(text),
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn etag_of(key: &str, answer: &Response<Body>) -> Result<Etag, StoreFailure> {
    let found = answer
        .headers()
        .get("etag")
        .and_then(|tag| tag.to_str().ok());
    let found = found.ok_or_else(|| {
        StoreFailure::lasting(format!(
            "{key}: the response has no ETag; the store must return one for each object"
        ))
    })?;
    Ok(Etag(found.to_owned()))
}

fn body_of(key: &str, answer: Response<Body>) -> Result<Object, StoreFailure> {
    let etag = etag_of(key, &answer)?;
    let length = answer.headers().get("content-length");
    let length = length.and_then(|l| l.to_str().ok()?.parse::<u64>().ok());
    let read = answer
        .into_body()
        .with_config()
        .limit(BODY_MAX)
        .read_to_vec();
    let bytes = read.map_err(|e| no_answer(key, &e))?;
    let have = self::length(&bytes);
    match length.is_none_or(|length| length == have) {
        true => Ok(Object { bytes, etag }),
        false => Err(StoreFailure::passing(format!(
            "{key}: the response body ended after {have} bytes"
        ))),
    }
}

fn tls() -> Result<TlsConfig, BucketError> {
    // Unreadable certificates are skipped; an empty list is an error.
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return Err(BucketError::invalid(
            "the system trust store has no certificates: name a file of them in SSL_CERT_FILE",
        ));
    }
    let trusted: Vec<Certificate<'static>> = found
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&trusted))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

impl ObjectStore for S3 {
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure> {
        self.read(key, None)
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure> {
        let Some(last) = from
            .saturating_add(bytes)
            .checked_sub(1)
            .filter(|_| bytes > 0)
        else {
            return Ok(self.read(key, None)?.map(|_| Vec::new()));
        };
        let range = format!("bytes={from}-{last}");
        let Some(found) = self.read(key, Some(&range))? else {
            return Ok(None);
        };
        let have = length(&found.bytes);
        match have == bytes {
            true => Ok(Some(found.bytes)),
            false => Err(StoreFailure::passing(format!(
                "{key}: received {have} bytes for {range}"
            ))),
        }
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        self.put(key, (bytes, length(bytes)), ("if-none-match", "*"))
    }

    fn create_from(&self, key: &str, file: &File) -> Result<Put, StoreFailure> {
        let mut from = file;
        let begun = from.seek(SeekFrom::Start(0));
        let told = begun.and_then(|_| file.metadata());
        let bytes = told.map_err(|e| unreadable(key, &e))?.len();
        self.put(key, (file, bytes), ("if-none-match", "*"))
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure> {
        self.put(key, (bytes, length(bytes)), ("if-match", &expected.0))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure> {
        let mut further: Option<String> = None;
        loop {
            let parsed = self.listed(prefix, after, further.as_deref())?;
            let objects = parsed.contents.into_iter().filter_map(|object| {
                let key = object.key.strip_prefix(&self.prefix)?.to_owned();
                let bytes = object.size?;
                // A time that cannot be read counts as missing.
                let modified = object.last_modified.and_then(|text| text.parse().ok());
                Some(Listed {
                    key,
                    bytes,
                    modified: modified.and_then(instant),
                })
            });
            let objects: Vec<Listed> = objects.collect();
            let next = parsed.next_continuation_token;
            // An empty page has no last key to continue after.
            match next {
                Some(next) if objects.is_empty() && further.as_ref() != Some(&next) => {
                    further = Some(next);
                }
                next => {
                    return Ok(Page {
                        more: next.is_some() && !objects.is_empty(),
                        objects,
                    });
                }
            }
        }
    }

    fn delete(&self, key: &str) -> Result<(), StoreFailure> {
        let full = self.key(key);
        let action = self.bucket.delete_object(Some(&self.credentials), &full);
        let answered = self.agent.delete(self.signed(&action)).call();
        let answer = answered.map_err(|e| no_answer(key, &e))?;
        match answer.status().as_u16() {
            200 | 204 | 404 => Ok(()),
            _ => Err(refusal(key, answer)),
        }
    }
}
