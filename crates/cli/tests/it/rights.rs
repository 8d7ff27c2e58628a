//! The list of rights and the keys of edges, by commands and processes, any of which is killed with
//! SIGKILL in the middle of it.

use crate::fleet::{cloud, edge, kill, run};
use crate::serve::Served;
use crate::support::{Bench, text};
use headwater_testing::{Dice, until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const EDGES: usize = 2;
const ROUNDS: usize = 8;
/// A revocation reaches connected edges within this.
const WITHIN: Duration = Duration::from_secs(60);

fn token(db: &Path, name: &str, rules: &[&str]) -> String {
    let create = ["token", "create", "--db", text(db), "--name", name];
    run(&[&create[..], rules].concat())
        .ok()
        .stdout
        .trim()
        .to_owned()
}

fn status(served: &Served, token: &str) -> u16 {
    let header = format!("Authorization: Bearer {token}\r\n");
    let answer = served.request("GET", "/api/v1/streams", &header, "");
    answer["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

/// A command of the cloud's operator.
fn at_cloud(addr: &str, admin: &str, arguments: &[&str]) -> crate::support::Ran {
    let url = format!("http://{addr}");
    let more = ["--url", url.as_str(), "--token", admin];
    run(&[arguments, &more[..]].concat())
}

fn key_of(db: &Path) -> String {
    let text = std::fs::read_to_string(db.join("uplink.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["key"].as_str().unwrap().to_owned()
}

/// A cloud and its edges, as processes, and the tokens of its list.
struct Fleet {
    bench: Bench,
    dice: Dice,
    addr: String,
    admin: String,
    center: Option<Served>,
    dbs: Vec<PathBuf>,
    edges: Vec<Served>,
    /// Names and texts of tokens that are valid.
    valid: Vec<(String, String)>,
    revoked: Vec<String>,
}

impl Fleet {
    fn new() -> Fleet {
        let bench = Bench::new();
        let db = bench.path("cloud");
        let admin = token(&db, "admin", &["--read", "*", "--manage", "*"]);
        let center = cloud(&db, "127.0.0.1:0");
        let addr = center.addr.clone();
        let dbs = (0..EDGES).map(|n| bench.path(&format!("edge-{n}")));
        let dbs: Vec<PathBuf> = dbs.collect();
        for (at, db) in dbs.iter().enumerate() {
            let name = format!("edge-{at}");
            let invited = at_cloud(&addr, &admin, &["edges", "add", &name]).ok();
            run(&["join", invited.stdout.trim(), "--db", text(db)]).ok();
            token(db, "own", &[]);
        }
        let edges: Vec<Served> = dbs.iter().map(|db| edge(db)).collect();
        for edge in &edges {
            until("the list has arrived", || status(edge, &admin) == 200);
        }
        Fleet {
            bench,
            dice: Dice(36),
            addr,
            admin,
            center: Some(center),
            dbs,
            edges,
            valid: Vec::new(),
            revoked: Vec::new(),
        }
    }

    fn center_db(&self) -> PathBuf {
        self.bench.path("cloud")
    }

    fn revoke(&mut self) -> String {
        let (name, ended) = self.valid.remove(0);
        let db = self.center_db();
        run(&["token", "revoke", "--db", text(&db), &name]).ok();
        ended
    }

    /// Changes the list and the keys, and kills a process in the middle of it.
    fn round(&mut self, round: usize) {
        let (db, name) = (self.center_db(), format!("reader-{round}"));
        let reader = token(&db, &name, &["--read", "pump"]);
        self.valid.push((name, reader));
        if round % 2 == 1 {
            let ended = self.revoke();
            self.revoked.push(ended);
        }
        at_cloud(&self.addr, &self.admin, &["edges", "rotate-key", "--all"]).ok();
        if round % 3 == 2 {
            run(&["rights", "rotate", "--db", text(&db), "--now"]).ok();
        }
        std::thread::sleep(Duration::from_millis(self.dice.below(1500)));
        if round.is_multiple_of(2) {
            kill(self.center.take().unwrap());
            std::thread::sleep(Duration::from_millis(self.dice.below(500)));
            self.center = Some(cloud(&db, &self.addr));
        } else {
            let which = self.dice.below(EDGES as u64) as usize;
            kill(self.edges.remove(which));
            self.edges.insert(which, edge(&self.dbs[which]));
        }
    }
}

#[test]
fn rights_and_keys_reach_edges_whoever_is_killed() {
    let mut fleet = Fleet::new();
    let first: Vec<String> = fleet.dbs.iter().map(|db| key_of(db)).collect();
    (0..ROUNDS).for_each(|round| fleet.round(round));
    for (at, edge) in fleet.edges.iter().enumerate() {
        for (name, token) in &fleet.valid {
            let what = format!("{name} is valid at edge {at}");
            until(&what, || status(edge, token) == 200);
        }
        for token in &fleet.revoked {
            assert_eq!(status(edge, token), 401);
        }
        until("the edge has its next key", || {
            key_of(&fleet.dbs[at]) != first[at]
        });
    }
    // Connected edges hear of a revocation within seconds.
    let begun = Instant::now();
    let ended = fleet.revoke();
    for edge in &fleet.edges {
        until("it is valid no more", || status(edge, &ended) == 401);
    }
    assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
    let (name, valid) = fleet.valid.remove(0);
    let shown = run(&["rights", "show", "--db", text(&fleet.dbs[0])]).ok();
    let shown = shown.stdout;
    assert!(shown.contains("received list"), "{shown}");
    assert!(shown.contains(&name), "{shown}");
    let db = fleet.center_db();
    let shown = run(&["rights", "show", "--db", text(&db), "--format", "json"]);
    let shown = shown.ok().json();
    assert!(shown["signed"]["rotations"].as_u64() >= Some(2), "{shown}");
    assert_eq!(shown["received"], Value::Null);
    // An edge that was killed starts with the list that it has, without its cloud.
    kill(fleet.center.take().unwrap());
    kill(fleet.edges.remove(0));
    let alone = edge(&fleet.dbs[0]);
    assert_eq!((status(&alone, &valid), status(&alone, &ended)), (200, 401));
    kill(alone);
    fleet.edges.into_iter().for_each(kill);
}
