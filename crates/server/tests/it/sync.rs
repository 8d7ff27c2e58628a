//! An edge and a cloud in one process, each a server of its own, with a real connection between.

use crate::support::{Running, client, json};
use headwater_cluster::{ClusterErrorKind, join};
use headwater_server::settings::NodeRole;
use headwater_testing::until;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) fn cloud() -> Running {
    Running::start_with(|s| s.sync.role = NodeRole::Cloud)
}

pub(crate) fn post_sync(server: &Running, asked: &Value) -> (u16, Value) {
    let mut answer = client()
        .post(server.url("/api/v1/sync"))
        .send(asked.to_string())
        .unwrap();
    (answer.status().as_u16(), json(&mut answer))
}

pub(crate) fn status(server: &Running) -> Value {
    let mut answer = client().get(server.url("/api/v1/sync")).call().unwrap();
    assert_eq!(answer.status(), 200);
    json(&mut answer)
}

/// How it stands with an edge, as the cloud tells.
pub(crate) fn of_edge(cloud: &Running, name: &str) -> Value {
    let status = status(cloud);
    let edges = status["edges"].as_array().unwrap();
    edges.iter().find(|e| e["name"] == name).unwrap().clone()
}

pub(crate) fn invite(cloud: &Running, name: &str, more: &Value) -> String {
    let mut asked = json!({"op": "add_edge", "edge": name, "url": cloud.url("")});
    for (key, value) in more.as_object().unwrap() {
        asked[key] = value.clone();
    }
    let (status, answer) = post_sync(cloud, &asked);
    assert_eq!(status, 200, "{answer}");
    answer["invitation"].as_str().unwrap().to_owned()
}

pub(crate) fn joined(
    db: &Path,
    invitation: &str,
    anew: bool,
) -> Result<(), headwater_cluster::ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(join(db, invitation, None, None, anew))
        .map(drop)
}

/// An edge that has joined, with a database in a folder.
pub(crate) fn edge_in(dir: TempDir) -> Running {
    Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
    })
}

pub(crate) fn edge(cloud: &Running, name: &str) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let invitation = invite(cloud, name, &json!({}));
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    edge_in(dir)
}

pub(crate) fn write(server: &Running, lines: &str) {
    let answer = client().post(server.url("/write")).send(lines).unwrap();
    assert_eq!(answer.status(), 204);
}

/// A line for each second of an hour.
pub(crate) fn an_hour(tag: &str) -> String {
    let line = |n: i64| {
        let at = (1_700_000_000 + n) * 1_000_000_000;
        format!("pump,id={tag} flow={}.5,state=\"on\" {at}\n", n % 60)
    };
    (0..3600).map(line).collect()
}

pub(crate) fn is_current(cloud: &Running, edge: &Running, name: &str) -> bool {
    let wanted = status(edge)["cloud"]["state_number"].clone();
    let there = of_edge(cloud, name);
    there["state"] == "current" && there["copy"]["state"] == wanted && wanted.as_u64() > Some(0)
}

/// Waits until the cloud has everything that the edge has stored.
pub(crate) fn until_current(cloud: &Running, edge: &Running, name: &str) {
    until(&format!("the copy of {name} is current"), || {
        is_current(cloud, edge, name)
    });
}

pub(crate) fn flushed(edge: &Running) {
    until("events are flushed", || {
        let mut answer = client().get(edge.url("/api/v1/storage")).call().unwrap();
        json(&mut answer)["events_in_memory"] == 0
    });
}

/// A cloud that wants summaries of an edge, which has an hour of a stream.
pub(crate) fn summaries_of_an_hour() -> (Running, Running) {
    let cloud = cloud();
    let dir = tempfile::tempdir().unwrap();
    let invitation = invite(&cloud, "e", &json!({"want": {"summaries": 8}}));
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    let edge = edge_in(dir);
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    (cloud, edge)
}

/// Bytes of an edge that are wanted for a reason, and those that are missing.
fn reason(cloud: &Running, name: &str, reason: &str) -> (u64, u64) {
    let edge = of_edge(cloud, name);
    let all = edge["reasons"].as_array().unwrap().iter();
    let mut found = all.filter(|one| one["reason"] == reason);
    let found = found.next().unwrap();
    let number = |key: &str| found[key].as_u64().unwrap();
    (number("wanted_bytes"), number("missing_bytes"))
}

