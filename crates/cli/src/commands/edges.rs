//! `headwater edges`: the edges of a cloud.

use crate::arguments::{parse_duration, parse_size};
use crate::commands::sync::{ListFormat, NodeArgs, ago, edges_of};
use crate::failure::Failure;
use crate::grid::{Heading, bytes, render};
use crate::output::{print, print_json};
use crate::server::Server;
use clap::{Args, Subcommand};
use headwater::StreamName;
use headwater_fleet::{EdgeStatus, PrefetchPolicy, PrefetchScore, StreamShare, WantRule};
use serde_json::json;
use std::path::PathBuf;

/// List, invite and remove the edges of a cloud
#[derive(Debug, Args)]
#[command(after_help = "\
Asks a server that runs with --role cloud. An edge that was removed may not connect any more; its copy is put aside, not
removed. docs/cluster/README.md goes from nothing to ten gateways.

Examples:
  headwater edges                                     # how it stands with each
  headwater edges add pump-7 --at https://cloud.example:7373
  headwater edges add pump-8 --want summaries:12      # no rows, only what tiles from level 12 on need
  headwater edges relay pump-7 hwjoin1.eyJ1cmwi…      # pass it on to another cloud, which printed that
  headwater edges remove pump-7")]
pub(crate) struct Edges {
    #[command(flatten)]
    node: NodeArgs,

    /// Format of the list
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,

    #[command(subcommand)]
    command: Option<EdgesCommand>,
}

#[derive(Debug, Subcommand)]
enum EdgesCommand {
    /// List the edges and how it stands with each (also without `list`)
    List,
    /// Invite an edge: prints the text for `headwater join`, which is kept nowhere
    Add {
        /// Name of the edge here: letters, digits, `-`, `_` and `.`
        #[arg(value_name = "NAME")]
        name: String,
        /// Address under which the edge reaches this cloud; that of --url unless given
        #[arg(long, value_name = "URL")]
        at: Option<String>,
        /// Subscription to it: full (all rows), or summaries:LEVEL
        #[arg(long, value_name = "WANT", value_parser = parse_want)]
        want: Option<StreamShare>,
        /// Validity of the invitation
        #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
        valid: i64,
        /// Certificate that the edge verifies this cloud by, where systems do not trust it anyway
        #[arg(long, value_name = "FILE")]
        edge_ca: Option<PathBuf>,
        /// Invite the machine behind a name again, as when it was replaced
        #[arg(long)]
        again: bool,
    },
    /// Take an edge out: it may not connect any more, and its copy is put aside
    Remove {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Say where clients reach an edge themselves, so that a dispatcher may send them there
    Address {
        #[arg(value_name = "NAME")]
        name: String,
        /// Such as https://pump-7.example:7373; without it the address is taken away
        #[arg(value_name = "URL")]
        address: Option<String>,
        /// Browsers may be sent there too: the certificate is valid for all, and the edge lists the
        /// origin of the dispatcher's page (cors.origins)
        #[arg(long, requires = "address")]
        browsers: bool,
    },
    /// Want something else of an edge
    Want {
        #[arg(value_name = "NAME")]
        name: String,
        /// full (all rows), summaries:LEVEL, or nothing
        #[arg(value_name = "WANT", value_parser = parse_want)]
        want: StreamShare,
        /// Subscription to some streams, such as 'pumps,site=4 full' or '* summaries:8 5' (the
        /// number is a priority); the first that fits decides, what stands before where none does
        #[arg(long, value_name = "RULE", value_parser = parse_rule)]
        rule: Vec<WantRule>,
    },
    /// Keep what an edge cuts away because of its age (retention, raw_for) for so long beyond that
    Keep {
        #[arg(value_name = "NAME")]
        name: String,
        /// forever (the default of every edge), or a duration such as 90d; 0s = not at all
        #[arg(value_name = "HOW LONG", value_parser = parse_retention)]
        retention: RetentionArg,
    },
    /// Say what is copied of an edge before somebody asks for it, and in which order
    Migrate(Migrate),
    /// Pass an edge on to another cloud, to which this one is its edge then
    Relay(Relay),
}

#[derive(Debug, Args)]
struct Migrate {
    #[arg(value_name = "NAME")]
    name: String,
    /// none; periodic: the overview, coarse before fine, then rows in their order; deviation:
    /// the overview, then rows by score; both: those two in turn; shares: all at once, each
    /// with a share of what travels
    #[arg(long, default_value = "shares", value_parser = parse_policy)]
    policy: PrefetchPolicy,
    /// Which rows go first: deviation, spread, events, or misses
    #[arg(long, default_value = "deviation", value_parser = parse_score)]
    score: PrefetchScore,
    /// Copy so many bytes of rows ahead, of streams of which only summaries are wanted
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
        print(&format!("{}: copied so from now on\n", self.name))
    }
}

