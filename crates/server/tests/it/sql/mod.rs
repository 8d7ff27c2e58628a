//! SQL over HTTP: requests, answers, limits, and who sees what.

mod rules;

use crate::support::{Running, client, json};
use headwater::{Batch, Database, StreamName, Values};
use headwater_server::Settings;
use headwater_testing::until;
use serde_json::{Value, json as value};
use std::io::{Read, Write};

pub(super) const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

/// A server with two cars that tell their speed each second for a while.
fn serve(rows: i64, change: impl FnOnce(&mut Settings)) -> Running {
    Running::start_with(|settings| {
        let db = Database::open(settings.engine.clone()).unwrap();
        let mut batch = Batch::new();
        for car in ["a", "b"] {
            let stream = batch.stream(&StreamName::new("obd", [("car", car)]));
            stream.times = (0..rows).map(|k| START + k * SECOND).collect();
            let speeds = (0..rows).map(|k| k as f64 / 2.0).collect();
            let odometers = (0..rows).map(|k| 9_007_199_254_740_993 + k).collect();
            let columns = [
                ("speed", Values::F64(speeds)),
                ("odometer", Values::I64(odometers)),
            ];
            for (name, values) in columns {
                let column = headwater::Column::from_values(values);
                stream.fields.push((name.to_owned(), column));
            }
        }
        db.commit(batch).unwrap();
        db.close().unwrap();
        change(settings);
    })
}

struct SqlResponse {
    status: u16,
    kind: String,
    body: Vec<u8>,
}

