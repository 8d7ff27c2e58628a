//! A server that answers over HTTP; its rows come as an Arrow stream.

use super::Rows;
use crate::failure::Failure;
use crate::http::{RELAY, patient_agent};
use arrow::ipc::reader::StreamReader;
use headwater_columnar::Format;
use headwater_query::Error;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Longest answer that reports an error.
const ERROR_BYTES_MAX: u64 = 1 << 20;

pub(crate) struct Remote {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

impl Remote {
    pub(super) fn new(
        url: &str,
        token: Option<String>,
        ca: Option<&Path>,
    ) -> Result<Remote, Failure> {
        Ok(Remote {
            agent: patient_agent(url, ca)?,
            url: format!("{}/api/v1/sql", url.trim_end_matches('/')),
            token,
        })
    }

    pub(super) fn run(&self, sql: &str, parameters: &[String]) -> Result<Rows<'_>, Error> {
        let mut request = self.agent.post(&self.url).header(RELAY.0, RELAY.1);
        request = request.header("Accept", Format::Arrow.content_type());
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = request
            .send_json(json!({ "sql": sql, "parameters": parameters }))
            .map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        let body = answer.body_mut().as_reader();
        if !status.is_success() {
            let mut text = String::new();
            // The status reports what cannot be read.
            let _ = body.take(ERROR_BYTES_MAX).read_to_string(&mut text);
            return Err(error_of(&text, status.as_u16()));
        }
        let reader = StreamReader::try_new(answer.into_body().into_reader(), None)
            .map_err(|error| broken(&error))?;
        Ok(Rows {
            schema: reader.schema(),
            batches: Box::new(reader.map(|batch| batch.map_err(|error| broken(&error)))),
        })
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        Error::new(
            "unreachable",
            "08001",
            format!("{}: {error}; is a server running there?", self.url),
        )
    }
}

fn broken(error: &dyn std::fmt::Display) -> Error {
    Error::new(
        "broken_off",
        "08006",
        format!("the answer was interrupted: {error}; the server's log says why"),
    )
}

/// The error that a server reports.
fn error_of(body: &str, status: u16) -> Error {
    let error_body: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |key: &str| error_body[key].as_str().map(str::to_owned);
    let number = |key: &str| error_body[key].as_u64().and_then(|n| u32::try_from(n).ok());
    let message = text("message").unwrap_or_else(|| format!("the server answered {status}"));
    let mut error = Error::new("server", "XX000", message);
    error.hint = text("hint");
    error.at = number("line").zip(number("column"));
    error
}
