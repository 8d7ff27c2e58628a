//! The server under load: client and server on one machine, payloads made beforehand.
//!
//! `idle`: start and memory of an idle server. `writing`: line protocol over HTTP. `reading`:
//! tiles, rows, newest values, bins, counts. `search`: streams by words, among very many. `soak`:
//! all of these at once for minutes. `streams`: a million streams of one table. `doors`: the front
//! ends SQL and InfluxQL, compared with the routes.
//!
//! The server runs as a process of its own, so that its CPU time and memory are counted separately
//! from the client's. Each case gets a new database. Acknowledged data is verified in the database
//! after the server has stopped.

mod child;
mod client;
mod connection;
mod fleet;
mod front_ends;
mod idle;
mod reading;
mod search;
mod soak;
mod streams;
mod writing;

pub(crate) use child::{ChildArguments, ResourceUsage, Server, run_child, used_of};
pub(crate) use client::{by_threads, post};
pub(crate) use connection::{Connection, get};
pub(crate) use fleet::Fleet;

use crate::harness::{Bench, Common, Failure, Targets};
use serde::Serialize;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Values in all for the cases with large requests.
    #[arg(long, default_value_t = 10_000_000)]
    values: usize,
    /// Lines of a large request.
    #[arg(long, default_value_t = 1_000)]
    lines: usize,
    /// Requests in all for the cases with one line a request.
    #[arg(long, default_value_t = 200_000)]
    requests: usize,
    /// Points of the large channel that is queried.
    #[arg(long, default_value_t = 10_000_000)]
    points: u64,
    /// Rows of each of a hundred devices with ten fields that are queried.
    #[arg(long, default_value_t = 10_000)]
    rows: u64,
    /// Seconds each query is sent for, in every round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Connections where many clients query.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Streams that are searched.
    #[arg(long, default_value_t = 100_000)]
    streams: usize,
    /// With `--part streams`: how often every stream is written to.
    #[arg(long, default_value_t = 5)]
    passes: usize,
    /// With `--part streams` and `doors`: the command `headwater` that serves, which knows SQL; the
    /// server of the experiment does not.
    #[arg(long)]
    binary: Option<std::path::PathBuf>,
    /// Minutes of `--part soak`.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Only `idle`, only `writing`, only `reading`, or only `search`; or `soak`, `doors` or
    /// `streams` (with `--streams 1000000`), which are not done otherwise.
    #[arg(long, default_value = "")]
    part: String,
    /// Only cases of writing whose name holds this, such as `late` or `64`.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Serialize)]
struct Results {
    idle: Option<idle::Results>,
    writing: Option<writing::Results>,
    reading: Option<reading::Results>,
    search: Option<search::Results>,
    soak: Option<soak::Results>,
    streams: Option<streams::Results>,
    doors: Option<front_ends::Results>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("server", &arguments.common)?;
    let mut targets = Targets::default();
    let wants = |part: &str| arguments.part.is_empty() || arguments.part == part;
    let mut results = Results {
        idle: None,
        writing: None,
        reading: None,
        search: None,
        soak: None,
        streams: None,
        doors: None,
    };
    if wants("idle") {
        results.idle = Some(idle::measure(&bench, &mut targets)?);
    }
    if wants("writing") {
        results.writing = Some(writing::run(&bench, arguments, &mut targets)?);
    }
    if wants("reading") {
        results.reading = Some(reading::measure(&bench, arguments, &mut targets)?);
    }
    if wants("search") {
        results.search = Some(search::measure(&bench, arguments, &mut targets)?);
    }
    // Long, and no comparison: only on request.
    if arguments.part == "soak" {
        results.soak = Some(soak::run(&bench, arguments, &mut targets)?);
    }
    if arguments.part == "streams" {
        results.streams = Some(streams::measure(&bench, arguments, &mut targets)?);
    }
    if arguments.part == "doors" {
        results.doors = Some(front_ends::measure(&bench, arguments, &mut targets)?);
    }
    bench.finish(&results, &targets)
}
