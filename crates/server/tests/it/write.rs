//! Writing line protocol: what is stored, what is refused, and how it is told.

use crate::support::{Running, client};
use headwater::{Database, ScanSpec, StreamName, Value};
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::until;
use serde_json::Value as Json;
use std::io::{Read, Write};
use std::net::TcpStream;

const NS: i64 = 1_700_000_000_000_000_000;

/// A request's answer: status, headers that matter, body.
struct Answer {
    status: u16,
    headers: ureq::http::HeaderMap,
    body: Json,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

fn post(server: &Running, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut request = client().post(server.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut answer = request.send(body).unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    Answer {
        status: answer.status().as_u16(),
        headers: answer.headers().clone(),
        body: serde_json::from_str(&text).unwrap_or(Json::Null),
    }
}

fn stream(device: &str) -> StreamName {
    StreamName::new("t", [("d", device)])
}

/// Times and values of the first field.
fn rows(db: &Database, stream: &StreamName) -> Vec<(i64, Value)> {
    let snapshot = db.snapshot().unwrap();
    let Ok(scan) = snapshot.scan(stream, &ScanSpec::default()) else {
        return Vec::new();
    };
    scan.flat_map(|chunk| {
        let chunk = chunk.unwrap();
        let values = chunk.columns[0].to_values();
        let rows = chunk.times.into_iter().zip(values);
        rows.map(|(time, value)| (time, value.unwrap()))
            .collect::<Vec<_>>()
    })
    .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_route_and_encoding_and_precision_stores_the_same() {
    let server = Running::start();
    let cases = [
        ("/write?db=x&rp=autogen&precision=ns", NS),
        ("/write?db=x&precision=n&consistency=any", NS),
        ("/write?precision=u", NS / 1_000),
        (
            "/api/v2/write?org=o&bucket=x/autogen&precision=us",
            NS / 1_000,
        ),
        (
            "/api/v2/write?orgID=5&bucket=x&precision=ms",
            NS / 1_000_000,
        ),
        (
            "/api/v3/write_lp?db=x&precision=millisecond&no_sync=true",
            NS / 1_000_000,
        ),
        (
            "/api/v3/write_lp?db=x&precision=second&accept_partial=true",
            NS / 1_000_000_000,
        ),
        ("/api/v3/write_lp?db=x&precision=auto", NS / 1_000),
        ("/write?precision=s", NS / 1_000_000_000),
        ("/write", NS / 1_000_000),
        ("/write", NS),
        ("/write?precision=", NS),
        ("/write?precision=m", NS / 60_000_000_000),
        ("/write?precision=h", NS / 3_600_000_000_000),
    ];
    for (number, (path, stamp)) in cases.iter().enumerate() {
        let line = format!("t,d={number} v={number}i {stamp}\n").into_bytes();
        let (headers, body): (&[(&str, &str)], Vec<u8>) = match number % 4 {
            0 => (&[], line),
            1 => (&[("content-encoding", "gzip")], gzip(&line)),
            2 => (
                &[("content-encoding", "zstd")],
                zstd::encode_all(&line[..], 3).unwrap(),
            ),
            _ => (
                &[
                    ("content-encoding", "identity"),
                    ("content-type", "text/plain"),
                ],
                line,
            ),
        };
        let answer = post(&server, path, headers, &body);
        assert_eq!(answer.status, 204, "{path}: {}", answer.body);
        assert!(answer.header("x-headwater-warning").is_none(), "{path}");
    }
    server.stopped(|db| {
        for number in 0..cases.len() {
            let unit = match number {
                12 => 60_000_000_000,
                13 => 3_600_000_000_000,
                _ => 1,
            };
            let expected = (NS / unit * unit, Value::I64(number as i64));
            assert_eq!(
                rows(db, &stream(&number.to_string())),
                [expected],
                "{number}"
            );
        }
    });
}

#[test]
fn a_line_without_a_time_gets_the_servers() {
    let server = Running::start();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    let before = now();
    assert_eq!(post(&server, "/write", &[], b"t,d=1 v=1").status, 204);
    let after = now();
    let found = server.stopped(|db| rows(db, &stream("1")));
    assert!(
        found.len() == 1 && (before..=after).contains(&found[0].0),
        "{found:?}"
    );
}

#[test]
fn lines_without_a_time_that_come_at_once_take_no_place_of_each_other() {
    let server = Running::start();
    let body = "t,d=1 v=1\n".repeat(2_000);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let answer = post(&server, "/write", &[], body.as_bytes());
                    assert_eq!(answer.status, 204, "{}", answer.body);
                    assert!(answer.header("x-headwater-replaced").is_none());
                }
            });
        }
    });
    let stored = server.stopped(|db| rows(db, &stream("1")).len());
    assert_eq!(stored, 6 * 5 * 2_000);
}

