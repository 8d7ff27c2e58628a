//! Notices between processes, by the commands of docs/cluster/notices.md: a node and a dispatcher
//! with a broker between them; the broker stopped and started, the node killed with SIGKILL.

use crate::fleet::{kill, run};
use crate::serve::Served;
use crate::support::{Bench, text};
use headwater_testing::until;
use headwater_testing::{Broker, has_broker};
use std::path::Path;

fn metric(served: &Served, name: &str) -> u64 {
    let answer = served.request("GET", "/metrics", "", "");
    let wanted = format!("headwater_notices_{name} ");
    let line = answer.lines().find_map(|line| line.strip_prefix(&wanted));
    line.map_or(0, |figure| figure.trim().parse().unwrap())
}

fn start(db: &Path, addr: &str, broker: &Broker, more: &[&str]) -> Served {
    let url = format!("mqtt://127.0.0.1:{}", broker.port);
    let flags = ["--log-level", "error", "--notices-bus", "mqtt"];
    let broker = ["--notices-broker", &url, "--notices-check", "1h"];
    Served::start_at(db, addr, &[&flags[..], &broker, more].concat())
}

fn node(db: &Path, addr: &str, broker: &Broker) -> Served {
    let more = ["--role", "cloud", "--notices-name", "north"];
    start(db, addr, broker, &more)
}

/// Whether the dispatcher says that a node has the stream of a number.
fn has_stream(desk: &Served, number: usize) -> bool {
    let path = format!("/api/v1/scan?stream=pump,id%3Ds{number}");
    let answer = desk.request("GET", &path, "", "").to_ascii_lowercase();
    answer.contains("x-headwater-place: base")
}

fn change(node: &Served, number: usize) {
    let line = format!("pump,id=s{number} flow=1 1700000000000000000\n");
    let answer = node.request("POST", "/write", "", &line);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[test]
fn a_dispatcher_follows_a_node_by_a_broker_whatever_ends_in_between() {
    if !has_broker() {
        return;
    }
    let mut broker = Broker::start();
    let bench = Bench::new();
    let (db, gate) = (bench.path("north"), bench.path("gate"));
    let mut north = node(&db, "127.0.0.1:0", &broker);
    let addr = north.addr.clone();
    let url = format!("http://{addr}");
    let more = ["--role", "dispatcher", "--dispatch-nodes", &url];
    let desk = start(&gate, "127.0.0.1:0", &broker, &more);
    let mut number = 0;
    let mut until_news = |north: &Served| {
        let name = "asked_total{why=\"news\"}";
        let before = metric(&desk, name);
        until("a notice is heard", || {
            number += 1;
            change(north, number);
            metric(&desk, name) > before
        });
        until("and what it is about is known", || {
            has_stream(&desk, number)
        });
    };
    until_news(&north);
    broker.end(true);
    until("the link is gone", || metric(&desk, "connected") == 0);
    change(&north, 1_000);
    until("the node is waited at", || has_stream(&desk, 1_000));
    broker.begin();
    until("the link is there", || metric(&desk, "connected") == 1);
    until_news(&north);
    kill(north);
    until("the broker says that the node has gone", || {
        metric(&desk, "asked_total{why=\"gone\"}") >= 1
    });
    north = node(&db, &addr, &broker);
    until_news(&north);
    kill(north);
    kill(desk);
}

#[test]
fn rules_for_a_broker_are_made_of_the_list() {
    let bench = Bench::new();
    let db = bench.path("gate");
    let db = text(&db);
    let none = run(&["notices", "rules", "--db", db]);
    assert_eq!(none.code, 1, "{}", none.stderr);
    assert!(
        none.stderr.contains("headwater token create"),
        "{}",
        none.stderr
    );
    let north = "headwater_notices,node=north";
    run(&[
        "token", "create", "--db", db, "--name", "gate", "--read", "*",
    ])
    .ok();
    run(&[
        "token", "create", "--db", db, "--name", "north", "--write", north,
    ])
    .ok();
    run(&[
        "token", "create", "--db", db, "--name", "board", "--read", "weather",
    ])
    .ok();
    let rules = run(&["notices", "rules", "--db", db, "--topic", "plant/notices"]).ok();
    let wanted = "\n\nuser gate\ntopic read plant/notices/+\n\nuser north\ntopic write plant/notices/north\n";
    let (_, rest) = rules.stdout.split_once("rules`.").unwrap();
    assert_eq!(rest, wanted);
    let bad = run(&["notices", "rules", "--db", db, "--topic", "a/#"]);
    assert_eq!(bad.code, 1);
    assert!(bad.stderr.contains("a/#"), "{}", bad.stderr);
}
