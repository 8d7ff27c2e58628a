//! A dispatcher before one node: rates of redirected and forwarded queries, compared with the node
//! itself; open connections; a restart with many streams.

use super::Arguments;
use super::requests::{json, number, until};
use crate::experiments::server::{Connection, ResourceUsage, Server, by_threads, get, post};
use crate::harness::{Bench, Bound, Failure, Targets, real};
use crate::table;
use serde::Serialize;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 16;
const SECONDS: i64 = 200_000;
const BEGIN: i64 = 1_700_000_000;
/// Streams of a request that loads them.
const STREAMS: usize = 5_000;

/// Measurements of one route of a query, over all rounds.
#[derive(Serialize)]
struct RouteStats {
    what: &'static str,
    per_second: Vec<f64>,
    /// Processor time of the queried process, and of the node after it, for a query.
    asked_cpu_us: Vec<f64>,
    node_cpu_us: Vec<f64>,
}

#[derive(Serialize)]
pub(super) struct Results {
    ways: Vec<RouteStats>,
    connections: usize,
    resident_with_connections: u64,
    streams: usize,
    restart_seconds: f64,
    resident_with_streams: u64,
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let node = Server::start(&bench.path("node"))?;
    by_threads(node.addr, 1, &channel())?;
    let desk = desk(&bench.path("desk"), &node)?;
    let ways = ask_all(bench, arguments, &node, &desk)?;
    print(&ways);
    let (connections, with_connections) = many_connections(&desk, arguments.connections)?;
    desk.stop()?;
    node.stop()?;
    let (restart_seconds, used) = restart(bench, arguments.streams)?;
    let results = Results {
        ways,
        connections,
        resident_with_connections: with_connections.resident_bytes,
        streams: arguments.streams,
        restart_seconds,
        resident_with_streams: used.resident_bytes,
    };
    println!(
        "\n{connections} connections: {:.0} MiB resident; {} streams: {:.0} MiB, right {:.2} s after the start",
        real(results.resident_with_connections) / f64::from(1 << 20),
        results.streams,
        real(results.resident_with_streams) / f64::from(1 << 20),
        results.restart_seconds,
    );
    judge(&results, targets);
    Ok(results)
}

fn channel() -> Vec<Vec<u8>> {
    let line = |n: i64| format!("lab,id=a v={} {}\n", n % 977, (BEGIN + n) * 1_000_000_000);
    let seconds: Vec<i64> = (0..SECONDS).collect();
    let lines = seconds.chunks(10_000);
    lines
        .map(|part| {
            let text: String = part.iter().copied().map(line).collect();
            post("/write", text.as_bytes())
        })
        .collect()
}

/// A dispatcher before a node, after it has received the node's inventory.
pub(crate) fn desk(dir: &Path, node: &Server) -> Result<Server, Failure> {
    let url = format!("http://{}", node.addr);
    let desk = Server::start_with(dir, &["--role", "dispatcher", "--node", &url])?;
    until("the dispatcher is ready", || {
        let ready = json(&desk, "/ready");
        Ok(ready.is_ok_and(|ready| number(&ready, "/nodes") == Some(1)))
    })?;
    Ok(desk)
}

/// A query, the server it is sent to, and the expected answer.
pub(crate) struct QueryCase<'a> {
    pub(crate) name: &'static str,
    pub(crate) server: &'a Server,
    pub(crate) request: Vec<u8>,
    pub(crate) status: u16,
}

fn tile(more: &str) -> Vec<u8> {
    let offset = (BEGIN + SECONDS / 2) >> 13;
    let path = format!("/tiles/lab,id%3Da.v/4.{offset}.json");
    let line = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}\r\n");
    line.into_bytes()
}

fn ask_all(
    bench: &Bench,
    arguments: &Arguments,
    node: &Server,
    desk: &Server,
) -> Result<Vec<RouteStats>, Failure> {
    let questions = [
        QueryCase {
            name: "the node itself (central)",
            server: node,
            request: tile(""),
            status: 200,
        },
        QueryCase {
            name: "passed on by the dispatcher (proxy)",
            server: desk,
            request: tile("x-headwater-relay: true\r\n"),
            status: 200,
        },
        QueryCase {
            name: "sent on by the dispatcher (redirect)",
            server: desk,
            request: tile(""),
            status: 307,
        },
    ];
    let mut ways: Vec<RouteStats> = questions
        .iter()
        .map(|question| RouteStats {
            what: question.name,
            per_second: Vec::new(),
            asked_cpu_us: Vec::new(),
            node_cpu_us: Vec::new(),
        })
        .collect();
    let (warm_up, rounds) = bench.rounds();
    for round in 0..warm_up + rounds {
        for (question, way) in questions.iter().zip(&mut ways) {
            let asked_before = question.server.used()?.cpu_seconds;
            let node_before = node.used()?.cpu_seconds;
            let (asked, seconds) = run_load(question, arguments.seconds)?;
            if round >= warm_up {
                let each = 1e6 / real(asked);
                let used = question.server.used()?.cpu_seconds - asked_before;
                way.per_second.push(real(asked) / seconds);
                way.asked_cpu_us.push(used * each);
                let behind = node.used()?.cpu_seconds - node_before;
                way.node_cpu_us.push(behind * each);
            }
        }
    }
    Ok(ways)
}

