//! Merges the answers of several nodes into one: tiles, new values, and lists of streams.
//!
//! Invariants: elements of the nodes' answers are copied unchanged, in the order of the request. An
//! error of one node is the answer: no part is left out silently.

use super::plan::{Destination, Share, Target};
use super::relay::{RelayedAnswer, Relaying, broken};
use super::request::{About, DispatchRequest, Kind};
use super::split::{items, tiles, whole_events};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use futures_util::future::try_join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use headwater_protocol::dispatch::{NodeIndex, StreamKey};
use headwater_shell::ErrorAnswer;
use headwater_wire::json::{push_str, push_u64};
use headwater_wire::tiles::{TILES_MEDIA_TYPE, push_tiles_head};
use serde_json::Value;
use std::collections::BTreeSet;

/// Largest answer that is parsed, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Streams of a page, the default of nodes.
const LIMIT: usize = 100;

/// Error for answers of several nodes that cannot be merged.
fn apart(shares: &[Share<'_>]) -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::CONFLICT,
        "E_APART",
        format!(
            "the streams of this question are answered at {} places: ask about each of them alone",
            shares.len()
        ),
    )
}

/// Complete answers, or the first that is an error.
async fn answers(
    passing: &Relaying<'_>,
    shares: &[Share<'_>],
) -> Result<Result<Vec<Bytes>, RelayedAnswer>, ErrorAnswer> {
    let asking = shares
        .iter()
        .map(|share| passing.pass(&share.target, (&share.about, &[]), Body::empty()));
    let mut whole = Vec::new();
    for passed in try_join_all(asking).await? {
        if passed.status != StatusCode::OK {
            return Ok(Err(passed));
        }
        whole.push(passed.whole(ANSWER_BYTES_MAX).await?);
    }
    Ok(Ok(whole))
}

fn answer(kind: HeaderValue, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, crate::request::ASK_AGAIN);
    response
}

