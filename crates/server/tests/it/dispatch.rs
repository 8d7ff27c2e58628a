//! A dispatcher before two clouds with their edges, each a server of its own in this process.

use crate::support::{Running, client, json};
use crate::sync::{
    an_hour, cloud, edge, flushed, post_sync, summaries_of_an_hour, until_current, write,
};
use headwater_server::settings::{DispatchNode, NodeRole};
use headwater_testing::until;
use serde_json::{Value, json};
use ureq::http::Response;

pub(crate) fn dispatcher(nodes: &[&Running]) -> Running {
    dispatcher_in(tempfile::tempdir().unwrap(), nodes, |_| {})
}

pub(crate) fn dispatcher_in(
    dir: tempfile::TempDir,
    nodes: &[&Running],
    change: impl FnOnce(&mut headwater_server::Settings),
) -> Running {
    let nodes = nodes.iter().map(|node| DispatchNode {
        url: node.url(""),
        public_url: node.url(""),
    });
    let nodes = nodes.collect();
    let desk = Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Dispatcher;
        s.dispatch.nodes = nodes;
        change(s);
    });
    let count = desk_nodes(&desk);
    until("all nodes have told what they hold", || {
        let mut answer = client().get(desk.url("/ready")).call().unwrap();
        json(&mut answer)["nodes"] == count
    });
    desk
}

fn desk_nodes(desk: &Running) -> usize {
    let mut answer = client().get(desk.url("/ready")).call().unwrap();
    let told = json(&mut answer);
    match told["nodes_listed"].as_u64() {
        Some(nodes) => usize::try_from(nodes).unwrap(),
        // No node has told anything yet.
        None => {
            until("a node has told what it holds", || {
                client().get(desk.url("/ready")).call().unwrap().status() == 200
            });
            desk_nodes(desk)
        }
    }
}

/// One request, without following where it leads.
fn get_unfollowed(url: &str, headers: &[(&str, &str)]) -> Response<ureq::Body> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into();
    let mut request = agent.get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.call().unwrap()
}

fn text_of(mut answer: Response<ureq::Body>) -> (u16, String) {
    let bytes = answer.body_mut().read_to_vec().unwrap();
    // Bytes that are no text are compared as they are written in sources.
    let text = String::from_utf8(bytes);
    let text = text.unwrap_or_else(|e| e.as_bytes().escape_ascii().to_string());
    (answer.status().as_u16(), text)
}

pub(crate) fn header(answer: &Response<ureq::Body>, name: &str) -> String {
    let value = answer
        .headers()
        .get(name)
        .map(|value| value.to_str().unwrap());
    value.unwrap_or_default().to_owned()
}

/// Where a question is sent, and why there.
pub(crate) fn redirect_of(desk: &Running, path: &str) -> (String, String) {
    let answer = get_unfollowed(&desk.url(path), &[]);
    let said = (
        header(&answer, "location"),
        header(&answer, "x-headwater-place"),
    );
    assert_eq!(answer.status(), 307, "{path}: {:?}", text_of(answer));
    said
}

/// The answer behind a redirect, of which there is exactly one.
pub(crate) fn followed(desk: &Running, path: &str) -> (u16, String) {
    let (location, _) = redirect_of(desk, path);
    let answer = get_unfollowed(&location, &[]);
    assert_ne!(answer.status(), 307, "{location} sends on");
    text_of(answer)
}

pub(crate) fn get(server: &Running, path: &str) -> (u16, String) {
    text_of(get_unfollowed(&server.url(path), &[]))
}

fn relayed(desk: &Running, path: &str) -> (u16, String) {
    text_of(get_unfollowed(
        &desk.url(path),
        &[("x-headwater-relay", "true")],
    ))
}

/// Two clouds with an edge each, which has an hour of a stream.
struct Fleet {
    clouds: [Running; 2],
    edges: [Running; 2],
}

impl Fleet {
    fn new() -> Fleet {
        let clouds = [cloud(), cloud()];
        let edges = [edge(&clouds[0], "north"), edge(&clouds[1], "south")];
        for (at, tag) in ["a", "b"].into_iter().enumerate() {
            write(&edges[at], &an_hour(tag));
            flushed(&edges[at]);
        }
        until_current(&clouds[0], &edges[0], "north");
        until_current(&clouds[1], &edges[1], "south");
        Fleet { clouds, edges }
    }

