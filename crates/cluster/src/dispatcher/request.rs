//! Request to a dispatcher: its route, its streams, its client, and the form of the answer.
//!
//! Invariants: parameters for the dispatcher (`at`, `relay`), and tokens in addresses, are not
//! forwarded. A request that cannot be parsed is forwarded unchanged to a node, which reports the
//! error.

use crate::partial_answer::{PARTIAL_PARAMETER, PartialUse};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Version, header};
use headwater_protocol::dispatch::{At, Client, Question};
use headwater_types::{Level, StreamName};
use headwater_wire::channel::{Channel, TileName};
use headwater_wire::query::{Query, QueryError, percent_decode};

/// Header by which a client states that it does not follow redirects.
const RELAY_HEADER: &str = "x-headwater-relay";
/// Parameters that are not forwarded.
const OWN: [&str; 3] = ["at", "relay", PARTIAL_PARAMETER];
/// Routes about a node itself, which any node answers.
const OF_A_NODE: [&str; 4] = [
    "/api/v1/storage",
    "/api/v1/watches",
    "/api/v1/watches/{name}/events",
    "/api/v1/watches/{name}/dead",
];
const PRESENCE: &str = "/api/v1/presence";

/// Kind of answer of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// One tile, named in the path.
    OneTile,
    /// Tiles of channels.
    Tiles,
    /// New values of channels.
    Live,
    /// A list of streams.
    Streams,
    /// Rows or aggregates of streams, if the request names any.
    Rows,
    /// An answer about everything.
    Whole,
}

impl AnswerKind {
    /// Returns the kind of a route.
    pub(crate) fn of(path: &str) -> AnswerKind {
        match path {
            "/tiles/{channel}/{tile}" => AnswerKind::OneTile,
            "/api/v1/tiles" => AnswerKind::Tiles,
            "/api/v1/live" => AnswerKind::Live,
            "/api/v1/streams" => AnswerKind::Streams,
            "/api/v1/aggregate" | "/api/v1/coverage" | "/api/v1/export" | "/api/v1/last"
            | "/api/v1/presence" | "/api/v1/replay" | "/api/v1/scan" => AnswerKind::Rows,
            _ => AnswerKind::Whole,
        }
    }

    /// True when a node may fetch missing ranges for such an answer.
    pub(crate) fn fetches(self) -> bool {
        matches!(
            self,
            AnswerKind::OneTile | AnswerKind::Tiles | AnswerKind::Rows
        )
    }
}

/// Stream of a request, and the parameter that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) stream: StreamName,
    /// Text in the address, `channel=…` or `stream=…`; empty if the stream is in the path.
    pub(crate) part: String,
}

/// Parsed request to a dispatcher.
#[derive(Debug)]
pub(crate) struct DispatchRequest {
    pub(crate) kind: AnswerKind,
    /// Path in the list of routes.
    pub(crate) route: &'static str,
    /// Path of the request.
    pub(crate) path: String,
    /// Parameters other than streams and parameters of the dispatcher.
    pub(crate) rest: Vec<String>,
    pub(crate) about: Vec<About>,
    pub(crate) question: Question,
    pub(crate) at: At,
    pub(crate) client: Client,
    /// The client follows no redirects. A browser follows those to an edge that lets it in.
    pub(crate) is_relayed: bool,
    /// The parameters cannot be parsed: a node reports the error.
    pub(crate) is_malformed: bool,
    /// The client accepts an answer about a part of the data.
    pub(crate) allows_partial: bool,
}

/// True when the client is a browser: it sends the header of browsers, or has their common name.
fn is_browser(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok());
    headers.contains_key("sec-fetch-mode")
        || headers.contains_key(header::ORIGIN)
        || agent.is_some_and(|agent| agent.starts_with("Mozilla/"))
}

fn name_of(part: &str) -> &str {
    part.split_once('=').map_or(part, |(name, _)| name)
}

fn at(query: &Query) -> Result<At, QueryError> {
    match query.one("at")? {
        None | Some("any") => Ok(At::Any),
        Some("edge") => Ok(At::Edge),
        Some("node") => Ok(At::Node),
        Some(other) => Err(QueryError::value("at", "expected any, edge or node", other)),
    }
}