/// Merges the answers of all shares.
///
/// # Errors
/// `E_APART` for answers that cannot be merged; errors of relaying.
pub(crate) async fn merged(
    passing: &Relaying<'_>,
    shares: &[Share<'_>],
) -> Result<Response<Body>, ErrorAnswer> {
    match passing.asked.kind {
        Kind::Tiles => {
            let answers = match answers(passing, shares).await? {
                Ok(answers) => answers,
                Err(error) => return Ok(error.into_response()),
            };
            all_tiles(passing.asked, shares, &answers)
        }
        Kind::Live => live(passing, shares).await,
        Kind::Streams => {
            let answers = match answers(passing, shares).await? {
                Ok(answers) => answers,
                Err(error) => return Ok(error.into_response()),
            };
            named_streams(passing.asked, &answers)
        }
        Kind::OneTile | Kind::Rows | Kind::Whole => Err(apart(shares)),
    }
}

/// Share, and index in it, of each requested stream, in the order of the request.
fn order<'a>(asked: &'a DispatchRequest, shares: &[Share<'a>]) -> Vec<(usize, usize)> {
    let place = |about: &About| {
        shares.iter().enumerate().find_map(|(share, found)| {
            let at = found.about.iter().position(|one| std::ptr::eq(*one, about));
            at.map(|at| (share, at))
        })
    };
    asked.about.iter().filter_map(place).collect()
}

fn all_tiles(
    asked: &DispatchRequest,
    shares: &[Share<'_>],
    answers: &[Bytes],
) -> Result<Response<Body>, ErrorAnswer> {
    let unread = || broken("a node's tiles are not of the form expected");
    let is_binary = asked.rest.iter().any(|part| part == "format=binary");
    let order = order(asked, shares);
    if is_binary {
        let all = answers.iter().map(|bytes| tiles(bytes));
        let all: Vec<Vec<&[u8]>> = all.collect::<Option<_>>().ok_or_else(unread)?;
        let mut out = Vec::new();
        push_tiles_head(&mut out, u32::try_from(order.len()).unwrap_or(u32::MAX));
        for (share, at) in order {
            let tile = all.get(share).and_then(|tiles| tiles.get(at));
            out.extend_from_slice(tile.ok_or_else(unread)?);
        }
        return Ok(answer(HeaderValue::from_static(TILES_MEDIA_TYPE), out));
    }
    let texts = answers.iter().map(|bytes| std::str::from_utf8(bytes).ok());
    let lists = texts.map(|text| items(text?, "tiles"));
    let lists: Vec<Vec<&str>> = lists.collect::<Option<_>>().ok_or_else(unread)?;
    let mut found = Vec::new();
    for (share, at) in order {
        let tile = lists.get(share).and_then(|tiles| tiles.get(at));
        found.push(*tile.ok_or_else(unread)?);
    }
    let body = format!("{{\"tiles\":[{}]}}", found.join(","));
    Ok(answer(crate::request::JSON, body.into_bytes()))
}

/// Events of one node, each in one chunk.
struct Events {
    body: axum::body::BodyDataStream,
    begun: Vec<u8>,
}

fn events(passed: RelayedAnswer) -> BoxStream<'static, Result<Bytes, axum::Error>> {
    let events = Events {
        body: passed.body.into_data_stream(),
        begun: Vec::new(),
    };
    let whole = stream::unfold(events, |mut events| async {
        loop {
            match events.body.next().await? {
                Err(error) => return Some((Err(error), events)),
                Ok(bytes) => events.begun.extend_from_slice(&bytes),
            }
            let end = whole_events(&events.begun);
            if end > 0 {
                let rest = events.begun.split_off(end);
                let whole = std::mem::replace(&mut events.begun, rest);
                return Some((Ok(Bytes::from(whole)), events));
            }
        }
    });
    whole.boxed()
}

async fn live(passing: &Relaying<'_>, shares: &[Share<'_>]) -> Result<Response<Body>, ErrorAnswer> {
    let asking = shares
        .iter()
        .map(|share| passing.pass(&share.target, (&share.about, &[]), Body::empty()));
    let mut all = Vec::new();
    for passed in try_join_all(asking).await? {
        if passed.status != StatusCode::OK {
            return Ok(passed.into_response());
        }
        all.push(events(passed));
    }
    let mut response = Response::new(Body::from_stream(stream::select_all(all)));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Streams that a node lists.
#[derive(Default)]
struct Page {
    streams: Vec<(String, String)>,
    total: u64,
    tables: Vec<(String, u64)>,
    next: Option<String>,
}

impl Page {
    fn read(bytes: &[u8]) -> Option<Page> {
        let text = std::str::from_utf8(bytes).ok()?;
        let about: Value = serde_json::from_str(text).ok()?;
        let name = |value: &Value| Some(value.get("stream")?.as_str()?.to_owned());
        let names = about.get("streams")?.as_array()?.iter().map(name);
        let names = names.collect::<Option<Vec<String>>>()?;
        let written = items(text, "streams")?;
        let tables = about.get("tables")?.as_array()?.iter().map(|table| {
            let name = table.get("table")?.as_str()?.to_owned();
            Some((name, table.get("streams")?.as_u64()?))
        });
        Some(Page {
            streams: names
                .into_iter()
                .zip(written.into_iter().map(str::to_owned))
                .collect(),
            total: about.get("total")?.as_u64()?,
            tables: tables.collect::<Option<_>>()?,
            next: about.get("next").and_then(Value::as_str).map(str::to_owned),
        })
    }

    /// Appends the streams of another node.
    fn add(&mut self, other: Page) {
        let known: BTreeSet<String> = self.streams.iter().map(|(name, _)| name.clone()).collect();
        let new = other.streams.into_iter();
        self.streams
            .extend(new.filter(|(name, _)| !known.contains(name)));
        self.total = self.total.saturating_add(other.total);
        for (table, count) in other.tables {
            match self.tables.iter_mut().find(|(name, _)| *name == table) {
                Some((_, all)) => *all = all.saturating_add(count),
                None => self.tables.push((table, count)),
            }
        }
    }

    fn json(&self) -> Response<Body> {
        let mut out = b"{\"streams\":[".to_vec();
        let streams: Vec<&str> = self.streams.iter().map(|(_, text)| text.as_str()).collect();
        out.extend_from_slice(streams.join(",").as_bytes());
        out.extend_from_slice(b"],\"total\":");
        push_u64(&mut out, self.total);
        out.extend_from_slice(b",\"tables\":[");
        for (index, (table, streams)) in self.tables.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"table\":");
            push_str(&mut out, table);
            out.extend_from_slice(b",\"streams\":");
            push_u64(&mut out, *streams);
            out.push(b'}');
        }
        out.extend_from_slice(b"],\"next\":");
        match &self.next {
            Some(next) => push_str(&mut out, next),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
        answer(crate::request::JSON, out)
    }
}

fn no_page() -> ErrorAnswer {
    broken("a node's list of streams is not of the form expected")
}

