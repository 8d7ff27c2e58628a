//! The server under load: client and server on one machine, payloads made beforehand.
//!
//! The server runs as a process of its own, so that its CPU time and memory are told apart from the client's. Each case gets a
//! fresh database. What was acknowledged is looked for in the database after the server has stopped.

mod child;
mod client;
mod fleet;
mod writing;

pub(crate) use child::{ChildArguments, run_child};

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
    /// Only cases whose name holds this, such as `late` or `64`.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Serialize)]
struct Figures {
    writing: writing::Figures,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("server", &arguments.common)?;
    let mut targets = Targets::default();
    let figures = Figures {
        writing: writing::run(&bench, arguments, &mut targets)?,
    };
    bench.finish(&figures, &targets)
}
