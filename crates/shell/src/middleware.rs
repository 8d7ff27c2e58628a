//! Steps of every request before and after its route, whatever the server serves.
//!
//! The order is: a request id; exactly one host; the name in its address, where a token is not
//! needed; its token, and whether the token suffices for the route; a permit, whose number limits
//! the running requests; the handler, within a time limit. Then headers of the answer, a line in
//! the log if configured, and metrics.
//!
//! Invariants: no handler runs for a request that its [`Needs`] refuse. Routes without needs, and
//! metrics, do not acquire a permit, so that they answer under full load. Failure: a handler that
//! panics is answered 500 and logged; the server continues.

use crate::access::Access;
use crate::access::guard::Denied;
use crate::access::host::{Stranger, is_named_once};
use crate::access::rules::Action;
use crate::access::ticket::TICKET_PREFIX;
use crate::access::token::{Carried, carried, carried_in_address};
use crate::compress::{accepts_gzip, packed};
use crate::cors::{is_preflight, open_to, preflight, welcome};
use crate::error::ErrorAnswer;
use crate::http_metrics::Observed;
use crate::leftover::Leftover;
use crate::route::{Endpoint, Needs, Prepare, Route};
use crate::settings::LogRequests;
use crate::shell::Shell;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// A request slower than this is logged.
const SLOW: Duration = Duration::from_secs(1);
/// Prefix of a ticket in an address.
const TICKET_PARAMETER: &str = "ticket=";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const VERSION: HeaderName = HeaderName::from_static("x-headwater-version");

/// Content that a page of this server may load: only from this server.
const POLICY: &str = "default-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// Headers of every answer with a body.
const SECURITY: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Properties of a route for the middleware; defaults for paths without a route.
#[derive(Clone)]
struct RouteState {
    shell: Arc<Shell>,
    endpoint: Option<Arc<(Endpoint, Observed)>>,
    prepare: Option<Prepare>,
}

/// The service made of routes and of paths without a route, each behind the same middleware.
pub(crate) fn router(shell: &Arc<Shell>, routes: Vec<Route>) -> Router {
    let mut router = Router::new();
    for route in routes {
        let Route {
            endpoint,
            handler,
            prepare,
        } = route;
        let path = endpoint.path;
        let observed = shell.metrics.observe(&endpoint);
        let gate = RouteState {
            shell: Arc::clone(shell),
            endpoint: Some(Arc::new((endpoint, observed))),
            prepare,
        };
        router = router.route(path, handler.layer(from_fn_with_state(gate, pass)));
    }
    let gate = RouteState {
        shell: Arc::clone(shell),
        endpoint: None,
        prepare: None,
    };
    let nothing = axum::routing::any(async || {
        ErrorAnswer::new(
            StatusCode::NOT_FOUND,
            "E_NO_ROUTE",
            "there is no route at this path; /api/openapi.json lists the routes",
        )
    });
    router.fallback_service(nothing.layer(from_fn_with_state(gate, pass)).with_state(()))
}

async fn pass(State(gate): State<RouteState>, mut request: Request, next: Next) -> Response {
    let clock = &gate.shell.env().clock;
    let begun = clock.monotonic();
    let id = request_id(&gate.shell, request.headers());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default());
    let method = request.method().clone();
    let path = (gate.shell.settings.log_requests != LogRequests::None)
        .then(|| request.uri().path().to_owned());
    let origin = welcome(&gate.shell.settings.cors_origins, request.headers());
    let takes_gzip = accepts_gzip(request.headers());
    let leftover = Leftover::share(&mut request);
    let mut response = if origin.is_some() && is_preflight(&method, request.headers()) {
        preflight()
    } else {
        within(&gate, request, next).instrument(span.clone()).await
    };
    if let Some(leftover) = leftover {
        leftover.discard().await;
    }
    let status = response.status();
    let took = clock.monotonic().saturating_sub(begun);
    if method != Method::HEAD {
        response = packed(response, takes_gzip);
    }
    dress(&mut response, id, gate.shell.certificate().is_some());
    if let Some(origin) = origin {
        open_to(&mut response, origin);
    }
    let needs = gate.endpoint.as_ref().map(|endpoint| endpoint.0.needs);
    if needs == Some(Needs::Write) {
        gate.shell.note_write(status);
    }
    match &gate.endpoint {
        Some(endpoint) => endpoint.1.request(status, took),
        None => gate.shell.metrics.request_elsewhere(),
    }
    if let Some(path) = path {
        // A full disk is reported once, not for each request.
        let is_full = status == StatusCode::INSUFFICIENT_STORAGE;
        let failed = (status.is_server_error() && !is_full) || took > SLOW;
        if failed || gate.shell.settings.log_requests == LogRequests::All {
            // Microseconds are as fine as anybody reads.
            let ms = (took.as_secs_f64() * 1e6).round() / 1e3;
            span.in_scope(|| {
                tracing::info!(%method, path, status = status.as_u16(), ms, "request");
            });
        }
    }
    response
}

