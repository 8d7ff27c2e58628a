//! `COPY` over the protocol, message by message.

use super::raw::{Client, bind, describe, execute, lines, message, parse, sync, texts};
use super::{session, start};

fn data(text: &str) -> Vec<u8> {
    message(b'd', text.as_bytes())
}

fn done() -> Vec<u8> {
    message(b'c', &[])
}

/// Sends a copy in by the simple protocol.
fn copy_in(client: &mut Client, sql: &str, parts: &[&str]) -> Vec<String> {
    let mut messages = vec![message(b'Q', &texts(&[sql]))];
    messages.extend(parts.iter().map(|part| data(part)));
    messages.push(done());
    client.send(&messages);
    lines(&client.ready())
}

#[test]
fn rows_go_out_as_text_and_as_csv() {
    let server = start(|_| {});
    let mut client = session(&server);
    assert_eq!(
        client.query("COPY (SELECT id, speed, laps, raw FROM cars ORDER BY id) TO STDOUT"),
        [
            "H",
            "d other\\t2.5\\t\\\\N\\t\\\\\\\\x00ff\\n",
            "d seen\\t1.5\\t3\\t\\\\N\\n",
            "c",
            "C COPY 2",
            "Z I"
        ]
    );
    assert_eq!(
        client.query("COPY (SELECT id AS \"a,b\", name, speed > 2 AS fast FROM cars ORDER BY time) TO STDOUT WITH (FORMAT csv, HEADER)"),
        [
            "H",
            "d \\\"a,b\\\",name,fast\\n",
            "d seen,x,f\\n",
            "d other,,t\\n",
            "c",
            "C COPY 2",
            "Z I"
        ]
    );
    // A table's rows come in no order.
    let mut whole = client.query("COPY cars (id) TO STDOUT");
    whole.sort();
    assert_eq!(
        whole,
        ["C COPY 2", "H", "Z I", "c", "d other\\n", "d seen\\n"]
    );
    // A name that needs quotes, an answer that is empty, and the extended protocol.
    assert_eq!(
        client.query("COPY public.\"Odd Name\" (v) TO STDOUT CSV"),
        ["H", "d 1\\n", "c", "C COPY 1", "Z I"]
    );
    assert_eq!(
        client.query("COPY (SELECT id FROM cars WHERE id = 'nobody') TO STDOUT"),
        ["H", "c", "C COPY 0", "Z I"]
    );
    assert_eq!(
        client.exchange(&[
            parse("", "COPY \"Odd Name\" (t) TO STDOUT", &[]),
            describe("S", ""),
            bind("", "", 0, &[]),
            execute("", 0),
            sync(),
        ]),
        ["1", "t ", "n", "2", "H", "d 1\\n", "c", "C COPY 1", "Z I"]
    );
    for (sql, error) in [
        ("COPY nothere TO STDOUT", "E 42P01"),
        ("COPY cars (nope) TO STDOUT", "E 42703"),
        ("COPY (DELETE FROM cars) TO STDOUT", "E 42601"),
        ("COPY cars TO '/tmp/x'", "E 0A000"),
        ("COPY cars TO STDOUT (FORMAT xml)", "E 0A000"),
    ] {
        let answer = client.query(sql);
        assert!(answer[0].starts_with(error), "{sql}: {answer:?}");
        assert_eq!(answer.len(), 2, "{sql}: {answer:?}");
    }
    assert_eq!(client.rows("SELECT count(*) FROM cars"), ["2"]);
}

