//! Messages of an MQTT broker into the server: publishers, mosquitto and server on one machine.
//!
//! Each client publishes bare values with QoS 1 to a topic of its own, with a bounded number that
//! the broker has not acknowledged. The time runs from the first message until the server has
//! stored all messages durably and has acknowledged them to the broker. Each round gets a new
//! database and a new broker without persistence. Messages that the server omits are counted.

mod broker;
mod publisher;

use crate::experiments::server::{ResourceUsage, Server, used_of};
use crate::harness::{Bench, Bound, Common, Failure, Targets};
use crate::machine::SyncProbe;
use crate::table;
use broker::Broker;
use headwater::{Database, Options, ScanSpec, StreamName};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time of a round.
const PATIENCE: Duration = Duration::from_secs(300);

const MESSAGES_DONE: &str = "headwater_mqtt_messages_done_total ";
const RECEIVED: &str = "headwater_mqtt_messages_received_total ";

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Messages in all.
    #[arg(long, default_value_t = 200_000)]
    messages: usize,
    /// Clients that publish.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Messages a client sends ahead of their acknowledgement by the broker.
    #[arg(long, default_value_t = 256)]
    window: usize,
}

/// Medians over rounds.
#[derive(Debug, Serialize)]
struct Results {
    messages: usize,
    clients: usize,
    /// Rate from the first message until all are stored and acknowledged.
    messages_per_second: f64,
    /// Rate until the broker has acknowledged all messages to the clients.
    published_per_second: f64,
    server_cpu_us_per_message: f64,
    broker_cpu_us_per_message: f64,
    server_peak_bytes: u64,
    sync_median_us: f64,
    spread_percent: (f64, f64),
}

struct Round {
    seconds: f64,
    published_seconds: f64,
    server: ResourceUsage,
    broker_cpu_seconds: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("mqtt", &arguments.common)?;
    let mut probe = SyncProbe::new(bench.path("sync-probe"))?;
    let (warm_up, rounds) = bench.rounds();
    let mut all = Vec::new();
    for round in 0..warm_up + rounds {
        probe.sample(64)?;
        let one = measure(&bench, arguments)?;
        probe.sample(64)?;
        if round >= warm_up {
            all.push(one);
        }
    }
    let messages = (arguments.messages / arguments.clients.max(1)) * arguments.clients.max(1);
    let count = messages as f64;
    let of = |figure: &dyn Fn(&Round) -> f64| table::median(all.iter().map(figure).collect());
    let (rate, least, most) = of(&|r| count / r.seconds);
    let results = Results {
        messages,
        clients: arguments.clients.max(1),
        messages_per_second: rate,
        published_per_second: of(&|r| count / r.published_seconds).0,
        server_cpu_us_per_message: of(&|r| r.server.cpu_seconds * 1e6 / count).0,
        broker_cpu_us_per_message: of(&|r| r.broker_cpu_seconds * 1e6 / count).0,
        server_peak_bytes: all.iter().map(|r| r.server.peak_bytes).max().unwrap_or(0),
        sync_median_us: probe.median_us(),
        spread_percent: (least, most),
    };
    print(&results);
    let mut targets = Targets::default();
    targets.add(
        "messages of QoS 1, stored and acknowledged",
        Bound::AtLeast(10_000.0),
        "/s",
        results.messages_per_second,
    );
    bench.finish(&results, &targets)
}

