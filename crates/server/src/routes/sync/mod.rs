//! Routes of replication: the connection of an edge, the status of edges and of the cloud, and
//! commands for them.
//!
//! Invariants: a connection is opened to a client that shows the key or the invitation of an edge,
//! and reaches only that edge's copy. All other routes need the right to manage everything.

mod parts;

use super::{Needs, Route};
use crate::access::Access;
use crate::access::rules::Action;
use crate::access::token::{Carried, carried};
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, answer};
use crate::settings::NodeRole;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use headwater::{ClosedRange, StreamName};
use headwater_cluster::{
    ClusterError, ClusterErrorKind, EdgeAddress, EdgeCopies, NewEdge, NewEdgeFault, PinSpec,
    Prefetch, PrefetchPolicy, PrefetchScore, RelaySpec, Relays, StreamShare, Uplink, WantRule,
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest body: the roster of a peer with all edges that a node may have.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Most edges of a refused list that are named.
const FAULTS_LISTED: usize = 1_000;
/// Default validity of an invitation.
const INVITE_VALID: Duration = Duration::from_secs(7 * 86_400);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/sync", Needs::Manage, status),
        Route::post("/api/v1/sync", Needs::Manage, change),
        Route::get("/api/v1/sync/connect", Needs::Public, connect),
    ]
}

impl From<ClusterError> for ApiError {
    fn from(error: ClusterError) -> ApiError {
        let kind = error.kind();
        let status = match kind {
            ClusterErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ClusterErrorKind::NotFound => StatusCode::NOT_FOUND,
            ClusterErrorKind::Denied => StatusCode::UNAUTHORIZED,
            ClusterErrorKind::NameExists | ClusterErrorKind::History => StatusCode::CONFLICT,
            ClusterErrorKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a request about other nodes failed");
        }
        ApiError::new(status, kind.code(), error.to_string())
    }
}

/// Command in the body of a request. The names are a promise.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum SyncCommand {
    AddEdge {
        edge: String,
        /// The address under which the edge reaches this node.
        url: String,
        ca: Option<String>,
        want: Option<StreamShare>,
        valid_seconds: Option<u64>,
        #[serde(default)]
        again: bool,
        /// Tags that are added to the names of all of its streams.
        #[serde(default)]
        tags: BTreeMap<String, String>,
    },
    /// Several new edges, all or none.
    AddEdges {
        edges: Vec<NewEdge>,
        /// The address under which the edges reach this node.
        url: String,
        ca: Option<String>,
        want: Option<StreamShare>,
        valid_seconds: Option<u64>,
    },
    /// Address of an edge for clients; `None` removes it.
    Address {
        edge: String,
        address: Option<EdgeAddress>,
    },
    Want {
        edge: String,
        want: StreamShare,
        #[serde(default)]
        rules: Vec<WantRule>,
    },
    /// Retention in the copy of rows that the edge removes; `None` = for ever.
    Keep {
        edge: String,
        seconds: Option<u64>,
    },
    /// Prefetch policy; omitted parts have their defaults.
    Migrate {
        edge: String,
        #[serde(default)]
        policy: PrefetchPolicy,
        #[serde(default)]
        score: PrefetchScore,
        #[serde(default)]
        ahead_bytes: u64,
    },
    Pin {
        edge: String,
        #[serde(flatten)]
        pin: PinSpec,
    },
    Unpin {
        edge: String,
        pin: u64,
    },
    Pins {
        edge: String,
    },
    Pause {
        edge: Option<String>,
    },
    Resume {
        edge: Option<String>,
    },
    Verify {
        edge: Option<String>,
    },
    FetchAgain {
        edge: String,
    },
    /// A next key for an edge, or for all edges.
    RotateKeys {
        edge: Option<String>,
    },
    /// Reasons why ranges of a stream are here, or not yet.
    Why {
        edge: String,
        /// As in `pumps,site=4`.
        stream: String,
        /// The first instant, in nanoseconds since 1970.
        from_ns: i64,
        /// The last instant.
        to_ns: i64,
    },
    /// Relays an edge to another cloud, which has invited it.
    Relay {
        edge: String,
        /// `None` = the other cloud starts over with the existing relay.
        invitation: Option<String>,
        url: Option<String>,
        ca: Option<String>,
        #[serde(default)]
        new_incarnation: bool,
        /// Fetch ranges from the edge that the other cloud requests and that are missing here.
        #[serde(default)]
        fetch: bool,
    },
    StopRelay {
        edge: String,
    },
}

fn no_role(needed: NodeRole) -> ApiError {
    let needed = needed.name();
    ApiError::new(
        StatusCode::CONFLICT,
        "E_ROLE",
        format!(
            "this node does not have the role {needed}: start it with --role {needed}, or use another node"
        ),
    )
}

fn fleet(app: &App) -> Result<&Arc<EdgeCopies>, ApiError> {
    app.fleet.as_ref().ok_or_else(|| no_role(NodeRole::Cloud))
}