#[test]
fn it_is_told_why_something_of_an_edge_is_here() {
    let (cloud, edge) = summaries_of_an_hour();
    let (summaries, missing) = reason(&cloud, "e", "summaries");
    assert!(summaries > 0 && missing == 0);
    for other in ["asked", "pinned", "rows", "ahead"] {
        assert_eq!(reason(&cloud, "e", other), (0, 0), "{other}");
    }
    let pin = json!({"op": "pin", "edge": "e", "table": "pump", "from_ns": 1_700_000_000_000_000_000_i64, "to_ns": 1_700_000_600_000_000_000_i64});
    let (code, answer) = post_sync(&cloud, &pin);
    assert_eq!(code, 200, "{answer}");
    until("what is pinned is here", || {
        let (wanted, missing) = reason(&cloud, "e", "pinned");
        wanted > 0 && missing == 0
    });
    assert_eq!(
        post_sync(&cloud, &json!({"op": "want", "edge": "e", "want": "full"})).0,
        200
    );
    until("all rows are here", || {
        let (wanted, missing) = reason(&cloud, "e", "rows");
        wanted > 0 && missing == 0
    });
    let why = |stream: &str, to: i64| {
        let why = json!({"op": "why", "edge": "e", "stream": stream, "from_ns": 1_700_000_000_000_000_000_i64, "to_ns": to});
        post_sync(&cloud, &why)
    };
    let names = client().get(cloud.url("/api/v1/streams")).call().unwrap();
    let names = json(&mut { names });
    let text = names.to_string();
    let at = text.find("pump,").unwrap();
    let stream: String = text[at..].chars().take_while(|c| *c != '"').collect();
    let (code, answer) = why(&stream, 1_700_003_600_000_000_000);
    assert_eq!((code, &answer["edge"]), (200, &json!("e")), "{answer}");
    let ranges = answer["ranges"].as_array().unwrap();
    assert!(!ranges.is_empty(), "{answer}");
    let states = ranges.iter().map(|range| &range["state"]);
    assert!(states.into_iter().all(|state| state == "here"), "{answer}");
    assert_eq!(of_edge(&cloud, "e")["lag"]["seconds"], 0);
    assert_eq!(why("", 1_700_003_600_000_000_000).0, 400);
    assert_eq!(why(&stream, 0).0, 400);
    drop(edge);
}

#[test]
fn an_edge_joins_and_the_cloud_has_what_it_has_and_proves_it() {
    let cloud = cloud();
    let edge = edge(&cloud, "pump-7");
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until_current(&cloud, &edge, "pump-7");
    let there = of_edge(&cloud, "pump-7");
    assert_eq!(there["copy"]["missing_bytes"], 0);
    assert!(there["about"]["disk_bytes"].as_u64() > Some(0), "{there}");
    let (code, answer) = post_sync(&cloud, &json!({"op": "verify", "edge": "pump-7"}));
    assert_eq!(code, 200, "{answer}");
    until("it is compared", || {
        !of_edge(&cloud, "pump-7")["verified"].is_null()
    });
    let verified = of_edge(&cloud, "pump-7")["verified"].clone();
    assert!(verified["equal"].as_u64() > Some(0), "{verified}");
    assert_eq!(
        (&verified["different"], &verified["missing"]),
        (&json!(0), &json!(0))
    );
    // The edge may ask for it too.
    let (code, _) = post_sync(&edge, &json!({"op": "verify"}));
    assert_eq!(code, 200);
    until("the edge is told", || {
        !status(&edge)["cloud"]["verified"].is_null()
    });
    let told = status(&edge)["cloud"].clone();
    assert_eq!(told["verified"]["equal"], verified["equal"]);
    assert!(told["confirmed_bytes"].as_u64() > Some(0), "{told}");
}

pub(crate) fn get(server: &Running, path: &str) -> (u16, String) {
    let mut answer = client().get(server.url(path)).call().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), text)
}

/// A statement's answer.
#[cfg(feature = "sql")]
fn sql(server: &Running, statement: &str) -> (u16, String) {
    let mut answer = client()
        .post(server.url("/api/v1/sql"))
        .send(statement)
        .unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    // How long it took is not part of what is answered.
    let text = text
        .split("\"elapsed")
        .next()
        .unwrap_or_default()
        .to_owned();
    (answer.status().as_u16(), text)
}

