//! Reads of a piece of a stream that several parts own, or that several parts have and nobody owns:
//! the rows of these parts, merged by time.
//!
//! Where one part alone has rows, it is read as it is, with its pyramid. The rest is computed from
//! merged rows ([`Several`]).
//!
//! Invariants and failure: those of [`super::several`]. Concurrency: the stretches of a stream in
//! which some parts have rows are determined once for a snapshot, and are shared under its lock.

use super::lists::Conflict;
use super::overlaps::{Counted, Overlaps};
use super::reading::Reading;
use super::several::{Several, Stretch, with_aggregates};
use super::stream::{OwnedStretch, StreamAcross};
use crate::common::ranges::union;
use crate::read::Bins;
use crate::read::coverage::Coverage;
use crate::read::describe::StreamInfo;
use crate::read::ends::RangeEnd;
use crate::read::summary::SummarySpec;
use crate::{Error, ErrorKind, Result};
use headwater_types::{ClosedRange, FieldId, Level, Timestamp, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest number of streams of a snapshot whose stretches are retained.
const KNOWN_MAX: usize = 4_096;

/// Number of hidden values that are passed over one by one on the way to a value that is shown.
const PASSED_MAX: usize = 32;

/// Access to the rows of the parts of a stream.
struct PartsOfStream<'a, 'b>(&'b StreamAcross<'a>);

impl Counted for PartsOfStream<'_, '_> {
    fn counts(&self, part: u32, range: ClosedRange, level: Level) -> Result<Vec<(i64, u64)>> {
        let Some(reading) = self.0.reading(part, range)? else {
            return Ok(Vec::new());
        };
        let spec = SummarySpec {
            range,
            bins: Bins::Level(level),
            fields: Vec::new(),
        };
        let bins = reading.part.snapshot.summary_found(reading.found, &spec)?;
        let counts = bins.iter().map(|bin| {
            let number = i64::try_from(bin.number);
            let number = number.map_err(|_| Error::internal("a bucket outside of all time"))?;
            Ok((number, bin.rows))
        });
        counts.collect()
    }

    fn aged(&self, part: u32, range: ClosedRange) -> Result<Vec<ClosedRange>> {
        let Some(reading) = self.0.reading(part, range)? else {
            return Ok(Vec::new());
        };
        let view = reading.part.snapshot.view(reading.found, &range)?;
        let mut spans = Vec::new();
        for partition in view.partitions_in(&range) {
            if view.state(&partition)?.is_some_and(|state| state.is_aged()) {
                spans.push(partition.span());
            }
        }
        Ok(spans)
    }
}

impl<'a> StreamAcross<'a> {
    /// The stretches of the stream in these parts, determined once for a snapshot.
    pub(super) fn overlaps(&self, parts: &[u32]) -> Result<Arc<Overlaps>> {
        let key = (
            self.name.table().to_owned(),
            Arc::clone(&self.entry.key),
            parts.into(),
        );
        if let Some(known) = self.all.overlaps.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let mut extents = Vec::new();
        for part in parts {
            if let Some(reading) = self.reading(*part, ClosedRange::ALL)? {
                let info = reading.part.snapshot.info_found(reading.found)?;
                let ends = info.first.zip(info.last);
                extents.extend(ends.map(|(a, b)| (*part, ClosedRange::new(a, b))));
            }
        }
        let found = Arc::new(Overlaps::find(extents, &PartsOfStream(self))?);
        let mut known = self.all.overlaps.lock();
        if known.len() < KNOWN_MAX {
            known.insert(key, Arc::clone(&found));
        }
        Ok(found)
    }

    /// The stretches that a piece of several parts needs, by time.
    pub(super) fn merged_stretches(&self, piece: OwnedStretch<'_>) -> Result<Vec<Stretch<'a>>> {
        let OwnedStretch { range, parts } = piece;
        let overlaps = self.overlaps(parts)?;
        let from = overlaps
            .ranges
            .partition_point(|one| one.range.last < range.first);
        let mut out = Vec::new();
        for one in overlaps.ranges.iter().skip(from) {
            let inside = one.range.intersect(&range);
            if inside.is_empty() {
                break;
            }
            let mut readings = Vec::with_capacity(one.parts.len());
            for part in &one.parts {
                readings.extend(self.reading(*part, inside)?);
            }
            match readings.len() {
                0 | 1 => out.extend(readings.pop().map(Stretch::One)),
                _ => out.push(Stretch::Several(Several {
                    range: inside,
                    readings,
                    name: self.name,
                    is_aged: one.is_aged,
                })),
            }
        }
        Ok(out)
    }

    /// Reads of the parts of a piece, those with the outermost extents first.
    fn outermost_first(
        &self,
        piece: OwnedStretch<'_>,
        side: RangeEnd,
    ) -> Result<Vec<(i64, Reading<'a>)>> {
        let OwnedStretch { range, parts } = piece;
        let overlaps = self.overlaps(parts)?;
        let mut out = Vec::new();
        for (part, extent) in &overlaps.extents {
            let inside = extent.intersect(&range);
            if !inside.is_empty() {
                let far = match side {
                    RangeEnd::First => far(inside.first, side),
                    RangeEnd::Last => far(inside.last, side),
                };
                out.extend(self.reading(*part, range)?.map(|reading| (far, reading)));
            }
        }
        // Stable: parts of equal distance stay in their order.
        out.sort_by_key(|(far, _)| std::cmp::Reverse(*far));
        Ok(out)
    }

    pub(super) fn row_of_several(
        &self,
        piece: OwnedStretch<'_>,
        side: RangeEnd,
    ) -> Result<Option<Timestamp>> {
        let mut best: Option<Timestamp> = None;
        for (extent, reading) in self.outermost_first(piece, side)? {
            if best.is_some_and(|best| far(best, side) >= extent) {
                break;
            }
            let row = reading.row(side)?;
            best = match (best, row) {
                (Some(a), Some(b)) if far(a, side) >= far(b, side) => Some(a),
                (best, row) => row.or(best),
            };
        }
        Ok(best)
    }

    /// The outermost value of a field in a piece.
    pub(super) fn end_of_several(
        &self,
        mut piece: OwnedStretch<'_>,
        field: FieldId,
        side: RangeEnd,
    ) -> Result<Option<(Timestamp, Value)>> {
        for _ in 0..PASSED_MAX {
            let readings = self.outermost_first(piece, side)?;
            let Some((part, time, value)) = outermost(&readings, field, side)? else {
                return Ok(None);
            };
            if !self.is_hidden(&readings, part, time)? {
                return Ok(Some((time, value)));
            }
            let range = piece.range;
            let rest = match side {
                RangeEnd::First => time.next().map(|from| ClosedRange::new(from, range.last)),
                RangeEnd::Last => time.previous().map(|to| ClosedRange::new(range.first, to)),
            };
            match rest.filter(|rest| !rest.is_empty()) {
                Some(rest) => piece.range = rest,
                None => return Ok(None),
            }
        }
        self.end_by_rows(piece, field, side)
    }

    /// True when a part before this one has rows at an instant.
    fn is_hidden(
        &self,
        readings: &[(i64, Reading<'a>)],
        part: u32,
        time: Timestamp,
    ) -> Result<bool> {
        let at = ClosedRange::new(time, time);
        for (_, reading) in readings.iter().filter(|(_, r)| r.number < part) {
            let one = &reading.part.snapshot;
            if one.row_found(reading.found, at, RangeEnd::First)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`StreamAcross::end_of_several`], from the merged rows.
    fn end_by_rows(
        &self,
        piece: OwnedStretch<'_>,
        field: FieldId,
        side: RangeEnd,
    ) -> Result<Option<(Timestamp, Value)>> {
        let mut stretches = self.merged_stretches(piece)?;
        if side == RangeEnd::Last {
            stretches.reverse();
        }
        for stretch in stretches {
            let end = match stretch {
                Stretch::One(reading) => reading.end(field, side)?,
                Stretch::Several(several) => several.end(field, side)?,
            };
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    pub(super) fn info_of_several(&self, piece: OwnedStretch<'_>) -> Result<StreamInfo> {
        let mut info = StreamInfo {
            first: self.row_of_several(piece, RangeEnd::First)?,
            last: self.row_of_several(piece, RangeEnd::Last)?,
            rows: 0,
        };
        let mut all = u64::MAX;
        for stretch in self.merged_stretches(piece)? {
            let rows = match with_aggregates(stretch)? {
                None => 0,
                Some(Stretch::One(reading)) => reading.rows()?,
                Some(Stretch::Several(several)) => {
                    let counted = several.count(&mut all)?;
                    counted.map_or(0, |(rows, _)| rows)
                }
            };
            info.rows = info.rows.saturating_add(rows);
        }
        Ok(info)
    }

    /// Number of rows in a piece that are not shown, since a part before theirs has the instant.
    pub(super) fn hidden_rows(&self, piece: OwnedStretch<'_>) -> Result<u64> {
        let (mut rows, mut all) = (0u64, u64::MAX);
        for stretch in self.merged_stretches(piece)? {
            if let Some(Stretch::Several(several)) = with_aggregates(stretch)?
                && let Some((_, hidden)) = several.count(&mut all)?
            {
                rows = rows.saturating_add(hidden.iter().sum::<u64>());
            }
        }
        Ok(rows)
    }

    /// The stretches of a piece in which a part has rows beside a part before it. At most `most`
    /// rows are read.
    pub(super) fn conflicts(
        &self,
        piece: OwnedStretch<'_>,
        most: &mut u64,
    ) -> Result<Vec<Conflict>> {
        let overlaps = self.overlaps(piece.parts)?;
        let mut by_part: BTreeMap<u32, (Vec<ClosedRange>, Option<u64>)> = BTreeMap::new();
        let several = self.merged_stretches(piece)?.into_iter();
        for several in several.filter_map(Stretch::several) {
            let hidden = match several.is_aged {
                true => None,
                false => match several.count(most) {
                    Err(error) if error.kind() == ErrorKind::Elsewhere => None,
                    counted => counted?.map(|(_, hidden)| hidden),
                },
            };
            for (at, reading) in several.readings.iter().enumerate().skip(1) {
                let extent = overlaps.extents.iter().find(|(n, _)| *n == reading.number);
                let extent = extent.map_or(ClosedRange::EMPTY, |(_, extent)| *extent);
                let inside = extent.intersect(&several.range);
                if inside.is_empty() {
                    continue;
                }
                let own = hidden.as_ref().and_then(|hidden| hidden.get(at)).copied();
                let known = by_part
                    .entry(reading.number)
                    .or_insert_with(|| (Vec::new(), Some(0)));
                known.0.push(inside);
                known.1 = known.1.zip(own).map(|(a, b)| a.saturating_add(b));
            }
        }
        let conflicts = by_part.into_iter().map(|(number, (spans, hidden_rows))| {
            Ok(Conflict {
                stream: self.name.clone(),
                part: Arc::clone(&self.all.part(number)?.name),
                spans: union(spans),
                hidden_rows,
                is_declared: false,
            })
        });
        conflicts.collect()
    }

    pub(super) fn coverage_of_several(
        &self,
        piece: OwnedStretch<'_>,
        level: Option<Level>,
    ) -> Result<Vec<Coverage>> {
        let stretches = match self.merged_stretches(piece) {
            Err(error) if error.kind() == ErrorKind::Elsewhere => {
                // A part does not know yet what it has.
                let mut out = Vec::new();
                for part in piece.parts {
                    if let Some(reading) = self.reading(*part, piece.range)? {
                        let own = reading.coverage(level)?;
                        out.push(Coverage {
                            is_here: false,
                            until: None,
                            ..own
                        });
                    }
                }
                return Ok(out);
            }
            stretches => stretches?,
        };
        let mut out = Vec::new();
        for stretch in &stretches {
            match stretch {
                Stretch::One(reading) => out.push(reading.coverage(level)?),
                Stretch::Several(several) => {
                    let own = several.readings.iter();
                    let own = own.map(|reading| reading.coverage(None));
                    let mut own: Vec<Coverage> = own.collect::<Result<_>>()?;
                    // The stretch is read where all of its parts can be read.
                    let is_here = own.iter().all(|one| one.is_here);
                    let until = own.iter().map(|one| one.until).min().flatten();
                    for one in &mut own {
                        (one.is_here, one.until) = (is_here, until);
                    }
                    out.extend(own);
                }
            }
        }
        Ok(out)
    }
}

/// Distance of an instant towards an end: larger is further out.
fn far(at: Timestamp, side: RangeEnd) -> i64 {
    match side {
        RangeEnd::Last => at.as_nanos(),
        // The reverse order of instants, without an overflow.
        RangeEnd::First => !at.as_nanos(),
    }
}

/// The outermost value of a field among all parts, and the first part that has it.
fn outermost(
    readings: &[(i64, Reading<'_>)],
    field: FieldId,
    side: RangeEnd,
) -> Result<Option<(u32, Timestamp, Value)>> {
    let mut best: Option<(i64, u32, Timestamp, Value)> = None;
    for (extent, reading) in readings {
        if best.as_ref().is_some_and(|(far, ..)| far > extent) {
            break;
        }
        if let Some((time, value)) = reading.end(field, side)? {
            let place = (far(time, side), reading.number);
            let is_better = best.as_ref().is_none_or(|(far, number, ..)| {
                place.0 > *far || (place.0 == *far && place.1 < *number)
            });
            if is_better {
                best = Some((place.0, place.1, time, value));
            }
        }
    }
    Ok(best.map(|(_, number, time, value)| (number, time, value)))
}