    fn desk(&self) -> Running {
        let desk = dispatcher(&[&self.clouds[0], &self.clouds[1]]);
        for tag in ["a", "b"] {
            until("both streams are known", || {
                redirect_of(&desk, &scan(tag)).1 == "base"
            });
        }
        desk
    }
}

pub(crate) fn scan(tag: &str) -> String {
    format!("/api/v1/scan?stream=pump,id%3D{tag}&from=1700000000000000000&to=1700000600000000000")
}

pub(crate) fn tile(tag: &str, level: i32, offset: i64) -> String {
    format!("/tiles/pump,id%3D{tag}.flow/{level}.{offset}.json")
}

#[test]
fn a_redirect_leads_to_the_answer_that_the_node_gives() {
    let fleet = Fleet::new();
    let desk = fleet.desk();
    for (at, tag) in ["a", "b"].into_iter().enumerate() {
        for path in [
            scan(tag),
            tile(tag, 0, 3_320_312),
            tile(tag, 8, 12_969),
            format!("/api/v1/tiles?channel=pump,id%3D{tag}.flow&level=3&offset=415039"),
            format!("/api/v1/last?stream=pump,id%3D{tag}"),
            format!("/api/v1/aggregate?channel=pump,id%3D{tag}.flow&bins=5&functions=mean,count"),
            format!("/api/v1/streams?stream=pump,id%3D{tag}"),
        ] {
            let (location, place) = redirect_of(&desk, &path);
            assert!(
                location.starts_with(&fleet.clouds[at].url("/")),
                "{location}"
            );
            assert_eq!(place, "base", "{path}");
            let wanted = get(&fleet.clouds[at], &path);
            assert_eq!(wanted.0, 200, "{path}: {}", wanted.1);
            assert_eq!(followed(&desk, &path), wanted, "{path}");
            assert_eq!(relayed(&desk, &path), wanted, "{path}");
        }
    }
    // What is here of a stream changes with every word of its edge: only who is asked is the same.
    for (at, tag) in ["a", "b"].into_iter().enumerate() {
        let path = format!("/api/v1/presence?stream=pump,id%3D{tag}&bins=2&level=rows&level=8");
        let (location, _) = redirect_of(&desk, &path);
        let node = fleet.clouds[at].url("/");
        assert!(location.starts_with(&node), "{location}");
        let (status, text) = followed(&desk, &path);
        assert!(status == 200 && text.contains("\"cells\":\"hh\""), "{text}");
    }
    // What is not there is said not to be by a node, and so is what is wrong.
    for path in [tile("zz", 0, 0), "/api/v1/tiles?channel=pump".to_owned()] {
        let (location, place) = redirect_of(&desk, &path);
        assert!(
            ["unknown", "whole", "node"].contains(&place.as_str()),
            "{path}: {place}"
        );
        let base = fleet
            .clouds
            .iter()
            .find(|c| location.starts_with(&c.url("/")));
        assert_eq!(followed(&desk, &path), get(base.unwrap(), &path), "{path}");
    }
    let bad = get(&desk, "/api/v1/scan?stream=a&at=home");
    assert_eq!(bad.0, 400, "{}", bad.1);
}

#[test]
fn what_is_at_several_nodes_is_put_together_as_one_node_has_it() {
    let fleet = Fleet::new();
    let desk = fleet.desk();
    let alone = Running::start();
    write(&alone, &an_hour("a"));
    write(&alone, &an_hour("b"));
    let two = "channel=pump,id%3Db.flow&channel=pump,id%3Da.flow&channel=zz.x";
    for form in ["json", "binary"] {
        let path = format!("/api/v1/tiles?{two}&level=0&offset=3320312&format={form}");
        let wanted = get(&alone, &path);
        assert_eq!(
            (wanted.0, get(&desk, &path)),
            (200, wanted.clone()),
            "{form}"
        );
    }
    let by_name = "/api/v1/streams?stream=pump,id%3Db&stream=pump,id%3Da";
    assert_eq!(get(&desk, by_name), get(&alone, by_name));
    let names = |text: &str| -> Vec<String> {
        let all: Value = serde_json::from_str(text).unwrap();
        let streams = all["streams"].as_array().unwrap().clone();
        streams
            .iter()
            .map(|s| s["stream"].as_str().unwrap().to_owned())
            .collect()
    };
    let (status, text) = get(&desk, "/api/v1/streams?table=pump");
    assert_eq!(
        (status, names(&text)),
        (200, vec!["pump,id=a".into(), "pump,id=b".into()])
    );
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["total"], 2);
    assert_eq!(all["tables"], json!([{"table": "pump", "streams": 2}]));
    // Page by page, over the border between nodes.
    let (_, first) = get(&desk, "/api/v1/streams?limit=1");
    let page: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(
        (names(&first), &page["total"]),
        (vec!["pump,id=a".to_owned()], &json!(2))
    );
    let next = page["next"].as_str().unwrap().replace('=', "%3D");
    let (_, second) = get(&desk, &format!("/api/v1/streams?limit=1&after={next}"));
    assert_eq!(names(&second), ["pump,id=b"]);
    let page: Value = serde_json::from_str(&second).unwrap();
    assert_eq!(page["next"], Value::Null);
    // What cannot be put together says so.
    let rows = "/api/v1/last?stream=pump,id%3Da&stream=pump,id%3Db";
    let (status, text) = get(&desk, rows);
    assert!(status == 409 && text.contains("E_APART"), "{text}");
}

