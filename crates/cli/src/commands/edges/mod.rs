//! `headwater edges`: the edges of a cloud.

mod add;
mod certificates;
mod conflicts;
mod list;
mod naming;
mod parts;

use crate::arguments::{parse_duration, parse_size};
use crate::commands::sync::{ListFormat, NodeArgs, ago, edges_of, lag_text};
use crate::failure::Failure;
use crate::grid::{Heading, bytes, printable, render};
use crate::output::{print, print_json};
use crate::server::Server;
use clap::{Args, Subcommand};
use headwater::StreamName;
use headwater_cluster::{EdgeStatus, PrefetchPolicy, PrefetchScore, StreamShare, WantRule};
use serde_json::json;
use std::path::PathBuf;

/// List, invite and remove the edges of a cloud
#[derive(Debug, Args)]
#[command(after_help = "\
Needs a server that runs with --role cloud. The copy of an edge that was replaced or removed becomes a closed part: it is
still in answers. See docs/cluster/gateways.md.

Examples:
  headwater edges                                     # the state of each
  headwater edges add pump-7 --at https://cloud.example:7373
  headwater edges add pump-8 --want summaries:12      # no rows, only what tiles from level 12 on need
  headwater edges add --from gateways.csv --invitations invited.tsv   # all of them, or none
  headwater edges relay pump-7 hwjoin1.eyJ1cmwi…      # relay it to another cloud, which printed that
  headwater edges replace pump-7                      # a new machine: prints the text for its join
  headwater edges rename pump-7 north-7
  headwater edges remove pump-7 --yes                 # its history stays as a closed part
  headwater edges move cpu,host=gw --from a --to b    # which rows count, where both have some
  headwater edges tag pump-7 gateway                  # cpu,host=gw is cpu,gateway=pump-7,host=gw here
  headwater edges certificates                        # may the former certificate of the cloud go?
  headwater edges parts                               # all copies, also closed ones
  headwater edges undo 4                              # a change of `headwater edges log`")]
pub(crate) struct Edges {
    #[command(flatten)]
    node: NodeArgs,

    /// Format of lists
    #[arg(long, value_enum, default_value_t = ListFormat::Table, global = true)]
    format: ListFormat,

    #[command(subcommand)]
    command: Option<EdgesCommand>,
}

