//! A dispatcher, clouds and edges as processes, by the commands of docs/cluster/dispatcher.md; any
//! of them killed with SIGKILL while questions are asked.

use crate::fleet::{cloud, edge, is_current, kill, run, run_against};
use crate::serve::Served;
use crate::support::{Bench, text};
use headwater_testing::{Dice, until};
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 9;
const ROWS: usize = 600;

pub(crate) fn dispatcher(db: &Path, addr: &str, clouds: &[String]) -> Served {
    let nodes: Vec<String> = clouds.iter().map(|addr| format!("http://{addr}")).collect();
    let flags = [
        "--role",
        "dispatcher",
        "--dispatch-nodes",
        &nodes.join(","),
        "--log-level",
        "error",
    ];
    Served::start_at(db, addr, &flags)
}

fn lines(edge: usize) -> String {
    let line = |n: usize| {
        let at = 1_700_000_000_000 + n * 250;
        format!("pump,edge=e{edge} flow={}.25 {at}\n", n % 100)
    };
    (0..ROWS).map(line).collect()
}

fn scan(edge: usize) -> String {
    format!("/api/v1/scan?stream=pump,edge%3De{edge}&limit=1000")
}

/// What is answered to one question, without following where it leads. Who was asked and killed
/// meanwhile answers with status 0.
fn get(addr: &str, path: &str, is_relayed: bool) -> (u16, String, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let mut request = agent.get(format!("http://{addr}{path}"));
    if is_relayed {
        request = request.header("x-headwater-relay", "true");
    }
    let Ok(mut answer) = request.call() else {
        return (0, String::new(), String::new());
    };
    let location = answer.headers().get("location");
    let location = location.map_or(String::new(), |to| to.to_str().unwrap().to_owned());
    match answer.body_mut().read_to_string() {
        Ok(body) => (answer.status().as_u16(), location, body),
        Err(_) => (0, String::new(), String::new()),
    }
}

/// What a client has in the end that is given the answer itself.
fn relayed(addr: &str, path: &str) -> (u16, String) {
    let (status, _, body) = get(addr, path, true);
    (status, body)
}

/// What a client has in the end that follows redirects, of which there may be one.
fn followed(addr: &str, path: &str) -> (u16, String) {
    let (status, location, body) = get(addr, path, false);
    if status != 307 {
        return (status, body);
    }
    let to = location.strip_prefix("http://").unwrap();
    let (to, path) = to.split_once('/').unwrap();
    assert_ne!(to, addr, "a loop");
    let (status, _, body) = get(to, &format!("/{path}"), false);
    assert_ne!(status, 307, "{to} sends on");
    (status, body)
}

#[test]
fn questions_are_answered_right_or_not_at_all_whoever_is_killed() {
    let bench = Bench::new();
    let mut dice = Dice(41);
    let dbs = ["north", "south"].map(|name| bench.path(name));
    let mut clouds: Vec<Served> = dbs.iter().map(|db| cloud(db, "127.0.0.1:0")).collect();
    let addrs: Vec<String> = clouds.iter().map(|cloud| cloud.addr.clone()).collect();
    let edge_dbs = ["e0", "e1"].map(|name| bench.path(name));
    for (at, db) in edge_dbs.iter().enumerate() {
        let invited = run_against(&addrs[at], &["edges", "add", &format!("e{at}")]).ok();
        run(&["join", invited.stdout.trim(), "--db", text(db)]).ok();
    }
    let mut edges: Vec<Served> = edge_dbs.iter().map(|db| edge(db)).collect();
    let mut wanted = Vec::new();
    for (at, edge) in edges.iter().enumerate() {
        let answer = edge.request("POST", "/write?precision=ms", "", &lines(at));
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        wanted.push(get(&edge.addr, &scan(at), false).2);
        until(&format!("e{at} is at its cloud"), || {
            is_current(&addrs[at], edge, &format!("e{at}"))
        });
    }
    let gate = bench.path("gate");
    let mut desk = Some(dispatcher(&gate, "127.0.0.1:0", &addrs));
    let addr = desk.as_ref().unwrap().addr.clone();
    let all_are_right = || {
        (0..2).all(|at| {
            let right = (200, wanted[at].clone());
            followed(&addr, &scan(at)) == right && relayed(&addr, &scan(at)) == right
        })
    };
    until("both edges' rows are answered", all_are_right);
    for round in 0..ROUNDS {
        let which = usize::try_from(dice.below(2)).unwrap();
        match round % 3 {
            0 => kill(clouds.remove(which)),
            1 => kill(edges.remove(which)),
            _ => kill(desk.take().unwrap()),
        }
        for _ in 0..20 {
            for (at, wanted) in wanted.iter().enumerate() {
                for (status, body) in [followed(&addr, &scan(at)), relayed(&addr, &scan(at))] {
                    match status {
                        200 => assert_eq!(&body, wanted),
                        // Nobody answers, or says what he would need.
                        0 | 502 | 503 => {}
                        other => panic!("{other}: {body}"),
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(dice.below(20)));
        }
        match round % 3 {
            0 => clouds.insert(which, cloud(&dbs[which], &addrs[which])),
            1 => edges.insert(which, edge(&edge_dbs[which])),
            _ => desk = Some(dispatcher(&gate, &addr, &addrs)),
        }
        until("both edges' rows are answered again", all_are_right);
    }
    edges.into_iter().chain(clouds).chain(desk).for_each(kill);
}

#[test]
fn a_dispatcher_says_what_it_needs() {
    let bench = Bench::new();
    let db = bench.path("gate");
    let flags = [
        "serve",
        "--role",
        "dispatcher",
        "--http-addr",
        "127.0.0.1:0",
    ];
    let start = |more: &[&str]| run(&[&flags, more, &["--db", text(&db)]].concat());
    let ran = start(&[]);
    assert!(
        ran.code != 0 && ran.stderr.contains("dispatch.nodes"),
        "{ran:?}"
    );
    let nodes = ["--dispatch-nodes", "http://127.0.0.1:9"];
    let absent = start(&[&nodes[..], &["--dispatch-token-file", "/absent"]].concat());
    assert!(
        absent.code == 1 && absent.stderr.contains("/absent"),
        "{absent:?}"
    );
    let wrong = start(&["--dispatch-nodes", "127.0.0.1:9"]);
    assert!(
        wrong.code != 0 && wrong.stderr.contains("https://cloud"),
        "{wrong:?}"
    );
}