#[derive(Debug, Args)]
struct Relay {
    #[arg(value_name = "NAME")]
    name: String,
    /// Text that `headwater edges add` printed at the other cloud; it is worth one joining
    #[arg(value_name = "INVITATION", required_unless_present_any = ["new_incarnation", "stop"])]
    invitation: Option<String>,
    /// Address of the other cloud, where this one reaches it under another than the invitation
    /// names
    #[arg(long, value_name = "URL", requires = "invitation")]
    to: Option<String>,
    /// Certificate of the other cloud, or of its issuer, in PEM
    #[arg(long, value_name = "FILE", requires = "invitation")]
    to_ca: Option<PathBuf>,
    /// Ask the edge for what the other cloud wants and this one has not
    #[arg(long, requires = "invitation")]
    fetch: bool,
    /// Have the other cloud put aside what it has of the edge, and begin again
    #[arg(long)]
    new_incarnation: bool,
    /// Pass it on no more; what the other cloud has stays there
    #[arg(long, conflicts_with_all = ["invitation", "new_incarnation"])]
    stop: bool,
}

impl Relay {
    fn run(self, server: &Server) -> Result<(), Failure> {
        let name = &self.name;
        if self.stop {
            server.sync(&json!({ "op": "stop_relay", "edge": name }))?;
            return print(&format!("{name}: not passed on any more\n"));
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
        print(&format!("{name}: passed on from now on\n"))
    }
}

/// Time for which data is retained: seconds, or for ever.
#[derive(Clone, Copy, Debug)]
struct RetentionArg(Option<u64>);

fn parse_retention(text: &str) -> Result<RetentionArg, String> {
    if text == "forever" {
        return Ok(RetentionArg(None));
    }
    let nanos = parse_duration(text).map_err(|e| format!("{e}; or forever"))?;
    Ok(RetentionArg(Some(nanos.unsigned_abs() / 1_000_000_000)))
}

fn parse_want(text: &str) -> Result<StreamShare, String> {
    match text {
        "full" => return Ok(StreamShare::Full),
        "nothing" => return Ok(StreamShare::Nothing),
        _ => {}
    }
    let level = text.strip_prefix("summaries:");
    level
        .and_then(|level| level.parse().ok())
        .map(StreamShare::Summaries)
        .ok_or_else(|| "expected full, nothing, or summaries:LEVEL such as summaries:12".to_owned())
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
            Some(EdgesCommand::Add {
                name,
                at,
                want,
                valid,
                edge_ca,
                again,
            }) => {
                let ca = edge_ca.as_ref().map(|path| {
                    let read = std::fs::read_to_string(path);
                    read.map_err(|e| Failure::usage(format!("--edge-ca {}: {e}", path.display())))
                });
                let asked = json!({
                    "op": "add_edge", "edge": name, "again": again,
                    "want": want, "ca": ca.transpose()?,
                    "url": at.unwrap_or_else(|| self.node.url.clone()),
                    "valid_seconds": valid.unsigned_abs() / 1_000_000_000,
                });
                let answer = server.sync(&asked)?;
                print(&format!(
                    "{}\n",
                    answer.text("invitation").unwrap_or_default()
                ))?;
                eprintln!(
                    "This is the only time it is shown. At the edge: headwater join INVITATION --db DIR"
                );
                Ok(())
            }
            Some(EdgesCommand::Remove { name }) => {
                server.sync(&json!({ "op": "remove_edge", "edge": name }))?;
                print(&format!("removed {name}: its copy is put aside\n"))
            }
            Some(EdgesCommand::Keep {
                name,
                retention: RetentionArg(seconds),
            }) => {
                server.sync(&json!({ "op": "keep", "edge": name, "seconds": seconds }))?;
                print(&format!("{name}: kept so from now on\n"))
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
                print(&format!("{name}: wanted from now on\n"))
            }
        }
    }
}

/// A subscription, as the command line writes it.
fn said(want: StreamShare) -> String {
    match want {
        StreamShare::Full => "full".to_owned(),
        StreamShare::Summaries(level) => format!("summaries:{level}"),
        StreamShare::Nothing => "nothing".to_owned(),
    }
}

fn cells(edge: &EdgeStatus) -> Vec<String> {
    let size = |value: Option<u64>| value.map_or_else(String::new, bytes);
    let (copy, about) = (edge.copy.as_ref(), edge.about.as_ref());
    vec![
        edge.name.clone(),
        edge.state.name().to_owned(),
        said(edge.want),
        ago(edge.heard_ns),
        ago(edge.current_ns),
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
        Heading::number("here"),
        Heading::number("missing"),
        Heading::number("sent today"),
        Heading::number("of"),
        Heading::number("written"),
        Heading::text("version"),
    ];
    let rows: Vec<Vec<String>> = edges.iter().map(cells).collect();
    print(&render(&headings, &rows))?;
    for edge in edges {
        if let Some(error) = &edge.error {
            eprintln!("headwater: {}: {error}", edge.name);
        }
    }
    Ok(())
}