#[derive(Debug, Subcommand)]
enum EdgesCommand {
    /// List the edges and their state (also without `list`)
    List,
    /// Invite an edge, or each edge of a file: prints the text for `headwater join`, which is not
    /// stored
    Add(Box<add::Add>),
    /// Put another edge, or a new machine, in the place of an edge; its history stays in answers
    Replace(parts::Replace),
    /// Rename an edge
    Rename(parts::Rename),
    /// Remove an edge: it can no longer connect, and its copy becomes a closed part
    Remove(parts::Remove),
    /// List all copies: of edges, and closed parts
    Parts(parts::Parts),
    /// List streams that several edges have in the same stretch of time, and how many rows are
    /// hidden
    Conflicts,
    /// List which edges have the next certificates of this cloud (tls.next_ca), so that the former
    /// one may go
    Certificates,
    /// Declare that streams went from one edge to another, for streams that both have
    Move(naming::Move),
    /// Add tags to the names of all streams of an edge, wherever this cloud shows them
    Tag(naming::Tag),
    /// List the changes of names, tags, replacements, moves and removals, by their numbers
    Log,
    /// Undo a rename, a replacement, a move, a tag, or a removal without history
    Undo(parts::Undo),
    /// Give an edge its next key; the key before ends once the edge has stored the next one
    RotateKey {
        #[arg(value_name = "NAME", required_unless_present = "all")]
        name: Option<String>,
        /// All edges that have a key
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Set the address at which clients reach an edge, so that a dispatcher can redirect them there
    Address {
        #[arg(value_name = "NAME")]
        name: String,
        /// Such as https://pump-7.example:7373; without it the address is removed
        #[arg(value_name = "URL")]
        address: Option<String>,
        /// Redirect browsers there too: its certificate is publicly trusted, and the edge lists the
        /// origin of the dispatcher's page (cors.origins)
        #[arg(long, requires = "address")]
        browsers: bool,
    },
    /// Change the subscription to an edge
    Want {
        #[arg(value_name = "NAME")]
        name: String,
        /// full (all rows), summaries:LEVEL, or nothing
        #[arg(value_name = "WANT", value_parser = parse_want)]
        want: StreamShare,
        /// Subscription to some streams, such as 'pumps,site=4 full' or '* summaries:8 5' (the
        /// number is a priority); the first matching rule decides, the value before them otherwise
        #[arg(long, value_name = "RULE", value_parser = parse_rule)]
        rule: Vec<WantRule>,
    },
    /// Set for how long rows are retained after an edge removed them by age (retention, raw_for)
    Keep {
        #[arg(value_name = "NAME")]
        name: String,
        /// forever (the default of every edge), or a duration such as 90d; 0s = not at all
        #[arg(value_name = "HOW LONG", value_parser = parse_retention)]
        retention: RetentionArg,
    },
    /// Set what is copied of an edge before it is queried, and in which order
    Migrate(Migrate),
    /// Relay an edge to another cloud, for which this one acts as the edge
    Relay(Relay),
}

#[derive(Debug, Args)]
struct Migrate {
    #[arg(value_name = "NAME")]
    name: String,
    /// none; periodic: the overview, coarse before fine, then rows in their order; deviation:
    /// the overview, then rows by score; both: those two in turn; shares: all at once, each
    /// with a share of the bandwidth
    #[arg(long, default_value = "shares", value_parser = parse_policy)]
    policy: PrefetchPolicy,
    /// Which rows go first: deviation, spread, events, or misses
    #[arg(long, default_value = "deviation", value_parser = parse_score)]
    score: PrefetchScore,
    /// Bytes of rows to copy ahead, of streams with a subscription to summaries only
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    ahead: usize,
}

impl Migrate {
    fn run(&self, server: &Server) -> Result<(), Failure> {
        let asked = json!({
            "op": "migrate", "edge": self.name, "policy": self.policy, "score": self.score,
            "ahead_bytes": self.ahead,
        });
        server.sync(&asked)?;
        print(&format!("{}: prefetch policy changed\n", self.name))
    }
}

#[derive(Debug, Args)]
struct Relay {
    #[arg(value_name = "NAME")]
    name: String,
    /// Text that `headwater edges add` printed at the other cloud; it can be used once
    #[arg(value_name = "INVITATION", required_unless_present_any = ["new_incarnation", "stop"])]
    invitation: Option<String>,
    /// Address of the other cloud, where this one reaches it under another than the invitation
    /// names
    #[arg(long, value_name = "URL", requires = "invitation")]
    to: Option<String>,
    /// Certificate of the other cloud, or of its issuer, in PEM
    #[arg(long, value_name = "FILE", requires = "invitation")]
    to_ca: Option<PathBuf>,
    /// Fetch from the edge what the other cloud subscribes to and this one does not have
    #[arg(long, requires = "invitation")]
    fetch: bool,
    /// Make the other cloud close its copy of the edge and start a new one
    #[arg(long)]
    new_incarnation: bool,
    /// Stop relaying it; the copy of the other cloud stays there
    #[arg(long, conflicts_with_all = ["invitation", "new_incarnation"])]
    stop: bool,
}

impl Relay {
    fn run(self, server: &Server) -> Result<(), Failure> {
        let name = &self.name;
        if self.stop {
            server.sync(&json!({ "op": "stop_relay", "edge": name }))?;
            return print(&format!("{name}: no longer relayed\n"));
        }
        let ca = self.to_ca.as_ref().map(|path| {
            let read = std::fs::read_to_string(path);
            read.map_err(|e| Failure::usage(format!("--to-ca {}: {e}", path.display())))
        });
        let asked = json!({
            "op": "relay", "edge": name, "invitation": self.invitation, "url": self.to,
            "ca": ca.transpose()?, "fetch": self.fetch, "new_incarnation": self.new_incarnation,
        });
        server.sync(&asked)?;
        print(&format!("{name}: relayed from now on\n"))
    }
}

/// Time for which data is retained: seconds, or for ever.
#[derive(Clone, Copy, Debug)]
struct RetentionArg(Option<u64>);

fn parse_retention(text: &str) -> Result<RetentionArg, String> {
    if text == "forever" {
        return Ok(RetentionArg(None));
    }
    if text == "0s" {
        return Ok(RetentionArg(Some(0)));
    }
    let nanos = parse_duration(text).map_err(|e| format!("{e}; or forever"))?;
    Ok(RetentionArg(Some(nanos.unsigned_abs() / 1_000_000_000)))
}

fn parse_want(text: &str) -> Result<StreamShare, String> {
    text.parse()
}

/// Reads `TABLE[,tag=value…] WANT [PRIORITY]`.
fn parse_rule(text: &str) -> Result<WantRule, String> {
    let expected = || "expected a rule such as 'pumps,site=4 full' or '* summaries:8 5'".to_owned();
    let (rest, priority) = match text.rsplit_once(' ') {
        Some((rest, last)) if last.parse::<u8>().is_ok() => (rest, last.parse().unwrap_or(0)),
        _ => (text, 0),
    };
    let (pattern, want) = rest.rsplit_once(' ').ok_or_else(expected)?;
    let name = StreamName::parse(pattern).ok_or_else(expected)?;
    Ok(WantRule {
        table: (name.table() != "*").then(|| name.table().to_owned()),
        tags: name.tags().iter().cloned().collect(),
        want: parse_want(want)?,
        priority,
    })
}

/// The one of some names that a text is.
fn named<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text);
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let found = found.map(|(_, value)| *value);
    found.ok_or_else(|| format!("expected one of {}", names().join(", ")))
}

fn parse_policy(text: &str) -> Result<PrefetchPolicy, String> {
    named(text, &PrefetchPolicy::ALL)
}

