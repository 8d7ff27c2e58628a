//! Parts of the experiment with a fleet, small.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs a part; returns its figures and the number of its targets.
fn part(name: &str, arguments: &[&str]) -> (Value, usize) {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let json = scratch.join(format!("fleet-{name}.json"));
    let ran = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["fleet", "--part", name, "--rounds", "1", "--warm-up", "0"])
        .arg("--scratch")
        .arg(scratch)
        .arg("--memory")
        .arg(scratch)
        .arg("--json")
        .arg(&json)
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let figures = report["figures"][name.replace('-', "_")].clone();
    (figures, report["targets"].as_array().unwrap().len())
}

/// The part itself waits until each edge's rows are all at the cloud.
#[test]
fn live_edges_have_all_rows_at_the_cloud() {
    let small = ["--edges", "5", "--streams", "2", "--seconds", "12"];
    let (figures, targets) = part("live", &small);
    assert_eq!(figures["report"]["rows_min"], 12);
    assert!(figures["ages"].as_u64().unwrap() >= 10, "{figures}");
    assert!(figures["report"]["sent"].as_u64().unwrap() > 0);
    assert_eq!(targets, 3);
}

/// The part compares the count over all copies with what was made.
#[test]
fn idle_copies_are_counted() {
    let (figures, targets) = part("idle", &["--copies", "12"]);
    assert!(figures["stored_bytes_each"].as_u64().unwrap() > 1_000);
    let files = |what: &str| figures[what]["files"].as_u64().unwrap();
    assert!(files("none") > 0 && files("rest") > 0, "{figures}");
    assert_eq!(targets, 3);
}

/// Each answer has to be a redirect.
#[test]
fn redirects_go_to_nodes_with_and_without_edges() {
    let (figures, targets) = part("redirects", &["--copies", "10"]);
    let desks = figures["desks"].as_array().unwrap();
    let edges: Vec<u64> = desks.iter().map(|d| d["edges"].as_u64().unwrap()).collect();
    assert_eq!(edges, [0, 1, 10]);
    assert!(
        desks
            .iter()
            .all(|d| d["per_second"][0].as_f64().unwrap() > 0.0)
    );
    assert_eq!(targets, 4);
}

#[test]
fn an_idle_edge_sends_signs_of_life() {
    let small = ["--hours", "1", "--haste", "600", "--rest-seconds", "2"];
    let (figures, targets) = part("day", &small);
    for what in ["first_bytes", "idle_bytes", "reconnect_bytes"] {
        assert!(figures[what].as_u64().unwrap() > 100, "{figures}");
    }
    assert_eq!(targets, 1);
}

#[test]
fn an_edge_catches_up_over_a_slow_link() {
    let small = ["--backlog-hours", "1", "--bits-per-second", "1000000"];
    let (figures, targets) = part("catch-up", &small);
    assert_eq!(figures["is_complete"], true);
    let share = figures["link_share"].as_f64().unwrap();
    assert!((0.05..1.05).contains(&share), "{figures}");
    assert_eq!(targets, 2);
}

#[test]
fn writes_for_syncing_are_counted() {
    let small = [
        "--flash-hours",
        "1",
        "--flash-seconds",
        "5",
        "--streams",
        "3",
    ];
    let (figures, targets) = part("flash", &small);
    assert_eq!(figures["accepted_bytes"], 3_600 * 3 * 16);
    for what in [
        "alone_bytes",
        "flushed_bytes",
        "syncing_bytes",
        "sent_bytes",
    ] {
        assert!(figures[what].as_u64().unwrap() > 1_000, "{figures}");
    }
    assert_eq!(targets, 2);
}

#[test]
fn an_edge_loses_and_doubles_nothing_through_a_cut_and_kills() {
    let (figures, targets) = part("buffer", &["--seconds", "4"]);
    let ours = &figures["ways"][0];
    assert!(ours["acknowledged"].as_u64().unwrap() > 100, "{figures}");
    assert_eq!((&ours["lost"], &ours["doubled"]), (&0.into(), &0.into()));
    assert_eq!(targets, 1);
}

/// The part waits for the rows of both machines at the dispatcher.
#[test]
fn a_dead_gateway_is_replaced() {
    let (figures, targets) = part("gateway", &[]);
    assert_eq!(figures["commands"], 2);
    assert!(figures["seen_seconds"][0].as_f64().unwrap() > 0.0);
    assert_eq!(targets, 1);
}
