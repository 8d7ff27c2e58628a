//! Reads a stretch of a stream in one part.
//!
//! Invariant: the part is read under its own field names, within the stretch. Failure: the errors
//! of a snapshot of one database.

use super::part::DatabasePart;
use super::tables::{PartFields, UnionTable};
use crate::Result;
use crate::read::coverage::Coverage;
use crate::read::ends::RangeEnd;
use crate::read::filter::Filter;
use crate::read::last::LastValue;
use crate::read::scan::ScanSpec;
use crate::read::single::ResolvedStream;
use crate::read::summary::SummarySpec;
use headwater_types::{ClosedRange, FieldId, Level, Timestamp, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// A stretch of a stream in a part.
pub(super) struct Reading<'a> {
    pub(super) part: &'a DatabasePart,
    /// Number of the part.
    pub(super) number: u32,
    pub(super) fields: &'a PartFields,
    pub(super) union: &'a UnionTable,
    pub(super) found: ResolvedStream<'a>,
    pub(super) range: ClosedRange,
}

impl Reading<'_> {
    /// The part's name of a field; `None` = the part has no values of it.
    pub(super) fn field(&self, field: FieldId) -> Option<&str> {
        self.fields.name_in(self.union, self.found.table, field)
    }

    /// The part's names of fields, and for each field its index among these names.
    pub(super) fn fields(&self, fields: &[FieldId]) -> (Vec<String>, Vec<Option<usize>>) {
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
    pub(super) fn spec(&self, spec: &ScanSpec, names: Vec<String>) -> Option<ScanSpec> {
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

    pub(super) fn has_all_fields(&self) -> bool {
        *self.fields == PartFields::Same
    }

    pub(super) fn rows(&self) -> Result<u64> {
        let spec = SummarySpec {
            range: self.range,
            bins: crate::Bins::Whole,
            fields: Vec::new(),
        };
        let bins = self.part.snapshot.summary_found(self.found, &spec)?;
        Ok(bins.iter().map(|bin| bin.rows).sum())
    }

    /// The newest values of fields, where no newer one is known.
    pub(super) fn fill_newest(&self, newest: &mut [Option<(Timestamp, Value)>]) -> Result<()> {
        let one = &self.part.snapshot;
        let found = one.last_found(self.found)?;
        let found: HashMap<&str, &LastValue> = found
            .iter()
            .map(|last| (last.field.as_str(), last))
            .collect();
        for (field, newest) in (0u32..).map(FieldId).zip(newest) {
            let last = self.field(field).and_then(|name| found.get(name));
            if let (None, Some(last)) = (&newest, last) {
                *newest = if self.range.last < last.time {
                    one.end_found(self.found, &last.field, self.range, RangeEnd::Last)?
                } else {
                    let is_inside = self.range.contains(last.time);
                    is_inside.then(|| (last.time, last.value.clone()))
                };
            }
        }
        Ok(())
    }

    pub(super) fn coverage(&self, level: Option<Level>) -> Result<Coverage> {
        let one = &self.part.snapshot;
        let coverage = one.coverage_found(self.found, self.range, level)?;
        Ok(Coverage {
            part: Some(Arc::clone(&self.part.name)),
            ..coverage
        })
    }

    pub(super) fn row(&self, side: RangeEnd) -> Result<Option<Timestamp>> {
        self.part.snapshot.row_found(self.found, self.range, side)
    }

    /// The outermost value of a field; `None` also where the part has no values of it.
    pub(super) fn end(&self, field: FieldId, side: RangeEnd) -> Result<Option<(Timestamp, Value)>> {
        let Some(name) = self.field(field) else {
            return Ok(None);
        };
        let one = &self.part.snapshot;
        one.end_found(self.found, name, self.range, side)
    }
}
