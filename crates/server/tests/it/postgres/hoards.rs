//! Clients that keep what they were given: places, cursors, statements, connections. Others are
//! served all the same.

use super::raw::{Client, bind, execute, lines, message, parse, sync, texts};
use super::{session, start};
use crate::support::{Running, client};
use headwater_testing::until;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// An answer that is never read to its end here.
const ENDLESS: &str = "SELECT value, value AS b, value AS c FROM generate_series(1, 2000000000)";

/// Others are answered. On a busy machine those who do not read may still be at work for a while,
/// before there is nobody to take more from them: until then a place may be refused.
fn answers(server: &Running) {
    let begun = Instant::now();
    until("others are answered by PostgreSQL's protocol", || {
        let told = session(server).rows("SELECT count(*) FROM cars");
        assert!(
            told == ["2"] || told.concat().starts_with("E 53300"),
            "{told:?}"
        );
        told == ["2"]
    });
    until("others are answered by HTTP", || {
        let by_http = client()
            .post(server.url("/api/v1/sql"))
            .send("SELECT count(*) AS n FROM cars")
            .unwrap();
        assert!(
            [200, 503].contains(&by_http.status().as_u16()),
            "{by_http:?}"
        );
        by_http.status() == 200
    });
    println!("others are answered in {} ms", begun.elapsed().as_millis());
}

/// One who asks by HTTP and reads nothing.
fn silent_reader(server: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr).unwrap();
    write!(
        stream,
        "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{ENDLESS}",
        ENDLESS.len()
    )
    .unwrap();
    stream
}

#[test]
fn whoever_reads_nothing_of_his_answer_gives_his_place_to_others() {
    let server = start(|settings| {
        settings.sql_statements_max = 4;
        settings.sql_timeout = Duration::from_secs(3600);
    });
    let mut silent: Vec<Client> = (0..8).map(|_| session(&server)).collect();
    for client in &mut silent {
        client.send(&[message(b'Q', &texts(&[ENDLESS]))]);
    }
    let by_http: Vec<TcpStream> = (0..8).map(|_| silent_reader(&server)).collect();
    for _ in 0..3 {
        answers(&server);
    }
    drop(by_http);
    drop(silent);
    answers(&server);
}

#[test]
fn an_answer_that_is_not_taken_in_time_is_ended() {
    let server = start(|settings| {
        settings.sql_statements_max = 1;
        settings.sql_timeout = Duration::from_secs(2);
    });
    let mut silent = session(&server);
    silent.send(&[message(b'Q', &texts(&[ENDLESS]))]);
    let over = || {
        let text = client().get(server.url("/metrics")).call().unwrap();
        let text = text.into_body().read_to_string().unwrap();
        text.lines()
            .any(|l| l.starts_with("headwater_postgres_statements_total{sqlstate=\"08006\"}"))
    };
    // Nobody needs its place: it is the time that ends it.
    until("the statement is ended", over);
    until("its connection is ended", || {
        let text = client().get(server.url("/metrics")).call().unwrap();
        let text = text.into_body().read_to_string().unwrap();
        text.lines()
            .any(|l| l == "headwater_postgres_connections 0")
    });
    answers(&server);
    // The server does not wait for readers that do not read.
    let mut silent = session(&server);
    silent.send(&[message(b'Q', &texts(&[ENDLESS]))]);
    let by_http = silent_reader(&server);
    server.stopped(|_| ());
    drop((silent, by_http));
}

#[test]
fn whoever_finds_all_places_taken_is_told_so() {
    const LONG: &str = "SELECT count(*) FROM generate_series(1, 300000) a CROSS JOIN generate_series(1, 300000) b WHERE a.a % 7 = b.b % 11";
    let server = start(|settings| {
        settings.sql_statements_max = 2;
        settings.sql_timeout = Duration::from_secs(3600);
    });
    let mut working: Vec<Client> = (0..2).map(|_| session(&server)).collect();
    for client in &mut working {
        client.send(&[message(b'Q', &texts(&[LONG]))]);
    }
    until("all places are taken", || {
        let told = session(&server).query("SELECT 1 + 1");
        told.iter().any(|l| l.starts_with("E 53300 "))
    });
    let busy = client()
        .post(server.url("/api/v1/sql"))
        .send("SELECT 1")
        .unwrap();
    assert_eq!(busy.status(), 503);
    drop(working);
    until("a place is free", || {
        session(&server).rows("SELECT 1") == ["1"]
    });
}

