//! Streams that two edges name alike: rows of both are shown, and what is hidden is counted,
//! listed, and said by answers.

use crate::support::{client, json};
use crate::sync::{cloud, edge, flushed, status, until_current, write};
use headwater_testing::until;
use serde_json::{Value, json};

const START: u64 = 1_700_000_000_000_000_000;

/// Rows of a stream at the instants of a range of seconds.
fn rows(stream: &str, seconds: std::ops::Range<u64>, value: u64) -> String {
    let row = |second| format!("{stream} v={value} {}", START + second * 1_000_000_000);
    seconds.map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn hidden_rows_are_counted_listed_and_said() {
    let cloud = cloud();
    let edges = ["first", "second"].map(|name| edge(&cloud, name));
    write(&edges[0], &rows("cpu,host=pi", 100..200, 1));
    write(&edges[1], &rows("cpu,host=pi", 150..250, 2));
    write(&edges[1], &rows("mem,host=pi", 150..250, 2));
    for (edge, name) in edges.iter().zip(["first", "second"]) {
        flushed(edge);
        until_current(&cloud, edge, name);
    }
    let sent = client()
        .post(cloud.url("/api/v1/sync"))
        .send(r#"{"op":"conflicts"}"#);
    let found = json(&mut sent.unwrap());
    assert_eq!(found["is_complete"], true);
    let all = found["conflicts"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{found}");
    for (key, value) in [
        ("stream", json!("cpu,host=pi")),
        ("table", json!("cpu")),
        ("part", json!("second")),
        ("hidden_rows", json!(50)),
    ] {
        assert_eq!(all[0][key], value, "{found}");
    }
    // The stretch is at least the shared one.
    let instant = |key: &str| all[0][key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(instant("first_ns") <= START + 150_000_000_000);
    assert!(instant("last_ns") >= START + 199_000_000_000);
    let edges = status(&cloud)["edges"].clone();
    assert_eq!(edges[0]["conflicts"], Value::Null);
    assert_eq!(
        edges[1]["conflicts"],
        json!({ "streams": 1, "hidden_rows": 50, "is_complete": true })
    );
    let get = |path: &str| client().get(cloud.url(path)).call().unwrap();
    let warning = |path: &str| get(path).headers().get("x-headwater-warning").cloned();
    for path in [
        "/api/v1/count",
        "/api/v1/count?table=cpu",
        "/api/v1/scan?stream=cpu,host%3Dpi&from=0",
        "/tiles/cpu%2Chost%3Dpi.v/0.0.json",
        "/query?q=SELECT%20count(v)%20FROM%20cpu",
    ] {
        let said = warning(path).unwrap_or_else(|| panic!("{path} says nothing"));
        assert!(said.to_str().unwrap().contains("headwater edges conflicts"));
    }
    for path in [
        "/api/v1/count?table=mem",
        "/api/v1/scan?stream=mem,host%3Dpi&from=0",
    ] {
        assert_eq!(warning(path), None, "{path}");
    }
    let count = json(&mut get("/api/v1/count?table=cpu"));
    assert_eq!(count["rows"], 150, "nothing is doubled");
    until("the metrics are fetched", || {
        let text = get("/metrics").body_mut().read_to_string().unwrap();
        ["conflicting_streams", "hidden_rows"]
            .iter()
            .zip([1, 50])
            .all(|(name, value)| {
                let line = format!("headwater_sync_edge_{name}{{edge=\"second\"}} {value}.0");
                text.contains(&line)
            })
    });
}