#[test]
fn a_partial_write_keeps_the_good_lines_and_lists_the_others() {
    let server = Running::start();
    assert_eq!(
        post(
            &server,
            "/write",
            &[],
            format!("t,d=1 v=1.5 {NS}").as_bytes()
        )
        .status,
        204
    );
    let body = format!(
        "# a comment\nt,d=1 v=2.5 {}\nt,d=1 v= {NS}\nt,d=1 v=\"text\" {}\n\nt,d=2 v=3.5 {NS}\nt,d=2 v=1 then\n",
        NS + 1,
        NS + 2,
    );
    let answer = post(&server, "/api/v2/write?bucket=x", &[], body.as_bytes());
    assert_eq!((answer.status, answer.code()), (400, "E_PARTIAL"));
    for key in ["message", "error"] {
        assert!(
            answer.body[key]
                .as_str()
                .unwrap()
                .starts_with("partial write: 3 lines refused, 2 stored"),
            "{}",
            answer.body
        );
    }
    assert_eq!(
        (&answer.body["written"], &answer.body["rejected"]),
        (&Json::from(2), &Json::from(3))
    );
    assert_eq!(
        answer.body["rejected_by_code"],
        serde_json::json!({"E_PARSE": 1, "E_TIME": 1, "E_TYPE": 1})
    );
    let told: Vec<(u64, &str, &str)> = answer.body["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| {
            (
                l["line"].as_u64().unwrap(),
                l["code"].as_str().unwrap(),
                l["original"].as_str().unwrap(),
            )
        })
        .collect();
    let text: Vec<&str> = body.lines().collect();
    assert_eq!(
        told,
        [
            (3, "E_PARSE", text[2]),
            (4, "E_TYPE", text[3]),
            (7, "E_TIME", text[6])
        ]
    );
    server.stopped(|db| {
        assert_eq!(
            rows(db, &stream("1")),
            [(NS, Value::F64(1.5)), (NS + 1, Value::F64(2.5))]
        );
        assert_eq!(rows(db, &stream("2")), [(NS, Value::F64(3.5))]);
    });
}

#[test]
fn what_is_refused_as_a_whole_says_how() {
    let server = Running::start();
    assert_eq!(
        post(
            &server,
            "/write",
            &[],
            format!("t,d=1 v=1.5 {NS}").as_bytes()
        )
        .status,
        204
    );
    // Well-formed, and the field has another type.
    let answer = post(&server, "/write", &[], format!("t,d=1 v=t {NS}").as_bytes());
    assert_eq!((answer.status, answer.code()), (422, "E_REFUSED"));
    // Malformed.
    let answer = post(&server, "/write", &[], b"\"");
    assert_eq!((answer.status, answer.code()), (400, "E_REFUSED"));
    assert!(
        answer.body["message"]
            .as_str()
            .unwrap()
            .starts_with("partial write: ")
    );
    // One of two, and all were asked for.
    let body = format!("t,d=1 v=7 {}\nt,d=1 v=x {NS}", NS + 9);
    let answer = post(
        &server,
        "/api/v3/write_lp?accept_partial=false",
        &[],
        body.as_bytes(),
    );
    assert_eq!((answer.status, answer.code()), (400, "E_REFUSED"));
    assert_eq!(answer.body["written"], 0);
    let body = format!("t,d=1 v=7 {}\nt,d=1 v=t {NS}", NS + 9);
    let answer = post(
        &server,
        "/api/v3/write_lp?accept_partial=false",
        &[],
        body.as_bytes(),
    );
    assert_eq!(
        (answer.status, answer.body["written"].as_u64()),
        (422, Some(0))
    );
    // Nothing to store is stored at once.
    for empty in ["", "\n\n", "# only a comment\n"] {
        assert_eq!(post(&server, "/write", &[], empty.as_bytes()).status, 204);
    }
    server.stopped(|db| assert_eq!(rows(db, &stream("1")).len(), 1));
}

#[test]
fn the_list_of_refused_lines_is_bounded_and_the_counts_are_not() {
    let server = Running::start();
    let body = "t,d=1 v=\n".repeat(2_500);
    let answer = post(&server, "/write", &[], body.as_bytes());
    assert_eq!(answer.body["rejected"], 2_500);
    assert_eq!(answer.body["lines"].as_array().unwrap().len(), 1_000);
}

