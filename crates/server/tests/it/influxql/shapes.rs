//! Questions of the shapes that dashboards and load generators ask, about ships and about hosts,
//! with the answers that InfluxDB gives to them (`tests/influxql/answers.json`).
//!
//! `HEADWATER_INFLUXDB=http://127.0.0.1:8086` asks an InfluxDB 1.x again, in a database of its own,
//! and writes what it answers.

use super::results;
use crate::read_routes::{encoded, write};
use crate::support::Running;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// The second of the first row, 2024-03-04T00:00:00Z.
const BEGIN: i64 = 1_709_510_400;
const SHIPS: [(&str, &str, &str, &str); 5] = [
    ("aurora", "north", "kim", "tanker"),
    ("brenda", "north", "lou", "ferry"),
    ("castor", "south", "kim", "tanker"),
    ("dorado", "south", "max", "ferry"),
    // Nobody gave it a name.
    ("", "north", "pat", "tug"),
];
const HOSTS: [(&str, &str); 4] = [("h0", "a"), ("h1", "a"), ("h2", "b"), ("h3", "b")];

/// Numbers without order, the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Two days of five ships, a row in ten minutes of each of two measurements, and three hours of
/// four hosts, a row in a minute. Values are eighths and hundredths; some are missing.
fn lines() -> String {
    let mut numbers = Numbers(7);
    let mut lines = String::new();
    for (at, (ship, line, captain, kind)) in SHIPS.into_iter().enumerate() {
        let name = match ship {
            "" => String::new(),
            ship => format!(",ship={ship}"),
        };
        let tags = format!("{name},line={line},captain={captain},kind={kind}");
        for step in 0..2 * 144 {
            let time = (BEGIN + step * 600 + at as i64 * 7) * 1_000_000_000;
            // Under way for hours, then at rest; the second ship all of the first day.
            let moves = (step / (20 + 9 * at as i64)) % 3 != 0 || (at == 1 && step < 140);
            let speed = match moves {
                true => 8 + numbers.below(160),
                false => numbers.below(4),
            };
            let speed = speed as f64 / 8.0;
            let mut fields = format!("speed={speed},lat={}", numbers.below(90));
            if numbers.below(9) > 0 {
                let (burn, usual) = (numbers.below(400) as f64 / 100.0, 2 + at);
                write!(
                    fields,
                    ",burn={burn},usual={usual},lon={}",
                    numbers.below(180)
                )
                .unwrap();
            }
            writeln!(lines, "track{tags} {fields} {time}").unwrap();
            let (load, fuel) = (numbers.below(1_000), numbers.below(100) as f64 / 100.0);
            let capacity = 500 + 100 * at;
            let status = if step / 13 % 5 == at as i64 {
                0
            } else {
                numbers.below(6)
            };
            let fields = format!("load={load},capacity={capacity},fuel={fuel},status={status}");
            writeln!(lines, "state{tags} {fields} {time}").unwrap();
        }
    }
    for (host, room) in HOSTS {
        for minute in 0..180 {
            let mut fields = String::new();
            for field in 0..5 {
                let value = numbers.below(10_000) as f64 / 100.0;
                write!(
                    fields,
                    "{}f{field}={value}",
                    if field > 0 { "," } else { "" }
                )
                .unwrap();
            }
            let time = (BEGIN + minute * 60) * 1_000_000_000;
            writeln!(lines, "load,host={host},room={room} {fields} {time}").unwrap();
        }
    }
    lines
}