/// Questions of every door that reads, whose answers do not depend on the node.
#[cfg(feature = "sql")]
fn questions() -> Vec<String> {
    let hour = "from=1700000000000000000&to=1700003600000000000";
    let mut all = vec![
        format!("/api/v1/scan?stream=pump,id%3Da&{hour}"),
        format!("/api/v1/aggregate?channel=pump,id%3Da.flow&{hour}&bins=7"),
        "/api/v1/last?table=pump".to_owned(),
        "/api/v1/count?table=pump".to_owned(),
        "/api/v1/export?table=pump".to_owned(),
        "/tiles/pump,id%3Da.flow/0.3320312.json".to_owned(),
    ];
    for query in [
        "SELECT mean(flow), count(state) FROM pump WHERE time < 1700007200s GROUP BY time(10m), id",
        "SELECT last(flow) FROM pump GROUP BY id",
        "SHOW SERIES",
    ] {
        all.push(format!(
            "/query?db=x&q={}",
            query.replace(' ', "%20").replace('<', "%3C")
        ));
    }
    all
}

#[cfg(feature = "sql")]
#[test]
fn a_cloud_answers_for_its_edges_as_one_name_space() {
    let cloud = cloud();
    let (north, south) = (edge(&cloud, "north"), edge(&cloud, "south"));
    let alone = Running::start();
    for (edge, tag) in [(&north, "a"), (&south, "b")] {
        write(edge, &an_hour(tag));
        write(&alone, &an_hour(tag));
        flushed(edge);
    }
    // The cloud may have streams of its own.
    write(&cloud, "pump,id=own flow=1 1700000000000000000");
    write(&alone, "pump,id=own flow=1 1700000000000000000");
    until_current(&cloud, &north, "north");
    until_current(&cloud, &south, "south");
    for question in questions() {
        let (status, wanted) = get(&alone, &question);
        assert!(status == 200, "{question}: {wanted}");
        assert_eq!(get(&cloud, &question), (status, wanted), "{question}");
    }
    for statement in [
        "SELECT count(*), sum(flow) FROM pump",
        "SELECT id, max(flow), min(time) FROM pump GROUP BY id ORDER BY id",
        "SELECT time, id, flow, state FROM pump WHERE flow > 58 ORDER BY time, id",
    ] {
        let wanted = sql(&alone, statement);
        assert_eq!(wanted.0, 200, "{statement}: {}", wanted.1);
        assert_eq!(sql(&cloud, statement), wanted, "{statement}");
    }
    let streams = get(&cloud, "/api/v1/streams?table=pump").1;
    for tag in ["a", "b", "own"] {
        assert!(streams.contains(&format!("pump,id={tag}")), "{streams}");
    }
    // What comes later is shown, and an edge that is removed with its history is not.
    write(&north, "pump,id=a flow=77 1700009000000000000");
    flushed(&north);
    until("the newest is there", || {
        get(&cloud, "/api/v1/last?stream=pump,id%3Da")
            .1
            .contains("77")
    });
    assert_eq!(
        post_sync(&cloud, &json!({"op": "remove_edge", "edge": "south"})).0,
        200
    );
    let closed = get(&cloud, "/api/v1/streams?table=pump").1;
    assert!(closed.contains("pump,id=b"), "{closed}");
    let part = post_sync(&cloud, &json!({"op": "parts"})).1["parts"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|part| part["part"].as_str().filter(|p| p.starts_with("south@")))
        .unwrap()
        .to_owned();
    assert_eq!(
        post_sync(&cloud, &json!({"op": "remove_part", "part": part})).0,
        200
    );
    let gone = get(&cloud, "/api/v1/streams?table=pump").1;
    assert!(!gone.contains("pump,id=b"), "{gone}");
}

