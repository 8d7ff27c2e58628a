//! `headwater watch`: the watches of a server, their matches, and matches that a web hook did not
//! take.
//!
//! Invariant: `follow` prints each event once as long as the server keeps it: after a cut it goes
//! on behind the last one that it printed, and says on stderr what it missed.

use crate::commands::sync::{ListFormat, NodeArgs};
use crate::failure::Failure;
use crate::grid::{Heading, grouped, render};
use crate::http::encoded;
use crate::output::{Output, print, print_json};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::time::Duration;

/// Between a connection that ended and the next.
const PAUSE: Duration = Duration::from_secs(1);

/// List the watches of a server, follow the events of one, and show or resend its failed web hooks
#[derive(Debug, Args)]
#[command(after_help = "\
Watches are created and dropped with SQL: CREATE WATCH, DROP WATCH. See docs/watches.md.

Examples:
  headwater watch list
  headwater watch follow dry --after 17
  headwater watch dead dry --retry")]
pub(crate) struct Watch {
    #[command(flatten)]
    node: NodeArgs,

    #[command(subcommand)]
    command: WatchCommand,
}

#[derive(Debug, Subcommand)]
enum WatchCommand {
    /// List the watches and their state
    List {
        /// Format of the list
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Print the events of a watch, one per line, until stopped
    Follow {
        /// The watch
        #[arg(value_name = "NAME")]
        name: String,
        /// Start after this event: its number, or the id that the server sent with it
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Most events to print
        #[arg(long, value_name = "COUNT")]
        limit: Option<u64>,
    },
    /// Print the events that the web hook of a watch did not accept
    Dead {
        /// The watch
        #[arg(value_name = "NAME")]
        name: String,
        /// Send them again
        #[arg(long)]
        retry: bool,
    },
}

impl Watch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            WatchCommand::List { format } => list(&self.node, format),
            WatchCommand::Follow { name, after, limit } => follow(&self.node, &name, after, limit),
            WatchCommand::Dead { name, retry } => dead(&self.node, &name, retry),
        }
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/api/v1/watches/{}/{rest}", encoded(name))
}

fn list(node: &NodeArgs, format: ListFormat) -> Result<(), Failure> {
    let answer = node.open()?.get_json("/api/v1/watches")?;
    if format == ListFormat::Json {
        return print_json(&answer);
    }
    let all = answer.get("watches").and_then(Value::as_array);
    let text = |of: &Value, key: &str| match of.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.as_u64().map_or_else(|| number.to_string(), grouped),
        _ => "-".to_owned(),
    };
    let rows = all.into_iter().flatten().map(|watch| {
        let stopped = watch.get("stopped").map(|why| text(why, "message"));
        let failure = watch.get("hook").map(|hook| text(hook, "failure"));
        let dead = watch.get("hook").map(|hook| text(hook, "dead"));
        vec![
            text(watch, "name"),
            text(watch, "table"),
            text(watch, "state"),
            text(watch, "sequence"),
            text(watch, "live"),
            dead.unwrap_or_else(|| "-".to_owned()),
            stopped.or(failure).unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let headings = [
        Heading::text("watch"),
        Heading::text("table"),
        Heading::text("state"),
        Heading::number("events"),
        Heading::number("live"),
        Heading::number("dead"),
        Heading::text("why"),
    ];
    print(&render(&headings, &rows))
}

fn follow(
    node: &NodeArgs,
    name: &str,
    mut after: Option<String>,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let server = node.open()?;
    let mut left = limit.unwrap_or(u64::MAX);
    let mut out = Output::new();
    while left > 0 {
        let query = after.as_ref().map(|after| format!("?after={after}"));
        let asked = path(name, &format!("events{}", query.unwrap_or_default()));
        let mut id = None;
        let mut is_gap = false;
        let ended = server.lines(&asked, |line| {
            if let Some(known) = line.strip_prefix("id: ") {
                id = Some(known.to_owned());
            } else if let Some(kind) = line.strip_prefix("event: ") {
                is_gap = kind == "gap";
            } else if let Some(data) = line.strip_prefix("data: ") {
                if is_gap {
                    eprintln!("events are missing here: {data}");
                } else {
                    out.buffer.extend_from_slice(data.as_bytes());
                    out.buffer.push(b'\n');
                    out.flush()?;
                    left -= 1;
                }
            } else if line.is_empty() && id.is_some() {
                after = id.take();
            }
            Ok(left > 0)
        });
        ended?;
        if left > 0 {
            std::thread::sleep(PAUSE);
        }
    }
    out.finish()
}

fn dead(node: &NodeArgs, name: &str, retry: bool) -> Result<(), Failure> {
    let server = node.open()?;
    if retry {
        let answered = server.send(&path(name, "retry"), b"", &[])?;
        return match answered.status {
            200 => print_json(&answered.body),
            _ => Err(answered.failure()),
        };
    }
    print_json(&server.get_json(&path(name, "dead"))?)
}
