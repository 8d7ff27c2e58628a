//! While it serves: access, limits, metrics, names, TLS, a door and a worker.

use crate::support::{Running, client, code, token};
use headwater_io::Env;
use headwater_shell::access::tokens::TokenFile;
use headwater_shell::{Listener, ShellSettings, StartError};
use headwater_testing::until;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

#[test]
fn routes_worker_door_readiness_and_metrics_of_a_role_are_served() {
    let server = Running::start(|_, _| {});
    let (status, body) = server.get("/ready", None);
    assert_eq!((status, code(&body).as_str()), (503, "E_EMPTY"));
    for number in ["3", "4"] {
        assert_eq!(server.post("/add", None, number).0, 200);
    }
    until("the worker added both", || server.tally.added.get() == 2);
    assert_eq!(server.get("/sum", None), (200, "7".to_owned()));
    let (status, body) = server.get("/ready", None);
    let ready: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &ready["added"]), (200, &Value::from(2)));
    assert_eq!(server.get("/health", None).0, 200);

    let mut told = String::new();
    let mut door = std::net::TcpStream::connect(server.listener_addr).unwrap();
    door.read_to_string(&mut told).unwrap();
    assert_eq!(told, "7\n");

    let (_, text) = server.get("/metrics", None);
    for part in [
        "headwater_added_total 2",
        "headwater_http_requests_total{route=\"/add\",method=\"POST\",status=\"200\"} 2",
        "headwater_http_request_seconds_count{route=\"/sum\"} 1",
        "process_start_time_seconds",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let (status, body) = server.post("/add", None, "x");
    assert_eq!((status, code(&body).as_str()), (400, "E_NUMBER"));
    let (status, body) = server.get("/nowhere", None);
    assert_eq!((status, code(&body).as_str()), (404, "E_NO_ROUTE"));
}

#[test]
fn tokens_say_who_may_use_the_routes_of_a_role() {
    let mut made = None;
    let server = Running::start(|_, tokens| {
        let reads = token(tokens, "reads", &["read *"]);
        made = Some((reads, token(tokens, "writes", &["write *"])));
    });
    let (reads, writes) = made.unwrap();
    for (path, token, status) in [
        ("/health", None, 200),
        ("/sum", None, 401),
        ("/sum", Some("hw_wrong"), 401),
        ("/sum", Some(&*reads), 200),
        ("/sum", Some(&*writes), 403),
        ("/metrics", Some(&*writes), 200),
    ] {
        assert_eq!(server.get(path, token).0, status, "{path} {token:?}");
    }
    assert_eq!(server.post("/add", Some(&reads), "1").0, 403);
    assert_eq!(server.post("/add", Some(&writes), "1").0, 200);
    server.tokens().revoke("reads").unwrap();
    until("a revoked token ends", || {
        server.get("/sum", Some(&reads)).0 == 401
    });
}

#[test]
fn no_more_requests_than_may_be_are_worked_on_and_a_panic_costs_its_own_only() {
    let server = Running::start(|settings, _| settings.requests_max = 1);
    let (status, body) = server.get("/panic", None);
    assert_eq!((status, code(&body).as_str()), (500, "E_INTERNAL"));
    let waiting = {
        let url = format!("http://{}/wait", server.addr);
        std::thread::spawn(move || client().get(url).call().unwrap().status().as_u16())
    };
    until("the only permit is taken", || {
        server.tally.waits.load(Ordering::SeqCst)
    });
    let (status, body) = server.get("/sum", None);
    assert_eq!((status, code(&body).as_str()), (503, "E_REQUESTS"));
    assert_eq!(server.get("/health", None).0, 200);
    server.tally.go_on.notify_waiters();
    assert_eq!(waiting.join().unwrap(), 200);
    assert_eq!(server.get("/sum", None).0, 200);
}

#[test]
fn a_door_that_panics_costs_itself_only() {
    let server = Running::start(|_, _| {});
    server.tally.listener_panics.store(true, Ordering::SeqCst);
    let mut told = String::new();
    let mut door = std::net::TcpStream::connect(server.listener_addr).unwrap();
    // It ends without a word, or is cut off.
    let _ = door.read_to_string(&mut told);
    assert_eq!(told, "");
    until("the door is closed", || {
        std::net::TcpStream::connect(server.listener_addr).is_err()
    });
    assert_eq!(server.post("/add", None, "5").0, 200);
    until("the worker goes on", || server.tally.added.get() == 1);
    assert_eq!(server.get("/sum", None), (200, "5".to_owned()));
    assert_eq!(server.stopped(), Ok(()));
}

#[test]
fn without_tokens_only_names_of_this_machine_come_in() {
    let server = Running::start(|_, _| {});
    let url = format!("http://{}/sum", server.addr);
    let mut answer = client()
        .get(url)
        .header("Host", "example.org")
        .call()
        .unwrap();
    let body = answer.body_mut().read_to_string().unwrap();
    assert_eq!(
        (answer.status().as_u16(), code(&body).as_str()),
        (403, "E_HOST")
    );
}

#[test]
fn addresses_that_others_reach_need_tokens_and_tls_the_doors_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = TokenFile::of_database(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let all = "0.0.0.0:0".parse().unwrap();
    let bind = |doors: &[_], http| {
        let settings = ShellSettings {
            http_addr: http,
            ..ShellSettings::default()
        };
        runtime.block_on(Listener::bind(settings, Env::system(), file.clone(), doors))
    };
    let near = ShellSettings::default().http_addr;
    assert!(matches!(bind(&[], all), Err(StartError::Open(_))));
    assert!(matches!(bind(&[all], near), Err(StartError::Open(_))));
    assert!(bind(&[], near).is_ok());
    token(&file, "a", &["read *"]);
    assert!(matches!(bind(&[], all), Err(StartError::Plaintext(_))));
    assert!(matches!(bind(&[all], near), Err(StartError::Plaintext(_))));
}

#[test]
fn a_role_is_served_over_tls() {
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    let CertifiedKey {
        cert: made,
        signing_key,
    } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&cert, made.pem()).unwrap();
    std::fs::write(&key, signing_key.serialize_pem()).unwrap();
    let server = Running::start(|settings, _| {
        settings.tls_cert = Some(cert);
        settings.tls_key = Some(key);
    });
    let mut roots = RootCertStore::empty();
    roots.add(made.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let text = runtime.block_on(async {
        let stream = TcpStream::connect(server.addr).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = b"GET /sum HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    });
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("strict-transport-security"), "{text}");
    assert!(text.ends_with('0'), "{text}");
}
