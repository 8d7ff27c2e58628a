//! Two clouds as peers, eight edges and a dispatcher as processes, with real data; any of them
//! killed with SIGKILL meanwhile. In the middle a dead gateway is replaced and another one renamed,
//! and their clouds are killed before their peers are told; at the end one is removed. Every row
//! and every aggregate at the clouds and the dispatcher is compared with the union of what the
//! edges acknowledged.

use crate::fleet::{edge, kill, run, run_against};
use crate::serve::Served;
use crate::support::{Bench, text};
use flate2::read::GzDecoder;
use headwater_testing::{Dice, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EDGES: usize = 8;
const ROUNDS: usize = 10;

/// Round before which a dead gateway is replaced, and which one.
const REPLACED: (usize, usize) = (4, 2);
/// Round before which a gateway is renamed, and which one.
const RENAMED: (usize, usize) = (7, 3);

/// Acknowledged rows: temperature and pressure by origin, gateway and instant in milliseconds.
type Rows = BTreeMap<(String, String, i64), (Option<f64>, Option<f64>)>;

/// A row of the weather file, and its line in the line protocol.
struct Row {
    key: (String, String, i64),
    values: (Option<f64>, Option<f64>),
    line: String,
}

/// The weather of three airports, dealt out to the gateways.
fn weather() -> Vec<Vec<Row>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/weather_nyc_2013.csv.gz");
    let mut csv = String::new();
    GzDecoder::new(File::open(path).unwrap())
        .read_to_string(&mut csv)
        .unwrap();
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name).unwrap();
    let (origin, at) = (column("origin"), column("epoch_ms"));
    let (temp, pressure) = (column("temp"), column("pressure"));
    let mut all: Vec<Vec<Row>> = (0..EDGES).map(|_| Vec::new()).collect();
    for (n, line) in lines.enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let values = (cells[temp].parse().ok(), cells[pressure].parse().ok());
        let gateway = format!("g{}", n % EDGES);
        let mut fields = Vec::new();
        if values.0.is_some() {
            fields.push(format!("temp={}", cells[temp]));
        }
        if values.1.is_some() {
            fields.push(format!("pressure={}", cells[pressure]));
        }
        if fields.is_empty() {
            continue;
        }
        all[n % EDGES].push(Row {
            key: (
                cells[origin].to_owned(),
                gateway.clone(),
                cells[at].parse().unwrap(),
            ),
            values,
            line: format!(
                "weather,origin={},gateway={gateway} {} {}\n",
                cells[origin],
                fields.join(","),
                cells[at]
            ),
        });
    }
    all
}

fn free_addrs() -> Vec<String> {
    let listeners: Vec<TcpListener> = (0..2)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let addrs = listeners
        .iter()
        .map(|l| l.local_addr().unwrap().to_string());
    addrs.collect()
}

fn cloud(db: &Path, addrs: &[String], at: usize) -> Served {
    let peer = format!("http://{}", addrs[1 - at]);
    let flags = [
        "--role",
        "cloud",
        "--cloud-peer",
        &peer,
        "--cloud-peer-name",
        ["north", "south"][at],
        "--log-level",
        "error",
    ];
    Served::start_at(db, &addrs[at], &flags)
}

fn dispatcher(db: &Path, addr: &str, clouds: &[String]) -> Served {
    let nodes: Vec<String> = clouds.iter().map(|addr| format!("http://{addr}")).collect();
    let nodes = nodes.join(",");
    let flags = [
        "--role",
        "dispatcher",
        "--dispatch-nodes",
        &nodes,
        "--log-level",
        "error",
    ];
    Served::start_at(db, addr, &flags)
}

