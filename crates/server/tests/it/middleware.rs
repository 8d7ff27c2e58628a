//! What every answer has, whatever its route: ids, headers, the form of errors, who may come in.

use crate::support::{Running, client, json};
use headwater_server::rules::AccessRule;
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::until;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn every_answer_has_an_id_a_version_and_security_headers() {
    let server = Running::start();
    let client = client();
    for path in ["/health", "/nowhere", "/metrics"] {
        let answer = client.get(server.url(path)).call().unwrap();
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-headwater-version"), env!("CARGO_PKG_VERSION"));
        assert!(header("x-request-id").len() > 8);
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert!(header("content-security-policy").starts_with("default-src 'self'"));
    }
    let ids = ["abc-1.2_3", "bad id", &"x".repeat(65)].map(|id| {
        let answer = client
            .get(server.url("/ping"))
            .header("X-Request-Id", id)
            .call()
            .unwrap();
        answer.headers()["x-request-id"].to_str().unwrap() == id
    });
    assert_eq!(ids, [true, false, false]);
}

#[test]
fn paths_and_methods_that_are_not_there_are_errors_in_the_usual_form() {
    let server = Running::start();
    let client = client();
    let mut nowhere = client.get(server.url("/nowhere")).call().unwrap();
    assert_eq!(nowhere.status(), 404);
    assert_eq!(json(&mut nowhere)["code"], "E_NO_ROUTE");
    let mut method = client.post(server.url("/health")).send_empty().unwrap();
    assert_eq!(method.status(), 405);
    assert_eq!(method.headers()["allow"], "GET,HEAD");
    assert_eq!(json(&mut method)["code"], "E_METHOD");
}

#[test]
fn pages_of_origins_on_the_list_may_ask_and_read_and_no_others() {
    let server = Running::start_with(|s| s.cors_origins = vec!["https://board.example".to_owned()]);
    let client = client();
    let origin = "https://board.example";
    let ask = |origin: &str| {
        let answer = client.get(server.url("/api/v1/streams"));
        answer.header("Origin", origin).call().unwrap()
    };
    let welcome = ask(origin);
    assert_eq!(welcome.status(), 200);
    assert_eq!(welcome.headers()["access-control-allow-origin"], origin);
    assert_eq!(welcome.headers()["vary"], "origin");
    let stranger = ask("https://other.example");
    assert_eq!(stranger.status(), 403);
    assert!(
        !stranger
            .headers()
            .contains_key("access-control-allow-origin")
    );
    let preflight = |origin: &str| {
        let request = ureq::http::Request::builder()
            .method("OPTIONS")
            .uri(server.url("/write"))
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "authorization")
            .body(())
            .unwrap();
        client.run(request).unwrap()
    };
    let told = preflight(origin);
    assert_eq!(told.status(), 204);
    assert_eq!(told.headers()["access-control-allow-origin"], origin);
    let allowed = told.headers()["access-control-allow-headers"]
        .to_str()
        .unwrap();
    assert!(allowed.contains("authorization"), "{allowed}");
    let refused = preflight("https://other.example");
    assert_eq!(refused.status(), 403);
    assert!(
        !refused
            .headers()
            .contains_key("access-control-allow-origin")
    );
}

