//! `headwater sync`: how it stands between an edge and its cloud, at either side.

mod fetched;
mod why;

use crate::arguments::{parse_duration, parse_time};
use crate::clock::now;
use crate::failure::Failure;
use crate::grid::{Heading, bytes, printable, render};
use crate::http::agent;
use crate::output::{print, print_json};
use crate::server::{Server, TIMEOUT};
use clap::{Args, Subcommand, ValueEnum};
use headwater::{StreamName, Timestamp};
use headwater_cluster::{
    EdgeState, EdgeStatus, NodeStatus, QuietStatus, UplinkState, UplinkStatus, VerifiedStatus,
};
use headwater_wire::instant::Rfc3339;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Interval between checks whether a comparison is through.
const LOOK: Duration = Duration::from_millis(200);

/// A node to query.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeArgs {
    /// The server to query
    #[arg(
        long,
        value_name = "URL",
        env = "HEADWATER_URL",
        default_value = "http://127.0.0.1:7373",
        global = true
    )]
    pub(crate) url: String,

    /// Token for the server
    #[arg(
        long,
        value_name = "TOKEN",
        env = "HEADWATER_TOKEN",
        hide_env_values = true,
        global = true
    )]
    token: Option<String>,

    /// Certificate of the server, or of its issuer, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

impl NodeArgs {
    pub(crate) fn open(&self) -> Result<Server, Failure> {
        let agent = agent(&self.url, self.ca.as_deref(), TIMEOUT)?;
        Ok(Server::new(agent, &self.url, self.token.clone()))
    }
}

/// Format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    // For reading
    Table,
    // For programs
    Json,
}

/// Show the state of an edge and its cloud, compare them, pause
#[derive(Debug, Args)]
#[command(after_help = "\
Queries the server of an edge, or that of a cloud about an edge, which must be named then. `verify` reads the files of both,
prints how many bytes are equal, different and missing, and fails unless all subscribed bytes are there and equal.
It fails at once for an edge that is refused or paused, and names quiet hours and spent caps.

Examples:
  headwater sync status                       # at the edge
  headwater sync status pump-7 --url https://cloud.example:7373
  headwater sync status pump-7 --why pumps,site=4 2026-11-01 now   # at the cloud
  headwater sync verify pump-7
  headwater sync fetched                      # at the cloud: what readers had fetched, by token")]
pub(crate) struct Sync {
    #[command(flatten)]
    node: NodeArgs,

    #[command(subcommand)]
    command: SyncCommand,
}

