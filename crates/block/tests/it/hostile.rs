//! Clients that send what they should not, take nothing, or go away: they harm nobody else, and the
//! server stops in order.

use crate::client::{
    Client, FLUSH, READ, Response, STATUS, TRIM, WRITE, ZEROES, connect, greet, named,
    option_replies, option_reply, send_option,
};
use crate::serving::Running;
use crate::support::{BLOCK, Dice};
use headwater_io::MemoryFiles;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// True when the server ended the connection, whatever it had to say before.
fn was_ended(stream: &mut UnixStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        // What was not read any more when the server closed its end makes a reset of it.
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Another client is served as if nothing had happened.
fn check(running: &Running) {
    let mut client = running.client();
    client.write(5 * BLOCK, b"well");
    client.flush();
    assert_eq!(client.read(5 * BLOCK, 4), b"well");
}

#[test]
fn what_is_no_negotiation_ends_the_connection() {
    let running = Running::start(MemoryFiles::new());
    for said in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        // Flags of a client that exist, and then something else than an option.
        b"\0\0\0\x03IHAVENOT\0\0\0\x01\0\0\0\0",
        // A name that is too long, and one that is no text.
        b"\0\0\0\x03IHAVEOPT\0\0\0\x01\x7f\xff\xff\xff",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x02\xff\xfe",
        // An option of 4 GiB.
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff",
        // Without fixed newstyle there are no options.
        b"\0\0\0\0IHAVEOPT\0\0\0\x03\0\0\0\0",
    ] {
        let mut stream = connect(&running.path());
        stream.write_all(said).unwrap();
        assert!(was_ended(&mut stream), "{said:?}");
        check(&running);
    }
    running.stop();
}

#[test]
fn an_option_that_is_too_long_is_passed_over() {
    let running = Running::start(MemoryFiles::new());
    let stream = &mut connect(&running.path());
    greet(stream).unwrap();
    let told = option_replies(stream, 7, &vec![0; 100_000]);
    assert_eq!(told[0].0, (1 << 31) + 9);
    assert_eq!(option_replies(stream, 8, b""), [(1, vec![])], "it goes on");
    // So many queries that are not there.
    let told = option_replies(stream, 9, &named("", &u32::MAX.to_be_bytes()));
    assert_eq!(told[0].0, (1 << 31) + 3);
    running.stop();
}

#[test]
fn a_client_that_only_sends_options_is_sent_away() {
    let running = Running::start(MemoryFiles::new());
    let stream = &mut connect(&running.path());
    greet(stream).unwrap();
    let mut answered = 0;
    while send_option(stream, 3, b"").is_ok() {
        match (option_reply(stream), option_reply(stream)) {
            (Ok(_), Ok(_)) => answered += 1,
            _ => break,
        }
    }
    assert_eq!(answered, 64);
    running.stop();
}

#[test]
fn a_client_that_says_nothing_is_sent_away() {
    let running = Running::start_with(MemoryFiles::new(), |options| {
        options.negotiation = Duration::from_millis(50);
    });
    let mut silent = connect(&running.path());
    assert!(was_ended(&mut silent));
    // One byte at a time does not help, however long the test machine takes.
    let mut slow = connect(&running.path());
    let _ = greet(&mut slow);
    while slow.write_all(b"I").is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.wait_for_connections(0);
    running.stop();
}

