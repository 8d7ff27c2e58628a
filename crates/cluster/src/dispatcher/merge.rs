//! Merges the answers of several nodes into one: tiles, new values, and lists of streams.
//!
//! Invariants: elements of the nodes' answers are copied unchanged, in the order of the request. An
//! error of one node is the answer: no part is left out silently.

use super::answer_elements::{binary_tiles, complete_events, json_items};
use super::partial::LeftOutEdges;
use super::plan::{Destination, RequestShare, RequestTarget};
use super::relay::{RelayedAnswer, Relaying, merged_headers, relay_failed};
use super::request::{About, AnswerKind, DispatchRequest};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use futures_util::future::try_join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use headwater_protocol::dispatch::{NodeIndex, StreamKey};
use headwater_shell::{ErrorAnswer, JSON, NO_CACHE};
use headwater_types::StreamName;
use headwater_wire::json::push_streams_end;
use headwater_wire::tiles::{TILES_MEDIA_TYPE, push_tiles_head};
use serde_json::Value;
use std::collections::BTreeSet;

/// Largest answer that is parsed, in bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Streams of a page, the default of nodes.
pub(super) const LIMIT: usize = 100;

/// Error for answers of several nodes that cannot be merged.
fn apart(shares: &[RequestShare<'_>]) -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::CONFLICT,
        "E_APART",
        format!(
            "the streams of this query are on {} nodes: query each stream separately",
            shares.len()
        ),
    )
}

/// Bodies of complete answers, and the headers of the answer that is made of them.
struct Parts {
    bodies: Vec<Bytes>,
    headers: HeaderMap,
}

