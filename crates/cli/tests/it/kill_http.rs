//! A server killed with SIGKILL in the middle of writes over HTTP, many times over one database:
//! every line that was answered 204 is there afterwards, with its value, and `check` finds nothing.

use crate::kill::{check, open, wait};
use crate::serve::Served;
use crate::support::Bench;
use headwater::{ScanSpec, StreamName, ValueRef};
use headwater_testing::Dice;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ROUNDS: usize = 8;
const WRITERS: usize = 4;
/// The time of line 0, in 2023; the others are a millisecond apart.
const START: i64 = 1_700_000_000_000_000_000;
const STEP: i64 = 1_000_000;

/// What line `number` of a writer holds.
fn value(writer: usize, number: i64) -> i64 {
    number * 31 + writer as i64
}

fn lines(writer: usize, from: i64, to: i64) -> String {
    (from..to)
        .map(|n| {
            let (value, time) = (value(writer, n), START + n * STEP);
            format!(
                "load,writer=w{writer} v={value}i,half={}.5 {time}\n",
                n % 1000
            )
        })
        .collect()
}

/// Sends one request and reads the head of its answer; `None` = the server is gone.
fn write(stream: &mut TcpStream, body: &str) -> Option<u16> {
    let request = format!(
        "POST /write?precision=ns HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    Some(head.split(' ').nth(1).unwrap().parse().unwrap())
}

/// One writer: batches of several sizes until the server is gone. Tells the end of what was
/// acknowledged, and of what was sent.
fn load(addr: &str, writer: usize, from: i64, acknowledged: &AtomicU64) -> (i64, i64) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut next = from;
    for turn in 0.. {
        let end = next + [1, 7, 40, 300][turn % 4];
        match write(&mut stream, &lines(writer, next, end)) {
            Some(204) => {
                next = end;
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Some(status) => panic!("writer {writer}: {status}"),
            None => return (next, end),
        }
    }
    unreachable!("the loop ends with the server")
}

#[test]
fn lines_acknowledged_over_http_survive_kills() {
    let bench = Bench::new();
    let mut dice = Dice(41);
    // For each writer: which spans of lines were acknowledged, and where the next round begins.
    let mut spans: Vec<Vec<(i64, i64)>> = vec![Vec::new(); WRITERS];
    let mut next = [0i64; WRITERS];
    for round in 0..ROUNDS {
        let durability = ["synced", "written", "5ms"][round % 3];
        let mut served = Served::start(
            &bench.db(),
            &["--memory-budget", "2MiB", "--durability", durability],
        );
        let acknowledged = AtomicU64::new(0);
        let over = AtomicBool::new(false);
        let wanted = 20 + dice.below(150);
        let ends: Vec<(i64, i64)> = std::thread::scope(|scope| {
            let (addr, acknowledged, over) = (served.addr.clone(), &acknowledged, &over);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (addr, from) = (addr.clone(), next[writer]);
                    scope.spawn(move || {
                        let ended =
                            std::panic::catch_unwind(|| load(&addr, writer, from, acknowledged));
                        over.store(true, Ordering::Relaxed);
                        ended.unwrap()
                    })
                })
                .collect();
            while acknowledged.load(Ordering::Relaxed) < wanted && !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            wait(&mut dice);
            // SIGKILL: nothing in the process runs any more.
            served.child.kill().unwrap();
            served.child.wait().unwrap();
            writers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        for (writer, (end, sent)) in ends.into_iter().enumerate() {
            spans[writer].push((next[writer], end));
            // What was sent and not acknowledged may be there or not.
            next[writer] = sent;
        }
        check(&bench.db(), round);
        let db = open(&bench.db());
        let snapshot = db.snapshot().unwrap();
        for (writer, spans) in spans.iter().enumerate() {
            let stream = StreamName::new("load", [("writer", format!("w{writer}"))]);
            let mut found = Vec::new();
            for chunk in snapshot.scan(&stream, &ScanSpec::default()).unwrap() {
                let chunk = chunk.unwrap();
                for (row, time) in chunk.times.iter().enumerate() {
                    let number = (time - START) / STEP;
                    let values: Vec<_> = chunk.columns.iter().map(|c| c.get(row)).collect();
                    assert!(
                        values.contains(&Some(ValueRef::I64(value(writer, number)))),
                        "round {round}, writer {writer}, line {number}: {values:?}"
                    );
                    found.push(number);
                }
            }
            for &(from, to) in spans {
                let there = found.iter().filter(|n| (from..to).contains(*n)).count();
                assert_eq!(
                    there as i64,
                    to - from,
                    "round {round}, writer {writer}: {from}..{to}"
                );
            }
        }
        drop(snapshot);
        db.close().unwrap();
    }
    let all: i64 = spans.iter().flatten().map(|(from, to)| to - from).sum();
    assert!(
        all > 1_000,
        "only {all} lines were acknowledged in all rounds"
    );
}
