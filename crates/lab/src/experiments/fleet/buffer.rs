//! Rows through a link that is cut while the sender is killed with SIGKILL, and killed again while
//! it sends what it has kept: an edge beside `vmagent`, which passes samples on by remote write.
//!
//! Rows have a number and a time of their own. Only acknowledged rows count: one that is not at the
//! other side in the end is lost, one that came more than once is doubled. At a cloud, rows are
//! counted as a scan gives them; of remote write, as the samples came in requests.

use super::Arguments;
use super::catch_up::join;
use super::link::Link;
use super::live::invite;
use super::remote_write::{Counts, receiver};
use crate::experiments::server::{Connection, Server, get, post};
use crate::harness::{Bench, Bound, Failure, Targets, real, signed, unsigned};
use crate::table;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Rows of a request, and the time between requests.
const LINES: u64 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// Seconds of writing before and after the cut.
const BESIDE: u64 = 5;
/// Longest pause between attempts to connect again, of both.
const BACK_OFF_MAX: u64 = 60;
/// Longest time of sending what was kept.
const WITHIN: Duration = Duration::from_secs(150);
const BEGIN_MS: u64 = 1_700_000_000_000;

#[derive(Serialize)]
struct Outcome {
    what: &'static str,
    acknowledged: usize,
    refused: usize,
    lost: usize,
    doubled: usize,
    settled_seconds: f64,
}

#[derive(Serialize)]
pub(super) struct Results {
    cut_seconds: u64,
    ways: Vec<Outcome>,
}

/// Something that takes rows and passes them on.
trait Sender {
    fn start(&mut self) -> Result<SocketAddr, Failure>;
    /// Kills it by SIGKILL.
    fn kill(&mut self);
    /// Number of arrivals of each time, in milliseconds, at the other side.
    fn arrived(&self) -> Result<BTreeMap<i64, u64>, Failure>;
}

/// Writes rows for some time; adds the times of those that were acknowledged.
fn write(
    addr: SocketAddr,
    span: Duration,
    next: &mut u64,
    acknowledged: &mut BTreeSet<i64>,
) -> Result<usize, Failure> {
    let begun = Instant::now();
    let mut refused = 0;
    let mut connection = Connection::open(addr)?;
    while begun.elapsed() < span {
        let numbers = *next..*next + LINES;
        *next += LINES;
        let line = |n: u64| format!("probe,id=1 v={n} {}000000\n", BEGIN_MS + n);
        let lines: String = numbers.clone().map(line).collect();
        let answer = connection.send(&post("/write", lines.as_bytes()));
        match answer {
            Ok(answer) if answer.status == 204 => {
                acknowledged.extend(numbers.map(|n| signed(BEGIN_MS + n)));
            }
            _ => refused += 1,
        }
        std::thread::sleep(PAUSE);
    }
    Ok(refused)
}

fn run(
    what: &'static str,
    sender: &mut dyn Sender,
    link: &Link,
    cut_seconds: u64,
) -> Result<Outcome, Failure> {
    let (mut next, mut acknowledged) = (0, BTreeSet::new());
    let half = Duration::from_millis(cut_seconds * 500);
    let beside = Duration::from_secs(BESIDE);
    let addr = sender.start()?;
    let mut refused = write(addr, beside, &mut next, &mut acknowledged)?;
    link.cut(true);
    refused += write(addr, half, &mut next, &mut acknowledged)?;
    sender.kill();
    let addr = sender.start()?;
    refused += write(addr, half, &mut next, &mut acknowledged)?;
    link.cut(false);
    let mended = Instant::now();
    refused += write(addr, Duration::from_secs(1), &mut next, &mut acknowledged)?;
    // While it sends what it has kept.
    sender.kill();
    let addr = sender.start()?;
    refused += write(addr, beside, &mut next, &mut acknowledged)?;
    let (mut found, mut since) = (sender.arrived()?, Instant::now());
    let mut settled = mended.elapsed();
    // A sender that is silent for longer has sent all.
    let quiet = Duration::from_secs((BESIDE + cut_seconds).min(BACK_OFF_MAX + BESIDE));
    while since.elapsed() < quiet && mended.elapsed() < WITHIN {
        std::thread::sleep(Duration::from_millis(200));
        let now = sender.arrived()?;
        if now != found {
            (found, since, settled) = (now, Instant::now(), mended.elapsed());
        }
    }
    let lost = acknowledged.iter().filter(|time| !found.contains_key(time));
    Ok(Outcome {
        what,
        acknowledged: acknowledged.len(),
        refused,
        lost: lost.count(),
        doubled: found.values().filter(|count| **count > 1).count(),
        settled_seconds: settled.as_secs_f64(),
    })
}

