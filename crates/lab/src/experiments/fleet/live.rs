//! Many edges at one cloud node, each with some streams that get a row a second, and newest values
//! sent each second: how old the newest value of each stream is at the cloud, and whether an edge
//! is starved.
//!
//! The age is that of the newest value in an answer of `/api/v1/last` when the query was sent: the
//! lag, and the second in which no other value was due. The answer's own time is told apart. Limits
//! of the bench: cloud and edges share the processors of this machine; each one's time is told.

use super::Arguments;
use super::children::{Edges, Report, TABLE, stream, wall_ns};
use crate::experiments::nodes::requests::{json, sync, until};
use crate::experiments::server::{Connection, Server, get};
use crate::harness::{Bench, Bound, Failure, Targets, real, size, unsigned, whole};
use crate::table;
use serde::Serialize;
use serde_json::{Value, json as object};
use std::time::{Duration, Instant};

/// Interval of queries for the newest values.
const LOOK: Duration = Duration::from_secs(5);
/// Seconds after which edges store what they have in memory.
const FLUSH_SECONDS: u64 = 60;
/// Channels of one query for counts.
const CHANNELS: usize = 64;

#[derive(Serialize)]
pub(super) struct Results {
    edges: usize,
    streams: usize,
    seconds: u64,
    /// From the start of writing until each stream was at the cloud.
    first_seconds: f64,
    /// Answers 503, since a part of them was elsewhere.
    elsewhere: u64,
    /// Ages that were seen.
    ages: usize,
    p50_seconds: f64,
    p99_seconds: f64,
    max_seconds: f64,
    /// Median of the times of an answer with all newest values.
    answer_seconds: f64,
    /// Rows at the cloud of one stream of each edge when writing ended: fewest and most.
    rows_min: u64,
    rows_max: u64,
    /// Seconds from then until the cloud had all rows.
    settled_seconds: f64,
    cloud_resident_bytes: u64,
    cloud_peak_bytes: u64,
    cloud_cpu: f64,
    edges_cpu: f64,
    report: Report,
}

/// Ages of the newest values of all streams of a table, in seconds; empty while a part of the
/// answer is elsewhere.
pub(super) fn ages(server: &Server, table: &str) -> Result<Vec<f64>, Failure> {
    let now = wall_ns();
    let answer = match json(server, &format!("/api/v1/last?table={table}")) {
        Err(error) if error.to_string().contains("E_ELSEWHERE") => return Ok(Vec::new()),
        answer => answer?,
    };
    let streams = answer.pointer("/streams").and_then(Value::as_array);
    let age = |stream: &Value| {
        let fields = stream.pointer("/fields")?.as_object()?;
        let times = fields.values().filter_map(|field| {
            let text = field.pointer("/time")?.as_str()?;
            text.parse::<i64>().ok()
        });
        // Values that arrived while the answer was made have no age.
        times.max().map(|newest| real((now - newest).max(0)) / 1e9)
    };
    Ok(streams.into_iter().flatten().filter_map(age).collect())
}

/// The value at a share of all values.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = size(whole(real(sorted.len()) * share));
    sorted.get(at).or(sorted.last()).copied().unwrap_or(0.0)
}

/// Rows of one stream of each edge at the cloud; `None` while a part of an answer is elsewhere.
fn counts(cloud: &Server, edges: usize) -> Result<Option<Vec<u64>>, Failure> {
    let mut connection = Connection::open(cloud.addr)?;
    let all: Vec<usize> = (0..edges).collect();
    let mut counts = Vec::new();
    for some in all.chunks(CHANNELS) {
        let channels = some.iter().map(|edge| {
            let channel = format!("{}.v", stream(*edge, 0));
            format!("channel={}", channel.replace('=', "%3D"))
        });
        let channels: Vec<String> = channels.collect();
        let path = format!("/api/v1/aggregate?functions=count&{}", channels.join("&"));
        let answer = connection.send(&get(&path))?;
        if answer.status == 503 {
            return Ok(None);
        }
        if answer.status != 200 {
            let text = String::from_utf8_lossy(connection.body(&answer));
            return Err(format!("{path}: {} {text}", answer.status).into());
        }
        let answer: Value = serde_json::from_slice(connection.body(&answer))?;
        let found = answer.pointer("/channels").and_then(Value::as_array);
        let count = |channel: &Value| channel.pointer("/count/0").and_then(Value::as_u64);
        counts.extend(found.into_iter().flatten().map(|c| count(c).unwrap_or(0)));
    }
    Ok(Some(counts))
}

/// Invitations of so many edges.
pub(super) fn invite(cloud: &Server, edges: usize, url: &str) -> Result<Vec<String>, Failure> {
    let one = |number: usize| {
        let asked = object!({"op": "add_edge", "edge": format!("edge-{number}"), "url": url});
        let answer = sync(cloud, &asked)?;
        let text = answer.get("invitation").and_then(Value::as_str);
        Ok(text.ok_or("no invitation")?.to_owned())
    };
    (0..edges).map(one).collect()
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let cloud = Server::start_with(&bench.path("cloud"), &["--role", "cloud"])?;
    let url = format!("http://{}", cloud.addr);
    let invitations = invite(&cloud, arguments.edges, &url)?;
    let name = format!("headwater-lab-edges-{}", std::process::id());
    let dir = arguments.memory.join(name);
    let work = (arguments.streams, arguments.seconds, FLUSH_SECONDS);
    let measured =
        Edges::start(&dir, &invitations, work).and_then(|edges| watch(&cloud, edges, arguments));
    std::fs::remove_dir_all(&dir)?;
    let results = measured?;
    cloud.stop()?;
    print(&results);
    judge(&results, targets);
    Ok(results)
}

