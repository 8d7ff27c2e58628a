//! What a cloud wants of an edge, what never leaves it, and what is copied before somebody asks.

use crate::support::Running;
use crate::sync::{
    an_hour, cloud, edge, flushed, get, invite, joined, of_edge, post_sync, until_current, write,
};
use headwater_server::settings::NodeRole;
use headwater_testing::until;
use serde_json::json;
use std::time::Duration;

#[test]
fn rules_say_what_is_copied_and_an_edge_what_never_leaves_it() {
    let cloud = cloud();
    let dir = tempfile::tempdir().unwrap();
    let invitation = invite(&cloud, "e", &json!({"want": {"summaries": 8}}));
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    let edge = Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
        s.sync.withhold = vec!["payroll".to_owned()];
    });
    write(&edge, &an_hour("a"));
    write(&edge, &an_hour("b"));
    write(&edge, "payroll,who=someone pay=7 1700000000000000000");
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    let streams = get(&cloud, "/api/v1/streams").1;
    assert!(
        streams.contains("pump") && !streams.contains("payroll"),
        "{streams}"
    );
    for file in std::fs::read_dir(cloud.db().join("copies/e/pack")).unwrap() {
        // A pack may go while it is looked at: then it holds nothing any more.
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(
            !bytes.windows(7).any(|w| w == b"someone"),
            "a name has left"
        );
    }
    let rows = |tag: &str| {
        let from_to = "from=1700000000000000000&to=1700000100000000000";
        format!("/api/v1/scan?stream=pump,id%3D{tag}&{from_to}")
    };
    assert_eq!(get(&cloud, &rows("a")).0, 503);
    // A rule wants all rows of one stream, a pin those of another for a while.
    let rule = json!({"table": "pump", "tags": {"id": "a"}, "want": "full"});
    let want = json!({"op": "want", "edge": "e", "want": {"summaries": 8}, "rules": [rule]});
    assert_eq!(post_sync(&cloud, &want).0, 200);
    until("rows of the rule are there", || {
        get(&cloud, &rows("a")) == get(&edge, &rows("a"))
    });
    let pin = json!({
        "op": "pin", "edge": "e", "table": "pump", "tags": {"id": "b"},
        "from_ns": 1_700_000_000_000_000_000_i64, "to_ns": 1_700_000_200_000_000_000_i64,
    });
    let (code, answer) = post_sync(&cloud, &pin);
    assert_eq!(code, 200, "{answer}");
    until("rows of the pin are there", || {
        get(&cloud, &rows("b")) == get(&edge, &rows("b"))
    });
    let (_, pins) = post_sync(&cloud, &json!({"op": "pins", "edge": "e"}));
    assert_eq!(pins["pins"][0]["pin"], answer["pin"], "{pins}");
    let unpin = json!({"op": "unpin", "edge": "e", "pin": answer["pin"]});
    assert_eq!(
        (post_sync(&cloud, &unpin).0, post_sync(&cloud, &unpin).0),
        (200, 404)
    );
    let divided = json!({
        "op": "want", "edge": "e", "want": "full",
        "rules": [{"table": "pump", "tags": {"id": "a"}, "want": "nothing"}],
    });
    assert_eq!(post_sync(&cloud, &divided).0, 400);
}

#[test]
fn a_policy_says_what_is_copied_before_somebody_asks_for_it() {
    let cloud = cloud();
    let edge = edge(&cloud, "e");
    let migrate = |cloud: &Running, edge: &str, policy: &str| {
        let asked = json!({"op": "migrate", "edge": edge, "policy": policy, "score": "misses"});
        post_sync(cloud, &asked).0
    };
    assert_eq!(migrate(&cloud, "e", "none"), 200);
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until("the state is there", || {
        of_edge(&cloud, "e")["copy"]["missing_bytes"].as_u64() > Some(0)
    });
    // What is asked for comes all the same, and nothing else does.
    let rows = "/api/v1/scan?stream=pump,id=a&limit=1";
    assert_eq!(get(&cloud, rows).0, 503);
    until("the rows come", || {
        get(&cloud, &format!("{rows}&fetch=true")).0 == 200
    });
    let there = of_edge(&cloud, "e");
    assert_ne!(there["state"], "current", "{there}");
    let expected = json!({"policy": "none", "score": "misses", "ahead_bytes": 0});
    assert_eq!(there["migration"], expected);
    // It is kept.
    let port = cloud.addr.port();
    let cloud = cloud.restarted(|s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(port);
    });
    assert_eq!(of_edge(&cloud, "e")["migration"], expected);
    assert_eq!(migrate(&cloud, "e", "some"), 400);
    assert_eq!(migrate(&cloud, "x", "both"), 404);
    assert_eq!(migrate(&cloud, "e", "both"), 200);
    until_current(&cloud, &edge, "e");
}
