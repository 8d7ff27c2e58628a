//! Queries: tiles of a large channel, formatted and cached; raw points, newest values, bins,
//! counts.

use super::Arguments;
use super::child::Server;
use super::connection::{Connection, get};
use crate::harness::{Bench, Bound, Failure, Random, Targets};
use crate::table;
use headwater::{Batch, Database, Level, Options, StreamName, Timestamp, Values};
use serde::Serialize;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_700_000_000 * SECOND;
const DEVICES: u64 = 100;
const FIELDS: usize = 10;
const CHANNEL: &str = "big%2Cdevice%3D1.value";

#[derive(Serialize)]
pub(crate) struct Results {
    rows: Vec<Row>,
    peak_bytes: u64,
}

/// Measurements of one query, over all rounds.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) question: &'static str,
    connections: usize,
    asked: usize,
    per_second: f64,
    pub(super) p50_ms: f64,
    p99_ms: f64,
    body_bytes: usize,
    server_cpu_us: f64,
    /// Every form of the query fits into the server's cache of formatted tiles.
    forms_fit_cache: bool,
}

pub(crate) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let dir = bench.path("reading");
    fill(&dir, arguments)?;
    let server = Server::start(&dir)?;
    let rows = ask_all(bench, arguments, &server, &questions(arguments))?;
    judge(&rows, targets);
    let results = Results {
        rows,
        peak_bytes: server.used()?.peak_bytes,
    };
    server.stop()?;
    Ok(results)
}

/// Sends every query in every round, and prints the times of the answers.
pub(super) fn ask_all(
    bench: &Bench,
    arguments: &Arguments,
    server: &Server,
    questions: &[QueryCase],
) -> Result<Vec<Row>, Failure> {
    for question in questions {
        question.check(server.addr)?;
    }
    let (warm_up, rounds) = bench.rounds();
    let each = Duration::from_secs_f64(arguments.seconds);
    let mut taken: Vec<QueryLoad> = questions.iter().map(|_| QueryLoad::default()).collect();
    // Queries alternate, so that other work on the machine affects all of them.
    for round in 0..warm_up + rounds {
        for (question, taken) in questions.iter().zip(&mut taken) {
            let now = question.load(server, each)?;
            if round >= warm_up {
                taken.add(now);
            }
        }
    }
    let rows: Vec<Row> = questions.iter().zip(taken).map(|(q, t)| t.row(q)).collect();
    print(&rows);
    Ok(rows)
}

/// One channel with a value a second, and a hundred devices with ten fields.
fn fill(dir: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let db = Database::open(Options::new(dir))?;
    let mut random = Random::new(5);
    let big = StreamName::new("big", [("device", "1")]);
    let mut walk = 0i64;
    let mut second = 0;
    while second < arguments.points {
        let rows = (arguments.points - second).min(100_000);
        let mut batch = Batch::new();
        let entry = batch.stream(&big);
        entry.times = (second..second + rows)
            .map(|s| START + s as i64 * SECOND)
            .collect();
        let values = entry.times.iter().map(|_| {
            walk += random.below(201) as i64 - 100;
            walk as f64 / 100.0
        });
        let values = Values::F64(values.collect());
        *entry = std::mem::replace(entry, headwater::StreamRows::new(big.clone()))
            .with_column("value", values);
        db.commit(batch)?;
        second += rows;
    }
    for device in 0..DEVICES {
        let mut batch = Batch::new();
        let name = StreamName::new("fleet", [("device", device.to_string())]);
        let mut entry = headwater::StreamRows::new(name);
        entry.times = (0..arguments.rows)
            .map(|s| START + s as i64 * SECOND)
            .collect();
        for field in 0..FIELDS {
            let values = entry
                .times
                .iter()
                .map(|_| random.below(10_000) as f64 / 100.0);
            let values = Values::F64(values.collect());
            entry = entry.with_column(format!("f{field}"), values);
        }
        batch.push(entry);
        db.commit(batch)?;
    }
    db.compact()?;
    Ok(db.close()?)
}

/// A query in many forms, and its expected answer.
pub(super) struct QueryCase {
    pub(super) name: &'static str,
    pub(super) connections: usize,
    pub(super) requests: Vec<Vec<u8>>,
    /// Checks the answer to the first one.
    pub(super) is_right: Box<dyn Fn(&Value) -> bool + Sync>,
}