fn watch(cloud: &Server, mut edges: Edges, arguments: &Arguments) -> Result<Results, Failure> {
    let begun = Instant::now();
    let before = cloud.used()?;
    let wanted = arguments.edges * arguments.streams;
    until("each stream is at the cloud", || {
        let is_over = begun.elapsed() > Duration::from_secs(arguments.seconds);
        match ages(cloud, TABLE)?.len() {
            found if found == wanted => Ok(true),
            found if is_over => Err(format!("{found} of {wanted} streams are at the cloud").into()),
            _ => {
                std::thread::sleep(Duration::from_secs(1));
                Ok(false)
            }
        }
    })?;
    let first_seconds = begun.elapsed().as_secs_f64();
    let (mut seen, mut answers, mut elsewhere) = (Vec::new(), Vec::new(), 0);
    let look = LOOK.min(Duration::from_secs(arguments.seconds / 6));
    while begun.elapsed() + look < Duration::from_secs(arguments.seconds) {
        let asked = Instant::now();
        let found = ages(cloud, TABLE)?;
        answers.push(asked.elapsed().as_secs_f64());
        elsewhere += u64::from(found.is_empty());
        if !found.is_empty() && found.len() != wanted {
            return Err(format!("{} of {wanted} streams are at the cloud", found.len()).into());
        }
        seen.extend(found);
        std::thread::sleep(look);
    }
    let report = edges.report()?;
    let ended = Instant::now();
    let seconds = begun.elapsed().as_secs_f64();
    let used = cloud.used()?;
    let mut at_end = Vec::new();
    until("the cloud has all rows", || {
        let Some(counts) = counts(cloud, arguments.edges)? else {
            return Ok(false);
        };
        if at_end.is_empty() {
            at_end.clone_from(&counts);
        }
        Ok(counts.len() == arguments.edges && counts.iter().all(|rows| *rows == report.rows_max))
    })?;
    let settled_seconds = ended.elapsed().as_secs_f64();
    edges.end()?;
    seen.sort_by(f64::total_cmp);
    Ok(Results {
        edges: arguments.edges,
        streams: arguments.streams,
        seconds: arguments.seconds,
        first_seconds,
        elsewhere,
        ages: seen.len(),
        p50_seconds: quantile(&seen, 0.5),
        p99_seconds: quantile(&seen, 0.99),
        max_seconds: quantile(&seen, 1.0),
        answer_seconds: table::median(answers).0,
        rows_min: at_end.iter().copied().min().unwrap_or(0),
        rows_max: at_end.iter().copied().max().unwrap_or(0),
        settled_seconds,
        cloud_resident_bytes: used.resident_bytes,
        cloud_peak_bytes: used.peak_bytes,
        cloud_cpu: (used.cpu_seconds - before.cpu_seconds) / seconds,
        edges_cpu: report.cpu_seconds / seconds,
        report,
    })
}

pub(super) fn mib(bytes: u64) -> f64 {
    real(bytes) / f64::from(1 << 20)
}

fn print(results: &Results) {
    let values = unsigned(results.edges * results.streams);
    let per_value = real(results.report.sent) / real(values * results.report.rows_max).max(1.0);
    table::print(
        &["live edges at one cloud", "measured"],
        &[
            vec![
                "edges × streams".to_owned(),
                format!("{} × {}", results.edges, results.streams),
            ],
            vec![
                "until each stream was at the cloud".to_owned(),
                format!("{:.1} s", results.first_seconds),
            ],
            vec![
                "age of the newest value, p50 / p99 / max".to_owned(),
                format!(
                    "{:.2} / {:.2} / {:.2} s of {} ages",
                    results.p50_seconds, results.p99_seconds, results.max_seconds, results.ages
                ),
            ],
            vec![
                "answer with all newest values / answers 503".to_owned(),
                format!(
                    "{:.0} ms / {}",
                    results.answer_seconds * 1e3,
                    results.elsewhere
                ),
            ],
            vec![
                "rows of an edge's stream at the end, fewest / most / written".to_owned(),
                format!(
                    "{} / {} / {}",
                    results.rows_min, results.rows_max, results.report.rows_max
                ),
            ],
            vec![
                "until all rows are there".to_owned(),
                format!("{:.1} s", results.settled_seconds),
            ],
            vec![
                "cloud, resident / peak".to_owned(),
                format!(
                    "{:.0} / {:.0} MiB",
                    mib(results.cloud_resident_bytes),
                    mib(results.cloud_peak_bytes)
                ),
            ],
            vec![
                "processors used by the cloud / by the edges".to_owned(),
                format!("{:.2} / {:.2}", results.cloud_cpu, results.edges_cpu),
            ],
            vec![
                "edges' rows late at most".to_owned(),
                format!("{:.2} s", results.report.late_seconds),
            ],
            vec![
                "sent a value, sockets".to_owned(),
                format!("{per_value:.1} B"),
            ],
        ],
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    targets.add(
        format!("{} live edges: age of the newest value, p99", results.edges),
        Bound::AtMost(5.0),
        " s",
        results.p99_seconds,
    );
    targets.add(
        "… resident memory of the cloud at most",
        Bound::AtMost(1024.0),
        " MiB",
        mib(results.cloud_peak_bytes),
    );
    targets.add(
        "… rows of the edge with the fewest, of those of the one with the most",
        Bound::AtLeast(0.9),
        " ×",
        real(results.rows_min) / real(results.rows_max).max(1.0),
    );
}