#[test]
fn a_query_about_everything_is_refused_where_no_node_has_everything() {
    let fleet = Fleet::new();
    let desk = fleet.desk();
    for path in [
        "/api/v1/count",
        "/api/v1/last?table=pump",
        "/api/v1/aggregate?table=pump",
        "/api/v1/export?table=pump",
        "/query?db=x&q=SHOW%20SERIES",
    ] {
        let (status, text) = get(&desk, path);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, &answer["code"]),
            (503, &json!("E_PARTIAL")),
            "{path}: {text}"
        );
        let missing = answer["missing"].as_array().unwrap();
        assert_eq!(missing.len(), 1, "{path}: {text}");
        assert!(missing[0]["edge"].is_string() && missing[0]["unreachable_since"].is_null());
    }
    // A part is answered only if that is allowed, and says so in its body.
    let (status, text) = get(&desk, "/api/v1/count?partial=allow");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 200, "{text}");
    assert_eq!(
        answer["partial"]["missing"].as_array().unwrap().len(),
        1,
        "{text}"
    );
    let allowed = [("x-headwater-partial", "allow")];
    let (status, text) = text_of(get_unfollowed(&desk.url("/api/v1/count"), &allowed));
    assert!(status == 200 && text.contains("\"partial\""), "{text}");
    // CSV has no place for it.
    let (status, text) = get(&desk, "/api/v1/export?table=pump&partial=allow");
    assert!(status == 406 && text.contains("E_PARTIAL"), "{text}");
    let (status, text) = get(&desk, "/api/v1/count?partial=maybe");
    assert!(status == 400 && text.contains("allow or refuse"), "{text}");
    // The state of a node is no part of anything.
    let stored = get_unfollowed(&desk.url("/api/v1/storage"), &[]);
    assert_eq!(stored.status(), 307);
    assert!(header(&stored, "x-headwater-warning").contains("other nodes"));
    let (_, ready) = get(&desk, "/ready");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["missing"], 1);
    let (_, status) = get(&desk, "/api/v1/sync");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["missing"].as_array().unwrap().len(), 1);
}

