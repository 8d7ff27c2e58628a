//! How questions come and how answers are written.

use crate::read_routes::{START, cars, encoded, get, serve};
use crate::support::{Running, client};
use headwater::Database;
use serde_json::{Value, json};

#[test]
fn times_have_the_unit_asked_for() {
    let server = serve(cars);
    let q = encoded("SELECT speed FROM obd WHERE car = 'a' LIMIT 1 OFFSET 1");
    let time = |more: &str| {
        let (status, body) = get(&server, &format!("/query?q={q}{more}"));
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        body["results"][0]["series"][0]["values"][0][0].clone()
    };
    let at = START + 1_000_000_000;
    assert_eq!(time(""), json!("2023-11-14T22:13:21Z"));
    for (unit, ns) in [
        ("ns", 1),
        ("u", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ] {
        assert_eq!(time(&format!("&epoch={unit}")), json!(at / ns), "{unit}");
    }
}

/// Programs that have no values send `null`, or nothing.
#[test]
fn no_parameters_are_no_values() {
    let server = serve(cars);
    let q = encoded("SHOW MEASUREMENTS");
    for params in ["null", "", "{}", "%20null"] {
        let (status, body) = get(&server, &format!("/query?db=d&params={params}&q={q}"));
        assert_eq!(status, 200, "{params}: {body}");
    }
}

/// An answer is as long as the rows are many, in parts and at once.
#[test]
fn rows_in_parts_are_as_many_as_there_are() {
    let server = Running::start_with(|settings| {
        settings.query_memory = 1 << 20;
        let db = Database::open(settings.engine.clone()).unwrap();
        cars(&db);
        db.close().unwrap();
    });
    let fields = "speed, ".repeat(200);
    let q = encoded(&format!("SELECT {fields}gear FROM obd"));
    let (_, whole) = get(&server, &format!("/query?q={q}"));
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let whole = whole["results"][0]["series"][0]["values"]
        .as_array()
        .unwrap()
        .len();
    let (status, parts) = get(
        &server,
        &format!("/query?q={q}&chunked=true&chunk_size=500"),
    );
    assert_eq!(status, 200);
    let mut rows = 0;
    let count = parts.lines().count();
    for (number, part) in parts.lines().enumerate() {
        let part: Value = serde_json::from_str(part).unwrap();
        let result = &part["results"][0];
        rows += result["series"][0]["values"].as_array().unwrap().len();
        assert_eq!(result["partial"] == true, number + 1 < count);
    }
    let all = get(
        &server,
        &format!("/query?q={}", encoded("SELECT count(*) FROM obd")),
    )
    .1;
    let all: Value = serde_json::from_str(&all).unwrap();
    let speeds = &all["results"][0]["series"][0]["values"][0][3];
    assert_eq!(json!(whole), *speeds, "{all}");
    assert_eq!(json!(rows), *speeds, "{all}");
    // What is wrong with a question is said before it begins.
    let (status, body) = get(&server, "/query?q=SELECT%20v&chunked=true");
    assert_eq!(status, 400, "{body}");
}

#[test]
fn answers_come_whole_in_parts_pretty_or_as_csv() {
    let server = serve(cars);
    let q = encoded("SELECT speed, car FROM obd LIMIT 5; SHOW DATABASES");
    let (_, parts) = get(
        &server,
        &format!("/query?q={q}&chunked=true&chunk_size=2&epoch=s"),
    );
    let parts: Vec<Value> = parts
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let counts: Vec<usize> = parts
        .iter()
        .map(|p| {
            p["results"][0]["series"][0]["values"]
                .as_array()
                .unwrap()
                .len()
        })
        .collect();
    assert_eq!(counts, [2, 2, 1, 1]);
    let partial: Vec<bool> = parts
        .iter()
        .map(|p| p["results"][0]["partial"] == true)
        .collect();
    assert_eq!(partial, [true, true, false, false]);
    assert_eq!(parts[3]["results"][0]["statement_id"], 1);

    let (_, pretty) = get(&server, &format!("/query?q={q}&pretty=true&epoch=s"));
    let (_, plain) = get(&server, &format!("/query?q={q}&epoch=s"));
    assert!(
        pretty.contains("\n    \"results\": [\n        {\n"),
        "{pretty}"
    );
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(read(&pretty), read(&plain));

    let mut answer = client()
        .get(server.url(&format!(
            "/query?q={}",
            encoded("SELECT last(speed) FROM obd GROUP BY car")
        )))
        .header("Accept", "application/csv")
        .call()
        .unwrap();
    assert_eq!(answer.headers()["content-type"], "text/csv; charset=utf-8");
    assert!(
        answer.headers()["x-influxdb-version"]
            .to_str()
            .unwrap()
            .starts_with("headwater-")
    );
    let text = answer.body_mut().read_to_string().unwrap();
    let at = START + 2_999_000_000_000;
    assert_eq!(
        text,
        format!("name,tags,time,last\nobd,car=a,{at},2999\nobd,car=b,{at},2999\n")
    );
}

#[test]
fn questions_come_in_the_address_or_the_body_with_values() {
    let server = serve(cars);
    let text = "SELECT count(speed) FROM obd WHERE car = $car AND speed < $n";
    let params = r#"{"car":"a","n":5}"#;
    let count = |answer: &mut ureq::http::Response<ureq::Body>| {
        let text = answer.body_mut().read_to_string().unwrap();
        let body: Value = serde_json::from_str(&text).unwrap();
        body["results"][0]["series"][0]["values"][0][1].clone()
    };
    let (q, p) = (encoded(text), encoded(params));
    let mut by_get = client()
        .get(server.url(&format!("/query?q={q}&params={p}")))
        .call()
        .unwrap();
    assert_eq!(count(&mut by_get), json!(5));
    let mut by_form = client()
        .post(server.url("/query?db=any"))
        .content_type("application/x-www-form-urlencoded")
        .send(format!("q={q}&params={p}"))
        .unwrap();
    assert_eq!(count(&mut by_form), json!(5));
    let mut by_text = client()
        .post(server.url(&format!("/query?params={p}")))
        .content_type("application/vnd.influxql")
        .send(text)
        .unwrap();
    assert_eq!(count(&mut by_text), json!(5));
}

#[test]
fn bad_questions_are_told_where_clients_look() {
    let server = serve(cars);
    let long = format!("/query?q=SELECT%20{}", "x".repeat(60_000));
    for (path, code, part) in [
        ("/query", "E_PARAMETER", "missing required parameter \"q\""),
        ("/query?q=%20", "E_PARAMETER", "missing required parameter"),
        (
            "/query?q=SELECT",
            "E_PARSE",
            "error parsing query: found EOF, expected identifier, value, ( at line 1, char 7",
        ),
        (long.as_str(), "E_PARSE", "expected FROM"),
        (
            "/query?q=SHOW%20DATABASES&epoch=year",
            "E_PARAMETER",
            "epoch",
        ),
        (
            "/query?q=SHOW%20DATABASES&chunked=true&chunk_size=0",
            "E_PARAMETER",
            "chunk_size",
        ),
        (
            "/query?q=SHOW%20DATABASES&params=[]",
            "E_PARSE",
            "JSON object",
        ),
        ("/query?q=a&q=b", "E_PARAMETER", "repeated"),
    ] {
        let (status, body) = get(&server, path);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, body["code"].as_str()), (400, Some(code)), "{body}");
        assert_eq!(body["error"], body["message"]);
        assert!(body["error"].as_str().unwrap().contains(part), "{body}");
    }
    let (_, body) = get(&server, "/query?q=SELECT%20v%0AFORM");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["line"], &body["column"]),
        (&json!(2), &json!(1)),
        "{body}"
    );
}

