//! Queries over a whole table in all parts: the number of rows, and the streams with the newest or
//! the oldest rows.
//!
//! Each part computes its own answer. For streams of which a part has more than is shown, the rest
//! is subtracted; streams in several parts are read one by one.
//!
//! Invariants, concurrency, failure: as for one database.

use super::AcrossSnapshot;
use super::catalog::{TableAcross, name_of};
use super::index::Entry;
use super::owner_elsewhere;
use super::owners::{Shown, outside};
use crate::Result;
use crate::common::ids::TableId;
use crate::metadata::catalog::stream_key;
use crate::read::bins::Bins;
use crate::read::summary::SummarySpec;
use crate::read::whole::{Accepts, GoesOn, OutermostSpec};
use headwater_types::{ClosedRange, StreamName, Timestamp};

impl AcrossSnapshot {
    pub(in crate::read) fn row_count(
        &self,
        table: &str,
        range: ClosedRange,
        goes_on: GoesOn<'_>,
    ) -> Result<Option<u64>> {
        let found = self.table(table)?;
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
        let stream = name_of(table, &entry.key)?;
        if let Shown::Ranges(ranges) = &entry.shown {
            let mut nobodys = ranges.iter().filter(|p| p.part.is_none());
            if nobodys.any(|p| p.range.overlaps(range)) {
                return Err(owner_elsewhere(&stream));
            }
        }
        let mut rows: u64 = 0;
        for holder in &entry.holders {
            for range in outside(range, &entry.shown.of_part(*holder)) {
                let spec = SummarySpec {
                    range,
                    bins: Bins::Whole,
                    fields: Vec::new(),
                };
                let bins = self.part(*holder)?.snapshot.summary(&stream, &spec)?;
                let own: u64 = bins.iter().map(|bin| bin.rows).sum();
                rows = rows.saturating_add(own);
            }
        }
        Ok(rows)
    }

    pub(in crate::read) fn outermost_streams(
        &self,
        table: &str,
        spec: &OutermostSpec,
        mut accepts: Option<Accepts<'_>>,
        goes_on: GoesOn<'_>,
    ) -> Result<Vec<StreamName>> {
        let found = self.table(table)?;
        if spec.limit == 0 || spec.range.is_empty() {
            return Ok(Vec::new());
        }
        let mut outermost = Outermost {
            held: Vec::new(),
            limit: spec.limit,
        };
        for entry in contested(found) {
            if let Shown::Ranges(_) = entry.shown
                && !entry.shown.is_nothing()
            {
                let name = name_of(table, &entry.key)?;
                if let Some(far) = self.far(&name, spec)?
                    && outermost.wants(far)
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
            let part = &self.part(number)?.snapshot;
            let mut is_wanted = |name: &StreamName| {
                let is_own = is_plain || is_whole_in(found, name, number);
                match &mut accepts {
                    Some(accepts) if is_own => accepts(name),
                    _ => Ok(is_own),
                }
            };
            let floor = outermost.floor();
            let own = part.outermost(table, spec, Some(&mut is_wanted), goes_on, floor)?;
            let Some(own) = own else {
                return Ok(Vec::new());
            };
            for (far, name) in own {
                outermost.put(far, name);
            }
        }
        Ok(outermost.held.into_iter().map(|(_, name)| name).collect())
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
fn is_whole_in(table: &TableAcross, name: &StreamName, number: u32) -> bool {
    let mut key = Vec::with_capacity(64);
    stream_key(TableId(0), name.tags(), &mut key);
    let entry = table.streams.find(&key);
    entry.is_some_and(|entry| entry.shown == Shown::Whole(number))
}

/// The result so far: the outermost streams, the furthest first.
struct Outermost {
    held: Vec<(i64, StreamName)>,
    limit: usize,
}

impl Outermost {
    /// Distance that a row must reach to be among the results; `None` while there are fewer than
    /// the limit.
    fn floor(&self) -> Option<i64> {
        let is_full = self.held.len() >= self.limit;
        self.held.last().filter(|_| is_full).map(|(far, _)| *far)
    }

    fn wants(&self, far: i64) -> bool {
        self.floor().is_none_or(|floor| floor < far)
    }

    fn put(&mut self, far: i64, name: StreamName) {
        if self.wants(far) {
            let at = self.held.partition_point(|(held, _)| *held >= far);
            self.held.insert(at, (far, name));
            self.held.truncate(self.limit);
        }
    }
}