#[test]
fn long_answers_are_packed_for_who_takes_it() {
    let server = Running::start();
    let client = client();
    let mut lines = String::new();
    for second in 0..2_000 {
        lines.push_str(&format!(
            "pump,id=p1 pressure={second}.5 {}\n",
            1_700_000_000 + second
        ));
    }
    let written = client
        .post(server.url("/write?precision=s"))
        .send(lines.as_str());
    assert_eq!(written.unwrap().status(), 204);
    for (path, is_packed) in [
        ("/api/v1/export?table=pump", true),
        ("/api/v1/scan?stream=pump,id=p1", true),
        ("/api/v1/streams", false),
        ("/api/openapi.json", true),
    ] {
        let plain = client.get(server.url(path)).call().unwrap();
        assert!(!plain.headers().contains_key("content-encoding"), "{path}");
        let plain = plain.into_body().read_to_vec().unwrap();
        let answer = client.get(server.url(path));
        let answer = answer.header("Accept-Encoding", "gzip").call().unwrap();
        let encoding = answer.headers().get("content-encoding");
        assert_eq!(encoding.is_some_and(|e| e == "gzip"), is_packed, "{path}");
        let mut bytes = answer.into_body().read_to_vec().unwrap();
        if is_packed {
            let mut unpacked = Vec::new();
            let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
            decoder.read_to_end(&mut unpacked).unwrap();
            assert!(bytes.len() * 2 < unpacked.len(), "{path}: {}", bytes.len());
            bytes = unpacked;
        }
        assert!(
            bytes == plain,
            "{path}: {} and {} bytes",
            bytes.len(),
            plain.len()
        );
    }
}

#[test]
fn a_server_that_is_read_only_answers_and_lets_nobody_change_anything() {
    let server = Running::start_with(|settings| {
        let db = headwater::Database::open(settings.engine.clone()).unwrap();
        let mut batch = headwater::Batch::new();
        let name = headwater::StreamName::new("pump", [("id", "p1")]);
        batch.stream(&name).row(1, [("rpm", 1.5.into())]).unwrap();
        db.commit(batch).unwrap();
        db.close().unwrap();
        settings.read_only = true;
    });
    let client = client();
    let count = || {
        let mut answer = client
            .get(server.url("/api/v1/count?table=pump"))
            .call()
            .unwrap();
        assert_eq!(answer.status(), 200);
        answer.body_mut().read_to_string().unwrap()
    };
    let before = count();
    for (path, body) in [
        ("/write", "pump,id=p1 rpm=2 5"),
        ("/api/v2/write", "pump,id=p1 rpm=2 5"),
        (
            "/api/v1/manage",
            "{\"op\":\"drop_table\",\"table\":\"pump\"}",
        ),
        (
            "/api/put",
            "{\"metric\":\"m\",\"timestamp\":1,\"value\":1,\"tags\":{\"a\":\"b\"}}",
        ),
    ] {
        let mut answer = client.post(server.url(path)).send(body).unwrap();
        assert_eq!(answer.status(), 403, "{path}");
        assert_eq!(json(&mut answer)["code"], "E_READ_ONLY", "{path}");
    }
    #[cfg(feature = "sql")]
    for statement in [
        "DELETE FROM pump",
        "DROP TABLE pump",
        "CREATE TABLE t (time TIMESTAMP, v DOUBLE)",
        "INSERT INTO pump (time, id, rpm) VALUES (now(), 'p1', 2)",
    ] {
        let answer = client.post(server.url("/api/v1/sql")).send(statement);
        assert_eq!(answer.unwrap().status(), 403, "{statement}");
    }
    assert_eq!(count(), before);
}

#[test]
fn devices_of_influxdb_1_may_send_their_token_in_the_address_of_what_they_ask() {
    let mut token = String::new();
    let server = Running::start_with(|settings| {
        let rules = ["write *", "read *"].map(|rule| rule.parse::<AccessRule>().unwrap());
        let new = NewToken {
            name: "gauge".to_owned(),
            expires: None,
            rules: rules.into(),
        };
        token = TokenFile::of_database(settings.db()).create(new).unwrap();
    });
    let client = client();
    let write = |path: &str| {
        let answer = client.post(server.url(path)).send("pump,id=p1 rpm=2 5");
        answer.unwrap().status().as_u16()
    };
    assert_eq!(write(&format!("/write?db=x&u=any&p={token}")), 204);
    assert_eq!(write("/write?db=x&u=any&p=hw_wrong"), 401);
    assert_eq!(write("/write?db=x&u=any"), 401);
    // Elsewhere an address is not where tokens are.
    let ask = |path: &str| {
        let answer = client.get(server.url(path)).call();
        answer.unwrap().status().as_u16()
    };
    assert_eq!(
        ask(&format!("/query?q=SHOW+MEASUREMENTS&u=a&p={token}")),
        200
    );
    assert_eq!(ask(&format!("/api/v1/streams?p={token}")), 401);
}

