//! The protocol, message by message.

use super::raw::{Client, bind, describe, execute, lines, message, parse, sync, texts};
use super::{session, start};
use crate::support::Running;

#[test]
fn a_session_begins_with_what_clients_want_to_know() {
    let server = start(|_| {});
    let mut client = Client::connect(server.postgres.unwrap());
    // TLS is not to be had, and the session goes on without it.
    client.send(&[b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec()]);
    client.begin(&[
        ("user", "ann"),
        ("options", "-c statement_timeout=5s"),
        ("TimeZone", "europe/berlin"),
        ("bytea_output", "escape"),
    ]);
    let mut no = [0u8; 1];
    client.read_exact(&mut no);
    assert_eq!(&no, b"N");
    let answers = client.ready();
    let told: Vec<String> = answers
        .iter()
        .filter(|a| a.kind == 'S')
        .map(|a| {
            String::from_utf8_lossy(&a.body)
                .replace('\0', " ")
                .trim()
                .to_owned()
        })
        .collect();
    for wanted in [
        "client_encoding UTF8",
        "DateStyle ISO, MDY",
        "integer_datetimes on",
        "standard_conforming_strings on",
        "TimeZone Europe/Berlin",
        "session_authorization ann",
    ] {
        assert!(told.contains(&wanted.to_owned()), "{wanted}: {told:?}");
    }
    assert!(
        told.iter()
            .any(|t| t.starts_with("server_version 16.0 (Headwater ")),
        "{told:?}"
    );
    // What is not done is told, and no reason to send a client away.
    let notices: Vec<String> = answers
        .iter()
        .filter(|a| a.kind == 'N')
        .map(|a| a.error())
        .collect();
    assert!(
        notices.len() == 1 && notices[0].contains("bytea_output"),
        "{notices:?}"
    );
    assert_eq!(client.rows("SHOW statement_timeout"), ["5000"]);

    let mut wrong = Client::connect(server.postgres.unwrap());
    wrong.begin(&[("user", "ann"), ("no_such_setting", "1")]);
    let refused = lines(&wrong.until_ready());
    assert!(
        refused.last().unwrap().starts_with("E 42704"),
        "{refused:?}"
    );
    // By the clocks of a zone that there is not nothing could be read rightly.
    let mut nowhere = Client::connect(server.postgres.unwrap());
    nowhere.begin(&[("user", "ann"), ("TimeZone", "Europe/Nowhere")]);
    let refused = lines(&nowhere.until_ready());
    let refused = refused.last().unwrap();
    assert!(
        refused.starts_with("E 22023") && refused.contains("\"TimeZone\""),
        "{refused:?}"
    );

    // A newer minor version, and an option of the protocol that is not known, are declined and the
    // session goes on.
    let mut newer = Client::connect(server.postgres.unwrap());
    let mut body = 196_610u32.to_be_bytes().to_vec();
    body.extend(texts(&["user", "ann", "_pq_.x", "1"]));
    body.push(0);
    newer.send(&[message(0, &body)[1..].to_vec()]);
    assert_eq!(newer.ready()[0].kind, 'v');
}

#[test]
fn texts_of_several_statements_run_until_one_fails() {
    let server = start(|_| {});
    let mut client = session(&server);
    assert_eq!(
        client.query("SELECT id, speed FROM cars ORDER BY time; ; SELECT 1 AS one -- ;\n; SELECT nope FROM cars; SELECT 2"),
        [
            "T id:25,speed:701",
            "D seen|1.5",
            "D other|2.5",
            "C SELECT 2",
            "T one:20",
            "D 1",
            "C SELECT 1",
            "E 42703 there is no column `nope`",
            "Z I",
        ]
    );
    client.send(&[message(
        b'Q',
        &texts(&["SELECT 'ä';\n SELECT nope FROM cars"]),
    )]);
    let answers = client.ready();
    let error = answers.iter().find(|a| a.kind == 'E').unwrap();
    // Characters from the beginning of the whole text.
    assert_eq!(error.error_field(b'P').as_deref(), Some("21"));
    assert!(error.error_field(b'H').is_some());
    assert_eq!(client.query(" -- nothing\n"), ["I", "Z I"]);
    assert_eq!(
        client.query("SELECT time, laps, ok, raw FROM cars ORDER BY time"),
        [
            "T time:1184,laps:1700,ok:16,raw:17",
            "D 2023-11-14 22:13:20+00|3|t|NULL",
            "D 2023-11-14 22:13:21.123456+00|NULL|NULL|\\\\x00ff",
            "C SELECT 2",
            "Z I",
        ]
    );
    assert_eq!(
        client.query("SELECT max(speed), max(n), 1, 1 FROM cars")[..2],
        ["T max:701,max:20,?column?:20,?column?:20", "D 2.5|4|1|1"]
    );
}

