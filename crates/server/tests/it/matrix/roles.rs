//! The matrix over the roles of a fleet: an edge and a dispatcher with a list of rights that they
//! received, a cloud with a copy of an edge, and a cloud with a copy that another one relays.
//!
//! As with one node, each role stands in two worlds, one of which never had what a token may not
//! see: names, counts and headers of their answers are the same.

use super::requests::{ROWS, Reveals, names_a_secret};
use super::world::{Answer, SECRET, Token, TokenKind, World, fill, worlds};
use super::{requests_of, token};
use crate::dispatch::dispatcher_in;
use crate::support::{Running, client, json};
use crate::sync::joined;
use headwater::{Database, Options};
use headwater_server::rights::ListUse;
use headwater_server::rights::keys::RightsKeys;
use headwater_server::rights::received::ReceivedFile;
use headwater_server::settings::NodeRole;
use headwater_server::tokens::TokenFile;
use headwater_testing::until;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;

/// Tokens of the list, and of how many questions each asks one.
const SAMPLING: [(&str, usize); 5] = [
    ("read by tag", 3),
    ("read one stream", 11),
    ("write all", 17),
    ("no token", 17),
    ("read all", 11),
];

/// Figures of the process, an answer that does not end, and routes that say how it stands with
/// other nodes to those who manage everything.
pub(super) const LEFT_OUT: [&str; 3] = ["/metrics", "/api/v1/live", "/api/v1/sync"];

/// Stores the list of tokens of a server as one that a node received.
fn receive(tokens: &Path, node: &Path) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(tokens, dir.path().join("tokens.json")).unwrap();
    let file = TokenFile::of_database(dir.path());
    let keys = RightsKeys::open(dir.path(), 1).unwrap();
    let list = keys
        .sign(&file.read().unwrap().unwrap(), file.now())
        .unwrap();
    std::fs::create_dir_all(node).unwrap();
    let received = ReceivedFile::of_database(node);
    assert!(received.take(&list, None).unwrap());
}

/// A folder with a filled database.
fn filled(with_secrets: bool) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(Options::new(dir.path().join("db"))).unwrap();
    fill(&db, with_secrets);
    db.close().unwrap();
    dir
}

/// An edge whose only tokens are those of the list.
fn edge(tokens: &Path, with_secrets: bool) -> World {
    let dir = filled(with_secrets);
    receive(tokens, &dir.path().join("db"));
    let edge = Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Edge;
        s.rights.list = ListUse::Require;
    });
    World::of(edge, Vec::new())
}

/// A dispatcher whose only tokens are those of the list, before a node that received it, too.
fn desk(tokens: &Path, own: &Token, with_secrets: bool) -> World {
    let (node, _) = edge(tokens, with_secrets).into_parts();
    let dir = tempfile::tempdir().unwrap();
    receive(tokens, &dir.path().join("db"));
    let token = dir.path().join("token");
    std::fs::write(&token, own.text.as_deref().unwrap()).unwrap();
    let desk = dispatcher_in(dir, &[&node], |s| {
        s.dispatch.token_file = Some(token);
        s.rights.list = ListUse::Require;
        // It does not answer there: the stored list stays in force.
        s.rights.from = Some("http://127.0.0.1:9".to_owned());
    });
    World::of(desk, vec![node])
}

fn sync(server: &Running, admin: &Token, asked: &Value) -> Value {
    let sent = client().post(server.url("/api/v1/sync"));
    let bearer = format!("Bearer {}", admin.text.as_deref().unwrap());
    let mut answer = sent
        .header("authorization", bearer)
        .send(asked.to_string())
        .unwrap();
    let body = json(&mut answer);
    assert_eq!(answer.status(), 200, "{body}");
    body
}

fn invitation(cloud: &Running, admin: &Token) -> String {
    let asked = json!({"op": "add_edge", "edge": "e", "url": cloud.url("")});
    let answer = sync(cloud, admin, &asked);
    answer["invitation"].as_str().unwrap().to_owned()
}

fn empty_cloud(tokens: &Path) -> Running {
    Running::start_with(|s| {
        s.sync.role = NodeRole::Cloud;
        std::fs::create_dir_all(s.db()).unwrap();
        std::fs::copy(tokens, s.db().join("tokens.json")).unwrap();
    })
}

