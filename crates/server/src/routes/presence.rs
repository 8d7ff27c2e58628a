//! Presence of a stream, as a map of levels and time: cells that are read without an edge, the edge
//! that has the rest, since when that is unreachable, and the rules of replication.
//!
//! Invariants: a cell that is reported as present is read without an edge. An answer has at most
//! `LINES_MAX` times `BINS_MAX` cells, and is computed within the time limit of a request. Only the
//! rule of an edge that applies to the stream is shown, so that no other names are revealed.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{
    self, Deadline, answer, at_most, not_found, now, ok_if_found, parse_stream, query,
};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater::{ClosedRange, Level, Snapshot, StreamName, Timestamp};
use headwater_cluster::{EdgeCopies, EdgeState, StreamShare};
use headwater_wire::query::{Query, QueryError};
use serde::Serialize;
use std::sync::Arc;

const BINS: u32 = 64;
const BINS_MAX: u32 = 256;
const LINES_MAX: usize = 16;
/// Levels of an answer by default, and the distance between two of them.
const LEVELS: i32 = 9;
const LEVEL_STEP: i32 = 2;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/presence", Needs::Read, presence)]
}

/// Body of the answer. Its names are a promise.
#[derive(Serialize)]
struct Answer {
    stream: String,
    from: String,
    /// The first instant after the last.
    to: String,
    /// Width of a cell in nanoseconds; the last one may be narrower.
    every: String,
    lines: Vec<Line>,
    sources: Vec<Source>,
}

/// A level, or the rows.
#[derive(Serialize)]
struct Line {
    /// `None` = rows.
    level: Option<i32>,
    /// A letter for each cell: `h` here, `o` here in an older version, `e` elsewhere.
    cells: String,
    /// Bytes of missing ranges that are known.
    missing_bytes: u64,
}

/// A part of the range that one node has.
#[derive(Serialize)]
struct Source {
    from: String,
    /// The first instant after the last.
    to: String,
    /// The edge; `None` for this node's own data, and where the owner is unknown here.
    edge: Option<String>,
    /// State of the edge.
    state: Option<EdgeState>,
    /// True when missing ranges can be fetched now.
    is_connected: bool,
    /// Time of the last message of the node; `None` = none since this server was started.
    heard: Option<String>,
    /// Replicated part of the stream.
    want: Option<StreamShare>,
    /// Number of the deciding rule, from 1 on; `None` = the default of the edge.
    rule: Option<usize>,
    /// Pinned ranges, whose rows are all replicated, regardless of the rules.
    pins: Vec<Pinned>,
}

#[derive(Serialize)]
struct Pinned {
    from: String,
    /// The first instant after the last.
    to: String,
    /// Instant from which on the pin is void.
    until: Option<String>,
}

fn text(at: Timestamp) -> String {
    at.as_nanos().to_string()
}

/// The first instant after a range, as text, since it may exceed the largest timestamp.
fn end(range: ClosedRange) -> String {
    (i128::from(range.last.as_nanos()) + 1).to_string()
}

/// Parsed request.
struct PresenceRequest {
    stream: StreamName,
    range: ClosedRange,
    is_bounded: bool,
    bins: u32,
    /// `None` = rows. Empty = chosen by the range.
    lines: Vec<Option<Level>>,
}

impl PresenceRequest {
    fn of(query: &Query) -> Result<PresenceRequest, ApiError> {
        let stream = query.required("stream", "table,tag=value")?;
        let bins: u32 = query.number("bins")?.unwrap_or(BINS);
        if bins == 0 || bins > BINS_MAX {
            return Err(QueryError::value("bins", "expected 1 to 256", &bins.to_string()).into());
        }
        let line = |text: &str| match text {
            "rows" => Ok(None),
            text => {
                let level = text.parse().ok().and_then(Level::new);
                let expected = "expected rows, or a level of -20 to 40";
                level
                    .map(Some)
                    .ok_or_else(|| QueryError::value("level", expected, text))
            }
        };
        let lines = query
            .all("level")
            .map(line)
            .collect::<Result<Vec<_>, _>>()?;
        at_most(lines.len(), LINES_MAX, "levels")?;
        let range = query.range(now())?;
        if range.is_empty() {
            return Err(QueryError::value("to", "expected an instant after `from`", "").into());
        }
        Ok(PresenceRequest {
            stream: parse_stream(stream)?,
            range,
            is_bounded: query.one("from")?.is_some() && query.one("to")?.is_some(),
            bins,
            lines,
        })
    }
}