fn relays(app: &App) -> Result<&Arc<Relays>, ApiError> {
    app.relays.as_ref().ok_or_else(|| no_role(NodeRole::Cloud))
}

fn uplink(app: &App) -> Result<&Arc<Uplink>, ApiError> {
    app.uplink.as_ref().ok_or_else(|| no_role(NodeRole::Edge))
}

/// Commands about all data need the right to manage everything.
fn may(access: &Access) -> Result<(), ApiError> {
    match access.all(Action::Manage) {
        true => Ok(()),
        false => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "a token that manages everything (`manage *`) is needed for information about other nodes",
        )),
    }
}

async fn status(State(app): State<Arc<App>>, access: Access) -> Result<Response, ApiError> {
    may(&access)?;
    let body = app
        .blocking(|app| serde_json::to_vec(&app.node_status()?).map_err(|_| ApiError::internal()))
        .await?;
    Ok(answer(request::JSON, body))
}

/// Name of a command.
#[derive(Debug, Deserialize)]
struct Named {
    op: String,
}

fn command_of<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_INVALID",
            format!(
                "{error}: expected an object such as {{\"op\":\"verify\",\"edge\":\"pump-7\"}}"
            ),
        )
    })
}

async fn change(
    State(app): State<Arc<App>>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    may(&access)?;
    let body = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await;
    let body = body.map_err(|error| {
        let message = format!("the body: {error}; at most {BODY_BYTES_MAX} bytes are accepted");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "E_LIMIT_BODY", message)
    })?;
    let Named { op } = command_of(&body)?;
    if parts::OPS.contains(&op.as_str()) {
        let command = command_of(&body)?;
        let done = app
            .blocking(move |app| parts::execute(app, command))
            .await?;
        return Ok(answer(request::JSON, done.to_string()));
    }
    let command: SyncCommand = command_of(&body)?;
    if let SyncCommand::Relay {
        edge,
        invitation: Some(invitation),
        url,
        ca,
        new_incarnation,
        fetch,
    } = command
    {
        let spec = RelaySpec {
            invitation,
            url,
            ca,
            replaces_copy: new_incarnation,
            fetches_requested: fetch,
        };
        relays(&app)?.relay(&edge, spec).await?;
        return Ok(answer(request::JSON, json!({ "done": true }).to_string()));
    }
    if let SyncCommand::Why {
        edge,
        stream,
        from_ns,
        to_ns,
    } = &command
    {
        return why(&app, edge, stream, (*from_ns, *to_ns)).await;
    }
    let done = app.blocking(move |app| execute(app, command)).await?;
    Ok(answer(request::JSON, done.to_string()))
}

async fn why(
    app: &App,
    edge: &str,
    stream: &str,
    (from_ns, to_ns): (i64, i64),
) -> Result<Response, ApiError> {
    let invalid = |message| ApiError::new(StatusCode::BAD_REQUEST, "E_INVALID", message);
    let name = StreamName::parse(stream);
    let name = name.ok_or_else(|| invalid(format!("`{stream}`: expected table,tag=value")))?;
    if from_ns > to_ns {
        return Err(invalid("`from_ns` is after `to_ns`".to_owned()));
    }
    let span = ClosedRange::nanos(from_ns, to_ns);
    let found = fleet(app)?.why(edge, name, span).await?;
    let body = serde_json::to_vec(&found).map_err(|_| ApiError::internal())?;
    Ok(answer(request::JSON, body))
}

/// Refusal of a list of new edges, none of which was added.
fn not_added(edges: &[NewEdge], faults: &[NewEdgeFault]) -> ApiError {
    let named = |fault: &NewEdgeFault| {
        json!({
            "at": fault.at,
            "edge": edges.get(fault.at).map(|new| new.edge.as_str()),
            "code": fault.error.kind().code(),
            "message": fault.error.to_string(),
        })
    };
    let listed = faults.iter().take(FAULTS_LISTED).map(named).collect();
    let first = faults.first().map(|fault| fault.error.clone());
    let mut answer = first.map_or_else(ApiError::internal, ApiError::from);
    answer.message = format!(
        "no edge was added: {} of {} cannot be added, the first because of this: {}",
        faults.len(),
        edges.len(),
        answer.message
    );
    answer.details.insert("faults".to_owned(), listed);
    answer
}

