//! Sessions in time zones, message by message.

use super::raw::{Client, bind, describe, execute, message, parse, sync, texts};
use super::start;
use crate::support::Running;

fn in_zone(server: &Running, zone: &str) -> Client {
    let mut client = Client::connect(server.postgres.unwrap());
    client.begin(&[("user", "ann"), ("database", "plant"), ("TimeZone", zone)]);
    client.ready();
    client
}

#[test]
fn instants_are_told_and_read_by_the_clocks_of_the_session() {
    let server = start(|_| {});
    let mut client = in_zone(&server, "Europe/Berlin");
    assert_eq!(client.rows("SHOW TimeZone"), ["Europe/Berlin"]);
    assert_eq!(
        client.rows("SELECT current_setting('timezone')"),
        ["Europe/Berlin"]
    );
    let times = "SELECT time FROM cars ORDER BY time";
    assert_eq!(
        client.rows(times),
        ["2023-11-14 23:13:20+01", "2023-11-14 23:13:21.123456+01"]
    );
    client.rows("SET nanoseconds = on");
    assert_eq!(
        client.rows(times),
        ["2023-11-14 23:13:20+01", "2023-11-14 23:13:21.123456789+01"]
    );
    client.rows("RESET nanoseconds");
    for (sql, wanted) in [
        (
            "SELECT count(*) FROM cars WHERE time = '2023-11-14 23:13:20'",
            "1",
        ),
        ("SELECT count(*) FROM cars WHERE time >= '2023-11-15'", "0"),
        (
            "SELECT count(*) FROM cars WHERE time = TIMESTAMP '2023-11-14 23:13:20'",
            "1",
        ),
        (
            "SELECT array_agg(time ORDER BY time) FROM cars WHERE id = 'seen'",
            "{\\\"2023-11-14 23:13:20+01\\\"}",
        ),
        (
            "SELECT date_trunc('day', time) FROM cars WHERE id = 'seen'",
            "2023-11-14 00:00:00+01",
        ),
        (
            "SELECT time AT TIME ZONE 'UTC' FROM cars WHERE id = 'seen'",
            "2023-11-14 22:13:20",
        ),
        (
            "SELECT max(time) + interval '200 days' FROM cars WHERE id = 'seen'",
            "2024-06-02 00:13:20+02",
        ),
        // Beside the change of 2024: an hour that is skipped, and one that comes twice.
        (
            "SELECT '2024-03-31 02:30:00'::timestamptz",
            "2024-03-31 03:30:00+02",
        ),
        (
            "SELECT '2024-10-27 02:30:00'::timestamptz",
            "2024-10-27 02:30:00+01",
        ),
        (
            "SELECT '2024-10-27 00:30:00Z'::timestamptz",
            "2024-10-27 02:30:00+02",
        ),
    ] {
        assert_eq!(client.rows(sql), [wanted], "{sql}");
    }
    // Text parameters are read by them too; the binary form knows no zone.
    let told = client.exchange(&[
        parse("", "SELECT time FROM cars WHERE time = $1", &[]),
        bind("", "", 0, &[Some(b"2023-11-14 23:13:20")]),
        describe("P", ""),
        execute("", 0),
        sync(),
    ]);
    assert!(
        told.iter().any(|line| line == "D 2023-11-14 23:13:20+01"),
        "{told:?}"
    );
    let mut utc = in_zone(&server, "UTC");
    let binary = |client: &mut Client| {
        client.exchange(&[
            parse("", times, &[]),
            bind("", "", 1, &[]),
            execute("", 0),
            sync(),
        ])
    };
    assert_eq!(binary(&mut client), binary(&mut utc));
    assert_eq!(utc.rows(times)[0], "2023-11-14 22:13:20+00");
}

#[test]
fn the_zone_changes_as_clients_say() {
    let server = start(|_| {});
    let mut client = in_zone(&server, "Europe/Berlin");
    let at = "SELECT '1970-01-01 00:00:00Z'::timestamptz";
    for (set, told, wanted) in [
        (
            "SET TIME ZONE 'America/New_York'",
            Some("America/New_York"),
            "1969-12-31 19:00:00-05",
        ),
        (
            "SET timezone TO 'asia/kolkata'",
            Some("Asia/Kolkata"),
            "1970-01-01 05:30:00+05:30",
        ),
        (
            "SET TIME ZONE -7",
            Some("<-07>+07"),
            "1969-12-31 17:00:00-07",
        ),
        (
            "SET TIME ZONE LOCAL",
            Some("Europe/Berlin"),
            "1970-01-01 01:00:00+01",
        ),
        (
            "SELECT set_config('TimeZone', 'GMT-2', false)",
            Some("GMT-2"),
            "1970-01-01 02:00:00+02",
        ),
        (
            "RESET TimeZone",
            Some("Europe/Berlin"),
            "1970-01-01 01:00:00+01",
        ),
        (
            "SET SESSION TIME ZONE 'UTC'",
            Some("UTC"),
            "1970-01-01 00:00:00+00",
        ),
        (
            "DISCARD ALL",
            Some("Europe/Berlin"),
            "1970-01-01 01:00:00+01",
        ),
        ("SET TIME ZONE 'Mars'", None, "1970-01-01 01:00:00+01"),
    ] {
        client.send(&[message(b'Q', &texts(&[set]))]);
        let answers = client.ready();
        let status = answers.iter().filter(|a| a.kind == 'S');
        let status: Vec<String> = status
            .map(|a| {
                String::from_utf8_lossy(&a.body)
                    .replace('\0', " ")
                    .trim()
                    .to_owned()
            })
            .filter(|told| told.starts_with("TimeZone "))
            .collect();
        let told: Vec<String> = told.iter().map(|zone| format!("TimeZone {zone}")).collect();
        assert_eq!(status, told, "{set}");
        assert_eq!(client.rows(at), [wanted], "{set}");
    }
    let refused = client.query("SET TIME ZONE '+02:00'");
    assert!(
        refused[0].starts_with("E 22023") && refused[0].contains("timezone"),
        "{refused:?}"
    );
}

#[test]
fn copies_are_by_the_clocks_of_the_session() {
    let server = start(|_| {});
    let mut client = in_zone(&server, "Europe/Berlin");
    client.query("CREATE TABLE c (time TIMESTAMP, id TAG, x DOUBLE)");
    client.send(&[
        message(b'Q', &texts(&["COPY c FROM STDIN"])),
        message(
            b'd',
            b"2024-10-27 02:30:00\ta\t1\n2024-10-27 02:30:00+02\ta\t2\n2024-07-01\ta\t3\n",
        ),
        message(b'c', &[]),
    ]);
    client.ready();
    assert_eq!(
        client.query("COPY (SELECT time, x FROM c ORDER BY time) TO STDOUT"),
        [
            "H",
            "d 2024-07-01 00:00:00+02\\t3\\n",
            "d 2024-10-27 02:30:00+02\\t2\\n",
            "d 2024-10-27 02:30:00+01\\t1\\n",
            "c",
            "C COPY 3",
            "Z I"
        ]
    );
    let mut utc = in_zone(&server, "UTC");
    assert_eq!(
        utc.rows("SELECT time FROM c ORDER BY time"),
        [
            "2024-06-30 22:00:00+00",
            "2024-10-27 00:30:00+00",
            "2024-10-27 01:30:00+00"
        ]
    );
}
