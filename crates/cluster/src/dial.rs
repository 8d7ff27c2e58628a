//! Connects to a cloud: TCP, TLS if the address requires it, WebSocket.
//!
//! Invariants: under `https:` no bytes of the session are sent before the cloud's certificate is
//! verified, at the time that `proven_time` knows. Bytes of an edge's sockets are counted below
//! TLS. Failure: every step has a time limit; an error names its address.

use crate::error::{ClusterError, ClusterErrorKind};
use crate::frame::EDGE_MESSAGE_MAX;
use crate::invite::check_url;
use crate::other_clock::AskedNode;
use crate::proven_time::{ProvenTime, TimedVerifier};
use crate::socket_bytes::{Counted, SocketBytes};
use headwater_shell::access::token::fill_random;
use http::{Request, StatusCode, header};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

/// Path at which the cloud accepts connections.
pub(crate) const PATH: &str = "/api/v1/sync/connect";
/// Longest time of each step of making a connection.
const STEP_MAX: Duration = Duration::from_secs(30);

/// The byte stream under a connection.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Transport for T {}

/// A connection to a cloud.
pub(crate) type Dialled = WebSocketStream<Box<dyn Transport>>;

/// Parts of connecting that outlive a connection.
#[derive(Clone, Debug)]
pub(crate) struct DialContext {
    /// Counters of all bytes.
    pub(crate) bytes: Arc<SocketBytes>,
    /// Time at which certificates are validated.
    pub(crate) time: Arc<ProvenTime>,
}

impl DialContext {
    /// A context for one connection, by the clock of the system.
    pub(crate) fn of_system() -> DialContext {
        DialContext {
            bytes: Arc::default(),
            time: Arc::new(ProvenTime::of_system()),
        }
    }
}

/// Verifier of a connection; `None` without TLS.
pub(crate) type Verifier = Option<Arc<TimedVerifier>>;

/// Limits of received frames with messages of at most `most` bytes.
pub(crate) fn limits(most: usize) -> WebSocketConfig {
    // Each message is one frame, whose first byte is the compression.
    WebSocketConfig::default()
        .max_message_size(Some(most + 1))
        .max_frame_size(Some(most + 1))
}

struct Address<'u> {
    is_tls: bool,
    host: &'u str,
    port: u16,
    authority: &'u str,
}

fn address(url: &str) -> Result<Address<'_>, ClusterError> {
    check_url(url)?;
    let (is_tls, rest) = match url.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, url.strip_prefix("http://").unwrap_or(url)),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside brackets belongs to the address.
        Some((host, port)) if !port.contains(']') => {
            let number = port.parse().map_err(|_| {
                ClusterError::invalid(format!("`{url}`: `{port}` is not a port number"))
            })?;
            (host, number)
        }
        _ => (authority, if is_tls { 443 } else { 80 }),
    };
    Ok(Address {
        is_tls,
        host: host.trim_start_matches('[').trim_end_matches(']'),
        port,
        authority,
    })
}

fn unreachable(url: &str, what: &dyn std::fmt::Display) -> ClusterError {
    ClusterError::new(ClusterErrorKind::Unreachable, format!("{url}: {what}"))
}

/// A step of connecting, with a time limit.
async fn step<T, E: std::fmt::Display>(
    url: &str,
    what: &str,
    doing: impl Future<Output = Result<T, E>>,
) -> Result<T, ClusterError> {
    match tokio::time::timeout(STEP_MAX, doing).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(unreachable(url, &format!("{what}: {error}"))),
        Err(_) => {
            let text = format!("{what} took longer than {} s", STEP_MAX.as_secs());
            Err(unreachable(url, &text))
        }
    }
}