#[test]
fn new_values_of_several_nodes_come_in_one_answer() {
    use std::io::Read as _;
    let clouds = [cloud(), cloud()];
    for (at, tag) in ["a", "b"].into_iter().enumerate() {
        write(
            &clouds[at],
            &format!("pump,id={tag} flow=1 1700000000000000000"),
        );
    }
    let desk = dispatcher(&[&clouds[0], &clouds[1]]);
    let path = "/api/v1/live?channel=pump,id%3Da.flow&channel=pump,id%3Db.flow";
    until("both streams are known", || {
        ["a", "b"]
            .iter()
            .all(|tag| redirect_of(&desk, &scan(tag)).1 == "base")
    });
    let mut answer = get_unfollowed(&desk.url(path), &[]);
    assert_eq!(answer.status(), 200);
    let mut reader = answer.body_mut().as_reader();
    let mut seen = String::new();
    let mut read_until = |wanted: &str| {
        let mut piece = [0; 4096];
        while !seen.contains(wanted) {
            let count = reader.read(&mut piece).unwrap();
            assert!(count > 0, "the answer ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    };
    read_until(": live");
    for (at, tag) in ["a", "b"].into_iter().enumerate() {
        write(
            &clouds[at],
            &format!("pump,id={tag} flow=77{at} 1700000100000000000"),
        );
        read_until(&format!("77{at}"));
    }
}

#[cfg(feature = "sql")]
#[test]
fn statements_go_to_a_node_with_their_text() {
    let fleet = Fleet::new();
    let desk = fleet.desk();
    let statement = "SELECT count(*), sum(flow) FROM pump";
    let post = |url: &str, relay: bool| {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .build()
            .into();
        let mut request = agent.post(url);
        if relay {
            request = request.header("x-headwater-relay", "true");
        }
        request.send(statement).unwrap()
    };
    let rows = |answer: Response<ureq::Body>| {
        let (status, text) = text_of(answer);
        assert_eq!(status, 200, "{text}");
        text.split("\"elapsed").next().unwrap().to_owned()
    };
    // Neither of two nodes has both edges.
    let refused = post(&desk.url("/api/v1/sql"), false);
    assert_eq!(refused.status(), 503);
    let (_, text) = text_of(refused);
    assert!(text.contains("E_PARTIAL"), "{text}");
    let part = rows(post(&desk.url("/api/v1/sql?partial=allow"), false));
    // A dispatcher of one of them finds everything there.
    let one = dispatcher(&[&fleet.clouds[0]]);
    until("the node has reported", || {
        post(&one.url("/api/v1/sql"), false).status() == 307
    });
    let sent_on = post(&one.url("/api/v1/sql"), false);
    assert_eq!(header(&sent_on, "x-headwater-place"), "whole");
    let direct = rows(post(&header(&sent_on, "location"), false));
    assert_eq!(rows(post(&one.url("/api/v1/sql"), true)), direct);
    let (rows, said) = part.split_once(",\"partial\"").unwrap();
    assert!(
        direct.starts_with(rows) && said.contains("missing"),
        "{part}"
    );
}

#[test]
fn a_node_that_dies_is_left_out_until_it_answers_again() {
    let fleet = Fleet::new();
    let desk = fleet.desk();
    let Fleet { clouds, edges } = fleet;
    let [first, second] = clouds;
    let (port, db) = (first.addr.port(), scan("a"));
    let wanted = get(&first, &db);
    // It goes while it is asked: the dispatcher finds out by the question, or before.
    let dir = first.ended();
    let (status, text) = relayed(&desk, &db);
    assert!([502, 503].contains(&status), "{text}");
    until("the dispatcher knows", || {
        let (status, text) = get(&desk, &db);
        status == 503 && text.contains("E_UNREACHABLE") && text.contains("north")
    });
    assert_eq!(followed(&desk, &scan("b")), get(&second, &scan("b")));
    let (status, text) = get(&desk, "/api/v1/streams");
    assert!(
        status == 503 && text.contains("unreachable since"),
        "{text}"
    );
    let (status, text) = get(&desk, "/api/v1/streams?partial=allow");
    assert!(status == 200 && text.contains("id=b"), "{text}");
    assert!(text.contains("\"partial\""), "{text}");
    let first = Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(port);
    });
    until("it answers again", || {
        let answer = get_unfollowed(&desk.url(&db), &[]);
        answer.status() == 307 && header(&answer, "location").starts_with(&first.url("/"))
    });
    assert_eq!(followed(&desk, &db), wanted);
    drop(edges);
}

#[test]
fn what_no_node_has_is_fetched_from_the_edge_or_asked_of_itself() {
    let (cloud, edge) = summaries_of_an_hour();
    let desk = dispatcher(&[&cloud]);
    let (coarse, fine) = (tile("a", 8, 12_969), tile("a", 0, 3_320_312));
    until("the stream is known", || {
        redirect_of(&desk, &coarse).1 == "base"
    });
    // One redirect, and the node fetches.
    let (location, place) = redirect_of(&desk, &fine);
    assert_eq!(place, "edge");
    assert!(
        location.starts_with(&cloud.url("/")) && location.contains("fetch=true"),
        "{location}"
    );
    assert_eq!(followed(&desk, &fine), get(&edge, &fine));
    // Now the node has it, and the dispatcher is told.
    until("the tile is told of", || {
        ["filter", "span"].contains(&redirect_of(&desk, &fine).1.as_str())
    });
    assert_eq!(followed(&desk, &fine), get(&edge, &fine));
    // A question for the edge is none for what the node has, and goes in no circle.
    for path in [&coarse, &fine] {
        let at_edge = format!("{path}?at=edge");
        let (location, place) = redirect_of(&desk, &at_edge);
        assert_eq!(place, "edge");
        assert!(
            !location.starts_with(&desk.url("/")) && !location.contains("at="),
            "{location}"
        );
        assert_eq!(followed(&desk, &at_edge), get(&edge, path), "{path}");
    }
    // With an address of its own the edge is asked itself, but for what says otherwise.
    let address = json!({"op": "address", "edge": "e", "address": {"url": edge.url("")}});
    assert_eq!(post_sync(&cloud, &address).0, 200);
    // Rows beside the tile may have come with it: none of another stream have.
    write(&edge, &an_hour("b"));
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    let other = tile("b", 0, 3_320_313);
    until("the address is known", || {
        redirect_of(&desk, &other).0.starts_with(&edge.url("/"))
    });
    assert_eq!(followed(&desk, &other), get(&edge, &other));
    assert!(
        redirect_of(&desk, &format!("{other}?at=node"))
            .0
            .starts_with(&cloud.url("/"))
    );
    // A browser is not sent there, and has its answer.
    let browser = [("user-agent", "Mozilla/5.0"), ("sec-fetch-mode", "cors")];
    let answer = text_of(get_unfollowed(&desk.url(&other), &browser));
    assert_eq!(answer, get(&edge, &other));
    // It moves: the dispatcher follows what the cloud is told.
    let address = json!({"op": "address", "edge": "e", "address": {"url": "http://127.0.0.1:9"}});
    assert_eq!(post_sync(&cloud, &address).0, 200);
    until("the new address is known", || {
        redirect_of(&desk, &other)
            .0
            .starts_with("http://127.0.0.1:9/")
    });
    let gone = json!({"op": "address", "edge": "e"});
    assert_eq!(post_sync(&cloud, &gone).0, 200);
    until("there is none any more", || {
        redirect_of(&desk, &other).0.starts_with(&cloud.url("/"))
    });
    let bad = json!({"op": "address", "edge": "e", "address": {"url": "pump-7"}});
    assert_eq!(post_sync(&cloud, &bad).0, 400);
}

#[test]
fn what_was_fetched_ahead_is_answered_by_its_cloud_with_the_edge_cut_off() {
    let (cloud, edge) = summaries_of_an_hour();
    let desk = dispatcher(&[&cloud]);
    let (coarse, fine) = (tile("a", 8, 12_969), tile("a", 0, 3_320_313));
    until("the stream is known", || {
        redirect_of(&desk, &coarse).1 == "base"
    });
    assert_eq!(redirect_of(&desk, &fine).1, "edge");
    // Its rows are wanted ahead of any reader.
    let begins = 3_320_313 * 512;
    let pin = json!({
        "op": "pin", "edge": "e", "table": "pump",
        "from_ns": (begins - 60) * 1_000_000_000_i64, "to_ns": (begins + 572) * 1_000_000_000_i64,
    });
    assert_eq!(post_sync(&cloud, &pin).0, 200);
    until("the dispatcher knows of the stretch", || {
        redirect_of(&desk, &fine).1 == "span"
    });
    let wanted = get(&edge, &fine);
    drop(edge);
    until("the node knows that the edge is away", || {
        !redirect_of(&desk, &tile("a", 0, 3_320_316))
            .0
            .contains("fetch=true")
    });
    let (location, place) = redirect_of(&desk, &fine);
    assert_eq!(place, "span");
    assert!(location.starts_with(&cloud.url("/")), "{location}");
    assert_eq!(followed(&desk, &fine), wanted);
    // Beside the stretch nobody claims to have anything.
    let beside = tile("a", 0, 3_320_316);
    assert_eq!(redirect_of(&desk, &beside).1, "edge");
    let (status, text) = followed(&desk, &beside);
    assert!(status == 503 && text.contains("E_ELSEWHERE"), "{text}");
}

#[test]
fn a_busy_node_gets_fewer_of_the_streams_that_two_nodes_have() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let nodes = [Running::start(), Running::start()];
    let tags: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    for node in &nodes {
        let line = |tag: &String| format!("pump,id={tag} flow=1 1700000000000000000\n");
        write(node, &tags.iter().map(line).collect::<String>());
    }
    let desk = dispatcher(&[&nodes[0], &nodes[1]]);
    let of_first = || {
        let at_first = |tag: &&String| {
            let (location, place) = redirect_of(&desk, &scan(tag));
            place == "base" && location.starts_with(&nodes[0].url("/"))
        };
        tags.iter().filter(at_first).count()
    };
    until("all streams are known, at both nodes", || {
        let all_known = tags
            .iter()
            .all(|tag| redirect_of(&desk, &scan(tag)).1 == "base");
        all_known && (1..20).contains(&of_first())
    });
    let before = of_first();
    // A stream stays at its node.
    assert_eq!(of_first(), before);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..30 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut all = client().get(nodes[0].url("/api/v1/held")).call().unwrap();
                    let all = all.body_mut().read_to_vec().unwrap();
                    let held = headwater_protocol::dispatch::decode(&all).unwrap();
                    let (epoch, since) = (held.epoch, held.version);
                    let path = format!("/api/v1/held?epoch={epoch}&since={since}&wait=3");
                    let _ = client().get(nodes[0].url(&path)).call();
                }
            });
        }
        until("the busy node gets nothing", || of_first() == 0);
        is_over.store(true, Ordering::Relaxed);
    });
    until("its streams come back", || of_first() == before);
}