/// What Grafana's data source sends: what it lists, and a panel.
#[test]
fn grafana_can_ask() {
    let server = serve(cars);
    let ask = |statement: &str| {
        let mut answer = client()
            .post(server.url("/query?db=plant&epoch=ms"))
            .header("User-Agent", "Grafana")
            .content_type("application/x-www-form-urlencoded")
            .send(format!("q={}", encoded(statement)))
            .unwrap();
        assert_eq!(answer.status(), 200, "{statement}");
        let text = answer.body_mut().read_to_string().unwrap();
        let body: Value = serde_json::from_str(&text).unwrap();
        assert!(body["results"][0]["error"].is_null(), "{statement}: {body}");
        body["results"][0]["series"].clone()
    };
    for (statement, rows) in [
        (r#"SHOW RETENTION POLICIES on "plant""#, 1),
        (
            "SHOW MEASUREMENTS WITH MEASUREMENT =~ /(?i)OB/ LIMIT 100",
            1,
        ),
        (r#"SHOW FIELD KEYS FROM "autogen"."obd""#, 3),
        (r#"SHOW TAG KEYS FROM "obd""#, 1),
        (
            r#"SHOW TAG VALUES FROM "obd" WITH KEY = "car" WHERE "car"::tag =~ /^(a|b)$/ AND time > 1700000000000ms"#,
            2,
        ),
    ] {
        let found = ask(statement);
        assert_eq!(
            found[0]["values"].as_array().map(Vec::len),
            Some(rows),
            "{statement}: {found}"
        );
    }
    let panel = r#"SELECT mean("speed") FROM "autogen"."obd" WHERE ("car"::tag =~ /^(a|b)$/) AND time >= 1700000000000ms and time <= 1700000059999ms GROUP BY time(20s), "car"::tag fill(null) ORDER BY time ASC"#;
    let found = ask(panel);
    assert_eq!(
        found,
        json!([
            {"name": "obd", "tags": {"car": "a"}, "columns": ["time", "mean"], "values": [[1_700_000_000_000i64, 9.5], [1_700_000_020_000i64, 29.5], [1_700_000_040_000i64, 49.5]]},
            {"name": "obd", "tags": {"car": "b"}, "columns": ["time", "mean"], "values": [[1_700_000_000_000i64, 9.5], [1_700_000_020_000i64, 29.5], [1_700_000_040_000i64, 49.5]]},
        ])
    );
    let alias = r#"SELECT non_negative_derivative(max("odometer"), 1s) AS "per second" FROM "obd" WHERE time >= 1700000000000ms AND time < 1700000060000ms GROUP BY time(10s) fill(none)"#;
    assert_eq!(ask(alias)[0]["columns"], json!(["time", "per second"]));
}
