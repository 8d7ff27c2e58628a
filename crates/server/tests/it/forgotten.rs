//! Rows that an edge forgets and its cloud retains, and those that users delete, which go at both.

use crate::support::{Running, client, json};
use crate::sync::{an_hour, cloud, edge, flushed, get, of_edge, post_sync, until_current, write};
use headwater_server::settings::NodeRole;
use headwater_testing::until;
use serde_json::{Value, json};

fn manage(server: &Running, asked: &Value) {
    let mut answer = client()
        .post(server.url("/api/v1/manage"))
        .send(asked.to_string())
        .unwrap();
    assert_eq!(answer.status(), 200, "{}", json(&mut answer));
}

fn rows_of(server: &Running, table: &str) -> Option<u64> {
    let (status, text) = get(server, &format!("/api/v1/count?table={table}"));
    let counts: Value = serde_json::from_str(&text).unwrap();
    (status == 200).then(|| counts["rows"].as_u64().unwrap())
}

#[test]
fn what_an_edge_forgets_stays_at_the_cloud_and_what_users_delete_or_drop_goes() {
    let cloud = cloud();
    let edge = edge(&cloud, "e");
    write(&edge, &an_hour("a"));
    write(&edge, "other,id=a v=1 1700000000000000000");
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    manage(
        &edge,
        &json!({"op": "alter_table", "table": "pump", "retention": "1d"}),
    );
    // So long ago that nothing is left at the edge.
    until("the edge has cut it away", || {
        rows_of(&edge, "pump") == Some(0) && of_edge(&cloud, "e")["copy"]["kept"] != json!(0)
    });
    until_current(&cloud, &edge, "e");
    assert_eq!(rows_of(&cloud, "pump"), Some(3600));
    // What is there no more is deleted all the same: ten minutes of it.
    manage(
        &edge,
        &json!({
            "op": "delete", "table": "pump", "tags": {"id": "a"},
            "from": "1700000600000000000", "to": "1700001200000000000",
        }),
    );
    until("the delete has reached the cloud", || {
        rows_of(&cloud, "pump") == Some(3000)
    });
    // Both know it after a restart, too.
    let port = cloud.addr.port();
    let cloud = cloud.restarted(|s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(port);
    });
    assert_eq!(rows_of(&cloud, "pump"), Some(3000));
    let keep = |seconds: Value| {
        let asked = json!({"op": "keep", "edge": "e", "seconds": seconds});
        assert_eq!(post_sync(&cloud, &asked).0, 200);
        assert_eq!(of_edge(&cloud, "e")["kept_seconds"], seconds);
    };
    keep(json!(20 * 365 * 86_400));
    assert_eq!(rows_of(&cloud, "pump"), Some(3000));
    keep(json!(null));
    manage(&edge, &json!({"op": "drop_table", "table": "other"}));
    until("the dropped table is gone", || {
        rows_of(&cloud, "other").is_none()
    });
    keep(json!(0));
    until("the cloud forgets with the edge", || {
        rows_of(&cloud, "pump") == Some(0)
    });
    let unknown = json!({"op": "keep", "edge": "x", "seconds": 1});
    assert_eq!(post_sync(&cloud, &unknown).0, 404);
}
