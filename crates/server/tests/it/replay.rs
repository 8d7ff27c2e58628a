//! Rows of many streams in the order of time, over HTTP.

use crate::support::{Running, client, json};
use headwater_server::rules::AccessRule;
use headwater_server::tokens::{NewToken, TokenFile};
use serde_json::Value;
use std::time::{Duration, Instant};

fn get(server: &Running, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = client().get(server.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut answer = request.call().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), text)
}

fn rows(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Three streams whose rows meet in time, some of them late, one of them replaced.
const LINES: &str = "\
pump,id=a flow=1 1000
pump,id=b flow=2 1000
pump,id=c flow=3 1500
pump,id=a flow=4,on=true 3000
pump,id=b flow=5 2000
pump,id=a flow=6 500
pump,id=b flow=7 2000
";

fn started(rules: Option<&[&str]>) -> (Running, String) {
    let mut token = String::new();
    let server = Running::start_with(|settings| {
        if let Some(rules) = rules {
            let rules = rules.iter().map(|rule| rule.parse::<AccessRule>().unwrap());
            let new = NewToken {
                name: "t".to_owned(),
                expires: None,
                rules: rules.collect(),
            };
            token = TokenFile::of_database(settings.db()).create(new).unwrap();
        }
    });
    let bearer = format!("Bearer {token}");
    let answer = client()
        .post(server.url("/write?precision=ns"))
        .header("authorization", &bearer)
        .send(LINES)
        .unwrap();
    assert!(answer.status().is_success());
    (server, bearer)
}

fn names(rows: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pairs = rows
        .iter()
        .map(|row| (text(&row["time"]), text(&row["stream"])));
    pairs.collect()
}

#[test]
fn rows_come_in_the_order_of_time_and_a_cursor_goes_on() {
    let (server, _) = started(None);
    let (status, text) = get(&server, "/api/v1/replay?table=pump", &[]);
    assert_eq!(status, 200, "{text}");
    let all = rows(&text);
    let times: Vec<&str> = all
        .iter()
        .map(|row| row["time"].as_str().unwrap())
        .collect();
    assert_eq!(times, ["500", "1000", "1000", "1500", "2000", "3000"]);
    assert_eq!(all[1]["stream"], "pump,id=a");
    assert_eq!(all[4]["fields"]["flow"], 7.0, "the newest of one time");
    assert_eq!(
        all[5]["fields"],
        serde_json::json!({"flow": 4.0, "on": true})
    );
    for (index, row) in all.iter().enumerate() {
        let (time, stream) = (
            row["time"].as_str().unwrap(),
            row["stream"].as_str().unwrap(),
        );
        let after = format!(
            "{time}/1/{}",
            stream.replace(',', "%2C").replace('=', "%3D")
        );
        let path = format!("/api/v1/replay?table=pump&after={after}");
        let rest = rows(&get(&server, &path, &[]).1);
        assert_eq!(names(&rest), names(&all[index + 1..]), "{after}");
    }
    let some =
        "/api/v1/replay?table=pump&tag=id%3Da&tag=id%3Dc&fields=on&from=1000&to=3001&limit=9";
    let some = rows(&get(&server, some, &[]).1);
    assert_eq!(names(&some), [("3000".to_owned(), "pump,id=a".to_owned())]);
    let two = rows(&get(&server, "/api/v1/replay?table=pump&limit=2", &[]).1);
    assert_eq!(names(&two), names(&all[..2]));
}

#[test]
fn events_have_cursors_with_which_browsers_go_on() {
    let (server, _) = started(None);
    let path = "/api/v1/replay?table=pump&format=sse";
    let text = get(&server, path, &[]).1;
    let ids: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("id: "))
        .collect();
    assert_eq!(ids.len(), 6);
    assert_eq!(ids[0], "500/1/pump,id=a");
    let rest = get(&server, path, &[("last-event-id", ids[3])]).1;
    let left: Vec<&str> = rest
        .lines()
        .filter_map(|l| l.strip_prefix("id: "))
        .collect();
    assert_eq!(left, ids[4..]);
}

#[test]
fn rows_wait_for_their_time() {
    let (server, _) = started(None);
    // 2,500 nanoseconds of the data in half a second.
    let begun = Instant::now();
    let text = get(&server, "/api/v1/replay?table=pump&speed=0.000005", &[]).1;
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(rows(&text).len(), 6);
}

#[test]
fn what_may_not_be_read_is_not_there_and_what_is_wrong_is_said() {
    let (server, bearer) = started(Some(&["write *", "read pump,id=b"]));
    let own = [("authorization", bearer.as_str())];
    let seen = rows(&get(&server, "/api/v1/replay?table=pump", &own).1);
    assert!(!seen.is_empty() && seen.iter().all(|row| row["stream"] == "pump,id=b"));
    let code = |path: &str| {
        let mut answer = client()
            .get(server.url(path))
            .header("authorization", &bearer)
            .call()
            .unwrap();
        (answer.status().as_u16(), json(&mut answer)["code"].clone())
    };
    for (query, status) in [
        ("table=none", 404),
        ("table=pump&fields=on", 404),
        ("table=pump&speed=0", 400),
        ("table=pump&after=1/2", 400),
        ("table=pump&after=1/1/tank,id%3D1", 400),
        ("table=pump&tag=id", 400),
        ("table=pump&format=xml", 400),
        ("", 400),
    ] {
        assert_eq!(
            code(&format!("/api/v1/replay?{query}")).0,
            status,
            "{query}"
        );
    }
}

#[test]
fn conditions_leave_rows_of_scans_and_replays() {
    let (server, bearer) = started(Some(&["read pump", "write pump"]));
    let token = [("authorization", bearer.as_str())];
    let flows = |path: &str| -> Vec<String> {
        let (status, text) = get(&server, path, &token);
        assert_eq!(status, 200, "{path}: {text}");
        let rows = rows(&text);
        let flows = rows.iter().map(|row| row["fields"]["flow"].to_string());
        flows.collect()
    };
    let replay = "/api/v1/replay?table=pump";
    assert_eq!(flows(&format!("{replay}&filter=flow%3E5")), ["6.0", "7.0"]);
    let two = format!("{replay}&filter=flow%20%3E%205&filter=flow%20!%3D%207");
    assert_eq!(flows(&two), ["6.0"]);
    assert_eq!(flows(&format!("{replay}&filter=on%3Dtrue")), ["4.0"]);
    let scan = "/api/v1/scan?stream=pump,id%3Da";
    let (status, text) = get(&server, &format!("{scan}&filter=flow%3E%3D4"), &token);
    assert_eq!(status, 200, "{text}");
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap()["time"],
        serde_json::json!(["500", "3000"])
    );
    // What is wrong is told, with the parameter, and the same of a field that is not there.
    for filter in [
        "flow",
        "flow%20~%205",
        "weight%3D1",
        "flow%3Dmuch",
        "on%3D1",
    ] {
        for path in [replay, scan] {
            let (status, text) = get(&server, &format!("{path}&filter={filter}"), &token);
            let error: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (status, &error["code"]),
                (400, &"E_PARAMETER".into()),
                "{text}"
            );
            assert_eq!(error["parameter"], "filter", "{text}");
        }
    }
    let many = "&filter=flow%3E0".repeat(33);
    assert_eq!(get(&server, &format!("{scan}{many}"), &token).0, 400);
}