/// Complete answers, or the first that is an error.
async fn answers(
    passing: &Relaying<'_>,
    shares: &[RequestShare<'_>],
) -> Result<Result<Parts, RelayedAnswer>, ErrorAnswer> {
    let asking = shares
        .iter()
        .map(|share| passing.forward(&share.target, (&share.about, &[]), Body::empty()));
    let (mut bodies, mut headers) = (Vec::new(), Vec::new());
    for mut passed in try_join_all(asking).await? {
        if passed.status != StatusCode::OK {
            return Ok(Err(passed));
        }
        headers.push(std::mem::take(&mut passed.headers));
        bodies.push(passed.read_body(ANSWER_BYTES_MAX).await?);
    }
    let headers = merged_headers(&headers);
    Ok(Ok(Parts { bodies, headers }))
}

fn answer(kind: HeaderValue, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    response
}

/// Merges the answers of all shares.
///
/// # Errors
/// `E_APART` for answers that cannot be merged; errors of relaying.
pub(crate) async fn merged(
    passing: &Relaying<'_>,
    shares: &[RequestShare<'_>],
) -> Result<Response<Body>, ErrorAnswer> {
    match passing.request.kind {
        AnswerKind::Tiles | AnswerKind::Streams => {}
        AnswerKind::Live => return live(passing, shares).await,
        AnswerKind::OneTile | AnswerKind::Rows | AnswerKind::Whole => return Err(apart(shares)),
    }
    let parts = match answers(passing, shares).await? {
        Ok(parts) => parts,
        Err(error) => return Ok(error.into_response()),
    };
    let mut response = match passing.request.kind {
        AnswerKind::Tiles => all_tiles(passing.request, shares, &parts.bodies)?,
        _ => named_streams(passing.request, &parts.bodies)?,
    };
    response.headers_mut().extend(parts.headers);
    Ok(response)
}

/// Share, and index in it, of each requested stream, in the order of the request.
fn order<'a>(asked: &'a DispatchRequest, shares: &[RequestShare<'a>]) -> Vec<(usize, usize)> {
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
    shares: &[RequestShare<'_>],
    answers: &[Bytes],
) -> Result<Response<Body>, ErrorAnswer> {
    let unread = || relay_failed("a node returned tiles in an unexpected format");
    let is_binary = asked.rest.iter().any(|part| part == "format=binary");
    let order = order(asked, shares);
    if is_binary {
        let all = answers.iter().map(|bytes| binary_tiles(bytes));
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
    let lists = texts.map(|text| json_items(text?, "tiles"));
    let lists: Vec<Vec<&str>> = lists.collect::<Option<_>>().ok_or_else(unread)?;
    let mut found = Vec::new();
    for (share, at) in order {
        let tile = lists.get(share).and_then(|tiles| tiles.get(at));
        found.push(*tile.ok_or_else(unread)?);
    }
    let body = format!("{{\"tiles\":[{}]}}", found.join(","));
    Ok(answer(JSON, body.into_bytes()))
}

/// Events of one node, each in one chunk.
struct Events {
    body: axum::body::BodyDataStream,
    buffered: Vec<u8>,
}

fn events(passed: RelayedAnswer) -> BoxStream<'static, Result<Bytes, axum::Error>> {
    let events = Events {
        body: passed.body.into_data_stream(),
        buffered: Vec::new(),
    };
    let whole = stream::unfold(events, |mut events| async {
        loop {
            match events.body.next().await? {
                Err(error) => return Some((Err(error), events)),
                Ok(bytes) => events.buffered.extend_from_slice(&bytes),
            }
            let end = complete_events(&events.buffered);
            if end > 0 {
                let rest = events.buffered.split_off(end);
                let whole = std::mem::replace(&mut events.buffered, rest);
                return Some((Ok(Bytes::from(whole)), events));
            }
        }
    });
    whole.boxed()
}

async fn live(
    passing: &Relaying<'_>,
    shares: &[RequestShare<'_>],
) -> Result<Response<Body>, ErrorAnswer> {
    let asking = shares
        .iter()
        .map(|share| passing.forward(&share.target, (&share.about, &[]), Body::empty()));
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
pub(super) struct Page {
    pub(super) streams: Vec<(String, String)>,
    pub(super) total: u64,
    pub(super) tables: Vec<(String, u64)>,
    pub(super) next: Option<String>,
}

impl Page {
    pub(super) fn read(bytes: &[u8]) -> Option<Page> {
        let text = std::str::from_utf8(bytes).ok()?;
        let about: Value = serde_json::from_str(text).ok()?;
        let name = |value: &Value| Some(value.get("stream")?.as_str()?.to_owned());
        let names = about.get("streams")?.as_array()?.iter().map(name);
        let names = names.collect::<Option<Vec<String>>>()?;
        let written = json_items(text, "streams")?;
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
    fn add(&mut self, mut other: Page) {
        let known: BTreeSet<String> = self.streams.iter().map(|(name, _)| name.clone()).collect();
        let new = std::mem::take(&mut other.streams).into_iter();
        let (both, new): (Vec<_>, Vec<_>) = new.partition(|(name, _)| known.contains(name));
        self.streams.extend(new);
        // A stream that both have is one.
        for (name, _) in both {
            let table = StreamName::parse(&name).map(|name| name.table().to_owned());
            let of = |one: &&mut (String, u64)| Some(&one.0) == table.as_ref();
            if let Some((_, count)) = other.tables.iter_mut().find(of) {
                *count = count.saturating_sub(1);
            }
            other.total = other.total.saturating_sub(1);
        }
        self.total = self.total.saturating_add(other.total);
        for (table, count) in other.tables {
            match self.tables.iter_mut().find(|(name, _)| *name == table) {
                Some((_, all)) => *all = all.saturating_add(count),
                None => self.tables.push((table, count)),
            }
        }
    }

    pub(super) fn json(&self) -> Response<Body> {
        let mut out = b"{\"streams\":[".to_vec();
        let streams: Vec<&str> = self.streams.iter().map(|(_, text)| text.as_str()).collect();
        out.extend_from_slice(streams.join(",").as_bytes());
        push_streams_end(&mut out, self.total, &self.tables, self.next.as_deref());
        answer(JSON, out)
    }
}

pub(super) fn no_page() -> ErrorAnswer {
    relay_failed("a node returned its list of streams in an unexpected format")
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
pub(super) fn parameter<'a>(asked: &'a DispatchRequest, name: &str) -> Option<&'a str> {
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
) -> Result<(Response<Body>, LeftOutEdges), ErrorAnswer> {
    let mut left_out = LeftOutEdges::default();
    let asked = passing.request;
    let limit = parameter(asked, "limit").map(str::parse);
    // A node reports the error.
    let Ok(limit) = limit.unwrap_or(Ok(LIMIT)) else {
        return Ok((one(passing, nodes).await?, left_out));
    };
    let after = parameter(asked, "after").map(str::to_owned);
    let begins = after.as_deref().and_then(|after| node_of(passing, after));
    let begins = begins.and_then(|node| nodes.iter().position(|one| *one == node));
    let (mut all, mut headers) = (Page::default(), Vec::new());
    for (at, node) in nodes.iter().enumerate() {
        let is_before = begins.is_some_and(|begins| at < begins);
        let left = limit.saturating_sub(all.streams.len());
        let wanted = if is_before || all.next.is_some() {
            0
        } else {
            left
        };
        let after = after.as_deref().filter(|_| begins.unwrap_or(0) == at);
        let mut passed = page(passing, *node, wanted, after).await?;
        if passed.status != StatusCode::OK {
            return Ok((passed.into_response(), left_out));
        }
        left_out.add(*node, &passed.headers);
        headers.push(std::mem::take(&mut passed.headers));
        let bytes = passed.read_body(ANSWER_BYTES_MAX).await?;
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
    let mut response = all.json();
    response.headers_mut().extend(merged_headers(&headers));
    Ok((response, left_out))
}

fn node_of(passing: &Relaying<'_>, after: &str) -> Option<NodeIndex> {
    let name = headwater_wire::query::percent_decode(after, true)?;
    let stream = StreamName::parse(&name)?;
    let tables = passing.state.tables.read();
    tables
        .node_of(StreamKey::of(&stream))
        .filter(|_| passing.access.may_read_stream(&stream))
}

fn at_node(node: NodeIndex) -> RequestTarget {
    RequestTarget {
        to: Destination::Node(node),
        fetches: false,
        is_relayed: true,
        why: "whole",
    }
}

async fn one(passing: &Relaying<'_>, nodes: &[NodeIndex]) -> Result<Response<Body>, ErrorAnswer> {
    let node = nodes
        .first()
        .ok_or_else(|| relay_failed("no node answers"))?;
    let target = at_node(*node);
    let passed = passing.forward(&target, (&[], &[]), Body::empty()).await?;
    Ok(passed.into_response())
}

/// Answer of one node with a page of its streams, or with its error.
pub(super) async fn page(
    passing: &Relaying<'_>,
    node: NodeIndex,
    limit: usize,
    after: Option<&str>,
) -> Result<RelayedAnswer, ErrorAnswer> {
    let is_other = |part: &&String| {
        let name = part.split_once('=').map_or(part.as_str(), |(name, _)| name);
        !matches!(name, "limit" | "after")
    };
    let mut asked = DispatchRequest {
        rest: passing
            .request
            .rest
            .iter()
            .filter(is_other)
            .cloned()
            .collect(),
        about: Vec::new(),
        path: passing.request.path.clone(),
        ..*passing.request
    };
    asked.rest.push(format!("limit={limit}"));
    asked
        .rest
        .extend(after.map(|after| format!("after={after}")));
    let passing = Relaying {
        request: &asked,
        ..*passing
    };
    passing
        .forward(&at_node(node), (&[], &[]), Body::empty())
        .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_stream_of_two_nodes_is_counted_once() {
        let page = |ids: &[&str]| {
            let name = |id: &&str| format!("{{\"stream\":\"pump,id={id}\"}}");
            let names: Vec<String> = ids.iter().map(name).collect();
            let mut body = format!("{{\"streams\":[{}]", names.join(","));
            body.push_str(",\"total\":9,\"tables\":[{\"table\":\"pump\",\"streams\":7},");
            body.push_str("{\"table\":\"a\",\"streams\":2}],\"next\":null}");
            Page::read(body.as_bytes()).unwrap()
        };
        let mut all = page(&["1", "2", "3"]);
        all.add(page(&["2", "4", "3"]));
        assert_eq!((all.streams.len(), all.total), (4, 16));
        assert_eq!(all.tables, [("pump".to_owned(), 12), ("a".to_owned(), 4)]);
    }
}