#[cfg(feature = "sql")]
#[test]
fn a_cloud_that_wants_summaries_says_what_is_elsewhere() {
    let (cloud, edge) = summaries_of_an_hour();
    let tile = "/tiles/pump,id%3Da.flow/8.12969.json";
    assert_eq!(get(&edge, tile).0, 200);
    assert_eq!(get(&cloud, tile), get(&edge, tile));
    let rows = "/api/v1/scan?stream=pump,id%3Da&from=1700000000000000000&to=1700000100000000000";
    let (status, text) = get(&cloud, rows);
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("E_ELSEWHERE"), "{text}");
    let (status, text) = sql(&cloud, "SELECT flow FROM pump WHERE flow = 3.5");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("elsewhere"), "{text}");
    let coverage = |level: &str| -> Value {
        let path = format!("/api/v1/coverage?stream=pump,id%3Da{level}");
        let (status, text) = get(&cloud, &path);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["streams"][0].clone()
    };
    assert_eq!(coverage("&level=8")["is_here"], true);
    assert_eq!(coverage("")["is_here"], false);
    assert_eq!(coverage("")["stretches"][0]["edge"], "e");
    // Asked for, it is fetched from the edge, and kept.
    assert_eq!(get(&cloud, &format!("{rows}&fetch=true")), get(&edge, rows));
    assert_eq!(get(&cloud, rows), get(&edge, rows));
    let later = "/api/v1/scan?stream=pump,id%3Da&from=1700003000000000000";
    // An edge has all: the parameter means nothing there, and harms nothing.
    assert_eq!(
        get(&edge, &format!("{later}&fetch=true")),
        get(&edge, later)
    );
    // Wanted in full, all of it comes.
    let want = json!({"op": "want", "edge": "e", "want": "full"});
    assert_eq!(post_sync(&cloud, &want).0, 200);
    until("rows are there", || get(&cloud, later) == get(&edge, later));
    assert_eq!(coverage("")["is_here"], true);
}

