//! TLS: requests under it, a certificate that changes while the server runs, and starts that are
//! refused.

use crate::support::Running;
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_server::{Server, Settings};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Writes a new certificate for localhost, and returns it.
fn certify(cert: &Path, key: &Path) -> CertificateDer<'static> {
    let CertifiedKey {
        cert: made,
        signing_key,
    } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(cert, made.pem()).unwrap();
    std::fs::write(key, signing_key.serialize_pem()).unwrap();
    made.der().clone()
}

/// Asks `/health` over TLS, trusting one certificate; the text of the answer.
fn health(addr: SocketAddr, trusted: &CertificateDer<'static>) -> Result<String, std::io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stream = TcpStream::connect(addr).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    })
}

struct Files {
    _dir: tempfile::TempDir,
    cert: PathBuf,
    key: PathBuf,
}

fn files() -> Files {
    let dir = tempfile::tempdir().unwrap();
    Files {
        cert: dir.path().join("cert.pem"),
        key: dir.path().join("key.pem"),
        _dir: dir,
    }
}

#[test]
fn requests_go_over_tls_and_a_new_certificate_is_taken_while_running() {
    let files = files();
    let first = certify(&files.cert, &files.key);
    let server = Running::start_with(|settings| {
        settings.tls_cert = Some(files.cert.clone());
        settings.tls_key = Some(files.key.clone());
    });
    let text = health(server.addr, &first).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("strict-transport-security"), "{text}");

    // A certificate and a key that do not fit are read between the two writes, or not: either way
    // the server goes on.
    std::fs::write(&files.cert, "this is no certificate").unwrap();
    std::thread::sleep(Duration::from_millis(600));
    assert!(health(server.addr, &first).is_ok());

    let second = certify(&files.cert, &files.key);
    let begun = Instant::now();
    while health(server.addr, &second).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(health(server.addr, &first).is_err());
}

/// Why a server with these settings does not start.
fn refused(settings: Settings) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(Server::start(settings))
        .map(|server| server.url())
        .unwrap_err()
        .to_string()
}

#[test]
fn others_are_served_only_with_tokens_and_tls_or_in_so_many_words() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(dir.path().join("db"));
    settings.http_addr = "0.0.0.0:0".parse().unwrap();
    let text = refused(settings.clone());
    assert!(
        text.contains("--allow-open") && text.contains("token create"),
        "{text}"
    );

    let token = NewToken {
        name: "a".to_owned(),
        rules: Vec::new(),
        expires: None,
    };
    TokenFile::of_database(settings.db()).create(token).unwrap();
    let text = refused(settings.clone());
    assert!(
        text.contains("--allow-plaintext") && text.contains("tls.cert"),
        "{text}"
    );
    // Tokens are not given up by words that are about there being none.
    settings.allow_open = true;
    assert!(refused(settings).contains("--allow-plaintext"));
}

#[test]
fn certificates_that_cannot_be_used_are_told_by_name() {
    let files = files();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(dir.path().join("db"));
    settings.http_addr.set_port(0);
    settings.tls_cert = Some(files.cert.clone());
    settings.tls_key = Some(files.key.clone());
    assert!(refused(settings.clone()).contains("cert.pem"));
    certify(&files.cert, &files.key);
    std::fs::write(&files.key, "").unwrap();
    assert!(refused(settings.clone()).contains("key.pem"));
    let other = files.cert.with_file_name("other.pem");
    certify(&other, &files.key);
    // The key of another certificate.
    assert!(refused(settings).contains("key.pem"));
}
