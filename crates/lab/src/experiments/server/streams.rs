//! A million streams of one table: loading them with one writer, and the queries of people then.
//!
//! Line protocol of two fields, every stream once in a pass; later passes write to existing
//! streams. The writer retries requests answered with 503, as writers do; the measure is the time
//! without a stored row. Then the server is restarted and queried: right after the start, and ten
//! queries at each front end. SQL is queried only if the server has it: the experiment's own does
//! not, so `--binary` names the command `headwater`.

use super::Arguments;
use super::child::Server;
use super::client::post;
use super::connection::{Connection, get};
use crate::harness::{Bench, Bound, Failure, Targets};
use crate::table;
use serde::Serialize;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const START_NS: i64 = 1_700_000_000_000_000_000;
/// Between two passes.
const PASS_NS: i64 = 900_000_000_000;
/// Lines of a request.
const LINES: usize = 20_000;
const MIB: f64 = 1024.0 * 1024.0;

#[derive(Serialize)]
struct Timing {
    door: &'static str,
    question: String,
    ms: f64,
    resident_mib: f64,
}

#[derive(Serialize)]
pub(super) struct Results {
    streams: usize,
    passes: usize,
    /// Rate of each pass.
    lines_per_second: Vec<f64>,
    longest_stall_seconds: f64,
    refused_requests: usize,
    cpu_seconds_per_million_lines: f64,
    /// At the most while loading.
    loading_mib: f64,
    bytes_written_per_byte: f64,
    bytes_per_line: f64,
    asked: Vec<Timing>,
    /// After the queries.
    resident_mib: f64,
}

fn push_line(out: &mut String, stream: usize, pass: usize, streams: usize) {
    let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let within = whole(stream) * PASS_NS / whole(streams.max(1));
    let time = START_NS + whole(pass) * PASS_NS + within;
    let (kwh, volts) = (stream % 977 + pass * 3, 2290 + (stream * 7 + pass) % 41);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "meter,id=dev{stream:07},region=r{:02},site=s{:03} kwh={}.{:02},volts={}.{} {time}",
        stream % 20,
        stream % 500,
        kwh,
        stream % 100,
        volts / 10,
        volts % 10,
    );
}

/// Measurements of loading.
#[derive(Default)]
struct Load {
    lines_per_second: Vec<f64>,
    longest_stall: Duration,
    refused: usize,
}

fn load(addr: SocketAddr, streams: usize, passes: usize) -> Result<Load, Failure> {
    let mut connection = Connection::open(addr)?;
    let mut load = Load::default();
    let mut body = String::new();
    let mut stored = Instant::now();
    for pass in 0..passes {
        let (begin, mut own) = (Instant::now(), Duration::ZERO);
        for first in (0..streams).step_by(LINES) {
            let making = Instant::now();
            body.clear();
            for stream in first..(first + LINES).min(streams) {
                push_line(&mut body, stream, pass, streams);
            }
            let request = post("/write?precision=ns", body.as_bytes());
            // The client's time for generating lines is not the server's.
            own += making.elapsed();
            stored += making.elapsed();
            loop {
                let answer = connection.send(&request)?;
                match answer.status {
                    204 => break,
                    503 => load.refused += 1,
                    status => {
                        let body = String::from_utf8_lossy(connection.body(&answer)).into_owned();
                        return Err(format!("{status}: {body}").into());
                    }
                }
            }
            load.longest_stall = load.longest_stall.max(stored.elapsed());
            stored = Instant::now();
        }
        let seconds = (begin.elapsed() - own).as_secs_f64();
        load.lines_per_second.push(number(streams) / seconds);
    }
    Ok(load)
}

/// A value of the server's metrics.
fn metric(addr: SocketAddr, name: &str) -> Result<f64, Failure> {
    let mut connection = Connection::open(addr)?;
    let answer = connection.send(&get("/metrics"))?;
    let text = String::from_utf8_lossy(connection.body(&answer)).into_owned();
    let mut lines = text.lines();
    let line = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    let value = line.and_then(|l| l.trim().parse().ok());
    value.ok_or_else(|| format!("no figure {name}").into())
}

/// One query, sent over a connection of its own.
struct QueryCase {
    front_end: &'static str,
    text: String,
    request: Vec<u8>,
    /// Text that the answer must contain.
    expected: String,
}