#[test]
fn both_go_on_after_either_was_started_anew() {
    let cloud = cloud();
    let edge = edge(&cloud, "e");
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    let edge = edge.restarted(|s| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
    });
    write(&edge, &an_hour("b"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    // The edge finds the cloud where it was.
    let port = cloud.addr.port();
    let cloud = cloud.restarted(|s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(port);
    });
    assert_ne!(of_edge(&cloud, "e")["copy"]["bytes"], 0);
    write(&edge, &an_hour("c"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
}

#[test]
fn an_invitation_is_worth_one_edge_and_a_key_ends_with_its_edge() {
    let cloud = cloud();
    let dir = tempfile::tempdir().unwrap();
    let invitation = invite(&cloud, "e", &json!({}));
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    let edge = edge_in(dir);
    until("it has come", || {
        status(&edge)["cloud"]["state"] == "connected"
    });
    let other = tempfile::tempdir().unwrap();
    let again = joined(&other.path().join("db"), &invitation, false).unwrap_err();
    assert_eq!(again.kind(), ClusterErrorKind::Denied);
    assert!(!other.path().join("db/uplink.json").exists());
    assert_eq!(
        post_sync(&cloud, &json!({"op": "remove_edge", "edge": "e"})).0,
        200
    );
    until("the key is worth nothing", || {
        let cloud = status(&edge)["cloud"].clone();
        cloud["state"] == "offline" && cloud["error"].as_str().is_some_and(|e| e.contains("key"))
    });
    assert_eq!(status(&cloud)["edges"], json!([]));
}

#[test]
fn a_database_of_another_history_is_refused_until_it_is_to_begin_anew() {
    let cloud = cloud();
    let edge = edge(&cloud, "e");
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    let identity = of_edge(&cloud, "e")["copy"]["identity"].clone();
    // Another database comes with the key, as after a replaced disk.
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir(other.path().join("db")).unwrap();
    let key = std::fs::read(edge.db().join("uplink.json")).unwrap();
    std::fs::write(other.path().join("db/uplink.json"), &key).unwrap();
    drop(edge);
    let edge = edge_in(other);
    until("both are told", || {
        status(&edge)["cloud"]["state"] == "refused" && of_edge(&cloud, "e")["state"] == "refused"
    });
    let error = status(&edge)["cloud"]["error"].clone();
    assert!(
        error.as_str().unwrap().contains("--new-incarnation"),
        "{error}"
    );
    assert_eq!(of_edge(&cloud, "e")["copy"]["identity"], identity);
    let invitation = invite(&cloud, "e", &json!({"again": true}));
    joined(&edge.db(), &invitation, true).unwrap();
    write(&edge, &an_hour("b"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    assert_ne!(of_edge(&cloud, "e")["copy"]["identity"], identity);
    // What there was is a closed part, and still in answers.
    let (_, answer) = post_sync(&cloud, &json!({"op": "parts"}));
    let closed = &answer["parts"][0];
    assert_eq!(
        (&closed["is_closed"], &closed["rows"], &closed["edge"]),
        (&json!(true), &json!(3600), &json!("e")),
        "{answer}"
    );
    let mut counted = client()
        .get(cloud.url("/api/v1/count?table=pump"))
        .call()
        .unwrap();
    assert_eq!(json(&mut counted)["rows"], 7200);
}

#[test]
fn pauses_hold_at_either_side_and_over_restarts() {
    let cloud = cloud();
    let edge = edge(&cloud, "e");
    write(&edge, &an_hour("a"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    assert_eq!(
        post_sync(&cloud, &json!({"op": "pause", "edge": "e"})).0,
        200
    );
    until("the cloud rests", || {
        of_edge(&cloud, "e")["state"] == "paused"
    });
    assert_eq!(post_sync(&edge, &json!({"op": "pause"})).0, 200);
    until("the edge rests", || {
        status(&edge)["cloud"]["state"] == "paused"
    });
    let edge = edge.restarted(|s| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
    });
    write(&edge, &an_hour("b"));
    until("the edge still rests", || {
        status(&edge)["cloud"]["state"] == "paused"
    });
    assert_eq!(post_sync(&edge, &json!({"op": "resume"})).0, 200);
    assert_eq!(
        post_sync(&cloud, &json!({"op": "resume", "edge": "e"})).0,
        200
    );
    flushed(&edge);
    until_current(&cloud, &edge, "e");
}

#[test]
fn many_edges_are_added_at_once_all_or_none() {
    let cloud = cloud();
    let names: Vec<String> = (0..1_000).map(|n| format!("gw-{n}")).collect();
    let add = |names: &[String]| {
        let asked = json!({"op": "add_edges", "edges": names, "url": cloud.url(""), "want": {"summaries": 8}});
        post_sync(&cloud, &asked)
    };
    let (code, answer) = add(&names);
    assert_eq!(code, 200, "{answer}");
    let invited = answer["invitations"].as_array().unwrap();
    assert_eq!(invited.len(), 1_000);
    let here = status(&cloud)["edges"].as_array().unwrap().len();
    assert_eq!(here, 1_000);
    assert_eq!(of_edge(&cloud, "gw-999")["want"], json!({"summaries": 8}));
    // Each invitation is for its edge.
    let last = &invited[999];
    assert_eq!(last["edge"], "gw-999");
    let dir = tempfile::tempdir().unwrap();
    let invitation = last["invitation"].as_str().unwrap();
    joined(&dir.path().join("db"), invitation, false).unwrap();
    let edge = edge_in(dir);
    until("the edge is connected", || {
        of_edge(&cloud, "gw-999")["is_connected"] == true
            || of_edge(&cloud, "gw-999")["state"] == "current"
    });
    drop(edge);
    // One that is there already, is listed twice, or has no valid name: none is added.
    for bad in [["new-1", "gw-5"], ["new-1", "new-1"], ["new-1", "a/b"]] {
        let (code, answer) = add(&bad.map(str::to_owned));
        assert!(code == 400 || code == 409, "{bad:?}: {answer}");
        let all = status(&cloud)["edges"].as_array().unwrap().clone();
        assert!(all.iter().all(|e| e["name"] != "new-1"), "{bad:?}");
    }
}

#[test]
fn what_cannot_be_has_a_code_and_advice() {
    let (cloud, single) = (cloud(), Running::start());
    let code = |server: &Running, asked: Value| {
        let (status, answer) = post_sync(server, &asked);
        (
            status,
            answer["code"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let add = |edge: &str, url: &str| json!({"op": "add_edge", "edge": edge, "url": url});
    for (server, asked, wanted) in [
        (&single, add("a", "http://x"), (409, "E_ROLE")),
        (&single, json!({"op": "verify"}), (409, "E_ROLE")),
        (&cloud, json!({"op": "verify"}), (409, "E_ROLE")),
        (&cloud, add("a/b", "http://x"), (400, "E_FLEET")),
        (&cloud, add("a", "x"), (400, "E_FLEET")),
        (&cloud, json!({"op": "nothing"}), (400, "E_INVALID")),
        (
            &cloud,
            json!({"op": "verify", "edge": "x"}),
            (404, "E_NOT_FOUND"),
        ),
    ] {
        let (status, found) = code(server, asked.clone());
        assert_eq!((status, found.as_str()), wanted, "{asked}");
    }
    invite(&cloud, "a", &json!({}));
    let twice = code(&cloud, add("a", "http://x"));
    assert_eq!(twice, (409, "E_EDGE_TAKEN".to_owned()));
    let offline = code(&cloud, json!({"op": "verify", "edge": "a"}));
    assert_eq!(offline, (503, "E_UNREACHABLE".to_owned()));
    // The connection is for edges.
    let get = |server: &Running, key: Option<&str>| {
        let mut request = client().get(server.url("/api/v1/sync/connect"));
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut answer = request.call().unwrap();
        (answer.status().as_u16(), json(&mut answer)["code"].clone())
    };
    assert_eq!(get(&single, None), (409, json!("E_ROLE")));
    assert_eq!(get(&cloud, None), (401, json!("E_EDGE_KEY")));
    assert_eq!(get(&cloud, Some("hwe_00")), (401, json!("E_EDGE_KEY")));
}

#[test]
fn a_cap_holds_over_a_restart_of_the_edge() {
    let cloud = cloud();
    let edge = edge(&cloud, "e");
    let capped = |s: &mut headwater_server::Settings| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
        s.sync.day_max = Some(1 << 20);
    };
    let mut edge = edge.restarted(capped);
    let noise = |round: u64| -> String {
        let line = |n: u64| {
            let at = (1_700_000_000 + round * 100_000 + n) * 1_000_000_000;
            // Nothing that could be packed.
            let mixed = (n + round * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let value = (mixed ^ (mixed >> 27)) >> 8;
            format!("noise,id=a v={value}i {at}\n")
        };
        (0..100_000).map(line).collect()
    };
    for round in 0..3 {
        write(&edge, &noise(round));
        flushed(&edge);
        until("something is sent, or the cap is reached", || {
            status(&edge)["cloud"]["sent_today"].as_u64() > Some(300 << 10)
        });
        edge = edge.restarted(capped);
    }
    // With its cap spent it stays away.
    until("it is connected again, or has spent its cap", || {
        let cloud = status(&edge)["cloud"].clone();
        cloud["state"] == "connected" || cloud["quiet"]["cause"] == "day_cap"
    });
    let sent = status(&edge)["cloud"]["sent_today"].as_u64().unwrap();
    assert!(sent <= 1 << 20, "{sent}");
    let there = of_edge(&cloud, "e");
    assert!(
        there["copy"]["bytes"].as_u64().unwrap() <= 1 << 20,
        "{there}"
    );
    assert_ne!(there["state"], "current");
}

#[test]
fn an_answer_says_up_to_when_it_is_the_newest_that_is_known() {
    let cloud = cloud();
    let edge = edge(&cloud, "e");
    let noise = |wanted: fn(u64) -> bool| -> String {
        let lines = (0..20_000u64).filter(|n| wanted(*n)).map(|n| {
            let at = (1_700_000_000 + n) * 1_000_000_000;
            let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let value = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8;
            format!("noise,id=a v={value}i {at}\n")
        });
        lines.collect()
    };
    write(&edge, &noise(|n| n % 4 == 0));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    let until_of = |path: &str| -> Option<i64> {
        let answer = client().get(cloud.url(path)).call().unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let until = answer.headers().get("x-headwater-until")?;
        until.to_str().unwrap().parse().ok()
    };
    let asked = [
        "/api/v1/scan?stream=noise,id%3Da&limit=3",
        "/api/v1/aggregate?channel=noise,id%3Da.v",
        "/api/v1/last?table=noise",
        "/api/v1/count?table=noise",
        "/api/v1/tiles?channel=noise,id%3Da.v&level=9&offset=6484",
        "/tiles/noise,id%3Da.v/9.6484.json",
    ];
    for path in asked {
        assert_eq!(until_of(path), None, "{path}");
    }
    // The edge may send the next state, and not what it names.
    let plain = |s: &mut headwater_server::Settings| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
    };
    let edge = edge.restarted(plain);
    let sent = status(&edge)["cloud"]["sent_today"].as_u64().unwrap();
    // A node that stops in order has counted what it sent, and nothing ahead of that.
    assert!((1..1 << 20).contains(&sent), "{sent}");
    let edge = edge.restarted(|s| {
        plain(s);
        s.sync.day_max = Some(sent + (20 << 10));
    });
    write(&edge, &noise(|n| n % 4 != 0));
    flushed(&edge);
    until("a newer version is known", || {
        of_edge(&cloud, "e")["copy"]["shown_older"] != json!(0)
    });
    let newest = 1_700_000_000_000_000_000 + 19_996 * 1_000_000_000;
    for path in asked {
        let until = until_of(path);
        assert!(
            until.is_some_and(|until| until <= newest),
            "{path}: {until:?}"
        );
    }
    let edge = edge.restarted(plain);
    until_current(&cloud, &edge, "e");
    for path in asked {
        assert_eq!(until_of(path), None, "{path}");
    }
}
