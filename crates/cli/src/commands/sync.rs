//! `headwater sync`: how it stands between an edge and its cloud, at either side.

use crate::arguments::{parse_duration, parse_time};
use crate::failure::Failure;
use crate::grid::{Heading, bytes, render};
use crate::http::agent;
use crate::output::{print, print_json};
use crate::server::{Server, TIMEOUT};
use clap::{Args, Subcommand, ValueEnum};
use headwater::{StreamName, Timestamp};
use headwater_fleet::{EdgeStatus, NodeStatus, UplinkStatus, VerifiedStatus};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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

/// Say how an edge and its cloud stand, compare them, pause
#[derive(Debug, Args)]
#[command(after_help = "\
Asks the server of an edge, or that of a cloud about an edge: name it then. `verify` reads both media, prints how many bytes
are equal, different and missing, and fails unless all that is wanted is there and equal.

Examples:
  headwater sync status                       # at the edge
  headwater sync status pump-7 --url https://cloud.example:7373
  headwater sync verify pump-7")]
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
        /// Format of the output
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Compare what the cloud has with what the edge has, both read from their media
    Verify {
        /// The edge, if the node is a cloud
        #[arg(value_name = "EDGE")]
        edge: Option<String>,
        /// Format of the output
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Fetch again what the newest comparison found to differ
    FetchAgain {
        #[arg(value_name = "EDGE")]
        edge: String,
    },
    /// Want all rows of a stretch of time, whatever the rules say
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
    /// Take a pin away; what has come stays
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
    /// Send nothing any more, or ask an edge for nothing any more
    Pause {
        /// The edge, if the node is a cloud
        #[arg(value_name = "EDGE")]
        edge: Option<String>,
    },
    /// Go on after a pause
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
            SyncCommand::Status { edge, format } => status(&server, edge.as_deref(), format),
            SyncCommand::Verify { edge, format } => verify(&server, edge.as_deref(), format),
            SyncCommand::FetchAgain { edge } => {
                server.sync(&json!({ "op": "fetch_again", "edge": edge }))?;
                print(&format!("{edge}: what differs is fetched again\n"))
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
                let now = jiff::Timestamp::now().as_nanosecond();
                let until = r#for.map(|ns| i64::try_from(now + i128::from(ns)));
                let until = until.transpose().map_err(Failure::failed)?;
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
                print(&format!("{edge}: pin {pin} is taken away\n"))
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
    "this server is no cloud: start it with --role cloud, or name another with --url";

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
                    "there is no edge `{name}`; `headwater edges` lists those there are"
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

    fn value(&self) -> Result<Value, Failure> {
        let value = match self {
            PeerStatus::Edge(edge) => serde_json::to_value(edge),
            PeerStatus::Cloud(cloud) => serde_json::to_value(cloud),
        };
        value.map_err(Failure::failed)
    }
}

/// Text for the time since an instant.
pub(crate) fn ago(at_ns: Option<i64>) -> String {
    let Some(at) = at_ns else {
        return "never".to_owned();
    };
    let now = jiff::Timestamp::now().as_nanosecond();
    let seconds = (now - i128::from(at)).max(0) / 1_000_000_000;
    match seconds {
        0..=119 => format!("{seconds} s ago"),
        120..=7_199 => format!("{} min ago", seconds / 60),
        7_200..=172_799 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
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

fn verify(server: &Server, edge: Option<&str>, format: ListFormat) -> Result<(), Failure> {
    PeerStatus::of(server.sync_status()?, edge)?;
    server.sync(&json!({ "op": "verify", "edge": edge }))?;
    let found = loop {
        match PeerStatus::of(server.sync_status()?, edge)?.verified() {
            (_, Some(found)) => break found,
            (true, None) => std::thread::sleep(LOOK),
            (false, None) => {
                return Err(Failure::failed(
                    "the connection ended before the comparison was through; try again once it is there",
                ));
            }
        }
    };
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
            "something is missing that is wanted: it is on its way, or waits for the budget",
        )),
        _ => Err(Failure::failed(
            "the two differ: `headwater check` at both sides says which is damaged; `headwater sync fetch-again EDGE` fetches from the edge what differs",
        )),
    }
}
