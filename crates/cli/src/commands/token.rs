//! `headwater token`: access to a served database.

use crate::arguments::{parse_duration, parse_size};
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{print, print_json};
use clap::{Args, Subcommand, ValueEnum};
use headwater_server::rules::{AccessRule, Action, Pattern};
use headwater_server::tokens::{FetchLimit, Grant, NewToken, TokenFile};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Create, list and revoke the tokens of a served database
#[derive(Debug, Args)]
#[command(after_help = "\
Works while a server runs, which applies changes within a second. From the first token on, every request to the server needs
one, also after the last one was revoked. Patterns are tables and tags: `weather`, `weather,origin=E*`, `*`. See
docs/operate/security.md.")]
pub(crate) struct Token {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

impl Token {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            TokenCommand::Create(create) => create.run(),
            TokenCommand::List(list) => list.run(),
            TokenCommand::Revoke(revoke) => revoke.run(),
        }
    }
}

#[derive(Debug, Args)]
struct TokenFileArgs {
    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: PathBuf,
}

impl TokenFileArgs {
    fn file(&self) -> TokenFile {
        TokenFile::of_database(&self.db)
    }
}

fn parse_pattern(text: &str) -> Result<Pattern, String> {
    text.parse()
        .map_err(|error: headwater_server::rules::RuleError| error.to_string())
}

/// Create a token and print it: it is shown only once, and not stored
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headwater token create --db my.db --name admin --read '*' --write '*' --manage '*'
  headwater token create --db my.db --name station --write 'weather,origin=EWR'
  headwater token create --db my.db --name board --read weather --read 'pumps,site=north' --expires 90d
  headwater token create --db cloud.db --name page --read '*' --fetch-per-day 50MiB
  headwater token create --db my.db --name prometheus      # without rules: only /metrics")]
struct Create {
    #[command(flatten)]
    args: TokenFileArgs,

    /// Name of the token, which must be unique
    #[arg(long, value_name = "NAME")]
    name: String,

    /// Streams it may read; may be given more than once
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    read: Vec<Pattern>,

    /// Streams it may write
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    write: Vec<Pattern>,

    /// Streams it may manage
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    manage: Vec<Pattern>,

    /// Validity, such as 90d; for ever if not given
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<i64>,

    /// Most bytes that a cloud fetches from edges for it on one day, such as 10MiB, or unlimited;
    /// as the setting cloud.fetch_per_day of the cloud if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_fetch_limit)]
    fetch_per_day: Option<FetchLimit>,
}

fn parse_fetch_limit(text: &str) -> Result<FetchLimit, String> {
    match text {
        "unlimited" => Ok(FetchLimit::Unlimited),
        _ => {
            let bytes = parse_size(text).map_err(|e| format!("{e}; or unlimited"))?;
            let bytes = u64::try_from(bytes).map_err(|_| "the size is out of range".to_owned())?;
            Ok(FetchLimit::Bytes(bytes))
        }
    }
}

impl Create {
    fn run(self) -> Result<(), Failure> {
        let rules = [
            (Action::Read, self.read),
            (Action::Write, self.write),
            (Action::Manage, self.manage),
        ];
        let rules = rules.into_iter().flat_map(|(action, patterns)| {
            patterns
                .into_iter()
                .map(move |pattern| AccessRule { action, pattern })
        });
        let end = |ns: i64| {
            jiff::Timestamp::now()
                .checked_add(Duration::from_nanos(ns.unsigned_abs()))
                .map_err(|_| Failure::usage("--expires: the date is out of range"))
        };
        let new = NewToken {
            name: self.name,
            rules: rules.collect(),
            expires: self.expires.map(end).transpose()?,
        };
        let file = self.args.file();
        let token = file.create_with_budget(new, self.fetch_per_day);
        let token = token.map_err(Failure::failed)?;
        print(&format!("{token}\n"))?;
        eprintln!(
            "This is the only time the token is shown. Send it as `Authorization: Bearer {token}`."
        );
        Ok(())
    }
}

/// List the tokens: names, rules and times, never the tokens themselves
#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    args: TokenFileArgs,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

/// Format of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    // For reading
    Table,
    // For programs
    Json,
}

#[derive(Serialize)]
struct Line {
    id: String,
    name: String,
    created: String,
    expires: Option<String>,
    is_valid: bool,
    rules: Vec<String>,
    /// Bytes, or `unlimited`; missing = as the setting of the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    fetch_per_day: Option<String>,
}

impl Line {
    fn of(grant: &Grant) -> Line {
        let second = |at: jiff::Timestamp| format!("{at:.0}");
        Line {
            id: grant.id.clone(),
            name: grant.name.clone(),
            created: second(grant.created),
            expires: grant.expires.map(second),
            is_valid: !grant.is_over(),
            fetch_per_day: grant.fetch_per_day.map(|limit| limit.to_string()),
            rules: grant.rules.iter().map(AccessRule::to_string).collect(),
        }
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let tokens = self.args.file().read().map_err(Failure::failed)?;
        let in_use = tokens.is_some();
        let tokens = tokens.unwrap_or_default();
        let (lines, table) = shown_tokens(tokens.grants().iter());
        if self.format == ListFormat::Json {
            return print_json(&lines);
        }
        if lines.is_empty() {
            eprintln!(
                "headwater: there are no tokens{}",
                if in_use {
                    "; the server refuses all requests until one is created"
                } else {
                    ""
                }
            );
        }
        print(&table)
    }
}

/// Tokens for programs, and as a table.
pub(super) fn shown_tokens<'a>(
    grants: impl Iterator<Item = &'a Arc<Grant>>,
) -> (Vec<impl Serialize>, String) {
    let lines: Vec<Line> = grants.map(|grant| Line::of(grant)).collect();
    let headings = ["id", "name", "created", "valid until", "rules"].map(Heading::text);
    let rows = lines.iter().map(|line| {
        let until = line.expires.as_deref().unwrap_or("for ever");
        let until = if line.is_valid {
            until.to_owned()
        } else {
            format!("{until} (over)")
        };
        let limit = line.fetch_per_day.as_ref();
        let limit = limit.map(|limit| format!("fetch_per_day {limit}"));
        let rules: Vec<&str> = line
            .rules
            .iter()
            .chain(&limit)
            .map(String::as_str)
            .collect();
        let rules = rules.join("; ");
        let cells = [&line.id, &line.name, &line.created, &until, &rules];
        cells.map(String::clone).to_vec()
    });
    let table = render(&headings, &rows.collect::<Vec<_>>());
    (lines, table)
}

/// Revoke a token: requests with it are refused from then on
#[derive(Debug, Args)]
struct Revoke {
    #[command(flatten)]
    args: TokenFileArgs,

    /// Name or id of the token
    #[arg(value_name = "NAME")]
    name: String,
}

impl Revoke {
    fn run(self) -> Result<(), Failure> {
        self.args.file().revoke(&self.name).map_err(Failure::failed)
    }
}