/// Queries over several connections for some time, and returns the number and the latencies.
pub(crate) fn run_load(question: &QueryCase<'_>, seconds: f64) -> Result<(u64, f64), Failure> {
    let is_over = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    let one = || -> Result<(), String> {
        let connection = Connection::open(question.server.addr);
        let mut connection = connection.map_err(|e| e.to_string())?;
        while !is_over.load(Ordering::Relaxed) {
            let answer = connection.send(&question.request);
            let answer = answer.map_err(|e| e.to_string())?;
            if answer.status != question.status {
                let text = String::from_utf8_lossy(connection.body(&answer));
                return Err(format!("{}: {} {text}", question.name, answer.status));
            }
            asked.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join().map_err(|_| "a client panicked")?;
            Ok::<(), Failure>(ended?)
        })
    })?;
    Ok((asked.into_inner(), begun.elapsed().as_secs_f64()))
}

/// Resources of a dispatcher with `wanted` open connections, each of which has sent one query.
fn many_connections(desk: &Server, wanted: usize) -> Result<(usize, ResourceUsage), Failure> {
    use std::io::{Read, Write};
    let request = tile("");
    let mut open: Vec<TcpStream> = Vec::with_capacity(wanted);
    for _ in 0..wanted {
        let mut stream = TcpStream::connect(desk.addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(&request)?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        if !answer.ends_with(b"307") {
            return Err(String::from_utf8_lossy(&answer).into_owned().into());
        }
        open.push(stream);
    }
    let used = desk.used()?;
    Ok((open.len(), used))
}

/// Time from the start of a dispatcher until a query about one of `streams` streams is sent to the
/// node that answers it.
fn restart(bench: &Bench, streams: usize) -> Result<(f64, ResourceUsage), Failure> {
    let node = Server::start(&bench.path("many"))?;
    let numbers: Vec<usize> = (0..streams).collect();
    let requests: Vec<Vec<u8>> = numbers
        .chunks(STREAMS)
        .map(|part| {
            let line = |n: &usize| format!("many,id={n} v=1 {}\n", BEGIN * 1_000_000_000);
            let text: String = part.iter().map(line).collect();
            post("/write", text.as_bytes())
        })
        .collect();
    by_threads(node.addr, 1, &requests)?;
    let dir = bench.path("desk");
    desk(&dir, &node)?.stop()?;
    let begun = Instant::now();
    let url = format!("http://{}", node.addr);
    let desk = Server::start_with(&dir, &["--role", "dispatcher", "--node", &url])?;
    let last = streams.saturating_sub(1);
    let question = get(&format!("/api/v1/last?stream=many,id%3D{last}"));
    until("the last stream is known", || {
        is_known(desk.addr, &question)
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let used = desk.used()?;
    desk.stop()?;
    node.stop()?;
    Ok((seconds, used))
}

/// Whether a dispatcher knows the location of a stream, and does not guess.
fn is_known(addr: SocketAddr, question: &[u8]) -> Result<bool, Failure> {
    let mut connection = Connection::open(addr)?;
    let answer = connection.send(question)?;
    let head = connection.head(&answer);
    Ok(answer.status == 307 && head.contains("x-headwater-place: base"))
}

fn median(values: &[f64]) -> f64 {
    table::median(values.to_vec()).0
}

fn print(ways: &[RouteStats]) {
    let line = |way: &RouteStats| {
        let (per_second, low, high) = table::median(way.per_second.clone());
        let cpu = median(&way.asked_cpu_us);
        vec![
            way.what.to_owned(),
            format!("{per_second:.0}"),
            format!("{low:+.0} … {high:+.0} %"),
            format!("{cpu:.1} µs"),
            format!("{:.1} µs", median(&way.node_cpu_us)),
            format!("{:.0}", 2e6 / cpu),
        ]
    };
    let lines: Vec<Vec<String>> = ways.iter().map(line).collect();
    table::print(
        &[
            "a tile",
            "a second, clients beside it",
            "spread",
            "CPU of who is asked",
            "of the node",
            "a second on two processors of its own",
        ],
        &lines,
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    let [central, proxy, redirect] = results.ways.as_slice() else {
        return;
    };
    let alone = |way: &RouteStats| 2e6 / median(&way.asked_cpu_us);
    targets.add(
        "redirects a second on two processors, by CPU counted",
        Bound::AtLeast(100_000.0),
        "",
        alone(redirect),
    );
    targets.add(
        "redirect by proxy, the same",
        Bound::AtLeast(8.0),
        " ×",
        alone(redirect) / alone(proxy),
    );
    targets.add(
        "the node itself, a second (the paper's central: 80)",
        Bound::AtLeast(10_000.0),
        "",
        alone(central),
    );
    let mib = |bytes: u64| real(bytes) / f64::from(1 << 20);
    targets.add(
        format!("resident with {} streams", results.streams),
        Bound::AtMost(300.0),
        " MiB",
        mib(results.resident_with_streams),
    );
    targets.add(
        "restart until it answers right",
        Bound::AtMost(2.0),
        " s",
        results.restart_seconds,
    );
}