fn until_current(cloud: &Running, admin: &Token) {
    until("the copy is current", || {
        let asked = client().get(cloud.url("/api/v1/sync"));
        let bearer = format!("Bearer {}", admin.text.as_deref().unwrap());
        let status = json(&mut asked.header("authorization", bearer).call().unwrap());
        status["edges"][0]["state"] == "current"
    });
}

/// A cloud with a copy of an edge.
fn cloud(tokens: &Path, admin: &Token, with_secrets: bool) -> World {
    let cloud = empty_cloud(tokens);
    let dir = filled(with_secrets);
    joined(&dir.path().join("db"), &invitation(&cloud, admin), false).unwrap();
    let edge = Running::start_in(dir, |s| s.sync.role = NodeRole::Edge);
    until_current(&cloud, admin);
    World::of(cloud, vec![edge])
}

/// A cloud with a copy that the cloud of the edge relays to it.
fn relayed(tokens: &Path, admin: &Token, with_secrets: bool) -> World {
    let first = cloud(tokens, admin, with_secrets);
    let second = empty_cloud(tokens);
    let asked = json!({
        "op": "relay", "edge": "e", "invitation": invitation(&second, admin)
    });
    sync(&first.server, admin, &asked);
    until_current(&second, admin);
    let (first, mut behind) = first.into_parts();
    behind.push(first);
    World::of(second, behind)
}

/// The answer without the instants at which an edge was heard, which differ by the clock.
fn timeless(mut answer: Answer) -> Answer {
    const HEARD: &str = "\"heard\":\"";
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    if text.contains(HEARD) {
        let mut parts = text.split(HEARD);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            out.push_str(HEARD);
            out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
        answer.body = out.into_bytes();
    }
    answer
}

/// Asks both worlds of a role; returns the statuses.
fn ask(role: &str, worlds: &[World; 2], tokens: &[Token]) -> BTreeSet<u16> {
    let mut seen = BTreeSet::new();
    let mut differs = 0;
    for (name, of) in SAMPLING {
        let token = token(tokens, name);
        let rows = ROWS.iter().filter(|row| {
            let is_asked = matches!(row.reveals, Reveals::Stored | Reveals::Nothing);
            is_asked && !LEFT_OUT.contains(&row.route)
        });
        for question in rows.flat_map(requests_of).step_by(of) {
            let [with, without] = worlds
                .each_ref()
                .map(|world| timeless(world.request(token, &question)));
            if token.kind == TokenKind::ReadsAll {
                differs += usize::from(with != without);
                continue;
            }
            assert_eq!(
                with,
                without,
                "{role}, token {name:?}, {question:?}\n--- with secrets: {}\n--- without: {}",
                with.shown(),
                without.shown()
            );
            assert!(
                names_a_secret(&question) || !with.contains(SECRET),
                "{role}, token {name:?}, {question:?}: {}",
                with.shown()
            );
            seen.insert(with.status);
        }
    }
    assert!(
        // Of the answers of a dispatcher, most are redirects.
        differs > 3,
        "{role}: {differs} answers tell the worlds apart"
    );
    seen
}

/// Runs a check with the two worlds of each role, the one with secrets first, and the tokens.
pub(super) fn each_role(mut check: impl FnMut(&str, &[World; 2], &[Token])) {
    let ([single, _], tokens) = worlds();
    let list = TokenFile::of_database(single.server.db()).path();
    let (all, admin) = (token(&tokens, "read all"), token(&tokens, "admin"));
    let pair = |make: &dyn Fn(bool) -> World| [make(true), make(false)];
    let roles: [(&str, &dyn Fn(bool) -> World); 4] = [
        ("an edge", &|with| edge(&list, with)),
        ("a dispatcher", &|with| desk(&list, all, with)),
        ("a cloud", &|with| cloud(&list, admin, with)),
        ("a cloud behind a relay", &|with| {
            relayed(&list, admin, with)
        }),
    ];
    for (role, make) in roles {
        check(role, &pair(make), &tokens);
    }
}

#[test]
fn every_role_of_a_fleet_tells_nobody_what_he_may_not_see() {
    each_role(|role, worlds, tokens| {
        let seen = ask(role, worlds, tokens);
        let answered = if role == "a dispatcher" { 307 } else { 200 };
        for wanted in [answered, 401] {
            assert!(seen.contains(&wanted), "{role}: {wanted} of {seen:?}");
        }
    });
}
