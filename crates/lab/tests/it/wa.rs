//! `lab wa`: small runs, judged by counts and never by times.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn write_csv(name: &str, rows: impl IntoIterator<Item = (i64, i64)>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wa-{name}.csv"));
    let mut text = String::from("t_g,t_a\n");
    for (generated, arrived) in rows {
        text += &format!("{generated},{arrived}\n");
    }
    std::fs::write(&path, text).unwrap();
    path
}

fn lab(csv: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["wa", "--csv"])
        .arg(csv)
        .args(arguments.split(' '))
        .output()
        .unwrap()
}

/// The engine's counters: events, events written, merges, flushes.
fn counters(csv: &Path, arguments: &str) -> [u64; 4] {
    let ran = lab(csv, &format!("{arguments} --json"));
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{arguments}: {error}");
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let counts = |report: &serde_json::Value| {
        ["events", "events_written", "merges", "flushes"].map(|n| report[n].as_u64().unwrap())
    };
    // The engine beside the simulation.
    assert_eq!(counts(&report), counts(&report["reference"]), "{arguments}");
    counts(&report)
}

/// Worked out by hand: twelve events in order fill three leaves of four, then 1 comes.
#[test]
fn the_counters_of_a_file_are_those_worked_out_by_hand() {
    let times = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 13, 14, 15];
    let csv = write_csv("hand", times.into_iter().zip(0..));
    let of = |policy: &str| counters(&csv, &format!("--memory 4 --leaf 16 --policy {policy}"));
    // The buffer 1 13 14 15 overlaps all twelve stored events.
    assert_eq!(of("conventional --scope overlap"), [16, 12 + 16, 1, 4]);
    // Only the leaf 0 2 3 4 receives one; 13 14 15 become a leaf.
    assert_eq!(of("conventional --scope touched"), [16, 12 + 5 + 3, 1, 4]);
    // 1 alone fills the late buffer, and joins 0 2 3; five leaves of three in order.
    assert_eq!(of("separate:3 --scope overlap"), [16, 15 + 4, 1, 6]);
    // 4, 7, 10 stay for the next buffer. When 1 comes, 1 10 11 rewrite the nine stored; 12 stays,
    // then 15.
    assert_eq!(of("conventional --retain 1"), [16, 9 + 12 + 4, 1, 6]);
}

/// Distinct times with a heavy tail of delays, larger than memory by far.
fn heavy(count: i64) -> Vec<(i64, i64)> {
    let mut state = 7u64;
    let mut rows: Vec<(i64, i64)> = (0..count)
        .map(|i| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let unit = ((state >> 33) + 1) as f64 / (1u64 << 31) as f64;
            (i * 10, i * 10 + (20.0 * unit.powf(-1.2)) as i64)
        })
        .collect();
    rows.sort_unstable_by_key(|(generated, arrived)| (*arrived, *generated));
    rows
}

#[test]
fn engine_and_simulation_count_the_same_under_every_policy() {
    let csv = write_csv("heavy", heavy(20_000));
    let mut written = Vec::new();
    for policy in [
        "conventional",
        "separate:32",
        "separate:256",
        "separate:480",
    ] {
        for scope in ["overlap", "touched"] {
            for retain in [0, 24] {
                let counts = counters(
                    &csv,
                    &format!("--policy {policy} --scope {scope} --retain {retain}"),
                );
                assert_eq!(counts[0], 20_000);
                assert!(
                    counts[1] > 20_000 && counts[2] > 1,
                    "{policy} {scope}: {counts:?}"
                );
                written.push(counts[1]);
            }
        }
    }
    written.sort_unstable();
    written.dedup();
    assert_eq!(written.len(), 16, "policies differ: {written:?}");
}