fn relay(query: &Query) -> Result<bool, QueryError> {
    match query.one("relay")? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(QueryError::value("relay", "expected true or false", other)),
    }
}

/// Stream of a parameter; `None` where the parameter does not name a stream.
fn stream_of(part: &str) -> Option<StreamName> {
    let (name, value) = part.split_once('=')?;
    let value = percent_decode(value, true)?;
    match name {
        "channel" => Channel::parse(&value).map(|channel| channel.stream),
        "stream" => StreamName::parse(&value),
        _ => None,
    }
}

impl DispatchRequest {
    /// Parses a request on a route.
    ///
    /// # Errors
    /// For values of `at` and `relay` that are not allowed.
    pub(crate) fn of(route: &'static str, parts: &Parts) -> Result<DispatchRequest, QueryError> {
        let raw = parts.uri.query().unwrap_or_default();
        let (own, others): (Vec<&str>, Vec<&str>) = raw
            .split('&')
            .filter(|part| !part.is_empty())
            .partition(|part| OWN.contains(&name_of(part)));
        let own = Query::parse(&own.join("&"))?;
        let kind = match parts.method {
            Method::GET | Method::HEAD => AnswerKind::of(route),
            _ => AnswerKind::Whole,
        };
        let client = Client {
            is_browser: is_browser(&parts.headers),
        };
        let wants = parts.headers.get(RELAY_HEADER);
        let mut asked = DispatchRequest {
            kind,
            route,
            path: parts.uri.path().to_owned(),
            rest: Vec::new(),
            about: Vec::new(),
            is_malformed: false,
            allows_partial: PartialUse::of(&own, &parts.headers)? == PartialUse::Allow,
            question: Question::Rows,
            at: at(&own)?,
            client,
            is_relayed: relay(&own)?
                || wants.is_some_and(|value| value == "true")
                || parts.version < Version::HTTP_11,
        };
        // An edge has all of its own data: missing ranges are visible only at a node.
        if route == PRESENCE && asked.at == At::Any {
            asked.at = At::Node;
        }
        asked.take(&others);
        Ok(asked)
    }

    /// Parses the parameters that select the node.
    fn take(&mut self, parts: &[&str]) {
        let is_named = !matches!(self.kind, AnswerKind::Whole | AnswerKind::OneTile);
        for part in parts.iter().copied() {
            match stream_of(part).filter(|_| is_named) {
                Some(stream) => self.about.push(About {
                    stream,
                    part: part.to_owned(),
                }),
                None => self.rest.push(part.to_owned()),
            }
        }
        // Clients of InfluxDB pass their token here; it must not be sent to other nodes.
        if self.route == "/query" {
            self.rest.retain(|part| !matches!(name_of(part), "u" | "p"));
        }
        match self.kind {
            AnswerKind::OneTile => {
                if let Some((stream, tile)) = tile_of(&self.path) {
                    self.question = tile_question(tile);
                    let part = String::new();
                    self.about.push(About { stream, part });
                }
            }
            AnswerKind::Tiles => match tile_of_query(&self.rest) {
                Some(tile) => self.question = tile_question(tile),
                // A node reports the error.
                None => self.leave_whole(),
            },
            AnswerKind::Live => self.question = Question::Live,
            AnswerKind::Streams | AnswerKind::Rows | AnswerKind::Whole => {}
        }
        let is_bad = |part: &String| matches!(name_of(part), "channel" | "stream");
        if self.rest.iter().any(is_bad) {
            self.leave_whole();
        }
    }

    /// Forwards the request unchanged to a node.
    fn leave_whole(&mut self) {
        let about = std::mem::take(&mut self.about);
        self.rest.extend(about.into_iter().map(|about| about.part));
        self.kind = AnswerKind::Whole;
        self.is_malformed = true;
    }

    /// Whether the answer is about all data, and not about named streams or a node.
    pub(crate) fn is_about_everything(&self) -> bool {
        (self.about.is_empty() || self.kind == AnswerKind::Whole)
            && !self.is_malformed
            && !OF_A_NODE.contains(&self.route)
    }