/// Nanoseconds of a range.
fn width(range: ClosedRange) -> i128 {
    i128::from(range.last.as_nanos()) - i128::from(range.first.as_nanos()) + 1
}

/// Divides a range into at most `bins` cells of the same width; the last one may be narrower.
fn divide(range: ClosedRange, bins: u32) -> (i128, Vec<ClosedRange>) {
    let all = width(range);
    let every = (all + i128::from(bins) - 1) / i128::from(bins);
    let first = i128::from(range.first.as_nanos());
    let last = i128::from(range.last.as_nanos());
    let cells = (0..i128::from(bins))
        .map(|bin| first + bin * every)
        .take_while(|from| *from <= last)
        .filter_map(|from| {
            let from_ns = i64::try_from(from).ok()?;
            let to_ns = i64::try_from((from + every - 1).min(last)).ok()?;
            Some(ClosedRange::nanos(from_ns, to_ns))
        });
    (every, cells.collect())
}

/// Rows, and levels up to the level whose bucket is as wide as the range.
fn lines_for(range: ClosedRange) -> Vec<Option<Level>> {
    let seconds = u128::try_from(width(range) / 1_000_000_000)
        .unwrap_or(0)
        .max(1);
    let top = i32::try_from(seconds.ilog2()).unwrap_or(0);
    let levels = (0..LEVELS)
        .rev()
        .map(|k| Level::clamped(top - LEVEL_STEP * k));
    [None].into_iter().chain(levels.map(Some)).collect()
}

/// Presence of a stream in a snapshot.
struct Map<'a> {
    snapshot: &'a Snapshot,
    stream: &'a StreamName,
    deadline: Deadline,
}

impl Map<'_> {
    /// Letter of a cell, and the known bytes of its missing ranges.
    fn cell(&self, range: ClosedRange, level: Option<Level>) -> Result<(char, u64), ApiError> {
        self.deadline.check()?;
        let parts = self.snapshot.coverage(self.stream, range, level)?;
        let letter = match () {
            () if parts.iter().any(|part| !part.is_here) => 'e',
            () if parts.iter().any(|part| part.is_older) => 'o',
            () => 'h',
        };
        let missing = parts.iter().flat_map(|part| &part.missing);
        Ok((letter, missing.map(|missed| missed.bytes).sum()))
    }

    fn line(
        &self,
        range: ClosedRange,
        cells: &[ClosedRange],
        level: Option<Level>,
    ) -> Result<Line, ApiError> {
        let (whole, missing_bytes) = self.cell(range, level)?;
        // If the whole line is present, every cell is.
        let letters: String = match whole {
            'h' => std::iter::repeat_n('h', cells.len()).collect(),
            _ => cells
                .iter()
                .map(|cell| self.cell(*cell, level).map(|(letter, _)| letter))
                .collect::<Result<_, _>>()?,
        };
        Ok(Line {
            level: level.map(Level::get),
            cells: letters,
            missing_bytes,
        })
    }

    fn sources(
        &self,
        range: ClosedRange,
        fleet: Option<&EdgeCopies>,
    ) -> Result<Vec<Source>, ApiError> {
        let parts = self.snapshot.coverage(self.stream, range, None)?;
        let sources = parts.into_iter().map(|part| {
            let name = part.part.as_deref();
            let is_own = name == Some(headwater_cluster::OWN) || fleet.is_none();
            let edge = name.filter(|_| !is_own).map(str::to_owned);
            let mut source = Source {
                from: text(part.range.first),
                to: end(part.range),
                edge,
                state: None,
                is_connected: is_own,
                heard: None,
                want: None,
                rule: None,
                pins: Vec::new(),
            };
            if let Some((fleet, edge)) = fleet.zip(source.edge.clone()) {
                source.add_status(fleet, &edge, self.stream, part.range);
            }
            source
        });
        Ok(sources.collect())
    }
}