#[test]
fn statements_change_what_is_stored_and_say_how_many_rows() {
    let server = start(|_| {});
    let mut client = session(&server);
    for (sql, wanted) in [
        (
            "CREATE TABLE made (time TIMESTAMP, id TAG, v DOUBLE)",
            "C CREATE TABLE",
        ),
        (
            "INSERT INTO made (time, id, v) VALUES ('2024-01-01T00:00:00Z', 'a', 1), ('2024-01-01T00:00:01Z', 'a', 2)",
            "C INSERT 0 2",
        ),
        (
            "DELETE FROM made WHERE time < '2024-01-01T00:00:01Z'",
            "C DELETE 1",
        ),
        ("DROP TABLE made", "C DROP TABLE"),
    ] {
        assert_eq!(client.query(sql), [wanted, "Z I"], "{sql}");
    }
    let insert = "INSERT INTO cars (id, speed) VALUES ('given', 2) RETURNING speed, id";
    assert_eq!(
        client.query(insert),
        ["T speed:701,id:25", "D 2|given", "C INSERT 0 1", "Z I"]
    );
    assert_eq!(client.rows("UPDATE cars SET speed = 1")[0][..7], *"E 0A000");
}

#[test]
fn a_table_that_a_client_of_postgresql_makes_keeps_all_its_rows() {
    let server = start(|_| {});
    let mut client = session(&server);
    client.query("CREATE TABLE w (time timestamptz, device text, v float8)");
    for (device, v) in [("a", 1), ("b", 2), ("a", 3)] {
        let sql = format!("INSERT INTO w VALUES ('2024-01-01T00:00:00Z', '{device}', {v})");
        assert_eq!(client.query(&sql), ["C INSERT 0 1", "Z I"]);
    }
    let all = ["a|1", "a|3", "b|2"];
    let sql = "SELECT device, v FROM w ORDER BY device, v";
    assert_eq!(client.rows(sql), all);
    let db = server.ended();
    let server = Running::start_in(db, |settings| {
        settings.postgres_addr = Some("127.0.0.1:0".parse().unwrap());
    });
    assert_eq!(session(&server).rows(sql), all);
}

#[test]
fn a_number_that_may_be_a_year_removes_nothing_however_it_comes() {
    let server = start(|_| {});
    let mut client = session(&server);
    let before = client.rows("SELECT count(*) FROM cars");
    assert_eq!(before, ["2"]);
    for (types, value) in [
        (&[20][..], &b"2020"[..]),
        (&[25], b"2020"),
        (&[1700], b"2020"),
        (&[], b"2020"),
        (&[20], b"1700000000"),
    ] {
        let told = client.exchange(&[
            parse("", "DELETE FROM cars WHERE time >= $1", types),
            bind("", "", 0, &[Some(value)]),
            execute("", 0),
            sync(),
        ]);
        let is_refused = |line: &String| {
            ["E 22", "E 42P02", "E 42804"]
                .iter()
                .any(|code| line.starts_with(code))
        };
        assert!(told.iter().any(is_refused), "{types:?} {told:?}");
        assert_eq!(client.rows("SELECT count(*) FROM cars"), before);
    }
}

#[test]
fn rows_that_replace_others_of_their_statement_are_told_of() {
    let server = start(|_| {});
    let mut client = session(&server);
    client.query("CREATE TABLE r (time TIMESTAMP, id TAG, v DOUBLE)");
    let told = "N 00000 1 of 2 rows have the time and tags of another row of the statement, and replaced its values";
    let sql = "INSERT INTO r VALUES ('2024-01-01', 'a', 1), ('2024-01-01', 'a', 2)";
    assert_eq!(client.query(sql), [told, "C INSERT 0 2", "Z I"]);
    client.send(&[
        message(b'Q', &texts(&["COPY r FROM STDIN"])),
        message(b'd', b"2024-01-02\ta\t1\n2024-01-02\ta\t2\n"),
        message(b'c', &[]),
    ]);
    assert_eq!(lines(&client.ready()), ["G", told, "C COPY 2", "Z I"]);
    assert_eq!(client.rows("SELECT v FROM r ORDER BY time"), ["2", "2"]);
}

