//! Remote write: what is stored and what is refused, and the real Prometheus, which scrapes this
//! server and writes to it.

use crate::support::{Running, client, json};
use headwater::{StreamName, Value};
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::{installed, or_skip};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A field of a message: its number, and bytes with their length in front.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
    out
}

/// A series with one sample.
pub(crate) fn series(labels: &[(&str, &str)], value: f64, time_ms: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        let label = [field(1, name.as_bytes()), field(2, value.as_bytes())].concat();
        out.extend(field(1, &label));
    }
    let mut sample = vec![9];
    sample.extend(value.to_le_bytes());
    sample.push(16);
    let mut rest = time_ms;
    while rest > 0x7f {
        sample.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    sample.push(rest as u8);
    out.extend(field(2, &sample));
    field(1, &out)
}

pub(crate) fn packed(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

/// Status and body of the answer to a message.
fn send(server: &Running, body: &[u8], headers: &[(&str, &str)]) -> (u16, serde_json::Value) {
    let mut request = client().post(server.url("/api/v1/prom/write"));
    let usual = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ];
    for (name, value) in usual {
        if !headers.iter().any(|(other, _)| *other == name) {
            request = request.header(name, value);
        }
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    let mut answer = request.send(body).unwrap();
    let status = answer.status().as_u16();
    match status {
        204 => (status, serde_json::Value::Null),
        _ => (status, json(&mut answer)),
    }
}

#[test]
fn a_marker_of_staleness_is_a_row_that_no_aggregate_knows() {
    let server = Running::start();
    let up = [("__name__", "up"), ("job", "a")];
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    for (value, time) in [(1.0, 1_000), (3.0, 2_000), (stale, 3_000), (2.0, 9_000)] {
        let (status, answer) = send(&server, &packed(&series(&up, value, time)), &[]);
        assert_eq!(status, 204, "{answer}");
    }
    let sql = |statement: &str| {
        let asked = client().post(server.url("/api/v1/sql"));
        json(&mut asked.send(statement).unwrap())["rows"].clone()
    };
    assert_eq!(
        sql("SELECT avg(value), count(value), count(*), max(value) FROM up"),
        serde_json::json!([[2.0, 3, 4, 3.0]])
    );
    assert_eq!(
        sql("SELECT avg(value + 0), count(value + 0) FROM up WHERE job = 'a'"),
        serde_json::json!([[2.0, 3]])
    );
    assert_eq!(
        sql("SELECT time, value FROM up WHERE value IS NULL"),
        serde_json::json!([["1970-01-01T00:00:03Z", null]])
    );
}

#[test]
fn samples_are_stored_also_out_of_order() {
    let server = Running::start();
    let up = [("__name__", "up"), ("job", "a"), ("instance", "x:1")];
    for (value, time) in [
        (1.0, 2_000_000_000),
        (0.0, 1_000_000_000),
        (2.0, 2_000_000_000),
    ] {
        let (status, answer) = send(&server, &packed(&series(&up, value, time)), &[]);
        assert_eq!(status, 204, "{answer}");
    }
    // Metadata alone is nothing to store.
    assert_eq!(send(&server, &packed(&field(3, b"\x08\x01")), &[]).0, 204);
    assert_eq!(send(&server, &packed(b""), &[]).0, 204);
    let named = [(
        "content-type",
        "application/x-protobuf;proto=prometheus.WriteRequest",
    )];
    assert_eq!(send(&server, &packed(b""), &named).0, 204);
    let url = server.url("/api/v1/scan?stream=up,instance=x:1,job=a");
    let rows = json(&mut client().get(url).call().unwrap());
    let expected = serde_json::json!(["1000000000000000", "2000000000000000"]);
    assert_eq!(
        (&rows["time"], &rows["fields"]["value"]),
        (&expected, &serde_json::json!([0.0, 2.0]))
    );
}

#[test]
fn what_is_wrong_is_told_so_that_it_is_not_sent_again() {
    let server = Running::start_with(|s| s.body_max = 4096);
    let good = series(&[("__name__", "up")], 1.0, 1_000_000);
    let unnamed = series(&[("job", "a")], 1.0, 1_000_000);
    let both = [good.clone(), unnamed.clone()].concat();
    let (status, answer) = send(&server, &packed(&both), &[]);
    assert_eq!((status, &answer["code"]), (400, &"E_PARTIAL".into()));
    assert_eq!(answer["written"], 1);
    assert_eq!(answer["lines"][0]["line"], 2);
    // Refused by the database, not by the form of the message.
    let far = series(
        &[("__name__", "up"), ("job", &"x".repeat(5_000)[..])],
        1.0,
        1_000_000,
    );
    let server_of_more = Running::start();
    let (status, answer) = send(&server_of_more, &packed(&[good.clone(), far].concat()), &[]);
    assert_eq!((status, &answer["code"]), (400, &"E_PARTIAL".into()));
    let refused = &answer["lines"][0];
    assert_eq!(
        (&refused["line"], &refused["code"], &refused["original"]),
        (&2.into(), &"E_NAME".into(), &"up".into())
    );
    let large = packed(&vec![0; 5000]);
    for (body, headers, expected) in [
        (packed(&unnamed), &[][..], (400, "E_REFUSED")),
        (good.clone(), &[], (400, "E_ENCODING")),
        (packed(b"not a message"), &[], (400, "E_PARSE")),
        (large, &[], (413, "E_LIMIT_BODY")),
        (
            packed(&good),
            &[("content-encoding", "")],
            (415, "E_ENCODING"),
        ),
        (
            packed(&good),
            &[("content-encoding", "gzip")],
            (415, "E_ENCODING"),
        ),
        (
            packed(&good),
            &[(
                "content-type",
                "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            )],
            (415, "E_ENCODING"),
        ),
    ] {
        let (status, answer) = send(&server, &body, headers);
        assert_eq!(
            (status, answer["code"].as_str().unwrap()),
            expected,
            "{answer}"
        );
    }
    // A table whose field is of another type.
    let line = client()
        .post(server.url("/write"))
        .send("texts value=\"a\"")
        .unwrap();
    assert_eq!(line.status(), 204);
    let clash = series(&[("__name__", "texts")], 1.0, 1_000_000);
    let (status, answer) = send(&server, &packed(&clash), &[]);
    assert_eq!(
        (status, answer["rejected_by_code"]["E_TYPE"].as_u64()),
        (422, Some(1))
    );
    // Where there is no room the answer is 503, after which it is sent again, and not 429.
    let full = Running::start_with(|s| {
        s.body_max = 1024;
        s.write_bytes_max = 1024;
    });
    let (status, answer) = send(&full, &packed(&series(&[("__name__", "up")], 1.0, 1)), &[]);
    assert_eq!((status, &answer["code"]), (503, &"E_BUSY".into()));
}

#[test]
fn series_that_may_not_be_written_are_refused_alone() {
    let mut made = None;
    let server = Running::start_with(|settings| {
        let new = NewToken {
            name: "seen".to_owned(),
            rules: vec!["write up,job=seen".parse().unwrap()],
            expires: None,
        };
        made = Some(TokenFile::of_database(settings.db()).create(new).unwrap());
    });
    let bearer = format!("Bearer {}", made.unwrap());
    let token = [("authorization", bearer.as_str())];
    let of = |job: &str| series(&[("__name__", "up"), ("job", job)], 1.0, 1_000_000);
    let write = |message: Vec<u8>, headers: &[(&str, &str)]| {
        let (status, answer) = send(&server, &packed(&message), headers);
        (status, answer["rejected_by_code"]["E_ACCESS"].as_u64())
    };
    assert_eq!(write(of("seen"), &[]).0, 401);
    assert_eq!(write(of("seen"), &token), (204, None));
    let both = [of("hidden"), of("seen"), of("hidden")].concat();
    assert_eq!(write(both, &token), (400, Some(2)));
    assert_eq!(write(of("hidden"), &token), (403, Some(1)));
    server.stopped(|db| {
        let snapshot = db.snapshot().unwrap();
        assert!(
            snapshot
                .last(&StreamName::new("up", [("job", "hidden")]))
                .is_err()
        );
        assert!(
            snapshot
                .last(&StreamName::new("up", [("job", "seen")]))
                .is_ok()
        );
    });
}

/// Ends when dropped.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_scrapes_this_server_and_writes_to_it() {
    if or_skip(installed("prometheus")).is_none() {
        return;
    }
    let server = Running::start();
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "global:\n  scrape_interval: 300ms\n  scrape_timeout: 300ms\n  external_labels:\n    site: oslo\nscrape_configs:\n  - job_name: headwater\n    static_configs:\n      - targets: ['{addr}']\nremote_write:\n  - url: http://{addr}/api/v1/prom/write\n    queue_config:\n      batch_send_deadline: 200ms\n",
        addr = server.addr
    );
    let file = dir.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ))
        .arg("--web.listen-address=127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let _prometheus = Prometheus(child);
    let stream = format!("up,instance={},job=headwater,site=oslo", server.addr);
    let rows = || {
        let url = server.url(&format!(
            "/api/v1/aggregate?channel={stream}.value&functions=count,min,max"
        ));
        let mut answer = client().get(url).call().unwrap();
        let body = json(&mut answer);
        (
            body["channels"][0]["count"][0].as_u64().unwrap_or_default(),
            body,
        )
    };
    let start = Instant::now();
    while rows().0 < 5 {
        let told = || std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        assert!(start.elapsed() < Duration::from_secs(60), "{}", told());
        std::thread::sleep(Duration::from_millis(100));
    }
    let (_, body) = rows();
    assert_eq!(body["channels"][0]["min"][0], 1.0, "{body}");
    let addr = server.addr.to_string();
    server.stopped(|db| {
        let snapshot = db.snapshot().unwrap();
        let tags = [
            ("instance", addr.as_str()),
            ("job", "headwater"),
            ("site", "oslo"),
            ("version", env!("CARGO_PKG_VERSION")),
        ];
        let build = snapshot
            .last(&StreamName::new("headwater_build_info", tags))
            .unwrap();
        assert_eq!(
            (build[0].field.as_str(), &build[0].value),
            ("value", &Value::F64(1.0))
        );
        let route = [
            ("instance", addr.as_str()),
            ("job", "headwater"),
            ("site", "oslo"),
            ("method", "POST"),
            ("route", "/api/v1/prom/write"),
            ("status", "204"),
        ];
        let requests = snapshot
            .last(&StreamName::new("headwater_http_requests_total", route))
            .unwrap();
        let Value::F64(count) = requests[0].value else {
            panic!("{requests:?}");
        };
        assert!(count >= 1.0);
    });
}
