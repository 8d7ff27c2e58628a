//! The one form in which a route says no, and which of its errors becomes which answer.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headwater_shell::ErrorAnswer;
#[cfg(feature = "sql")]
use serde_json::json;
use std::ops::{Deref, DerefMut};

/// An answer that is not a success: status, stable code, message, and details for programs.
#[derive(Debug)]
pub(crate) struct ApiError(ErrorAnswer);

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> ApiError {
        ApiError(ErrorAnswer::new(status, code, message))
    }

    /// Something went wrong inside; the log has more.
    pub(crate) fn internal() -> ApiError {
        ApiError(ErrorAnswer::internal())
    }

    pub(crate) fn retry_after(self, seconds: u32) -> ApiError {
        ApiError(self.0.retry_after(seconds))
    }
}

impl Deref for ApiError {
    type Target = ErrorAnswer;

    fn deref(&self) -> &ErrorAnswer {
        &self.0
    }
}

impl DerefMut for ApiError {
    fn deref_mut(&mut self) -> &mut ErrorAnswer {
        &mut self.0
    }
}

impl From<ErrorAnswer> for ApiError {
    fn from(answer: ErrorAnswer) -> ApiError {
        ApiError(answer)
    }
}

impl From<ApiError> for ErrorAnswer {
    fn from(error: ApiError) -> ErrorAnswer {
        error.0
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl From<headwater::Error> for ApiError {
    fn from(error: headwater::Error) -> ApiError {
        use headwater::ErrorKind;
        let (status, code, retry_after) = match error.kind() {
            ErrorKind::Busy => (StatusCode::SERVICE_UNAVAILABLE, "E_BUSY", Some(1)),
            ErrorKind::Full => (StatusCode::INSUFFICIENT_STORAGE, "E_FULL", Some(60)),
            ErrorKind::Closed => (StatusCode::SERVICE_UNAVAILABLE, "E_CLOSED", Some(10)),
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "E_NOT_FOUND", None),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "E_INVALID", None),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "E_INTERNAL", None),
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a request failed");
        }
        let mut answer = ApiError::new(status, code, error.to_string());
        answer.retry_after = retry_after;
        answer
    }
}

impl From<headwater_ask::Error> for ApiError {
    fn from(error: headwater_ask::Error) -> ApiError {
        use headwater_ask::Kind;
        let (status, retry_after) = match error.kind() {
            Kind::Query | Kind::Unsupported | Kind::Invalid | Kind::Limit => {
                (StatusCode::BAD_REQUEST, None)
            }
            Kind::Access => (StatusCode::FORBIDDEN, None),
            Kind::NotFound => (StatusCode::NOT_FOUND, None),
            Kind::Timeout | Kind::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, None),
            Kind::Busy => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            Kind::Closed => (StatusCode::SERVICE_UNAVAILABLE, Some(10)),
            Kind::Full => (StatusCode::INSUFFICIENT_STORAGE, Some(60)),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a question failed");
        }
        let mut answer = ApiError::new(status, error.kind().as_str(), error.message());
        answer.retry_after = retry_after;
        answer
    }
}

#[cfg(feature = "sql")]
impl From<headwater_query::Error> for ApiError {
    fn from(error: headwater_query::Error) -> ApiError {
        let (status, retry_after) = match error.code {
            "forbidden" | "read_only" => (StatusCode::FORBIDDEN, None),
            "time_limit" => (StatusCode::SERVICE_UNAVAILABLE, None),
            "busy" => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            "closed" => (StatusCode::SERVICE_UNAVAILABLE, Some(10)),
            "full" => (StatusCode::INSUFFICIENT_STORAGE, Some(60)),
            "io" | "corrupt" | "internal" => (StatusCode::INTERNAL_SERVER_ERROR, None),
            _ => (StatusCode::BAD_REQUEST, None),
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a statement failed");
        }
        let mut answer = ApiError::new(status, error.code, error.message);
        answer.retry_after = retry_after;
        let details = &mut answer.details;
        details.insert("sqlstate".to_owned(), json!(error.sqlstate));
        if let Some(hint) = error.hint {
            details.insert("hint".to_owned(), json!(hint));
        }
        if let Some((line, column)) = error.at {
            details.insert("line".to_owned(), json!(line));
            details.insert("column".to_owned(), json!(column));
        }
        answer
    }
}
