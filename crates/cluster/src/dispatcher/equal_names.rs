//! List of the streams of nodes of which several have streams of the same names: merged as a whole,
//! so that each stream is listed and counted once, whatever pages it would be on.
//!
//! Invariant: a stream is listed where the first node that has it lists it. Failure: of more than
//! [`STREAMS_MAX`] streams no such list is made.

use super::merge::{ANSWER_BYTES_MAX, LIMIT, Page, no_page, page, parameter};
use super::partial::LeftOutEdges;
use super::relay::{Relaying, merged_headers};
use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::ErrorAnswer;
use headwater_types::StreamName;
use headwater_wire::query::{QueryError, percent_decode};
use std::collections::HashSet;
use std::fmt::Write as _;

/// Most streams of all nodes together.
const STREAMS_MAX: usize = 16_000;
/// Streams that are requested at once, the largest page of nodes.
const AT_ONCE: usize = 1_000;

/// A text in an address.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                out.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// The streams of all nodes.
#[derive(Default)]
struct AllStreams {
    /// Each with its name.
    streams: Vec<(String, String)>,
    headers: Vec<HeaderMap>,
    left_out: LeftOutEdges,
}

/// Why the streams of all nodes are not merged.
enum NotMerged {
    /// A node has answered with an error.
    Error(Response<Body>),
    TooMany,
}

async fn all_streams(
    passing: &Relaying<'_>,
    nodes: &[NodeIndex],
) -> Result<Result<AllStreams, NotMerged>, ErrorAnswer> {
    let mut all = AllStreams::default();
    for node in nodes {
        let mut after: Option<String> = None;
        loop {
            let mut passed = page(passing, *node, AT_ONCE, after.as_deref()).await?;
            if passed.status != StatusCode::OK {
                return Ok(Err(NotMerged::Error(passed.into_response())));
            }
            if after.is_none() {
                all.left_out.add(*node, &passed.headers);
                all.headers.push(std::mem::take(&mut passed.headers));
            }
            let bytes = passed.read_body(ANSWER_BYTES_MAX).await?;
            let found = Page::read(&bytes).ok_or_else(no_page)?;
            all.streams.extend(found.streams);
            if all.streams.len() > STREAMS_MAX {
                return Ok(Err(NotMerged::TooMany));
            }
            let Some(next) = found.next else {
                break;
            };
            after = Some(escaped(&next));
        }
    }
    Ok(Ok(all))
}

/// The page of a list that is asked for. `after` is a stream of the list.
fn page_of(
    mut streams: Vec<(String, String)>,
    limit: usize,
    after: Option<&str>,
) -> Result<Page, QueryError> {
    let mut once = HashSet::new();
    streams.retain(|(name, _)| once.insert(name.clone()));
    let mut all = Page {
        total: u64::try_from(streams.len()).unwrap_or(u64::MAX),
        ..Page::default()
    };
    for (name, _) in &streams {
        let table = StreamName::parse(name).map(|stream| stream.table().to_owned());
        let table = table.unwrap_or_default();
        match all.tables.iter_mut().find(|(known, _)| *known == table) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => all.tables.push((table, 1)),
        }
    }
    let begin = match after {
        None => 0,
        Some(after) => {
            let at = streams.iter().position(|(name, _)| name == after);
            let gone = "this stream is not in the list any more; begin with its first page";
            at.map(|at| at + 1)
                .ok_or_else(|| QueryError::value("after", gone, after))?
        }
    };
    let has_more = streams.len() > begin.saturating_add(limit);
    all.streams = streams.into_iter().skip(begin).take(limit).collect();
    let last = all.streams.last().map(|(name, _)| name.clone());
    all.next = last.filter(|_| has_more);
    Ok(all)
}

/// A page of the merged list; `None` where no such list is made.
///
/// # Errors
/// Errors of relaying.
pub(super) async fn merged_page(
    passing: &Relaying<'_>,
    nodes: &[NodeIndex],
) -> Result<Option<(Response<Body>, LeftOutEdges)>, ErrorAnswer> {
    let limit = parameter(passing.request, "limit").map(str::parse);
    // A node reports the error.
    let Ok(limit) = limit.unwrap_or(Ok(LIMIT)) else {
        return Ok(None);
    };
    if limit > AT_ONCE || !passing.state.tables.read().share_streams(nodes) {
        return Ok(None);
    }
    let all = match all_streams(passing, nodes).await? {
        Ok(all) => all,
        Err(NotMerged::TooMany) => return Ok(None),
        Err(NotMerged::Error(answer)) => return Ok(Some((answer, LeftOutEdges::default()))),
    };
    let after = parameter(passing.request, "after");
    let after = after.and_then(|after| percent_decode(after, true));
    let page = page_of(all.streams, limit, after.as_deref())?;
    let mut response = page.json();
    response.headers_mut().extend(merged_headers(&all.headers));
    Ok(Some((response, all.left_out)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn streams(names: &[&str]) -> Vec<(String, String)> {
        let pair = |name: &&str| ((*name).to_owned(), format!("{{\"stream\":\"{name}\"}}"));
        names.iter().map(pair).collect()
    }

    #[test]
    fn a_stream_of_two_nodes_is_listed_and_counted_once_whatever_its_page() {
        let all = || streams(&["a,i=1", "a,i=2", "b,i=1", "a,i=2", "a,i=3", "b,i=1", "c"]);
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = page_of(all(), 2, after.as_deref()).unwrap();
            assert_eq!(page.total, 5);
            let counts = [("a", 3), ("b", 1), ("c", 1)];
            assert_eq!(page.tables, counts.map(|(t, n)| (t.to_owned(), n)));
            seen.extend(page.streams.into_iter().map(|(name, _)| name));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, ["a,i=1", "a,i=2", "b,i=1", "a,i=3", "c"]);
        assert!(page_of(all(), 2, Some("gone")).is_err());
        assert_eq!(page_of(all(), 0, None).unwrap().streams.len(), 0);
        assert_eq!(escaped("a,i=ü 1"), "a%2Ci%3D%C3%BC%201");
    }
}