#[test]
fn without_tokens_only_this_machine_comes_in() {
    let server = Running::start_with(|s| s.hosts = vec!["gateway.local".to_owned()]);
    let client = client();
    for (header, value, code) in [
        ("Host", "example.org", Some("E_HOST")),
        ("Host", "gateway.local:7373", None),
        ("Origin", "http://example.org", Some("E_ORIGIN")),
    ] {
        for path in ["/metrics", "/health", "/nowhere"] {
            let mut answer = client
                .get(server.url(path))
                .header(header, value)
                .call()
                .unwrap();
            match code {
                Some(code) => {
                    assert_eq!(answer.status(), 403, "{path} {value}");
                    assert_eq!(json(&mut answer)["code"], code);
                }
                None => assert_ne!(answer.status(), 403, "{path} {value}"),
            }
        }
    }
}

#[test]
fn a_first_token_closes_a_running_server_and_a_revoked_one_ends() {
    let server = Running::start();
    let client = client();
    let metrics = |token: Option<&str>| {
        let mut request = client.get(server.url("/metrics"));
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().unwrap().status().as_u16()
    };
    assert_eq!(metrics(None), 200);
    let file = TokenFile::of_database(server.db());
    let token = file
        .create(NewToken {
            name: "scraper".to_owned(),
            rules: Vec::<AccessRule>::new(),
            expires: None,
        })
        .unwrap();
    until("the token is asked for", || metrics(None) == 401);
    assert_eq!(metrics(Some(&token)), 200);
    assert_eq!(metrics(Some("hw_0000")), 401);
    // Health needs none; and any name may be used now.
    let health = client
        .get(server.url("/health"))
        .header("Host", "example.org");
    assert_eq!(health.call().unwrap().status(), 200);
    file.revoke("scraper").unwrap();
    until("the token is no longer taken", || {
        metrics(Some(&token)) == 401
    });
    assert_eq!(metrics(None), 401);
}

