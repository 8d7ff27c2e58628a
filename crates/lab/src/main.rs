//! The bench: experiments that print tables. Not shipped; the source of every number in
//! `docs/benchmarks.md`.
//!
//! ```sh
//! cargo run --release -p lab -- data --dir PATH --json results.json
//! ```
#![allow(clippy::disallowed_methods, reason = "measurements")]

mod baselines;
mod experiments;
mod harness;
mod machine;
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
    /// A million points of one channel in batches, and small reads of it, against SQLite.
    Respawn(experiments::respawn::Arguments),
    /// The EVENT paper's streams, in order and with late events, against copying and compressing
    /// alone.
    Events(experiments::events::Arguments),
    /// Ten million values of a hundred devices, a device at a time or as they arrive.
    Bulk(experiments::bulk::Arguments),
    /// Tiles of one channel at every level and size, overviews beside SQLite, ingest by store and
    /// batch size.
    Tiles(experiments::tiles::Arguments),
    /// A small fast medium beside a large slow one: the log, openings, the index.
    Tiers(experiments::tiers::Arguments),
    /// Late data: what the policies of the SEP paper write again, simulated, run and predicted.
    Wa(experiments::wa::Arguments),
    /// Peak memory with many events and with many streams, and opening after a kill.
    Memory(experiments::memory::Arguments),
    /// The server under load: line protocol over HTTP, and queries.
    Server(experiments::server::Arguments),
    /// Questions over points that were written again and again.
    Overwrite(experiments::overwrite::Arguments),
    /// Indexes over values: one event by its number, ranges, and what writing with one costs.
    Indexes(experiments::indexes::Arguments),
    /// Tiles at the cloud before a visit: policies of prefetch (the paper's migration).
    Migration(experiments::prefetch::Arguments),
    /// People browse edges through a dispatcher, in simulated time.
    Load(experiments::prefetch::load::Arguments),
    /// Several nodes: copies at a cloud, a dispatcher before a node.
    Nodes(experiments::nodes::Arguments),
    /// A fleet at work: live edges, idle copies, SQL over copies, an idle day, catching up, wear.
    Fleet(experiments::fleet::Arguments),
    /// Line protocol: our parser beside the published one.
    Parse(experiments::parse::Arguments),
    /// Queue sets beside one queue and direct calls, over a throttled device and in a model.
    Queues(experiments::queues::Arguments),
    /// Ways to the medium: cold scans with leaves read ahead, reads beside compaction.
    Ways(experiments::read_paths::Arguments),
    /// Messages of an MQTT broker into the server; needs mosquitto.
    Mqtt(experiments::mqtt::Arguments),
    /// SQL over ten million values: grouped queries, filters, counts, full scans.
    #[cfg(feature = "sql")]
    Query(experiments::query::Arguments),
    /// Patterns of rows with and without what the pyramid lets a search leave out.
    #[cfg(feature = "sql")]
    Patterns(experiments::patterns::Arguments),
    #[command(hide = true)]
    FleetChild(experiments::fleet::ChildArguments),
    #[command(hide = true)]
    ServerChild(experiments::server::ChildArguments),
    #[command(hide = true)]
    MemoryChild(experiments::memory::ChildArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.experiment {
        Experiment::Data(arguments) => experiments::data::run(&arguments),
        Experiment::Golsm(arguments) => experiments::golsm::run(&arguments),
        Experiment::Respawn(arguments) => experiments::respawn::run(&arguments),
        Experiment::Events(arguments) => experiments::events::run(&arguments),
        Experiment::Bulk(arguments) => experiments::bulk::run(&arguments),
        Experiment::Tiles(arguments) => experiments::tiles::run(&arguments),
        Experiment::Tiers(arguments) => experiments::tiers::run(&arguments),
        Experiment::Wa(arguments) => experiments::wa::run(&arguments),
        Experiment::Memory(arguments) => experiments::memory::run(&arguments),
        Experiment::Server(arguments) => experiments::server::run(&arguments),
        Experiment::Overwrite(arguments) => experiments::overwrite::run(&arguments),
        Experiment::Indexes(arguments) => experiments::indexes::run(&arguments),
        Experiment::Migration(arguments) => experiments::prefetch::run(&arguments),
        Experiment::Load(arguments) => experiments::prefetch::load::run(&arguments),
        Experiment::Nodes(arguments) => experiments::nodes::run(&arguments),
        Experiment::Fleet(arguments) => experiments::fleet::run(&arguments),
        Experiment::Parse(arguments) => experiments::parse::run(&arguments),
        Experiment::Queues(arguments) => experiments::queues::run(&arguments),
        Experiment::Ways(arguments) => experiments::read_paths::run(&arguments),
        Experiment::Mqtt(arguments) => experiments::mqtt::run(&arguments),
        #[cfg(feature = "sql")]
        Experiment::Query(arguments) => experiments::query::run(&arguments),
        #[cfg(feature = "sql")]
        Experiment::Patterns(arguments) => experiments::patterns::run(&arguments),
        Experiment::FleetChild(arguments) => experiments::fleet::run_child(&arguments),
        Experiment::ServerChild(arguments) => experiments::server::run_child(&arguments),
        Experiment::MemoryChild(arguments) => experiments::memory::run_child(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}
