//! Many edges in one process, which a cloud in another process follows: each a database, an uplink
//! and a connection of its own, with the shipped code.
//!
//! Databases are in memory and without threads of their own, which a thousand gateways have each
//! and this machine has not; the files of uplinks are in the folder. Their rows are written by one
//! thread, the edges spread over each second.

use crate::experiments::server::used_of;
use crate::harness::{Failure, real, signed, unsigned};
use headwater_cluster::{
    BudgetLimits, ReplicationRules, Uplink, UplinkSettings, UplinkState, join,
};
use headwater_engine::{Database, Options};
use headwater_io::{Env, SystemChance, SystemClock};
use headwater_types::{Batch, StreamName, Value};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Table of all edges.
pub(super) const TABLE: &str = "m";
/// Parts of a second in which edges write.
const PARTS: usize = 100;
/// Longest time until all edges are connected.
const CONNECTED: Duration = Duration::from_secs(120);

/// Arguments of the process. Not for people.
#[derive(clap::Args)]
pub(crate) struct ChildArguments {
    /// File with an invitation in each line.
    #[arg(long)]
    invitations: PathBuf,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    streams: usize,
    #[arg(long)]
    seconds: u64,
    #[arg(long)]
    flush_seconds: u64,
}

/// Work of the edges.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Rows of each stream of the edge with the fewest, and of the one with the most.
    pub(super) rows_min: u64,
    pub(super) rows_max: u64,
    /// Bytes of all sockets, TCP's own not counted.
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) cpu_seconds: f64,
    /// Largest delay of the writer.
    pub(super) late_seconds: f64,
    pub(super) resident_bytes: u64,
}

/// Settings of an uplink that sends newest values each second.
pub(super) fn settings(flush: Duration) -> UplinkSettings {
    UplinkSettings {
        hold_bytes: 1 << 30,
        budget: BudgetLimits::default(),
        flush_every: Some(flush),
        live: Some(Duration::from_secs(1)),
        free_after: None,
        rules: ReplicationRules::default(),
        rights: None,
        version: "lab".to_owned(),
    }
}

/// Time in nanoseconds since 1970.
pub(super) fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    signed(since.unwrap_or_default().as_nanos())
}

struct Edge {
    number: usize,
    db: Database,
    uplink: Arc<Uplink>,
    streams: Vec<StreamName>,
    written: u64,
}

/// Stream of an edge.
pub(super) fn stream(edge: usize, number: usize) -> StreamName {
    let tags = [("edge", edge.to_string()), ("id", number.to_string())];
    StreamName::new(TABLE, tags)
}

async fn edge(
    (number, invitation): (usize, &str),
    arguments: &ChildArguments,
    stopping: &watch::Receiver<bool>,
) -> Result<Edge, Failure> {
    let dir = arguments.dir.join(number.to_string());
    std::fs::create_dir_all(&dir)?;
    join(&dir, invitation, None, None, false).await?;
    let env = Env {
        clock: Arc::new(SystemClock::new()),
        chance: Arc::new(SystemChance::new()),
        ..Env::memory()
    };
    let options = Options {
        memory_budget_bytes: 2 << 20,
        shards: 1,
        reserve_bytes: 0,
        ..Options::new(&dir)
    };
    let db = Database::open_in(env.clone(), options)?;
    let flush = Duration::from_secs(arguments.flush_seconds);
    let uplink = Arc::new(Uplink::new(db.clone(), env, &dir, settings(flush))?);
    tokio::spawn(Arc::clone(&uplink).run(stopping.clone()));
    Ok(Edge {
        number,
        db,
        uplink,
        streams: (0..arguments.streams)
            .map(|at| stream(number, at))
            .collect(),
        written: 0,
    })
}

impl Edge {
    fn write(&mut self) -> Result<(), Failure> {
        let time = wall_ns();
        let mut batch = Batch::new();
        for (at, stream) in self.streams.iter().enumerate() {
            let walk = (unsigned(self.number) * 31 + self.written * 7 + unsigned(at)) % 977;
            let value = Value::F64(20.0 + real(walk) / 100.0);
            batch.stream(stream).row(time, [("v", value)])?;
        }
        self.db.commit(batch)?;
        self.written += 1;
        Ok(())
    }
}