#[test]
fn metrics_tell_requests_sizes_and_the_process() {
    let server = Running::start();
    let client = client();
    client.get(server.url("/health")).call().unwrap();
    client.get(server.url("/nowhere")).call().unwrap();
    let figures = |accept: Option<&str>| {
        let mut request = client.get(server.url("/metrics"));
        if let Some(accept) = accept {
            request = request.header("Accept", accept);
        }
        let mut answer = request.call().unwrap();
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (kind, answer.body_mut().read_to_string().unwrap())
    };
    let prometheus =
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let (kind, text) = figures(Some(prometheus));
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    for line in [
        "headwater_http_requests_total{route=\"/health\",method=\"GET\",status=\"200\"} 1",
        "headwater_http_requests_total{route=\"other\",method=\"\",status=\"404\"} 1",
        "headwater_events 0",
        "headwater_physical_written_bytes_total{kind=\"log\"}",
        "headwater_write_amplification_ratio",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "headwater_build_info{version=",
        "# EOF",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    // Readers of the older format fail at a type they do not know, and find counters by the names
    // of their samples.
    for accept in [None, Some("*/*"), Some("text/plain;version=0.0.4")] {
        let (kind, text) = figures(accept);
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        assert!(text.contains("\n# TYPE headwater_http_requests_total counter\n"));
        assert!(text.contains("\nheadwater_build_info{version="));
        let types = ["counter", "gauge", "histogram", "summary", "untyped"];
        for line in text.lines().filter(|l| l.starts_with('#')) {
            let known = line.starts_with("# HELP ")
                || line
                    .strip_prefix("# TYPE ")
                    .is_some_and(|l| types.iter().any(|t| l.ends_with(t)));
            assert!(known, "{line}");
        }
    }
}

/// All that comes back for these bytes until the server closes the connection.
fn exchanged(server: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.addr).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // An end that is not in order is one too: bytes may be left that nobody has read.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_request_without_one_host_is_answered_400_with_tokens_and_without() {
    let open = Running::start();
    let locked = Running::start();
    let file = TokenFile::of_database(locked.db());
    let token = file
        .create(NewToken {
            name: "reader".to_owned(),
            rules: vec!["read *".parse().unwrap()],
            expires: None,
        })
        .unwrap();
    let client = client();
    until("the token is asked for", || {
        let answer = client.get(locked.url("/metrics")).call().unwrap();
        answer.status() == 401
    });
    let bearer = format!("Authorization: Bearer {token}\r\n");
    for (server, token) in [(&open, ""), (&locked, bearer.as_str())] {
        for path in ["/ping", "/metrics", "/api/v1/streams", "/nowhere"] {
            let status = |version: &str, hosts: &str| {
                let request =
                    format!("GET {path} {version}\r\n{hosts}{token}Connection: close\r\n\r\n");
                let answer = exchanged(server, request.as_bytes());
                let code = answer.split(' ').nth(1).unwrap_or_default().to_owned();
                (code, answer)
            };
            for hosts in [
                "",
                "Host: localhost\r\nHost: localhost\r\n",
                "Host: localhost\r\nHost: elsewhere.example\r\n",
                "Host: a b\r\n",
                "Host:\r\n",
            ] {
                let (code, answer) = status("HTTP/1.1", hosts);
                assert_eq!(code, "400", "{path} with {hosts:?}: {answer}");
                assert!(answer.contains("\"E_HOST\""), "{answer}");
            }
            let (code, answer) = status("HTTP/1.1", "Host: localhost\r\n");
            assert!(["200", "204", "404"].contains(&&*code), "{path}: {answer}");
            if !token.is_empty() {
                let (code, answer) = status("HTTP/1.0", "");
                assert!(["200", "204", "404"].contains(&&*code), "{path}: {answer}");
            }
        }
    }
}

#[test]
fn what_is_no_request_is_answered_too() {
    let server = Running::start();
    let get = |rest: &str| format!("GET /ping{rest}\r\n\r\n");
    let host = "Host: 127.0.0.1";
    for (request, status) in [
        ("GARBAGE\r\n\r\n".to_owned(), "400"),
        (get(&format!(" HTTP/1.1\r\n{host}\r\nno header")), "400"),
        (
            get(&format!("?{} HTTP/1.1\r\n{host}", "a".repeat(70_000))),
            "414",
        ),
        (
            get(&format!(" HTTP/1.1\r\n{host}{}", "\r\na: b".repeat(200))),
            "431",
        ),
    ] {
        let answer = exchanged(&server, request.as_bytes());
        let shown = answer.get(..60).unwrap_or(&answer);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{shown}"
        );
    }
    // What was asked before it is answered.
    let both = get(&format!(" HTTP/1.1\r\n{host}")) + "GARBAGE\r\n\r\n";
    let answer = exchanged(&server, both.as_bytes());
    assert!(
        answer.starts_with("HTTP/1.1 204 ") && answer.contains("HTTP/1.1 400 "),
        "{answer}"
    );
}

#[test]
fn a_connection_goes_on_after_a_refused_request_whose_body_comes_late() {
    let server = Running::start();
    let address = server.url("").trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    for path in ["/nothing", "/api/v1/manage?unknown=1"] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 5\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(b"hello").unwrap();
        let answer = answer_of(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let health = format!("GET /health HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(health.as_bytes()).unwrap();
    let answer = answer_of(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// An answer with a length, head and body.
fn answer_of(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "the connection ended");
        answer.push(byte[0]);
    }
    let mut answer = String::from_utf8(answer).unwrap();
    let length = answer
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    answer.push_str(&String::from_utf8_lossy(&body));
    answer
}
