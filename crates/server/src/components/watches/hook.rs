//! Web hooks: an event as the body of a request to an address.
//!
//! Invariants: hooks are sent only to hosts that `watch.hooks` names, and to an address that only
//! this machine or its network reaches only if `watch.hooks_private` allows it; the connection uses
//! the checked address. Redirections are not followed, and proxies are not used. An attempt takes
//! [`TIME`] at most, and a bounded part of an answer is read. Failure: an event that the receiver
//! refuses is reported with the reason, and whether a retry may help.

use crate::settings::Settings;
use headwater_watch::address::{is_allowed, is_public};
use headwater_watch::{Event, Failure, hex, sign};
use rustls::crypto::ring;
use std::sync::Arc;
use std::time::Duration;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// Events in transit at once.
pub(crate) const SENDING_MAX: usize = 16;
/// Time limit of an attempt.
const TIME: Duration = Duration::from_secs(10);
/// The shortest key.
const KEY_BYTES_MIN: usize = 16;

/// Event to send.
pub(super) struct Letter<'a> {
    pub(super) url: &'a str,
    pub(super) event: &'a Event,
    pub(super) watch: u64,
    pub(super) body: &'a str,
    /// Seconds since 1970: part of the signed text, so that an old event cannot be replayed.
    pub(super) now_s: i64,
}

/// Resolver that returns only allowed addresses.
#[derive(Debug)]
struct Judge {
    inner: DefaultResolver,
    private: bool,
}

impl Resolver for Judge {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        match self.private || found.iter().all(|address| is_public(address.ip())) {
            true => Ok(found),
            false => Err(ureq::Error::Other(Box::new(Private))),
        }
    }
}

#[derive(Debug)]
struct Private;

impl std::fmt::Display for Private {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its address is a loopback or private one, which is not allowed (setting watch.hooks_private)")
    }
}

impl std::error::Error for Private {}

fn refused(reason: String) -> Failure {
    Failure {
        reason,
        is_final: true,
    }
}

fn retryable(reason: String) -> Failure {
    Failure {
        reason,
        is_final: false,
    }
}

/// Sends an event; waits for the answer.
pub(super) fn send(settings: &Settings, letter: &Letter<'_>) -> Result<(), Failure> {
    let wanted = &settings.watch;
    let uri: Uri = letter
        .url
        .parse()
        .map_err(|why| refused(format!("{}: {why}", letter.url)))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    if !is_allowed(&wanted.hooks, host) {
        return Err(refused(format!(
            "the host {host} is not allowed for web hooks (setting watch.hooks)"
        )));
    }
    let key = key(settings)?;
    let time = letter.now_s.to_string();
    let signature = sign(&key, &[time.as_bytes(), b".", letter.body.as_bytes()]);
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .max_idle_connections(0)
        .timeout_global(Some(TIME));
    if uri.scheme_str() == Some("https") {
        config = config.tls_config(tls()?);
    }
    let judge = Judge {
        inner: DefaultResolver::default(),
        private: wanted.hooks_private,
    };
    let agent = ureq::Agent::with_parts(config.build(), DefaultConnector::default(), judge);
    let answer = agent
        .post(letter.url)
        .header("Content-Type", "application/json")
        .header("Headwater-Event", letter.event.id(letter.watch))
        .header("Headwater-Time", &time)
        .header("Headwater-Signature", format!("sha256={}", hex(&signature)))
        .send(letter.body);
    match answer {
        Ok(answer) => match answer.status().as_u16() {
            200..=299 => Ok(()),
            408 | 425 | 429 | 500..=599 => {
                Err(retryable(format!("{host} answered {}", answer.status())))
            }
            _ => Err(refused(format!("{host} answered {}", answer.status()))),
        },
        Err(ureq::Error::Other(why)) if why.is::<Private>() => {
            Err(refused(format!("{host}: {why}")))
        }
        Err(why) => Err(retryable(format!("{host}: {why}"))),
    }
}

fn key(settings: &Settings) -> Result<Vec<u8>, Failure> {
    let Some(path) = &settings.watch.hook_key_file else {
        return Err(retryable(
            "no key to sign web hooks is configured (setting watch.hook_key_file)".to_owned(),
        ));
    };
    let key = std::fs::read(path)
        .map_err(|why| retryable(format!("watch.hook_key_file {}: {why}", path.display())))?;
    let key = key.trim_ascii().to_vec();
    match key.len() >= KEY_BYTES_MIN {
        true => Ok(key),
        false => Err(retryable(format!(
            "watch.hook_key_file {}: expected at least {KEY_BYTES_MIN} bytes",
            path.display()
        ))),
    }
}

fn tls() -> Result<TlsConfig, Failure> {
    // Unparsable certificates are useless to other programs too; an empty store is an error.
    let trusted = rustls_native_certs::load_native_certs().certs;
    if trusted.is_empty() {
        return Err(retryable(
            "the system trust store has no certificates".to_owned(),
        ));
    }
    let trusted: Vec<Certificate<'static>> = trusted
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&trusted))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build())
}