impl SqlResponse {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// Sends a body of a type to a path.
fn post(server: &Running, path: &str, headers: &[(&str, &str)], body: &str) -> SqlResponse {
    let mut request = client().post(server.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut answer = request.send(body).unwrap();
    SqlResponse {
        status: answer.status().as_u16(),
        kind: answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned(),
        body: answer.body_mut().read_to_vec().unwrap(),
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn query(server: &Running, sql: &str) -> Value {
    let told = post(
        server,
        "/api/v1/sql",
        &[("content-type", "application/sql")],
        sql,
    );
    assert_eq!(told.status, 200, "{sql}: {}", told.text());
    told.json()
}

#[test]
fn a_statement_may_come_as_text_as_json_or_as_a_form() {
    let server = serve(3, |_| {});
    let expected = value!({
        "columns": [{"name": "car", "type": "string"}, {"name": "n", "type": "i64"}],
        "rows": [["a", 3], ["b", 3]],
    });
    let sql = "SELECT car, count(*) AS n FROM obd GROUP BY car ORDER BY car";
    let encoded = sql
        .replace(' ', "+")
        .replace('*', "%2A")
        .replace(',', "%2C");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for (path, headers, body) in [
        (
            "/api/v1/sql",
            &[("content-type", "application/sql")][..],
            sql.to_owned(),
        ),
        (
            "/api/v1/sql",
            &[("content-type", "text/plain; charset=utf-8")],
            format!("{sql};\n"),
        ),
        ("/api/v1/sql", &[JSON], value!({ "sql": sql }).to_string()),
        ("/api/v1/sql", &form, format!("q={encoded}&format=json")),
        // As curl sends any text.
        ("/api/v1/sql", &form, sql.to_owned()),
        (&*format!("/api/v1/sql?q={encoded}"), &[], String::new()),
    ] {
        let told = post(&server, path, headers, &body);
        assert_eq!(told.status, 200, "{body}: {}", told.text());
        assert_eq!(told.json(), expected, "{path} {body}");
    }
}

#[test]
fn numbers_and_times_are_exact() {
    let server = serve(3, |_| {});
    let sql = "SELECT time, odometer, speed FROM obd WHERE car = 'a' ORDER BY time";
    let told = post(&server, "/api/v1/sql", &[], sql);
    assert_eq!(told.kind, "application/json");
    assert!(told.text().contains("9007199254740993"), "{}", told.text());
    assert_eq!(
        told.json()["rows"][1],
        value!(["2023-11-14T22:13:21Z", 9_007_199_254_740_994i64, 0.5])
    );
    let told = post(&server, "/api/v1/sql?time=ns", &[], sql);
    assert_eq!(
        told.json()["rows"][1][0],
        value!((START + SECOND).to_string())
    );
    let told = post(&server, "/api/v1/sql?format=csv&time=ns", &[], sql);
    assert_eq!(told.kind, "text/csv; charset=utf-8");
    assert_eq!(
        told.text().lines().nth(1).unwrap(),
        format!("{START},9007199254740993,0.0")
    );
}

#[test]
fn parameters_take_the_places_of_their_numbers() {
    let server = serve(10, |_| {});
    let sql = "SELECT count(*) FROM obd WHERE car = $1 AND time >= $2 AND speed < $3";
    let body = value!({ "sql": sql, "parameters": ["a", "2023-11-14T22:13:22Z", 4] });
    let told = post(&server, "/api/v1/sql", &[JSON], &body.to_string());
    assert_eq!(told.status, 200, "{}", told.text());
    assert_eq!(told.json()["rows"], value!([[6]]));
    for parameters in [
        value!(["a"]),
        value!(["a", "some day", 4]),
        value!([[1], 2, 3]),
    ] {
        let body = value!({ "sql": sql, "parameters": parameters });
        let told = post(&server, "/api/v1/sql", &[JSON], &body.to_string());
        assert_eq!(told.status, 400, "{parameters}: {}", told.text());
    }
}

/// The rows that a statement gives with these parameters, as they are written, or what was wrong.
fn with_parameters(server: &Running, sql: &str, parameters: &str) -> Result<Value, String> {
    let body = format!("{{\"sql\": {}, \"parameters\": {parameters}}}", value!(sql));
    let told = post(server, "/api/v1/sql", &[JSON], &body);
    match told.status {
        200 => Ok(told.json()["rows"].clone()),
        400 => Err(told.text().to_owned()),
        status => panic!("{parameters}: {status} {}", told.text()),
    }
}

#[test]
fn parameters_keep_their_digits() {
    let server = serve(10, |_| {});
    for number in [
        "123456789012345678901234567890",
        "-123456789012345678901234567890",
        "0.123456789012345678901234567891",
        "18446744073709551615",
        "9007199254740993",
    ] {
        let wanted = number.to_owned();
        let told = with_parameters(&server, "SELECT CAST($1 AS TEXT)", &format!("[{number}]"));
        assert_eq!(told, Ok(value!([[wanted]])), "{number}");
    }
    let half = with_parameters(&server, "SELECT $1 * 2", "[ 0.25 ]");
    assert_eq!(half, Ok(value!([[0.5]])));
    let long = format!("[\"x\", {}]", "9".repeat(90));
    let refused = with_parameters(&server, "SELECT $1, $2", &long).unwrap_err();
    assert!(refused.contains("parameter $2 has 90 digits"), "{refused}");
    let endless = with_parameters(
        &server,
        "SELECT 1 FROM obd WHERE time < $1",
        "[\"infinity\"]",
    );
    assert!(endless.unwrap_err().contains("found infinity"));
}

#[test]
fn parameters_may_be_lists() {
    let server = serve(10, |_| {});
    let all = with_parameters(
        &server,
        "SELECT count(*) FROM obd WHERE car = ANY($1)",
        "[[\"a\", \"b\"]]",
    );
    assert_eq!(all, Ok(value!([[20]])));
    let sql = "SELECT count(*) FROM obd WHERE speed = ANY($1) AND speed <> ALL($2)";
    for (lists, wanted) in [
        ("[[0, 1.0, 2, null], [1, 7]]", 4),
        ("[[0, 1], []]", 4),
        ("[[], [1]]", 0),
    ] {
        assert_eq!(
            with_parameters(&server, sql, lists),
            Ok(value!([[wanted]])),
            "{lists}"
        );
    }
    for wrong in [
        "[[1, \"a\"], []]",
        "[[[1]], []]",
        "[{}, []]",
        "[[true, 1], []]",
        "[[0.5, 9007199254740993], []]",
    ] {
        let refused = with_parameters(&server, sql, wrong).unwrap_err();
        assert!(refused.contains("parameter $1"), "{wrong}: {refused}");
    }
}

#[test]
fn parameters_that_nothing_reads_are_taken() {
    let server = serve(10, |_| {});
    let sql = "WITH a AS (SELECT $1) SELECT $2 + 1";
    assert_eq!(with_parameters(&server, sql, "[1, 2]"), Ok(value!([[3]])));
    let few = with_parameters(&server, sql, "[1]").unwrap_err();
    assert!(
        few.contains("the statement has 2 parameters, but 1 values were given"),
        "{few}"
    );
}

#[test]
fn arrow_and_parquet_are_chosen_by_accept_or_by_name() {
    use headwater_query::arrow::{array::RecordBatch, compute::concat_batches};
    let server = serve(20_000, |_| {});
    let sql = "SELECT time, car, odometer FROM obd";
    let arrow = [("accept", "application/vnd.apache.arrow.stream")];
    let told = post(&server, "/api/v1/sql", &arrow, sql);
    assert_eq!(told.kind, arrow[0].1);
    let reader = arrow::ipc::reader::StreamReader::try_new(&told.body[..], None).unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let whole = concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_eq!((whole.num_rows(), whole.num_columns()), (40_000, 3));
    let told = post(&server, "/api/v1/sql?format=parquet", &arrow, sql);
    assert_eq!(told.kind, "application/vnd.apache.parquet");
    let bytes = axum::body::Bytes::from(told.body);
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes);
    assert_eq!(
        reader.unwrap().metadata().file_metadata().num_rows(),
        40_000
    );
}

#[test]
fn an_answer_in_json_says_when_it_was_cut() {
    let server = serve(20_000, |_| {});
    let cut = |most: u64| {
        let body = value!({ "sql": "SELECT speed FROM obd", "rows_max": most });
        post(&server, "/api/v1/sql", &[JSON], &body.to_string()).json()
    };
    for (most, rows, more) in [
        (0, 0, value!(true)),
        (10_000, 10_000, value!(true)),
        (39_999, 39_999, value!(true)),
        (40_000, 40_000, Value::Null),
    ] {
        let answer = cut(most);
        assert_eq!(answer["rows"].as_array().unwrap().len(), rows);
        assert_eq!(answer["more"], more, "{most}");
    }
    let told = post(
        &server,
        "/api/v1/sql?format=csv&rows_max=3",
        &[],
        "SELECT 1",
    );
    assert_eq!(
        (told.status, &told.json()["code"]),
        (400, &value!("E_INVALID"))
    );
}

#[test]
fn mistakes_have_a_code_a_place_and_advice() {
    let server = serve(3, |_| {});
    for (sql, status, code, place) in [
        (
            "SELECT spede\nFROM obd",
            400,
            "unknown_column",
            Some((1, 8)),
        ),
        (
            "SELECT 1;\n  SELECT * FROM odb",
            400,
            "unknown_table",
            Some((2, 17)),
        ),
        ("SELECT 1;\nSELEC 2", 400, "syntax_error", Some((2, 1))),
        (
            "UPDATE obd SET speed = 1",
            400,
            "unsupported_statement",
            None,
        ),
        ("SELECT 1 / 0", 400, "division_by_zero", None),
    ] {
        let told = post(&server, "/api/v1/sql", &[], sql);
        let error = told.json();
        assert_eq!(
            (told.status, error["code"].as_str()),
            (status, Some(code)),
            "{sql}: {error}"
        );
        assert!(!error["message"].as_str().unwrap().is_empty());
        assert_eq!(error["sqlstate"].as_str().unwrap().len(), 5);
        if let Some((line, column)) = place {
            assert_eq!(
                (&error["line"], &error["column"]),
                (&value!(line), &value!(column)),
                "{sql}: {error}"
            );
        }
    }
    let error = post(&server, "/api/v1/sql", &[], "SELECT spede FROM obd").json();
    assert!(error["hint"].as_str().unwrap().contains("speed"), "{error}");
}

#[test]
fn requests_that_are_none_are_refused() {
    let server = serve(3, |_| {});
    for (path, headers, body) in [
        ("/api/v1/sql", &[][..], ""),
        ("/api/v1/sql", &[], " -- nothing\n;"),
        ("/api/v1/sql", &[JSON], "{"),
        (
            "/api/v1/sql",
            &[JSON],
            "{\"sql\":\"SELECT 1\",\"params\":[]}",
        ),
        (
            "/api/v1/sql",
            &[JSON],
            "{\"sql\":\"SELECT 1; SELECT $1\",\"parameters\":[1]}",
        ),
    ] {
        let told = post(&server, path, headers, body);
        assert_eq!(
            (told.status, &told.json()["code"]),
            (400, &value!("E_INVALID")),
            "{body}"
        );
    }
    for path in [
        "/api/v1/sql?format=xml",
        "/api/v1/sql?time=days",
        "/api/v1/sql?x=1",
        "/api/v1/sql?rows_max=-1",
    ] {
        let told = post(&server, path, &[], "SELECT 1");
        assert_eq!(
            (told.status, &told.json()["code"]),
            (400, &value!("E_PARAMETER")),
            "{path}"
        );
    }
    let long = format!("SELECT '{}'", "x".repeat(2 << 20));
    assert_eq!(post(&server, "/api/v1/sql", &[], &long).status, 413);
    assert_eq!(
        client()
            .get(server.url("/api/v1/sql"))
            .call()
            .unwrap()
            .status(),
        405
    );
}

#[test]
fn statements_change_what_is_stored() {
    let server = serve(3, |_| {});
    let done = |word: &str, count: Value| value!([[word, count]]);
    let create = "CREATE TABLE room (time TIMESTAMP, door TAG, temp DOUBLE)";
    assert_eq!(query(&server, create)["rows"], done("created", Value::Null));
    let insert = "INSERT INTO room (time, door, temp) VALUES ('2024-01-01T00:00:00Z', 'k', 20.5), ('2024-01-01T00:00:01Z', 'k', 21)";
    assert_eq!(query(&server, insert)["rows"], done("inserted", value!(2)));
    let rows = query(&server, "SELECT time, door, temp FROM room ORDER BY time");
    assert_eq!(
        rows["rows"],
        value!([
            ["2024-01-01T00:00:00Z", "k", 20.5],
            ["2024-01-01T00:00:01Z", "k", 21.0]
        ])
    );
    let delete = "DELETE FROM room WHERE time < '2024-01-01T00:00:01Z'";
    assert_eq!(query(&server, delete)["rows"], done("deleted", value!(1)));
    // The other doors see it too; of several statements the last one is answered.
    let last = client()
        .get(server.url("/api/v1/last?stream=room,door%3Dk"))
        .call();
    let last = json(&mut last.unwrap());
    assert_eq!(last["streams"][0]["fields"]["temp"]["value"], 21.0);
    let rows = query(&server, "DROP TABLE room; SELECT count(*) FROM obd;");
    assert_eq!(rows["rows"], value!([[6]]));
    let told = post(&server, "/api/v1/sql", &[], "SELECT * FROM room");
    assert_eq!(told.json()["code"], "unknown_table");
}

/// Works longer than anybody waits, and needs little memory.
const ENDLESS: &str = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000000)";

#[test]
fn a_statement_ends_with_its_time() {
    let server = serve(3, |s| s.sql_timeout = std::time::Duration::from_secs(2));
    let told = post(&server, "/api/v1/sql", &[], ENDLESS);
    assert_eq!(
        (told.status, &told.json()["code"]),
        (503, &value!("time_limit")),
        "{}",
        told.text()
    );
    assert_eq!(query(&server, "SELECT 1")["rows"], value!([[1]]));
}

/// Both settings stand at half a minute unless somebody changes them.
#[test]
fn a_statement_that_takes_too_long_says_so_itself_whichever_time_is_over() {
    let time = |seconds| std::time::Duration::from_secs(seconds);
    // Looks back at what it has matched, for each row that a match may begin at.
    let pattern = "SELECT count(*) FROM (SELECT to_timestamp(g.value) AS time, g.value AS n FROM generate_series(1, 300000) g) \
                   MATCH_RECOGNIZE (ORDER BY time MEASURES count(*) AS c PATTERN (A B+ C) DEFINE B AS n > LAST(A.n), C AS avg(B.n) < 0)";
    for (request, statement, setting) in [
        // A session may have a shorter time than the server's, which has no name.
        (1, 1, ""),
        (30, 1, ""),
        (1, 30, "request.timeout"),
    ] {
        let server = serve(3, |s| {
            (s.request_timeout, s.sql_timeout) = (time(request), time(statement));
        });
        for sql in [ENDLESS, pattern] {
            let told = post(&server, "/api/v1/sql", &[], sql);
            let answer = told.json();
            assert_eq!(
                (told.status, &answer["code"]),
                (503, &value!("time_limit")),
                "{answer}"
            );
            if !setting.is_empty() {
                let hint = answer["hint"].as_str().unwrap();
                assert!(hint.contains(setting), "{setting}: {answer}");
            }
        }
        assert_eq!(query(&server, "SELECT 1")["rows"], value!([[1]]));
    }
}

#[test]
fn a_statement_keeps_to_its_memory() {
    let server = serve(60_000, |s| s.sql_memory = 1 << 20);
    let sql = "SELECT speed, odometer FROM obd ORDER BY speed, odometer DESC";
    let told = post(&server, "/api/v1/sql", &[], sql);
    assert_eq!(
        (told.status, &told.json()["code"]),
        (400, &value!("memory_limit")),
        "{}",
        told.text()
    );
    assert_eq!(
        query(&server, "SELECT count(*) FROM obd")["rows"],
        value!([[120_000]])
    );
}

#[test]
fn an_answer_that_fails_on_its_way_breaks_off_and_says_why_in_json() {
    let server = serve(3, |_| {});
    let sql = "SELECT 1 / (50000 - value) FROM generate_series(1, 60000)";
    for (format, says_why) in [("json", true), ("csv", false)] {
        let mut connection = std::net::TcpStream::connect(server.addr).unwrap();
        let request = format!(
            "POST /api/v1/sql?format={format} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{sql}",
            sql.len()
        );
        connection.write_all(request.as_bytes()).unwrap();
        let mut told = Vec::new();
        // However the connection ends, it ends.
        let _ = connection.read_to_end(&mut told);
        let told = String::from_utf8_lossy(&told);
        assert!(told.starts_with("HTTP/1.1 200"), "{format}: {told:.300}");
        assert!(
            !told.ends_with("\r\n0\r\n\r\n"),
            "{format}: the transfer looks whole"
        );
        let why = "],\"error\":{\"code\":\"division_by_zero\"";
        assert_eq!(
            told.contains(why),
            says_why,
            "{format}: …{}",
            &told[told.len() - 400..]
        );
    }
}

#[test]
fn a_statement_ends_when_its_asker_goes() {
    let server = serve(3_000, |s| s.sql_statements_max = 1);
    // One that streams, and one that computes before its first row.
    let endless_rows = "SELECT a.speed, b.speed FROM obd a, obd b";
    for (sql, reads) in [(endless_rows, true), (ENDLESS, false)] {
        let ask = || {
            let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
            let limit = Some(std::time::Duration::from_secs(20));
            stream.set_read_timeout(limit).unwrap();
            let head = format!(
                "POST /api/v1/sql?format=csv HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{sql}",
                server.addr,
                sql.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let mut askers = vec![ask()];
        if reads {
            let mut first = [0; 1000];
            askers[0].read_exact(&mut first).unwrap();
            assert!(first.starts_with(b"HTTP/1.1 200"));
        } else {
            // Until it runs, and nobody else may. One that sends what is not read would give its
            // place away.
            until("the only place is taken", || {
                let is_taken = post(&server, "/api/v1/sql", &[], "SELECT 1").status == 503;
                if !is_taken {
                    // This statement had the place, and the other may have been sent away for it.
                    askers.push(ask());
                }
                is_taken
            });
        }
        drop(askers);
        until(&format!("{sql} ends, whose asker is gone"), || {
            post(&server, "/api/v1/sql", &[], "SELECT 1").status == 200
        });
    }
}

/// More statements than the server has threads for requests compute all the time; others are
/// answered as if there were none.
#[test]
fn other_requests_do_not_wait_for_statements() {
    let server = serve(3_000, |s| {
        s.sql_statements_max = 4;
        s.sql_timeout = std::time::Duration::from_secs(3_600);
        s.request_timeout = std::time::Duration::from_secs(3_600);
    });
    let asker = || {
        let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
        let head = format!(
            "POST /api/v1/sql HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{ENDLESS}",
            server.addr,
            ENDLESS.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut askers: Vec<std::net::TcpStream> = (0..4).map(|_| asker()).collect();
    until("the statements run", || {
        let is_full = post(&server, "/api/v1/sql", &[], "SELECT 1").status == 503;
        if !is_full {
            // This statement had a place itself, and one of the others may have been sent away for
            // it.
            askers.push(asker());
        }
        is_full
    });
    for _ in 0..20 {
        assert_eq!(
            client().get(server.url("/ping")).call().unwrap().status(),
            204
        );
        let last = client()
            .get(server.url("/api/v1/last?stream=obd,car%3Da"))
            .call();
        assert_eq!(last.unwrap().status(), 200);
    }
    drop(askers);
}