/// Lists the queries, in the order in which they alternate.
fn questions(arguments: &Arguments) -> Vec<QueryCase> {
    let points = arguments.points as i64;
    let mut questions = tile_questions(points, arguments.connections);
    questions.push(raw_points(arguments));
    questions.push(newest_values());
    questions.extend(aggregates(arguments.points, START + points * SECOND));
    questions.push(count_of_rows(arguments));
    questions
}

/// Requests a tile of the channel.
fn tile((level, offset): (i32, i64), more: &str) -> Vec<u8> {
    get(&format!("/tiles/{CHANNEL}/{level}.{offset}.json{more}"))
}

/// Lists the tiles that the channel has in these levels.
fn tiles_of(points: i64, levels: std::ops::RangeInclusive<i32>) -> Vec<(i32, i64)> {
    let of_level = |level: i32| {
        let bucket = |at: i64| Level::clamped(level).bucket_of(Timestamp::from_nanos(at));
        let first = bucket(START).div_euclid(512);
        let last = bucket(START + (points - 1) * SECOND).div_euclid(512);
        (first..=last).map(move |offset| (level, offset))
    };
    levels.flat_map(of_level).collect()
}

/// The value at a JSON pointer; null if missing.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Requests each tile in enough forms to miss the cache every time: another order of fields is
/// another answer.
fn every_form(tiles: &[(i32, i64)]) -> Vec<Vec<u8>> {
    let fields = ["time", "mean", "stddev", "count", "min", "max"];
    let turns = (0..fields.len()).map(|turn| {
        let mut names = fields;
        names.rotate_left(turn);
        let [one, two, three, four, ..] = names;
        format!("?fields={one},{two},{three},{four}")
    });
    turns
        .flat_map(|more| tiles.iter().map(move |t| tile(*t, &more)))
        .collect()
}

/// Creates the queries for tiles, uncached and cached.
fn tile_questions(points: i64, connections: usize) -> Vec<QueryCase> {
    // A base bucket has about 128 events: here the pyramid starts at level 7, and finer tiles are
    // computed from rows.
    let tiles = tiles_of(points, 7..=12);
    let fine = tiles_of(points, 6..=6);
    let is_tile = |v: &Value| at(v, "/data").as_array().is_some_and(|d| !d.is_empty());
    let fresh = every_form(&tiles);
    vec![
        QueryCase {
            name: "tile, formatted anew",
            connections: 1,
            requests: fresh.clone(),
            is_right: Box::new(is_tile),
        },
        QueryCase {
            name: "tile, formatted anew",
            connections,
            requests: fresh,
            is_right: Box::new(is_tile),
        },
        QueryCase {
            name: "tile of rows, formatted anew",
            connections: 1,
            requests: every_form(&fine),
            is_right: Box::new(is_tile),
        },
        QueryCase {
            name: "tile, kept",
            connections: 1,
            requests: tiles.iter().take(100).map(|t| tile(*t, "")).collect(),
            is_right: Box::new(is_tile),
        },
        QueryCase {
            name: "tile, kept",
            connections,
            requests: tiles.iter().take(100).map(|t| tile(*t, "")).collect(),
            is_right: Box::new(is_tile),
        },
    ]
}

/// Makes the query for raw points of windows anywhere in the channel.
fn raw_points(arguments: &Arguments) -> QueryCase {
    let mut random = Random::new(9);
    let window = arguments.points.min(1_000);
    let scans: Vec<Vec<u8>> = (0..500)
        .map(|_| {
            let from = START + random.below(arguments.points - window + 1) as i64 * SECOND;
            let to = from + i64::try_from(window).unwrap_or(0) * SECOND;
            get(&format!(
                "/api/v1/scan?stream=big%2Cdevice%3D1&from={from}&to={to}&limit=1000"
            ))
        })
        .collect();
    QueryCase {
        name: "1,000 raw points",
        connections: 1,
        requests: scans,
        is_right: Box::new(move |v| {
            at(v, "/fields/value").as_array().map(Vec::len) == usize::try_from(window).ok()
        }),
    }
}

