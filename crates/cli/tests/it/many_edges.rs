//! `headwater edges add --from`: a thousand edges in one command, and files with bad lines.

use crate::fleet::{cloud, edge, is_current, run, run_against};
use crate::support::{Bench, text};
use headwater_testing::until;
use serde_json::Value;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;

fn edges(addr: &str) -> Vec<Value> {
    let listed = run_against(addr, &["edges", "--format", "json"])
        .ok()
        .json();
    listed.as_array().unwrap().clone()
}

#[test]
fn a_thousand_edges_are_added_by_one_file_or_none_is() {
    let bench = Bench::new();
    let center = cloud(&bench.path("cloud"), "127.0.0.1:0");
    let addr = center.addr.clone();
    let mut list = "name,want,keep,ahead,tags\n".to_owned();
    for n in 0..1_000 {
        let want = if n == 7 { "full" } else { "" };
        writeln!(list, "gw-{n},{want},90d,1KiB,site={};gateway", n % 4).unwrap();
    }
    let file = bench.file("gateways.csv", &list);
    let out = bench.path("invited.tsv");
    let add = |file: &std::path::Path, out: &std::path::Path| {
        let more = [
            "--invitations",
            text(out),
            "--want",
            "summaries:12",
            "--tag",
            "fleet=x",
        ];
        let asked = [&["edges", "add", "--from", text(file)], &more[..]].concat();
        run_against(&addr, &asked)
    };
    let added = add(&file, &out).ok();
    assert!(
        added.stderr.contains("1000 edges added"),
        "{}",
        added.stderr
    );
    assert_eq!(added.stdout, "");
    let mode = std::fs::metadata(&out).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "only the owner reads invitations");
    let invited = std::fs::read_to_string(&out).unwrap();
    let invited: Vec<(&str, &str)> = invited
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .collect();
    assert_eq!(invited.len(), 1_000);
    let all = edges(&addr);
    assert_eq!(all.len(), 1_000);
    let of = |name: &str| all.iter().find(|edge| edge["name"] == name).unwrap();
    assert_eq!(of("gw-7")["want"], "full");
    assert_eq!(of("gw-8")["want"], serde_json::json!({"summaries": 12}));
    let tags = serde_json::json!({"site": "3", "gateway": "gw-999", "fleet": "x"});
    assert_eq!(of("gw-999")["tags"], tags);
    // An invitation is for its edge.
    let (name, invitation) = invited[7];
    assert_eq!(name, "gw-7");
    let db = bench.path("edge");
    run(&["join", invitation, "--db", text(&db)]).ok();
    let gateway = edge(&db);
    let answer = gateway.request(
        "POST",
        "/write",
        "",
        "pump,id=1 flow=1 1700000000000000000\n",
    );
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    until("the edge is at the cloud", || {
        is_current(&addr, &gateway, "gw-7")
    });
    let shown = center.request("GET", "/api/v1/streams", "", "");
    assert!(
        shown.contains("pump,fleet=x,gateway=gw-7,id=1,site=3"),
        "{shown}"
    );
    // The file of invitations is never overwritten, and then nothing is added.
    let again = add(&bench.file("one.csv", "name\nnew-0\n"), &out);
    assert!(
        again.code == 1 && again.stderr.contains("no edge was added"),
        "{}",
        again.stderr
    );
    // Bad lines are all named, and nothing is added: here, and by the server.
    let other = bench.path("other.tsv");
    let lines = "name,keep\nnew-1,90d\nnew-2,soon\nnew-1,\n";
    let bad = add(&bench.file("bad.csv", lines), &other);
    assert_eq!(bad.code, 1);
    for part in [
        "2 bad lines",
        "line 3: keep",
        "line 4: `new-1` is on line 2",
    ] {
        assert!(bad.stderr.contains(part), "{}", bad.stderr);
    }
    let lines = "{\"name\":\"new-1\"}\n\n{\"name\":\"gw-5\"}\n{\"name\":\"a/b\"}\n";
    let refused = add(&bench.file("bad.jsonl", lines), &other);
    assert_eq!(refused.code, 1);
    for part in [
        "2 bad lines",
        "line 3: the edge `gw-5` already exists",
        "line 4: `a/b`",
    ] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert!(!other.exists());
    assert_eq!(edges(&addr).len(), 1_000);
    // Without a file for them, invitations are on stdout.
    let file = bench.file("two.jsonl", "{\"name\":\"new-1\"}\n{\"name\":\"new-2\"}\n");
    let added = run_against(&addr, &["edges", "add", "--from", text(&file)]).ok();
    assert!(
        added.stdout.starts_with("new-1\thwjoin1."),
        "{}",
        added.stdout
    );
    assert_eq!(
        (added.stdout.lines().count(), edges(&addr).len()),
        (2, 1_002)
    );
}
