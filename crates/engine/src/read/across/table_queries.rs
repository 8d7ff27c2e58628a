//! Queries over a whole table in all parts: the number of rows, and the streams with the newest or
//! the oldest rows.
//!
//! Each part computes its own answer. For streams of which parts have more than is shown, the rest
//! is subtracted; streams in several parts are read one by one.
//!
//! Invariants, concurrency, failure: as for one database.

use super::AcrossSnapshot;
use super::catalog::{TableAcross, name_of};
use super::index::Entry;
use super::owner_elsewhere;
use super::owners::{ShownParts, outside};
use crate::Result;
use crate::common::ids::TableId;
use crate::metadata::catalog::stream_key;
use crate::read::bins::Bins;
use crate::read::summary::SummarySpec;
use crate::read::table_queries::{Accepts, ContinueCheck, OutermostSpec};
use headwater_types::{ClosedRange, StreamName, Timestamp};

impl AcrossSnapshot {
    pub(in crate::read) fn row_count(
        &self,
        table: &str,
        range: ClosedRange,
        goes_on: ContinueCheck<'_>,
    ) -> Result<Option<u64>> {
        let found = self.whole_table(table)?;
        let mut rows: u64 = 0;
        for number in found.parts() {
            let part = &self.part(number)?.snapshot;
            match part.row_count(table, range, goes_on)? {
                Some(own) => rows = rows.saturating_add(own),
                None => return Ok(None),
            }
        }
        for entry in contested(found) {
            if !goes_on() {
                return Ok(None);
            }
            let hidden = self.hidden_rows(table, entry, &range)?;
            rows = rows.saturating_sub(hidden);
        }
        Ok(Some(rows))
    }

    /// Number of rows of a stream in a range that parts have but that are not shown.
    fn hidden_rows(&self, table: &str, entry: &Entry, range: &ClosedRange) -> Result<u64> {
        let name = name_of(table, &entry.key)?;
        let mut rows: u64 = 0;
        if !entry.shown.is_nothing() {
            let stream = self.stream(&name)?;
            let pieces = stream.pieces(range);
            if pieces.iter().any(|piece| piece.parts.is_empty()) {
                return Err(owner_elsewhere(&name));
            }
            for piece in pieces.into_iter().filter(|piece| piece.parts.len() > 1) {
                rows = rows.saturating_add(stream.hidden_rows(piece)?);
            }
        }
        for holder in &entry.holders {
            let part = self.part(*holder)?;
            if let Some(found) = part.find(&name)? {
                for range in outside(range, &entry.shown.of_part(*holder)) {
                    let spec = SummarySpec {
                        range,
                        bins: Bins::Whole,
                        fields: Vec::new(),
                    };
                    let bins = part.snapshot.summary_found(found, &spec)?;
                    let own: u64 = bins.iter().map(|bin| bin.rows).sum();
                    rows = rows.saturating_add(own);
                }
            }
        }
        Ok(rows)
    }

    pub(in crate::read) fn outermost_streams(
        &self,
        table: &str,
        spec: &OutermostSpec,
        mut accepts: Option<Accepts<'_>>,
        goes_on: ContinueCheck<'_>,
    ) -> Result<Vec<StreamName>> {
        let found = self.whole_table(table)?;
        if spec.limit == 0 || spec.range.is_empty() {
            return Ok(Vec::new());
        }
        let mut outermost = Outermost {
            candidates: Vec::new(),
            limit: spec.limit,
        };
        for entry in contested(found) {
            if !matches!(entry.shown, ShownParts::All(_)) && !entry.shown.is_nothing() {
                let name = name_of(table, &entry.key)?;
                if let Some(far) = self.far(&name, spec)?
                    && outermost.admits(far)
                    && accepts
                        .as_mut()
                        .map_or(Ok(true), |accepts| accepts(&name))?
                {
                    outermost.put(far, name);
                }
            }
        }
        let is_plain = found.streams.contested.is_empty();
        for number in found.parts() {
            let part = self.part(number)?;
            let mut is_wanted = |own: &StreamName| {
                let name = part.tags.shown(own);
                let is_own = is_plain || is_entirely_in(found, &name, number);
                match &mut accepts {
                    Some(accepts) if is_own => accepts(&name),
                    _ => Ok(is_own),
                }
            };
            let (one, floor) = (&part.snapshot, outermost.floor());
            let own = one.outermost(table, spec, Some(&mut is_wanted), goes_on, floor)?;
            let Some(own) = own else {
                return Ok(Vec::new());
            };
            for (far, own) in own {
                outermost.put(far, part.tags.shown(&own));
            }
        }
        Ok(outermost
            .candidates
            .into_iter()
            .map(|(_, name)| name)
            .collect())
    }

    /// Distance of the outermost row of a stream.
    fn far(&self, stream: &StreamName, spec: &OutermostSpec) -> Result<Option<i64>> {
        let side = spec.end();
        let row = self.stream(stream)?.row(spec.range, side)?;
        Ok(row.map(|at: Timestamp| spec.far(at)))
    }
}

/// Streams whose shown ranges are not simply all data of one part.
fn contested(table: &TableAcross) -> impl Iterator<Item = &Entry> {
    let keys = table.streams.contested.iter();
    keys.filter_map(|key| table.streams.find(key))
}

/// True for a stream whose shown range is all data of this part.
fn is_entirely_in(table: &TableAcross, name: &StreamName, number: u32) -> bool {
    let mut key = Vec::with_capacity(64);
    stream_key(TableId(0), name.tags(), &mut key);
    let entry = table.streams.find(&key);
    entry.is_some_and(|entry| entry.shown == ShownParts::All(number))
}

/// The result so far: the outermost streams, the furthest first.
struct Outermost {
    candidates: Vec<(i64, StreamName)>,
    limit: usize,
}

impl Outermost {
    /// Distance that a row must reach to be among the results; `None` while there are fewer than
    /// the limit.
    fn floor(&self) -> Option<i64> {
        let is_full = self.candidates.len() >= self.limit;
        self.candidates
            .last()
            .filter(|_| is_full)
            .map(|(far, _)| *far)
    }

    fn admits(&self, far: i64) -> bool {
        self.floor().is_none_or(|floor| floor < far)
    }

    fn put(&mut self, far: i64, name: StreamName) {
        if self.admits(far) {
            let at = self.candidates.partition_point(|(held, _)| *held >= far);
            self.candidates.insert(at, (far, name));
            self.candidates.truncate(self.limit);
        }
    }
}
