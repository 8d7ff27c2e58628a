//! Streams that two edges name alike, told apart: tags that are added to the streams of an edge, by
//! every door and through a dispatcher, and moves from one edge to another.

use crate::dispatch::dispatcher;
use crate::support::{Running, client};
use crate::sync::{
    an_hour, cloud, edge, edge_in, flushed, get, invite, joined, of_edge, post_sync, until_current,
    write,
};
use headwater_testing::until;
use serde_json::{Value, json};

/// A statement's answer.
#[cfg(feature = "sql")]
fn sql(server: &Running, statement: &str) -> (u16, String) {
    let path = server.url("/api/v1/sql");
    let mut answer = client().post(path).send(statement).unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    // How long it took is not part of what is answered.
    let text = text.split("\"elapsed").next().unwrap_or_default();
    (answer.status().as_u16(), text.to_owned())
}

/// Questions of every door that reads about a stream and its table.
#[cfg(feature = "sql")]
fn questions(stream: &str) -> Vec<String> {
    let hour = "from=1700000000000000000&to=1700003600000000000";
    let mut all = vec![
        format!("/api/v1/scan?stream={stream}&{hour}"),
        format!("/api/v1/aggregate?channel={stream}.flow&{hour}&bins=7"),
        format!("/api/v1/last?stream={stream}"),
        "/api/v1/last?table=pump".to_owned(),
        "/api/v1/count?table=pump".to_owned(),
        "/api/v1/export?table=pump".to_owned(),
        format!("/tiles/{stream}.flow/8.12969.json"),
    ];
    for query in [
        "SELECT mean(flow), count(state) FROM pump WHERE time < 1700007200s GROUP BY time(10m), gateway",
        "SELECT last(flow) FROM pump WHERE gateway = 'south'",
        "SHOW SERIES",
        "SHOW TAG VALUES FROM pump WITH KEY = gateway",
    ] {
        let query = query
            .replace(' ', "%20")
            .replace('<', "%3C")
            .replace('=', "%3D");
        all.push(format!("/query?db=x&q={query}"));
    }
    all
}

#[cfg(feature = "sql")]
#[test]
fn a_tagged_edge_is_shown_by_every_door_as_if_its_streams_had_these_names() {
    let cloud = cloud();
    let north = edge(&cloud, "north");
    let dir = tempfile::tempdir().unwrap();
    let more = json!({"want": {"summaries": 8}, "tags": {"gateway": "south"}});
    joined(
        &dir.path().join("db"),
        &invite(&cloud, "south", &more),
        false,
    )
    .unwrap();
    let south = edge_in(dir);
    let alone = Running::start();
    let hour = an_hour("a");
    for edge in [&north, &south] {
        write(edge, &hour);
        flushed(edge);
    }
    write(&alone, &hour);
    write(
        &alone,
        &hour.replace("pump,id=a", "pump,gateway=south,id=a"),
    );
    until_current(&cloud, &north, "north");
    until_current(&cloud, &south, "south");
    assert_eq!(
        of_edge(&cloud, "south")["tags"],
        json!({"gateway": "south"})
    );
    // Rows of summaries are fetched by the name that the edge has.
    let shown = "pump%2Cgateway%3Dsouth%2Cid%3Da";
    let coverage = |of: &str| -> Value {
        let (status, text) = get(&cloud, &format!("/api/v1/coverage?stream={shown}{of}"));
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["streams"][0].clone()
    };
    assert_eq!(coverage("&level=8")["is_here"], true);
    assert_eq!(coverage("")["is_here"], false);
    assert_eq!(coverage("")["stretches"][0]["edge"], "south");
    let rows = format!("/api/v1/scan?stream={shown}");
    assert_eq!(get(&cloud, &rows).0, 503);
    let wanted = get(&alone, &rows);
    until("all rows are fetched", || {
        get(&cloud, &format!("{rows}&fetch=true")) == wanted
    });
    let want = json!({"op": "want", "edge": "south", "want": "full"});
    assert_eq!(post_sync(&cloud, &want).0, 200);
    until_current(&cloud, &south, "south");
    for question in questions(shown).iter().chain(&questions("pump%2Cid%3Da")) {
        let wanted = get(&alone, question);
        assert_eq!(wanted.0, 200, "{question}: {}", wanted.1);
        assert_eq!(get(&cloud, question), wanted, "{question}");
    }
    for statement in [
        "SELECT count(*), sum(flow) FROM pump",
        "SELECT gateway, id, max(flow), count(*) FROM pump GROUP BY gateway, id ORDER BY gateway",
        "SELECT time, gateway, flow FROM pump WHERE gateway = 'south' AND flow > 58 ORDER BY time",
        "SELECT count(*) FROM pump WHERE gateway IS NULL",
    ] {
        let wanted = sql(&alone, statement);
        assert_eq!(wanted.0, 200, "{statement}: {}", wanted.1);
        assert_eq!(sql(&cloud, statement), wanted, "{statement}");
    }
    // Through a dispatcher, which sends nobody to the edge itself.
    let address = json!({
        "op": "address", "edge": "south",
        "address": {"url": south.url(""), "for_browsers": true},
    });
    assert_eq!(post_sync(&cloud, &address).0, 200);
    let desk = dispatcher(&[&cloud]);
    until("the stream is known under its name", || {
        get(&desk, &rows) == get(&alone, &rows)
    });
    // The reasons are those of the edge's own stream.
    let why = json!({
        "op": "why", "edge": "south", "stream": "pump,gateway=south,id=a",
        "from_ns": 1_700_000_000_000_000_000_i64, "to_ns": 1_700_000_100_000_000_000_i64,
    });
    let (status, told) = post_sync(&cloud, &why);
    assert_eq!((status, &told["stream"]), (200, &why["stream"]), "{told}");
    assert!(!told["ranges"].as_array().unwrap().is_empty(), "{told}");
    // A tag that its streams have is refused, and says which.
    let taken = json!({"op": "tag", "edge": "south", "tags": {"id": "x"}});
    let (status, told) = post_sync(&cloud, &taken);
    assert_eq!(status, 400, "{told}");
    assert!(
        told["message"].as_str().unwrap().contains("`pump,id=a`"),
        "{told}"
    );
    // Without the tag both are one stream again.
    let none = json!({"op": "tag", "edge": "south", "tags": {}});
    assert_eq!(post_sync(&cloud, &none).0, 200);
    assert_eq!(get(&cloud, &rows).0, 404);
    let one = get(&cloud, "/api/v1/count?table=pump").1;
    assert!(one.contains("3600"), "{one}");
}