/// Writes a row a second to each stream; returns how late a row was at most.
fn write_all(edges: &mut [Edge], seconds: u64) -> Result<f64, Failure> {
    let begun = Instant::now();
    let part = Duration::from_secs(1) / u32::try_from(PARTS).unwrap_or(1);
    let mut late = Duration::ZERO;
    for slot in 0..seconds * unsigned(PARTS) {
        let due = begun + part * u32::try_from(slot).unwrap_or(u32::MAX);
        match due.checked_duration_since(Instant::now()) {
            Some(left) => std::thread::sleep(left),
            None => late = late.max(due.elapsed()),
        }
        let turn = slot % unsigned(PARTS);
        let in_turn = |edge: &&mut Edge| unsigned(edge.number % PARTS) == turn;
        edges.iter_mut().filter(in_turn).try_for_each(Edge::write)?;
    }
    Ok(late.as_secs_f64())
}

/// The child's part: connects all edges, says so, writes, reports, and stays until its input ends.
pub(crate) fn run_child(arguments: &ChildArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (stop, stopping) = watch::channel(false);
    let invitations = std::fs::read_to_string(&arguments.invitations)?;
    let mut edges = Vec::new();
    for invitation in invitations.lines().enumerate() {
        edges.push(runtime.block_on(edge(invitation, arguments, &stopping))?);
    }
    let begun = Instant::now();
    while let Some(waits) = not_connected(&edges)? {
        if begun.elapsed() > CONNECTED {
            return Err(format!("{waits} edges are not connected").into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let me = std::process::id();
    let before = used_of(me)?;
    println!("connected");
    std::io::stdout().flush()?;
    let late_seconds = write_all(&mut edges, arguments.seconds)?;
    let used = used_of(me)?;
    let written = edges.iter().map(|edge| edge.written);
    let bytes = edges.iter().map(|edge| edge.uplink.socket_bytes());
    let report = Report {
        rows_min: written.clone().min().unwrap_or(0),
        rows_max: written.max().unwrap_or(0),
        sent: bytes.clone().map(|(sent, _)| sent).sum(),
        received: bytes.map(|(_, received)| received).sum(),
        cpu_seconds: used.cpu_seconds - before.cpu_seconds,
        late_seconds,
        resident_bytes: used.resident_bytes,
    };
    println!("{}", serde_json::to_string(&report)?);
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    stop.send_replace(true);
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(())
}

/// Number of edges without a connection, if there are any.
fn not_connected(edges: &[Edge]) -> Result<Option<usize>, Failure> {
    let mut count = 0;
    for edge in edges {
        count += usize::from(edge.uplink.status()?.state != UplinkState::Connected);
    }
    Ok((count > 0).then_some(count))
}

/// The process with the edges. Killed when dropped, if it was not ended.
pub(super) struct Edges {
    child: Child,
    /// The child stays until this is dropped.
    input: Option<ChildStdin>,
    out: BufReader<ChildStdout>,
}

impl Edges {
    /// Starts one with an edge for each invitation, and waits until all are connected.
    pub(super) fn start(
        dir: &Path,
        invitations: &[String],
        (streams, seconds, flush_seconds): (usize, u64, u64),
    ) -> Result<Edges, Failure> {
        std::fs::create_dir_all(dir)?;
        let file = dir.join("invitations");
        std::fs::write(&file, invitations.join("\n"))?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("fleet-child")
            .arg("--invitations")
            .arg(file)
            .arg("--dir")
            .arg(dir)
            .args(["--streams", &streams.to_string()])
            .args(["--seconds", &seconds.to_string()])
            .args(["--flush-seconds", &flush_seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let out = child.stdout.take().ok_or("no output")?;
        let mut edges = Edges {
            child,
            input,
            out: BufReader::new(out),
        };
        match edges.line()?.as_str() {
            "connected" => Ok(edges),
            other => Err(format!("the edges did not connect: {other}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Waits for the end of writing.
    pub(super) fn report(&mut self) -> Result<Report, Failure> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Ends the edges.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        drop(self.input.take());
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the edges ended with {status}").into()),
        }
    }
}

impl Drop for Edges {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait())
        {
            eprintln!("lab: ending the edges: {error}");
        }
    }
}
