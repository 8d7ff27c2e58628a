//! Asking a server over HTTP, with TLS or without.
//!
//! Invariant: under `https:` nothing is sent before the server's certificate has been verified,
//! against those of `--ca` or those that the system trusts; the protocols and ciphers are those of
//! the server's own TLS (rustls with ring).

use crate::failure::Failure;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// Text as it stands in an address.
pub(crate) fn encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    });
    encoded.collect()
}

/// Header by which a client states that it does not follow redirects: a dispatcher relays the
/// answer, other servers ignore it.
pub(crate) const RELAY: (&str, &str) = ("X-Headwater-Relay", "true");
/// Longest wait for a connection, where an answer may take as long as it needs.
const CONNECT: Duration = Duration::from_secs(10);

/// A client that gives answers of any status as answers, for the server at `url`.
pub(crate) fn agent(
    url: &str,
    ca: Option<&Path>,
    timeout: Duration,
) -> Result<ureq::Agent, Failure> {
    build(url, ca, Some(timeout), None)
}

/// The same for answers that may take as long as they need.
#[cfg_attr(
    not(feature = "sql"),
    allow(dead_code, reason = "only SQL waits so long")
)]
pub(crate) fn patient_agent(url: &str, ca: Option<&Path>) -> Result<ureq::Agent, Failure> {
    build(url, ca, None, Some(CONNECT))
}

fn build(
    url: &str,
    ca: Option<&Path>,
    timeout: Option<Duration>,
    connect: Option<Duration>,
) -> Result<ureq::Agent, Failure> {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(timeout)
        .timeout_connect(connect);
    if url.starts_with("https://") {
        config = config.https_only(true).tls_config(tls(ca)?);
    } else if !url.starts_with("http://") {
        return Err(Failure::usage(
            "--url: expected http://HOST:PORT or https://HOST:PORT",
        ));
    } else if ca.is_some() {
        return Err(Failure::usage(
            "--ca: there is no certificate to verify under http:; write https: in --url",
        ));
    }
    Ok(config.build().into())
}

fn tls(ca: Option<&Path>) -> Result<TlsConfig, Failure> {
    let trusted = match ca {
        Some(path) => from_file(path)?,
        None => {
            // Those that cannot be read are no use to others either; none at all is an error.
            let found = rustls_native_certs::load_native_certs().certs;
            if found.is_empty() {
                return Err(Failure::failed(
                    "the system trust store has no certificates: name the server's certificate, or its issuer's, with --ca",
                ));
            }
            found
        }
    };
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

fn from_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(Failure::usage(format!(
            "--ca {}: the file contains no certificate",
            path.display()
        ))),
        Ok(found) => Ok(found),
        Err(error) => Err(Failure::usage(format!("--ca {}: {error}", path.display()))),
    }
}

/// True when a connection was not made because of a certificate or the like: to try again would not
/// help.
pub(crate) fn is_refused_tls(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => true,
        // What fails in the handshake comes as an error of the connection.
        ureq::Error::Io(error) => error
            .get_ref()
            .is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    }
}
