//! The common form of refusals.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use headwater_wire::query::QueryError;
use serde_json::{Map, Value, json};

/// An answer that is not a success: status, stable code, message, and details for programs.
#[derive(Debug)]
pub struct ErrorAnswer {
    /// The status of HTTP.
    pub status: StatusCode,
    /// A word that never changes its meaning.
    pub code: &'static str,
    /// The expected and the actual value, and the remedy.
    pub message: String,
    /// Further members for programs, by name.
    pub details: Map<String, Value>,
    /// After how many seconds to try again, where that helps.
    pub retry_after: Option<u32>,
}

/// Content type of answers in JSON.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Cache control of answers that are specific to the client, and change with the data.
pub const NO_CACHE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// Code of an answer, for the layers between a handler and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredCode(pub &'static str);

impl ErrorAnswer {
    /// An answer without details.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ErrorAnswer {
        ErrorAnswer {
            status,
            code,
            message: message.into(),
            details: Map::new(),
            retry_after: None,
        }
    }

    /// Internal error; details are in the log.
    #[must_use]
    pub fn internal() -> ErrorAnswer {
        ErrorAnswer::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "E_INTERNAL",
            "the request failed inside the server; its log says more",
        )
    }

    /// Adds the number of seconds after which to retry.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> ErrorAnswer {
        self.retry_after = Some(seconds);
        self
    }
}

impl ErrorAnswer {
    /// Body of the answer, as JSON.
    #[must_use]
    pub fn into_body(self) -> Value {
        let mut body = self.details;
        body.insert("code".to_owned(), json!(self.code));
        body.insert("message".to_owned(), json!(self.message));
        Value::Object(body)
    }
}

impl From<QueryError> for ErrorAnswer {
    fn from(error: QueryError) -> ErrorAnswer {
        let mut answer =
            ErrorAnswer::new(StatusCode::BAD_REQUEST, "E_PARAMETER", error.to_string());
        if let QueryError::Unknown { name, .. }
        | QueryError::Missing { name, .. }
        | QueryError::Value { name, .. }
        | QueryError::Repeated(name) = error
        {
            answer.details.insert("parameter".to_owned(), json!(name));
        }
        answer
    }
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        let (status, retry_after, code) = (self.status, self.retry_after, self.code);
        let mut response = (status, Json(self.into_body())).into_response();
        response.extensions_mut().insert(AnsweredCode(code));
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}
