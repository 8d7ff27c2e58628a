//! What the InfluxDB binding of YCSB-TS sends, byte for byte over a socket, and what it reads from
//! the answers.
//!
//! It makes no database, its tags are fields of text, and its numbers stand in quotes. It fails on
//! an answer without the key `series`, and on one whose times have no second.

use crate::support::Running;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A connection that stays open, as its client keeps it.
struct Connection(TcpStream);

impl Connection {
    fn open(server: &Running) -> Connection {
        let stream = TcpStream::connect(server.addr).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Connection(stream)
    }

    /// Status and body.
    fn send(&mut self, request: &str) -> (u16, String) {
        self.0.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .map_or(0, |length| length.parse().unwrap());
                if body.len() >= length {
                    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                    return (status, body.to_owned());
                }
            }
            let count = self.0.read(&mut buffer).unwrap();
            assert!(count > 0, "closed after {text}");
            bytes.extend_from_slice(&buffer[..count]);
        }
    }

    fn query(&mut self, statement: &str) -> Value {
        let q: String = statement
            .bytes()
            .map(|b| match b {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'*' | b'(' | b')' => {
                    char::from(b).to_string()
                }
                b => format!("%{b:02X}"),
            })
            .collect();
        let request = format!(
            "GET /query?u=root&p=root&db=testdb&q={q} HTTP/1.1\r\nHost: 127.0.0.1:7373\r\nConnection: Keep-Alive\r\nAccept-Encoding: gzip\r\nUser-Agent: okhttp/2.4.0\r\n\r\n"
        );
        let (status, body) = self.send(&request);
        assert_eq!(status, 200, "{statement}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[test]
fn its_workloads_are_answered() {
    let server = Running::start();
    let mut connection = Connection::open(&server);
    let (status, _) = connection
        .send("GET /ping HTTP/1.1\r\nHost: 127.0.0.1:7373\r\nConnection: Keep-Alive\r\n\r\n");
    assert!((200..300).contains(&status));
    const START: i64 = 1_439_241_005;
    for second in 0..100i64 {
        let tag = if second % 2 == 0 {
            "6jBVuLpCsS"
        } else {
            "x\\\"y"
        };
        let line = format!(
            "usermetric TAG0=\"{tag}\",TAG1=\"iYuoabr575\",TAG2=\"50ajCK6E2g\",value=\"{}.25\" {}000000000",
            second,
            START + second
        );
        let request = format!(
            "POST /write?u=root&p=root&db=testdb&rp=default&precision=n&consistency=one HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nHost: 127.0.0.1:7373\r\nConnection: Keep-Alive\r\nUser-Agent: okhttp/2.4.0\r\n\r\n{line}",
            line.len()
        );
        let (status, body) = connection.send(&request);
        assert_eq!((status, body.as_str()), (204, ""));
    }
    let us = |second: i64| (START + second) * 1_000_000;

    let read = connection.query(&format!("SELECT * FROM usermetric WHERE time = {}u", us(7)));
    assert_eq!(
        read,
        json!({"results": [{"statement_id": 0, "series": [{
            "name": "usermetric",
            "columns": ["time", "TAG0", "TAG1", "TAG2", "value"],
            "values": [["2015-08-10T21:10:12Z", "x\"y", "iYuoabr575", "50ajCK6E2g", "7.25"]],
        }]}]})
    );
    let nothing = connection.query("SELECT * FROM usermetric WHERE time = 5u");
    assert_eq!(nothing["results"][0]["series"], json!([]));

    let range = format!("time >= {}u AND time <= {}u", us(10), us(19));
    let tags = "( TAG1 = 'iYuoabr575' OR TAG1 = 'y' ) AND ( TAG0 = '6jBVuLpCsS' )";
    let values = |answer: &Value| answer["results"][0]["series"][0]["values"].clone();
    let scan = connection.query(&format!(
        "SELECT * FROM usermetric WHERE {range} AND {tags}"
    ));
    assert_eq!(values(&scan).as_array().unwrap().len(), 5);
    for (function, expected) in [("MEAN", 14.25), ("COUNT", 5.0), ("SUM", 71.25)] {
        let answer = connection.query(&format!(
            "SELECT {function}(value) FROM usermetric WHERE {range} AND {tags}"
        ));
        let rows = values(&answer);
        assert_eq!(rows[0][0], "2015-08-10T21:10:15Z", "{answer}");
        assert_eq!(rows[0][1].as_f64(), Some(expected), "{answer}");
    }
    let divided = connection.query(&format!(
        "SELECT MEAN(value) FROM usermetric WHERE {range} AND {tags} GROUP BY time(10s)"
    ));
    // Ten seconds counted from 1970 begin at 21:10:10 and 21:10:20.
    assert_eq!(
        values(&divided),
        json!([
            ["2015-08-10T21:10:10Z", 12.25],
            ["2015-08-10T21:10:20Z", 17.25]
        ])
    );
    let absent = connection.query(&format!(
        "SELECT SUM(value) FROM usermetric WHERE {range} AND ( TAG0 = 'none' )"
    ));
    assert_eq!(absent["results"][0]["series"], json!([]));
}