    /// Query string of the forwarded request, about these streams.
    pub(crate) fn query(&self, about: &[&About], more: &[String]) -> String {
        let named = about.iter().map(|about| about.part.as_str());
        let parts = named
            .filter(|part| !part.is_empty())
            .chain(self.rest.iter().map(String::as_str))
            .chain(more.iter().map(String::as_str));
        parts.collect::<Vec<_>>().join("&")
    }
}

fn tile_question(tile: TileName) -> Question {
    Question::Tile {
        level: tile.level,
        offset: tile.offset,
    }
}

/// Parses `/tiles/CHANNEL/LEVEL.OFFSET.json`.
fn tile_of(path: &str) -> Option<(StreamName, TileName)> {
    let (channel, tile) = path.strip_prefix("/tiles/")?.split_once('/')?;
    let channel = Channel::parse(&percent_decode(channel, false)?)?;
    let tile = TileName::parse(&percent_decode(tile, false)?)?;
    Some((channel.stream, tile))
}

fn tile_of_query(rest: &[String]) -> Option<TileName> {
    let query = Query::parse(&rest.join("&")).ok()?;
    Some(TileName {
        level: query.number("level").ok()?.and_then(Level::new)?,
        offset: query.number("offset").ok()??,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use axum::http::Request;

    fn request_of(route: &'static str, uri: &str, header: Option<(&str, &str)>) -> DispatchRequest {
        let mut request = Request::get(uri);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        DispatchRequest::of(route, &parts).unwrap()
    }

    #[test]
    fn parameters_for_the_dispatcher_are_not_forwarded() {
        let uri =
            "/api/v1/tiles?channel=a.x&at=edge&level=3&relay=true&offset=-1&channel=b%2Ci%3D1.y";
        let found = request_of("/api/v1/tiles", uri, None);
        assert_eq!((found.at, found.is_relayed), (At::Edge, true));
        let names: Vec<String> = found.about.iter().map(|a| a.stream.to_string()).collect();
        assert_eq!(names, ["a", "b,i=1"]);
        let question = Question::Tile {
            level: Level::clamped(3),
            offset: -1,
        };
        assert_eq!(found.question, question);
        let second = found.query(&[&found.about[1]], &["fetch=true".to_owned()]);
        assert_eq!(second, "channel=b%2Ci%3D1.y&level=3&offset=-1&fetch=true");
    }

    #[test]
    fn a_malformed_request_is_forwarded_unchanged() {
        for uri in [
            "/api/v1/tiles?channel=a.x&level=99&offset=0",
            "/api/v1/tiles?channel=a.x&channel=&level=9&offset=0",
            "/api/v1/tiles?channel=a.x",
        ] {
            let found = request_of("/api/v1/tiles", uri, None);
            assert_eq!(found.kind, AnswerKind::Whole, "{uri}");
            assert_eq!(
                found.query(&[], &[]).split('&').count(),
                uri.split('&').count()
            );
        }
    }

    #[test]
    fn browsers_and_clients_that_say_so_get_the_answer_itself() {
        let uri = "/api/v1/scan?stream=a";
        let of = |header| request_of("/api/v1/scan", uri, header).is_relayed;
        assert!(!of(None) && !of(Some(("user-agent", "curl/8.5"))));
        // The target decides for a browser.
        for browser in [
            ("user-agent", "Mozilla/5.0 (X11)"),
            ("sec-fetch-mode", "cors"),
        ] {
            let found = request_of("/api/v1/scan", uri, Some(browser));
            assert!(found.client.is_browser && !found.is_relayed);
        }
        assert!(of(Some(("x-headwater-relay", "true"))));
    }

    #[test]
    fn presence_is_answered_by_a_node() {
        let at = |uri| request_of(PRESENCE, uri, None).at;
        assert_eq!(at("/api/v1/presence?stream=a"), At::Node);
        assert_eq!(at("/api/v1/presence?stream=a&at=edge"), At::Edge);
    }

    #[test]
    fn a_token_in_an_address_is_not_passed_on() {
        let found = request_of(
            "/query",
            "/query?u=me&p=hw_secret&db=x&q=SHOW%20SERIES",
            None,
        );
        assert_eq!(found.query(&[], &[]), "db=x&q=SHOW%20SERIES");
    }
}
