//! Clients that misbehave, go away, wait, or are too many.

use super::raw::{Client, bind, execute, lines, message, parse, sync, texts};
use super::{session, start};
use crate::support::client;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A statement that does not end by itself within the time of a test.
const LONG: &str = "SELECT count(*) FROM generate_series(1, 300000) a CROSS JOIN generate_series(1, 300000) b WHERE a.a % 7 = b.b % 11";

#[test]
fn any_bytes_end_one_connection_at_most() {
    let server = start(|settings| settings.postgres_startup_timeout = Duration::from_secs(2));
    let addr = server.postgres.unwrap();
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    let shaped = (
        prop::sample::select(b"QPBDCEFHSXcdfp!".to_vec()),
        prop::collection::vec(any::<u8>(), 0..60),
        any::<bool>(),
    );
    let mut runner = TestRunner::new(Config {
        cases: 100,
        ..Config::default()
    });
    let garbage = (bytes, prop::collection::vec(shaped, 0..8), any::<bool>());
    runner
        .run(&garbage, |(bytes, messages, begins)| {
            let mut rough = Client::connect(addr);
            if begins {
                rough.begin(&[("user", "x")]);
                for (kind, body, ends) in &messages {
                    let mut body = body.clone();
                    if *ends {
                        body.push(0);
                    }
                    if !rough.try_send(&message(*kind, &body)) {
                        break;
                    }
                }
            }
            let _ = rough.try_send(&bytes);
            Ok(())
        })
        .unwrap();
    let mut after = session(&server);
    assert_eq!(after.rows("SELECT count(*) FROM cars"), ["2"]);
}

#[test]
fn who_says_nothing_or_too_much_is_sent_away() {
    let impatient =
        start(|settings| settings.postgres_startup_timeout = Duration::from_millis(300));
    // Half a message, and then nothing.
    let mut slow = Client::connect(impatient.postgres.unwrap());
    slow.send(&[b"\0\0\0\x20\0\x03".to_vec()]);
    assert!(slow.rest().is_empty());
    let server = start(|settings| settings.body_max = 4096);
    let addr = server.postgres.unwrap();
    let mut http = Client::connect(addr);
    http.send(&[b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()]);
    assert!(http.next().unwrap().error().starts_with("08P01"));
    let mut old = Client::connect(addr);
    old.send(&[b"\0\0\0\x08\0\x02\0\0".to_vec()]);
    assert!(old.next().unwrap().error().starts_with("0A000"));
    let mut large = session(&server);
    large.send(&[message(b'Q', &texts(&[&"x".repeat(5000)]))]);
    assert!(large.next().unwrap().error().starts_with("08P01"));
    assert!(large.next().is_none());
    assert_eq!(session(&server).rows("SELECT 1"), ["1"]);
}

#[test]
fn there_are_no_more_sessions_than_allowed_and_idle_ones_end() {
    let server = start(|settings| settings.postgres_connections_max = 2);
    let _first = session(&server);
    let _second = session(&server);
    let mut third = Client::connect(server.postgres.unwrap());
    third.begin(&[("user", "ann")]);
    let told = third.next().unwrap();
    assert!(
        told.error().starts_with("53300 too many connections"),
        "{}",
        told.error()
    );
    let server = start(|settings| {
        settings.postgres_connections_max = 1;
        settings.postgres_idle_timeout = Duration::from_millis(300);
    });
    let mut idle = session(&server);
    assert!(idle.next().unwrap().error().starts_with("57P05"));
    let begun = Instant::now();
    loop {
        let mut next = Client::connect(server.postgres.unwrap());
        next.begin(&[("user", "ann")]);
        if next
            .until_ready()
            .last()
            .is_some_and(|last| last.kind == 'Z')
        {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no place came free"
        );
    }
}