/// What is asked. A span of time is written for FROM and TO.
const STATEMENTS: &[&str] = &[
    // About hosts: the greatest in a minute of one, of several, of several fields.
    "SELECT max(f0) FROM load WHERE (host = 'h0') AND SPAN GROUP BY time(1m)",
    "SELECT max(f0) FROM load WHERE (host = 'h0' OR host = 'h1' OR host = 'h3') AND SPAN GROUP BY time(1m)",
    "SELECT max(f0), max(f1), max(f2), max(f3), max(f4) FROM load WHERE (host = 'h2') AND SPAN GROUP BY time(1m)",
    "SELECT max(f0), max(f1), max(f2), max(f3), max(f4) FROM load WHERE (host = 'h2' OR host = 'h0') AND SPAN GROUP BY time(5m)",
    // Means of an hour for each host.
    "SELECT mean(f0) FROM load WHERE SPAN GROUP BY time(1h), host",
    "SELECT mean(f0), mean(f1), mean(f2), mean(f3), mean(f4) FROM load WHERE SPAN GROUP BY time(1h), host",
    "SELECT max(f0), max(f1), max(f2), max(f3), max(f4) FROM load WHERE (host = 'h1') AND SPAN GROUP BY time(1h)",
    "SELECT max(f0), max(f1) FROM load WHERE (host = 'h1' OR host = 'h2') AND SPAN GROUP BY time(1h)",
    "SELECT max(f0) FROM load WHERE time < '2024-03-04T02:13:20Z' GROUP BY time(1m) LIMIT 5",
    "SELECT max(f0) FROM load WHERE SPAN GROUP BY time(1m) ORDER BY time DESC LIMIT 5",
    "SELECT * FROM load GROUP BY host ORDER BY time DESC LIMIT 1",
    "SELECT * FROM load WHERE f0 > 90.0 AND SPAN",
    "SELECT * FROM load WHERE f0 > 90.0 AND SPAN AND (host = 'h2')",
    "SELECT f0, room FROM load WHERE f0 > 95 AND SPAN GROUP BY host",
    "SELECT mean(*) FROM load WHERE SPAN GROUP BY *",
    "SELECT max(/f[01]/) FROM load WHERE SPAN GROUP BY time(1h), room",
    "SELECT count(*) AS n FROM load WHERE SPAN",
    "SELECT top(f0, host, 3) FROM load WHERE SPAN",
    "SELECT bottom(f1, 4) FROM load WHERE SPAN",
    // About ships: where each is, which have little fuel, or too much on board.
    "SELECT ship, captain, lat, lon FROM track WHERE ship != '' GROUP BY ship, captain ORDER BY time DESC LIMIT 1",
    "SELECT lat, lon FROM track WHERE line = 'south' GROUP BY ship, captain ORDER BY time DESC LIMIT 1",
    "SELECT ship, captain, lat, lon FROM track WHERE (ship = 'castor' OR ship = 'aurora') ORDER BY time LIMIT 2",
    "SELECT ship, captain, fuel FROM state WHERE fuel <= 0.1 AND line = 'north' GROUP BY ship ORDER BY time DESC LIMIT 1",
    "SELECT ship, captain, load, capacity FROM (SELECT load, capacity FROM state WHERE line = 'south' GROUP BY ship, captain) WHERE load >= 0.9 * capacity GROUP BY ship ORDER BY time DESC LIMIT 3",
    // At rest in ten minutes; under way for hours.
    "SELECT ship, captain FROM (SELECT mean(speed) AS knots FROM track WHERE DAY GROUP BY time(10m), ship, captain, line LIMIT 1) WHERE line = 'south' AND knots < 1 GROUP BY ship",
    "SELECT ship, captain FROM (SELECT mean(speed) AS knots FROM track WHERE DAY GROUP BY time(10m), ship, captain, line) WHERE line = 'north' AND knots < 0.2 GROUP BY ship",
    "SELECT ship, captain FROM (SELECT count(*) AS spans FROM (SELECT mean(speed) AS knots FROM track WHERE line = 'north' AND DAY GROUP BY time(10m), ship, captain) WHERE knots > 1 GROUP BY ship, captain) WHERE spans_knots > 22",
    "SELECT ship, captain FROM (SELECT count(*) AS spans FROM (SELECT mean(speed) AS knots FROM track WHERE line = 'north' AND DAYS GROUP BY time(10m), ship, captain) WHERE knots > 1 GROUP BY ship, captain) WHERE spans_knots > 160",
    "SELECT mean(burn) AS mean_burn, mean(usual) AS mean_usual FROM track WHERE speed > 1 GROUP BY line",
    "SELECT count(knots) / 6 AS \"hours under way\" FROM (SELECT mean(speed) AS knots FROM track WHERE DAYS GROUP BY time(10m), line, ship, captain) WHERE DAYS GROUP BY time(1d), line, ship, captain",
    "SELECT difference(d), elapsed(d, 1m) FROM (SELECT d FROM (SELECT difference(m) AS d FROM (SELECT floor(mean(speed) / 8) / floor(mean(speed) / 8) AS m FROM track WHERE ship != '' AND DAY GROUP BY time(10m), ship fill(0)) GROUP BY ship) WHERE d != 0 GROUP BY ship) GROUP BY ship",
    "SELECT elapsed FROM (SELECT difference(d), elapsed(d, 1m) FROM (SELECT d FROM (SELECT difference(m) AS d FROM (SELECT floor(mean(speed) / 8) / floor(mean(speed) / 8) AS m FROM track WHERE ship != '' AND DAY GROUP BY time(10m), ship fill(0)) GROUP BY ship) WHERE d != 0 GROUP BY ship) GROUP BY ship) WHERE difference = -2 GROUP BY ship",
    "SELECT mean(part) AS mean_load FROM (SELECT load / capacity AS part FROM state GROUP BY ship, line, kind) GROUP BY line, kind",
    "SELECT count(s) / 144 FROM (SELECT mean(status) AS s FROM state WHERE DAYS GROUP BY time(10m), kind, line) WHERE DAYS AND s < 1 GROUP BY time(1d), kind, line",
    "SELECT count(changed) FROM (SELECT difference(down) AS changed FROM (SELECT floor(2 * (sum(nzs) / count(nzs))) / floor(2 * (sum(nzs) / count(nzs))) AS down FROM (SELECT kind, status / status AS nzs FROM state WHERE DAYS) WHERE DAYS GROUP BY time(10m), kind) GROUP BY kind) WHERE changed = 1 GROUP BY kind",
    // Tags alone, from two levels.
    "SELECT ship FROM (SELECT ship, knots FROM (SELECT mean(speed) AS knots FROM track WHERE DAYS GROUP BY ship)) WHERE knots < 9",
    "SELECT captain FROM (SELECT mean(speed) AS knots FROM track WHERE DAYS GROUP BY ship, captain) WHERE knots > 7 GROUP BY ship",
];

