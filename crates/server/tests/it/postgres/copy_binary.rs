//! `COPY` in the binary form, message by message.

use super::raw::{Answer, Client, lines, message, texts};
use super::{session, start};

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// 2023-11-14T22:13:20Z in microseconds since 2000.
const INSTANT_US: i64 = 1_700_000_000_000_000 - 946_684_800_000_000;

/// A row of fields.
fn row(fields: &[Option<&[u8]>]) -> Vec<u8> {
    let mut bytes = (fields.len() as i16).to_be_bytes().to_vec();
    for field in fields {
        match field {
            None => bytes.extend((-1i32).to_be_bytes()),
            Some(field) => {
                bytes.extend((field.len() as i32).to_be_bytes());
                bytes.extend(*field);
            }
        }
    }
    bytes
}

/// Sends a copy in, cut into messages of so many bytes.
fn copy_in(client: &mut Client, sql: &str, data: &[u8], step: usize) -> Vec<Answer> {
    let mut messages = vec![message(b'Q', &texts(&[sql]))];
    messages.extend(data.chunks(step).map(|part| message(b'd', part)));
    messages.push(message(b'c', &[]));
    client.send(&messages);
    client.ready()
}

fn data_of(answers: &[Answer]) -> Vec<u8> {
    let data = answers.iter().filter(|a| a.kind == 'd');
    data.flat_map(|a| a.body.clone()).collect()
}

#[test]
fn rows_go_out_and_come_in_as_bytes() {
    let server = start(|_| {});
    let mut client = session(&server);
    client.send(&[message(
        b'Q',
        &texts(&["COPY (SELECT time, id, speed, laps, name, ok, n, raw FROM cars ORDER BY time) TO STDOUT (FORMAT binary)"]),
    )]);
    let answers = client.ready();
    // All columns are announced as binary.
    let told = answers.iter().find(|a| a.kind == 'H').unwrap();
    let wanted = [&[1, 0, 8][..], &[0, 1].repeat(8)].concat();
    assert_eq!(told.body, wanted);
    let numeric: &[u8] = &[0, 1, 0, 0, 0, 0, 0, 0, 0, 3];
    let seen = row(&[
        Some(&INSTANT_US.to_be_bytes()),
        Some(b"seen"),
        Some(&1.5f64.to_be_bytes()),
        Some(numeric),
        Some(b"x"),
        Some(&[1]),
        Some(&4i64.to_be_bytes()),
        None,
    ]);
    let other = row(&[
        Some(&(INSTANT_US + 1_123_456).to_be_bytes()),
        Some(b"other"),
        Some(&2.5f64.to_be_bytes()),
        None,
        None,
        None,
        None,
        Some(&[0, 255]),
    ]);
    let written = [HEADER, &seen, &other, b"\xff\xff"].concat();
    assert_eq!(data_of(&answers), written);

    // The same bytes come in again, however they are cut.
    for (table, step) in [("a", 1), ("b", 7), ("c", 10_000)] {
        client.query(&format!("CREATE TABLE {table} (time TIMESTAMP, id TAG, speed DOUBLE, laps BIGINT UNSIGNED, name TEXT, ok BOOLEAN, n BIGINT, raw BYTEA)"));
        let answers = copy_in(
            &mut client,
            &format!("COPY {table} FROM STDIN BINARY"),
            &written,
            step,
        );
        let told = answers.iter().find(|a| a.kind == 'G').unwrap();
        assert_eq!(told.body, wanted);
        assert_eq!(lines(&answers).last().unwrap(), "Z I");
        assert!(
            lines(&answers).contains(&"C COPY 2".to_owned()),
            "{:?}",
            lines(&answers)
        );
        assert_eq!(
            client.rows(&format!("SELECT * FROM {table} ORDER BY time")),
            [
                "2023-11-14 22:13:20+00|seen|1.5|3|x|t|4|NULL",
                "2023-11-14 22:13:21.123456+00|other|2.5|NULL|NULL|NULL|NULL|\\\\x00ff"
            ]
        );
    }
    // Narrower types, as a query gives them, and no rows at all.
    client.send(&[message(
        b'Q',
        &texts(&[
            "COPY (SELECT 7::smallint, 8::int, 1.5::real, 'x'::text WHERE 1 = 1) TO STDOUT BINARY",
        ]),
    )]);
    let narrow = row(&[
        Some(&[0, 7]),
        Some(&[0, 0, 0, 8]),
        Some(&1.5f32.to_be_bytes()),
        Some(b"x"),
    ]);
    assert_eq!(
        data_of(&client.ready()),
        [HEADER, &narrow, b"\xff\xff"].concat()
    );
    client.send(&[message(
        b'Q',
        &texts(&["COPY (SELECT id FROM cars WHERE id = 'nobody') TO STDOUT BINARY"]),
    )]);
    assert_eq!(data_of(&client.ready()), [HEADER, b"\xff\xff"].concat());
}

