//! The questions of Grafana through a dispatcher before two clouds: what is packaged for it, and
//! what its data source asks to fill lists, has the answers of one node with all rows.

use crate::dispatch::dispatcher;
use crate::fleet::{edge, kill, run, run_against};
use crate::serve::Served;
use crate::support::{Bench, text};
use headwater_testing::{free_port, until};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Rows of an airport: an hour each.
fn lines(origin: &str) -> String {
    let line = |hour: u64| {
        let at = 1_700_000_000 + hour * 3_600;
        let temp = (hour * 7 + origin.len() as u64) % 50;
        format!("weather,origin={origin} temp={temp}.5 {at}\n")
    };
    (0..480).map(line).collect()
}

fn write(server: &Served, lines: &str) {
    let answer = server.request("POST", "/write?precision=s", "", lines);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

/// Every text under the key `query`.
fn questions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                match inner.as_str().filter(|_| name == "query") {
                    Some(text) => found.push(text.to_owned()),
                    None => questions(inner, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|inner| questions(inner, found)),
        _ => {}
    }
}

/// The questions of the dashboard as Grafana fills them in, and those of its editor of queries.
fn all_questions() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging/grafana/dashboards/headwater.json");
    let dashboard = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut all = Vec::new();
    questions(&dashboard, &mut all);
    assert!(all.len() >= 6, "{all:?}");
    let filled = |question: String| {
        let time = "time >= 1700000000000ms and time <= 1701800000000ms";
        let question = question
            .replace("$table", "weather")
            .replace("$field", "temp");
        question
            .replace("$timeFilter", time)
            .replace("$__interval", "6h")
    };
    let mut all: Vec<String> = all.into_iter().map(filled).collect();
    assert!(all.iter().all(|question| !question.contains('$')));
    all.extend(
        [
            "SHOW MEASUREMENTS LIMIT 100",
            "SHOW TAG KEYS FROM \"weather\"",
            "SHOW TAG VALUES FROM \"weather\" WITH KEY = \"origin\"",
            "SHOW FIELD KEYS FROM \"weather\"",
            "SHOW DATABASES",
            "SHOW SERIES",
            "SELECT mean(\"temp\") FROM \"weather\" WHERE (\"origin\"::tag = 'JFK') AND time >= 1700000000000ms and time <= 1701800000000ms GROUP BY time(1d) fill(null)",
            "SELECT count(\"temp\"), max(\"temp\") FROM \"weather\" GROUP BY \"origin\"::tag",
        ]
        .map(str::to_owned),
    );
    all
}

/// As Grafana asks: redirects are followed.
fn ask(addr: &str, question: &str) -> (u16, Value) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let mut answer = agent
        .get(format!("http://{addr}/query"))
        .header("user-agent", "Grafana/12.0.0")
        .query("db", "headwater")
        .query("epoch", "ms")
        .query("q", question)
        .call()
        .unwrap();
    let body = answer.body_mut().read_to_string().unwrap();
    let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
    (answer.status().as_u16(), body)
}

#[test]
fn grafana_asks_a_dispatcher_over_two_clouds_and_gets_the_answers_of_one_node() {
    let bench = Bench::new();
    let addrs = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let peers = |at: usize| {
        let peer = format!("http://{}", addrs[1 - at]);
        let name = ["north", "south"][at];
        let flags = [
            "--role",
            "cloud",
            "--cloud-peer",
            &peer,
            "--cloud-peer-name",
            name,
            "--log-level",
            "error",
        ];
        Served::start_at(&bench.path(name), &addrs[at], &flags)
    };
    let clouds = [peers(0), peers(1)];
    let alone = Served::start(&bench.path("alone"), &["--log-level", "error"]);
    let mut edges = Vec::new();
    for (n, origin) in ["JFK", "EWR", "LGA", "SFO"].into_iter().enumerate() {
        let db = bench.path(origin);
        let invited = run_against(&addrs[n % 2], &["edges", "add", origin]).ok();
        run(&["join", invited.stdout.trim(), "--db", text(&db)]).ok();
        let served = edge(&db);
        write(&served, &lines(origin));
        write(&alone, &lines(origin));
        edges.push(served);
    }
    let desk = dispatcher(&bench.path("desk"), "127.0.0.1:0", &addrs);
    let count = "SELECT count(temp) FROM weather";
    until("everything is at both clouds", || {
        let wanted = ask(&alone.addr, count);
        let all = [&addrs[0], &addrs[1], &desk.addr];
        all.into_iter().all(|addr| ask(addr, count) == wanted)
    });
    for question in all_questions() {
        let wanted = ask(&alone.addr, &question);
        assert_eq!(wanted.0, 200, "{question}: {wanted:?}");
        assert!(
            wanted.1["results"][0]["error"].is_null(),
            "{question}: {wanted:?}"
        );
        assert_eq!(ask(&desk.addr, &question), wanted, "{question}");
    }
    // With one cloud gone the other one has the same answers.
    let [north, south] = clouds;
    kill(north);
    let question = all_questions().pop().unwrap();
    let wanted = ask(&alone.addr, &question);
    until("the other one answers", || {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .build()
            .into();
        let asked = agent.get(format!("http://{}/query", desk.addr));
        let asked = asked.query("db", "x").query("q", count).call();
        // Where it leads must answer.
        asked.is_ok_and(|answer| {
            let to = answer.headers().get("location").cloned();
            to.is_none_or(|to| to.to_str().unwrap().contains(&addrs[1]))
        })
    });
    assert_eq!(ask(&desk.addr, &question), wanted);
    edges.into_iter().for_each(kill);
    [south, alone, desk].into_iter().for_each(kill);
}
