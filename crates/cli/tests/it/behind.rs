//! Commands against a dispatcher, a server with TLS, and edges that do not answer.

use crate::dispatch::dispatcher;
use crate::fleet::{cloud, edge, is_current, kill, run, run_against};
use crate::serve::{Served, TlsServer};
use crate::support::{Bench, Ran, program, text};
use headwater_testing::until;
use std::time::{Duration, Instant};

fn wrote(server: &Served, lines: &str) {
    let answer = server.request("POST", "/write?precision=s", "", lines);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[test]
fn queries_through_a_dispatcher_are_answered() {
    let bench = Bench::new();
    let center = cloud(&bench.path("cloud"), "127.0.0.1:0");
    wrote(&center, "t,d=a v=1 1700000000\nt,d=a v=3 1700000001\n");
    let gate = dispatcher(
        &bench.path("gate"),
        "127.0.0.1:0",
        std::slice::from_ref(&center.addr),
    );
    let sql = ["query", "--format", "csv", "SELECT count(*) AS n FROM t"];
    until("the dispatcher knows the node", || {
        run_against(&gate.addr, &sql).code == 0
    });
    assert_eq!(run_against(&gate.addr, &sql).ok().stdout, "n\n2\n");
    let influxql = ["influxql", "--format", "csv", "SELECT sum(v) FROM t"];
    let through = run_against(&gate.addr, &influxql).ok().stdout;
    let direct = run_against(&center.addr, &influxql).ok().stdout;
    assert!(through == direct && through.contains('4'), "{through}");
    kill(gate);
    kill(center);
}

#[test]
fn a_server_is_queried_over_tls() {
    let bench = Bench::new();
    let TlsServer {
        served,
        url,
        cert,
        other,
    } = Served::start_with_tls(&bench);
    let query = |ca: &str| {
        let arguments = ["query", "--format", "csv", "--url", &url, "--ca", ca];
        let output = program()
            .args(arguments)
            .arg("SELECT 1 AS one")
            .output()
            .unwrap();
        Ran::of(output)
    };
    assert_eq!(query(text(&cert)).ok().stdout, "one\n1\n");
    assert_eq!(query(text(&other)).code, 1);
    assert_eq!(served.end("-TERM").code, 0);
}

#[test]
fn a_comparison_does_not_wait_for_an_edge_that_cannot_answer() {
    let bench = Bench::new();
    let center = cloud(&bench.path("cloud"), "127.0.0.1:0");
    let db = bench.path("edge");
    let invited = run_against(&center.addr, &["edges", "add", "e"]).ok();
    run(&["join", invited.stdout.trim(), "--db", text(&db)]).ok();
    let gateway = edge(&db);
    wrote(&gateway, "t,d=a v=1 1700000000\n");
    until("everything is at the cloud", || {
        is_current(&center.addr, &gateway, "e")
    });
    let verify = ["sync", "verify", "e"];
    let fails_at_once = |what: &str| {
        let begun = Instant::now();
        let ran = run_against(&center.addr, &verify);
        assert!(ran.code == 1 && ran.stderr.contains(what), "{ran:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
    };
    run_against(&center.addr, &["sync", "pause", "e"]).ok();
    fails_at_once("paused");
    // The server refuses it, too.
    let op = "{\"op\":\"verify\",\"edge\":\"e\"}";
    let answer = center.request(
        "POST",
        "/api/v1/sync",
        "Content-Type: application/json\r\n",
        op,
    );
    assert!(answer.contains("sync resume e"), "{answer}");
    run_against(&center.addr, &["sync", "resume", "e"]).ok();
    until("it is connected", || {
        run_against(&center.addr, &verify).code == 0
    });
    // It is connected and does not answer.
    gateway.signal("-STOP");
    let ran = run_against(&center.addr, &[&verify[..], &["--timeout", "1s"]].concat());
    assert!(
        ran.code == 1 && ran.stderr.contains("not complete after 1 s"),
        "{ran:?}"
    );
    gateway.signal("-CONT");
    kill(gateway);
    until("it is known to be away", || {
        let ran = run_against(&center.addr, &["sync", "status", "e"]).ok();
        ran.stdout.contains("offline")
    });
    fails_at_once("offline");
    kill(center);
}