/// A request that is answered through the dispatcher. Status 0 if nobody answers.
fn ask(addr: &str, path: &str, body: Option<&str>) -> (u16, Value) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let url = format!("http://{addr}{path}");
    let sent = match body {
        Some(body) => agent
            .post(&url)
            .header("x-headwater-relay", "true")
            .send(body),
        None => agent.get(&url).header("x-headwater-relay", "true").call(),
    };
    let Ok(mut answer) = sent else {
        return (0, Value::Null);
    };
    let status = answer.status().as_u16();
    match answer
        .body_mut()
        .with_config()
        .limit(64 << 20)
        .read_to_string()
    {
        Ok(body) => (
            status,
            serde_json::from_str(&body).unwrap_or(Value::String(body)),
        ),
        Err(_) => (0, Value::Null),
    }
}

fn sql(addr: &str, statement: &str) -> (u16, Value) {
    ask(addr, "/api/v1/sql", Some(statement))
}

/// Rows of an answer of SQL.
fn rows_of(answer: &Value) -> Vec<Value> {
    let rows = answer["rows"].as_array().or(answer["data"].as_array());
    rows.unwrap_or_else(|| panic!("{answer}")).clone()
}

struct World {
    addrs: Vec<String>,
    cloud_dbs: Vec<PathBuf>,
    edge_dbs: Vec<PathBuf>,
    gate: PathBuf,
    clouds: Vec<Option<Served>>,
    edges: Vec<Option<Served>>,
    desk: Option<Served>,
    desk_addr: String,
}

impl World {
    fn new(bench: &Bench) -> World {
        let addrs = free_addrs();
        let cloud_dbs: Vec<PathBuf> = ["north", "south"].map(|n| bench.path(n)).into();
        let clouds = (0..2)
            .map(|at| Some(cloud(&cloud_dbs[at], &addrs, at)))
            .collect();
        let edge_dbs: Vec<PathBuf> = (0..EDGES).map(|n| bench.path(&format!("e{n}"))).collect();
        for (n, db) in edge_dbs.iter().enumerate() {
            let name = format!("gateway-{n}");
            let invited = run_against(&addrs[n % 2], &["edges", "add", &name]).ok();
            run(&["join", invited.stdout.trim(), "--db", text(db)]).ok();
        }
        let gate = bench.path("gate");
        let desk = dispatcher(&gate, "127.0.0.1:0", &addrs);
        World {
            edges: edge_dbs.iter().map(|db| Some(edge(db))).collect(),
            desk_addr: desk.addr.clone(),
            desk: Some(desk),
            addrs,
            cloud_dbs,
            edge_dbs,
            gate,
            clouds,
        }
    }

    fn kill(&mut self, which: usize) {
        let slot = match which {
            0 | 1 => &mut self.clouds[which],
            2 => &mut self.desk,
            n => &mut self.edges[n - 3],
        };
        slot.take().into_iter().for_each(kill);
    }

    /// Replaces a gateway that is dead, and whose rows have arrived, by another machine; its cloud
    /// is killed right after.
    fn replace(&mut self, bench: &Bench, n: usize, rows: &Rows) {
        let (at, gateway) = (n % 2, format!("g{n}"));
        let written = rows.keys().filter(|(_, of, _)| *of == gateway).count();
        let count = format!("SELECT count(*) FROM weather WHERE gateway = '{gateway}'");
        until(
            "the rows of the gateway that will die are at its cloud",
            || {
                let (status, answer) = sql(&self.addrs[at], &count);
                status == 200 && rows_of(&answer)[0][0] == json!(written)
            },
        );
        self.kill(3 + n);
        let (old, new) = (format!("gateway-{n}"), format!("gateway-{n}b"));
        let replace = ["edges", "replace", &old, "--by", &new];
        let invited = run_against(&self.addrs[at], &replace).ok();
        self.edge_dbs[n] = bench.path(&format!("e{n}b"));
        let db = text(&self.edge_dbs[n]).to_owned();
        run(&["join", invited.stdout.trim(), "--db", &db]).ok();
        self.kill(at);
        self.start(3 + n);
        self.start(at);
    }

    /// Renames a gateway; its cloud is killed right after.
    fn rename(&mut self, n: usize) {
        let at = n % 2;
        let (from, to) = (format!("gateway-{n}"), format!("plant-{n}"));
        run_against(&self.addrs[at], &["edges", "rename", &from, &to]).ok();
        self.kill(at);
        self.start(at);
    }

