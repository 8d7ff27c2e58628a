//! Edges and a cloud as processes, by the commands of docs/cluster/README.md; any of them killed
//! with SIGKILL in the middle of it.

use crate::serve::Served;
use crate::support::{Bench, Ran, program, text};
use headwater_testing::{Dice, until};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const EDGES: usize = 3;
const ROUNDS: usize = 9;

pub(crate) fn run(arguments: &[&str]) -> Ran {
    Ran::of(program().args(arguments).output().unwrap())
}

pub(crate) fn run_against(addr: &str, arguments: &[&str]) -> Ran {
    let url = format!("http://{addr}");
    run(&[arguments, &["--url", &url]].concat())
}

pub(crate) fn edge(db: &Path) -> Served {
    let flags = [
        "--role",
        "edge",
        "--sync-flush-every",
        "1s",
        "--log-level",
        "error",
    ];
    Served::start(db, &flags)
}

pub(crate) fn cloud(db: &Path, addr: &str) -> Served {
    Served::start_at(db, addr, &["--role", "cloud", "--log-level", "error"])
}

pub(crate) fn kill(mut served: Served) {
    served.child.kill().unwrap();
    served.child.wait().unwrap();
}

fn status(addr: &str, arguments: &[&str]) -> Option<Value> {
    let ran = run_against(
        addr,
        &[&["sync", "status", "--format", "json"], arguments].concat(),
    );
    (ran.code == 0).then(|| serde_json::from_str(&ran.stdout).unwrap())
}

/// True when the cloud has everything that the edge has stored, and the edge nothing else.
pub(crate) fn is_current(cloud: &str, edge: &Served, name: &str) -> bool {
    let storage = edge.request("GET", "/api/v1/storage?late=false", "", "");
    let here = status(&edge.addr, &[]).unwrap();
    let there = status(cloud, &[name]).unwrap();
    storage.contains("\"events_in_memory\":0,")
        && there["state"] == "current"
        && there["copy"]["state"] == here[0]["state_number"]
}

fn lines(edge: usize, round: usize) -> String {
    let line = |n: usize| {
        let at = 1_700_000_000_000 + (round * 2000 + n) * 250;
        format!(
            "pump,edge=e{edge},unit=u{} flow={}.25,count={n}i {at}\n",
            n % 5,
            n % 100
        )
    };
    (0..2000).map(line).collect()
}

#[test]
fn what_edges_have_comes_to_the_cloud_whoever_is_killed() {
    let bench = Bench::new();
    let mut dice = Dice(29);
    let mut center = Some(cloud(&bench.path("cloud"), "127.0.0.1:0"));
    let addr = center.as_ref().unwrap().addr.clone();
    let names: Vec<String> = (0..EDGES).map(|n| format!("gateway-{n}")).collect();
    let dbs: Vec<_> = names.iter().map(|name| bench.path(name)).collect();
    for (name, db) in names.iter().zip(&dbs) {
        let invited = run_against(&addr, &["edges", "add", name]).ok();
        run(&["join", invited.stdout.trim(), "--db", text(db)]).ok();
    }
    let mut edges: Vec<Served> = dbs.iter().map(|db| edge(db)).collect();
    for round in 0..ROUNDS {
        for (number, edge) in edges.iter().enumerate() {
            let answer = edge.request("POST", "/write?precision=ms", "", &lines(number, round));
            assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        }
        std::thread::sleep(Duration::from_millis(dice.below(1500)));
        match round % 3 {
            0 => {
                kill(center.take().unwrap());
                std::thread::sleep(Duration::from_millis(dice.below(500)));
                center = Some(cloud(&bench.path("cloud"), &addr));
            }
            _ => {
                let which = dice.below(EDGES as u64) as usize;
                kill(edges.remove(which));
                edges.insert(which, edge(&dbs[which]));
            }
        }
    }
    for (name, edge) in names.iter().zip(&edges) {
        until(&format!("{name} is at the cloud"), || {
            is_current(&addr, edge, name)
        });
        let compared = run_against(&addr, &["sync", "verify", name, "--format", "json"]).ok();
        let compared = compared.json();
        assert!(compared["equal"].as_u64() > Some(0), "{compared}");
    }
    let list = run_against(&addr, &["edges"]).ok().stdout;
    assert_eq!(list.lines().count(), EDGES + 1, "{list}");
    let name = names[0].as_str();
    assert!(list.contains("nothing is missing"), "{list}");
    let why = ["--why", "pump,edge=e0,unit=u0", "2023-11-14", "now"];
    let asked = [&["sync", "status", name], &why[..]].concat();
    let told = run_against(&addr, &asked).ok().stdout;
    assert!(told.starts_with("nothing is missing\n"), "{told}");
    assert!(told.contains("here") && told.contains("backlog"), "{told}");
    let unnamed = [&["sync", "status"], &why[..]].concat();
    let refused = run_against(&addr, &unnamed);
    assert!(
        refused.stderr.contains("name the edge"),
        "{}",
        refused.stderr
    );
    edges.into_iter().for_each(kill);
    kill(center.unwrap());
}

#[test]
fn commands_about_nodes_say_what_is_wrong() {
    let bench = Bench::new();
    let single = Served::start(&bench.db(), &["--log-level", "error"]);
    for (arguments, said) in [
        (&["edges"][..], "--role cloud"),
        (&["sync", "verify"], "neither edge nor cloud"),
        (&["sync", "status", "e"], "--role cloud"),
        (&["edges", "add", "a/b"], "--role cloud"),
    ] {
        let ran = run_against(&single.addr, arguments);
        assert_eq!(ran.code, 1, "{arguments:?} {ran:?}");
        assert!(ran.stderr.contains(said), "{arguments:?} {ran:?}");
    }
    let ran = run(&["edges", "--url", "http://127.0.0.1:1"]);
    assert!(ran.stderr.contains("is a server running there?"), "{ran:?}");
    let db = bench.path("other");
    for (arguments, said) in [
        (&["join", "nonsense"][..], "headwater edges add"),
        (&["join", "--new-incarnation"], "joined no cloud"),
        (&["join", "--leave"], "joined no cloud"),
    ] {
        let ran = run(&[arguments, &["--db", text(&db)]].concat());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
    assert!(!db.join("uplink.json").exists());
    kill(single);
}
