//! A dispatcher before each of the two worlds: what a token may not see is as if it had never been
//! there, whether the dispatcher sends on or passes on.

use super::requests::{ROWS, names_a_secret};
use super::world::{Answer, Request, SECRET, Token, TokenKind, World, worlds};
use super::{get, requests_of, token};
use crate::dispatch::dispatcher_in;
use crate::support::Running;
use std::collections::BTreeSet;

/// Those who ask, and of how many questions each asks one: who reads a part asks all of them, who
/// is unknown and who reads everything some.
const SAMPLING: [(&str, usize); 3] = [("read by tag", 1), ("no token", 7), ("read all", 7)];

/// Figures of the process, and an answer that does not end.
const LEFT_OUT: [&str; 2] = ["/metrics", "/api/v1/live"];

fn desk(world: &World, own: &Token) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    std::fs::create_dir_all(&db).unwrap();
    std::fs::copy(
        world.server.db().join("tokens.json"),
        db.join("tokens.json"),
    )
    .unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, own.text.as_deref().unwrap()).unwrap();
    dispatcher_in(dir, &[&world.server], |s| {
        s.dispatch.token_file = Some(file)
    })
}

fn same_answer(worlds: &[World; 2], desks: &[Running; 2], token: &Token, ask: &Request) -> Answer {
    let [with, without] = [0, 1].map(|at| worlds[at].ask_at(&desks[at], token, ask));
    assert_eq!(
        with,
        without,
        "token {:?}, {ask:?}\n--- with secrets: {}\n--- without: {}",
        token.name,
        with.shown(),
        without.shown()
    );
    assert!(
        names_a_secret(ask) || !with.contains(SECRET),
        "token {:?}, {ask:?}: {}",
        token.name,
        with.shown()
    );
    with
}

#[test]
fn a_dispatcher_tells_nobody_what_its_nodes_would_not() {
    let (worlds, tokens) = worlds();
    let desks = worlds
        .each_ref()
        .map(|world| desk(world, token(&tokens, "read all")));
    let mut seen = BTreeSet::new();
    let mut differs = 0;
    for (name, of) in SAMPLING {
        let token = token(&tokens, name);
        let rows = ROWS.iter().filter(|row| !LEFT_OUT.contains(&row.route));
        for mut ask in rows.flat_map(requests_of).step_by(of) {
            for relays in [false, true] {
                if relays {
                    ask.headers.push(("x-headwater-relay", "true"));
                }
                if token.kind == TokenKind::ReadsAll {
                    let both = [0, 1].map(|at| worlds[at].ask_at(&desks[at], token, &ask));
                    differs += usize::from(both[0] != both[1]);
                    continue;
                }
                let answer = same_answer(&worlds, &desks, token, &ask);
                seen.insert((relays, answer.status));
            }
        }
    }
    // Who may see everything is told what there is, the others are sent on, answered and refused.
    assert!(differs > 20, "{differs}");
    let all = [(false, 307), (true, 200), (true, 404), (false, 401)];
    for wanted in all {
        assert!(seen.contains(&wanted), "{wanted:?} of {seen:?}");
    }
    // What may not be read is sent where what is not there is sent, and answered there as that.
    let reader = token(&tokens, "read by tag");
    let hidden = "/api/v1/scan?stream=cars,id=zzsecretid,site=south,zzsecretkey=zzsecretval";
    let absent = "/api/v1/scan?stream=cars,id=zzabsentid,site=south,zzabsentkey=zzabsentval";
    let [hidden, absent] = [hidden, absent].map(|path| {
        let answer = worlds[0].ask_at(&desks[0], reader, &get(path));
        let names: Vec<String> = answer.headers.keys().cloned().collect();
        (answer.status, names)
    });
    assert_eq!(hidden, absent);
    assert_eq!(hidden.0, 307);
}