#[test]
fn who_was_sent_by_old_tables_is_told_that_it_is_not_there_any_more() {
    let (cloud, edge) = summaries_of_an_hour();
    let desk = dispatcher(&[&cloud]);
    let (coarse, fine) = (tile("a", 8, 12_969), tile("a", 0, 3_320_312));
    until("the stream is known", || {
        redirect_of(&desk, &coarse).1 == "base"
    });
    assert_eq!(followed(&desk, &fine).0, 200);
    until("the tile is told of", || {
        ["filter", "span"].contains(&redirect_of(&desk, &fine).1.as_str())
    });
    let old = [&coarse, &fine].map(|path| redirect_of(&desk, path).0);
    for (location, path) in old.iter().zip([&coarse, &fine]) {
        assert_eq!(text_of(get_unfollowed(location, &[])), get(&edge, path));
    }
    // The copy goes, and whoever holds an old answer of the dispatcher goes where it was.
    let removal = json!({"op": "remove_edge", "edge": "e", "with_history": true});
    assert_eq!(post_sync(&cloud, &removal).0, 200);
    for location in &old {
        let (code, text) = text_of(get_unfollowed(location, &[]));
        assert!(code == 404 || code == 503, "{code} {text}");
    }
    // The dispatcher comes to know of it, and sends nobody to what is not there as if it were.
    for path in [&coarse, &fine] {
        until("nobody has it", || redirect_of(&desk, path).1 == "unknown");
        let (code, text) = followed(&desk, path);
        assert_eq!(code, 404, "{text}");
    }
}

