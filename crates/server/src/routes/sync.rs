//! Routes of replication: the connection of an edge, the status of edges and of the cloud, and
//! commands for them.
//!
//! Invariants: a connection is opened to a client that shows the key or the invitation of an edge,
//! and reaches only that edge's copy. All other routes need the right to manage everything.

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
use headwater_fleet::{
    EdgeAddress, Fleet, FleetError, FleetErrorKind, PinSpec, Prefetch, PrefetchPolicy,
    PrefetchScore, RelaySpec, Relays, StreamShare, Uplink, WantRule,
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const BODY_BYTES_MAX: usize = 1 << 20;
/// Default validity of an invitation.
const INVITE_VALID: Duration = Duration::from_secs(7 * 86_400);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/sync", Needs::Manage, status),
        Route::post("/api/v1/sync", Needs::Manage, change),
        Route::get("/api/v1/sync/connect", Needs::Nothing, connect),
    ]
}

impl From<FleetError> for ApiError {
    fn from(error: FleetError) -> ApiError {
        let kind = error.kind();
        let status = match kind {
            FleetErrorKind::Invalid => StatusCode::BAD_REQUEST,
            FleetErrorKind::NotFound => StatusCode::NOT_FOUND,
            FleetErrorKind::Denied => StatusCode::UNAUTHORIZED,
            FleetErrorKind::Taken | FleetErrorKind::History => StatusCode::CONFLICT,
            FleetErrorKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
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
    },
    RemoveEdge {
        edge: String,
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
        format!("this node is no {needed}: start it with --role {needed}, or ask another"),
    )
}

fn fleet(app: &App) -> Result<&Arc<Fleet>, ApiError> {
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
            "only a token that manages everything (`manage *`) is told about other nodes",
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

async fn change(
    State(app): State<Arc<App>>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    may(&access)?;
    let body = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await;
    let body = body.map_err(|error| {
        let message = format!("the body: {error}; at most {BODY_BYTES_MAX} bytes are taken");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "E_LIMIT_BODY", message)
    })?;
    let command: SyncCommand = serde_json::from_slice(&body).map_err(|error| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_INVALID",
            format!(
                "{error}: expected an object such as {{\"op\":\"verify\",\"edge\":\"pump-7\"}}"
            ),
        )
    })?;
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
            begins_anew: new_incarnation,
            gets: fetch,
        };
        relays(&app)?.relay(&edge, spec).await?;
        return Ok(answer(request::JSON, json!({ "done": true }).to_string()));
    }
    let done = app.blocking(move |app| done(app, command)).await?;
    Ok(answer(request::JSON, done.to_string()))
}

fn done(app: &App, command: SyncCommand) -> Result<serde_json::Value, ApiError> {
    match command {
        SyncCommand::AddEdge {
            edge,
            url,
            ca,
            want,
            valid_seconds,
            again,
        } => {
            let valid = valid_seconds.map_or(INVITE_VALID, Duration::from_secs);
            let invitation = fleet(app)?.invite(&edge, &url, ca, want, valid, again)?;
            return Ok(json!({ "edge": edge, "invitation": invitation }));
        }
        SyncCommand::RemoveEdge { edge } => fleet(app)?.remove(&edge)?,
        SyncCommand::Address { edge, address } => fleet(app)?.set_address(&edge, address)?,
        SyncCommand::Want { edge, want, rules } => fleet(app)?.want(&edge, want, rules)?,
        SyncCommand::Keep { edge, seconds } => fleet(app)?.keep(&edge, seconds)?,
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
            let pins = fleet(app)?.pins(&edge)?;
            let pins = pins
                .into_iter()
                .map(|(number, pin)| json!({ "pin": number, "of": pin }));
            return Ok(json!({ "pins": pins.collect::<Vec<_>>() }));
        }
        SyncCommand::Pause { edge: Some(edge) } => fleet(app)?.pause(&edge, true)?,
        SyncCommand::Resume { edge: Some(edge) } => fleet(app)?.pause(&edge, false)?,
        SyncCommand::Pause { edge: None } => uplink(app)?.pause(true)?,
        SyncCommand::Resume { edge: None } => uplink(app)?.pause(false)?,
        SyncCommand::Verify { edge: Some(edge) } => fleet(app)?.verify(&edge)?,
        SyncCommand::Verify { edge: None } => uplink(app)?.verify()?,
        SyncCommand::FetchAgain { edge } => fleet(app)?.fetch_again(&edge)?,
        SyncCommand::Relay {
            edge,
            new_incarnation: true,
            ..
        } => relays(app)?.begin_anew(&edge)?,
        SyncCommand::Relay { .. } => {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "E_INVALID",
                "expected an `invitation` of the other cloud, or `new_incarnation`",
            ));
        }
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
    fleet.known(&secret)?;
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
    let accept = headwater_fleet::accept_key(&key);
    let accept = HeaderValue::try_from(accept).map_err(|_| ApiError::internal())?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}
