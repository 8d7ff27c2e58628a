//! The list of rights of a cloud, at its edges, at a dispatcher and at another cloud.

use crate::dispatch::dispatcher_in;
use crate::support::{Running, client, json};
use crate::sync::{joined, write};
use headwater_server::rights::keys::RightsKeys;
use headwater_server::rules::AccessRule;
use headwater_server::settings::NodeRole;
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A revocation reaches connected nodes within this; measured, it takes some three seconds.
const WITHIN: Duration = Duration::from_secs(60);
const ROWS: &str = "/api/v1/scan?stream=pump,id%3Da";
const OTHERS: &str = "/api/v1/scan?stream=vans,id%3Da";

pub(crate) fn tokens(server: &Running) -> TokenFile {
    TokenFile::of_database(server.db())
}

pub(crate) fn create(file: &TokenFile, name: &str, rules: &[&str]) -> String {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let new = NewToken {
        name: name.to_owned(),
        rules,
        expires: None,
    };
    file.create(new).unwrap()
}

fn status_of(url: &str, token: &str) -> u16 {
    let asked = client().get(url);
    let asked = asked.header("authorization", format!("Bearer {token}"));
    asked.call().unwrap().status().as_u16()
}

fn sync(server: &Running, token: &str, asked: &Value) -> Value {
    let sent = client().post(server.url("/api/v1/sync"));
    let sent = sent.header("authorization", format!("Bearer {token}"));
    let mut answer = sent.send(asked.to_string()).unwrap();
    let body = json(&mut answer);
    assert_eq!(answer.status(), 200, "{body}");
    body
}

/// Status of the list of rights.
fn rights(server: &Running, token: &str) -> Value {
    let asked = client().get(server.url("/api/v1/sync"));
    let asked = asked.header("authorization", format!("Bearer {token}"));
    json(&mut asked.call().unwrap())["rights"].clone()
}

/// A cloud with tokens, and the token of its operator.
pub(crate) fn cloud_with(
    change: impl FnOnce(&mut headwater_server::Settings),
) -> (Running, String) {
    let mut admin = String::new();
    let cloud = Running::start_with(|s| {
        s.sync.role = NodeRole::Cloud;
        let file = TokenFile::of_database(s.db());
        admin = create(&file, "admin", &["read *", "write *", "manage *"]);
        change(s);
    });
    (cloud, admin)
}

pub(crate) fn invited(cloud: &Running, admin: &str, name: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let asked = json!({"op": "add_edge", "edge": name, "url": cloud.url("")});
    let answer = sync(cloud, admin, &asked);
    let invitation = answer["invitation"].as_str().unwrap();
    joined(&dir.path().join("db"), invitation, false).unwrap();
    dir
}

fn edge_in(dir: TempDir, vetoes: &[&str]) -> Running {
    let vetoes: Vec<AccessRule> = vetoes.iter().map(|veto| veto.parse().unwrap()).collect();
    Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Edge;
        s.rights.vetoes = vetoes;
    })
}

/// An edge of a cloud, with rows of two tables, and a token of its own.
fn edge(cloud: &Running, admin: &str, vetoes: &[&str]) -> (Running, String) {
    let edge = edge_in(invited(cloud, admin, "e"), vetoes);
    write(
        &edge,
        "pump,id=a flow=1 1700000000000000000\nvans,id=a v=1 1700000000000000000\n",
    );
    let own = create(&tokens(&edge), "own", &["read *", "manage *"]);
    until("the edge has tokens in use", || {
        status_of(&edge.url(ROWS), "hw_00") == 401
    });
    (edge, own)
}

/// Live values, in a thread that ends with them; returns how many lines came.
fn live(server: &Running, token: &str) -> std::thread::JoinHandle<usize> {
    let asked = client().get(server.url("/api/v1/live?channel=pump,id%3Da.flow"));
    let asked = asked.header("authorization", format!("Bearer {token}"));
    let mut answer = asked.call().unwrap();
    assert_eq!(answer.status(), 200);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let lines = BufReader::new(answer.body_mut().as_reader()).lines();
        let lines = lines.map_while(Result::ok);
        lines.inspect(|_| begun.send(()).unwrap_or(())).count()
    });
    has_begun.recv_timeout(Duration::from_secs(20)).unwrap();
    thread
}

/// The age of the received list, and whether it is stale.
fn age(server: &Running, token: &str) -> (u64, bool) {
    let told = rights(server, token);
    let is_stale = told["is_stale"].as_bool();
    (told["age_seconds"].as_u64().unwrap(), is_stale.unwrap())
}

