//! A server whose database a command works on, instead of a directory on this machine.
//!
//! Invariants: refusals are reported in the server's words; nothing is repeated that may have been
//! done already.

use crate::failure::Failure;
use crate::http::agent;
use clap::Args;
use headwater_cluster::NodeStatus;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for an answer; the server's own limit is mostly shorter.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The server, and the token for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// A server that has the database open, such as http://127.0.0.1:7373, instead of its directory
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Token for the server
    #[arg(
        long,
        value_name = "TOKEN",
        env = "HEADWATER_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,

    /// Certificate of the server, or of its issuer, in PEM
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) ca: Option<PathBuf>,
}

impl ServerArgs {
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    /// The server, where one was named, for answers that take at most so long.
    pub(crate) fn open(&self, longest: Duration) -> Result<Option<Server>, Failure> {
        let Some(url) = &self.url else {
            return Ok(None);
        };
        let agent = agent(url, self.ca.as_deref(), longest)?;
        Ok(Some(Server::new(agent, url, self.token.clone())))
    }
}

/// A client of a server.
pub(crate) struct Server {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

/// Answer of a server.
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// `null` where there was no body, or none in JSON.
    pub(crate) body: Value,
    /// Of the rows that were stored, those that replaced values of others of the request.
    pub(crate) replaced: u64,
}

impl Answered {
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.body.get(key)?.as_str()
    }

    /// A number of the answer.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.body.get(key)?.as_u64()
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> &str {
        self.text("code").unwrap_or("")
    }

    /// The failure that the answer reports.
    pub(crate) fn failure(&self) -> Failure {
        let Some(message) = self.text("message") else {
            return Failure::failed(format!("the server answered {}", self.status));
        };
        let more = match self.status {
            401 => "; give --token, or set HEADWATER_TOKEN",
            403 if self.code() == "E_ACCESS" => {
                "; this needs a token with the right to manage, see docs/operate/security.md"
            }
            404 if self.code() == "E_NO_ROUTE" => "; is the server as new as this program?",
            _ => "",
        };
        Failure::failed(format!("{message}{more}"))
    }
}

impl Server {
    pub(crate) fn new(agent: ureq::Agent, url: &str, token: Option<String>) -> Server {
        Server {
            agent,
            url: url.trim_end_matches('/').to_owned(),
            token,
        }
    }

    /// Sends a body; any answer is an answer.
    pub(crate) fn send(
        &self,
        path: &str,
        body: &[u8],
        headers: &[(&str, &str)],
    ) -> Result<Answered, Failure> {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        self.answered(request.send(body))
    }

    /// Gets a path; any answer is an answer.
    fn get(&self, path: &str) -> Result<Answered, Failure> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        self.answered(request.call())
    }

    fn answered(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Answered, Failure> {
        let mut answer = answer.map_err(|error| {
            let url = &self.url;
            Failure::failed(format!("{url}: {error}; is a server running there?"))
        })?;
        let status = answer.status().as_u16();
        let replaced = answer.headers().get("X-Headwater-Replaced");
        let replaced = replaced.and_then(|count| count.to_str().ok()?.parse().ok());
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = body.read_to_string().map_err(|error| {
            Failure::failed(format!("{}: the answer was interrupted: {error}", self.url))
        })?;
        Ok(Answered {
            status,
            replaced: replaced.unwrap_or(0),
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
        })
    }

    /// Manages tables, and returns the server's answer.
    pub(crate) fn manage(&self, asked: &Value) -> Result<Answered, Failure> {
        let answered = self.try_manage(asked)?;
        match answered.status {
            200 => Ok(answered),
            _ => Err(answered.failure()),
        }
    }

    /// Body of the answer to a path, unless it is an error.
    pub(crate) fn get_json(&self, path: &str) -> Result<Value, Failure> {
        let answered = self.get(path)?;
        match answered.status {
            200 => Ok(answered.body),
            _ => Err(answered.failure()),
        }
    }

    /// Reads an answer line by line while it comes, as long as `take` returns true. An answer that
    /// breaks off ends without an error: followers request the rest again.
    pub(crate) fn lines(
        &self,
        path: &str,
        mut take: impl FnMut(&str) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = match request.call() {
            Ok(answer) if answer.status() == 200 => answer,
            other => return Err(self.answered(other)?.failure()),
        };
        for line in BufReader::new(answer.body_mut().as_reader()).lines() {
            let Ok(line) = line else { break };
            if !take(&line)? {
                break;
            }
        }
        Ok(())
    }

    /// Status of replication with other nodes.
    pub(crate) fn sync_status(&self) -> Result<NodeStatus, Failure> {
        let answered = self.get("/api/v1/sync")?;
        if answered.status != 200 {
            return Err(answered.failure());
        }
        serde_json::from_value(answered.body).map_err(|error| {
            let url = &self.url;
            Failure::failed(format!(
                "{url}: {error}; is the server as new as this program?"
            ))
        })
    }

    /// Manages the replication with other nodes.
    pub(crate) fn sync(&self, asked: &Value) -> Result<Answered, Failure> {
        let answered = self.try_sync(asked)?;
        match answered.status {
            200 => Ok(answered),
            _ => Err(answered.failure()),
        }
    }

    /// As [`Server::sync`]; what is refused is an answer too.
    pub(crate) fn try_sync(&self, asked: &Value) -> Result<Answered, Failure> {
        let body = asked.to_string();
        let json = [("Content-Type", "application/json")];
        self.send("/api/v1/sync", body.as_bytes(), &json)
    }

    /// As [`Server::manage`]; what is refused is an answer too.
    pub(crate) fn try_manage(&self, asked: &Value) -> Result<Answered, Failure> {
        let body = asked.to_string();
        let json = [("Content-Type", "application/json")];
        self.send("/api/v1/manage", body.as_bytes(), &json)
    }
}