#[test]
fn a_move_ends_a_conflict_and_is_undone() {
    let cloud = cloud();
    let (north, south) = (edge(&cloud, "north"), edge(&cloud, "south"));
    let row = |n: u64, value| {
        format!(
            "cpu,host=gw v={value} {}\n",
            (1_700_000_000 + n) * 1_000_000_000
        )
    };
    write(&north, &(100..200).map(|n| row(n, 1)).collect::<String>());
    write(&south, &(150..250).map(|n| row(n, 2)).collect::<String>());
    for (edge, name) in [(&north, "north"), (&south, "south")] {
        flushed(edge);
        until_current(&cloud, edge, name);
    }
    let conflicts = || post_sync(&cloud, &json!({"op": "conflicts"})).1["conflicts"].clone();
    let ones = || {
        let path = "/api/v1/aggregate?channel=cpu,host%3Dgw.v&from=1700000000000000000&bins=1";
        let (status, text) = get(&cloud, path);
        assert_eq!(status, 200, "{text}");
        let rows = get(
            &cloud,
            "/api/v1/scan?stream=cpu,host%3Dgw&from=1700000000000000000&limit=1000&format=csv",
        )
        .1;
        let rows: Vec<&str> = rows.lines().filter(|line| line.contains(",gw,")).collect();
        assert_eq!(rows.len(), 150, "{rows:?}");
        rows.iter()
            .filter(|line| line.ends_with(",1") || line.ends_with(",1.0"))
            .count()
    };
    assert_eq!((conflicts().as_array().unwrap().len(), ones()), (1, 100));
    let moved = json!({
        "op": "move", "pattern": "cpu,host=gw", "from": "north", "to": "south",
        "at_ns": 1_700_000_175_000_000_000_i64,
    });
    let (status, told) = post_sync(&cloud, &moved);
    assert_eq!(status, 200, "{told}");
    assert_eq!((conflicts(), ones()), (json!([]), 75));
    let wrong = json!({"op": "move", "pattern": "cpu", "from": "north", "to": "north"});
    assert_eq!(post_sync(&cloud, &wrong).0, 400);
    let undo = json!({"op": "undo", "change": told["change"]});
    assert_eq!(post_sync(&cloud, &undo).0, 200);
    assert_eq!((conflicts().as_array().unwrap().len(), ones()), (1, 100));
}
