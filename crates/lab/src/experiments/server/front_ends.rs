//! The same queries at every front end: SQL and InfluxQL, compared with the routes, over a hundred
//! devices with ten fields that were loaded as lines, in order and with late rows.
//!
//! A minute after the last line was acknowledged, and before the first query, the disk usage of the
//! database's folder is measured: log, reserve and metadata included. Needs the command
//! `headwater`, since the experiment's own server does not have SQL.

use super::Arguments;
use super::child::Server;
use super::client::{by_threads, post};
use super::connection::get;
use super::fleet::{FIELDS, Fleet};
use super::reading::{QueryCase, Row, ask_all};
use super::streams::number;
use crate::harness::{Bench, Bound, Failure, Targets};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const DEVICES: usize = 100;
/// Lines of a request.
const LINES: usize = 1_000;
/// Each row's time is in a second of its own, the first in this one.
const BEGIN_S: i64 = 1_700_000_000;
/// One device's field, as a path has it.
const CHANNEL: &str = "fleet%2Cdevice%3Dd0042.walk_a";

const PER_MINUTE: &str = "mean per device and minute";
const HIGH: &str = "one device above its 99.9th percentile";
const COUNTS: &str = "counts of ten fields";
const RAW: &str = "1,000 raw rows";
const NEWEST: &str = "newest values of 100 × 10";
const BINS: &str = "1,000 bins of one channel";

const RAW_BY_ROUTE: &str = "1,000 raw rows, route";
const NEWEST_BY_ROUTE: &str = "newest values of 100 × 10, route";
const BINS_BY_ROUTE: &str = "1,000 bins of one channel, route";

/// Questions by SQL, and the route that answers the same.
const BY_ROUTE: [(&str, &str); 3] = [
    (RAW, RAW_BY_ROUTE),
    (NEWEST, NEWEST_BY_ROUTE),
    (BINS, BINS_BY_ROUTE),
];

#[derive(Serialize)]
pub(super) struct Results {
    loads: Vec<Load>,
}

/// Disk space of one load, and its query times.
#[derive(Serialize)]
struct Load {
    late_percent: u64,
    values: usize,
    bytes_per_value_after_a_minute: f64,
    rows: Vec<Row>,
}

/// Targets of a load.
struct LoadTarget {
    late_percent: u64,
    /// Parts of the values of the experiment: one, or a half.
    part_of_values: usize,
    bytes_per_value: f64,
    per_minute_ms: f64,
}

