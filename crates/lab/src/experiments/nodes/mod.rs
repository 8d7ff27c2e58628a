//! Several nodes on one machine, each a process: copies of an edge at a cloud, and a dispatcher
//! before a node (rows; docs/cluster).
//!
//! `copies`: traffic, time and processor use of a full copy and of one of summaries, compared with
//! writing the same values over HTTP. `dispatch`: queries answered by the node itself, forwarded by
//! the dispatcher, and redirected by it; open connections; and a restart with many streams.
//! `tables`: memory of a dispatcher with many streams and single tiles.
//!
//! Processor time is measured for each process, so that the clients on the same processors are
//! separated from the measured process.

mod copies;
pub(crate) mod dispatch;
pub(crate) mod requests;
mod tables;

use crate::harness::{Bench, Common, Failure, Targets};
use serde::Serialize;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Values that are copied, of a hundred devices with ten fields.
    #[arg(long, default_value_t = 20_000_000)]
    values: usize,
    /// Streams behind the dispatcher where it is started again.
    #[arg(long, default_value_t = 1_000_000)]
    streams: usize,
    /// Single tiles that a node has reported.
    #[arg(long, default_value_t = 10_000_000)]
    tiles: usize,
    /// Connections that are open at the dispatcher.
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Seconds each query is sent for, in every round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only `copies`, `dispatch` or `tables`.
    #[arg(long, default_value = "")]
    part: String,
}

#[derive(Serialize)]
struct Results {
    copies: Option<copies::Results>,
    dispatch: Option<dispatch::Results>,
    tables: Option<tables::Results>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("nodes", &arguments.common)?;
    let mut targets = Targets::default();
    let wants = |part: &str| arguments.part.is_empty() || arguments.part == part;
    let mut results = Results {
        copies: None,
        dispatch: None,
        tables: None,
    };
    if wants("copies") {
        results.copies = Some(copies::measure(&bench, arguments, &mut targets)?);
    }
    if wants("dispatch") {
        results.dispatch = Some(dispatch::measure(&bench, arguments, &mut targets)?);
    }
    if wants("tables") {
        results.tables = Some(tables::measure(&bench, arguments, &mut targets)?);
    }
    bench.finish(&results, &targets)
}
