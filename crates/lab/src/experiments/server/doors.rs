//! The same questions at every door: SQL and InfluxQL beside the routes, over a hundred devices
//! with ten fields that were loaded as lines, in order and with late rows.
//!
//! A minute after the last line was acknowledged, and before anything is asked, what the folder of
//! the database takes on the disk is counted: log, reserve and metadata included. Needs the command
//! `headwater`, since the experiment's own server has no SQL.

use super::Arguments;
use super::child::Server;
use super::client::{by_threads, post};
use super::connection::get;
use super::fleet::{FIELDS, Fleet};
use super::reading::{Question, Row, ask_all};
use crate::harness::{Bench, Bound, Failure, Targets};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const DEVICES: usize = 100;
/// Lines of a request.
const LINES: usize = 1_000;
/// Each row's time lies in a second of its own, the first in this one.
const BEGIN_S: i64 = 1_700_000_000;
/// One device's field, as a path has it.
const CHANNEL: &str = "fleet%2Cdevice%3Dd0042.walk_a";

const PER_MINUTE: &str = "mean per device and minute";
const HIGH: &str = "one device above its 99.9th percentile";
const COUNTS: &str = "counts of ten fields";
const RAW: &str = "1,000 raw rows";
const NEWEST: &str = "newest values of 100 × 10";
const BINS: &str = "1,000 bins of one channel";

/// Questions by SQL, and the route that answers the same.
const BY_ROUTE: [(&str, &str); 3] = [
    (RAW, "1,000 raw rows, route"),
    (NEWEST, "newest values of 100 × 10, route"),
    (BINS, "1,000 bins of one channel, route"),
];

#[derive(Serialize)]
pub(super) struct Figures {
    loads: Vec<Load>,
}

/// What one load takes on the disk, and how it answers.
#[derive(Serialize)]
struct Load {
    late_percent: u64,
    values: usize,
    bytes_per_value_after_a_minute: f64,
    rows: Vec<Row>,
}

/// What is wanted of a load.
struct Wanted {
    late_percent: u64,
    /// Parts of the values of the experiment: one, or a half.
    part_of_values: usize,
    bytes_per_value: f64,
    per_minute_ms: f64,
}

const LOADS: [Wanted; 2] = [
    Wanted {
        late_percent: 0,
        part_of_values: 1,
        bytes_per_value: 2.2,
        per_minute_ms: 4.0,
    },
    Wanted {
        late_percent: 20,
        part_of_values: 2,
        bytes_per_value: 3.0,
        per_minute_ms: 15.0,
    },
];

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Figures, Failure> {
    let binary = arguments.binary.as_deref();
    let binary = binary.ok_or("--part doors needs --binary PATH_TO/headwater, which knows SQL")?;
    let mut loads = Vec::new();
    for wanted in &LOADS {
        loads.push(of_load(bench, arguments, binary, wanted, targets)?);
    }
    Ok(Figures { loads })
}

fn of_load(
    bench: &Bench,
    arguments: &Arguments,
    binary: &Path,
    wanted: &Wanted,
    targets: &mut Targets,
) -> Result<Load, Failure> {
    let late = wanted.late_percent;
    let rows = arguments.values / wanted.part_of_values / FIELDS / DEVICES;
    let fleet = Fleet::new(DEVICES, rows.max(1), late);
    let dir = bench.path(&format!("doors-{late}"));
    let server = Server::start_command(binary, &dir)?;
    let requests: Vec<Vec<u8>> = (fleet.lines.chunks(LINES))
        .map(|lines| post("/write?precision=ns", lines.concat().as_bytes()))
        .collect();
    by_threads(server.addr, 2, &requests)?;
    std::thread::sleep(Duration::from_secs(60));
    let bytes = folder_bytes(&dir)? as f64 / fleet.values() as f64;
    println!("\n{late} % late: {bytes:.2} bytes a value a minute after loading\n");
    let rows = ask_all(bench, arguments, &server, &questions(&fleet)?)?;
    server.stop()?;
    let name = |what: &str| format!("{late} % late: {what}");
    let most = Bound::AtMost(wanted.bytes_per_value);
    targets.add(name("bytes a value on disk"), most, "", bytes);
    judge(&rows, wanted, targets, name);
    Ok(Load {
        late_percent: late,
        values: fleet.values(),
        bytes_per_value_after_a_minute: bytes,
        rows,
    })
}

