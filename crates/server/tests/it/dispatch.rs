//! A dispatcher before two clouds with their edges, each a server of its own in this process.

use crate::support::{Running, client, json};
use crate::sync::{
    an_hour, ask, cloud, edge, edge_in, flushed, invite, joined, summaries_of_an_hour,
    until_current, write,
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
fn asked(url: &str, headers: &[(&str, &str)]) -> Response<ureq::Body> {
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

fn header(answer: &Response<ureq::Body>, name: &str) -> String {
    let value = answer
        .headers()
        .get(name)
        .map(|value| value.to_str().unwrap());
    value.unwrap_or_default().to_owned()
}

/// Where a question is sent, and why there.
fn sent(desk: &Running, path: &str) -> (String, String) {
    let answer = asked(&desk.url(path), &[]);
    let said = (
        header(&answer, "location"),
        header(&answer, "x-headwater-place"),
    );
    assert_eq!(answer.status(), 307, "{path}: {:?}", text_of(answer));
    said
}

/// The answer behind a redirect, of which there is exactly one.
fn followed(desk: &Running, path: &str) -> (u16, String) {
    let (location, _) = sent(desk, path);
    let answer = asked(&location, &[]);
    assert_ne!(answer.status(), 307, "{location} sends on");
    text_of(answer)
}

fn get(server: &Running, path: &str) -> (u16, String) {
    text_of(asked(&server.url(path), &[]))
}

fn relayed(desk: &Running, path: &str) -> (u16, String) {
    text_of(asked(&desk.url(path), &[("x-headwater-relay", "true")]))
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
                sent(&desk, &scan(tag)).1 == "base"
            });
        }
        desk
    }
}

fn scan(tag: &str) -> String {
    format!("/api/v1/scan?stream=pump,id%3D{tag}&from=1700000000000000000&to=1700000600000000000")
}

