//! A fleet at work: many live edges at one cloud node, idle copies, SQL over copies, redirects
//! beside edges, an idle day, catching up, wear of an edge's flash, a link that is cut, a dead
//! gateway (docs/cluster).
//!
//! Nodes are processes with the shipped server. Where edges are too many for that, they are tasks
//! of one process, each with a database, a connection and files of its own; the parts name what
//! else stands in for something.

mod buffer;
mod catch_up;
mod children;
mod cloud;
mod day;
mod flash;
mod gateway;
mod idle;
mod link;
mod live;
mod made;
mod redirects;
mod remote_write;
#[cfg(feature = "sql")]
mod sql;

pub(crate) use children::{ChildArguments, run_child};

use crate::harness::{Bench, Common, Failure, Targets};
use serde::Serialize;
use std::path::PathBuf;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Live edges.
    #[arg(long, default_value_t = 1_000)]
    edges: usize,
    /// Streams of each of them, which get a row a second.
    #[arg(long, default_value_t = 10)]
    streams: usize,
    /// Seconds for which live edges write; of `buffer`, seconds of the cut.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Folder of files of live edges, in memory, so that they do not wear the disk of the cloud.
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// Idle copies.
    #[arg(long, default_value_t = 10_000)]
    copies: usize,
    /// Copies that SQL reads.
    #[arg(long, default_value_t = 1_000)]
    sql_copies: usize,
    /// Rows of each of these, ten seconds apart.
    #[arg(long, default_value_t = 8_640)]
    rows: usize,
    /// Hours of the simulated idle day.
    #[arg(long, default_value_t = 6)]
    hours: u64,
    /// Seconds of the simulated day for each second of the machine.
    #[arg(long, default_value_t = 120)]
    haste: u64,
    /// Seconds before and after it in which connection and reports come to rest.
    #[arg(long, default_value_t = 12)]
    rest_seconds: u32,
    /// Hours of backlog.
    #[arg(long, default_value_t = 24)]
    backlog_hours: usize,
    /// The link, in bits a second.
    #[arg(long, default_value_t = 1_000_000)]
    bits_per_second: u64,
    /// Hours of which the writes of an edge are counted.
    #[arg(long, default_value_t = 24)]
    flash_hours: u64,
    /// Real seconds in which they pass.
    #[arg(long, default_value_t = 240)]
    flash_seconds: u64,
    /// The command `vmagent`, for `--part buffer`; `make vmagent` builds it.
    #[arg(long)]
    vmagent: Option<PathBuf>,
    /// Only `live`, `idle`, `sql`, `redirects`, `day`, `catch-up`, `flash`, `buffer` or `gateway`.
    #[arg(long, default_value = "")]
    part: String,
}

#[derive(Default, Serialize)]
struct Results {
    live: Option<live::Results>,
    idle: Option<idle::Results>,
    redirects: Option<redirects::Results>,
    day: Option<day::Results>,
    catch_up: Option<catch_up::Results>,
    flash: Option<flash::Results>,
    buffer: Option<buffer::Results>,
    gateway: Option<gateway::Results>,
    #[cfg(feature = "sql")]
    sql: Option<sql::Results>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::once("fleet", &arguments.common)?;
    let mut targets = Targets::default();
    let wants = |part: &str| arguments.part.is_empty() || arguments.part == part;
    let mut results = Results::default();
    if wants("live") {
        results.live = Some(live::measure(&bench, arguments, &mut targets)?);
    }
    if wants("idle") {
        results.idle = Some(idle::measure(&bench, arguments, &mut targets)?);
    }
    if wants("redirects") {
        results.redirects = Some(redirects::measure(&bench, arguments, &mut targets)?);
    }
    if wants("day") {
        results.day = Some(day::measure(&bench, arguments, &mut targets)?);
    }
    if wants("catch-up") {
        results.catch_up = Some(catch_up::measure(&bench, arguments, &mut targets)?);
    }
    if wants("flash") {
        results.flash = Some(flash::measure(&bench, arguments, &mut targets)?);
    }
    if wants("buffer") {
        results.buffer = Some(buffer::measure(&bench, arguments, &mut targets)?);
    }
    if wants("gateway") {
        results.gateway = Some(gateway::measure(&bench, arguments, &mut targets)?);
    }
    #[cfg(feature = "sql")]
    if wants("sql") {
        results.sql = Some(sql::measure(&bench, arguments, &mut targets)?);
    }
    bench.finish(&results, &targets)
}