#[test]
fn wrong_requests_are_answered_and_the_connection_goes_on() {
    let running = Running::start(MemoryFiles::new());
    let size = 32 * BLOCK;
    for structured in [true, false] {
        let mut client = Client::new(&running.path(), structured);
        for (kind, flags, offset, length, error) in [
            (READ, 0, size, 1, 22),
            (READ, 0, size - 1, 2, 22),
            (READ, 0, u64::MAX, u32::MAX, 22),
            (READ, 0, 0, 0, 22),
            (TRIM, 0, size, 4096, 22),
            (ZEROES, 0, size - 1, 4096, 28),
            (ZEROES, 18, 0, 4096, 95),
            (STATUS, 0, size, 1, 22),
            (FLUSH, 0, 1, 1, 22),
            (READ, 0x8000, 0, 1, 22),
            (5, 0, 0, 1, 22),
            (8, 0, 0, 1, 22),
            (0xffff, 0xffff, u64::MAX, u32::MAX, 22),
        ] {
            let told = client.call(kind, flags, offset, length, b"");
            assert_eq!(
                told,
                Response::Failed(error),
                "{kind} {flags} {offset} {length}"
            );
        }
        // Their data are read past.
        let told = client.call(WRITE, 0, size - 1, 4096, &[1; 4096]);
        assert_eq!(told, Response::Failed(28));
        let told = client.call(WRITE, 0x40, 0, 4096, &[1; 4096]);
        assert_eq!(told, Response::Failed(22));
        let told = client.call(WRITE, 0, 0, 0, b"");
        assert_eq!(told, Response::Failed(22));
        assert_eq!(client.read(0, 4096), [0; 4096]);
    }
    running.stop();
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let running = Running::start(MemoryFiles::new());
    let mut client = running.client();
    client.stream.write_all(&[0x25; 28]).unwrap();
    assert!(was_ended(&mut client.stream));
    // A write that nobody may send: what follows cannot be told from requests.
    let mut client = running.client();
    client.send(WRITE, 0, 0, u32::MAX, b"").unwrap();
    assert!(was_ended(&mut client.stream));
    check(&running);
    running.stop();
}

#[test]
fn a_client_that_goes_away_in_the_middle_changes_nothing() {
    let running = Running::start(MemoryFiles::new());
    for sent in [0, 1, 4095] {
        let mut client = running.client();
        client.send(WRITE, 0, 0, 4096, &vec![1; sent]).unwrap();
        drop(client);
    }
    // In the middle of a header, and of an option.
    let mut client = running.client();
    client.stream.write_all(&[0x25, 0x60]).unwrap();
    drop(client);
    let mut stream = connect(&running.path());
    stream.write_all(b"\0\0\0\x03IHAVE").unwrap();
    drop(stream);
    // With replies that it never takes.
    let mut client = running.client();
    for _ in 0..100 {
        client.send(READ, 0, 0, 32 * 4096, b"").unwrap();
    }
    drop(client);
    running.wait_for_connections(0);
    let mut client = running.client();
    assert_eq!(client.read(0, 4096), [0; 4096], "no part of a write");
    check(&running);
    running.stop();
}

/// Its replies fill the socket, and nothing more is taken from it; others are served.
#[test]
fn a_client_that_takes_no_replies_holds_up_nobody() {
    let running = Running::start_with(MemoryFiles::new(), |options| {
        options.grace = Duration::from_millis(10);
    });
    let mut greedy = running.client();
    let patience = Some(Duration::from_millis(100));
    greedy.stream.set_write_timeout(patience).unwrap();
    // Up to where the server takes no more requests.
    while greedy.send(READ, 0, 0, 32 * 4096, b"").is_ok() {}
    for _ in 0..20 {
        check(&running);
    }
    // It is cut off when the server stops.
    running.stop();
}

#[test]
fn connections_beyond_the_bound_are_closed_and_those_within_go_on() {
    let running = Running::start_with(MemoryFiles::new(), |options| options.connections_max = 2);
    let (mut first, second) = (running.client(), running.client());
    for _ in 0..10 {
        let mut other = connect(&running.path());
        assert!(was_ended(&mut other));
    }
    first.write(0, b"mine");
    drop(second);
    running.wait_for_connections(1);
    check(&running);
    running.stop();
}

/// Bytes from a seed, in place of a negotiation or behind one.
#[test]
fn noise_harms_nobody() {
    let running = Running::start(MemoryFiles::new());
    for seed in 0..60 {
        let dice = Dice::new(seed);
        let noise: Vec<u8> = (0..dice.below(3000))
            .map(|_| dice.below(256) as u8)
            .collect();
        let mut stream = match seed % 2 {
            0 => running.client().stream,
            _ => {
                let mut stream = connect(&running.path());
                greet(&mut stream).unwrap();
                stream.write_all(b"IHAVEOPT").unwrap();
                stream
            }
        };
        let _ = stream.write_all(&noise);
    }
    check(&running);
    running.stop();
}
