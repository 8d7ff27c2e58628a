//! `/query`: what clients of InfluxDB 1 ask before they write.
//!
//! Telegraf and the Python package make their database first. There is one database here and it is there already, so the answer
//! is yes. Any other question is refused with a pointer to the routes that answer questions.

use super::{Needs, Route};
use crate::app::App;
use crate::error::ApiError;
use axum::Json;
use axum::extract::{Query, RawQuery, State};
use axum::http::{StatusCode, Uri};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/query", Needs::Token, query),
        Route::post("/query", Needs::Token, query),
    ]
}

#[derive(Debug, Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    q: String,
}

/// The parameter `q` of a form.
fn question(form: &str) -> String {
    let address: Option<Uri> = format!("/?{form}").parse().ok();
    let parameters = address.and_then(|a| Query::<Parameters>::try_from_uri(&a).ok());
    parameters.map(|p| p.0.q).unwrap_or_default()
}

/// The question stands in the address or, as a form, in the body.
async fn query(
    State(app): State<Arc<App>>,
    RawQuery(address): RawQuery,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let mut question = question(&address.unwrap_or_default());
    if question.is_empty() {
        question = self::question(std::str::from_utf8(&body).unwrap_or_default());
    }
    let words: Vec<&str> = question.split_whitespace().collect();
    let is = |expected: &[&str]| {
        let pairs = words.iter().zip(expected);
        words.len() >= expected.len() && pairs.clone().all(|(w, e)| w.eq_ignore_ascii_case(e))
    };
    if is(&["CREATE", "DATABASE"]) && words.len() > 2 {
        return Ok(Json(json!({ "results": [{ "statement_id": 0 }] })));
    }
    if is(&["SHOW", "DATABASES"]) {
        let name = app
            .settings
            .write_database
            .as_deref()
            .unwrap_or("headwater");
        let series = json!([{ "name": "databases", "columns": ["name"], "values": [[name]] }]);
        let results = json!([{ "statement_id": 0, "series": series }]);
        return Ok(Json(json!({ "results": results })));
    }
    let message = "InfluxQL is not spoken here, but for what writing clients ask first (CREATE DATABASE, SHOW DATABASES): \
                   ask /api/v1/scan, /api/v1/aggregate or /api/v1/last instead";
    let mut error = ApiError::new(StatusCode::BAD_REQUEST, "E_UNSUPPORTED", message);
    error.details.insert("error".to_owned(), json!(message));
    Err(error)
}
