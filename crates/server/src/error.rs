//! Error answers of routes, and the mapping of errors to them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headwater_shell::ErrorAnswer;
use std::ops::{Deref, DerefMut};

/// Answer that is not a success: status, stable code, message, and details for programs.
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

    /// Internal error; the log has more.
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
            ErrorKind::Elsewhere => (StatusCode::SERVICE_UNAVAILABLE, "E_ELSEWHERE", None),
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "E_NOT_FOUND", None),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "E_INVALID", None),
            ErrorKind::ReadOnly => (StatusCode::FORBIDDEN, "E_READ_ONLY", None),
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
        use headwater_ask::QueryErrorKind;
        let (status, retry_after) = match error.kind() {
            QueryErrorKind::Query
            | QueryErrorKind::Unsupported
            | QueryErrorKind::Invalid
            | QueryErrorKind::Limit => (StatusCode::BAD_REQUEST, None),
            QueryErrorKind::Access | QueryErrorKind::ReadOnly => (StatusCode::FORBIDDEN, None),
            QueryErrorKind::NotFound => (StatusCode::NOT_FOUND, None),
            QueryErrorKind::Timeout | QueryErrorKind::Cancelled | QueryErrorKind::Elsewhere => {
                (StatusCode::SERVICE_UNAVAILABLE, None)
            }
            QueryErrorKind::Busy => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            QueryErrorKind::Closed => (StatusCode::SERVICE_UNAVAILABLE, Some(10)),
            QueryErrorKind::Full => (StatusCode::INSUFFICIENT_STORAGE, Some(60)),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a query failed");
        }
        let mut answer = ApiError::new(status, error.kind().as_str(), error.message());
        answer.retry_after = retry_after;
        answer
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn page() -> String {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(root.join("../../docs/http/conventions.md")).unwrap()
    }

    #[test]
    fn every_kind_of_refused_question_is_in_the_manual_with_its_status() {
        let page = page();
        for kind in headwater_ask::QueryErrorKind::ALL {
            let error = ApiError::from(headwater_ask::Error::new(kind, ""));
            let (code, status) = (kind.as_str(), error.status.as_u16().to_string());
            let told = page.lines().any(|line| {
                let mut cells = line.split('|').map(str::trim).skip(1);
                let codes = cells.next().unwrap_or_default();
                let statuses = cells.next().unwrap_or_default();
                let place = codes.split(", ").position(|c| c == format!("`{code}`"));
                place.is_some_and(|at| statuses.split(", ").nth(at) == Some(status.as_str()))
            });
            assert!(told, "{code} {status}");
        }
    }
}
