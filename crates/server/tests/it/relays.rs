//! A cloud that passes an edge on to another cloud.

use crate::sync::{
    an_hour, cloud, edge, flushed, invite, of_edge, post_sync, status, until_current, write,
};
use headwater_testing::until;
use serde_json::json;

#[test]
fn a_cloud_passes_an_edge_on_to_another_cloud() {
    let (region, centre) = (cloud(), cloud());
    let edge = edge(&region, "pump-7");
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until_current(&region, &edge, "pump-7");
    let invitation = invite(&centre, "north-pump-7", &json!({}));
    let relay = json!({"op": "relay", "edge": "pump-7", "invitation": invitation});
    assert_eq!(post_sync(&region, &relay).0, 200);
    until_current(&centre, &edge, "north-pump-7");
    let there = of_edge(&centre, "north-pump-7");
    assert_eq!(there["copy"]["missing_bytes"], 0);
    assert_eq!(there["through"].as_array().unwrap().len(), 1);
    let relays = status(&region)["relays"].clone();
    assert_eq!(relays[0]["edge"], "pump-7");
    assert_eq!(relays[0]["to"]["state"], "connected");
    let (code, answer) = post_sync(&region, &json!({"op": "relay", "edge": "pump-7"}));
    assert_eq!((code, &answer["code"]), (400, &json!("E_INVALID")));
    for (edge, expected) in [("pump-7", 200), ("pump-7", 404), ("pump-8", 404)] {
        let stop = json!({"op": "stop_relay", "edge": edge});
        assert_eq!(post_sync(&region, &stop).0, expected);
    }
    until("the relay has ended", || {
        of_edge(&centre, "north-pump-7")["state"] == "offline"
    });
}