#[test]
fn bad_requests_have_codes() {
    let server = Running::start_with(|settings| {
        settings.body_max = 10_000;
        settings.write_database = Some("plant".to_owned());
        settings.write_line_max = 500;
    });
    let line = format!("t,d=1 v=1 {NS}");
    let large = format!("{line}\n").repeat(1_000);
    let long = format!("t,d=1 v=\"{}\" {NS}", "x".repeat(600));
    let bomb = gzip(&vec![b'\n'; 1 << 20]);
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [u8], u16, &'a str);
    let cases: &[Case<'_>] = &[
        ("/write?precision=day", &[], b"", 400, "E_INVALID"),
        ("/write?accept_partial=maybe", &[], b"", 400, "E_INVALID"),
        ("/write?db=a&db=b", &[], b"", 400, "E_INVALID"),
        ("/write?db=%FF", &[], b"", 404, "E_NOT_FOUND"),
        ("/write?db=other", &[], line.as_bytes(), 404, "E_NOT_FOUND"),
        (
            "/api/v2/write?bucket=other/autogen",
            &[],
            line.as_bytes(),
            404,
            "E_NOT_FOUND",
        ),
        (
            "/write?db=plant",
            &[("content-encoding", "br")],
            b"",
            415,
            "E_ENCODING",
        ),
        (
            "/write?db=plant",
            &[("content-encoding", "gzip")],
            b"not gzip",
            400,
            "E_ENCODING",
        ),
        (
            "/write?db=plant",
            &[("content-encoding", "zstd")],
            b"not zstd",
            400,
            "E_ENCODING",
        ),
        ("/write", &[], large.as_bytes(), 413, "E_LIMIT_BODY"),
        (
            "/write",
            &[("content-encoding", "gzip")],
            &bomb,
            413,
            "E_LIMIT_BODY",
        ),
        ("/write", &[], long.as_bytes(), 400, "E_REFUSED"),
        (
            "/write",
            &[("x-headwater-producer", "p")],
            b"",
            400,
            "E_INVALID",
        ),
        (
            "/write",
            &[("x-headwater-batch", "1")],
            b"",
            400,
            "E_INVALID",
        ),
        (
            "/write",
            &[("x-headwater-producer", "p"), ("x-headwater-batch", "-1")],
            b"",
            400,
            "E_INVALID",
        ),
        (
            "/write",
            &[("x-headwater-producer", ""), ("x-headwater-batch", "1")],
            b"",
            400,
            "E_INVALID",
        ),
        ("/query?q=SELECT+1", &[], b"", 400, "E_PARSE"),
    ];
    for (path, headers, body, status, code) in cases {
        let answer = post(&server, path, headers, body);
        assert_eq!(
            (answer.status, answer.code()),
            (*status, *code),
            "{path} {headers:?}: {}",
            answer.body
        );
        assert!(!answer.body["message"].as_str().unwrap().is_empty());
    }
    let answer = post(&server, "/write", &[], long.as_bytes());
    assert_eq!(
        answer.body["rejected_by_code"],
        serde_json::json!({"E_LIMIT_LINE": 1})
    );
    assert_eq!(
        post(
            &server,
            "/api/v2/write?bucket=plant/autogen",
            &[],
            line.as_bytes()
        )
        .status,
        204
    );
    assert_eq!(server.stopped(|db| rows(db, &stream("1"))).len(), 1);
}

