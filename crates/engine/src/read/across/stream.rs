//! Reads a stream from the part, or the parts, that own it.
//!
//! Invariants: each stretch is read from its own part only, under the field names of that part.
//! Failure: a stretch whose owner is not among the parts is `elsewhere`.

use super::index::Entry;
use super::merged::Merged;
use super::owners::Shown;
use super::part::Part;
use super::scan::{AcrossScan, PartScan};
use super::tables::{PartFields, UnionTable};
use super::{AcrossSnapshot, owner_elsewhere};
use crate::common::ids::TableId;
use crate::common::ranges::union;
use crate::metadata::catalog::stream_key;
use crate::read::aggregate::{AggregateSpec, Bin};
use crate::read::coverage::{Coverage, whole_buckets};
use crate::read::describe::StreamInfo;
use crate::read::ends::RangeEnd;
use crate::read::filter::{Clause, Filter};
use crate::read::handle::StreamHandle;
use crate::read::last::LastValue;
use crate::read::scan::{ScanSpec, requested_fields};
use crate::read::single::{ResolvedStream, SingleSnapshot};
use crate::read::summary::{SummaryBin, SummarySpec};
use crate::read::version::DataVersion;
use crate::read::visit::{self, RowBlock};
use crate::{Error, ErrorKind, Result};
use headwater_types::{
    Aggregate, ClosedRange, FieldId, FieldType, Level, StreamName, Timestamp, Value,
};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A stream over all parts.
pub(in crate::read) struct StreamAcross<'a> {
    all: &'a AcrossSnapshot,
    name: &'a StreamName,
    /// Handle of the stream in one of the parts.
    handle: Option<&'a StreamHandle>,
    union: &'a UnionTable,
    entry: &'a Entry,
}

/// A stretch of a stream in a part.
struct Reading<'a> {
    part: &'a Part,
    fields: &'a PartFields,
    union: &'a UnionTable,
    found: ResolvedStream<'a>,
    range: ClosedRange,
}