fn sql(text: &str, holds: &str) -> QueryCase {
    QueryCase {
        front_end: "SQL",
        text: text.to_owned(),
        request: post("/api/v1/sql", text.as_bytes()),
        expected: holds.to_owned(),
    }
}

fn influxql(text: &str, holds: &str) -> QueryCase {
    let mut escaped = String::new();
    for byte in text.bytes() {
        // Writing to a string cannot fail.
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => write!(escaped, "{}", char::from(byte)),
            other => write!(escaped, "%{other:02X}"),
        };
    }
    QueryCase {
        front_end: "InfluxQL",
        text: text.to_owned(),
        request: get(&format!("/query?db=d&q={escaped}")),
        expected: holds.to_owned(),
    }
}

fn route(path: &str, holds: &str) -> QueryCase {
    QueryCase {
        front_end: "route",
        text: path.to_owned(),
        request: get(path),
        expected: holds.to_owned(),
    }
}

/// First queries after a start, with their targets in milliseconds.
fn first_questions(streams: usize, passes: usize) -> Vec<(QueryCase, f64)> {
    let rows = streams * passes;
    let middle = format!("dev{:07}", streams / 2);
    vec![
        (
            sql(
                &format!("SELECT * FROM meter WHERE id = '{middle}'"),
                &middle,
            ),
            50.0,
        ),
        (
            sql("SELECT count(*) FROM meter", &rows.to_string()),
            1_000.0,
        ),
        (
            sql(
                "SELECT * FROM meter ORDER BY time DESC LIMIT 5",
                &format!("dev{:07}", streams - 1),
            ),
            500.0,
        ),
    ]
}

fn more_questions(streams: usize) -> Vec<QueryCase> {
    let middle = format!("dev{:07}", streams / 3);
    let by_id = format!("WHERE id = '{middle}'");
    vec![
        sql("SELECT count(kwh) FROM meter", ""),
        sql(
            "SELECT site, count(*) FROM meter GROUP BY site ORDER BY site LIMIT 3",
            "s000",
        ),
        sql("SELECT avg(kwh), max(volts) FROM meter", ""),
        sql("SELECT max(time) FROM meter", ""),
        sql(&format!("SELECT last(kwh, time) FROM meter {by_id}"), ""),
        sql("SELECT * FROM meter LIMIT 10", "dev"),
        sql("SELECT count(*) FROM meter WHERE site = 's007'", ""),
        influxql(&format!("SELECT last(kwh) FROM meter {by_id}"), "last"),
        influxql(&format!("SELECT * FROM meter {by_id}"), &middle),
        influxql("SELECT count(kwh) FROM meter", "count"),
        influxql(
            "SELECT mean(kwh) FROM meter WHERE site = 's007' GROUP BY region",
            "mean",
        ),
        influxql("SELECT max(volts) FROM meter WHERE region = 'r03'", "max"),
        influxql("SHOW MEASUREMENTS", "meter"),
        influxql("SHOW TAG KEYS", "region"),
        influxql("SHOW TAG VALUES WITH KEY = region", "r07"),
        influxql("SHOW SERIES LIMIT 5", "meter"),
        influxql("SHOW FIELD KEYS", "volts"),
        route("/api/v1/streams?limit=50", "dev0000000"),
        route(
            &format!("/api/v1/streams?limit=50&search={middle}"),
            &middle,
        ),
        route("/api/v1/streams?limit=50&search=site=s007", "s007"),
        route("/api/v1/count?table=meter", "rows"),
        route(
            &format!("/api/v1/count?table=meter&search={middle}"),
            "rows",
        ),
        route(&format!("/api/v1/last?search={middle}"), "kwh"),
        route(
            &format!("/api/v1/scan?stream=meter,id={middle},region=r13,site=s333"),
            "",
        ),
        route("/api/v1/storage", "meter"),
        route("/health", ""),
        route("/metrics", "headwater"),
    ]
}

fn run_question(
    server: &Server,
    question: &QueryCase,
    has_sql: bool,
    asked: &mut Vec<Timing>,
) -> Result<Option<f64>, Failure> {
    if question.front_end == "SQL" && !has_sql {
        return Ok(None);
    }
    let mut connection = Connection::open(server.addr)?;
    let begin = Instant::now();
    let answer = connection.send(&question.request)?;
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    let body = String::from_utf8_lossy(connection.body(&answer)).into_owned();
    if answer.status != 200 || !body.contains(&question.expected) {
        let shown: String = body.chars().take(300).collect();
        println!("{}: {}: {shown}", question.text, answer.status);
    }
    asked.push(Timing {
        door: question.front_end,
        question: question.text.clone(),
        ms,
        resident_mib: mib(server.used()?.resident_bytes),
    });
    Ok(Some(ms))
}

