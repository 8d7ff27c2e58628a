//! Reads a stream from the part, or the parts, that own it.
//!
//! Invariants: each stretch is read from its own parts only, under the names that these parts have
//! for the stream and its fields. A stretch of one part is read as in that part; a stretch of
//! several is merged row by row, see [`super::several`]. Failure: a stretch none of whose owners is
//! among the parts is `elsewhere`.

use super::index::Entry;
use super::merged::Merged;
use super::owners::ShownParts;
use super::reading::Reading;
use super::scan::{AcrossScan, PartScan, StretchScan};
use super::several::{Stretch, with_aggregates};
use super::tables::UnionTable;
use super::{AcrossSnapshot, owner_elsewhere};
use crate::common::ids::TableId;
use crate::common::ranges::union;
use crate::metadata::catalog::stream_key;
use crate::read::aggregate::{AggregateSpec, Bin};
use crate::read::coverage::{Coverage, whole_buckets};
use crate::read::describe::StreamInfo;
use crate::read::ends::RangeEnd;
use crate::read::filter::Clause;
use crate::read::handle::StreamHandle;
use crate::read::last::LastValue;
use crate::read::scan::{ScanSpec, requested_fields};
use crate::read::single::SingleSnapshot;
use crate::read::summary::{SummaryBin, SummarySpec};
use crate::read::version::DataVersion;
use crate::read::visit::{self, RowBlock};
use crate::{Error, Result};
use headwater_types::{
    Aggregate, ClosedRange, FieldId, FieldType, Level, StreamName, Timestamp, Value,
};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// A stretch of time of a stream, and the parts that own it.
#[derive(Clone, Copy)]
pub(super) struct OwnedStretch<'a> {
    pub(super) range: ClosedRange,
    /// By number; empty = none of its owners is among the parts.
    pub(super) parts: &'a [u32],
}

/// A stream over all parts.
pub(in crate::read) struct StreamAcross<'a> {
    pub(super) all: &'a AcrossSnapshot,
    pub(super) name: &'a StreamName,
    /// Handle of the stream in one of the parts.
    handle: Option<&'a StreamHandle>,
    pub(super) union: &'a UnionTable,
    pub(super) entry: &'a Entry,
}