/// Invites edges.
fn add(app: &App, command: SyncCommand) -> Result<serde_json::Value, ApiError> {
    match command {
        SyncCommand::AddEdge {
            edge,
            url,
            ca,
            want,
            valid_seconds,
            again,
            tags,
        } => {
            let valid = valid_seconds.map_or(INVITE_VALID, Duration::from_secs);
            // Before an invitation that nobody would see.
            fleet(app)?.check_tags(&edge, &tags)?;
            let invitation = fleet(app)?.invite(&edge, &url, ca, want, valid, again)?;
            if !tags.is_empty() {
                fleet(app)?.tag(&edge, tags)?;
            }
            Ok(json!({ "edge": edge, "invitation": invitation }))
        }
        SyncCommand::AddEdges {
            edges,
            url,
            ca,
            want,
            valid_seconds,
        } => {
            let valid = valid_seconds.map_or(INVITE_VALID, Duration::from_secs);
            let invited = fleet(app)?.invite_all(&edges, (&url, ca.as_deref()), want, valid)?;
            let invited = invited.map_err(|faults| not_added(&edges, &faults))?;
            let invited = edges
                .iter()
                .zip(invited)
                .map(|(new, invitation)| json!({ "edge": new.edge, "invitation": invitation }));
            Ok(json!({ "invitations": invited.collect::<Vec<_>>() }))
        }
        _ => Err(ApiError::internal()),
    }
}

fn execute(app: &App, command: SyncCommand) -> Result<serde_json::Value, ApiError> {
    match command {
        SyncCommand::AddEdge { .. } | SyncCommand::AddEdges { .. } => {
            return add(app, command);
        }
        SyncCommand::Address { edge, address } => fleet(app)?.set_address(&edge, address)?,
        SyncCommand::Want { edge, want, rules } => {
            fleet(app)?.set_subscription(&edge, want, rules)?
        }
        SyncCommand::Keep { edge, seconds } => fleet(app)?.set_retention(&edge, seconds)?,
        SyncCommand::Migrate {
            edge,
            policy,
            score,
            ahead_bytes,
        } => {
            let migration = Prefetch {
                policy,
                score,
                ahead_bytes,
            };
            fleet(app)?.migrate(&edge, migration)?;
        }
        SyncCommand::Pin { edge, pin } => {
            return Ok(json!({ "pin": fleet(app)?.pin(&edge, &pin)? }));
        }
        SyncCommand::Unpin { edge, pin } => fleet(app)?.unpin(&edge, pin)?,
        SyncCommand::Pins { edge } => {
            let pins = fleet(app)?.pins(&edge)?.into_iter();
            let pins = pins.map(|(number, pin)| json!({ "pin": number, "of": pin }));
            return Ok(json!({ "pins": pins.collect::<Vec<_>>() }));
        }
        SyncCommand::Pause { edge: Some(edge) } => fleet(app)?.pause(&edge, true)?,
        SyncCommand::Resume { edge: Some(edge) } => fleet(app)?.pause(&edge, false)?,
        SyncCommand::Pause { edge: None } => uplink(app)?.pause(true)?,
        SyncCommand::Resume { edge: None } => uplink(app)?.pause(false)?,
        SyncCommand::Verify { edge: Some(edge) } => fleet(app)?.verify(&edge)?,
        SyncCommand::Verify { edge: None } => uplink(app)?.verify()?,
        SyncCommand::RotateKeys { edge } => {
            let count = fleet(app)?.rotate_keys(edge.as_deref())?;
            return Ok(json!({ "edges": count }));
        }
        SyncCommand::FetchAgain { edge } => fleet(app)?.fetch_again(&edge)?,
        SyncCommand::Relay {
            edge,
            new_incarnation: true,
            ..
        } => relays(app)?.replace_copy(&edge)?,
        SyncCommand::Relay { .. } => {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "E_INVALID",
                "expected an `invitation` of the other cloud, or `new_incarnation`",
            ));
        }
        // Answered by the task of the connection.
        SyncCommand::Why { .. } => return Err(ApiError::internal()),
        SyncCommand::StopRelay { edge } => relays(app)?.stop(&edge)?,
    }
    Ok(json!({ "done": true }))
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let has = |name: header::HeaderName, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| {
            let mut parts = value.split(',').map(str::trim);
            parts.any(|part| part.eq_ignore_ascii_case(wanted))
        })
    };
    has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && has(header::SEC_WEBSOCKET_VERSION, "13")
}

/// Opens the connection of an edge.
async fn connect(State(app): State<Arc<App>>, mut request: Request) -> Result<Response, ApiError> {
    let fleet = Arc::clone(fleet(&app)?);
    let Carried::Token(secret) = carried(request.headers()) else {
        return Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "E_EDGE_KEY",
            "expected the key of an edge, or an invitation, as `Authorization: Bearer KEY`",
        ));
    };
    fleet.edge_of_secret(&secret)?;
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY);
    let key = key.and_then(|key| key.to_str().ok()).map(str::to_owned);
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let (true, Some(key), Some(upgrade)) = (is_websocket(request.headers()), key, upgrade) else {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_WEBSOCKET",
            "expected a WebSocket (version 13) over HTTP/1.1; a proxy in between must pass it on",
        ));
    };
    let stopping = app.shell.stopping();
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => fleet.serve(TokioIo::new(upgraded), &secret, stopping).await,
            Err(error) => tracing::debug!(%error, "the connection of an edge ended early"),
        }
    });
    let accept = headwater_cluster::accept_key(&key);
    let accept = HeaderValue::try_from(accept).map_err(|_| ApiError::internal())?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}