impl Reading<'_> {
    /// The part's name of a field; `None` = the part has no values of it.
    fn field(&self, field: FieldId) -> Option<&str> {
        self.fields.name_in(self.union, self.found.table, field)
    }

    /// The part's names of fields, and for each field its index among these names.
    fn fields(&self, fields: &[FieldId]) -> (Vec<String>, Vec<Option<usize>>) {
        let mut names = Vec::with_capacity(fields.len());
        let places = fields.iter().map(|field| {
            let name = self.field(*field)?;
            names.push(name.to_owned());
            Some(names.len() - 1)
        });
        let places = places.collect();
        (names, places)
    }

    /// The spec of the scan of this part; `None` when none of its rows can match.
    fn spec(&self, spec: &ScanSpec, names: Vec<String>) -> Option<ScanSpec> {
        let own = |filter: &Filter| {
            let field = self.union.table.field_id(&filter.field)?;
            Some(Filter {
                field: self.field(field)?.to_owned(),
                ..filter.clone()
            })
        };
        let filters = spec.filters.iter().map(own).collect::<Option<_>>()?;
        let mut any_of = Vec::with_capacity(spec.any_of.len());
        for list in &spec.any_of {
            // A field that the part does not have is absent in all of its rows.
            let list: Vec<Filter> = list.iter().filter_map(own).collect();
            if list.is_empty() {
                return None;
            }
            any_of.push(list);
        }
        Some(ScanSpec {
            range: self.range,
            fields: Some(names),
            filters,
            any_of,
        })
    }

    fn has_all_fields(&self) -> bool {
        *self.fields == PartFields::Same
    }

    fn rows(&self) -> Result<u64> {
        let spec = SummarySpec {
            range: self.range,
            bins: crate::Bins::Whole,
            fields: Vec::new(),
        };
        let bins = self.part.snapshot.summary_found(self.found, &spec)?;
        Ok(bins.iter().map(|bin| bin.rows).sum())
    }

    fn row(&self, side: RangeEnd) -> Result<Option<Timestamp>> {
        self.part.snapshot.row_found(self.found, self.range, side)
    }
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
    fn reading(&self, part: u32, range: ClosedRange) -> Result<Option<Reading<'a>>> {
        let part = self.all.part(part)?;
        let found = match self.handle {
            Some(handle) => part.snapshot.find_again(handle),
            None => part.snapshot.find(self.name),
        };
        let found = match found {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let fields = self.union.fields_of(part.number);
        let fields = fields.ok_or_else(|| Error::internal("a stream of a part without a table"))?;
        Ok(Some(Reading {
            part,
            fields,
            union: self.union,
            found,
            range,
        }))
    }

    /// The reads that a range needs, by time.
    fn readings(&self, range: &ClosedRange) -> Result<Vec<Reading<'a>>> {
        let mut out = Vec::new();
        match &self.entry.shown {
            Shown::Whole(part) => out.extend(self.reading(*part, *range)?),
            Shown::Ranges(ranges) => {
                for piece in ranges.iter() {
                    let inside = piece.range.intersect(range);
                    if inside.is_empty() {
                        continue;
                    }
                    let part = piece.part.ok_or_else(|| owner_elsewhere(self.name))?;
                    out.extend(self.reading(part, inside)?);
                }
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
        self.all.part(home)?.snapshot.handle(self.name)
    }

    pub(in crate::read) fn field_type(&self, field: &str) -> Result<FieldType> {
        let field = self.union.table.field(self.field(field)?);
        let field = field.map(|f| f.field_type);
        field.ok_or_else(|| Error::internal("a field without its definition"))
    }

    pub(in crate::read) fn scan(&self, spec: &ScanSpec) -> Result<AcrossScan> {
        let table = &self.union.table;
        let wanted = requested_fields(table, spec)?;
        Clause::all(&spec.filters, &spec.any_of, table)?;
        let mut pieces = Vec::new();
        for reading in self.readings(&spec.range)? {
            let (names, columns) = reading.fields(&wanted);
            if let Some(spec) = reading.spec(spec, names) {
                let scan = reading.part.snapshot.scan_found(reading.found, &spec)?;
                pieces.push(PartScan { scan, columns });
            }
        }
        let fields = wanted.iter().filter_map(|field| table.field(*field));
        let fields = fields.map(|f| (f.name.clone(), f.field_type)).collect();
        Ok(AcrossScan::new(fields, pieces))
    }

    pub(in crate::read) fn spans(&self, spec: &ScanSpec) -> Result<Vec<ClosedRange>> {
        Clause::all(&spec.filters, &spec.any_of, &self.union.table)?;
        let mut spans = Vec::new();
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
        let readings = self.readings(&spec.range)?;
        if readings.iter().all(Reading::has_all_fields) {
            // Unknown fields are refused there too.
            requested_fields(&self.union.table, spec)?;
            Clause::all(&spec.filters, &spec.any_of, &self.union.table)?;
            for reading in readings {
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
        let readings = self.readings(&ClosedRange::ALL)?;
        if let ([reading], Shown::Whole(_)) = (readings.as_slice(), &self.entry.shown)
            && reading.has_all_fields()
        {
            return reading.part.snapshot.last_found(reading.found);
        }
        let fields = &self.union.table.fields;
        let mut newest: Vec<Option<(Timestamp, Value)>> = vec![None; fields.len()];
        for reading in readings.iter().rev() {
            let one = &reading.part.snapshot;
            let found = one.last_found(reading.found)?;
            let found: HashMap<&str, &LastValue> = found
                .iter()
                .map(|last| (last.field.as_str(), last))
                .collect();
            for (at, newest) in newest.iter_mut().enumerate() {
                let field = u32::try_from(at).ok().map(FieldId);
                let name = field.and_then(|field| reading.field(field));
                let last = name.and_then(|name| found.get(name));
                if let (None, Some(last)) = (&newest, last) {
                    *newest = if reading.range.last < last.time {
                        let range = reading.range;
                        one.end_found(reading.found, &last.field, range, RangeEnd::Last)?
                    } else {
                        let is_inside = reading.range.contains(last.time);
                        is_inside.then(|| (last.time, last.value.clone()))
                    };
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
        for reading in self.readings_at(&range, side)? {
            if let Some(name) = reading.field(field) {
                let one = &reading.part.snapshot;
                let end = one.end_found(reading.found, name, reading.range, side)?;
                if end.is_some() {
                    return Ok(end);
                }
            }
        }
        Ok(None)
    }

    /// The reads that a range needs, in the order from the requested end.
    fn readings_at(&self, range: &ClosedRange, side: RangeEnd) -> Result<Vec<Reading<'a>>> {
        let mut readings = self.readings(range)?;
        if side == RangeEnd::Last {
            readings.reverse();
        }
        Ok(readings)
    }

    pub(super) fn row(&self, range: ClosedRange, side: RangeEnd) -> Result<Option<Timestamp>> {
        for reading in self.readings_at(&range, side)? {
            let row = reading.row(side)?;
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
        for reading in self.readings(&spec.range)? {
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
        for reading in self.readings(&spec.range)? {
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
        let readings = self.readings(&range)?;
        if let ([reading], Some(name)) = (
            readings.as_slice(),
            readings.first().and_then(|r| r.field(field)),
        ) {
            let (one, found) = (&reading.part.snapshot, reading.found);
            return one.tile_in(found, name, level, &reading.range);
        }
        let mut merged = Merged::new();
        for reading in &readings {
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
        let of_part = |reading: Reading<'_>| {
            let one = &reading.part.snapshot;
            let coverage = one.coverage_found(reading.found, reading.range, level)?;
            Ok(Coverage {
                part: Some(Arc::clone(&reading.part.name)),
                ..coverage
            })
        };
        let range = whole_buckets(range, level);
        let Shown::Ranges(ranges) = &self.entry.shown else {
            return self.readings(&range)?.into_iter().map(of_part).collect();
        };
        let mut out = Vec::new();
        for piece in ranges.iter() {
            let inside = piece.range.intersect(&range);
            if inside.is_empty() {
                continue;
            }
            match piece.part {
                None => out.push(Coverage::elsewhere(inside)),
                Some(part) => {
                    let reading = self.reading(part, inside)?;
                    out.extend(reading.map(of_part).transpose()?);
                }
            }
        }
        Ok(out)
    }

    pub(in crate::read) fn stream_info(&self) -> Result<StreamInfo> {
        let readings = self.readings(&ClosedRange::ALL)?;
        if let ([reading], Shown::Whole(_)) = (readings.as_slice(), &self.entry.shown) {
            return reading.part.snapshot.info_found(reading.found);
        }
        let mut info = StreamInfo::default();
        for reading in readings {
            let (first, last) = (reading.row(RangeEnd::First)?, reading.row(RangeEnd::Last)?);
            info.first = info.first.or(first);
            info.last = last.or(info.last);
            info.rows = info.rows.saturating_add(reading.rows()?);
        }
        Ok(info)
    }
}