#[test]
fn dispatchers_that_are_each_others_nodes_answer_nothing_and_do_not_go_round() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let of = |url: String| DispatchNode {
        url: url.clone(),
        public_url: url,
    };
    let first = Running::start_with(|s| {
        s.sync.role = NodeRole::Dispatcher;
        s.dispatch.nodes = vec![of(format!("http://{addr}"))];
    });
    let second = Running::start_with(|s| {
        s.http_addr = addr;
        s.sync.role = NodeRole::Dispatcher;
        s.dispatch.nodes = vec![of(first.url("")), of(format!("http://{addr}"))];
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    let relay = [("x-headwater-relay", "true")];
    for desk in [&first, &second] {
        assert_eq!(get(desk, "/ready").0, 503);
        for headers in [&relay[..0], &relay[..]] {
            let (code, text) = text_of(get_unfollowed(&desk.url(&scan("a")), headers));
            assert!(
                code == 503 && text.contains("E_UNREACHABLE"),
                "{code} {text}"
            );
        }
        let told = json(&mut client().get(desk.url("/api/v1/sync")).call().unwrap());
        for node in told["nodes"].as_array().unwrap() {
            assert_eq!(node["is_live"], false, "{told}");
        }
    }
}

#[test]
fn two_dispatchers_answer_alike_and_a_new_one_learns_all_anew() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.desk(), fleet.desk());
    for path in [scan("a"), scan("b"), tile("b", 0, 3_320_312)] {
        assert_eq!(redirect_of(&one, &path), redirect_of(&other, &path));
    }
    let nodes: Vec<DispatchNode> = fleet
        .clouds
        .iter()
        .map(|cloud| DispatchNode {
            url: cloud.url(""),
            public_url: cloud.url(""),
        })
        .collect();
    let one = one.restarted(|s| {
        s.sync.role = NodeRole::Dispatcher;
        s.dispatch.nodes = nodes;
    });
    until("it has learned", || {
        let answer = get_unfollowed(&one.url(&scan("b")), &[]);
        answer.status() == 307 && header(&answer, "x-headwater-place") == "base"
    });
    assert_eq!(followed(&one, &scan("b")), followed(&other, &scan("b")));
    drop(fleet.edges);
}