/// An edge of a cloud.
struct Ours {
    dir: PathBuf,
    cloud: Server,
    edge: Option<Server>,
}

impl Sender for Ours {
    fn start(&mut self) -> Result<SocketAddr, Failure> {
        let role = ["--role", "edge", "--live-seconds", "1"];
        let edge = Server::start_with(&self.dir, &role)?;
        let addr = edge.addr;
        self.edge = Some(edge);
        Ok(addr)
    }

    fn kill(&mut self) {
        // Dropped, it is killed.
        self.edge = None;
    }

    fn arrived(&self) -> Result<BTreeMap<i64, u64>, Failure> {
        let path = "/api/v1/scan?stream=probe%2Cid%3D1&limit=1000000";
        let mut connection = Connection::open(self.cloud.addr)?;
        let answer = connection.send(&get(path))?;
        let mut counts = BTreeMap::new();
        if answer.status != 200 {
            return Ok(counts);
        }
        let body: Value = serde_json::from_slice(connection.body(&answer))?;
        let times = body.pointer("/time").and_then(Value::as_array);
        for time in times.into_iter().flatten().filter_map(Value::as_str) {
            *counts.entry(time.parse::<i64>()? / 1_000_000).or_default() += 1;
        }
        Ok(counts)
    }
}

/// The command `vmagent`.
struct Theirs {
    command: PathBuf,
    dir: PathBuf,
    url: String,
    counts: Counts,
    child: Option<Child>,
}

impl Sender for Theirs {
    fn start(&mut self) -> Result<SocketAddr, Failure> {
        let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(&self.command)
            .arg(format!("-httpListenAddr={addr}"))
            .arg(format!("-remoteWrite.url={}", self.url))
            .arg(format!("-remoteWrite.tmpDataPath={}", self.dir.display()))
            .arg("-remoteWrite.forcePromProto")
            .arg("-loggerLevel=ERROR")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.child = Some(child);
        let begun = Instant::now();
        while Connection::open(addr).is_err() {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err("vmagent does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(addr)
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take()
            && let Err(error) = child.kill().and_then(|()| child.wait())
        {
            eprintln!("lab: ending vmagent: {error}");
        }
    }

    fn arrived(&self) -> Result<BTreeMap<i64, u64>, Failure> {
        Ok(self
            .counts
            .lock()
            .map_err(|_| "a receiver panicked")?
            .clone())
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.kill();
    }
}

fn ours(bench: &Bench, cut_seconds: u64) -> Result<Outcome, Failure> {
    let cloud = Server::start_with(&bench.path("cloud"), &["--role", "cloud"])?;
    let link = Link::to(cloud.addr, None)?;
    let url = format!("http://{}", link.addr);
    let invitation = invite(&cloud, 1, &url)?.pop().ok_or("no invitation")?;
    let dir = bench.path("edge");
    join(&dir, &invitation)?;
    let mut sender = Ours {
        dir,
        cloud,
        edge: None,
    };
    run("an edge", &mut sender, &link, cut_seconds)
}

fn theirs(bench: &Bench, command: &Path, cut_seconds: u64) -> Result<Outcome, Failure> {
    let (addr, counts) = receiver()?;
    let link = Link::to(addr, None)?;
    let mut sender = Theirs {
        command: command.to_owned(),
        dir: bench.path("vmagent"),
        url: format!("http://{}/api/v1/write", link.addr),
        counts,
        child: None,
    };
    run("vmagent", &mut sender, &link, cut_seconds)
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let cut_seconds = arguments.seconds;
    let mut ways = vec![ours(bench, cut_seconds)?];
    if let Some(command) = &arguments.vmagent {
        ways.push(theirs(bench, command, cut_seconds)?);
    }
    let line = |one: &Outcome| {
        vec![
            one.what.to_owned(),
            one.acknowledged.to_string(),
            (unsigned(one.refused) * LINES).to_string(),
            one.lost.to_string(),
            one.doubled.to_string(),
            format!("{:.1} s", one.settled_seconds),
        ]
    };
    let lines: Vec<Vec<String>> = ways.iter().map(line).collect();
    println!();
    table::print(
        &[
            "through a cut link and two kills",
            "acknowledged",
            "refused",
            "lost",
            "doubled",
            "all there after mending",
        ],
        &lines,
    );
    if let Some(ours) = ways.first() {
        targets.add(
            format!("a cut of {cut_seconds} s and two kills: rows lost or doubled"),
            Bound::AtMost(0.0),
            "",
            real(ours.lost + ours.doubled),
        );
    }
    Ok(Results { cut_seconds, ways })
}