fn start(dir: &Path, binary: Option<&Path>) -> Result<Server, Failure> {
    match binary {
        None => Server::start(dir),
        Some(binary) => Server::start_command(binary, dir),
    }
}

pub(super) fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

fn mib(bytes: u64) -> f64 {
    u32::try_from(bytes >> 10).map_or(f64::INFINITY, f64::from) / 1024.0
}

fn print_loading(results: &Results) {
    println!(
        "{} streams, {} passes of two fields, {LINES} lines a request, one writer: {}",
        results.streams,
        results.passes,
        results
            .lines_per_second
            .iter()
            .map(|r| format!("{r:.0}"))
            .collect::<Vec<_>>()
            .join(", ")
            + " lines/s"
    );
    println!(
        "longest without a stored batch {:.2} s, {} answers 503, {:.2} CPU s a million lines, \
         {:.0} MiB at most, {:.2} bytes written a byte accepted, {:.0} bytes a line on disk\n",
        results.longest_stall_seconds,
        results.refused_requests,
        results.cpu_seconds_per_million_lines,
        results.loading_mib,
        results.bytes_written_per_byte,
        results.bytes_per_line,
    );
}

fn loading_targets(results: &Results, targets: &mut Targets) {
    let slowest = results
        .lines_per_second
        .iter()
        .copied()
        .fold(f64::MAX, f64::min);
    targets.add(
        "lines a second, the slowest pass",
        Bound::AtLeast(80_000.0),
        "",
        slowest,
    );
    let stall = results.longest_stall_seconds;
    targets.add(
        "longest without a stored batch",
        Bound::AtMost(3.0),
        " s",
        stall,
    );
    targets.add(
        "resident while loading",
        Bound::AtMost(200.0),
        " MiB",
        results.loading_mib,
    );
    targets.add(
        "bytes written a byte accepted",
        Bound::AtMost(4.0),
        " B",
        results.bytes_written_per_byte,
    );
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let (streams, passes) = (arguments.streams, arguments.passes.max(1));
    let binary = arguments.binary.as_deref();
    let dir = bench.path("streams");
    let server = start(&dir, binary)?;
    let loaded = load(server.addr, streams, passes)?;
    let used = server.used()?;
    let written = metric(server.addr, "headwater_write_amplification_bytes_ratio")?;
    server.stop()?;
    let lines = number(streams * passes);
    let mut results = Results {
        streams,
        passes,
        lines_per_second: loaded.lines_per_second,
        longest_stall_seconds: loaded.longest_stall.as_secs_f64(),
        refused_requests: loaded.refused,
        cpu_seconds_per_million_lines: used.cpu_seconds / lines * 1e6,
        loading_mib: mib(used.peak_bytes),
        bytes_written_per_byte: written,
        bytes_per_line: mib(folder_bytes(&dir)?) * MIB / lines,
        asked: Vec::new(),
        resident_mib: 0.0,
    };
    print_loading(&results);
    loading_targets(&results, targets);
    let server = start(&dir, binary)?;
    for (question, wanted) in first_questions(streams, passes) {
        if let Some(ms) = run_question(&server, &question, binary.is_some(), &mut results.asked)? {
            targets.add(question.text, Bound::AtMost(wanted), " ms", ms);
        }
    }
    for question in more_questions(streams) {
        run_question(&server, &question, binary.is_some(), &mut results.asked)?;
    }
    results.resident_mib = mib(server.used()?.resident_bytes);
    server.stop()?;
    let resident = results.resident_mib;
    targets.add(
        "resident after ten questions a door",
        Bound::AtMost(300.0),
        " MiB",
        resident,
    );
    print(&results);
    Ok(results)
}

fn folder_bytes(dir: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() {
            folder_bytes(&entry.path())?
        } else {
            about.len()
        };
    }
    Ok(bytes)
}

fn print(results: &Results) {
    let rows: Vec<Vec<String>> = results
        .asked
        .iter()
        .map(|a| {
            vec![
                a.door.to_owned(),
                a.question.clone(),
                format!("{:.1}", a.ms),
                format!("{:.0}", a.resident_mib),
            ]
        })
        .collect();
    table::print(&["door", "question", "ms", "resident MiB"], &rows);
}