#[test]
fn sockets_that_say_nothing_keep_no_session_out() {
    let server = start(|settings| settings.postgres_connections_max = 2);
    let addr = server.postgres.unwrap();
    let silent: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    let begun = Instant::now();
    assert_eq!(session(&server).rows("SELECT 1"), ["1"]);
    println!(
        "a session beside 300 silent sockets: {} ms",
        begun.elapsed().as_millis()
    );
    drop(silent);
}

#[test]
fn prepared_statements_and_portals_are_kept_up_to_a_bound() {
    let server = start(|_| {});
    let mut hoards = session(&server);
    let text = format!("SELECT 1 AS a -- {}", "x".repeat(500_000));
    let mut refused = 0;
    for n in 0..40 {
        hoards.send(&[parse(&format!("s{n}"), &text, &[]), sync()]);
        refused += usize::from(
            lines(&hoards.ready())
                .iter()
                .any(|l| l.starts_with("E 53200 ")),
        );
    }
    assert!((1..40).contains(&refused), "{refused}");
    let many = "1, ".repeat(100_000);
    let large = format!("SELECT 1 WHERE 1 IN ({many}1)");
    let told = hoards.exchange(&[
        parse("", &large, &[]),
        bind("", "", 0, &[]),
        execute("", 0),
        sync(),
    ]);
    assert!(
        told.iter().any(|l| l == "D 1") || told.iter().any(|l| l.starts_with("E 53200")),
        "{told:?}"
    );
    answers(&server);
}

#[test]
fn cursors_are_open_up_to_a_number_and_a_time() {
    let server = start(|settings| settings.sql_timeout = Duration::from_secs(3));
    let mut hoards = session(&server);
    let mut told = Vec::new();
    for n in 0..40 {
        let name = format!("c{n}");
        told.extend(hoards.exchange(&[
            parse(&name, ENDLESS, &[]),
            bind(&name, &name, 0, &[]),
            execute(&name, 1),
            message(b'H', &[]),
            message(b'C', format!("S{name}\0").as_bytes()),
            sync(),
        ]));
    }
    // Each ends with its transaction, so that none is too many.
    assert!(!told.iter().any(|l| l.starts_with('E')), "{told:?}");
    hoards.query("BEGIN");
    let mut refused = 0;
    for n in 0..40 {
        let made = hoards.query(&format!("DECLARE d{n} CURSOR FOR {ENDLESS}"));
        if made.iter().any(|l| l.starts_with('E')) {
            break;
        }
        let told = hoards.query(&format!("FETCH 1 FROM d{n}"));
        refused += usize::from(told.iter().any(|l| l.starts_with("E 54000 ")));
    }
    assert_eq!(refused, 1);
    hoards.query("ROLLBACK");
    hoards.query("BEGIN");
    hoards.query(&format!("DECLARE late CURSOR FOR {ENDLESS}"));
    assert_eq!(hoards.rows("FETCH 1 FROM late"), ["1|1|1"]);
    until("its time is up", || {
        std::thread::sleep(Duration::from_millis(500));
        hoards.rows("FETCH 1 FROM late")[0].starts_with("E 57014")
    });
    answers(&server);
}

#[test]
fn a_flood_of_messages_is_answered_in_bounded_memory() {
    let server = start(|_| {});
    let mut flood = session(&server);
    let wide: Vec<String> = (0..300).map(|n| format!("1 AS column_{n}")).collect();
    let wide = format!("SELECT {}", wide.join(", "));
    flood.exchange(&[parse("w", &wide, &[]), sync()]);
    let describes = message(b'D', b"Sw\0").repeat(2_000);
    // Sent without reading: the server stops taking them when nothing is taken of its answers.
    let writes = std::thread::spawn(move || {
        for _ in 0..50 {
            if !flood.try_send(&describes) {
                break;
            }
        }
        flood
    });
    for _ in 0..5 {
        answers(&server);
    }
    drop(server);
    drop(writes.join());
}
