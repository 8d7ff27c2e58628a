//! Answers of HTTP to errors of statements.

use crate::error::ApiError;
use axum::http::StatusCode;
use serde_json::json;

impl From<headwater_query::Error> for ApiError {
    fn from(error: headwater_query::Error) -> ApiError {
        use headwater_query::Code;
        let (status, retry_after) = match error.kind() {
            Code::Forbidden | Code::ReadOnly => (StatusCode::FORBIDDEN, None),
            Code::TimeLimit | Code::Elsewhere => (StatusCode::SERVICE_UNAVAILABLE, None),
            Code::Busy => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            Code::Closed => (StatusCode::SERVICE_UNAVAILABLE, Some(10)),
            Code::Full => (StatusCode::INSUFFICIENT_STORAGE, Some(60)),
            Code::Io | Code::Corrupt | Code::Internal => (StatusCode::INTERNAL_SERVER_ERROR, None),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_code_of_sql_is_in_the_manual_with_the_one_it_is_the_same_as() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(root.join("../../docs/http/conventions.md")).unwrap();
        for (code, (word, sqlstate)) in headwater_query::Code::ALL
            .iter()
            .zip(headwater_query::CODES)
        {
            let error = ApiError::from(headwater_query::Error::new(word, sqlstate, ""));
            let (status, same) = (error.status.as_u16(), code.same_as());
            let line = format!("| `{word}` | `{same}` | {status} |");
            assert!(page.lines().any(|l| l == line), "{line}");
            assert_eq!((code.as_str(), error.code), (*word, *word));
        }
    }
}
