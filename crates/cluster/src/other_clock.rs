//! The clock of a cloud whose certificate is not valid by the clock here: told to people, so that
//! they see which of the two is wrong.
//!
//! Invariants: the certificate of this connection is not verified, so nothing secret is sent over
//! it, and its answer is used in a text only, which says that it is not verified. The question is
//! asked at most once in [`AGAIN`]. Failure: a node that does not answer in time has no clock.

use crate::socket_bytes::{Counted, SocketBytes};
use headwater_shell::{date_of_header, instant_text};
use headwater_types::Timestamp;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Longest time for the answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest head of the answer, in bytes.
const HEAD_MAX: u64 = 8 << 10;
/// Time before the same node is asked again: it costs some kilobytes.
const AGAIN: Duration = Duration::from_secs(3_600);

/// A node that is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedNode<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// Host, and the port unless it is the usual one.
    pub(crate) authority: &'a str,
}

/// The last answer, and when it came.
#[derive(Debug, Default)]
pub(crate) struct OtherClock(Mutex<Option<(Duration, String)>>);

/// Accepts each certificate.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The header `Date` of the head of an answer, as an instant.
fn date(head: &str) -> Option<Timestamp> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    date_of_header(value)
}

async fn ask(address: AskedNode<'_>, bytes: &Arc<SocketBytes>) -> Option<Timestamp> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Unverified(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let name = ServerName::try_from(address.host.to_owned()).ok()?;
    let tcp = TcpStream::connect((address.host, address.port))
        .await
        .ok()?;
    let tcp = Counted::new(tcp, Arc::clone(bytes));
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await.ok()?;
    let request = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        address.authority
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut head = Vec::new();
    // A node that closes without a farewell has answered, too.
    let _ = stream.take(HEAD_MAX).read_to_end(&mut head).await;
    let head = String::from_utf8_lossy(&head);
    let end = head.find("\r\n\r\n").unwrap_or(head.len());
    date(head.get(..end)?)
}

impl OtherClock {
    /// The clock of a node in words; `now` is the time by the monotonic clock, and `clock` the
    /// clock here.
    pub(crate) async fn told(
        &self,
        address: AskedNode<'_>,
        bytes: &Arc<SocketBytes>,
        (now, clock): (Duration, &str),
    ) -> String {
        if let Some((at, text)) = &*self.0.lock()
            && now.saturating_sub(*at) < AGAIN
        {
            return text.clone();
        }
        let asked = timeout(ANSWER_MAX, ask(address, bytes)).await;
        let text = match asked.ok().flatten() {
            Some(at) => format!(
                "the clock there said {} (not verified) when the one here said {clock}",
                instant_text(at),
            ),
            None => "the clock there is not known".to_owned(),
        };
        *self.0.lock() = Some((now, text.clone()));
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_its_clock() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nDate: Tue, 01 Dec 2026 00:00:00 GMT";
        let at = date(head).unwrap();
        assert_eq!(at.as_nanos(), 1_796_083_200_000_000_000);
        for none in ["", "HTTP/1.1 200 OK", "date: soon", "date:\u{1b}[2J"] {
            assert_eq!(date(none), None);
        }
    }
}
