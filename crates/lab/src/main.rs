//! The lab: experiments that print tables. Not shipped; every figure in `docs/benchmarks.md` comes from here.
//!
//! ```sh
//! cargo run --release -p lab -- data --dir PATH --json results.json
//! ```

mod experiments;
mod harness;
mod machine;
mod rivals;
mod table;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "lab",
    about = "Experiments with Headwater; each prints a table"
)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Import speed, bytes per event and write amplification for each file of real data.
    Data(experiments::data::Arguments),
    /// The GOLSM paper's writes and reads, against SQLite and redb.
    Golsm(experiments::golsm::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.experiment {
        Experiment::Data(arguments) => experiments::data::run(&arguments),
        Experiment::Golsm(arguments) => experiments::golsm::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}
