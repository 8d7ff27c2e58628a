//! `headwater influxql`: questions in InfluxQL, to a database on this machine or to a server.
//!
//! Invariant: both answer with the same bytes, since both are written by `headwater_ask`; what is
//! printed as a table is read from that answer.

use crate::clock::now;
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::http::{RELAY, agent};
use crate::output::{Format, print};
use crate::store::DbArgs;
use clap::Args;
use headwater_ask::influxql::{Epoch, Evaluator, Form, csv, json};
use headwater_ask::{Budget, CancelToken, Deadline, Unrestricted};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for an answer of a server.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Query a database on this machine or a server in InfluxQL
#[derive(Debug, Args)]
#[command(after_help = "\
Statements are separated by semicolons; what follows one that fails is not carried out. What they mean: docs/http/influxql.md.

Examples:
  headwater influxql --db ./data 'SELECT mean(temp) FROM weather WHERE time > now() - 1d GROUP BY time(1h), origin'
  headwater influxql --db ./data --format csv 'SHOW TAG VALUES WITH KEY = origin'
  headwater influxql --url http://127.0.0.1:7373 'SELECT last(temp) FROM weather GROUP BY origin'")]
pub(crate) struct Influxql {
    /// Directory of a database on this machine; read only, also while a server has it open
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: Option<PathBuf>,

    /// A server to query instead, such as http://127.0.0.1:7373
    #[arg(long, value_name = "URL", conflicts_with = "db")]
    url: Option<String>,

    /// Token for the server
    #[arg(
        long,
        value_name = "TOKEN",
        env = "HEADWATER_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,

    /// Certificate of the server, or of its issuer, in PEM
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,

    /// Memory for caches of a database opened here
    #[arg(long, value_name = "SIZE", value_parser = crate::arguments::parse_size, default_value = "256MiB")]
    memory: usize,

    /// Format of the rows
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// The statements; - reads them from stdin
    #[arg(value_name = "INFLUXQL")]
    text: String,
}

/// Times are text in every format.
const FORM: Form = Form {
    epoch: Epoch::Rfc3339,
    chunk_rows: None,
};

impl Influxql {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if self.text == "-" {
            self.text = std::io::read_to_string(std::io::stdin())
                .map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?;
        }
        let answer = match (&self.url, &self.db) {
            (Some(url), _) => self.ask_server(url)?,
            (None, Some(db)) => self.ask_here(db.clone())?,
            (None, None) => {
                return Err(Failure::usage(
                    "no database is given: use --db DIR for a directory, or --url URL for a server",
                ));
            }
        };
        match self.format {
            Format::Csv => {
                print(&answer.text)?;
                failed_csv(&answer.text)
            }
            Format::Json => {
                print(&answer.text)?;
                failed(&parsed(&answer.text)?)
            }
            Format::Table => {
                let parsed = parsed(&answer.text)?;
                print(&table(&parsed))?;
                failed(&parsed)
            }
        }
    }

    fn ask_here(&self, db: PathBuf) -> Result<Answer, Failure> {
        let memory = self.memory;
        let reader = DbArgs { db, memory }.open_to_read()?;
        let snapshot = reader.snapshot();
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        let asker = Evaluator::new(&snapshot, &Unrestricted, &budget, now());
        let answers = asker.evaluate(&self.text).map_err(Failure::failed)?;
        let bytes = match self.format {
            Format::Csv => csv(&answers, FORM),
            Format::Json | Format::Table => json(&answers, FORM),
        };
        Ok(Answer {
            text: String::from_utf8(bytes).map_err(Failure::failed)?,
        })
    }

    fn ask_server(&self, url: &str) -> Result<Answer, Failure> {
        let agent = agent(url, self.ca.as_deref(), TIMEOUT)?;
        let accept = match self.format {
            Format::Csv => "text/csv",
            Format::Json | Format::Table => "application/json",
        };
        let mut request = agent
            .post(format!("{}/query", url.trim_end_matches('/')))
            .query("epoch", "rfc3339")
            .header("Accept", accept)
            .header(RELAY.0, RELAY.1);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = request
            .send_form([("q", self.text.as_str())])
            .map_err(|error| {
                Failure::failed(format!("{url}: {error}; is a server running there?"))
            })?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = body.read_to_string().map_err(|error| {
            Failure::failed(format!("{url}: the answer was interrupted: {error}"))
        })?;
        if status.is_success() {
            return Ok(Answer { text });
        }
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        Err(Failure::failed(match error["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("the server answered {status}"),
        }))
    }
}

/// Most bytes of an answer of a server: a million values, and some slack.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// An answer, in JSON or CSV.
struct Answer {
    text: String,
}

fn parsed(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::failed(format!("the answer: {error}")))
}

/// The failure of a statement, after what came before it was printed.
fn failed(answer: &Value) -> Result<(), Failure> {
    let results = answer["results"].as_array();
    let error = results
        .into_iter()
        .flatten()
        .find_map(|r| r["error"].as_str());
    match error {
        Some(error) => Err(Failure::failed(error)),
        None => Ok(()),
    }
}

/// As [`failed`]: CSV reports it in a part with the heading `error`.
fn failed_csv(text: &str) -> Result<(), Failure> {
    let error = text
        .strip_prefix("error\n")
        .or_else(|| Some(text.split_once("\n\nerror\n")?.1));
    match error {
        Some(error) => Err(Failure::failed(error.trim_end())),
        None => Ok(()),
    }
}

/// Each series under a line with its name and tags, and a blank line between them.
fn table(answer: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut parts = Vec::new();
    for result in list(&answer["results"]) {
        for series in list(&result["series"]) {
            let rows: Vec<Vec<Value>> = list(&series["values"]).iter().map(&list).collect();
            let is_number = |column: usize| {
                let mut cells = rows.iter().filter_map(|row| row.get(column));
                cells.all(|cell| cell.is_number() || cell.is_null())
            };
            let columns = list(&series["columns"]);
            let headings = columns.iter().enumerate().map(|(at, name)| {
                let name = name.as_str().unwrap_or_default();
                match is_number(at) {
                    true => Heading::number(name),
                    false => Heading::text(name),
                }
            });
            let headings: Vec<Heading> = headings.collect();
            let cells: Vec<Vec<String>> = rows
                .iter()
                .map(|row| row.iter().map(cell).collect())
                .collect();
            let mut name = series["name"].as_str().unwrap_or_default().to_owned();
            for (tag, value) in series["tags"].as_object().into_iter().flatten() {
                name.push_str(&format!(",{tag}={}", value.as_str().unwrap_or_default()));
            }
            let head = if name.is_empty() {
                name
            } else {
                format!("{name}\n")
            };
            parts.push(format!("{head}{}", render(&headings, &cells)));
        }
    }
    parts.join("\n")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