/// What a folder takes on the disk: blocks, not lengths.
fn folder_bytes(dir: &Path) -> Result<u64, Failure> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += match about.is_dir() {
            true => folder_bytes(&entry.path())?,
            false => about.blocks() * 512,
        };
    }
    Ok(bytes)
}

fn sql(
    name: &'static str,
    text: String,
    is_right: impl Fn(&Value) -> bool + Sync + 'static,
) -> Question {
    Question {
        name,
        connections: 1,
        requests: vec![post("/api/v1/sql", text.as_bytes())],
        is_right: Box::new(is_right),
    }
}

fn influxql(
    name: &'static str,
    text: &str,
    is_right: impl Fn(&Value) -> bool + Sync + 'static,
) -> Question {
    let mut escaped = String::new();
    for byte in text.bytes() {
        // Writing to a string cannot fail.
        let _ = match byte.is_ascii_alphanumeric() {
            true => write!(escaped, "{}", char::from(byte)),
            false => write!(escaped, "%{byte:02X}"),
        };
    }
    Question {
        name,
        connections: 1,
        requests: vec![get(&format!("/query?db=headwater&q={escaped}"))],
        is_right: Box::new(is_right),
    }
}

fn route(
    name: &'static str,
    path: &str,
    is_right: impl Fn(&Value) -> bool + Sync + 'static,
) -> Question {
    Question {
        name,
        connections: 1,
        requests: vec![get(path)],
        is_right: Box::new(is_right),
    }
}

/// Rows of an answer of SQL.
fn sql_rows(answer: &Value) -> usize {
    answer["rows"].as_array().map_or(0, Vec::len)
}

/// Rows of all series of the first statement of an answer of InfluxQL.
fn influx_rows(answer: &Value) -> usize {
    let series = answer["results"][0]["series"].as_array();
    let values = series.into_iter().flatten().map(|one| &one["values"]);
    values.filter_map(Value::as_array).map(Vec::len).sum()
}

/// A value of the channel that one in a thousand of a device's rows exceeds.
fn high(fleet: &Fleet) -> Result<(f64, usize), Failure> {
    let of_device = fleet.lines.iter().filter(|l| l.contains("=d0042 "));
    let value = |line: &String| {
        line.split("walk_a=")
            .nth(1)?
            .split(',')
            .next()?
            .parse()
            .ok()
    };
    let mut all: Vec<f64> = of_device.filter_map(value).collect();
    all.sort_by(f64::total_cmp);
    let at = all.len().saturating_sub(1 + all.len() / 1_000);
    let high = all.get(at).copied().ok_or("no values")?;
    Ok((high, all.iter().filter(|v| **v > high).count()))
}