#[test]
fn a_list_is_as_old_as_the_time_since_its_sender_was_reached() {
    let (cloud, admin) = cloud_with(|_| {});
    let (edge, own) = edge(&cloud, &admin, &[]);
    let reader = create(&tokens(&cloud), "reader", &["read pump"]);
    until("the list has arrived", || {
        status_of(&edge.url(ROWS), &reader) == 200
    });
    // As long as the cloud is there, it becomes young again and again.
    std::thread::sleep(Duration::from_secs(7));
    until("it is young after a while", || age(&edge, &own).0 <= 4);
    assert!(!age(&edge, &own).1, "it is stale beside its sender");
    drop(cloud);
    until("it grows older", || age(&edge, &own).0 >= 8);
    // After a restart, a list of yesterday is above its age, and refused where that is set.
    let yesterday = std::time::SystemTime::now() - Duration::from_secs(86_400);
    for refuses in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        std::fs::create_dir_all(&db).unwrap();
        for name in ["tokens.json", "rights.list"] {
            std::fs::copy(edge.db().join(name), db.join(name)).unwrap();
        }
        let copied = db.join("rights.list");
        let file = std::fs::File::options().write(true).open(copied).unwrap();
        file.set_modified(yesterday).unwrap();
        let node = Running::start_in(dir, |s| {
            s.sync.role = NodeRole::Edge;
            s.rights.max_age = Some(Duration::from_secs(3_600));
            s.rights.refuses_stale = refuses;
        });
        let streams = node.url("/api/v1/streams");
        let (seconds, is_stale) = age(&node, &own);
        assert!(seconds >= 86_400 && is_stale, "{seconds} s");
        let expected = if refuses { 401 } else { 200 };
        assert_eq!(status_of(&streams, &reader), expected);
        assert_eq!(status_of(&streams, &own), 200);
        let asked = client().get(node.url("/metrics"));
        let asked = asked.header("authorization", format!("Bearer {own}"));
        let text = asked.call().unwrap().body_mut().read_to_string().unwrap();
        assert!(text.contains("headwater_rights_list_stale 1"), "{text}");
    }
}

#[test]
fn a_token_of_the_cloud_is_valid_at_its_edge_and_ends_there_with_its_open_answers() {
    let (cloud, admin) = cloud_with(|_| {});
    let (edge, own) = edge(&cloud, &admin, &[]);
    let reader = create(&tokens(&cloud), "reader", &["read pump"]);
    let other = create(&tokens(&cloud), "other", &["read pump"]);
    until("the list has arrived", || {
        status_of(&edge.url(ROWS), &reader) == 200
    });
    assert_eq!(status_of(&edge.url(OTHERS), &reader), 404);
    for path in [
        "/tiles/pump,id%3Da.flow/0.3320312.json",
        "/api/v1/last?stream=pump,id%3Da",
        "/api/v1/streams",
    ] {
        assert_eq!(status_of(&edge.url(path), &reader), 200, "{path}");
    }
    let told = rights(&edge, &own);
    assert_eq!(
        (&told["number"], &told["tokens"]),
        (&json!(3), &json!(3)),
        "{told}"
    );
    assert_eq!(told["error"], Value::Null);
    let signed = rights(&cloud, &admin);
    assert_eq!(signed["signs"], 3, "{signed}");
    let (stream, stays) = (live(&edge, &reader), live(&edge, &other));
    tokens(&cloud).revoke("reader").unwrap();
    let begun = Instant::now();
    until("it is valid no more", || {
        status_of(&edge.url(ROWS), &reader) == 401
    });
    until("its live values have ended", || stream.is_finished());
    assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
    eprintln!("a revocation reached the edge after {:?}", begun.elapsed());
    assert!(!stays.is_finished());
    assert_eq!(status_of(&edge.url(ROWS), &other), 200);
    // The edge goes on with the list without its cloud, also after a restart.
    drop(cloud);
    let edge = edge.restarted(|s| s.sync.role = NodeRole::Edge);
    assert_eq!(status_of(&edge.url(ROWS), &other), 200);
    assert_eq!(status_of(&edge.url(ROWS), &reader), 401);
    let edge = edge.restarted(|s| {
        s.sync.role = NodeRole::Edge;
        s.rights.list = headwater_server::rights::ListUse::Ignore;
    });
    assert_eq!(status_of(&edge.url(ROWS), &other), 401);
    assert_eq!(status_of(&edge.url(ROWS), &own), 200);
}

