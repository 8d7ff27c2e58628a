//! `/iceberg`: the catalog of the lake in Iceberg's REST protocol, for engines that read.
//!
//! Invariants: a table exists for clients that may read the whole table: other engines read files,
//! which rules about single streams cannot protect. A table that may not be read and an absent one
//! have the same answer, a namespace without a readable table is absent, and all routes are
//! read-only. Errors have the form of the Iceberg REST protocol. Concurrency: each answer is of the
//! current lake.

use crate::access::Access;
use crate::access::rules::Action;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{answer, query};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use headwater_lake::{Catalog, CatalogTable, LakeError, LakeLocation, Loaded};
use serde_json::{Value, json};
use std::sync::Arc;

/// Endpoints of the catalog, in the words of the protocol.
const ENDPOINTS: [&str; 8] = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "GET /v1/{prefix}/namespaces/{namespace}/views",
    "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
];
/// Parameters of pages: the first page contains everything.
const PAGES: [&str; 2] = ["pageToken", "pageSize"];
/// Parameters of pages of namespaces.
const BELOW: [&str; 3] = ["pageToken", "pageSize", "parent"];
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Error in the form of the protocol.
pub(in crate::components) enum Refusal {
    /// The object is absent or not visible.
    Absent(&'static str, String),
    Other(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Refusal {
        Refusal::Other(error)
    }
}

impl From<LakeError> for Refusal {
    fn from(error: LakeError) -> Refusal {
        tracing::error!(%error, "the lake cannot be read");
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        // Paths of this machine are in the log only.
        let message = format!(
            "[{}] the lake cannot be read; the log says why",
            error.code()
        );
        Refusal::Other(ApiError::new(status, "E_LAKE", message))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, kind, message) = match self {
            Refusal::Absent(kind, message) => (StatusCode::NOT_FOUND, kind, message),
            Refusal::Other(error) => (error.status, error.code, error.message.clone()),
        };
        let told = json!({
            "error": {"message": message, "type": kind, "code": status.as_u16()},
        });
        (status, [(CONTENT_TYPE, JSON)], told.to_string()).into_response()
    }
}

type CatalogResult = Result<Response, Refusal>;

fn json_answer(value: &Value) -> Response {
    answer(JSON, value.to_string())
}

fn no_namespace(name: &str) -> Refusal {
    let message = format!("there is no namespace `{name}`; GET /iceberg/v1/namespaces lists them");
    Refusal::Absent("NoSuchNamespaceException", message)
}

fn no_table(namespace: &str, name: &str) -> Refusal {
    let message = format!("there is no table `{name}` in the namespace `{namespace}`");
    Refusal::Absent("NoSuchTableException", message)
}

fn catalog(app: &App) -> Result<Catalog, Refusal> {
    let place = app.lake().location.as_ref().ok_or_else(|| {
        let message = "this server has no lake: set lake.dir to a directory or bucket for it";
        Refusal::Other(ApiError::new(StatusCode::NOT_FOUND, "E_NO_LAKE", message))
    })?;
    Ok(Catalog::new(place))
}

/// Accesses the lake on a blocking thread.
async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Catalog) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let catalog = catalog(app)?;
    let done = app.blocking(move |_| Ok(work(&catalog)));
    done.await?
}

fn reads(access: &Access, table: &str) -> bool {
    access.may(Action::Read, table, &[])
}

/// Tables of a namespace that the client may read all of; `None` = the namespace is not
/// visible.
fn visible_tables(
    catalog: &Catalog,
    access: &Access,
    namespace: &str,
) -> Result<Option<Vec<CatalogTable>>, Refusal> {
    let Some(mut found) = catalog.tables(namespace)? else {
        return Ok(None);
    };
    for (folder, error) in &found.unreadable {
        tracing::warn!(folder, %error, "a table of the lake cannot be read");
    }
    found.tables.retain(|table| reads(access, &table.table));
    let is_own = namespace == headwater_lake::OWN_NAMESPACE;
    Ok((is_own || !found.tables.is_empty()).then_some(found.tables))
}

/// As [`visible_tables`], on a blocking thread.
async fn visible_tables_in(
    app: &Arc<App>,
    access: Access,
    namespace: &str,
) -> Result<Vec<CatalogTable>, Refusal> {
    let asked = namespace.to_owned();
    let found = blocking(app, move |catalog| visible_tables(catalog, &access, &asked));
    found.await?.ok_or_else(|| no_namespace(namespace))
}