/// Fractions, times before 0 and equal times: what counts is their order.
#[test]
fn any_numbers_will_do() {
    let rows = heavy(3_000);
    let csv = write_csv("whole", rows.iter().copied());
    let policy = "--memory 64 --leaf 32 --policy separate:40 --scope touched";
    let expected = counters(&csv, policy);
    let path = csv.with_file_name("wa-fractions.csv");
    let text: String = rows
        .iter()
        .map(|(g, a)| format!("{:e},{a}\n", *g as f64 / 64.0 - 100.0))
        .collect();
    std::fs::write(&path, text).unwrap();
    assert_eq!(counters(&path, policy), expected);
    let equal = write_csv("equal", rows.iter().map(|(g, a)| (g / 50, *a)));
    assert_eq!(counters(&equal, policy)[0], 3_000, "every one is kept");
}

#[test]
fn what_cannot_run_is_refused_with_what_can() {
    let csv = write_csv("refused", [(1, 1), (2, 2)]);
    let missing = csv.with_file_name("wa-there-is-no-such.csv");
    let bad = csv.with_file_name("wa-bad.csv");
    std::fs::write(&bad, "1,2\n3,x\n").unwrap();
    for (csv, arguments, told) in [
        (&csv, "--policy separate:512", "N must be 1 to 511"),
        (&csv, "--policy both", "a policy is `conventional`"),
        (&csv, "--retain 512", "--retain must be below the 512"),
        (&csv, "--leaf 8", "--leaf must be 16 to 65536"),
        (&csv, "--scope some", "`overlap` or `touched`"),
        (&missing, "--json", "there-is-no-such"),
        (&bad, "--json", "line 2: `3,x` is not `t_g,t_a`"),
    ] {
        let ran = lab(csv, arguments);
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && error.contains(told), "{error}");
        assert!(ran.stdout.is_empty());
    }
}

#[test]
fn the_sets_run_small() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (json, plots) = (scratch.join("wa.json"), scratch.join("wa-plots"));
    let ran = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["wa", "--points", "6000", "--rounds", "1", "--data"])
        .arg(scratch)
        .arg("--scratch")
        .arg(scratch)
        .arg("--json")
        .arg(&json)
        .arg("--plots")
        .arg(&plots)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{error}");
    assert!(
        error.contains("no phones in"),
        "left out with a message: {error}"
    );
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let figures = &report["figures"];
    let list = |name: &str| figures[name].as_array().unwrap();
    assert_eq!(list("counts").len(), 12 * 4);
    for run in list("counts") {
        assert_eq!(run["engine"], run["simulation"], "{run}");
        assert_eq!(run["engine"]["events"], 6_000);
    }
    assert_eq!(list("sweep").len(), 12 + 5 + 3);
    assert_eq!(list("subsequent").len(), 2 * 16);
    assert_eq!(list("models").len(), 12);
    assert_eq!(list("choice").len(), 12 + 5);
    for choice in list("choice") {
        for candidates in ["paper", "all"] {
            let regret = choice[candidates]["regret"].as_f64().unwrap();
            assert!(regret >= 0.0, "nothing is better than the best: {choice}");
        }
    }
    assert_eq!(list("sequences").len(), 3);
    for sequence in list("sequences") {
        let adaptive = sequence["adaptive"]["written"].as_array().unwrap();
        assert_eq!(adaptive.len(), 100, "a figure for each stretch");
        assert!(sequence["adaptive"]["wa"].as_f64().unwrap() > 1.0);
    }
    for run in list("all_knobs") {
        assert_eq!(run["counts"]["events"], 6_000);
    }
    assert_eq!(figures["production"]["events"], 60_000);
    assert_eq!(list("cost").len(), 12);
    assert_eq!(list("ingest").len(), 12);
    // The experiment itself compares what the queries find under both policies.
    assert_eq!(list("queries").len(), 12 * 2 * 3);
    let targets = report["targets"].as_array().unwrap();
    assert!(targets[0]["what"].as_str().unwrap().contains("of 48 runs"));
    assert_eq!(targets[0]["measured"], 0.0);
    for plot in ["figure-5", "figure-7", "figure-9", "figure-10"] {
        let text = std::fs::read_to_string(plots.join(format!("{plot}.svg"))).unwrap();
        assert!(
            text.starts_with("<svg") && text.ends_with("</svg>\n"),
            "{plot}"
        );
    }
}