/// Grace time in which a route whose work takes too long has to report that itself, together with
/// the work.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the steps from the name to the handler.
async fn within(gate: &RouteState, mut request: Request, next: Next) -> Response {
    let shell = &gate.shell;
    let needs = gate.endpoint.as_ref().map_or(Needs::Public, |e| e.0.needs);
    if !is_named_once(request.version(), request.headers()) {
        return ErrorAnswer::new(
            StatusCode::BAD_REQUEST,
            "E_HOST",
            "expected one header `Host`, with a name and an optional port, as HTTP/1.1 requires",
        )
        .into_response();
    }
    if shell.guard().is_open()
        && let Err(stranger) = shell.names.admit(
            request.uri(),
            request.headers(),
            welcome(&shell.settings.cors_origins, request.headers()).is_some(),
        )
    {
        return strange(stranger).into_response();
    }
    if needs != Needs::Public {
        let endpoint = gate.endpoint.as_ref();
        let in_address = endpoint.is_some_and(|e| e.0.token_in_address);
        let token = match carried(request.headers()) {
            Carried::Missing if in_address => carried_in_address(request.uri()),
            carried => carried,
        };
        let ticket = ticket_of(&mut request, &token);
        let route = endpoint.map_or("", |endpoint| endpoint.0.path);
        let admitted = match &ticket {
            None => admit(shell, needs, &token),
            Some(ticket) => admit_ticket(shell, needs, ticket, route),
        };
        match admitted {
            Ok(access) => request.extensions_mut().insert(access),
            Err(error) => return refused(error),
        };
    }
    let _permit = match needs {
        Needs::Public | Needs::Token => None,
        Needs::Read | Needs::Write | Needs::Manage => match shell.permit() {
            Ok(permit) => Some(permit),
            Err(error) => return error.into_response(),
        },
    };
    if let Some(prepare) = gate.prepare
        && let Err(error) = prepare(&mut request)
    {
        return error.into_response();
    }
    let response = handled(shell.settings.request_timeout, next.run(request)).await;
    match response.status() {
        StatusCode::METHOD_NOT_ALLOWED => other_method(&response),
        _ => response,
    }
}

/// The answer of a handler, or the refusal where it panics or takes too long.
async fn handled(allowed: Duration, handler: impl Future<Output = Response>) -> Response {
    let handler = AssertUnwindSafe(handler).catch_unwind();
    match tokio::time::timeout(allowed + GRACE, handler).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            // The panic itself was written to stderr already.
            tracing::error!("a request panicked");
            ErrorAnswer::internal().into_response()
        }
        Err(_) => ErrorAnswer::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_TIMEOUT",
            format!("no answer within {allowed:?} (setting request.timeout); the request may or may not have been carried out"),
        )
        .retry_after(1)
        .into_response(),
    }
}

/// Ticket of a request, in its address or as its token. A ticket in the address is removed, so that
/// routes do not see it.
fn ticket_of(request: &mut Request, token: &Carried) -> Option<String> {
    let in_address = without_ticket(request.uri());
    let in_address = in_address.map(|(uri, ticket)| {
        *request.uri_mut() = uri;
        ticket
    });
    match token {
        Carried::Token(token) if token.starts_with(TICKET_PREFIX) => Some(token.clone()),
        Carried::Missing => in_address,
        // A token has more rights than a ticket.
        Carried::Token(_) | Carried::Garbled => None,
    }
}