#[test]
fn an_edge_vetoes_rights_of_the_list() {
    let (cloud, admin) = cloud_with(|_| {});
    let (edge, own) = edge(&cloud, &admin, &["write *", "read vans"]);
    until("the list has arrived", || {
        status_of(&edge.url(ROWS), &admin) == 200
    });
    let hidden = client().get(edge.url(OTHERS));
    let hidden = hidden.header("authorization", format!("Bearer {admin}"));
    let mut hidden = hidden.call().unwrap();
    let absent = client().get(edge.url(&OTHERS.replace("vans", "none")));
    let absent = absent.header("authorization", format!("Bearer {admin}"));
    let mut absent = absent.call().unwrap();
    assert_eq!(hidden.status(), 404);
    let text = |answer: &mut ureq::http::Response<ureq::Body>| {
        answer
            .body_mut()
            .read_to_string()
            .unwrap()
            .replace("vans", "none")
    };
    assert_eq!(text(&mut hidden), text(&mut absent));
    let names = client().get(edge.url("/api/v1/streams"));
    let names = names.header("authorization", format!("Bearer {admin}"));
    let names = names.call().unwrap().body_mut().read_to_string().unwrap();
    assert!(names.contains("pump") && !names.contains("vans"), "{names}");
    let sent = client().post(edge.url("/write"));
    let sent = sent.header("authorization", format!("Bearer {admin}"));
    assert_eq!(sent.send("pump,id=a flow=2").unwrap().status(), 403);
    assert_eq!(status_of(&edge.url(OTHERS), &own), 200);
    let told = rights(&edge, &own);
    assert_eq!(told["vetoes"], json!(["write *", "read vans"]), "{told}");
}

#[test]
fn a_dispatcher_and_another_cloud_take_the_list_and_follow_a_revocation() {
    let (cloud, admin) = cloud_with(|_| {});
    write_with(&cloud, &admin, "pump,id=a flow=1 1700000000000000000\n");
    let dir = tempfile::tempdir().unwrap();
    let own = create(&tokens(&cloud), "dispatcher", &["read *"]);
    let token = dir.path().join("token");
    std::fs::write(&token, format!("{own}\n")).unwrap();
    let from = |s: &mut headwater_server::Settings, token: &Path| {
        s.rights.from = Some(cloud.url(""));
        s.rights.token_file = Some(token.to_owned());
        s.rights.list = headwater_server::rights::ListUse::Require;
    };
    let other: PathBuf = token.clone();
    let second = Running::start_with(|s| {
        s.sync.role = NodeRole::Cloud;
        from(s, &other);
    });
    // It has no tokens of its own, and is locked all the same.
    assert_eq!(status_of(&second.url("/api/v1/streams"), "hw_00"), 401);
    let desk = dispatcher_in(dir, &[&cloud], |s| {
        s.dispatch.token_file = Some(token.clone());
        from(s, &token);
    });
    let reader = create(&tokens(&cloud), "reader", &["read pump"]);
    let path = "/api/v1/streams";
    for server in [&desk, &second] {
        until("the list has arrived", || {
            status_of(&server.url(path), &reader) == 200
        });
    }
    // The node answers with the ticket of the dispatcher.
    assert_eq!(status_of(&desk.url(ROWS), &reader), 200);
    // The other cloud passes the list on to its edges.
    let third = edge_in(invited(&second, &admin, "e"), &[]);
    let locked = create(&tokens(&third), "own", &[]);
    until("the list has arrived over another cloud", || {
        status_of(&third.url(path), &reader) == 200
    });
    drop(locked);
    tokens(&cloud).revoke("reader").unwrap();
    let begun = Instant::now();
    for server in [&desk, &second, &third] {
        until("it is valid no more", || {
            status_of(&server.url(path), &reader) == 401
        });
    }
    assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
    eprintln!(
        "a revocation reached three nodes after {:?}",
        begun.elapsed()
    );
    // The list is given to those who read everything, and to nobody else.
    let few = create(&tokens(&cloud), "few", &["read pump", "manage *"]);
    until("the token is known", || {
        status_of(&cloud.url(path), &few) == 200
    });
    assert_eq!(status_of(&cloud.url("/api/v1/rights"), &few), 403);
    assert_eq!(status_of(&cloud.url("/api/v1/rights"), &own), 200);
    assert_eq!(status_of(&desk.url("/api/v1/rights"), &own), 404);
}