fn measure(bench: &Bench, arguments: &Arguments) -> Result<Round, Failure> {
    let dir = bench.path("mqtt");
    std::fs::create_dir_all(&dir)?;
    let clients = arguments.clients.max(1);
    let each = arguments.messages / clients;
    let broker = Broker::start(&dir)?;
    let db = dir.join("db");
    let server = Server::start_with(&db, &["--mqtt-port", &broker.port.to_string()])?;
    // Before the subscription exists, the broker does not retain messages: the number of first
    // messages that arrive is unknown.
    let start = Instant::now();
    while metric(server.addr, MESSAGES_DONE)? < 1 {
        publisher::publish(broker.port, "plant/lab/first/temp", 1, 1)?;
        patient(start, "the first message")?;
    }
    // Once the last message is stored, no more messages are in flight.
    publisher::publish(broker.port, "plant/lab/last/temp", 1, 1)?;
    let last = "/api/v1/last?stream=machines,device=last,site=lab";
    while !get(server.addr, last)?.contains("\"temp\"")
        || metric(server.addr, MESSAGES_DONE)? < metric(server.addr, RECEIVED)?
    {
        patient(start, "the last message before")?;
    }
    let first = metric(server.addr, MESSAGES_DONE)?;
    let wanted = (each * clients) as u64;
    let (server_before, broker_before) = (server.used()?, used_of(broker.id())?);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                let (port, window) = (broker.port, arguments.window.max(1));
                scope.spawn(move || {
                    let topic = format!("plant/lab/d{client}/temp");
                    publisher::publish(port, &topic, each, window).map_err(|e| e.to_string())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join().map_err(|_| "a client panicked")?;
            Ok::<(), Failure>(ended?)
        })
    })?;
    let published_seconds = start.elapsed().as_secs_f64();
    settled(server.addr, first + wanted)?;
    let seconds = start.elapsed().as_secs_f64();
    let used = server.used()?;
    let broker_cpu_seconds = used_of(broker.id())?.cpu_seconds - broker_before.cpu_seconds;
    server.stop()?;
    drop(broker);
    check(&db, clients, each)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(Round {
        seconds,
        published_seconds,
        server: ResourceUsage {
            cpu_seconds: used.cpu_seconds - server_before.cpu_seconds,
            ..used
        },
        broker_cpu_seconds,
    })
}

/// Waits until `messages` messages are stored.
fn settled(addr: SocketAddr, messages: u64) -> Result<(), Failure> {
    let start = Instant::now();
    while metric(addr, MESSAGES_DONE)? < messages {
        patient(start, "the messages")?;
        // Frequent enough for the precision of a round of some seconds, and rare enough to be free.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn patient(start: Instant, what: &str) -> Result<(), Failure> {
    if start.elapsed() > PATIENCE {
        return Err(format!("{what} did not come within {PATIENCE:?}").into());
    }
    Ok(())
}

/// The whole answer to a query.
fn get(addr: SocketAddr, path: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(addr)?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// A value of `/metrics`.
fn metric(addr: SocketAddr, name: &str) -> Result<u64, Failure> {
    let text = get(addr, "/metrics")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.trim().parse().ok());
    number.ok_or_else(|| format!("/metrics has no number `{name}`").into())
}

/// Verifies that every message accepted by the broker is stored.
fn check(db: &Path, clients: usize, each: usize) -> Result<(), Failure> {
    let db = Database::open(Options::new(db))?;
    let snapshot = db.snapshot()?;
    for client in 0..clients {
        let tags = [("site", "lab".to_owned()), ("device", format!("d{client}"))];
        let stream = StreamName::new("machines", tags);
        let mut rows = 0;
        for chunk in snapshot.scan(&stream, &ScanSpec::default())? {
            rows += chunk?.times.len();
        }
        if rows != each {
            return Err(format!("{stream}: {rows} rows, sent were {each}").into());
        }
    }
    drop(snapshot);
    db.close()?;
    Ok(())
}

fn print(results: &Results) {
    println!("Bare values with QoS 1 over mosquitto, synced; everything on the same machine:\n");
    let row = vec![
        format!("{} messages, {} clients", results.messages, results.clients),
        format!("{:.0}", results.messages_per_second),
        format!("{:.0}", results.published_per_second),
        format!(
            "{:+.0} … {:+.0} %",
            results.spread_percent.0, results.spread_percent.1
        ),
        format!("{:.1}", results.server_cpu_us_per_message),
        format!("{:.1}", results.broker_cpu_us_per_message),
        format!("{:.0}", results.server_peak_bytes as f64 / (1 << 20) as f64),
        format!("{:.0}", results.sync_median_us),
    ];
    let heads = [
        "case",
        "stored/s",
        "published/s",
        "spread",
        "server CPU µs a message",
        "broker CPU µs a message",
        "peak MiB",
        "sync µs",
    ];
    table::print(&heads, &[row]);
}