fn parse_score(text: &str) -> Result<PrefetchScore, String> {
    named(text, &PrefetchScore::ALL)
}

impl Edges {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let server = self.node.open()?;
        match self.command {
            None | Some(EdgesCommand::List) => list(&edges_of(&server)?, self.format),
            Some(EdgesCommand::Add(add)) => add.run(&server, &self.node.url),
            Some(EdgesCommand::Replace(replace)) => replace.run(&server, &self.node.url),
            Some(EdgesCommand::Rename(rename)) => rename.run(&server),
            Some(EdgesCommand::Remove(remove)) => remove.run(&server),
            Some(EdgesCommand::Parts(parts)) => parts.run(&server, self.format),
            Some(EdgesCommand::Conflicts) => conflicts::list(&server, self.format),
            Some(EdgesCommand::Certificates) => {
                certificates::list(&edges_of(&server)?, self.format)
            }
            Some(EdgesCommand::Move(moved)) => moved.run(&server),
            Some(EdgesCommand::Tag(tag)) => tag.run(&server),
            Some(EdgesCommand::Log) => parts::log(&server, self.format),
            Some(EdgesCommand::Undo(undo)) => undo.run(&server),
            Some(EdgesCommand::RotateKey { name, all: _ }) => rotate_key(&server, name.as_deref()),
            Some(EdgesCommand::Keep {
                name,
                retention: RetentionArg(seconds),
            }) => {
                server.sync(&json!({ "op": "keep", "edge": name, "seconds": seconds }))?;
                print(&format!("{name}: retention changed\n"))
            }
            Some(EdgesCommand::Migrate(migrate)) => migrate.run(&server),
            Some(EdgesCommand::Relay(relay)) => relay.run(&server),
            Some(EdgesCommand::Address {
                name,
                address,
                browsers,
            }) => {
                let said = match &address {
                    Some(address) => format!("{name}: clients reach it at {address}\n"),
                    None => format!("{name}: clients reach it through this cloud only\n"),
                };
                let address = address.map(|url| json!({ "url": url, "for_browsers": browsers }));
                server.sync(&json!({ "op": "address", "edge": name, "address": address }))?;
                print(&said)
            }
            Some(EdgesCommand::Want { name, want, rule }) => {
                server.sync(&json!({ "op": "want", "edge": name, "want": want, "rules": rule }))?;
                print(&format!("{name}: subscription changed\n"))
            }
        }
    }
}

/// Has edges get a next key: one of them, or all.
fn rotate_key(server: &Server, name: Option<&str>) -> Result<(), Failure> {
    let answer = server.sync(&json!({ "op": "rotate_keys", "edge": name }))?;
    let count = answer.number("edges").unwrap_or(0);
    print(&format!(
        "{count} edges get their next key when they are connected\n"
    ))
}

/// A subscription, as the command line writes it.
fn share_text(want: StreamShare) -> String {
    want.to_string()
}

fn cells(edge: &EdgeStatus) -> Vec<String> {
    let size = |value: Option<u64>| value.map_or_else(String::new, bytes);
    let (copy, about) = (edge.copy.as_ref(), edge.about.as_ref());
    vec![
        edge.name.clone(),
        edge.state.name().to_owned(),
        share_text(edge.want),
        ago(edge.heard_ns),
        ago(edge.current_ns),
        lag_text(&edge.lag),
        size(copy.map(|copy| copy.bytes)),
        size(copy.map(|copy| copy.missing_bytes)),
        size(about.map(|about| about.sent_today)),
        size(about.and_then(|about| about.day_max)),
        size(about.map(|about| about.written_bytes)),
        about.map_or_else(String::new, |about| about.version.clone()),
    ]
}

fn list(edges: &[EdgeStatus], format: ListFormat) -> Result<(), Failure> {
    if format == ListFormat::Json {
        return print_json(&edges);
    }
    if edges.is_empty() {
        eprintln!("headwater: there are no edges; `headwater edges add NAME` invites one");
    }
    let headings = [
        Heading::text("edge"),
        Heading::text("state"),
        Heading::text("want"),
        Heading::text("heard"),
        Heading::text("current"),
        Heading::text("lag"),
        Heading::number("here"),
        Heading::number("missing"),
        Heading::number("sent today"),
        Heading::number("of"),
        Heading::number("written"),
        Heading::text("version"),
    ];
    let mut headings = headings.to_vec();
    let mut rows: Vec<Vec<String>> = edges.iter().map(cells).collect();
    if edges.iter().any(|edge| !edge.tags.is_empty()) {
        headings.push(Heading::text("tags"));
        for (row, edge) in rows.iter_mut().zip(edges) {
            row.push(printable(&naming::text(&edge.tags)));
        }
    }
    print(&render(&headings, &rows))?;
    for edge in edges {
        if let Some(error) = &edge.error {
            eprintln!("headwater: {}: {}", edge.name, printable(error));
        }
        if let Some(conflicts) = &edge.conflicts {
            eprintln!("headwater: {}: {}", edge.name, conflicts::text(conflicts));
        }
    }
    Ok(())
}
