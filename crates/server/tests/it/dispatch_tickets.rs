//! Tickets between a dispatcher and two nodes with the same tokens: what they let in, and what not.

use crate::dispatch::dispatcher_in;
use crate::support::{Running, client};
use crate::sync::{cloud, invite, joined, write};
use headwater::{Batch, Database, Options, StreamName};
use headwater_server::settings::NodeRole;
use headwater_server::tokens::{Grant, NewToken, TokenFile};
use headwater_shell::access::ticket::{Ticket, TicketKey};
use headwater_testing::until;
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;
use ureq::http::Response;

const AT: i64 = 1_700_000_000_000_000_000;

/// A dispatcher and two nodes that have a stream of cars each, and one of vans.
struct Scene {
    desk: Running,
    nodes: [Running; 2],
    reader: String,
    all: String,
}

fn create_token(file: &TokenFile, name: &str, rules: &[&str]) -> String {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let new = NewToken {
        name: name.to_owned(),
        rules,
        expires: None,
    };
    file.create(new).unwrap()
}

fn node(tokens: &Path, ids: [&str; 2]) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(Options::new(dir.path().join("db"))).unwrap();
    let mut batch = Batch::new();
    for (table, id) in [("cars", ids[0]), ("vans", ids[1])] {
        let rows = batch.stream(&StreamName::new(table, [("id", id)]));
        rows.row(AT, [("v", 1.5.into())]).unwrap();
    }
    db.commit(batch).unwrap();
    db.close().unwrap();
    drop(db);
    std::fs::copy(tokens, dir.path().join("db/tokens.json")).unwrap();
    Running::start_in(dir, |_| {})
}

impl Scene {
    fn new() -> Scene {
        let dir: TempDir = tempfile::tempdir().unwrap();
        let file = TokenFile::of_database(dir.path().join("db"));
        let own = create_token(&file, "dispatcher", &["read *"]);
        let reader = create_token(&file, "reader", &["read cars", "write *", "manage *"]);
        let all = create_token(&file, "all", &["read *", "manage *"]);
        let token = dir.path().join("token");
        std::fs::write(&token, format!("{own}\n")).unwrap();
        let nodes = [
            node(&file.path(), ["a", "b"]),
            node(&file.path(), ["c", "d"]),
        ];
        let desk = dispatcher_in(dir, &[&nodes[0], &nodes[1]], |s| {
            s.dispatch.token_file = Some(token);
        });
        Scene {
            desk,
            nodes,
            reader,
            all,
        }
    }

    /// Where the dispatcher sends a question.
    fn redirect_of(&self, path: &str, token: &str) -> String {
        let answer = get(&self.desk.url(path), Some(token));
        assert_eq!(answer.status(), 307, "{path}");
        answer.headers()["location"].to_str().unwrap().to_owned()
    }
}

fn get(url: &str, token: Option<&str>) -> Response<ureq::Body> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into();
    let mut request = agent.get(url);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.call().unwrap()
}

fn read(url: &str, token: Option<&str>) -> (u16, String) {
    let mut answer = get(url, token);
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), text)
}

fn scan(stream: &str) -> String {
    format!("/api/v1/scan?stream={}", stream.replace('=', "%3D"))
}

#[test]
fn who_is_sent_on_needs_no_token_there() {
    let scene = Scene::new();
    for (at, stream) in ["cars,id=a", "cars,id=c"].into_iter().enumerate() {
        let node = &scene.nodes[at];
        for path in [
            scan(stream),
            format!("/tiles/{}.v/0.3320312.json", stream.replace('=', "%3D")),
            format!(
                "/api/v1/tiles?channel={}.v&level=0&offset=3320312",
                stream.replace('=', "%3D")
            ),
        ] {
            let location = scene.redirect_of(&path, &scene.reader);
            assert!(location.starts_with(&node.url("/")), "{location}");
            let wanted = read(&node.url(&path), Some(&scene.reader));
            assert_eq!(wanted.0, 200, "{path}");
            assert_eq!(read(&location, None), wanted, "{path}");
            let mut relayed = client()
                .get(scene.desk.url(&path))
                .header("authorization", format!("Bearer {}", scene.reader))
                .header("x-headwater-relay", "true")
                .call()
                .unwrap();
            assert_eq!(relayed.body_mut().read_to_string().unwrap(), wanted.1);
        }
    }
    assert_eq!(read(&scene.desk.url(&scan("cars,id=a")), None).0, 401);
    assert_eq!(
        read(&scene.desk.url(&scan("cars,id=a")), Some("hw_00")).0,
        401
    );
}

