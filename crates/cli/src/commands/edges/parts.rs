//! `headwater edges`: closed parts, replacement, renaming, removal, and their undoing.

use crate::arguments::parse_duration;
use crate::commands::sync::{ListFormat, ago};
use crate::failure::Failure;
use crate::grid::{Heading, bytes, grouped, printable, render};
use crate::output::{print, print_json};
use crate::server::Server;
use clap::{Args, Subcommand};
use headwater::Timestamp;
use headwater_cluster::{PartStatus, PartStreams, VerifiedPart};
use headwater_wire::instant::format_instant;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Replace {
    /// The edge that is replaced: its copy becomes a closed part
    #[arg(value_name = "OLD")]
    old: String,
    /// The edge that takes its place: one that has joined, or a new one, which is invited; a new
    /// machine of the same name unless given
    #[arg(long, value_name = "NEW")]
    by: Option<String>,
    /// Address under which a new machine reaches this cloud; that of --url unless given
    #[arg(long, value_name = "URL")]
    at: Option<String>,
    /// Validity of the invitation
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    valid: i64,
    /// Certificate that a new machine verifies this cloud by, unless its system trusts it already
    #[arg(long, value_name = "FILE")]
    edge_ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Rename {
    #[arg(value_name = "OLD")]
    old: String,
    #[arg(value_name = "NEW")]
    new: String,
}

#[derive(Debug, Args)]
pub(super) struct Remove {
    #[arg(value_name = "NAME")]
    name: String,
    /// Delete its copy too; otherwise it becomes a closed part, which is still in answers
    #[arg(long)]
    with_history: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct Undo {
    /// Number of a change, as `headwater edges log` lists them
    #[arg(value_name = "CHANGE")]
    change: u64,
}

#[derive(Debug, Args)]
pub(super) struct Parts {
    #[command(subcommand)]
    command: Option<PartsCommand>,
}

#[derive(Debug, Subcommand)]
enum PartsCommand {
    /// List all copies: of edges, and closed parts (also without `list`)
    List,
    /// List the streams of a copy
    Streams {
        /// Name of an edge or a closed part
        #[arg(value_name = "PART")]
        part: String,
        /// Number of streams
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Read a copy from its device, and compare it with the hashes that its edge sent
    Verify {
        /// Name of an edge or a closed part
        #[arg(value_name = "PART")]
        part: String,
    },
    /// Delete a closed part
    Remove {
        /// Name of a closed part, such as pump-7@3
        #[arg(value_name = "PART")]
        part: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

impl Replace {
    pub(super) fn run(self, server: &Server, url: &str) -> Result<(), Failure> {
        let ca = self.edge_ca.as_ref().map(|path| {
            let read = std::fs::read_to_string(path);
            read.map_err(|e| Failure::usage(format!("--edge-ca {}: {e}", path.display())))
        });
        let asked = json!({
            "op": "replace", "edge": self.old, "by": self.by, "ca": ca.transpose()?,
            "url": self.at.unwrap_or_else(|| url.to_owned()),
            "valid_seconds": self.valid.unsigned_abs() / 1_000_000_000,
        });
        let answer = server.sync(&asked)?;
        let change = answer.number("change").unwrap_or_default();
        let by = answer.text("edge").unwrap_or_default();
        match answer.text("invitation") {
            Some(invitation) => {
                print(&format!("{invitation}\n"))?;
                eprintln!(
                    "Change {change}: {by} takes the place of {}. This invitation is shown only once. At the new machine: headwater join INVITATION --db DIR",
                    self.old
                );
                Ok(())
            }
            None => print(&format!(
                "{by} takes the place of {}: change {change}\n",
                self.old
            )),
        }
    }
}

impl Rename {
    pub(super) fn run(&self, server: &Server) -> Result<(), Failure> {
        let asked = json!({ "op": "rename", "edge": self.old, "to": self.new });
        let change = changed(server, &asked)?;
        print(&format!(
            "{} is called {} now: change {change}\n",
            self.old, self.new
        ))
    }
}

impl Remove {
    pub(super) fn run(&self, server: &Server) -> Result<(), Failure> {
        let name = &self.name;
        describe(server, name)?;
        let question = match self.with_history {
            true => format!("remove {name}, and delete its copy"),
            false => format!("remove {name}, and keep its copy as a closed part"),
        };
        confirm(&question, self.yes)?;
        let asked = json!({
            "op": "remove_edge", "edge": name, "with_history": self.with_history,
        });
        let change = changed(server, &asked)?;
        print(&match self.with_history {
            true => format!("removed {name} and its copy: change {change}\n"),
            false => format!("removed {name}: its copy is the closed part {name}@{change}\n"),
        })
    }
}

impl Undo {
    pub(super) fn run(&self, server: &Server) -> Result<(), Failure> {
        let asked = json!({ "op": "undo", "change": self.change });
        let change = changed(server, &asked)?;
        print(&format!("undone: {} (change {change})\n", self.change))
    }
}

impl Parts {
    pub(super) fn run(self, server: &Server, format: ListFormat) -> Result<(), Failure> {
        match self.command {
            None | Some(PartsCommand::List) => list(server, format),
            Some(PartsCommand::Streams { part, limit }) => {
                let streams = streams_of(server, &part, limit)?;
                match format {
                    ListFormat::Json => print_json(&streams),
                    ListFormat::Table => print(&table_of(&streams)),
                }
            }
            Some(PartsCommand::Verify { part }) => verify(server, &part, format),
            Some(PartsCommand::Remove { part, yes }) => {
                describe(server, &part)?;
                confirm(&format!("delete the closed part {part}"), yes)?;
                let asked = json!({ "op": "remove_part", "part": part });
                let change = changed(server, &asked)?;
                print(&format!("deleted {part}: change {change}\n"))
            }
        }
    }
}

pub(super) fn changed(server: &Server, asked: &Value) -> Result<u64, Failure> {
    Ok(server.sync(asked)?.number("change").unwrap_or_default())
}

pub(super) fn decoded<T: DeserializeOwned>(body: Value) -> Result<T, Failure> {
    serde_json::from_value(body)
        .map_err(|error| Failure::failed(format!("{error}; is the server as new as this program?")))
}

/// Asks, unless that was answered before.
fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("to {question}, give --yes")));
    }
    eprint!("{question}? (yes/no) ");
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(Failure::failed)?;
    match answer.trim() {
        "yes" | "y" => Ok(()),
        _ => Err(Failure::failed("nothing was changed")),
    }
}

fn streams_of(server: &Server, part: &str, limit: usize) -> Result<PartStreams, Failure> {
    let asked = json!({ "op": "part_streams", "part": part, "limit": limit });
    decoded(server.sync(&asked)?.body)
}

pub(super) fn instant(at_ns: Option<i64>) -> String {
    at_ns.map_or_else(String::new, |ns| format_instant(Timestamp::from_nanos(ns)))
}

fn table_of(streams: &PartStreams) -> String {
    let headings = [
        Heading::text("stream"),
        Heading::number("rows"),
        Heading::text("first"),
        Heading::text("last"),
        Heading::text("also in"),
    ];
    let rows = streams.streams.iter().map(|stream| {
        vec![
            printable(&stream.stream),
            grouped(stream.rows),
            instant(stream.first_ns),
            instant(stream.last_ns),
            stream.also_in.join(", "),
        ]
    });
    render(&headings, &rows.collect::<Vec<_>>())
}

/// Tells what a copy has, and what of it is in no other copy.
fn describe(server: &Server, part: &str) -> Result<(), Failure> {
    let streams = streams_of(server, part, 20)?;
    eprint!("{}", table_of(&streams));
    let listed = u64::try_from(streams.streams.len()).unwrap_or(u64::MAX);
    let more = streams.count.saturating_sub(listed);
    if more > 0 {
        eprintln!(
            "and {} more streams (`headwater edges parts streams {part}`)",
            grouped(more)
        );
    }
    eprintln!(
        "{part}: {} streams, {} rows; of these, {} streams with {} rows are in no other copy here",
        grouped(streams.count),
        grouped(streams.rows),
        grouped(streams.only_here),
        grouped(streams.only_here_rows),
    );
    Ok(())
}

fn verify(server: &Server, part: &str, format: ListFormat) -> Result<(), Failure> {
    let asked = json!({ "op": "verify_part", "part": part });
    let found: VerifiedPart = decoded(server.sync(&asked)?.body)?;
    match format {
        ListFormat::Json => print_json(&found)?,
        ListFormat::Table => print(&format!(
            "{part}: {} segments equal ({}), {} different, {} not whole here\n",
            grouped(found.equal),
            bytes(found.equal_bytes),
            grouped(found.different),
            grouped(found.unproven),
        ))?,
    }
    match found.different {
        0 => Ok(()),
        different => Err(Failure::failed(format!(
            "{part}: {different} segments differ from the hashes of their edge"
        ))),
    }
}

fn part_cells(part: &PartStatus) -> Vec<String> {
    vec![
        part.part.clone(),
        part.edge.clone().unwrap_or_default(),
        if part.is_closed { "closed" } else { "live" }.to_owned(),
        part.why.clone().unwrap_or_default(),
        part.closed_ns.map_or_else(String::new, |at| ago(Some(at))),
        part.identity.clone().unwrap_or_default(),
        grouped(part.streams),
        part.rows.map_or_else(|| "?".to_owned(), grouped),
        instant(part.first_ns),
        instant(part.last_ns),
        bytes(part.bytes),
    ]
}

fn list(server: &Server, format: ListFormat) -> Result<(), Failure> {
    let answer = server.sync(&json!({ "op": "parts" }))?;
    let parts = answer.body.get("parts").cloned().unwrap_or(Value::Null);
    let parts: Vec<PartStatus> = decoded(parts)?;
    if format == ListFormat::Json {
        return print_json(&parts);
    }
    let headings = [
        Heading::text("part"),
        Heading::text("edge"),
        Heading::text("state"),
        Heading::text("why"),
        Heading::text("closed"),
        Heading::text("identity"),
        Heading::number("streams"),
        Heading::number("rows"),
        Heading::text("first"),
        Heading::text("last"),
        Heading::number("here"),
    ];
    print(&render(
        &headings,
        &parts.iter().map(part_cells).collect::<Vec<_>>(),
    ))?;
    for part in &parts {
        if let Some(error) = &part.error {
            eprintln!("headwater: {}: {}", part.part, printable(error));
        }
    }
    Ok(())
}

/// Lists the changes of names, replacements and removals.
pub(super) fn log(server: &Server, format: ListFormat) -> Result<(), Failure> {
    let answer = server.sync(&json!({ "op": "changes" }))?;
    let changes = answer.body.get("changes").cloned().unwrap_or(Value::Null);
    if format == ListFormat::Json {
        return print_json(&changes);
    }
    let headings = [
        Heading::number("change"),
        Heading::text("at"),
        Heading::text("what"),
        Heading::text("undone by"),
    ];
    let all = changes.as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = all.iter().map(|change| {
        let text = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| change.get(key).and_then(Value::as_u64);
        let shown = |key: &str| number(key).map_or_else(String::new, |n| n.to_string());
        vec![
            shown("change"),
            instant(change.get("at_ns").and_then(Value::as_i64)),
            printable(text("text")),
            shown("undone_by"),
        ]
    });
    print(&render(&headings, &rows.collect::<Vec<_>>()))
}