#[test]
fn statements_are_prepared_bound_and_run_in_parts() {
    let server = start(|_| {});
    let mut client = session(&server);
    let sql = "SELECT id, n, speed FROM cars WHERE speed > $1 ORDER BY time";
    assert_eq!(
        client.exchange(&[
            parse("s", sql, &[]),
            describe("S", "s"),
            bind("", "s", 0, &[Some(b"1")]),
            describe("P", ""),
            execute("", 1),
            execute("", 1),
            execute("", 1),
            execute("", 0),
            sync(),
        ]),
        [
            "1",
            "t 701",
            "T id:25,n:20,speed:701",
            "2",
            "T id:25,n:20,speed:701",
            "D seen|4|1.5",
            "s",
            "D other|NULL|2.5",
            "s",
            "C SELECT 0",
            "C SELECT 0",
            "Z I",
        ]
    );
    // Both directions in the binary form.
    assert_eq!(
        client.exchange(&[
            parse(
                "b",
                "SELECT time, speed, n, laps, ok, name FROM cars WHERE n = $1",
                &[23]
            ),
            bind("", "b", 1, &[Some(&4i32.to_be_bytes())]),
            describe("P", ""),
            execute("", 0),
            sync(),
        ]),
        [
            "1",
            "2",
            "T time:1184b,speed:701b,n:20b,laps:1700b,ok:16b,name:25b",
            r#"D \x00\x02\xad\"\xdc\xe6`\x00|?\xf8\x00\x00\x00\x00\x00\x00|\x00\x00\x00\x00\x00\x00\x00\x04|\x00\x01\x00\x00\x00\x00\x00\x00\x00\x03|\x01|x"#,
            "C SELECT 1",
            "Z I",
        ]
    );
    // What is wrong is told once, the rest is passed over until Sync.
    assert_eq!(
        client.exchange(&[
            parse("", "SELECT $1::int", &[23]),
            bind("", "", 0, &[Some(b"x")]),
            execute("", 0),
            parse("never", "SELECT 1", &[]),
            sync(),
            bind("", "never", 0, &[]),
            sync(),
        ])[1..2][0][..8],
        *"E 22P02 "
    );
    assert_eq!(
        lines(&client.ready()),
        ["E 26000 prepared statement \"never\" does not exist", "Z I"]
    );
    // Statements without rows, without text, and those the session answers.
    assert_eq!(
        client.exchange(&[
            parse("", "", &[]),
            describe("S", ""),
            bind("", "", 0, &[]),
            execute("", 0),
            parse("", "SHOW TimeZone", &[]),
            describe("S", ""),
            bind("", "", 0, &[]),
            execute("", 0),
            parse(
                "",
                "INSERT INTO cars (time, id, speed) VALUES ($1, $2, $3)",
                &[1184, 25, 701]
            ),
            describe("S", ""),
            bind(
                "",
                "",
                0,
                &[Some(b"2024-01-01 00:00:00+00"), Some(b"new"), None]
            ),
            execute("", 0),
            message(b'C', b"Ss\0"),
            bind("", "s", 0, &[Some(b"1")]),
            sync(),
        ]),
        [
            "1",
            "t ",
            "n",
            "2",
            "I",
            "1",
            "t ",
            "T timezone:25",
            "2",
            "D UTC",
            "C SHOW",
            "1",
            "t 1184,25,701",
            "n",
            "2",
            "C INSERT 0 1",
            "3",
            "E 26000 prepared statement \"s\" does not exist",
            "Z I",
        ]
    );
    for (messages, wanted) in [
        (vec![parse("", "SELECT 1; SELECT 2", &[])], "E 42601"),
        (
            vec![parse("d", "SELECT 1", &[]), parse("d", "SELECT 1", &[])],
            "E 42P05",
        ),
        (vec![bind("", "b", 0, &[])], "E 08P01"),
        (vec![bind("", "b", 7, &[Some(b"1")])], "E 22023"),
        (vec![execute("none", 0)], "E 34000"),
        (vec![describe("P", "none")], "E 34000"),
        (vec![parse("", "SELECT * FROM nothere", &[])], "E 42P01"),
    ] {
        let got = client.exchange(&[messages.concat(), sync()]);
        let error = got.iter().find(|line| line.starts_with('E')).unwrap();
        assert_eq!(&error[..7], wanted, "{got:?}");
    }
}

#[test]
fn a_table_that_changed_ends_what_was_prepared() {
    let server = start(|_| {});
    let mut client = session(&server);
    client.exchange(&[parse("s", "SELECT * FROM cars", &[]), sync()]);
    client.query("INSERT INTO \"Odd Name\" (time, v) VALUES ('2024-01-01T00:00:00Z', 2)");
    let run = [bind("", "s", 0, &[]), execute("", 1), sync()];
    assert_eq!(client.exchange(&run)[2], "s");
    assert_eq!(
        client.query("ALTER TABLE cars ADD COLUMN more DOUBLE")[0],
        "C ALTER TABLE"
    );
    assert_eq!(
        client.exchange(&run)[1],
        "E 0A000 cached plan must not change result type"
    );
}

