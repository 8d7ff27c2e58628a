//! Clouds that keep their copies in a bucket, as processes: one is killed and its folder is gone,
//! and another goes on from the bucket.

use crate::fleet::{edge, is_current, kill, run, run_against};
use crate::serve::Served;
use crate::support::{Bench, Ran, text};
use headwater_testing::until;
use std::path::Path;

fn cloud(db: &Path, addr: &str, bucket: &str) -> Served {
    let flags = [
        "--role",
        "cloud",
        "--cloud-bucket",
        bucket,
        "--cloud-commit-every",
        "1s",
        "--cloud-lease",
        "2s",
        "--log-level",
        "error",
    ];
    Served::start_at(db, addr, &flags)
}

fn lines(round: usize) -> String {
    let line = |n: usize| {
        let at = 1_700_000_000_000 + (round * 3000 + n) * 1000;
        format!("pump,unit=u{} flow={}.25,count={n}i {at}\n", n % 5, n % 100)
    };
    (0..3000).map(line).collect()
}

fn write(edge: &Served, round: usize) {
    let answer = edge.request("POST", "/write?precision=ms", "", &lines(round));
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

fn status(addr: &str, arguments: &[&str]) -> serde_json::Value {
    let arguments = [&["sync", "status", "--format", "json"], arguments].concat();
    run_against(addr, &arguments).ok().json()
}

/// Everything that the edge has stored is at the cloud and in the bucket, and the edge was told.
/// The state of the edge is the same before and after all of that is looked at.
fn is_all_persisted(cloud: &str, edge: &Served, place: &str) -> bool {
    let before = status(&edge.addr, &[])[0]["state_number"].clone();
    let is_current = is_current(cloud, edge, "pump-7");
    let there = status(cloud, &["pump-7"])["copy"].clone();
    let kept = bucket("status", place)["copies"][0].clone();
    let after = status(&edge.addr, &[])[0].clone();
    is_current
        && kept["state"] == before
        && (&kept["state"], &kept["bytes"]) == (&there["state"], &there["bytes"])
        && after["state_number"] == before
        && after["confirmed_number"] == before
}

fn totals(addr: &str) -> String {
    let sql = "SELECT unit, count(flow) AS n, sum(flow) AS s, max(count) AS c FROM pump GROUP BY unit ORDER BY unit";
    let ran: Ran = run_against(addr, &["query", sql, "--format", "csv"]).ok();
    ran.stdout
}

fn bucket(what: &str, bucket: &str) -> serde_json::Value {
    run(&["bucket", what, bucket, "--format", "json"])
        .ok()
        .json()
}

#[test]
fn a_node_with_an_empty_folder_goes_on_from_the_bucket_of_one_that_was_killed() {
    let bench = Bench::new();
    let place = format!("file://{}", text(&bench.path("bucket")));
    let first = cloud(&bench.path("a"), "127.0.0.1:0", &place);
    let addr = first.addr.clone();
    let plant = bench.path("plant");
    let invited = run_against(&addr, &["edges", "add", "pump-7"]).ok();
    run(&["join", invited.stdout.trim(), "--db", text(&plant)]).ok();
    let gateway = edge(&plant);
    write(&gateway, 0);
    until("all that the edge has is in the bucket", || {
        is_all_persisted(&addr, &gateway, &place)
    });
    let answers = totals(&addr);
    assert_eq!(answers.lines().count(), 6, "{answers}");
    // The edge is away when the node dies: what the next one answers is from the bucket alone.
    kill(gateway);
    kill(first);
    std::fs::remove_dir_all(bench.path("a")).unwrap();
    let second = cloud(&bench.path("b"), &addr, &place);
    assert_eq!(totals(&addr), answers);
    let status = bucket("status", &place);
    assert_eq!(status["copies"][0]["edge"], "pump-7", "{status}");
    assert!(status["epoch"].as_u64() > Some(1), "{status}");
    // The edge comes with its key, and goes on.
    let gateway = edge(&plant);
    write(&gateway, 1);
    until("the other node has what came since", || {
        is_all_persisted(&addr, &gateway, &place)
    });
    let compared = run_against(&addr, &["sync", "verify", "pump-7", "--format", "json"]).ok();
    let compared = compared.json();
    assert!(compared["equal"].as_u64() > Some(0), "{compared}");
    assert_eq!(totals(&addr), totals(&gateway.addr));
    let verified = bucket("verify", &place);
    assert_eq!(verified["wrong"], serde_json::json!([]), "{verified}");
    assert_eq!(verified["copies"], 1, "{verified}");
    assert_eq!(bucket("collect", &place)["group"], 0);
    // The collection has not kept it from going on.
    write(&gateway, 2);
    until("the node goes on after a collection", || {
        is_all_persisted(&addr, &gateway, &place)
    });
    let figures = second.request("GET", "/metrics", "", "");
    assert!(
        figures.contains("bucket_requests_total{kind=\"put\"}"),
        "{figures}"
    );
    kill(gateway);
    // A closed part is in the bucket, too.
    let answers = totals(&addr);
    run_against(&addr, &["edges", "replace", "pump-7", "--by", "pump-8"]).ok();
    assert_eq!(totals(&addr), answers);
    assert_eq!(second.end("-TERM").code, 0);
    std::fs::remove_dir_all(bench.path("b")).unwrap();
    let third = cloud(&bench.path("c"), &addr, &place);
    assert_eq!(totals(&addr), answers);
    let parts = run_against(&addr, &["edges", "parts", "--format", "json"]).ok();
    let closed = parts.json()[0].clone();
    assert_eq!(
        (&closed["part"], &closed["edge"], &closed["rows"]),
        (
            &serde_json::json!("pump-7@1"),
            &serde_json::json!("pump-8"),
            &serde_json::json!(9000)
        ),
        "{closed}"
    );
    kill(third);
}

#[test]
fn what_is_no_bucket_is_refused_with_what_is_expected() {
    let bench = Bench::new();
    let wrong = run(&["bucket", "status", "gs://plants"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(
        wrong.stderr.contains("expected s3://BUCKET/PREFIX"),
        "{wrong:?}"
    );
    let nothing = format!("file://{}", text(&bench.path("nothing")));
    let nothing = run(&["bucket", "verify", &nothing]);
    assert_eq!(nothing.code, 1, "{nothing:?}");
    assert!(
        nothing.stderr.contains("the bucket has no group 0"),
        "{nothing:?}"
    );
    let single = run(&[
        "serve",
        "--db",
        text(&bench.db()),
        "--cloud-bucket",
        "file:///b",
    ]);
    assert!(single.stderr.contains("role = cloud"), "{single:?}");
}