#[test]
fn rows_come_in_as_text_and_as_csv() {
    let server = start(|_| {});
    let mut client = session(&server);
    client.query("CREATE TABLE c (time TIMESTAMP, id TAG, x DOUBLE, n BIGINT UNSIGNED, ok BOOLEAN, raw BYTEA, note TEXT)");
    let text = [
        "2024-01-01 00:00:00+00\ta\t1.5\t3\tt\t\\\\x00ff\tone\\ttwo\n2024-01-01T00:00:01.123456789Z\t",
        "a\tNaN\t\\N\tno\t\\N\t\n",
        "\\.\n",
    ];
    assert_eq!(
        copy_in(&mut client, "COPY c FROM STDIN", &text),
        ["G", "C COPY 2", "Z I"]
    );
    assert_eq!(
        client.rows("SELECT * FROM c ORDER BY time"),
        [
            "2024-01-01 00:00:00+00|a|1.5|3|t|\\\\x00ff|one\\ttwo",
            "2024-01-01 00:00:01.123456+00|a|NaN|NULL|f|NULL|"
        ]
    );
    // Other columns in another order; without a time the rows are of now.
    let csv = ["note,id\n\"a \"\"b\"\"\n", "c\",x\n,y\n"];
    assert_eq!(
        copy_in(
            &mut client,
            "COPY c (note, id) FROM STDIN (FORMAT csv, HEADER)",
            &csv
        ),
        ["G", "C COPY 2", "Z I"]
    );
    assert_eq!(
        client.rows("SELECT id, note FROM c WHERE time > now() - INTERVAL '1 hour' ORDER BY id"),
        ["x|a \\\"b\\\"\\nc", "y|NULL"]
    );
    // By the extended protocol, as drivers send it: their first Sync comes before the data.
    client.send(&[
        parse("", "COPY c (time, id, x) FROM STDIN", &[]),
        bind("", "", 0, &[]),
        execute("", 0),
        sync(),
        data("2024-02-01\tz\t1\n"),
        done(),
        sync(),
    ]);
    assert_eq!(lines(&client.ready()), ["1", "2", "G", "C COPY 1", "Z I"]);
    assert_eq!(client.rows("SELECT x FROM c WHERE id = 'z'"), ["1"]);
}

#[test]
fn a_copy_that_fails_names_the_line_and_leaves_the_session_usable() {
    let server = start(|_| {});
    let mut client = session(&server);
    client.query("CREATE TABLE c (time TIMESTAMP, id TAG, x DOUBLE)");
    for (part, error, told) in [
        (
            "2024-01-01\ta\t1\n2024-01-01\ta\n",
            "E 22P04",
            "line 2: expected 3 fields, found 2",
        ),
        (
            "2024-01-01\ta\t1\n2024-01-02\ta\tx\n",
            "E 22P02",
            "line 2: column x",
        ),
        (
            "2024-01-01\ta\t1\nnever\ta\t1\n",
            "E 22",
            "COPY c, line 2: column `time`",
        ),
        (
            "2024-01-01\ta\t1\n\\N\ta\t1\n",
            "E 22023",
            "line 2: `time` cannot be NULL",
        ),
        (
            "2024-01-01\ta\t1\n2024-01-02\tb\t2\n2190-01-01\ta\t3\n2024-01-04\ta\t4\n",
            "E 22000",
            "COPY c, line 3: E_TIME_FUTURE",
        ),
    ] {
        let answer = copy_in(&mut client, "COPY c FROM STDIN", &[part]);
        assert!(
            answer[1].starts_with(error) && answer[1].contains(told),
            "{part:?}: {answer:?}"
        );
        assert_eq!(answer[2], "Z I");
        assert_eq!(client.rows("SELECT count(*) FROM c"), ["0"], "{part:?}");
    }
    client.send(&[
        message(b'Q', &texts(&["COPY c FROM STDIN"])),
        data("2024-01-01\ta\t1\n"),
        message(b'f', b"changed my mind\0"),
    ]);
    let answer = lines(&client.ready());
    assert_eq!(answer[1], "E 57014 COPY from stdin failed: changed my mind");
    for (sql, error) in [
        ("COPY nothere FROM STDIN", "E 42P01"),
        ("COPY c (nope) FROM STDIN", "E 42703"),
        ("COPY c (id, id) FROM STDIN", "E 42"),
        ("COPY pg_catalog.pg_class FROM STDIN", "E 42P01"),
    ] {
        let answer = copy_in(&mut client, sql, &["x\n"]);
        assert!(answer[0].starts_with(error), "{sql}: {answer:?}");
    }
    // Within a transaction that failed nothing is copied.
    client.query("BEGIN; SELECT nope FROM c");
    let answer = copy_in(&mut client, "COPY c FROM STDIN", &["2024-01-01\ta\t1\n"]);
    assert!(answer[0].starts_with("E 25P02"), "{answer:?}");
    client.query("ROLLBACK");
    assert_eq!(client.rows("SELECT count(*) FROM c"), ["0"]);
}
