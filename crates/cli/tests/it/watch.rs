//! Watches as users have them: the command, a server that is killed, a backup.

use crate::serve::Served;
use crate::support::{Bench, program, text};
use serde_json::Value;
use std::collections::BTreeMap;

const CREATE: &str = "CREATE WATCH hot AS SELECT id, b FROM pump MATCH_RECOGNIZE (PARTITION BY id \
    ORDER BY time MEASURES FIRST(time) AS b PATTERN (HOT) WITHIN INTERVAL '10 seconds' \
    DEFINE HOT AS temp > 99)";

fn run_watch(served: &Served, arguments: &[&str]) -> (i32, String, String) {
    let output = program()
        .arg("watch")
        .args(arguments)
        .args(["--url", &format!("http://{}", served.addr)])
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn wrote(served: &Served, path: &str, body: &str) {
    let answer = served.request("POST", path, "", body);
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
}

/// Rows of the seconds of a round: each is hot, in the order of time.
fn rows(served: &Served, round: i64) {
    let lines =
        (0..20).map(|at| format!("pump,id=a temp=100i {}\n", 1_700_000_000 + round * 20 + at));
    wrote(served, "/write?precision=s", &lines.collect::<String>());
}

/// The next events, as the command prints them.
fn followed(served: &Served, after: u64, limit: u64) -> Vec<Value> {
    let (after, limit) = (after.to_string(), limit.to_string());
    let (code, out, err) = run_watch(
        served,
        &["follow", "hot", "--after", &after, "--limit", &limit],
    );
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn what_is_told_survives_a_server_that_is_killed_and_nothing_is_told_twice() {
    let bench = Bench::new();
    let served = Served::start(&bench.db(), &[]);
    wrote(
        &served,
        "/write?precision=s",
        "pump,id=a temp=1i 1699999999\n",
    );
    wrote(&served, "/api/v1/sql", CREATE);
    let mut served = served;
    let mut told: BTreeMap<u64, Value> = BTreeMap::new();
    for round in 0..5 {
        rows(&served, round);
        // Some are heard of before it is killed, in the middle of telling the others.
        let known = told.len() as u64;
        for event in followed(&served, known, 7) {
            told.insert(event["sequence"].as_u64().unwrap(), event);
        }
        drop(served.end("-KILL"));
        served = Served::start(&bench.db(), &[]);
        // What was told before is told the same; all of the rows are told once in the end.
        for event in followed(&served, 0, 20 * (round as u64 + 1)) {
            let sequence = event["sequence"].as_u64().unwrap();
            if let Some(known) = told.insert(sequence, event.clone()) {
                assert_eq!(known, event, "round {round}");
            }
        }
        let rows: Vec<String> = told
            .values()
            .map(|event| event["row"]["b"].to_string())
            .collect();
        let mut once = rows.clone();
        once.sort();
        once.dedup();
        assert_eq!(
            (rows.len(), once.len()),
            (20 * (round as usize + 1), rows.len())
        );
        assert!(told.values().all(|event| event["kind"] == "match"));
    }
    let (code, out, _) = run_watch(&served, &["list"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("hot") && out.contains("running") && out.contains("100"),
        "{out}"
    );
    let (code, out, _) = run_watch(&served, &["dead", "hot"]);
    assert_eq!(
        (code, serde_json::from_str::<Value>(&out).unwrap()),
        (0, serde_json::json!({ "dead": [] }))
    );
    let (code, _, err) = run_watch(&served, &["follow", "nothing"]);
    assert!(code == 1 && err.contains("nothing"), "{err}");
    // The definition is part of a backup; restored, the watch tells anew since it was made.
    let (to, back) = (bench.path("backup"), bench.path("restored"));
    bench.run("backup", &[text(&to)]).ok();
    drop(served.end("-TERM"));
    let restored = program()
        .args(["restore", text(&to), "--db", text(&back)])
        .output()
        .unwrap();
    assert!(restored.status.success(), "{restored:?}");
    let served = Served::start(&back, &[]);
    assert_eq!(followed(&served, 0, 100).len(), 100);
    drop(served.end("-TERM"));
}