#[test]
fn statements_end_when_asked_to_or_when_time_is_up() {
    let server = start(|_| {});
    let mut working = Client::connect(server.postgres.unwrap());
    working.begin(&[("user", "ann")]);
    let told = working.ready();
    let key = told.iter().find(|a| a.kind == 'K').unwrap().body.clone();
    let cancel = |key: &[u8]| {
        let mut other = Client::connect(server.postgres.unwrap());
        let body = [&80_877_102u32.to_be_bytes()[..], key].concat();
        other.send(&[message(0, &body)[1..].to_vec()]);
        assert!(other.rest().is_empty());
    };
    // Whoever does not know the secret ends nothing; a request while nothing runs ends nothing that
    // comes later.
    let mut wrong = key.clone();
    wrong[7] ^= 1;
    cancel(&key);
    working.send(&[message(b'Q', &texts(&[LONG]))]);
    std::thread::sleep(Duration::from_millis(200));
    cancel(&wrong);
    std::thread::sleep(Duration::from_millis(200));
    // It may not have begun at the first.
    let ended = Arc::new(AtomicBool::new(false));
    let canceller = std::thread::spawn({
        let (addr, ended) = (server.postgres.unwrap(), Arc::clone(&ended));
        move || {
            while !ended.load(Ordering::Acquire) {
                let mut other = Client::connect(addr);
                let body = [&80_877_102u32.to_be_bytes()[..], &key].concat();
                other.send(&[message(0, &body)[1..].to_vec()]);
                other.rest();
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    let told = lines(&working.ready());
    ended.store(true, Ordering::Release);
    assert_eq!(told.last().unwrap(), "Z I");
    assert!(
        told.iter()
            .any(|l| l == "E 57014 canceling statement due to user request"),
        "{told:?}"
    );
    canceller.join().unwrap();
    working.query("SET statement_timeout = 300");
    let ended = working.query(LONG);
    assert!(
        ended
            .iter()
            .any(|l| l == "E 57014 canceling statement due to statement timeout"),
        "{ended:?}"
    );
    working.query("RESET statement_timeout");
    assert_eq!(working.rows("SELECT 1"), ["1"]);
}

#[test]
fn a_client_that_goes_ends_its_statement() {
    let server = start(|settings| settings.sql_statements_max = 1);
    let mut gone = session(&server);
    gone.send(&[message(b'Q', &texts(&[LONG]))]);
    std::thread::sleep(Duration::from_millis(300));
    drop(gone);
    // The only place among the statements is free again.
    assert_eq!(session(&server).rows("SELECT count(*) FROM cars"), ["2"]);
}

#[test]
fn messages_may_come_all_at_once() {
    let server = start(|_| {});
    let mut client = session(&server);
    let mut messages = vec![parse("s", "SELECT $1::bigint + 1", &[20])];
    for n in 0..50 {
        let value = n.to_string();
        messages.extend([
            bind("", "s", 0, &[Some(value.as_bytes())]),
            execute("", 0),
            sync(),
        ]);
    }
    client.send(&[messages.concat()]);
    for n in 0..50 {
        let rows: Vec<String> = lines(&client.ready())
            .into_iter()
            .filter(|l| l.starts_with('D'))
            .collect();
        assert_eq!(rows, [format!("D {}", n + 1)]);
    }
}

#[test]
fn sessions_end_in_order_with_the_server_and_are_counted() {
    let server = start(|_| {});
    let mut idle = session(&server);
    idle.rows("SELECT 1");
    idle.rows("SELECT nope FROM cars");
    let text = client()
        .get(server.url("/metrics"))
        .call()
        .unwrap()
        .body_mut()
        .read_to_string()
        .unwrap();
    for line in [
        "headwater_postgres_connections 1",
        "headwater_postgres_statements_total{sqlstate=\"00000\"} 1",
        "headwater_postgres_statements_total{sqlstate=\"42703\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    server.stopped(|_| ());
    assert!(idle.next().unwrap().error().starts_with("57P01"));
    assert!(idle.next().is_none());
}

#[test]
fn the_door_is_for_this_machine_unless_there_are_tokens_and_tls() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = headwater_server::Settings::new(dir.path().join("db"));
    settings.http_addr.set_port(0);
    settings.postgres_addr = Some("0.0.0.0:0".parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let refused = runtime
        .block_on(headwater_server::Server::start(settings))
        .map(|server| server.url());
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("0.0.0.0:0") && text.contains("token create"),
        "{text}"
    );
}
