//! `docs/operate/metrics.md` lists every metric, and nothing else.

use crate::dispatch::dispatcher;
use crate::support::{Running, client};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names on the page, without labels.
fn on_page() -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/operate/metrics.md")).unwrap();
    let quoted = page.lines().filter(|line| line.starts_with('|'));
    let quoted = quoted.flat_map(|line| line.split('`').skip(1).step_by(2));
    let names = quoted.map(|name| name.split('{').next().unwrap_or_default());
    let names = names.filter(|name| name.starts_with("headwater_"));
    names.map(str::to_owned).collect()
}

/// Names that a server publishes.
fn published(server: &Running) -> BTreeSet<String> {
    let mut answer = client().get(server.url("/metrics")).call().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = names.filter_map(|line| line.split(' ').next());
    let names = names.filter(|name| name.starts_with("headwater_"));
    names.map(str::to_owned).collect()
}

#[test]
fn the_page_lists_the_metrics_of_a_node_and_of_a_dispatcher() {
    let page = on_page();
    let node = Running::start();
    let desk = dispatcher(&[&node]);
    // The stats of the engine are collected beside the first request.
    let of_node = || published(&node);
    headwater_testing::until("the stats are there", || {
        of_node().contains("headwater_events")
    });
    let mut all = of_node();
    all.extend(published(&desk));
    let missing: Vec<&String> = all.difference(&page).collect();
    assert!(
        missing.is_empty(),
        "not on docs/operate/metrics.md: {missing:?}"
    );
}

#[test]
fn what_the_page_lists_is_in_the_sources() {
    let mut sources = String::new();
    for folder in ["cluster", "server", "shell", "engine", "postgres"] {
        let mut open = vec![root().join("crates").join(folder).join("src")];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    sources.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
    }
    for name in on_page() {
        let name = name.trim_start_matches("headwater_");
        let name = name
            .strip_prefix("mqtt_")
            .or(name.strip_prefix("notices_"))
            .unwrap_or(name);
        let ends = ["_total", "_info", "_seconds", ""];
        let is_there = ends.iter().any(|end| {
            let stem = name.strip_suffix(end);
            stem.is_some_and(|stem| sources.contains(&format!("\"{stem}\"")))
        });
        assert!(
            is_there,
            "no source has the metric {name} of docs/operate/metrics.md"
        );
    }
}

#[test]
fn alert_rules_name_metrics_of_the_page() {
    let path = root().join("packaging/prometheus/headwater.rules.yaml");
    let rules = std::fs::read_to_string(path).unwrap();
    let page = on_page();
    let mut alerts = BTreeSet::new();
    let mut named = BTreeSet::new();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for line in rules.lines().map(str::trim_start) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            assert!(alerts.insert(alert), "{alert} is there twice");
        }
        if let Some(expr) = line.strip_prefix("expr: ") {
            let words = expr.split(|c| !is_part(c));
            let metrics: Vec<_> = words.filter(|w| w.starts_with("headwater_")).collect();
            assert!(!metrics.is_empty(), "{expr}");
            named.extend(metrics);
        }
    }
    assert!(alerts.len() >= 6, "{alerts:?}");
    let unknown: Vec<_> = named.iter().filter(|name| !page.contains(**name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let expressions = rules.lines().filter(|line| line.contains("expr: ")).count();
    assert_eq!(expressions, alerts.len());
    // An alert that does not say what to do is of no use.
    assert_eq!(rules.matches("action: ").count(), alerts.len());
}