fn questions(fleet: &Fleet) -> Result<Vec<Question>, Failure> {
    let (high, above) = high(fleet)?;
    let seconds = i64::try_from(fleet.rows)?;
    let (begin, end) = (BEGIN_S, BEGIN_S + seconds + 1);
    // A row's time is up to a second after its own: so many minutes have one of each device.
    let minutes = fleet.devices * fleet.rows.div_ceil(60);
    let few = (fleet.rows / 2).min(1_000);
    let total = (fleet.devices * fleet.rows) as u64;
    let width = (fleet.rows / 1_000).max(1);
    let fields = [
        "walk_a", "walk_b", "walk_c", "noise_x", "noise_y", "count", "on", "open", "rated", "ramp",
    ];
    let counts: Vec<String> = fields.iter().map(|f| format!("count(\"{f}\")")).collect();
    let is_minutes = move |rows: usize| (minutes..=minutes + 2 * DEVICES).contains(&rows);
    let bins = fleet.rows.div_ceil(width);
    let is_bins = move |found: usize| (bins..=bins + 1).contains(&found);
    let middle = begin + seconds / 2;
    let of_device = "device = 'd0042'";
    let nanos = |second: i64| second * 1_000_000_000;
    let (from, to) = (nanos(begin), nanos(end));
    let values_of = move |v: &Value| {
        let streams = v["streams"].as_array().map_or(&[][..], Vec::as_slice);
        let objects = streams.iter().filter_map(|s| s["fields"].as_object());
        objects.map(serde_json::Map::len).sum::<usize>() == DEVICES * FIELDS
    };
    Ok(vec![
        sql(
            PER_MINUTE,
            "SELECT device, date_bin(INTERVAL '1 minute', time) AS t, avg(walk_a) FROM fleet GROUP BY device, t".to_owned(),
            move |v| is_minutes(sql_rows(v)),
        ),
        influxql(
            "mean per device and minute, InfluxQL",
            &format!("SELECT mean(walk_a) FROM fleet WHERE time >= {from} AND time < {to} GROUP BY time(1m), device fill(none)"),
            move |v| is_minutes(influx_rows(v)),
        ),
        sql(
            HIGH,
            format!("SELECT time, walk_a FROM fleet WHERE {of_device} AND walk_a > {high:?}"),
            move |v| sql_rows(v) == above,
        ),
        influxql(
            "one device above its 99.9th percentile, InfluxQL",
            &format!("SELECT walk_a FROM fleet WHERE {of_device} AND walk_a > {high:?}"),
            move |v| influx_rows(v) == above,
        ),
        sql(
            COUNTS,
            format!("SELECT {} FROM fleet", counts.join(", ")),
            move |v| v["rows"][0][0].as_u64() == Some(total) && v["rows"][0][9].as_u64() == Some(total),
        ),
        sql(
            RAW,
            format!(
                "SELECT time, walk_a FROM fleet WHERE {of_device} AND time >= to_timestamp({middle}) ORDER BY time LIMIT 1000"
            ),
            move |v| sql_rows(v) == few,
        ),
        route(
            BY_ROUTE[0].1,
            &format!(
                "/api/v1/scan?stream=fleet%2Cdevice%3Dd0042&from={}&fields=walk_a&limit=1000",
                nanos(middle)
            ),
            move |v| v["time"].as_array().map(Vec::len) == Some(few),
        ),
        sql(
            NEWEST,
            "SELECT DISTINCT ON (device) * FROM fleet ORDER BY device, time DESC".to_owned(),
            move |v| sql_rows(v) == DEVICES,
        ),
        route(BY_ROUTE[1].1, "/api/v1/last?table=fleet", values_of),
        sql(
            BINS,
            format!(
                "SELECT date_bin(INTERVAL '{width} seconds', time) AS t, avg(walk_a), min(walk_a), max(walk_a), count(walk_a) FROM fleet \
                 WHERE {of_device} GROUP BY t ORDER BY t"
            ),
            move |v| is_bins(sql_rows(v)),
        ),
        route(
            BY_ROUTE[2].1,
            &format!(
                "/api/v1/aggregate?channel={CHANNEL}&every={width}s"
            ),
            move |v| is_bins(v["channels"][0]["count"].as_array().map_or(0, Vec::len)),
        ),
    ])
}

fn judge(rows: &[Row], wanted: &Wanted, targets: &mut Targets, name: impl Fn(&str) -> String) {
    let p50 = |question: &str| {
        let row = rows.iter().find(|r| r.question == question);
        row.map(|r| r.p50_ms)
    };
    for (question, most) in [
        (PER_MINUTE, wanted.per_minute_ms),
        (HIGH, 0.4),
        (COUNTS, 0.5),
    ] {
        if let Some(ms) = p50(question) {
            targets.add(name(question), Bound::AtMost(most), " ms", ms);
        }
    }
    for (question, by_route) in BY_ROUTE {
        if let (Some(sql), Some(route)) = (p50(question), p50(by_route)) {
            let what = name(&format!("{question}, SQL against the route"));
            targets.add(what, Bound::AtMost(1.3), " ×", sql / route);
        }
    }
}