/// Makes the query for the newest value of every field of the devices.
fn newest_values() -> QueryCase {
    QueryCase {
        name: "last value of 1,000 channels",
        connections: 1,
        requests: vec![get("/api/v1/last?table=fleet")],
        is_right: Box::new(|v| {
            let streams = at(v, "/streams").as_array().map_or(&[][..], Vec::as_slice);
            let values = streams.iter().filter_map(|s| at(s, "/fields").as_object());
            values.map(|f| f.len()).sum::<usize>() == usize::try_from(DEVICES).unwrap_or(0) * FIELDS
        }),
    }
}

/// Makes the queries for bins of the channel, and for the count of its points.
fn aggregates(whole: u64, until_nanos: i64) -> [QueryCase; 2] {
    let bins = whole.min(1_000);
    [
        QueryCase {
            name: "one channel into 1,000 bins",
            connections: 1,
            requests: vec![get(&format!(
                "/api/v1/aggregate?channel={CHANNEL}&from={START}&to={until_nanos}&bins={bins}"
            ))],
            is_right: Box::new(move |v| {
                let counts = at(v, "/channels/0/count").as_array();
                let sum = counts.map(|c| c.iter().filter_map(Value::as_u64).sum::<u64>());
                // At most the requested number, at least three quarters of it.
                let number = counts.map_or(0, Vec::len) as u64;
                sum == Some(whole) && (bins * 3 / 4..=bins).contains(&number)
            }),
        },
        QueryCase {
            name: "count of all points of the channel",
            connections: 1,
            requests: vec![get(&format!(
                "/api/v1/aggregate?channel={CHANNEL}&functions=count"
            ))],
            is_right: Box::new(move |v| at(v, "/channels/0/count/0").as_u64() == Some(whole)),
        },
    ]
}

/// Makes the query for the count of the rows of the devices.
fn count_of_rows(arguments: &Arguments) -> QueryCase {
    let rows = arguments.rows;
    QueryCase {
        name: "count of all rows of a table of 100 streams",
        connections: 1,
        requests: vec![get("/api/v1/count?table=fleet")],
        is_right: Box::new(move |v| at(v, "/rows").as_u64() == Some(rows * DEVICES)),
    }
}

impl QueryCase {
    /// Sends the first form once and checks the answer.
    fn check(&self, addr: SocketAddr) -> Result<(), Failure> {
        let mut connection = Connection::open(addr)?;
        let request = self.requests.first().ok_or("a question without a form")?;
        let answer = connection.send(request)?;
        let body = connection.body(&answer);
        let value = serde_json::from_slice(body).unwrap_or_default();
        if answer.status != 200 || !(self.is_right)(&value) {
            let text = String::from_utf8_lossy(body.get(..300).unwrap_or(body)).into_owned();
            return Err(format!("{}: wrong answer {}: {text}", self.name, answer.status).into());
        }
        Ok(())
    }

    fn load(&self, server: &Server, time: Duration) -> Result<QueryLoad, Failure> {
        let stop = AtomicBool::new(false);
        let all = Mutex::new(QueryLoad::default());
        let cpu = server.used()?.cpu_seconds;
        let begun = Instant::now();
        std::thread::scope(|scope| -> Result<(), Failure> {
            let mut threads = Vec::new();
            for number in 0..self.connections {
                let (stop, all) = (&stop, &all);
                threads.push(scope.spawn(move || -> Result<(), String> {
                    let taken = self.ask_on_one(server.addr, number, stop);
                    let taken = taken.map_err(|e| e.to_string())?;
                    all.lock().map_err(|e| e.to_string())?.add(taken);
                    Ok(())
                }));
            }
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().map_err(|_| "a client panicked")??;
            }
            Ok(())
        })?;
        let mut taken = all.into_inner().map_err(|e| e.to_string())?;
        taken.wall_seconds = begun.elapsed().as_secs_f64();
        taken.server_cpu_seconds = server.used()?.cpu_seconds - cpu;
        Ok(taken)
    }

    fn ask_on_one(
        &self,
        addr: SocketAddr,
        number: usize,
        stop: &AtomicBool,
    ) -> Result<QueryLoad, Failure> {
        let mut connection = Connection::open(addr)?;
        let mut taken = QueryLoad::default();
        // Each connection starts at another request.
        let from = number * self.requests.len() / self.connections.max(1);
        for request in self.requests.iter().cycle().skip(from) {
            let begun = Instant::now();
            let answer = connection.send(request)?;
            taken.latencies.push(begun.elapsed().as_nanos() as u64);
            if answer.status != 200 {
                return Err(format!("{}: status {}", self.name, answer.status).into());
            }
            taken.body_bytes = connection.body(&answer).len();
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(taken)
    }
}