#[derive(Debug, Subcommand)]
enum SyncCommand {
    /// Show the state
    Status {
        /// An edge, if the node is a cloud; all of them unless given
        #[arg(value_name = "EDGE")]
        edge: Option<String>,
        /// Show why rows of a stream are here, or not yet: a stream (pumps,site=4), first and last
        /// instant
        #[arg(long, num_args = 3, value_names = ["STREAM", "FROM", "TO"])]
        why: Option<Vec<String>>,
        /// Format of the output
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Compare the copy of the cloud with the edge, both read from their disks
    Verify {
        /// The edge, if the node is a cloud
        #[arg(value_name = "EDGE")]
        edge: Option<String>,
        /// Longest wait for the result; the comparison goes on
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
        timeout: i64,
        /// Format of the output
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Show what a cloud fetched from edges for readers on this day (UTC), and their budgets, by
    /// the ids of their tokens
    Fetched {
        /// Format of the output
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Fetch again what differed in the last comparison
    FetchAgain {
        #[arg(value_name = "EDGE")]
        edge: String,
    },
    /// Pin a span of time: copy all its rows, whatever the subscription says
    Pin {
        #[arg(value_name = "EDGE")]
        edge: String,
        /// Table, and tags that streams must have: pumps,site=4
        #[arg(value_name = "STREAMS")]
        streams: String,
        /// First instant
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        from: Timestamp,
        /// Last instant
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        to: Timestamp,
        /// Lifetime of the pin; until it is removed unless given
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        r#for: Option<i64>,
    },
    /// Remove a pin; rows that were copied stay
    Unpin {
        #[arg(value_name = "EDGE")]
        edge: String,
        #[arg(value_name = "NUMBER")]
        pin: u64,
    },
    /// List the pins of an edge
    Pins {
        #[arg(value_name = "EDGE")]
        edge: String,
    },
    /// Stop sending, or stop fetching from an edge
    Pause {
        /// The edge, if the node is a cloud
        #[arg(value_name = "EDGE")]
        edge: Option<String>,
    },
    /// Resume after a pause
    Resume {
        /// The edge, if the node is a cloud
        #[arg(value_name = "EDGE")]
        edge: Option<String>,
    },
}

impl Sync {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let server = self.node.open()?;
        match self.command {
            SyncCommand::Status { edge, why, format } => match why {
                Some(of) => why::print_why(&server, edge.as_deref(), &of, format),
                None => status(&server, edge.as_deref(), format),
            },
            SyncCommand::Verify {
                edge,
                timeout,
                format,
            } => {
                let timeout = Duration::from_nanos(u64::try_from(timeout).unwrap_or(0));
                verify(&server, edge.as_deref(), timeout, format)
            }
            SyncCommand::Fetched { format } => fetched::fetched(&server, format),
            SyncCommand::FetchAgain { edge } => {
                server.sync(&json!({ "op": "fetch_again", "edge": edge }))?;
                print(&format!(
                    "{edge}: the differing ranges will be fetched again\n"
                ))
            }
            SyncCommand::Pin {
                edge,
                streams,
                from,
                to,
                r#for,
            } => {
                let name = StreamName::parse(&streams).ok_or_else(|| {
                    Failure::usage(format!("`{streams}`: expected table,tag=value"))
                })?;
                let end = |ns| {
                    let end = now().as_nanos().checked_add(ns);
                    end.ok_or_else(|| Failure::usage("--for: the date is out of range"))
                };
                let until = r#for.map(end).transpose()?;
                let tags: BTreeMap<_, _> = name.tags().iter().cloned().collect();
                let answer = server.sync(&json!({
                    "op": "pin", "edge": edge, "table": name.table(), "tags": tags,
                    "from_ns": from.as_nanos(), "to_ns": to.as_nanos(), "until_ns": until,
                }))?;
                let number = answer.number("pin").unwrap_or(0);
                print(&format!("{edge}: pin {number}\n"))
            }
            SyncCommand::Unpin { edge, pin } => {
                server.sync(&json!({ "op": "unpin", "edge": edge, "pin": pin }))?;
                print(&format!("{edge}: pin {pin} was removed\n"))
            }
            SyncCommand::Pins { edge } => {
                print_json(&server.sync(&json!({ "op": "pins", "edge": edge }))?.body)
            }
            SyncCommand::Pause { edge } => paused(&server, "pause", edge),
            SyncCommand::Resume { edge } => paused(&server, "resume", edge),
        }
    }
}

fn paused(server: &Server, op: &str, edge: Option<String>) -> Result<(), Failure> {
    server.sync(&json!({ "op": op, "edge": edge }))?;
    let who = edge.unwrap_or_else(|| "this edge".to_owned());
    print(&format!("{who}: {op}d\n"))
}

const NO_CLOUD: &str =
    "this server is not a cloud: start it with --role cloud, or name another one with --url";

pub(crate) use why::lag_text;

/// The edges of a cloud.
pub(crate) fn edges_of(server: &Server) -> Result<Vec<EdgeStatus>, Failure> {
    let edges = server.sync_status()?.edges;
    edges.ok_or_else(|| Failure::failed(NO_CLOUD))
}

/// Status that one node reports of another.
enum PeerStatus {
    /// A cloud, of an edge.
    Edge(Box<EdgeStatus>),
    /// An edge, of its cloud.
    Cloud(Box<UplinkStatus>),
}

impl PeerStatus {
    fn of(status: NodeStatus, edge: Option<&str>) -> Result<PeerStatus, Failure> {
        if let Some(name) = edge {
            let edges = status.edges.ok_or_else(|| Failure::failed(NO_CLOUD))?;
            let found = edges.into_iter().find(|edge| edge.name == name);
            let found = found.ok_or_else(|| {
                Failure::failed(format!(
                    "there is no edge `{name}`; list the edges with `headwater edges`"
                ))
            })?;
            return Ok(PeerStatus::Edge(Box::new(found)));
        }
        match status.cloud {
            Some(cloud) => Ok(PeerStatus::Cloud(Box::new(cloud))),
            None if status.edges.is_some() => Err(Failure::usage(
                "this server is a cloud: name an edge, such as `headwater sync verify pump-7`",
            )),
            None => Err(Failure::failed(
                "this server is neither edge nor cloud: start it with --role edge or --role cloud",
            )),
        }
    }

    fn verified(&self) -> (bool, Option<VerifiedStatus>) {
        match self {
            PeerStatus::Edge(edge) => (edge.is_verifying, edge.verified),
            PeerStatus::Cloud(cloud) => (cloud.is_verifying, cloud.verified),
        }
    }

    /// Reason why a comparison does not go on now.
    fn obstacle(&self) -> Option<String> {
        let (state, error, quiet) = match self {
            PeerStatus::Edge(edge) => {
                let state = match edge.state {
                    EdgeState::Current | EdgeState::Catching => return None,
                    other => other.name(),
                };
                (state, &edge.error, edge.quiet)
            }
            PeerStatus::Cloud(cloud) => {
                let state = match cloud.state {
                    UplinkState::Connected => return None,
                    UplinkState::NotJoined => "not joined to a cloud",
                    UplinkState::Offline => "offline",
                    UplinkState::Quiet => "quiet",
                    UplinkState::Paused => "paused",
                    UplinkState::Refused => "refused",
                };
                (state, &cloud.error, cloud.quiet)
            }
        };
        let mut text = format!("the edge is {state}");
        if let Some(quiet) = quiet {
            text.push_str(&quiet_text(&quiet));
        }
        if let Some(error) = error {
            text.push_str(&format!(": {}", printable(error)));
        }
        Some(text)
    }

    /// Reason why a comparison may wait while there is a connection.
    fn waits_for(&self) -> &'static str {
        let PeerStatus::Edge(edge) = self else {
            return "the edge answers within its budget";
        };
        let about = edge.about.as_ref();
        let is_spent = |spent: u64, cap: Option<u64>| cap.is_some_and(|cap| spent >= cap);
        match about {
            Some(about) if is_spent(about.sent_this_month, about.month_max) => {
                "the edge has spent the cap of its month"
            }
            Some(about) if is_spent(about.sent_today, about.day_max) => {
                "the edge has spent the cap of its day"
            }
            _ => "the edge answers within its budget",
        }
    }

    fn value(&self) -> Result<Value, Failure> {
        let value = match self {
            PeerStatus::Edge(edge) => serde_json::to_value(edge),
            PeerStatus::Cloud(cloud) => serde_json::to_value(cloud),
        };
        value.map_err(Failure::failed)
    }
}

fn quiet_text(quiet: &QuietStatus) -> String {
    let until = Rfc3339(Timestamp::from_nanos(quiet.until_ns));
    format!(" until {until} ({})", quiet.cause.text())
}

/// Text for the time since an instant.
pub(crate) fn ago(at_ns: Option<i64>) -> String {
    let Some(at) = at_ns else {
        return "never".to_owned();
    };
    let past = now().as_nanos().saturating_sub(at).max(0).unsigned_abs();
    format!("{} ago", why::duration(past / 1_000_000_000))
}

fn status(server: &Server, edge: Option<&str>, format: ListFormat) -> Result<(), Failure> {
    let status = server.sync_status()?;
    let all: Vec<Value> = match (edge, &status.edges) {
        (None, Some(edges)) => {
            let values = edges.iter().map(serde_json::to_value);
            values.collect::<Result<_, _>>().map_err(Failure::failed)?
        }
        _ => vec![PeerStatus::of(status, edge)?.value()?],
    };
    if format == ListFormat::Json {
        return match all.as_slice() {
            [one] if edge.is_some() => print_json(one),
            _ => print_json(&all),
        };
    }
    let mut is_first = true;
    for one in &all {
        if !std::mem::take(&mut is_first) {
            print("\n")?;
        }
        print(&render(
            &[Heading::text("what"), Heading::text("is")],
            &lines(one),
        ))?;
    }
    Ok(())
}

/// Lines for a status: times as how long ago, sizes for reading.
fn lines(status: &Value) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    push_lines(&mut lines, "", status);
    lines
}