fn tls(
    ca: Option<&str>,
    time: &Arc<ProvenTime>,
) -> Result<(ClientConfig, Arc<TimedVerifier>), ClusterError> {
    let trusted: Vec<CertificateDer<'static>> = match ca {
        Some(pem) => CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| ClusterError::invalid(format!("the certificate of the cloud: {e}")))?,
        // Unreadable certificates are skipped; an empty list is an error.
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(trusted);
    if taken == 0 {
        return Err(ClusterError::invalid(
            "there is no certificate to verify the cloud by: give its own, or its issuer's, with --ca",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let by = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|e| ClusterError::invalid(e.to_string()))?;
    let verifier = Arc::new(TimedVerifier::new(by, Arc::clone(time)));
    let verifies: Arc<dyn ServerCertVerifier> = Arc::<TimedVerifier>::clone(&verifier);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ClusterError::invalid(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifies);
    Ok((config.with_no_client_auth(), verifier))
}

/// Connects to a node at an address: TCP, and TLS if the address requires it, with the certificate
/// verified against `ca` (PEM) or the certificates that the system trusts. Also returns the value
/// of the header `Host`.
///
/// # Errors
/// `invalid` for an invalid address or invalid certificates, `unreachable`.
pub async fn connect(
    url: &str,
    ca: Option<&str>,
) -> Result<(Box<dyn Transport>, String), ClusterError> {
    let address = address(url)?;
    let authority = address.authority.to_owned();
    let context = DialContext::of_system();
    let (stream, _) = transport(url, &address, ca, &context).await?;
    Ok((stream, authority))
}

async fn transport(
    url: &str,
    address: &Address<'_>,
    ca: Option<&str>,
    context: &DialContext,
) -> Result<(Box<dyn Transport>, Verifier), ClusterError> {
    let tcp = step(
        url,
        "connecting",
        TcpStream::connect((address.host, address.port)),
    )
    .await?;
    // Without it a request waits for the answer to the previous one.
    let _ = tcp.set_nodelay(true);
    let tcp = Counted::new(tcp, Arc::clone(&context.bytes));
    let stream: (Box<dyn Transport>, Verifier) = match address.is_tls {
        false => (Box::new(tcp), None),
        true => {
            let name = ServerName::try_from(address.host.to_owned())
                .map_err(|e| ClusterError::invalid(format!("{url}: {e}")))?;
            let (config, verifier) = tls(ca, &context.time)?;
            let connector = TlsConnector::from(Arc::new(config));
            let shaken = step(url, "TLS", connector.connect(name, tcp)).await;
            match (shaken, verifier.refused()) {
                (Ok(stream), _) => (Box::new(stream), Some(verifier)),
                (Err(error), None) => return Err(error),
                (Err(_), Some(why)) => {
                    let (time, bytes) = (&context.time, &context.bytes);
                    let (now, clock) = (time.monotonic(), time.clock_text());
                    let asked = AskedNode {
                        host: address.host,
                        port: address.port,
                        authority: address.authority,
                    };
                    let there = time.other.told(asked, bytes, (now, &clock)).await;
                    let text = format!(
                        "the certificate is not valid now: {why}; {there}; set the clock that is wrong, or renew the certificate"
                    );
                    return Err(unreachable(url, &text));
                }
            }
        }
    };
    Ok(stream)
}

/// Connects to the cloud at an address, and shows it a key or an invitation.
pub(crate) async fn dial(
    url: &str,
    ca: Option<&str>,
    secret: &str,
    context: &DialContext,
) -> Result<(Dialled, Verifier), ClusterError> {
    let address = address(url)?;
    let (stream, verifier) = transport(url, &address, ca, context).await?;
    let mut nonce = [0; 16];
    fill_random(&mut nonce).map_err(|e| unreachable(url, &e))?;
    let request = Request::get(format!(
        "{}://{}{PATH}",
        if address.is_tls { "wss" } else { "ws" },
        address.authority
    ))
    .header(header::HOST, address.authority)
    .header(header::CONNECTION, "Upgrade")
    .header(header::UPGRADE, "websocket")
    .header(header::SEC_WEBSOCKET_VERSION, "13")
    .header(
        header::SEC_WEBSOCKET_KEY,
        data_encoding::BASE64.encode(&nonce),
    )
    .header(header::AUTHORIZATION, format!("Bearer {secret}"))
    .body(())
    .map_err(|e| ClusterError::invalid(format!("{url}: {e}")))?;
    let shaking = client_async_with_config(request, stream, Some(limits(EDGE_MESSAGE_MAX)));
    match tokio::time::timeout(STEP_MAX, shaking).await {
        Ok(Ok((connection, _))) => Ok((connection, verifier)),
        Ok(Err(WsError::Http(answer))) => Err(refused(url, &answer)),
        Ok(Err(error)) => Err(unreachable(url, &error)),
        Err(_) => Err(unreachable(url, &"the WebSocket handshake timed out")),
    }
}

/// Reason why a cloud did not accept a connection.
fn refused(url: &str, answer: &http::Response<Option<Vec<u8>>>) -> ClusterError {
    let body: Option<serde_json::Value> = answer
        .body()
        .as_ref()
        .and_then(|body| serde_json::from_slice(body).ok());
    let said = body.as_ref().and_then(|b| b["message"].as_str());
    let text = match said {
        Some(said) => format!("{url}: {said}"),
        None => format!("{url}: answered {}", answer.status()),
    };
    let kind = match answer.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ClusterErrorKind::Denied,
        StatusCode::CONFLICT | StatusCode::NOT_FOUND => ClusterErrorKind::Invalid,
        _ => ClusterErrorKind::Unreachable,
    };
    ClusterError::new(kind, text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (url, host, port, is_tls) in [
            ("http://127.0.0.1:7373", "127.0.0.1", 7373, false),
            ("https://cloud.example", "cloud.example", 443, true),
            ("https://[::1]:99/", "::1", 99, true),
            ("http://[fe80::1]", "fe80::1", 80, false),
        ] {
            let found = address(url).unwrap();
            assert_eq!((found.host, found.port, found.is_tls), (host, port, is_tls));
        }
        assert!(address("http://host:seventy").is_err());
    }
}
