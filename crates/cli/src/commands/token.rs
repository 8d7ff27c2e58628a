//! `headwater token`: access to a served database.

use crate::arguments::parse_duration;
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{print, print_json};
use clap::{Args, Subcommand, ValueEnum};
use headwater_server::rules::{Action, Pattern, Rule};
use headwater_server::tokens::{Grant, NewToken, TokenFile};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Make, list and revoke the tokens of a served database
#[derive(Debug, Args)]
#[command(after_help = "\
Works beside a running server, which follows within a second. With the first token, the server asks every request for one,
also after the last one was revoked. Patterns are tables and tags: `weather`, `weather,origin=E*`, `*`. See
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

/// Make a token and print it: it is shown this once, and kept nowhere
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headwater token create --db my.db --name admin --read '*' --write '*' --manage '*'
  headwater token create --db my.db --name station --write 'weather,origin=EWR'
  headwater token create --db my.db --name board --read weather --read 'pumps,site=north' --expires 90d
  headwater token create --db my.db --name prometheus      # without rules: only /metrics")]
struct Create {
    #[command(flatten)]
    args: TokenFileArgs,

    /// Name of the token, of which there is no other
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
                .map(move |pattern| Rule { action, pattern })
        });
        let end = |ns: i64| {
            jiff::Timestamp::now()
                .checked_add(Duration::from_nanos(ns.unsigned_abs()))
                .map_err(|_| Failure::usage("--expires: this is later than any date there is"))
        };
        let new = NewToken {
            name: self.name,
            rules: rules.collect(),
            expires: self.expires.map(end).transpose()?,
        };
        let token = self.args.file().create(new).map_err(Failure::failed)?;
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
            rules: grant.rules.iter().map(Rule::to_string).collect(),
        }
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let tokens = self.args.file().read().map_err(Failure::failed)?;
        let in_use = tokens.is_some();
        let tokens = tokens.unwrap_or_default();
        let lines: Vec<Line> = tokens.grants().iter().map(|g| Line::of(g)).collect();
        if self.format == ListFormat::Json {
            return print_json(&lines);
        }
        if lines.is_empty() {
            eprintln!(
                "headwater: there are no tokens{}",
                if in_use {
                    "; the server answers nobody until one is made"
                } else {
                    ""
                }
            );
        }
        let headings = ["id", "name", "created", "valid until", "rules"].map(Heading::text);
        let rows: Vec<Vec<String>> = lines
            .into_iter()
            .map(|line| {
                let until = line.expires.unwrap_or_else(|| "for ever".to_owned());
                let until = if line.is_valid {
                    until
                } else {
                    format!("{until} (over)")
                };
                let rules = line.rules.join("; ");
                vec![line.id, line.name, line.created, until, rules]
            })
            .collect();
        print(&render(&headings, &rows))
    }
}

/// Take a token out: requests with it are refused from then on
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
