//! An idle server: its response time, and its resources without requests.

use super::child::Server;
use crate::harness::{Bench, Bound, Failure, Targets};
use crate::table;
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Duration without requests.
const ALONE: Duration = Duration::from_millis(500);

/// Medians over rounds, each over a new database.
#[derive(Debug, Default, Serialize)]
pub(super) struct Results {
    rounds: usize,
    /// Time from starting the process to the answer of `/ready`.
    ready_milliseconds: f64,
    ready_milliseconds_max: f64,
    peak_bytes: u64,
    /// CPU use without requests.
    cpu_percent: f64,
}

pub(super) fn measure(bench: &Bench, targets: &mut Targets) -> Result<Results, Failure> {
    let (warm_up, rounds) = bench.rounds();
    let (mut ready, mut peaks, mut loads) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..warm_up + rounds {
        let dir = bench.path("idle");
        let begun = Instant::now();
        let server = Server::start(&dir)?;
        ask_ready(server.addr)?;
        let took = begun.elapsed();
        let before = server.used()?;
        std::thread::sleep(ALONE);
        let after = server.used()?;
        server.stop()?;
        std::fs::remove_dir_all(&dir)?;
        if round >= warm_up {
            ready.push(took.as_secs_f64() * 1e3);
            peaks.push(after.peak_bytes as f64);
            let busy = after.cpu_seconds - before.cpu_seconds;
            loads.push(100.0 * busy / ALONE.as_secs_f64());
        }
    }
    let slowest = ready.iter().copied().fold(0.0, f64::max);
    let (ready, ..) = table::median(ready);
    let (peak, ..) = table::median(peaks);
    let (load, ..) = table::median(loads);
    let results = Results {
        rounds,
        ready_milliseconds: ready,
        ready_milliseconds_max: slowest,
        peak_bytes: peak as u64,
        cpu_percent: load,
    };
    let mib = peak / f64::from(1 << 20);
    table::print(
        &["idle, empty database", "median", "most"],
        &[
            vec![
                "start to ready, ms".to_owned(),
                format!("{ready:.0}"),
                format!("{slowest:.0}"),
            ],
            vec![
                "peak memory, MiB".to_owned(),
                format!("{mib:.1}"),
                String::new(),
            ],
            vec![
                "CPU while nobody asks, %".to_owned(),
                format!("{load:.1}"),
                String::new(),
            ],
        ],
    );
    targets.add("idle: start to ready", Bound::AtMost(300.0), " ms", ready);
    targets.add("idle: peak memory", Bound::AtMost(40.0), " MiB", mib);
    Ok(results)
}

fn ask_ready(addr: SocketAddr) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(addr)?;
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") {
        Ok(())
    } else {
        Err(format!("the server is not ready: {answer}").into())
    }
}