#[test]
fn a_binary_copy_that_fails_names_row_and_column_and_stores_nothing() {
    let server = start(|settings| settings.body_max = 10_000);
    let mut client = session(&server);
    client.query("CREATE TABLE c (time TIMESTAMP, id TAG, x DOUBLE, n BIGINT UNSIGNED)");
    let good = row(&[
        Some(&INSTANT_US.to_be_bytes()),
        Some(b"a"),
        Some(&1.0f64.to_be_bytes()),
        None,
    ]);
    let time = INSTANT_US.to_be_bytes();
    let long = vec![b'x'; 20_000];
    for (second, error, told) in [
        (
            row(&[Some(&time), Some(b"a")]),
            "E 22P04",
            "row 2: expected 4 fields, found 2",
        ),
        (
            row(&[Some(&time), Some(b"a"), Some(&[0, 7]), None]),
            "E 22P03",
            "row 2: column x: incorrect binary data format: 2 bytes; float8 has 8",
        ),
        (
            row(&[Some(&[0; 4]), Some(b"a"), None, None]),
            "E 22P03",
            "row 2: column time",
        ),
        (
            row(&[Some(&i64::MAX.to_be_bytes()), Some(b"a"), None, None]),
            "E 22008",
            "row 2: column time",
        ),
        (
            row(&[Some(&time), Some(b"\xff"), None, None]),
            "E 22021",
            "row 2: column id",
        ),
        // 1.5 and -3
        (
            row(&[
                Some(&time),
                Some(b"a"),
                None,
                Some(&[0, 2, 0, 0, 0, 0, 0, 1, 0, 1, 0x13, 0x88]),
            ]),
            "E 22003",
            "row 2: column n: 1.5",
        ),
        (
            row(&[
                Some(&time),
                Some(b"a"),
                None,
                Some(&[0, 1, 0, 0, 0x40, 0, 0, 0, 0, 3]),
            ]),
            "E 22003",
            "row 2: column n: -3",
        ),
        (
            row(&[None, Some(b"a"), None, None]),
            "E 22023",
            "`time` cannot be NULL",
        ),
        (
            row(&[Some(&time), Some(&long), None, None]),
            "E 22P04",
            "row 2: the row has more than 10000 bytes",
        ),
        (
            vec![0, 4, 0],
            "E 22P04",
            "row 2: the data ends inside the row",
        ),
        (
            vec![255, 255, 0],
            "E 22P04",
            "there is data after the trailer",
        ),
    ] {
        let data = [HEADER, &good, &second].concat();
        for step in [5, 9_000] {
            let answer = lines(&copy_in(
                &mut client,
                "COPY c FROM STDIN BINARY",
                &data,
                step,
            ));
            assert!(
                answer[1].starts_with(error) && answer[1].contains(told),
                "{told}: {answer:?}"
            );
            assert_eq!(answer[2], "Z I");
        }
        assert_eq!(client.rows("SELECT count(*) FROM c"), ["0"], "{told}");
    }
    for (data, told) in [
        (&b"2024-01-01\ta\t1\t\\N\n"[..], "E 22P04"),
        (b"PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0", "E 0A000"),
        (b"", "E 22P04"),
    ] {
        let answer = lines(&copy_in(&mut client, "COPY c FROM STDIN BINARY", data, 100));
        assert!(answer[1].starts_with(told), "{answer:?}");
    }
    let answer = client.query("COPY c FROM STDIN (FORMAT binary, HEADER)");
    assert!(answer[0].starts_with("E 42601"), "{answer:?}");
    // The session goes on.
    let data = [HEADER, &good, b"\xff\xff"].concat();
    copy_in(&mut client, "COPY c FROM STDIN BINARY", &data, 100);
    assert_eq!(client.rows("SELECT count(*) FROM c"), ["1"]);
}