fn write_with(server: &Running, token: &str, lines: &str) {
    let sent = client().post(server.url("/write"));
    let sent = sent.header("authorization", format!("Bearer {token}"));
    assert_eq!(sent.send(lines).unwrap().status(), 204);
}

/// The key of an edge for its cloud.
fn key_of(edge: &Path) -> String {
    let text = std::fs::read_to_string(edge.join("uplink.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["key"].as_str().unwrap().to_owned()
}

#[test]
fn keys_of_edges_and_of_the_list_change_without_losing_anybody() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let (cloud, admin) = cloud_with(|s| s.http_addr.set_port(port));
    let (edge, own) = edge(&cloud, &admin, &[]);
    let away = invited(&cloud, &admin, "away");
    until("the list has arrived", || {
        status_of(&edge.url(ROWS), &admin) == 200
    });
    let before = [key_of(&edge.db()), key_of(&away.path().join("db"))];
    let file = std::fs::read_to_string(edge.db().join("uplink.json")).unwrap();
    assert!(
        file.contains("rights_key"),
        "the key of the list came with joining"
    );
    // Two rotations of the key of the list, the first of which has an end that nobody waits for.
    RightsKeys::rotate(&tokens(&cloud), jiff::SignedDuration::from_hours(1)).unwrap();
    let number = |edge: &Running| rights(edge, &own)["number"].clone();
    until("the rotation is known", || number(&edge) == json!(2));
    assert_eq!(
        rights(&cloud, &admin)["next_key"].as_str().unwrap().len(),
        64
    );
    RightsKeys::rotate(&tokens(&cloud), jiff::SignedDuration::ZERO).unwrap();
    until("the new key signs", || number(&edge) == json!(3));
    assert_eq!(
        sync(&cloud, &admin, &json!({"op": "rotate_keys"}))["edges"],
        2
    );
    until("the edge has its next key", || {
        key_of(&edge.db()) != before[0]
    });
    let is_due = |cloud: &Running, name: &str| {
        let text = std::fs::read_to_string(cloud.db().join("edges.json")).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let edges = list["edges"].as_array().unwrap();
        let edge = edges.iter().find(|edge| edge["name"] == name).unwrap();
        edge["is_key_due"] == json!(true)
    };
    until("the cloud knows", || !is_due(&cloud, "e"));
    assert!(is_due(&cloud, "away"));
    // The cloud restarts: the edge is let in by its next key, and not by the one before.
    let cloud = cloud.restarted(|s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(port);
    });
    assert_eq!(
        status_of(&cloud.url("/api/v1/sync/connect"), &before[0]),
        401
    );
    let reader = create(&tokens(&cloud), "reader", &["read pump"]);
    until("the edge is back", || {
        status_of(&edge.url(ROWS), &reader) == 200
    });
    // One that was away for both rotations follows the chain, and gets its next key.
    let away = edge_in(away, &[]);
    let locked = create(&tokens(&away), "own", &["manage *"]);
    until("the list has arrived", || {
        status_of(&away.url("/api/v1/streams"), &reader) == 200
    });
    assert_eq!(rights(&away, &locked)["error"], Value::Null);
    until("it has its next key", || key_of(&away.db()) != before[1]);
    until("the cloud knows", || !is_due(&cloud, "away"));
}

#[test]
fn a_relay_gets_its_next_key_and_takes_no_list() {
    let (first, admin) = cloud_with(|_| {});
    let (second, other) = cloud_with(|_| {});
    let (_edge, _) = edge(&first, &admin, &[]);
    let asked = json!({"op": "add_edge", "edge": "e", "url": second.url("")});
    let invitation = sync(&second, &other, &asked)["invitation"].clone();
    let asked = json!({"op": "relay", "edge": "e", "invitation": invitation});
    sync(&first, &admin, &asked);
    let relay = first.db().join("relays/e");
    let before = key_of(&relay);
    let asked = json!({"op": "rotate_keys", "edge": "e"});
    assert_eq!(sync(&second, &other, &asked)["edges"], 1);
    until("the relay has its next key", || key_of(&relay) != before);
    until("the key before has ended", || {
        status_of(&second.url("/api/v1/sync/connect"), &before) == 401
    });
    // A token of the other cloud is none here.
    assert_eq!(status_of(&first.url("/api/v1/streams"), &other), 401);
    assert!(!relay.join("rights.list").exists());
}