/// An address without its ticket, and the ticket; `None` when the address has no ticket.
fn without_ticket(uri: &Uri) -> Option<(Uri, String)> {
    let query = uri.query()?;
    let value = |part: &str| part.strip_prefix(TICKET_PARAMETER).map(str::to_owned);
    let ticket = query.split('&').find_map(value)?;
    let kept = query.split('&').filter(|part| value(part).is_none());
    let kept = kept.collect::<Vec<_>>().join("&");
    let path = uri.path();
    let rest = match kept.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{kept}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(rest.parse().ok()?);
    Some((Uri::from_parts(parts).ok()?, ticket))
}

/// Rights of a request by its ticket.
fn admit_ticket(
    shell: &Shell,
    needs: Needs,
    ticket: &str,
    route: &str,
) -> Result<Access, ErrorAnswer> {
    if matches!(needs, Needs::Write | Needs::Manage) {
        let message = "a ticket is read-only: it does not allow changes";
        return Err(ErrorAnswer::new(StatusCode::FORBIDDEN, "E_ACCESS", message));
    }
    let admitted = shell.guard().admit_ticket(ticket, route);
    admitted.map_err(denied)
}

/// Answer to a refused client.
fn denied(denied: Denied) -> ErrorAnswer {
    let (code, message) = match denied {
        Denied::Missing => (
            "E_TOKEN",
            "a token is needed: send `Authorization: Bearer TOKEN`; `headwater token create` makes one",
        ),
        Denied::Wrong => ("E_TOKEN", "this token is not valid, or no longer valid"),
        Denied::Ticket => (
            "E_TICKET",
            "this ticket is not valid here, or no longer valid: send the request to the dispatcher again",
        ),
    };
    ErrorAnswer::new(StatusCode::UNAUTHORIZED, code, message)
}

/// Rights of a request, if they suffice for the route.
fn admit(shell: &Shell, needs: Needs, token: &Carried) -> Result<Access, ErrorAnswer> {
    let access = shell.guard().admit(token).map_err(denied)?;
    let (action, word) = match needs {
        Needs::Public | Needs::Token => return Ok(access),
        Needs::Read => (Action::Read, "read"),
        Needs::Write => (Action::Write, "write"),
        Needs::Manage => (Action::Manage, "manage"),
    };
    if access.any(action) {
        return Ok(access);
    }
    if action != Action::Read && shell.guard().is_read_only() {
        return Err(ErrorAnswer::new(
            StatusCode::FORBIDDEN,
            "E_READ_ONLY",
            "this server is read-only (setting read_only)",
        ));
    }
    Err(ErrorAnswer::new(
        StatusCode::FORBIDDEN,
        "E_ACCESS",
        format!(
            "this token may not {word} anything: none of its rules allows it; use a token with such \
             a rule (`headwater token create`)"
        ),
    ))
}

fn refused(error: ErrorAnswer) -> Response {
    let mut response = error.into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer realm=\"headwater\"");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

fn strange(stranger: Stranger) -> ErrorAnswer {
    let (code, message) = match stranger {
        Stranger::Host => (
            "E_HOST",
            "without tokens this server answers only to names of this machine, such as 127.0.0.1 or localhost, and to those in the setting `hosts`",
        ),
        Stranger::Origin => (
            "E_ORIGIN",
            "without tokens this server does not answer pages of other origins",
        ),
    };
    ErrorAnswer::new(StatusCode::FORBIDDEN, code, message)
}

/// The answer to a method that the path does not have, in the form of all errors.
fn other_method(response: &Response) -> Response {
    let mut answer = ErrorAnswer::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "E_METHOD",
        "this path does not allow this method; the header Allow lists those it allows",
    )
    .into_response();
    if let Some(allow) = response.headers().get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allow.clone());
    }
    answer
}

/// The headers that every answer has.
fn dress(response: &mut Response, id: HeaderValue, tls: bool) {
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        return;
    }
    for (name, value) in SECURITY {
        headers.insert(name, value);
    }
    if tls {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
}

/// Id sent by the client, if it is harmless in a log; otherwise the next id of this run.
fn request_id(shell: &Shell, headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=64).contains(&bytes.len())
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    });
    if let Some(id) = given {
        return id.clone();
    }
    // Hexadecimal digits are always a value.
    HeaderValue::try_from(shell.next_request_id()).unwrap_or(HeaderValue::from_static("-"))
}