#[derive(Default)]
struct QueryLoad {
    latencies: Vec<u64>,
    body_bytes: usize,
    wall_seconds: f64,
    server_cpu_seconds: f64,
}

impl QueryLoad {
    fn add(&mut self, other: QueryLoad) {
        self.latencies.extend(other.latencies);
        self.body_bytes = other.body_bytes;
        self.wall_seconds += other.wall_seconds;
        self.server_cpu_seconds += other.server_cpu_seconds;
    }

    fn row(mut self, question: &QueryCase) -> Row {
        self.latencies.sort_unstable();
        let asked = self.latencies.len();
        let at = |part: f64| {
            let index = ((asked as f64 * part) as usize).min(asked.saturating_sub(1));
            self.latencies.get(index).copied().unwrap_or(0) as f64 / 1e6
        };
        Row {
            question: question.name,
            connections: question.connections,
            asked,
            per_second: asked as f64 / self.wall_seconds.max(1e-9),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            body_bytes: self.body_bytes,
            server_cpu_us: self.server_cpu_seconds * 1e6 / asked.max(1) as f64,
            forms_fit_cache: question.requests.len() * self.body_bytes < tile_cache_bytes(),
        }
    }
}

fn print(rows: &[Row]) {
    let heads = [
        "question",
        "connections",
        "answers/s",
        "p50 ms",
        "p99 ms",
        "bytes",
        "server CPU µs",
    ];
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.question.to_owned(),
                row.connections.to_string(),
                format!("{:.0}", row.per_second),
                format!("{:.3}", row.p50_ms),
                format!("{:.3}", row.p99_ms),
                row.body_bytes.to_string(),
                format!("{:.0}", row.server_cpu_us),
            ]
        })
        .collect();
    table::print(&heads, &lines);
    let cached = |row: &&Row| row.forms_fit_cache && row.question.ends_with("anew");
    for row in rows.iter().filter(cached) {
        println!(
            "{} ({}): all its forms fit the cache of tiles, so these answers are kept ones; \
             ask about more --points",
            row.question, row.connections
        );
    }
}

fn tile_cache_bytes() -> usize {
    headwater_server::Settings::new("").tile_cache
}

fn judge(rows: &[Row], targets: &mut Targets) {
    let mut add = |question: &str, many: bool, what: &str, bound, unit, figure: fn(&Row) -> f64| {
        let row = rows
            .iter()
            .find(|r| r.question == question && (r.connections > 1) == many);
        if let Some(row) = row {
            targets.add(format!("{question}, {what}"), bound, unit, figure(row));
        }
    };
    let (anew, kept) = ("tile, formatted anew", "tile, kept");
    add(anew, false, "p50", Bound::AtMost(0.2), " ms", |r| r.p50_ms);
    add(
        anew,
        true,
        "16 connections",
        Bound::AtLeast(10_000.0),
        "/s",
        |r| r.per_second,
    );
    add(anew, true, "p99", Bound::AtMost(3.0), " ms", |r| r.p99_ms);
    add(
        kept,
        true,
        "16 connections",
        Bound::AtLeast(30_000.0),
        "/s",
        |r| r.per_second,
    );
    add(kept, true, "p99", Bound::AtMost(3.0), " ms", |r| r.p99_ms);
    for (question, most) in [
        ("1,000 raw points", 0.4),
        ("last value of 1,000 channels", 0.8),
        ("one channel into 1,000 bins", 1.5),
        ("count of all points of the channel", 0.3),
    ] {
        add(question, false, "p50", Bound::AtMost(most), " ms", |r| {
            r.p50_ms
        });
    }
}
