//! What a cloud has of a stream, as a map of levels and time, and why.

use crate::support::{Running, client, json};
use crate::sync::{post_sync, summaries_of_an_hour, write};
use serde_json::{Value, json};

fn presence(server: &Running, more: &str) -> (u16, Value) {
    let url = server.url(&format!("/api/v1/presence?stream=pump,id%3Da{more}"));
    let mut answer = client().get(url).call().unwrap();
    (answer.status().as_u16(), json(&mut answer))
}

fn map(server: &Running, more: &str) -> Value {
    let (status, map) = presence(server, more);
    assert_eq!(status, 200, "{map}");
    map
}

#[test]
fn a_map_says_which_cells_are_here_and_who_has_the_rest() {
    let (cloud, edge) = summaries_of_an_hour();
    let found = map(&cloud, "&bins=4&level=rows&level=2&level=8");
    let lines = found["lines"].as_array().unwrap();
    let cells: Vec<&str> = lines.iter().map(|l| l["cells"].as_str().unwrap()).collect();
    assert_eq!(cells, ["eeee", "eeee", "hhhh"], "{found}");
    assert!(lines[0]["level"].is_null() && lines[2]["level"] == 8);
    assert!(lines[0]["missing_bytes"].as_u64() > Some(0), "{found}");
    let source = &found["sources"][0];
    assert_eq!(source["edge"], "e", "{found}");
    assert_eq!(source["want"], json!({"summaries": 8}), "{found}");
    assert_eq!(source["is_connected"], true, "{found}");
    assert!(source["heard"].is_string() && source["rule"].is_null());
    // What was asked for is here from then on.
    let rows = "/api/v1/scan?stream=pump,id%3Da&from=1700000000000000000&to=1700000100000000000";
    let answer = client()
        .get(cloud.url(&format!("{rows}&fetch=true")))
        .call();
    assert_eq!(answer.unwrap().status(), 200);
    let found = map(&cloud, "&bins=36&level=rows");
    let cells = found["lines"][0]["cells"].as_str().unwrap();
    assert!(cells.starts_with('h') && cells.ends_with('e'), "{found}");
    // An edge has all of its own.
    let own = map(&edge, "&bins=2&level=rows");
    assert_eq!(own["lines"][0]["cells"], "hh", "{own}");
    assert!(own["sources"][0]["edge"].is_null(), "{own}");
    drop(edge);
    headwater_testing::until("the edge is away", || {
        map(&cloud, "&bins=1&level=rows")["sources"][0]["is_connected"] == false
    });
    let away = map(&cloud, "&bins=1&level=rows");
    assert_eq!(away["sources"][0]["state"], "offline", "{away}");
    assert!(away["sources"][0]["heard"].is_string(), "{away}");
}

#[test]
fn a_map_says_why_and_nothing_of_other_streams() {
    let (cloud, _edge) = summaries_of_an_hour();
    let pin = json!({
        "op": "pin", "edge": "e", "table": "pump", "tags": {"id": "a"},
        "from_ns": 1_700_000_000_000_000_000_i64, "to_ns": 1_700_000_059_999_999_999_i64,
    });
    assert_eq!(post_sync(&cloud, &pin).0, 200);
    let want = json!({"op": "want", "edge": "e", "want": {"summaries": 8}, "rules": [
        {"table": "other", "want": "full"},
        {"table": "pump", "tags": {"id": "a"}, "want": {"summaries": 6}},
    ]});
    assert_eq!(post_sync(&cloud, &want).0, 200);
    let found = map(&cloud, "&bins=1&level=rows");
    let source = &found["sources"][0];
    assert_eq!(source["rule"], 2, "{found}");
    assert_eq!(source["want"], json!({"summaries": 6}), "{found}");
    assert_eq!(source["pins"][0]["to"], "1700000060000000000", "{found}");
    assert!(!found.to_string().contains("other"), "{found}");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let server = Running::start();
    write(&server, "pump,id=a flow=1 1700000000000000000");
    for bad in [
        "&bins=0",
        "&bins=257",
        "&level=41",
        "&level=x",
        "&from=2&to=1",
    ] {
        let (status, said) = presence(&server, bad);
        assert_eq!(
            (status, &said["code"]),
            (400, &json!("E_PARAMETER")),
            "{bad}: {said}"
        );
    }
    let many = "&level=1".repeat(17);
    assert_eq!(presence(&server, &many).1["code"], "E_LIMIT");
    // A stream of one instant is a map of one cell.
    let one = map(&server, "&level=rows");
    assert_eq!(one["lines"][0]["cells"], "h", "{one}");
}