impl<'a> StreamAcross<'a> {
    pub(super) fn find(
        all: &'a AcrossSnapshot,
        name: &'a StreamName,
        handle: Option<&'a StreamHandle>,
    ) -> Result<StreamAcross<'a>> {
        let table = all.table(name.table())?;
        let mut key = Vec::with_capacity(64);
        stream_key(TableId(0), name.tags(), &mut key);
        let entry = table.streams.find(&key).filter(|e| !e.shown.is_nothing());
        if entry.is_none() {
            all.require_whole()?;
        }
        let entry = entry.ok_or_else(|| Error::not_found(format!("no stream `{name}`")))?;
        Ok(StreamAcross {
            all,
            name,
            handle,
            union: table.union()?,
            entry,
        })
    }

    /// The stretch of a part within a range; `None` where the part does not have the stream.
    pub(super) fn reading(&self, part: u32, range: ClosedRange) -> Result<Option<Reading<'a>>> {
        let number = part;
        let part = self.all.part(number)?;
        let found = match self.handle {
            Some(handle) => part.find_again(handle)?,
            None => part.find(self.name)?,
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let fields = self.union.fields_of(number);
        let fields = fields.ok_or_else(|| Error::internal("a stream of a part without a table"))?;
        Ok(Some(Reading {
            part,
            number,
            fields,
            union: self.union,
            found,
            range,
        }))
    }

    /// The pieces of a range, by time, whether or not their owners are among the parts.
    pub(super) fn pieces(&self, range: &ClosedRange) -> Vec<OwnedStretch<'a>> {
        let range = *range;
        let whole = |parts| vec![OwnedStretch { range, parts }];
        match &self.entry.shown {
            ShownParts::All(part) => whole(std::slice::from_ref(part)),
            ShownParts::Merged => whole(&self.entry.holders),
            ShownParts::Ranges(ranges) => {
                let pieces = ranges.iter().map(|shown| OwnedStretch {
                    range: shown.range.intersect(&range),
                    parts: &shown.parts,
                });
                pieces.filter(|piece| !piece.range.is_empty()).collect()
            }
        }
    }

    /// The pieces of a range, by time.
    fn readable_pieces(&self, range: &ClosedRange) -> Result<Vec<OwnedStretch<'a>>> {
        let pieces = self.pieces(range);
        match pieces.iter().any(|piece| piece.parts.is_empty()) {
            true => Err(owner_elsewhere(self.name)),
            false => Ok(pieces),
        }
    }

    /// The reads that a range needs, by time; where several parts own a piece, those of each of
    /// them.
    fn readings(&self, range: &ClosedRange) -> Result<Vec<Reading<'a>>> {
        let mut out = Vec::new();
        for piece in self.readable_pieces(range)? {
            for part in piece.parts {
                out.extend(self.reading(*part, piece.range)?);
            }
        }
        Ok(out)
    }

    /// The stretches that a range needs, by time.
    fn stretches(&self, range: &ClosedRange) -> Result<Vec<Stretch<'a>>> {
        let mut out = Vec::new();
        for piece in self.readable_pieces(range)? {
            match piece.parts {
                [part] => out.extend(self.reading(*part, piece.range)?.map(Stretch::One)),
                _ => out.extend(self.merged_stretches(piece)?),
            }
        }
        Ok(out)
    }

    fn field(&self, name: &str) -> Result<FieldId> {
        SingleSnapshot::field(&self.union.table, name)
    }

    pub(in crate::read) fn handle(&self) -> Result<StreamHandle> {
        let home = self.entry.shown.home(&self.entry.holders);
        let home = home.ok_or_else(|| Error::internal("a stream of no part"))?;
        self.all.part(home)?.handle(self.name)
    }

    pub(in crate::read) fn field_type(&self, field: &str) -> Result<FieldType> {
        let field = self.union.table.field(self.field(field)?);
        let field = field.map(|f| f.field_type);
        field.ok_or_else(|| Error::internal("a field without its definition"))
    }

    pub(in crate::read) fn scan(&self, spec: &ScanSpec) -> Result<AcrossScan> {
        let table = &self.union.table;
        let wanted = requested_fields(table, spec)?;
        let conditions = Clause::all(&spec.filters, &spec.any_of, table)?;
        let mut scans = Vec::new();
        for stretch in self.stretches(&spec.range)? {
            match stretch {
                Stretch::One(reading) => {
                    let (names, columns) = reading.fields(&wanted);
                    if let Some(spec) = reading.spec(spec, names) {
                        let scan = reading.part.snapshot.scan_found(reading.found, &spec)?;
                        scans.push(StretchScan::One(PartScan { scan, columns }));
                    }
                }
                Stretch::Several(several) => {
                    let merge = several.merge(&wanted, conditions.clone())?;
                    scans.push(StretchScan::Several(merge));
                }
            }
        }
        let (mut fields, mut by_number) = (Vec::new(), Vec::new());
        for id in wanted {
            if let Some(field) = table.field(id) {
                fields.push((field.name.clone(), field.field_type));
                by_number.push((id, field.field_type));
            }
        }
        Ok(AcrossScan::new(fields, by_number, scans))
    }

    pub(in crate::read) fn spans(&self, spec: &ScanSpec) -> Result<Vec<ClosedRange>> {
        Clause::all(&spec.filters, &spec.any_of, &self.union.table)?;
        let mut spans = Vec::new();
        // A row that is shown meets the conditions in its part.
        for reading in self.readings(&spec.range)? {
            if let Some(spec) = reading.spec(spec, Vec::new()) {
                let scan = reading.part.snapshot.scan_found(reading.found, &spec)?;
                spans.extend(scan.spans()?);
            }
        }
        Ok(union(spans))
    }

    pub(in crate::read) fn visit(
        &self,
        spec: &ScanSpec,
        mut each: impl FnMut(RowBlock<'_>),
    ) -> Result<()> {
        let stretches = self.stretches(&spec.range)?;
        let in_place = stretches.iter().all(|stretch| match stretch {
            Stretch::One(reading) => reading.has_all_fields(),
            Stretch::Several(_) => false,
        });
        if in_place {
            // Unknown fields are refused there too.
            requested_fields(&self.union.table, spec)?;
            Clause::all(&spec.filters, &spec.any_of, &self.union.table)?;
            for reading in stretches.into_iter().filter_map(Stretch::one) {
                let (range, found) = (reading.range, reading.found);
                let spec = ScanSpec {
                    range,
                    ..spec.clone()
                };
                visit::visit(&reading.part.snapshot, found, &spec, &mut each)?;
            }
            return Ok(());
        }
        for chunk in self.scan(spec)? {
            each(RowBlock::of(&chunk?));
        }
        Ok(())
    }

    pub(in crate::read) fn last(&self) -> Result<Vec<LastValue>> {
        let pieces = self.readable_pieces(&ClosedRange::ALL)?;
        if let ShownParts::All(part) = &self.entry.shown
            && let Some(reading) = self.reading(*part, ClosedRange::ALL)?
            && reading.has_all_fields()
        {
            return reading.part.snapshot.last_found(reading.found);
        }
        let fields = &self.union.table.fields;
        let mut newest: Vec<Option<(Timestamp, Value)>> = vec![None; fields.len()];
        for piece in pieces.iter().rev() {
            match piece.parts {
                [part] => {
                    if let Some(reading) = self.reading(*part, piece.range)? {
                        reading.fill_newest(&mut newest)?;
                    }
                }
                _ => {
                    for (field, newest) in (0u32..).map(FieldId).zip(&mut newest) {
                        if newest.is_none() {
                            *newest = self.end_of_several(*piece, field, RangeEnd::Last)?;
                        }
                    }
                }
            }
        }
        let named = fields.iter().zip(newest).filter_map(|(field, newest)| {
            let (time, value) = newest?;
            Some(LastValue {
                field: field.name.clone(),
                time,
                value,
            })
        });
        Ok(named.collect())
    }

    fn end(
        &self,
        field: &str,
        range: ClosedRange,
        side: RangeEnd,
    ) -> Result<Option<(Timestamp, Value)>> {
        let field = self.field(field)?;
        for piece in self.pieces_from(&range, side)? {
            let end = match piece.parts {
                [part] => match self.reading(*part, piece.range)? {
                    Some(reading) => reading.end(field, side)?,
                    None => None,
                },
                _ => self.end_of_several(piece, field, side)?,
            };
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    /// The pieces of a range, in the order from the requested end.
    fn pieces_from(&self, range: &ClosedRange, side: RangeEnd) -> Result<Vec<OwnedStretch<'a>>> {
        let mut pieces = self.readable_pieces(range)?;
        if side == RangeEnd::Last {
            pieces.reverse();
        }
        Ok(pieces)
    }

    pub(super) fn row(&self, range: ClosedRange, side: RangeEnd) -> Result<Option<Timestamp>> {
        for piece in self.pieces_from(&range, side)? {
            let row = match piece.parts {
                [part] => match self.reading(*part, piece.range)? {
                    Some(reading) => reading.row(side)?,
                    None => None,
                },
                _ => self.row_of_several(piece, side)?,
            };
            if row.is_some() {
                return Ok(row);
            }
        }
        Ok(None)
    }

    pub(in crate::read) fn first_in(
        &self,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        self.end(field, range, RangeEnd::First)
    }

    pub(in crate::read) fn last_in(
        &self,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        self.end(field, range, RangeEnd::Last)
    }

    pub(in crate::read) fn first_row_in(&self, range: ClosedRange) -> Result<Option<Timestamp>> {
        self.row(range, RangeEnd::First)
    }

    pub(in crate::read) fn last_row_in(&self, range: ClosedRange) -> Result<Option<Timestamp>> {
        self.row(range, RangeEnd::Last)
    }

    pub(in crate::read) fn aggregate(&self, field: &str, spec: &AggregateSpec) -> Result<Vec<Bin>> {
        spec.bins.check()?;
        let field = self.field(field)?;
        let mut merged = Merged::new();
        for stretch in self.stretches(&spec.range)? {
            let reading = match with_aggregates(stretch)? {
                None => continue,
                Some(Stretch::One(reading)) => reading,
                Some(Stretch::Several(several)) => {
                    several.aggregate(field, spec, &mut merged)?;
                    continue;
                }
            };
            if let Some(name) = reading.field(field) {
                let range = reading.range;
                let own = AggregateSpec { range, ..*spec };
                let one = &reading.part.snapshot;
                merged.add(one.aggregate_numbered(reading.found, name, &own)?);
            }
        }
        let bins = merged.finish().map(|(number, bin)| Bin {
            start: spec.bins.start(number, &spec.range),
            ..bin
        });
        Ok(bins.collect())
    }

    pub(in crate::read) fn summary(&self, spec: &SummarySpec) -> Result<Vec<SummaryBin>> {
        spec.bins.check()?;
        let fields = spec.fields.iter().map(|field| self.field(field));
        let fields: Vec<FieldId> = fields.collect::<Result<_>>()?;
        let mut merged = Merged::new();
        for stretch in self.stretches(&spec.range)? {
            let reading = match with_aggregates(stretch)? {
                None => continue,
                Some(Stretch::One(reading)) => reading,
                Some(Stretch::Several(several)) => {
                    several.summary(&fields, spec, &mut merged)?;
                    continue;
                }
            };
            let (names, places) = reading.fields(&fields);
            let own = SummarySpec {
                range: reading.range,
                bins: spec.bins,
                fields: names,
            };
            let bins = reading.part.snapshot.summary_found(reading.found, &own)?;
            merged.add(bins.into_iter().map(|bin| {
                let of = |at: &Option<usize>| at.and_then(|at| bin.aggregates.get(at));
                let aggregates = places.iter().map(|at| *of(at).unwrap_or(&Aggregate::EMPTY));
                let shaped = SummaryBin {
                    aggregates: aggregates.collect(),
                    ..bin
                };
                (shaped.number, shaped)
            }));
        }
        Ok(merged.finish().map(|(_, bin)| bin).collect())
    }

    pub(in crate::read) fn tile(
        &self,
        field: &str,
        level: Level,
        offset: i64,
    ) -> Result<Vec<(i64, Aggregate)>> {
        let field = self.field(field)?;
        let range = SingleSnapshot::tile_range(level, offset);
        let stretches = self.stretches(&range)?;
        if let [Stretch::One(reading)] = stretches.as_slice()
            && let Some(name) = reading.field(field)
        {
            let (one, found) = (&reading.part.snapshot, reading.found);
            return one.tile_in(found, name, level, &reading.range);
        }
        let mut merged = Merged::new();
        for stretch in stretches {
            let reading = match with_aggregates(stretch)? {
                None => continue,
                Some(Stretch::One(reading)) => reading,
                Some(Stretch::Several(several)) => {
                    several.tile(field, level, &mut merged)?;
                    continue;
                }
            };
            if let Some(name) = reading.field(field) {
                let (one, found) = (&reading.part.snapshot, reading.found);
                let tile = one.tile_in(found, name, level, &reading.range)?;
                merged.add(tile.into_iter().map(|(b, a)| (i128::from(b), a)));
            }
        }
        let buckets = merged.finish();
        Ok(buckets
            .filter_map(|(bucket, aggregate)| Some((i64::try_from(bucket).ok()?, aggregate)))
            .collect())
    }

    pub(in crate::read) fn version(&self, range: &ClosedRange) -> Result<Option<DataVersion>> {
        // The versions of the parts are keyed hashes already: this hash only combines them.
        let mut hasher = DefaultHasher::new();
        self.union.fingerprint.hash(&mut hasher);
        let mut is_closed = true;
        for reading in self.readings(range)? {
            let one = &reading.part.snapshot;
            let Some(version) = one.version_found(reading.found, &reading.range)? else {
                return Ok(None);
            };
            reading.fields.hash(&mut hasher);
            reading.range.first.hash(&mut hasher);
            reading.range.last.hash(&mut hasher);
            version.hash(&mut hasher);
            is_closed &= version.is_closed;
        }
        Ok(Some(DataVersion {
            number: hasher.finish(),
            is_closed,
        }))
    }

    pub(in crate::read) fn coverage(
        &self,
        range: ClosedRange,
        level: Option<Level>,
    ) -> Result<Vec<Coverage>> {
        let range = whole_buckets(range, level);
        let mut out = Vec::new();
        for piece in self.pieces(&range) {
            match piece.parts {
                [] => out.push(Coverage::elsewhere(piece.range)),
                [part] => {
                    let reading = self.reading(*part, piece.range)?;
                    out.extend(reading.map(|r| r.coverage(level)).transpose()?);
                }
                _ => out.extend(self.coverage_of_several(piece, level)?),
            }
        }
        Ok(out)
    }

    pub(in crate::read) fn stream_info(&self) -> Result<StreamInfo> {
        let pieces = self.readable_pieces(&ClosedRange::ALL)?;
        let mut info = StreamInfo::default();
        for piece in pieces {
            let own = match piece.parts {
                [part] => match self.reading(*part, piece.range)? {
                    None => continue,
                    Some(reading) if matches!(self.entry.shown, ShownParts::All(_)) => {
                        return reading.part.snapshot.info_found(reading.found);
                    }
                    Some(reading) => StreamInfo {
                        first: reading.row(RangeEnd::First)?,
                        last: reading.row(RangeEnd::Last)?,
                        rows: reading.rows()?,
                    },
                },
                _ => self.info_of_several(piece)?,
            };
            info.first = info.first.or(own.first);
            info.last = own.last.or(info.last);
            info.rows = info.rows.saturating_add(own.rows);
        }
        Ok(info)
    }
}
