//! TLS: requests under it, a certificate that changes while the server runs, and starts that are
//! refused.

use crate::support::{Running, client, json as json_of};
use crate::sync::joined;
use headwater_server::settings::NodeRole;
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_server::{Server, Settings};
use headwater_testing::until;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
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

/// A connection that trusts one certificate.
async fn connect(
    addr: SocketAddr,
    trusted: &CertificateDer<'static>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, std::io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await
}

/// Asks `/health` over TLS, trusting one certificate; the text of the answer.
fn health(addr: SocketAddr, trusted: &CertificateDer<'static>) -> Result<String, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut stream = connect(addr, trusted).await?;
        let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    })
}

/// A connection with one request of several.
struct Kept {
    runtime: tokio::runtime::Runtime,
    stream: tokio_rustls::client::TlsStream<TcpStream>,
}

impl Kept {
    fn open(addr: SocketAddr, trusted: &CertificateDer<'static>) -> Kept {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let stream = runtime.block_on(connect(addr, trusted)).unwrap();
        Kept { runtime, stream }
    }

    /// Asks once more over the same connection.
    fn ask(&mut self) -> String {
        self.runtime.block_on(async {
            let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
            self.stream.write_all(request).await.unwrap();
            let mut piece = [0; 4096];
            let count = self.stream.read(&mut piece).await.unwrap();
            String::from_utf8_lossy(&piece[..count]).into_owned()
        })
    }
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
    let mut kept = Kept::open(server.addr, &first);
    assert!(kept.ask().starts_with("HTTP/1.1 200"));

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
    // A connection that was open is not closed for it.
    assert!(kept.ask().starts_with("HTTP/1.1 200"));
}

/// The metric of the expiry, in days.
fn days_left(server: &Running, trusted: &CertificateDer<'static>) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let text = runtime.block_on(async {
        let mut stream = connect(server.addr, trusted).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    });
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("headwater_certificate_expiry_seconds "));
    let seconds: f64 = line.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    (seconds / 86_400.0).floor() as i64
}

#[test]
fn the_expiry_of_the_certificate_in_force_is_a_metric() {
    let files = files();
    let made = |days: i64| {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let now = rcgen::date_time_ymd(1970, 1, 1)
            + std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap();
        params.not_before = now - Duration::from_secs(86_400);
        params.not_after = now + Duration::from_secs(86_400 * days.unsigned_abs() + 3_600);
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        std::fs::write(&files.cert, cert.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        cert.der().clone()
    };
    let first = made(40);
    let server = Running::start_with(|settings| {
        settings.tls_cert = Some(files.cert.clone());
        settings.tls_key = Some(files.key.clone());
    });
    assert_eq!(days_left(&server, &first), 40);
    let second = made(400);
    let begun = Instant::now();
    while health(server.addr, &second).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(days_left(&server, &second), 400);
}

/// Sends a body to a path over TLS; the body of the answer.
fn post(server: &Running, trusted: &CertificateDer<'static>, path: &str, body: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let text = runtime.block_on(async {
        let mut stream = connect(server.addr, trusted).await.unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    });
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{text}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn edges_are_told_the_next_certificate_of_their_cloud_and_its_changes() {
    let files = files();
    let first = certify(&files.cert, &files.key);
    let next = files.cert.with_file_name("next.pem");
    let next_key = files.cert.with_file_name("next-key.pem");
    certify(&next, &next_key);
    let cloud = Running::start_with(|s| {
        s.sync.role = NodeRole::Cloud;
        s.tls_cert = Some(files.cert.clone());
        s.tls_key = Some(files.key.clone());
        s.tls_next_ca = Some(next.clone());
    });
    let asked = json!({
        "op": "add_edge", "edge": "e",
        "url": format!("https://localhost:{}", cloud.addr.port()),
        "ca": std::fs::read_to_string(&files.cert).unwrap(),
    });
    let answer = post(&cloud, &first, "/api/v1/sync", &asked.to_string());
    let dir = tempfile::tempdir().unwrap();
    let invitation = answer["invitation"].as_str().unwrap();
    joined(&dir.path().join("db"), invitation, false).unwrap();
    let edge = Running::start_in(dir, |s| s.sync.role = NodeRole::Edge);
    let stored = || {
        let text = std::fs::read_to_string(edge.db().join("uplink.json")).unwrap();
        text.matches("BEGIN CERTIFICATE").count()
    };
    until("the edge has both", || stored() == 2);
    std::fs::write(&next, "this is no certificate").unwrap();
    std::thread::sleep(Duration::from_millis(1_200));
    certify(&next, &next_key);
    until("the edge has the changed one, too", || stored() == 3);
    // It is used, and the edge stays or comes again.
    std::fs::copy(&next, &files.cert).unwrap();
    std::fs::copy(&next_key, &files.key).unwrap();
    let edge = edge.restarted(|s| s.sync.role = NodeRole::Edge);
    until("the edge is connected", || {
        let mut answer = client().get(edge.url("/api/v1/sync")).call().unwrap();
        json_of(&mut answer)["cloud"]["state"] == "connected"
    });
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