const LOADS: [LoadTarget; 2] = [
    LoadTarget {
        late_percent: 0,
        part_of_values: 1,
        bytes_per_value: 2.2,
        per_minute_ms: 4.0,
    },
    LoadTarget {
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
) -> Result<Results, Failure> {
    let binary = arguments.binary.as_deref();
    let binary = binary.ok_or("--part doors needs --binary PATH_TO/headwater, which knows SQL")?;
    let mut loads = Vec::new();
    for target in &LOADS {
        loads.push(of_load(bench, arguments, binary, target, targets)?);
    }
    Ok(Results { loads })
}

fn of_load(
    bench: &Bench,
    arguments: &Arguments,
    binary: &Path,
    target: &LoadTarget,
    targets: &mut Targets,
) -> Result<Load, Failure> {
    let late = target.late_percent;
    let rows = arguments.values / target.part_of_values / FIELDS / DEVICES;
    let fleet = Fleet::new(DEVICES, rows.max(1), late);
    let dir = bench.path(&format!("doors-{late}"));
    let server = Server::start_command(binary, &dir)?;
    let requests: Vec<Vec<u8>> = (fleet.lines.chunks(LINES))
        .map(|lines| post("/write?precision=ns", lines.concat().as_bytes()))
        .collect();
    by_threads(server.addr, 2, &requests)?;
    std::thread::sleep(Duration::from_secs(60));
    let bytes = number(usize::try_from(folder_bytes(&dir)?)?) / number(fleet.values());
    println!("\n{late} % late: {bytes:.2} bytes a value a minute after loading\n");
    let rows = ask_all(bench, arguments, &server, &questions(&fleet)?)?;
    server.stop()?;
    let name = |what: &str| format!("{late} % late: {what}");
    let most = Bound::AtMost(target.bytes_per_value);
    targets.add(name("bytes a value on disk"), most, "", bytes);
    judge(&rows, target, targets, name);
    Ok(Load {
        late_percent: late,
        values: fleet.values(),
        bytes_per_value_after_a_minute: bytes,
        rows,
    })
}

/// Disk space of a folder: blocks, not lengths.
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
) -> QueryCase {
    QueryCase {
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
) -> QueryCase {
    let mut escaped = String::new();
    for byte in text.bytes() {
        // Writing to a string cannot fail.
        let _ = match byte.is_ascii_alphanumeric() {
            true => write!(escaped, "{}", char::from(byte)),
            false => write!(escaped, "%{byte:02X}"),
        };
    }
    QueryCase {
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
) -> QueryCase {
    QueryCase {
        name,
        connections: 1,
        requests: vec![get(path)],
        is_right: Box::new(is_right),
    }
}

/// Length of a list in an answer, by JSON pointer; 0 if there is no list.
fn length(answer: &Value, place: &str) -> usize {
    let list = answer.pointer(place).and_then(Value::as_array);
    list.map_or(0, Vec::len)
}

/// Rows of an answer of SQL.
fn sql_rows(answer: &Value) -> usize {
    length(answer, "/rows")
}

/// Rows of all series of the first statement of an answer of InfluxQL.
fn influx_rows(answer: &Value) -> usize {
    let series = answer
        .pointer("/results/0/series")
        .and_then(Value::as_array);
    let series = series.into_iter().flatten();
    series.map(|one| length(one, "/values")).sum()
}

/// Values of an answer with the newest of each stream.
fn newest_values(answer: &Value) -> usize {
    let streams = answer.pointer("/streams").and_then(Value::as_array);
    let objects = streams.into_iter().flatten();
    let objects = objects.filter_map(|stream| stream.get("fields")?.as_object());
    objects.map(serde_json::Map::len).sum()
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

/// Subject of every query.
struct QueryParameters {
    high: f64,
    above: usize,
    /// Bins of a minute, of each device one.
    minutes: usize,
    /// Rows of a short scan.
    few: usize,
    total: u64,
    /// Seconds of one of a thousand bins, and how many there are then.
    width: usize,
    bins: usize,
    /// First second of the range; each second has a row of every device.
    first_second: i64,
    middle_second: i64,
    end_second: i64,
}

impl QueryParameters {
    fn of(fleet: &Fleet) -> Result<QueryParameters, Failure> {
        let (high, above) = high(fleet)?;
        let seconds = i64::try_from(fleet.rows)?;
        let width = (fleet.rows / 1_000).max(1);
        Ok(QueryParameters {
            high,
            above,
            // A row's time is up to a second after its own.
            minutes: fleet.devices * fleet.rows.div_ceil(60),
            few: (fleet.rows / 2).min(1_000),
            total: u64::try_from(fleet.devices * fleet.rows)?,
            width,
            bins: fleet.rows.div_ceil(width),
            first_second: BEGIN_S,
            middle_second: BEGIN_S + seconds / 2,
            end_second: BEGIN_S + seconds + 1,
        })
    }

    fn is_minutes(&self) -> impl Fn(usize) -> bool + Sync + use<> {
        let minutes = self.minutes;
        move |rows| (minutes..=minutes + 2 * DEVICES).contains(&rows)
    }

    fn is_bins(&self) -> impl Fn(usize) -> bool + Sync + use<> {
        let bins = self.bins;
        move |found| (bins..=bins + 1).contains(&found)
    }
}

const OF_DEVICE: &str = "device = 'd0042'";

fn nanos(second: i64) -> i64 {
    second * 1_000_000_000
}

fn questions(fleet: &Fleet) -> Result<Vec<QueryCase>, Failure> {
    let about = QueryParameters::of(fleet)?;
    let mut all = over_the_table(&about);
    all.extend(of_one_device(&about));
    Ok(all)
}

fn over_the_table(about: &QueryParameters) -> Vec<QueryCase> {
    let (total, high, above) = (about.total, about.high, about.above);
    let fields = [
        "walk_a", "walk_b", "walk_c", "noise_x", "noise_y", "count", "on", "open", "rated", "ramp",
    ];
    let counts: Vec<String> = fields.iter().map(|f| format!("count(\"{f}\")")).collect();
    let (is_minutes, by_influx) = (about.is_minutes(), about.is_minutes());
    let (from, to) = (nanos(about.first_second), nanos(about.end_second));
    let is_total =
        move |v: &Value, place: &str| v.pointer(place).and_then(Value::as_u64) == Some(total);
    vec![
        sql(
            PER_MINUTE,
            "SELECT device, date_bin(INTERVAL '1 minute', time) AS t, avg(walk_a) FROM fleet GROUP BY device, t".to_owned(),
            move |v| is_minutes(sql_rows(v)),
        ),
        influxql(
            "mean per device and minute, InfluxQL",
            &format!("SELECT mean(walk_a) FROM fleet WHERE time >= {from} AND time < {to} GROUP BY time(1m), device fill(none)"),
            move |v| by_influx(influx_rows(v)),
        ),
        sql(
            HIGH,
            format!("SELECT time, walk_a FROM fleet WHERE {OF_DEVICE} AND walk_a > {high:?}"),
            move |v| sql_rows(v) == above,
        ),
        influxql(
            "one device above its 99.9th percentile, InfluxQL",
            &format!("SELECT walk_a FROM fleet WHERE {OF_DEVICE} AND walk_a > {high:?}"),
            move |v| influx_rows(v) == above,
        ),
        sql(
            COUNTS,
            format!("SELECT {} FROM fleet", counts.join(", ")),
            move |v| is_total(v, "/rows/0/0") && is_total(v, "/rows/0/9"),
        ),
        sql(
            NEWEST,
            "SELECT DISTINCT ON (device) * FROM fleet ORDER BY device, time DESC".to_owned(),
            move |v| sql_rows(v) == DEVICES,
        ),
        route(NEWEST_BY_ROUTE, "/api/v1/last?table=fleet", move |v| {
            newest_values(v) == DEVICES * FIELDS
        }),
    ]
}

fn of_one_device(about: &QueryParameters) -> Vec<QueryCase> {
    let (few, width, middle) = (about.few, about.width, about.middle_second);
    let (is_bins, by_route) = (about.is_bins(), about.is_bins());
    vec![
        sql(
            RAW,
            format!(
                "SELECT time, walk_a FROM fleet WHERE {OF_DEVICE} AND time >= to_timestamp({middle}) ORDER BY time LIMIT 1000"
            ),
            move |v| sql_rows(v) == few,
        ),
        route(
            RAW_BY_ROUTE,
            &format!(
                "/api/v1/scan?stream=fleet%2Cdevice%3Dd0042&from={}&fields=walk_a&limit=1000",
                nanos(middle)
            ),
            move |v| length(v, "/time") == few,
        ),
        sql(
            BINS,
            format!(
                "SELECT date_bin(INTERVAL '{width} seconds', time) AS t, avg(walk_a), min(walk_a), max(walk_a), count(walk_a) FROM fleet \
                 WHERE {OF_DEVICE} GROUP BY t ORDER BY t"
            ),
            move |v| is_bins(sql_rows(v)),
        ),
        route(
            BINS_BY_ROUTE,
            &format!("/api/v1/aggregate?channel={CHANNEL}&every={width}s"),
            move |v| by_route(length(v, "/channels/0/count")),
        ),
    ]
}

fn judge(rows: &[Row], target: &LoadTarget, targets: &mut Targets, name: impl Fn(&str) -> String) {
    let p50 = |question: &str| {
        let row = rows.iter().find(|r| r.question == question);
        row.map(|r| r.p50_ms)
    };
    for (question, most) in [
        (PER_MINUTE, target.per_minute_ms),
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
