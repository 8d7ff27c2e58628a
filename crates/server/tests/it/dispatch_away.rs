//! A dispatcher where an edge is away or was replaced, and what it does itself.

use crate::dispatch::{dispatcher, followed, get, redirect_of, scan, tile};
use crate::support::{Running, client, json};
use crate::sync::{
    an_hour, cloud, edge_in, flushed, invite, joined, post_sync, summaries_of_an_hour,
    until_current, write,
};
use headwater_server::settings::{DispatchNode, NodeRole};
use headwater_testing::until;
use serde_json::{Value, json};

#[test]
fn an_edge_that_is_away_is_said_to_be_elsewhere() {
    let cloud = cloud();
    let dir = tempfile::tempdir().unwrap();
    let invitation = invite(&cloud, "e", &json!({"want": {"summaries": 8}}));
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    let edge = edge_in(dir);
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    let desk = dispatcher(&[&cloud]);
    until("the stream is known", || {
        redirect_of(&desk, &tile("a", 8, 12_969)).1 == "base"
    });
    drop(edge);
    let fine = tile("a", 0, 3_320_312);
    until("the node knows that it is away", || {
        !redirect_of(&desk, &fine).0.contains("fetch=true")
    });
    let (status, text) = followed(&desk, &fine);
    assert!(status == 503 && text.contains("E_ELSEWHERE"), "{text}");
    let (status, text) = get(&desk, &format!("{fine}?at=edge"));
    assert!(status == 503 && text.contains("E_UNREACHABLE"), "{text}");
    // What is there is still answered.
    assert_eq!(followed(&desk, &tile("a", 8, 12_969)).0, 200);
}

#[test]
fn a_dispatcher_serves_the_page_and_stores_nothing() {
    let cloud = cloud();
    let desk = dispatcher(&[&cloud]);
    assert_eq!(get(&desk, "/"), get(&cloud, "/"));
    assert_eq!(get(&desk, "/api/openapi.json").0, 200);
    let mut answer = client().post(desk.url("/write")).send("a x=1").unwrap();
    assert_eq!(
        (answer.status().as_u16(), &json(&mut answer)["code"]),
        (409, &json!("E_ROLE"))
    );
    let status: Value = serde_json::from_str(&get(&desk, "/api/v1/sync").1).unwrap();
    assert_eq!(status["role"], "dispatcher");
    assert_eq!(status["nodes"][0]["is_live"], true, "{status}");
    assert_eq!(status["ticket_key"].as_str().unwrap().len(), 64);
    let figures = get(&desk, "/metrics").1;
    assert!(figures.contains("dispatch_node_live"), "{figures}");
    // A dispatcher is no node of another: nobody goes round in a circle.
    assert_eq!(get(&desk, "/api/v1/held").0, 404);
    // A dispatcher of nodes that are not there is not ready.
    let lonely = Running::start_with(|s| {
        s.sync.role = NodeRole::Dispatcher;
        let url = "http://127.0.0.1:9".to_owned();
        s.dispatch.nodes = vec![DispatchNode {
            public_url: url.clone(),
            url,
        }];
    });
    assert_eq!(get(&lonely, "/ready").0, 503);
    let (status, text) = get(&lonely, &scan("a"));
    assert!(status == 503 && text.contains("E_UNREACHABLE"), "{text}");
}

#[test]
fn the_rows_of_a_replaced_edge_are_found_through_the_dispatcher() {
    let (cloud, edge) = summaries_of_an_hour();
    let desk = dispatcher(&[&cloud]);
    let coarse = tile("a", 8, 12_969);
    until("the stream is known", || {
        redirect_of(&desk, &coarse).1 == "base"
    });
    let before = followed(&desk, &coarse);
    assert_eq!(before.0, 200);
    drop(edge);
    let replace = json!({"op": "replace", "edge": "e", "by": "f", "url": cloud.url("")});
    assert_eq!(post_sync(&cloud, &replace).0, 200);
    until("the closed part is listed in the place of the edge", || {
        redirect_of(&desk, &coarse).1 == "base"
    });
    let listed = followed(&desk, "/api/v1/streams?table=pump");
    assert!(listed.1.contains("pump,id=a"), "{listed:?}");
    assert_eq!(followed(&desk, &coarse), before);
}