#[test]
fn transactions_are_taken_for_the_sake_of_drivers() {
    let server = start(|_| {});
    let mut client = session(&server);
    let begun = client.query("BEGIN");
    assert_eq!(begun[1..], ["C BEGIN", "Z T"]);
    assert!(
        begun[0].starts_with("N 00000 transactions are not supported"),
        "{begun:?}"
    );
    assert_eq!(client.query("SELECT nope FROM cars").last().unwrap(), "Z E");
    assert_eq!(
        client.query("SELECT 1"),
        [
            "E 25P02 current transaction is aborted, commands ignored until end of transaction block",
            "Z E"
        ]
    );
    assert_eq!(client.query("COMMIT"), ["C ROLLBACK", "Z I"]);
    // It is said once; and what was stored stays, which is said.
    assert_eq!(client.query("BEGIN"), ["C BEGIN", "Z T"]);
    client.query("INSERT INTO cars (time, id, speed) VALUES ('2024-01-01T00:00:00Z', 'new', 7)");
    let ended = client.query("ROLLBACK");
    assert!(
        ended[0].starts_with("N 01000 what was stored since BEGIN stays"),
        "{ended:?}"
    );
    assert_eq!(client.rows("SELECT count(*) FROM cars"), ["3"]);
    client.query("BEGIN");
    assert_eq!(client.query("SAVEPOINT a"), ["C SAVEPOINT", "Z T"]);
    client.query("SELECT nope FROM cars");
    assert_eq!(client.query("ROLLBACK TO a"), ["C ROLLBACK", "Z T"]);
    assert_eq!(client.query("COMMIT"), ["C COMMIT", "Z I"]);
}

#[test]
fn cursors_give_rows_in_parts() {
    let server = start(|_| {});
    let mut client = session(&server);
    let series = "SELECT g FROM (SELECT unnest(generate_series(1, 7)) AS g) AS t ORDER BY g";
    assert!(client.query(&format!("DECLARE c CURSOR FOR {series}"))[0].starts_with("E 25P01"));
    client.query("BEGIN");
    assert_eq!(
        client.query(&format!("DECLARE c CURSOR FOR {series}")),
        ["C DECLARE CURSOR", "Z T"]
    );
    assert_eq!(
        client.query("FETCH 2 FROM c"),
        ["T g:20", "D 1", "D 2", "C FETCH 2", "Z T"]
    );
    assert_eq!(client.query("MOVE FORWARD 3 IN c"), ["C MOVE 3", "Z T"]);
    assert_eq!(client.rows("FETCH ALL FROM c"), ["6", "7"]);
    assert_eq!(client.query("FETCH c"), ["T g:20", "C FETCH 0", "Z T"]);
    assert_eq!(client.query("COMMIT"), ["C COMMIT", "Z I"]);
    assert!(client.query("FETCH c")[0].starts_with("E 34000"));
    client.query(&format!("DECLARE h CURSOR WITH HOLD FOR {series}"));
    assert_eq!(client.rows("FETCH h"), ["1"]);
    assert_eq!(client.query("CLOSE h"), ["C CLOSE CURSOR", "Z I"]);
}

#[test]
fn settings_of_a_session_are_obeyed_or_refused() {
    let server = start(|_| {});
    let mut client = session(&server);
    assert_eq!(
        client.query("SET application_name = 'mine'"),
        ["S", "C SET", "Z I"]
    );
    assert_eq!(
        client.rows("SELECT current_setting('application_name')"),
        ["mine"]
    );
    assert_eq!(
        client.rows("SELECT setting FROM pg_settings WHERE name = 'application_name'"),
        ["mine"]
    );
    assert_eq!(
        client.rows("SELECT set_config('application_name', 'his', false)"),
        ["his"]
    );
    assert_eq!(client.rows("SHOW application_name"), ["his"]);
    assert!(client.rows("SET TIME ZONE 'Europe/Nowhere'")[0].starts_with("E 22023"));
    assert!(client.rows("SET nonsense = 1")[0].starts_with("E 42704"));
    assert_eq!(
        client.query("SET headwater.use_pyramid = off"),
        ["C SET", "Z I"]
    );
    assert_eq!(client.rows("SHOW headwater.use_pyramid"), ["off"]);
    client.exchange(&[parse("kept", "SELECT 1", &[]), sync()]);
    assert_eq!(client.query("DISCARD ALL").last().unwrap(), "Z I");
    assert_eq!(client.rows("SHOW application_name"), [""]);
    assert!(client.exchange(&[describe("S", "kept"), sync()])[0].starts_with("E 26000"));
}