fn tile(tag: &str, level: i32, offset: i64) -> String {
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
            let (location, place) = sent(&desk, &path);
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
        let (location, _) = sent(&desk, &path);
        let node = fleet.clouds[at].url("/");
        assert!(location.starts_with(&node), "{location}");
        let (status, text) = followed(&desk, &path);
        assert!(status == 200 && text.contains("\"cells\":\"hh\""), "{text}");
    }
    // What is not there is said not to be by a node, and so is what is wrong.
    for path in [tile("zz", 0, 0), "/api/v1/tiles?channel=pump".to_owned()] {
        let (location, place) = sent(&desk, &path);
        assert!(place == "unknown" || place == "whole", "{path}: {place}");
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
    // What cannot be put together says so, and a question about everything that it is a part.
    let rows = "/api/v1/last?stream=pump,id%3Da&stream=pump,id%3Db";
    let (status, text) = get(&desk, rows);
    assert!(status == 409 && text.contains("E_APART"), "{text}");
    let counted = asked(&desk.url("/api/v1/count"), &[]);
    let warning = header(&counted, "x-headwater-warning");
    assert!(
        counted.status() == 307 && warning.contains("other nodes"),
        "{warning}"
    );
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
            .all(|tag| sent(&desk, &scan(tag)).1 == "base")
    });
    let mut answer = asked(&desk.url(path), &[]);
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
    let sent_on = post(&desk.url("/api/v1/sql"), false);
    assert_eq!(sent_on.status(), 307);
    let location = header(&sent_on, "location");
    let direct = rows(post(&location, false));
    assert_eq!(rows(post(&desk.url("/api/v1/sql"), true)), direct);
    let warning = header(&sent_on, "x-headwater-warning");
    assert!(warning.contains("other nodes"), "{warning}");
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
        status == 307 || (status == 200 && text.contains("id=b")),
        "{text}"
    );
    let first = Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(port);
    });
    until("it answers again", || {
        let answer = asked(&desk.url(&db), &[]);
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
    until("the stream is known", || sent(&desk, &coarse).1 == "base");
    // One redirect, and the node fetches.
    let (location, place) = sent(&desk, &fine);
    assert_eq!(place, "edge");
    assert!(
        location.starts_with(&cloud.url("/")) && location.contains("fetch=true"),
        "{location}"
    );
    assert_eq!(followed(&desk, &fine), get(&edge, &fine));
    // Now the node has it, and the dispatcher is told.
    until("the tile is told of", || sent(&desk, &fine).1 == "filter");
    assert_eq!(followed(&desk, &fine), get(&edge, &fine));
    // A question for the edge is none for what the node has, and goes in no circle.
    for path in [&coarse, &fine] {
        let at_edge = format!("{path}?at=edge");
        let (location, place) = sent(&desk, &at_edge);
        assert_eq!(place, "edge");
        assert!(
            !location.starts_with(&desk.url("/")) && !location.contains("at="),
            "{location}"
        );
        assert_eq!(followed(&desk, &at_edge), get(&edge, path), "{path}");
    }
    // With an address of its own the edge is asked itself, but for what says otherwise.
    let address = json!({"op": "address", "edge": "e", "address": {"url": edge.url("")}});
    assert_eq!(ask(&cloud, &address).0, 200);
    let other = tile("a", 0, 3_320_313);
    until("the address is known", || {
        sent(&desk, &other).0.starts_with(&edge.url("/"))
    });
    assert_eq!(followed(&desk, &other), get(&edge, &other));
    assert!(
        sent(&desk, &format!("{other}?at=node"))
            .0
            .starts_with(&cloud.url("/"))
    );
    // A browser is not sent there, and has its answer.
    let browser = [("user-agent", "Mozilla/5.0"), ("sec-fetch-mode", "cors")];
    let answer = text_of(asked(&desk.url(&other), &browser));
    assert_eq!(answer, get(&edge, &other));
    // It moves: the dispatcher follows what the cloud is told.
    let address = json!({"op": "address", "edge": "e", "address": {"url": "http://127.0.0.1:9"}});
    assert_eq!(ask(&cloud, &address).0, 200);
    until("the new address is known", || {
        sent(&desk, &other).0.starts_with("http://127.0.0.1:9/")
    });
    let gone = json!({"op": "address", "edge": "e"});
    assert_eq!(ask(&cloud, &gone).0, 200);
    until("there is none any more", || {
        sent(&desk, &other).0.starts_with(&cloud.url("/"))
    });
    let bad = json!({"op": "address", "edge": "e", "address": {"url": "pump-7"}});
    assert_eq!(ask(&cloud, &bad).0, 400);
}

#[test]
fn who_was_sent_by_old_tables_is_told_that_it_is_not_there_any_more() {
    let (cloud, edge) = summaries_of_an_hour();
    let desk = dispatcher(&[&cloud]);
    let (coarse, fine) = (tile("a", 8, 12_969), tile("a", 0, 3_320_312));
    until("the stream is known", || sent(&desk, &coarse).1 == "base");
    assert_eq!(followed(&desk, &fine).0, 200);
    until("the tile is told of", || sent(&desk, &fine).1 == "filter");
    let old = [&coarse, &fine].map(|path| sent(&desk, path).0);
    for (location, path) in old.iter().zip([&coarse, &fine]) {
        assert_eq!(text_of(asked(location, &[])), get(&edge, path));
    }
    // The copy goes, and whoever holds an old answer of the dispatcher goes where it was.
    assert_eq!(
        ask(&cloud, &json!({"op": "remove_edge", "edge": "e"})).0,
        200
    );
    for location in &old {
        let (code, text) = text_of(asked(location, &[]));
        assert!(code == 404 || code == 503, "{code} {text}");
    }
    // The dispatcher comes to know of it, and sends nobody to what is not there as if it were.
    for path in [&coarse, &fine] {
        until("nobody has it", || sent(&desk, path).1 == "unknown");
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
            let (code, text) = text_of(asked(&desk.url(&scan("a")), headers));
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
        sent(&desk, &tile("a", 8, 12_969)).1 == "base"
    });
    drop(edge);
    let fine = tile("a", 0, 3_320_312);
    until("the node knows that it is away", || {
        !sent(&desk, &fine).0.contains("fetch=true")
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
fn two_dispatchers_answer_alike_and_a_new_one_learns_all_anew() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.desk(), fleet.desk());
    for path in [scan("a"), scan("b"), tile("b", 0, 3_320_312)] {
        assert_eq!(sent(&one, &path), sent(&other, &path));
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
        let answer = asked(&one.url(&scan("b")), &[]);
        answer.status() == 307 && header(&answer, "x-headwater-place") == "base"
    });
    assert_eq!(followed(&one, &scan("b")), followed(&other, &scan("b")));
    drop(fleet.edges);
}