#[test]
fn a_ticket_that_is_used_otherwise_is_refused() {
    let scene = Scene::new();
    let location = scene.redirect_of(&scan("cars,id=a"), &scene.reader);
    let ticket = location.split("ticket=").nth(1).unwrap();
    let with = |node: &Running, path: &str| {
        let mark = if path.contains('?') { '&' } else { '?' };
        read(&format!("{}{mark}ticket={ticket}", node.url(path)), None)
    };
    let node = &scene.nodes[0];
    assert_eq!(with(node, &scan("cars,id=a")).0, 200);
    // Another stream, which its subject may read, one that it may not, and one that is not there.
    let hidden = with(node, &scan("vans,id=b"));
    let absent = with(node, &scan("vans,id=z"));
    assert_eq!(hidden.0, absent.0);
    assert_eq!(hidden.1.replace("id=b", "id=z"), absent.1);
    assert_ne!(hidden.0, 200);
    // Another node, another route, another time of day, another letter.
    let refused = |answer: (u16, String)| {
        assert_eq!(answer.0, 401, "{}", answer.1);
        assert!(answer.1.contains("E_TICKET"), "{}", answer.1);
    };
    refused(with(&scene.nodes[1], &scan("cars,id=a")));
    refused(with(node, "/api/v1/last?stream=cars,id%3Da"));
    refused(with(node, "/api/v1/streams"));
    refused(with(node, "/metrics"));
    let forged = location.replace("ticket=hwt1.A", "ticket=hwt1.B");
    refused(read(&forged, None));
    refused(read(&node.url(&scan("cars,id=a")), Some("hwt1.AAAA")));
    // Nothing is changed by a ticket, also where its subject may change things.
    let mut answer = client()
        .post(node.url(&format!("/write?ticket={ticket}")))
        .send("cars,id=a v=2")
        .unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    assert_eq!(answer.status(), 403, "{text}");
    // A token beside it counts, and says more.
    let both = format!("{}&ticket={ticket}", node.url(&scan("vans,id=b")));
    assert_eq!(read(&both, Some(&scene.all)).0, 200);
}

#[test]
fn what_may_not_be_read_is_sent_where_what_is_not_there_is_sent() {
    let scene = Scene::new();
    let channels = [("vans,id=b", "hidden"), ("vans,id=z", "absent")];
    let answers = channels.map(|(stream, _)| {
        let id = &stream[stream.len() - 1..];
        let answer = get(&scene.desk.url(&scan(stream)), Some(&scene.reader));
        let location = answer.headers()["location"].to_str().unwrap();
        let place = answer.headers()["x-headwater-place"].to_str().unwrap();
        let base = location.split("ticket=").next().unwrap();
        let (status, text) = read(location, None);
        let parts = [
            base.replace(&format!("%3D{id}"), "ID"),
            text.replace(&format!("id={id}"), "ID"),
        ];
        (place.to_owned(), status, parts)
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].0, "unknown");
    // With the right to read it, it is found.
    let location = scene.redirect_of(&scan("vans,id=b"), &scene.all);
    assert_eq!(read(&location, None).0, 200);
    // A list has what may be seen, of both nodes.
    let (status, text) = read(&scene.desk.url("/api/v1/streams"), Some(&scene.reader));
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &list["total"]), (200, &json!(2)), "{text}");
    assert!(!text.contains("vans"), "{text}");
    // What nodes hold is told to who reads everything only.
    let held = read(&scene.nodes[0].url("/api/v1/held"), Some(&scene.reader));
    assert_eq!(held.0, 403, "{}", held.1);
    let told = get(&scene.nodes[0].url("/api/v1/held"), Some(&scene.all));
    assert_eq!(told.status(), 200);
    let status = read(&scene.desk.url("/api/v1/sync"), Some(&scene.reader));
    assert_eq!(status.0, 200, "the reader manages everything");
    let (code, text) = {
        let file = TokenFile::of_database(scene.desk.db());
        let few = create_token(&file, "few", &["read cars"]);
        until("the new token is known", || {
            read(&scene.desk.url("/api/v1/sync"), Some(&few)).0 != 401
        });
        read(&scene.desk.url("/api/v1/sync"), Some(&few))
    };
    assert_eq!(code, 403, "{text}");
}