fn push_lines(lines: &mut Vec<Vec<String>>, before: &str, status: &Value) {
    let Some(object) = status.as_object() else {
        return;
    };
    for (key, value) in object {
        let name = match before {
            "" => key.clone(),
            _ => format!("{before}.{key}"),
        };
        let shown = match value {
            Value::Null => continue,
            Value::Object(_) => {
                push_lines(lines, &name, value);
                continue;
            }
            _ if key.ends_with("_ns") => ago(value.as_str().and_then(|ns| ns.parse().ok())),
            Value::Number(number) => match number.as_u64() {
                Some(n) if is_size(key) => bytes(n),
                _ => number.to_string(),
            },
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = name.trim_end_matches("_ns").to_owned();
        lines.push(vec![name, shown]);
    }
}

fn is_size(key: &str) -> bool {
    key.ends_with("bytes")
        || matches!(
            key,
            "rate"
                | "day_max"
                | "month_max"
                | "sent_today"
                | "sent_this_month"
                | "equal"
                | "different"
                | "missing"
        )
}

/// Waits for the result of a comparison.
fn compared(
    server: &Server,
    edge: Option<&str>,
    timeout: Duration,
) -> Result<VerifiedStatus, Failure> {
    let begun = Instant::now();
    loop {
        let status = PeerStatus::of(server.sync_status()?, edge)?;
        let (is_verifying, found) = status.verified();
        if let Some(found) = found {
            return Ok(found);
        }
        if let Some(why) = status.obstacle() {
            return Err(Failure::failed(format!(
                "the comparison is not complete: {why}; try again once the edge is connected"
            )));
        }
        if !is_verifying {
            return Err(Failure::failed(
                "the connection ended before the comparison was complete; try again once the edge is connected",
            ));
        }
        if begun.elapsed() >= timeout {
            return Err(Failure::failed(format!(
                "the comparison is not complete after {} s: {}; it goes on, and `headwater sync status` will show its result",
                timeout.as_secs(),
                status.waits_for()
            )));
        }
        std::thread::sleep(LOOK);
    }
}

fn verify(
    server: &Server,
    edge: Option<&str>,
    timeout: Duration,
    format: ListFormat,
) -> Result<(), Failure> {
    let status = PeerStatus::of(server.sync_status()?, edge)?;
    if let Some(why) = status.obstacle() {
        return Err(Failure::failed(format!(
            "there is nothing to compare with now: {why}"
        )));
    }
    server.sync(&json!({ "op": "verify", "edge": edge }))?;
    let found = compared(server, edge, timeout)?;
    if format == ListFormat::Json {
        print_json(&found)?;
    } else {
        print(&format!(
            "equal      {}\ndifferent  {}\nmissing    {}\n",
            bytes(found.equal),
            bytes(found.different),
            bytes(found.missing)
        ))?;
    }
    match (found.different, found.missing) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::failed(
            "subscribed bytes are missing: they are on their way, or wait for the budget",
        )),
        _ => Err(Failure::failed(
            "edge and cloud differ: `headwater check` on both shows which one is damaged; `headwater sync fetch-again EDGE` fetches from the edge what differs",
        )),
    }
}
