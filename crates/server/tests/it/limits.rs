//! Limits of the server, and an end in order: what is turned away, what is cut off, what may still
//! finish.

use crate::support::{Running, client, json};
use headwater::StreamName;
use headwater_testing::until;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const LINE: &str = "t,d=a v=1i 1700000000000000000";

/// A write that holds its place: its handler has asked for the body, has got a part of it, and
/// waits for the rest.
struct Slow {
    stream: TcpStream,
    rest: &'static str,
}

impl Slow {
    fn begin(server: &Running) -> Slow {
        let mut stream = TcpStream::connect(server.addr).unwrap();
        let (first, rest) = LINE.split_at(10);
        write!(
            stream,
            "POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
             Expect: 100-continue\r\n\r\n",
            LINE.len()
        )
        .unwrap();
        let mut slow = Slow { stream, rest };
        let head = slow.answer();
        assert!(head.starts_with("HTTP/1.1 100"), "{head}");
        slow.stream.write_all(first.as_bytes()).unwrap();
        slow
    }

    fn finish(mut self) -> String {
        // The server may have answered and gone.
        let _ = self.stream.write_all(self.rest.as_bytes());
        self.answer()
    }

    /// The head of the answer, or nothing when the server went without one.
    fn answer(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.stream.read(&mut byte) {
                Ok(1) => head.extend(byte),
                _ => break,
            }
        }
        String::from_utf8(head).unwrap()
    }
}

#[test]
fn more_requests_than_may_be_are_turned_away_and_health_is_not() {
    let server = Running::start_with(|s| s.requests_max = 1);
    let client = client();
    let slow = Slow::begin(&server);
    let streams = || client.get(server.url("/api/v1/streams")).call().unwrap();
    let mut answer = streams();
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(json(&mut answer)["code"], "E_REQUESTS");
    for path in ["/health", "/ready", "/metrics", "/ping", "/"] {
        let answer = client.get(server.url(path)).call().unwrap();
        assert!(answer.status().is_success(), "{path}");
    }
    assert!(slow.finish().starts_with("HTTP/1.1 204"));
    until("the place is free", || streams().status() == 200);
}

#[test]
fn a_request_that_takes_too_long_is_answered_and_lets_go_of_its_place() {
    let server = Running::start_with(|s| {
        s.requests_max = 1;
        s.request_timeout = Duration::from_millis(200);
    });
    let mut slow = Slow::begin(&server);
    let head = slow.answer();
    assert!(
        head.starts_with("HTTP/1.1 503") && head.contains("retry-after"),
        "{head}"
    );
    let client = client();
    until("the place is free", || {
        client
            .get(server.url("/api/v1/streams"))
            .call()
            .unwrap()
            .status()
            == 200
    });
    server.stopped(|db| assert!(db.tables().is_empty()));
}

#[test]
fn connections_that_send_nothing_are_closed() {
    let server = Running::start_with(|s| {
        s.header_timeout = Duration::from_millis(200);
        s.connections_max = 1;
    });
    // It holds the only place until its time is up; then the next one gets it.
    let mut silent = TcpStream::connect(server.addr).unwrap();
    silent.write_all(b"GET /health HT").unwrap();
    let answer = client().get(server.url("/health")).call().unwrap();
    assert_eq!(answer.status(), 200);
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
    let text = String::from_utf8(rest).unwrap();
    assert!(
        text.is_empty() || text.starts_with("HTTP/1.1 408"),
        "{text}"
    );
}

#[test]
fn a_request_that_has_begun_is_finished_when_the_server_stops() {
    let server = Running::start_with(|s| s.requests_max = 1);
    let addr = server.addr;
    let slow = Slow::begin(&server);
    let finish = std::thread::spawn(move || {
        // No new connection is taken once the stop has begun.
        until("nobody listens", || TcpStream::connect(addr).is_err());
        slow.finish()
    });
    server.stopped(|db| {
        let head = finish.join().unwrap();
        assert!(head.starts_with("HTTP/1.1 204"), "{head}");
        let stream = StreamName::new("t", [("d", "a")]);
        assert_eq!(db.snapshot().unwrap().last(&stream).unwrap().len(), 1);
    });
}

#[test]
fn a_request_that_never_ends_does_not_keep_the_server() {
    let server = Running::start_with(|s| s.shutdown_timeout = Duration::from_millis(200));
    let slow = Slow::begin(&server);
    server.stopped(|db| assert!(db.tables().is_empty()));
    assert!(!slow.finish().starts_with("HTTP/1.1 204"));
}