/// Newest metadata of a table that the client may read all of.
async fn loaded(
    app: &Arc<App>,
    access: &Access,
    (namespace, name): (String, String),
) -> Result<Loaded, Refusal> {
    let absent = no_table(&namespace, &name);
    let loaded = blocking(app, move |catalog| Ok(catalog.load(&namespace, &name)?));
    let loaded = loaded.await?;
    let loaded = loaded.filter(|loaded| reads(access, &loaded.table));
    loaded.ok_or(absent)
}

pub(in crate::components) async fn config(State(app): State<Arc<App>>, uri: Uri) -> CatalogResult {
    query(&uri, &["warehouse"])?;
    catalog(&app)?;
    Ok(json_answer(
        &json!({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}),
    ))
}

pub(in crate::components) async fn namespaces(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> CatalogResult {
    let asked = query(&uri, &BELOW)?;
    let parent = asked.one("parent").map_err(ApiError::from)?;
    let parent = parent.map(str::to_owned);
    let found = blocking(&app, move |catalog| {
        if let Some(parent) = parent {
            // No namespace is below another.
            let is_there = visible_tables(catalog, &access, &parent)?.is_some();
            return is_there.then(Vec::new).ok_or_else(|| no_namespace(&parent));
        }
        let mut found = Vec::new();
        for namespace in catalog.namespaces()? {
            if visible_tables(catalog, &access, &namespace)?.is_some() {
                found.push([namespace]);
            }
        }
        Ok(found)
    });
    Ok(json_answer(&json!({"namespaces": found.await?})))
}

pub(in crate::components) async fn namespace(
    State(app): State<Arc<App>>,
    access: Access,
    Path(name): Path<String>,
    uri: Uri,
) -> CatalogResult {
    query(&uri, &[])?;
    visible_tables_in(&app, access, &name).await?;
    Ok(json_answer(&json!({"namespace": [name], "properties": {}})))
}

pub(in crate::components) async fn tables(
    State(app): State<Arc<App>>,
    access: Access,
    Path(name): Path<String>,
    uri: Uri,
) -> CatalogResult {
    query(&uri, &PAGES)?;
    let found = visible_tables_in(&app, access, &name).await?;
    let identifiers = found
        .iter()
        .map(|table| json!({"namespace": [name], "name": table.name}));
    let identifiers: Vec<Value> = identifiers.collect();
    Ok(json_answer(&json!({"identifiers": identifiers})))
}

pub(in crate::components) async fn table(
    State(app): State<Arc<App>>,
    access: Access,
    Path(asked): Path<(String, String)>,
    uri: Uri,
) -> CatalogResult {
    // The answer contains all snapshots, which are exactly the snapshots that readers may still
    // need.
    query(&uri, &["snapshots"])?;
    let loaded = loaded(&app, &access, asked).await?;
    Ok(json_answer(&json!({
        "metadata-location": loaded.path,
        "metadata": loaded.metadata,
        "config": app.lake().location.as_ref().map(LakeLocation::config),
    })))
}

/// Discards the metrics that engines report of their reads.
pub(in crate::components) async fn metrics(
    State(app): State<Arc<App>>,
    access: Access,
    Path(asked): Path<(String, String)>,
    uri: Uri,
) -> Result<StatusCode, Refusal> {
    query(&uri, &[])?;
    let found = loaded(&app, &access, asked).await;
    found.map(|_| StatusCode::NO_CONTENT)
}

/// Answers that views do not exist; some engines look for views first.
pub(in crate::components) async fn views(
    State(app): State<Arc<App>>,
    access: Access,
    Path(name): Path<String>,
    uri: Uri,
) -> CatalogResult {
    query(&uri, &PAGES)?;
    visible_tables_in(&app, access, &name).await?;
    Ok(json_answer(&json!({"identifiers": []})))
}

pub(in crate::components) async fn view(
    State(app): State<Arc<App>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> CatalogResult {
    query(&uri, &[])?;
    catalog(&app)?;
    let message = format!("there is no view `{name}` in the namespace `{namespace}`");
    Err(Refusal::Absent("NoSuchViewException", message))
}