    /// All copies of a cloud: identities of databases, and whether each is a closed part.
    fn copies(&self, at: usize) -> Vec<(String, bool)> {
        let (status, answer) = ask(&self.addrs[at], "/api/v1/sync", Some(r#"{"op":"parts"}"#));
        if status != 200 {
            return Vec::new();
        }
        let parts = answer["parts"].as_array().unwrap().iter();
        let mut copies: Vec<(String, bool)> = parts
            .map(|part| {
                let identity = part["identity"].as_str().unwrap_or_default().to_owned();
                (identity, part["is_closed"] == json!(true))
            })
            .collect();
        copies.sort();
        copies
    }

    /// Waits until both clouds have the same edges and as many closed parts, and compares all.
    fn compare(&self, closed: usize, rows: &Rows) {
        until("both clouds have the same edges and closed parts", || {
            let (north, south) = (self.copies(0), self.copies(1));
            let found = north.iter().filter(|(_, is_closed)| *is_closed).count();
            north == south && found == closed
        });
        until("everything is at both clouds", || {
            let all = json!(rows.len());
            let is_there = |addr: &String| {
                let (status, answer) = ask(addr, "/api/v1/count", None);
                status == 200 && answer["rows"] == all
            };
            self.addrs.iter().all(is_there) && is_there(&self.desk_addr)
        });
        compare(&self.desk_addr, rows);
        for addr in &self.addrs {
            compare(addr, rows);
        }
    }

    fn start(&mut self, which: usize) {
        match which {
            0 | 1 => self.clouds[which] = Some(cloud(&self.cloud_dbs[which], &self.addrs, which)),
            2 => self.desk = Some(dispatcher(&self.gate, &self.desk_addr, &self.addrs)),
            n => self.edges[n - 3] = Some(edge(&self.edge_dbs[n - 3])),
        }
    }
}

/// Counts, sums and bounds of the rows, by origin.
fn aggregates(rows: &Rows) -> BTreeMap<String, (u64, u64, f64, f64, f64)> {
    let mut all = BTreeMap::new();
    for ((origin, _, _), (temp, _)) in rows {
        let entry: &mut (u64, u64, f64, f64, f64) =
            all.entry(origin.clone())
                .or_insert((0, 0, 0.0, f64::INFINITY, f64::NEG_INFINITY));
        entry.0 += 1;
        if let Some(temp) = temp {
            entry.1 += 1;
            entry.2 += temp;
            entry.3 = entry.3.min(*temp);
            entry.4 = entry.4.max(*temp);
        }
    }
    all
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

/// Compares every row and every aggregate at the dispatcher with the union.
fn compare(addr: &str, rows: &Rows) {
    let (status, answer) = sql(
        addr,
        "SELECT origin, gateway, time, temp, pressure FROM weather ORDER BY origin, gateway, time",
    );
    assert_eq!(status, 200, "{answer}");
    let found = rows_of(&answer);
    assert_eq!(found.len(), rows.len());
    let zone = 1_000_000;
    for (row, ((origin, gateway, at), (temp, pressure))) in found.iter().zip(rows) {
        let ns: i64 = match &row[2] {
            Value::String(text) => crate::real_data::rfc3339(text),
            other => other.as_i64().unwrap(),
        };
        let right = row[0] == *origin
            && row[1] == *gateway
            && ns == at * zone
            && number(&row[3]) == *temp
            && number(&row[4]) == *pressure;
        assert!(
            right,
            "{row} for {origin} {gateway} {at} {temp:?} {pressure:?}"
        );
    }
    let (status, answer) = sql(
        addr,
        "SELECT origin, count(*), count(temp), sum(temp), min(temp), max(temp) FROM weather \
         GROUP BY origin ORDER BY origin",
    );
    assert_eq!(status, 200, "{answer}");
    let wanted = aggregates(rows);
    let found = rows_of(&answer);
    assert_eq!(found.len(), wanted.len(), "{answer}");
    for (row, (origin, (all, temps, sum, min, max))) in found.iter().zip(&wanted) {
        let near = (number(&row[3]).unwrap() - sum).abs() <= sum.abs() * 1e-12;
        let right = row[0] == **origin
            && row[1] == json!(all)
            && row[2] == json!(temps)
            && near
            && number(&row[4]) == Some(*min)
            && number(&row[5]) == Some(*max);
        assert!(right, "{row} for {origin} {:?}", wanted[origin]);
    }
    // The same by other front ends.
    let (status, counted) = ask(addr, "/api/v1/count", None);
    assert_eq!(
        (status, &counted["rows"]),
        (200, &json!(rows.len())),
        "{counted}"
    );
    let influx = "/query?db=x&q=SELECT%20count(temp)%2Cmax(temp)%20FROM%20weather";
    let (status, answer) = ask(addr, influx, None);
    let series = &answer["results"][0]["series"][0]["values"][0];
    let temps: u64 = wanted.values().map(|w| w.1).sum();
    let max = wanted
        .values()
        .map(|w| w.4)
        .fold(f64::NEG_INFINITY, f64::max);
    assert_eq!((status, &series[1]), (200, &json!(temps)), "{answer}");
    assert_eq!(number(&series[2]), Some(max), "{answer}");
}

#[test]
fn totals_over_two_clouds_are_exact_whoever_is_killed() {
    let bench = Bench::new();
    let mut dice = Dice(36);
    let mut world = World::new(&bench);
    let data = weather();
    let mut rows = Rows::new();
    for round in 0..=ROUNDS {
        if round == REPLACED.0 {
            world.replace(&bench, REPLACED.1, &rows);
        }
        if round == RENAMED.0 {
            world.rename(RENAMED.1);
        }
        let killed =
            (round < ROUNDS).then(|| usize::try_from(dice.below(3 + EDGES as u64)).unwrap());
        for (n, all) in data.iter().enumerate() {
            let share = all.len().div_ceil(ROUNDS + 1);
            let part = all.iter().skip(round * share).take(share);
            let (mut lines, mut new) = (String::new(), Vec::new());
            for row in part {
                lines.push_str(&row.line);
                new.push((row.key.clone(), row.values));
            }
            let edge = world.edges[n].as_ref().unwrap();
            let answer = edge.request("POST", "/write?precision=ms", "", &lines);
            assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
            rows.extend(new);
        }
        let Some(killed) = killed else {
            break;
        };
        world.kill(killed);
        for _ in 0..10 {
            let (status, answer) = sql(&world.desk_addr, "SELECT count(*) FROM weather");
            match status {
                // An edge's newest rows may not be at its cloud yet: no answer has more than all.
                200 => {
                    let count = rows_of(&answer)[0][0].as_u64().unwrap();
                    assert!(count <= rows.len() as u64, "{answer}");
                }
                // Nobody answers, or says what is missing.
                0 | 502 | 503 => {}
                400 if answer["message"].to_string().contains("weather") && round == 0 => {}
                other => panic!("{other}: {answer}"),
            }
            std::thread::sleep(Duration::from_millis(dice.below(60)));
        }
        world.start(killed);
    }
    world.compare(1, &rows);
    let edges = run_against(&world.addrs[0], &["edges"]).ok().stdout;
    assert!(
        edges.contains("plant-3.south") && !edges.contains("gateway-3.south"),
        "{edges}"
    );
    // A gateway goes for good: its rows stay, wherever they are asked for.
    let removed = run_against(&world.addrs[0], &["edges", "remove", "gateway-4", "--yes"]);
    drop(removed.ok());
    world.compare(2, &rows);
    // With one cloud gone, the other still has everything.
    world.kill(0);
    until("the dispatcher has noticed", || {
        ask(&world.desk_addr, "/api/v1/count", None).0 == 200
    });
    compare(&world.desk_addr, &rows);
    (0..3 + EDGES).for_each(|which| world.kill(which));
}