/// Streams requested by their names, of several nodes.
fn named_streams(
    asked: &DispatchRequest,
    answers: &[Bytes],
) -> Result<Response<Body>, ErrorAnswer> {
    let mut all = Page::default();
    for bytes in answers {
        all.add(Page::read(bytes).ok_or_else(no_page)?);
    }
    let place = |name: &str| {
        let is_it = |about: &About| about.stream.to_string() == name;
        asked.about.iter().position(is_it)
    };
    all.streams.sort_by_key(|(name, _)| place(name));
    Ok(all.json())
}

/// Returns a parameter of a list of streams.
fn parameter<'a>(asked: &'a DispatchRequest, name: &str) -> Option<&'a str> {
    let parts = asked.rest.iter().filter_map(|part| part.split_once('='));
    parts
        .into_iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// A page of the streams of all nodes, node after node.
///
/// # Errors
/// Errors of relaying.
pub(crate) async fn listed(
    passing: &Relaying<'_>,
    nodes: &[NodeIndex],
) -> Result<Response<Body>, ErrorAnswer> {
    let asked = passing.asked;
    let limit = parameter(asked, "limit").map(str::parse);
    // A node reports the error.
    let Ok(limit) = limit.unwrap_or(Ok(LIMIT)) else {
        return one(passing, nodes).await;
    };
    let after = parameter(asked, "after").map(str::to_owned);
    let begins = after.as_deref().and_then(|after| node_of(passing, after));
    let begins = begins.and_then(|node| nodes.iter().position(|one| *one == node));
    let mut all = Page::default();
    for (at, node) in nodes.iter().enumerate() {
        let is_before = begins.is_some_and(|begins| at < begins);
        let left = limit.saturating_sub(all.streams.len());
        let wanted = if is_before || all.next.is_some() {
            0
        } else {
            left
        };
        let after = after.as_deref().filter(|_| begins.unwrap_or(0) == at);
        let bytes = match page(passing, *node, wanted, after).await? {
            Ok(bytes) => bytes,
            Err(error) => return Ok(error.into_response()),
        };
        let mut page = Page::read(&bytes).ok_or_else(no_page)?;
        let next = page.next.take();
        let has_more = wanted == 0 && page.total > 0 && !is_before;
        all.add(page);
        if all.next.is_none() && wanted > 0 {
            all.next = next;
        } else if has_more && limit > 0 {
            // The next page begins after the last stream of this page.
            let last = all.streams.last().map(|(name, _)| name.clone());
            all.next = all.next.take().or(last);
        }
    }
    Ok(all.json())
}

fn node_of(passing: &Relaying<'_>, after: &str) -> Option<NodeIndex> {
    let name = headwater_wire::query::percent_decode(after, true)?;
    let stream = headwater::StreamName::parse(&name)?;
    let tables = passing.state.tables.read();
    tables
        .node_of(StreamKey::of(&stream))
        .filter(|_| passing.access.may_read_stream(&stream))
}

fn at_node(node: NodeIndex) -> Target {
    Target {
        to: Destination::Node(node),
        fetches: false,
        is_relayed: true,
        why: "whole",
    }
}

async fn one(passing: &Relaying<'_>, nodes: &[NodeIndex]) -> Result<Response<Body>, ErrorAnswer> {
    let node = nodes.first().ok_or_else(|| broken("no node answers"))?;
    let target = at_node(*node);
    let passed = passing.pass(&target, (&[], &[]), Body::empty()).await?;
    Ok(passed.into_response())
}

/// A page of one node's streams, or its error.
async fn page(
    passing: &Relaying<'_>,
    node: NodeIndex,
    limit: usize,
    after: Option<&str>,
) -> Result<Result<Bytes, RelayedAnswer>, ErrorAnswer> {
    let is_other = |part: &&String| {
        let name = part.split_once('=').map_or(part.as_str(), |(name, _)| name);
        !matches!(name, "limit" | "after")
    };
    let mut asked = DispatchRequest {
        rest: passing
            .asked
            .rest
            .iter()
            .filter(is_other)
            .cloned()
            .collect(),
        about: Vec::new(),
        path: passing.asked.path.clone(),
        ..*passing.asked
    };
    asked.rest.push(format!("limit={limit}"));
    asked
        .rest
        .extend(after.map(|after| format!("after={after}")));
    let passing = Relaying {
        asked: &asked,
        ..*passing
    };
    let passed = passing
        .pass(&at_node(node), (&[], &[]), Body::empty())
        .await?;
    if passed.status != StatusCode::OK {
        return Ok(Err(passed));
    }
    Ok(Ok(passed.whole(ANSWER_BYTES_MAX).await?))
}