impl Source {
    /// Fills in the state of the edge, and the rules of its replication.
    fn add_status(
        &mut self,
        fleet: &EdgeCopies,
        edge: &str,
        stream: &StreamName,
        range: ClosedRange,
    ) {
        let Some(status) = fleet.edge_status(edge) else {
            return;
        };
        let rule = status.rules.iter().position(|rule| rule.fits(stream));
        let of_rule = rule.and_then(|at| status.rules.get(at));
        self.want = Some(of_rule.map_or(status.want, |rule| rule.want));
        self.rule = rule.map(|at| at + 1);
        self.is_connected = status.state.is_connected();
        self.state = Some(status.state);
        self.heard = status.heard_ns.map(|ns| ns.to_string());
        // Pins of an unreadable copy are unknown; its state says so.
        let pins = fleet.pins(edge).unwrap_or_default();
        let mine = pins.into_iter().map(|(_, pin)| pin).filter(|pin| {
            let pinned = ClosedRange::nanos(pin.from_ns, pin.to_ns);
            pin.fits(stream) && !pinned.intersect(&range).is_empty()
        });
        let pinned = mine.map(|pin| Pinned {
            from: pin.from_ns.to_string(),
            to: end(ClosedRange::nanos(pin.from_ns, pin.to_ns)),
            until: pin.until_ns.map(|ns| ns.to_string()),
        });
        self.pins = pinned.collect();
    }
}

impl PresenceRequest {
    fn answer(&self, app: &App, access: &Access) -> Result<Answer, ApiError> {
        let absent = || not_found("stream", &self.stream);
        let snapshot = app.snapshot()?;
        if !access.may_read_stream(&self.stream) {
            return Err(absent());
        }
        let map = Map {
            snapshot: &snapshot,
            stream: &self.stream,
            deadline: Deadline::after(app.settings.request_timeout),
        };
        let mut range = self.range;
        if !self.is_bounded {
            let info = ok_if_found(snapshot.stream_info(&self.stream))?.ok_or_else(absent)?;
            let ends = info.first.zip(info.last);
            // A stream without rows returns a map of the requested first instant.
            let (first, last) = ends.unwrap_or((range.first, range.first));
            range = range.intersect(&ClosedRange::new(first, last));
            if range.is_empty() {
                range = ClosedRange::new(self.range.first, self.range.first);
            }
        }
        let sources = found_or(map.sources(range, app.fleet.as_deref()), absent)?;
        let (every, cells) = divide(range, self.bins);
        let lines = match self.lines.is_empty() {
            true => lines_for(range),
            false => self.lines.clone(),
        };
        let lines = lines
            .into_iter()
            .map(|level| map.line(range, &cells, level));
        Ok(Answer {
            stream: self.stream.to_string(),
            from: text(range.first),
            to: end(range),
            every: every.to_string(),
            lines: lines.collect::<Result<_, _>>()?,
            sources,
        })
    }
}

/// An absent object is answered like an invisible one.
fn found_or<T>(
    result: Result<T, ApiError>,
    absent: impl FnOnce() -> ApiError,
) -> Result<T, ApiError> {
    result.map_err(|error| match error.code {
        "E_NOT_FOUND" => absent(),
        _ => error,
    })
}

async fn presence(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = PresenceRequest::of(&query(&uri, &["stream", "from", "to", "bins", "level"])?)?;
    let body = app
        .blocking(move |app| {
            let answer = asked.answer(app, &access)?;
            serde_json::to_vec(&answer).map_err(|_| ApiError::internal())
        })
        .await?;
    Ok(answer(request::JSON, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_into_cells_of_one_width_and_a_rest() {
        let of = |first, last, bins| {
            let (every, cells) = divide(ClosedRange::nanos(first, last), bins);
            let ends = cells
                .iter()
                .map(|c| (c.first.as_nanos(), c.last.as_nanos()));
            (every, ends.collect::<Vec<_>>())
        };
        assert_eq!(of(0, 9, 3), (4, vec![(0, 3), (4, 7), (8, 9)]));
        // Fewer nanoseconds than cells.
        assert_eq!(of(5, 6, 4), (1, vec![(5, 5), (6, 6)]));
        let (every, cells) = divide(ClosedRange::ALL, 2);
        assert_eq!(every, 1 << 63);
        assert_eq!(cells.len(), 2);
        assert_eq!(cells.last().map(|c| c.last), Some(Timestamp::MAX));
    }

    #[test]
    fn lines_end_at_the_level_that_is_as_wide_as_the_range() {
        let hour = ClosedRange::nanos(0, 3_600_000_000_000 - 1);
        let levels: Vec<Option<i32>> = lines_for(hour)
            .iter()
            .map(|level| level.map(Level::get))
            .collect();
        assert_eq!(levels.first(), Some(&None));
        assert_eq!(levels.last(), Some(&Some(11)));
        assert_eq!(levels.len(), 10);
        assert_eq!(
            lines_for(ClosedRange::nanos(0, 0)).last(),
            Some(&Some(Level::clamped(0)))
        );
    }
}