#[test]
fn a_revoked_token_ends_its_tickets_everywhere_and_itself_where_the_new_list_is() {
    let scene = Scene::new();
    let here = scene.redirect_of(&scan("cars,id=a"), &scene.reader);
    let there = scene.redirect_of(&scan("cars,id=c"), &scene.reader);
    let of_another = scene.redirect_of(&scan("cars,id=c"), &scene.all);
    for location in [&here, &there, &of_another] {
        assert_eq!(read(location, None).0, 200);
    }
    let file = TokenFile::of_database(scene.desk.db());
    file.revoke("reader").unwrap();
    // Nobody copies the list: the dispatcher tells.
    let begun = std::time::Instant::now();
    for location in [&here, &there] {
        until("its tickets are worth nothing", || {
            read(location, None).0 == 401
        });
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
    assert_eq!(
        read(&scene.desk.url(&scan("cars,id=a")), Some(&scene.reader)).0,
        401
    );
    // Those of others are as good as before; the token itself counts where the list has it.
    assert_eq!(read(&of_another, None).0, 200);
    let direct = scene.nodes[0].url(&scan("cars,id=a"));
    assert_eq!(read(&direct, Some(&scene.reader)).0, 200);
    // Replaced whole, as commands do.
    let list = scene.nodes[0].db().join("tokens.json");
    let new = list.with_extension("new");
    std::fs::copy(file.path(), &new).unwrap();
    std::fs::rename(&new, &list).unwrap();
    until("the node has the new list", || {
        read(&direct, Some(&scene.reader)).0 == 401
    });
    // The dispatcher's own token ends the trust in its key.
    TokenFile::of_database(scene.nodes[1].db())
        .revoke("dispatcher")
        .unwrap();
    until("its tickets are worth nothing there", || {
        read(&of_another, None).0 == 401
    });
}

/// A ticket for rows of a stream at a server, made now with a key.
fn ticket_at(server: &Running, all: &str, key: &TicketKey, subject: &Grant, list: u64) -> String {
    let mut held = get(&server.url("/api/v1/held"), Some(all));
    let held = held.body_mut().read_to_vec().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let issued_ns = i64::try_from(now.unwrap().as_nanos()).unwrap();
    let text = key.sign(&Ticket {
        issued_ns,
        ends_ns: issued_ns + 300_000_000_000,
        audience: headwater_protocol::dispatch::decode(&held)
            .unwrap()
            .database,
        route: "/api/v1/scan".to_owned(),
        subject: subject.id.clone(),
        list,
        patterns: vec!["pump".to_owned()],
        streams: vec![StreamName::new("pump", [("id", "a")])],
    });
    server.url(&format!("{}&ticket={text}", scan("pump,id=a")))
}

#[test]
fn a_revocation_reaches_an_edge_over_its_cloud() {
    let key = TicketKey::of_seed(&[9; 32]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cloud = cloud();
    let invitation = invite(&cloud, "e", &json!({}));
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    let edge = Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Edge;
        s.dispatch.ticket_keys = vec![key.public()];
    });
    write(&edge, "pump,id=a flow=1 1700000000000000000\n");
    let file = TokenFile::of_database(cloud.db());
    let all = create_token(&file, "all", &["read *"]);
    create_token(&file, "reader", &["read pump"]);
    create_token(&file, "other", &["read pump"]);
    std::fs::copy(file.path(), edge.db().join("tokens.json")).unwrap();
    for server in [&cloud, &edge] {
        until("tokens are in use", || {
            read(&server.url(&scan("pump,id=a")), None).0 == 401
        });
    }
    let list = |name: &str| {
        let tokens = file.read().unwrap().unwrap();
        let found = tokens.grants().iter().find(|grant| grant.name == name);
        Grant::clone(found.unwrap())
    };
    let [reader, other] =
        ["reader", "other"].map(|name| ticket_at(&edge, &all, &key, &list(name), 3));
    assert_eq!(read(&reader, None).0, 200);
    // What a dispatcher tells the cloud.
    let told = |text: &str| {
        let asked = client().get(cloud.url("/api/v1/held"));
        let asked = asked.header("authorization", format!("Bearer {all}"));
        let asked = asked.header("x-headwater-ticket-key", "11".repeat(32));
        asked
            .header("x-headwater-revoked", text)
            .call()
            .unwrap()
            .status()
    };
    assert_eq!(told("no list"), 200);
    assert_eq!(told(&format!("4:{}", list("reader").id)), 200);
    until("the edge has heard of it", || read(&reader, None).0 == 401);
    assert_eq!(read(&other, None).0, 200);
    // An edge that comes back hears it again, over its cloud.
    let edge = edge.restarted(|s| {
        s.sync.role = NodeRole::Edge;
        s.dispatch.ticket_keys = vec![key.public()];
    });
    let again = ticket_at(&edge, &all, &key, &list("reader"), 3);
    until("it has heard of it again", || read(&again, None).0 == 401);
}
