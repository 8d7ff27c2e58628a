//! An edge whose disk was copied, and both disks started at once, as processes.

use crate::fleet::{cloud, edge, is_current, kill, run, run_against};
use crate::serve::Served;
use crate::support::{Bench, text};
use headwater_testing::until;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Rows of a host, one a second.
fn lines(host: &str, from: i64, rows: i64) -> String {
    let line = |n: i64| format!("cpu,host={host} load={}.5 {}\n", n % 60, 1_700_000_000 + n);
    (from..from + rows).map(line).collect()
}

fn write(edge: &Served, lines: &str) {
    let answer = edge.request("POST", "/write?precision=s", "", lines);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

/// Rows at the cloud; nothing while they cannot be counted.
fn rows(cloud: &Served) -> Option<u64> {
    let answer = cloud.request("GET", "/api/v1/count?table=cpu", "", "");
    let body = answer.split("\r\n\r\n").nth(1)?;
    let counted: Value = serde_json::from_str(body).ok()?;
    counted["rows"].as_u64()
}

/// State of the connection of an edge, and what it says of it.
fn state(edge: &Served) -> (String, String) {
    let ran = run_against(&edge.addr, &["sync", "status", "--format", "json"]).ok();
    let status = ran.json()[0].clone();
    let of = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    (of("state"), of("error"))
}

/// What the cloud says of an edge.
fn told(cloud: &Served, name: &str) -> (String, String) {
    let status = run_against(&cloud.addr, &["sync", "status", name, "--format", "json"]).ok();
    let status = status.json();
    let of = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    (of("state"), of("error"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, entry) = (entry.file_type().unwrap(), entry.path());
        let target = to.join(entry.file_name().unwrap());
        match kind.is_dir() {
            true => copy(&entry, &target),
            false if kind.is_file() => drop(std::fs::copy(&entry, &target).unwrap()),
            false => {}
        }
    }
}

const TWO: &str = "two machines use the key of this edge at once";

/// Of two edges the one that is served, and the one that is refused, once both are told.
fn sorted(edges: [Served; 2]) -> (Served, Served) {
    let mut states = Vec::new();
    until("both are told that there are two", || {
        states = edges.iter().map(state).collect();
        let is = |state: &str| {
            states
                .iter()
                .any(|(s, why)| s == state && why.contains(TWO))
        };
        is("connected") && is("refused")
    });
    let [a, b] = edges;
    match states[0].0.as_str() {
        "connected" => (a, b),
        _ => (b, a),
    }
}

#[test]
fn a_copied_disk_that_runs_twice_loses_and_overwrites_nothing_and_all_are_told() {
    let bench = Bench::new();
    let center = cloud(&bench.path("cloud"), "127.0.0.1:0");
    let dbs = [bench.path("a"), bench.path("b")];
    let invited = run_against(&center.addr, &["edges", "add", "gw"]).ok();
    run(&["join", invited.stdout.trim(), "--db", text(&dbs[0])]).ok();
    let first = edge(&dbs[0]);
    write(&first, &lines("gw", 0, 1_000));
    until("it is at the cloud", || {
        is_current(&center.addr, &first, "gw")
    });
    assert_eq!(first.end("-TERM").code, 0);
    copy(&dbs[0], &dbs[1]);
    let edges = [edge(&dbs[0]), edge(&dbs[1])];
    // Both have rows of one stream at instants of their own, and a stream of their own.
    for (n, edge) in edges.iter().enumerate() {
        let n = i64::try_from(n).unwrap();
        write(edge, &lines("gw", 2_000 + n * 2_000, 700));
        write(edge, &lines(&format!("own{n}"), 0, 300));
    }
    let (served, refused) = sorted(edges);
    until("the rows of the served one are here", || {
        rows(&center) == Some(2_000)
    });
    // The two do not take the connection from each other: it stays so.
    for _ in 0..20 {
        assert_eq!(state(&served).0, "connected");
        assert_eq!(state(&refused).0, "refused");
        std::thread::sleep(Duration::from_millis(200));
    }
    until("the copy is current", || told(&center, "gw").0 == "current");
    let (_, why) = told(&center, "gw");
    assert!(why.contains(TWO) && why.contains("edges add"), "{why}");
    let listed = run_against(&center.addr, &["edges"]).ok();
    assert!(listed.stderr.contains(TWO), "{}", listed.stderr);
    // The processes are named, so that each machine is found.
    let (_, why_here) = state(&refused);
    let process = why_here.split("process ").nth(1).unwrap();
    let process = process.split(',').next().unwrap().to_owned();
    let named = format!("process {process} is refused");
    assert!(why.contains(&named), "{why} {why_here}");
    // What the served one goes on to write arrives, and nothing of the other one.
    write(&served, &lines("later", 0, 100));
    until("more is here", || rows(&center) == Some(2_100));
    // The refused one becomes an edge of its own, as it is told.
    let db = dbs.iter().find(|db| db_of(&refused) == text(db)).unwrap();
    let invited = run_against(&center.addr, &["edges", "add", "gw-2"]).ok();
    let join = ["join", invited.stdout.trim(), "--new-incarnation", "--db"];
    run(&[&join[..], &[text(db)]].concat()).ok();
    let mut looks = 0;
    until("all rows of both are here", || {
        looks += 1;
        let counted = rows(&center);
        if looks % 500 == 0 {
            // What holds it up, should the time not suffice.
            let (of_copy, of_edge) = (told(&center, "gw-2"), state(&refused));
            eprintln!("{counted:?} rows; the copy: {of_copy:?}; its edge: {of_edge:?}");
        }
        counted == Some(3_100)
    });
    for (edge, name) in [(&served, "gw"), (&refused, "gw-2")] {
        until(name, || is_current(&center.addr, edge, name));
        let compared = run_against(&center.addr, &["sync", "verify", name, "--format", "json"]);
        assert_eq!(compared.ok().json()["different"], json!(0), "{name}");
    }
    until("nobody is warned any more", || {
        told(&center, "gw").1.is_empty() && state(&served).1.is_empty()
    });
    [served, refused, center].into_iter().for_each(kill);
}

/// Directory of a server.
fn db_of(served: &Served) -> String {
    let line = std::fs::read(format!("/proc/{}/cmdline", served.child.id())).unwrap();
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words.find(|word| word == "--db").unwrap();
    words.next().unwrap().into_owned()
}

#[test]
fn of_a_copied_disk_the_other_machine_may_go_on_anew_once_one_is_stopped() {
    let bench = Bench::new();
    let center = cloud(&bench.path("cloud"), "127.0.0.1:0");
    let dbs = [bench.path("a"), bench.path("b")];
    let invited = run_against(&center.addr, &["edges", "add", "gw"]).ok();
    run(&["join", invited.stdout.trim(), "--db", text(&dbs[0])]).ok();
    let first = edge(&dbs[0]);
    write(&first, &lines("gw", 0, 1_000));
    until("it is at the cloud", || {
        is_current(&center.addr, &first, "gw")
    });
    assert_eq!(first.end("-TERM").code, 0);
    copy(&dbs[0], &dbs[1]);
    // Idle ones have nothing that tells them apart but that both run.
    let (served, refused) = sorted([edge(&dbs[0]), edge(&dbs[1])]);
    assert_eq!(rows(&center), Some(1_000));
    // With equal histories the other one goes on by itself.
    let gone = db_of(&served);
    kill(served);
    until("the other one is served", || {
        state(&refused).0 == "connected"
    });
    write(&refused, &lines("gw", 5_000, 500));
    until("its rows are here", || rows(&center) == Some(1_500));
    // The one that comes back is behind, with rows of its own: it is refused, until it begins anew.
    let back = edge(Path::new(&gone));
    write(&back, &lines("gw", 8_000, 200));
    until("it is refused", || state(&back).0 == "refused");
    assert_eq!(rows(&center), Some(1_500));
    kill(refused);
    run(&["join", "--new-incarnation", "--db", &gone]).ok();
    until("the rows of both are here", || rows(&center) == Some(1_700));
    let parts = run_against(&center.addr, &["edges", "parts"]).ok().stdout;
    assert!(parts.contains("gw@"), "{parts}");
    [back, center].into_iter().for_each(kill);
}