#[test]
fn a_body_without_a_length_is_bounded_too() {
    let server = Running::start_with(|settings| settings.body_max = 50_000);
    let mut socket = TcpStream::connect(server.addr).unwrap();
    socket
        .write_all(b"POST /write HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 9_000, "\n".repeat(9_000));
    for _ in 0..20 {
        socket.write_all(chunk.as_bytes()).unwrap();
    }
    socket.write_all(b"0\r\n\r\n").unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
}

#[test]
fn bodies_that_would_take_too_much_memory_at_once_are_told_to_come_back() {
    let server = Running::start_with(|settings| {
        settings.body_max = 1_000_000;
        settings.write_bytes_max = 1_000_000;
    });
    // A sender that has announced its body holds the room for it.
    let announce = || {
        let mut slow = TcpStream::connect(server.addr).unwrap();
        slow.write_all(
            b"POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 990000\r\n\r\n#",
        )
        .unwrap();
        slow.set_nonblocking(true).unwrap();
        slow
    };
    let mut slow = announce();
    let line = format!("t,d=1 v=1 {NS}\n").repeat(1_000);
    let mut refused = None;
    until("the room is taken", || {
        let answer = post(&server, "/write", &[], line.as_bytes());
        refused = (answer.status != 204).then_some(answer);
        // Where the lines came before it, it is the slow one that was told to come back.
        if refused.is_none() && slow.read(&mut [0]).is_ok() {
            slow = announce();
        }
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!((refused.status, refused.code()), (429, "E_BUSY"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(slow);
    until("there is room again", || {
        post(&server, "/write", &[], line.as_bytes()).status == 204
    });
}

#[test]
fn a_numbered_batch_is_stored_once() {
    let server = Running::start();
    let send = |number: &str, body: String| {
        let headers = [
            ("x-headwater-producer", "gateway-7"),
            ("x-headwater-batch", number),
        ];
        let answer = post(&server, "/write", &headers, body.as_bytes());
        assert_eq!(answer.status, 204, "{}", answer.body);
        answer.header("x-headwater-repeated").is_some()
    };
    assert!(!send("1", format!("t,d=1 v=1 {NS}")));
    assert!(!send("2", format!("t,d=1 v=2 {}", NS + 1)));
    // Another content would show that it was stored again.
    assert!(send("2", format!("t,d=1 v=9 {}", NS + 5)));
    assert!(send("1", format!("t,d=1 v=9 {}", NS + 6)));
    assert!(!send("3", format!("t,d=1 v=3 {}", NS + 2)));
    let expected = [(NS, 1.0), (NS + 1, 2.0), (NS + 2, 3.0)].map(|(t, v)| (t, Value::F64(v)));
    assert_eq!(server.stopped(|db| rows(db, &stream("1"))), expected);
}

#[test]
fn producers_of_two_databases_number_their_batches_apart() {
    let server = Running::start();
    let send = |database: &str, number: &str, value: u8| {
        let headers = [
            ("x-headwater-producer", "gateway-7"),
            ("x-headwater-batch", number),
        ];
        let path = format!("/write?db={database}");
        let body = format!("t,d=1 v={value} {}", NS + i64::from(value));
        let answer = post(&server, &path, &headers, body.as_bytes());
        assert_eq!(answer.status, 204, "{}", answer.body);
        answer.header("x-headwater-repeated").is_some()
    };
    assert!(!send("one", "1", 1));
    assert!(!send("two", "1", 2));
    assert!(!send("two", "2", 3));
    assert!(!send("one", "2", 4));
    assert!(send("one", "2", 5));
    assert!(send("two", "1", 6));
    server.stopped(|db| {
        let of = |name: &StreamName| -> Vec<_> {
            rows(db, name).into_iter().map(|(_, value)| value).collect()
        };
        assert_eq!(of(&stream("1")), [1.0, 4.0].map(Value::F64));
        let two = stream("1").in_table("two.t");
        assert_eq!(of(&two), [2.0, 3.0].map(Value::F64));
    });
}

#[test]
fn stamps_in_another_unit_than_said_are_noticed() {
    let server = Running::start();
    let seconds = NS / 1_000_000_000;
    let answer = post(
        &server,
        "/write?precision=ns",
        &[],
        format!("t,d=1 v=1 {seconds}").as_bytes(),
    );
    assert_eq!(answer.status, 204);
    let warning = answer.header("x-headwater-warning").unwrap();
    assert!(
        warning.contains("1970") && warning.contains("precision=auto"),
        "{warning}"
    );
}

/// What Telegraf's outputs for InfluxDB 1 and 2 send.
#[test]
fn telegraf_can_write() {
    let server = Running::start();
    let agent = ("user-agent", "Telegraf/1.36.1 Go/1.25.1");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let made = post(
        &server,
        "/query",
        &[agent, form],
        b"q=CREATE+DATABASE+%22telegraf%22",
    );
    assert_eq!(
        (made.status, &made.body["results"][0]["statement_id"]),
        (200, &Json::from(0))
    );
    let shown = post(&server, "/query?q=SHOW%20DATABASES", &[agent], b"");
    assert_eq!(
        shown.body["results"][0]["series"][0]["values"][0][0],
        "telegraf"
    );
    let line = format!("t,d=1 v=42.5 {NS}\n");
    let packed = gzip(line.as_bytes());
    let headers = [
        agent,
        ("content-encoding", "gzip"),
        ("content-type", "text/plain; charset=utf-8"),
    ];
    let answer = post(&server, "/write?db=telegraf", &headers, &packed);
    assert_eq!(answer.status, 204);
    let token = ("authorization", "Token any");
    let headers = [agent, token, ("content-encoding", "gzip")];
    let packed = gzip(line.replace("d=1", "d=2").as_bytes());
    let answer = post(
        &server,
        "/api/v2/write?bucket=telegraf&org=o&precision=ns",
        &headers,
        &packed,
    );
    assert_eq!(answer.status, 204);
    // It resends nothing that was refused for what it says, and knows a partial write by its words.
    let answer = post(
        &server,
        "/write?db=telegraf",
        &[agent],
        format!("t,d=1 v=1 {NS}\nt,d=1 v=t {NS}").as_bytes(),
    );
    assert!(
        answer.status == 400
            && answer.body["error"]
                .as_str()
                .unwrap()
                .contains("partial write")
    );
    server.stopped(|db| {
        for device in ["1", "2"] {
            assert_eq!(rows(db, &stream(device)).len(), 1);
        }
    });
}

#[test]
fn many_writers_of_single_lines_are_all_stored() {
    let server = Running::start();
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let url = server.url("/write");
            scope.spawn(move || {
                let client = client();
                for number in 0..25 {
                    let line = format!("t,d={writer} v={number} {}", NS + number);
                    assert_eq!(client.post(&url).send(line).unwrap().status(), 204);
                }
            });
        }
    });
    server.stopped(|db| {
        for writer in 0..16 {
            assert_eq!(rows(db, &stream(&writer.to_string())).len(), 25);
        }
    });
}

#[test]
fn a_token_writes_what_its_rules_name_and_no_more() {
    let mut token = String::new();
    let server = Running::start_with(|settings| {
        std::fs::create_dir_all(settings.db()).unwrap();
        let new = NewToken {
            name: "sensor".to_owned(),
            rules: vec!["write t,d=1".parse().unwrap()],
            expires: None,
        };
        token = TokenFile::of_database(settings.db()).create(new).unwrap();
    });
    let line = |device: u8| format!("t,d={device} v=1 {NS}\n");
    let denied = post(&server, "/write", &[], line(1).as_bytes());
    assert_eq!((denied.status, denied.code()), (401, "E_TOKEN"));
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let answer = post(&server, "/write", &headers, line(1).as_bytes());
    assert_eq!(answer.status, 204);
    let answer = post(&server, "/write", &headers, line(2).as_bytes());
    assert_eq!((answer.status, answer.code()), (403, "E_ACCESS"));
    let answer = post(&server, "/write", &headers, (line(2) + &line(1)).as_bytes());
    assert_eq!((answer.status, answer.code()), (400, "E_PARTIAL"));
    assert_eq!(answer.body["lines"][0]["code"], "E_ACCESS");
    assert_eq!(answer.body["lines"][0]["line"], 1);
    server.stopped(|db| {
        assert_eq!(rows(db, &stream("1")).len(), 1);
        assert!(rows(db, &stream("2")).is_empty());
    });
}

#[test]
fn who_follows_a_channel_is_told_of_what_is_stored() {
    let server = Running::start();
    let line = |value: &str, time: i64| format!("t,d=1 v={value} {time}\n");
    assert_eq!(
        post(&server, "/write", &[], line("1", NS).as_bytes()).status,
        204
    );
    let mut socket = TcpStream::connect(server.addr).unwrap();
    socket
        .write_all(b"GET /api/v1/live?channel=t,d%3D1.v HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut seen = String::new();
    let mut read_until = |text: &str| {
        let mut buffer = [0; 4096];
        while !seen.contains(text) {
            let read = socket.read(&mut buffer).unwrap();
            assert!(read > 0, "{seen}");
            seen.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        seen.clone()
    };
    read_until("\r\n\r\n");
    // Refused rows and batches that were stored before are not told of.
    let body = line("2.5", NS + 1) + &line("3.5", NS + 3) + &line("t", NS + 2);
    let numbered = [("x-headwater-producer", "p"), ("x-headwater-batch", "1")];
    for _ in 0..2 {
        let answer = post(&server, "/write", &numbered, body.as_bytes());
        assert!([204, 400].contains(&answer.status));
    }
    assert_eq!(
        post(&server, "/write", &[], line("9", NS + 9).as_bytes()).status,
        204
    );
    let seen = read_until("[9.0]");
    let told = format!(
        "\"time\":[\"{}\",\"{}\"],\"value\":[2.5,3.5]",
        NS + 1,
        NS + 3
    );
    assert_eq!(seen.matches("\"value\"").count(), 2, "{seen}");
    assert!(seen.contains(&told), "{seen}");
}