fn written(statement: &str) -> String {
    let span = "time >= '2024-03-04T00:20:00Z' AND time < '2024-03-04T02:20:00Z'";
    let day = "time > '2024-03-04T00:00:00Z' AND time <= '2024-03-04T23:00:00Z'";
    let days = "time >= '2024-03-04T00:00:00Z' AND time < '2024-03-06T00:00:00Z'";
    let statement = statement.replace("SPAN", span).replace("DAYS", days);
    statement.replace("DAY", day)
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/influxql/answers.json")
}

/// Asks an InfluxDB, and keeps what it answers.
fn record(url: &str) -> Vec<(String, Value)> {
    let post = |path: String, body: &str| {
        let mut answer = ureq::post(format!("{url}{path}"))
            .config()
            .http_status_as_error(false)
            .build()
            .send(body)
            .unwrap();
        answer.body_mut().read_to_string().unwrap()
    };
    let named = |q: &str| format!("/query?db=shapes&epoch=s&q={}", encoded(q));
    post(named("DROP DATABASE shapes"), "");
    post(named("CREATE DATABASE shapes"), "");
    let told = post("/write?db=shapes".to_owned(), &lines());
    assert_eq!(told, "");
    let answers = STATEMENTS.iter().map(|statement| {
        let told: Value = serde_json::from_str(&post(named(&written(statement)), "")).unwrap();
        ((*statement).to_owned(), told["results"][0].clone())
    });
    let answers: Vec<(String, Value)> = answers.collect();
    let mut text = String::from("[\n");
    for (at, (statement, answer)) in answers.iter().enumerate() {
        let comma = if at + 1 < answers.len() { "," } else { "" };
        writeln!(text, "{}{comma}", json!([statement, answer["series"]])).unwrap();
    }
    text.push_str("]\n");
    std::fs::write(file(), text).unwrap();
    answers
}

/// Rows of one instant in an order of their own: InfluxDB has them in any.
fn settled(series: &Value) -> Value {
    let mut series = series.clone();
    for one in series.as_array_mut().into_iter().flatten() {
        if let Some(rows) = one["values"].as_array_mut() {
            for rows in rows.chunk_by_mut(|a, b| a[0] == b[0]) {
                rows.sort_by_key(Value::to_string);
            }
        }
    }
    series
}

/// Values that are the same, but for the last digits of what is computed.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (a, b) => a == b,
    }
}

#[test]
fn questions_of_known_shapes_have_the_answers_that_influxdb_gives() {
    if let Ok(url) = std::env::var("HEADWATER_INFLUXDB") {
        record(&url);
    }
    let kept: Vec<(String, Value)> =
        serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
    let asked: Vec<&str> = kept
        .iter()
        .map(|(statement, _)| statement.as_str())
        .collect();
    assert_eq!(asked, STATEMENTS, "ask InfluxDB again, as the head says");
    let server = Running::start();
    let (status, told) = write(&server, &lines());
    assert_eq!(status, 204, "{told}");
    let mut wrong = Vec::new();
    let mut found = 0;
    for (statement, expected) in &kept {
        let result = results(&server, &written(statement)).remove(0);
        found += usize::from(expected.is_array());
        if !same(&settled(&result["series"]), &settled(expected)) {
            let cut = |value: &Value| value.to_string().chars().take(700).collect::<String>();
            wrong.push(format!(
                "{statement}\n  ours {}\n  InfluxDB {}",
                cut(&result),
                cut(expected)
            ));
        }
    }
    assert!(
        found > STATEMENTS.len() * 4 / 5,
        "most find something: {found}"
    );
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
