//! The program `headwater`: sensor data in, tiles and aggregates out, from the command line.
//!
//! Invariants: data goes to stdout, messages to stderr; exit code 0 means done, 1 failed, 2 the
//! command line is wrong; a reader that closes stdout early ends the program quietly.
#![allow(
    clippy::disallowed_methods,
    reason = "the command reads and writes files that its user names"
)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "comments on arguments are help texts, whose brackets mean optional parts"
)]

mod address;
mod arguments;
mod chart;
mod clock;
mod commands;
mod failure;
mod grid;
mod http;
mod input;
mod late;
mod output;
mod progress;
mod server;
#[cfg(feature = "sql")]
mod sql_client;
mod store;
mod values;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::io::IsTerminal;
use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;
use tracing_subscriber::EnvFilter;

/// Counts the memory of statements where it is allocated: memory that is denied would end the
/// process.
#[cfg(feature = "sql")]
#[global_allocator]
static ALLOCATOR: headwater_query::Counting<Jemalloc> = headwater_query::Counting(Jemalloc);

#[cfg(not(feature = "sql"))]
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Time-series and event database: loses nothing it has acknowledged, shows any span of time at
/// once
#[derive(Debug, Parser)]
#[command(
    name = "headwater",
    version,
    max_term_width = 100,
    after_help = "\
Addresses:
  weather                       every stream of table `weather`
  weather,origin=EWR            the stream with this tag
  weather,origin=EWR.temp       its field `temp`

Times are RFC 3339 (2013-07-04T12:00:00Z), dates (2013-07-04 is midnight UTC), integer nanoseconds since 1970,
now, now-1h or now+5m.
Durations are 10s 5m 1h 7d 4w 1y 250ms 10us 5ns.

Exit codes: 0 done, 1 failed, 2 wrong usage. Log messages go to stderr: HEADWATER_LOG=error|warn|info|debug|trace."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(commands::serve::Serve),
    Import(commands::import::Import),
    Export(commands::export::Export),
    Query(commands::query::Query),
    Influxql(commands::influxql::Influxql),
    Sql(commands::sql::Sql),
    Scan(commands::scan::Scan),
    Replay(commands::replay::Replay),
    Last(commands::last::Last),
    Aggregate(commands::aggregate::Aggregate),
    Tile(commands::tile::Tile),
    Plot(commands::plot::Plot),
    Stat(commands::stat::Stat),
    Analyze(commands::analyze::Analyze),
    Check(commands::check::Check),
    Backup(commands::backup::Backup),
    Restore(commands::restore::Restore),
    Snapshot(commands::snapshot::Snapshot),
    Diff(commands::diff::Diff),
    Lake(commands::lake::Lake),
    #[cfg(feature = "bucket")]
    Bucket(commands::bucket::Bucket),
    Repair(commands::repair::Repair),
    Compact(commands::compact::Compact),
    Delete(commands::delete::Delete),
    Table(commands::table::Table),
    Tier(commands::tier::Tier),
    Token(commands::token::Token),
    Rights(commands::rights::Rights),
    Notices(commands::notices::Notices),
    Join(commands::join::Join),
    Edges(commands::edges::Edges),
    Sync(commands::sync::Sync),
    Watch(commands::watch::Watch),
    Block(commands::block::Block),
    Config(commands::serve::Config),
    Demo(commands::demo::Demo),
}

impl Command {
    fn run(self) -> Result<(), Failure> {
        match self {
            Command::Serve(command) => command.run(),
            Command::Import(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Query(command) => command.run(),
            Command::Influxql(command) => command.run(),
            Command::Sql(command) => command.run(),
            Command::Scan(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Last(command) => command.run(),
            Command::Aggregate(command) => command.run(),
            Command::Tile(command) => command.run(),
            Command::Plot(command) => command.run(),
            Command::Stat(command) => command.run(),
            Command::Analyze(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Backup(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Snapshot(command) => command.run(),
            Command::Diff(command) => command.run(),
            Command::Lake(command) => command.run(),
            #[cfg(feature = "bucket")]
            Command::Bucket(command) => command.run(),
            Command::Repair(command) => command.run(),
            Command::Compact(command) => command.run(),
            Command::Delete(command) => command.run(),
            Command::Table(command) => command.run(),
            Command::Tier(command) => command.run(),
            Command::Token(command) => command.run(),
            Command::Rights(command) => command.run(),
            Command::Notices(command) => command.run(),
            Command::Join(command) => command.run(),
            Command::Edges(command) => command.run(),
            Command::Sync(command) => command.run(),
            Command::Watch(command) => command.run(),
            Command::Block(command) => command.run(),
            Command::Config(command) => command.run(),
            Command::Demo(command) => command.run(),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A server logs as its settings say, once they are known.
    if !matches!(cli.command, Command::Serve(_)) {
        tracing_subscriber::fmt()
            .with_env_filter(
                EnvFilter::try_from_env("HEADWATER_LOG").unwrap_or_else(|_| EnvFilter::new("warn")),
            )
            .with_writer(std::io::stderr)
            // Colours are for eyes: in a file they are noise.
            .with_ansi(std::io::stderr().is_terminal())
            .init();
    }
    match cli.command.run() {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Reported) => ExitCode::from(1),
        Err(Failure::Failed(message)) => {
            eprintln!("headwater: {message}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(message)) => {
            eprintln!("headwater: {message}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
