//! Reads of functions over the rows of a group: aggregates of intervals, and values.
//!
//! Invariants: aggregates in the pyramid are not computed from rows; rows are read where a
//! condition on fields, or the function itself, requires each value; a text that is a number counts
//! as one for functions of numbers.

use super::Evaluator;
use super::arithmetic::number;
use super::condition::Condition;
use super::functions::{Function, Need, areas};
use super::measurements::Member;
use super::plan::{Call, Plan};
use super::rows::chosen;
use crate::error::Error;
use crate::fold::{BUCKET_VALUES, Bucket, Buckets, Fold, first, first_and_last, last};
use crate::windows::{Windows, narrow};
use headwater::{Column, FieldType, Value, ValueRef};
use headwater_wire::influxql::Fill;
use std::collections::BTreeMap;

/// Plan of the computation of a group.
pub(super) struct Grouping<'a> {
    pub(super) plan: &'a Plan,
    pub(super) condition: &'a Condition,
    pub(super) windows: &'a Windows,
    pub(super) fill: Fill,
    /// True for newest rows first.
    pub(super) descending: bool,
}

impl Grouping<'_> {
    /// The intervals for functions that compare values with the `widths` values before them:
    /// extended by that many, in the order of the answer.
    pub(super) fn reaching(&self, widths: u32) -> Windows {
        match (widths, self.descending) {
            (0, _) => self.windows.clone(),
            (_, false) => self.windows.beginning_earlier(widths),
            (_, true) => self.windows.ending_later(widths),
        }
    }
}

/// A field as functions read it: texts as numbers or unchanged, and the number of additional
/// intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    field: usize,
    as_numbers: bool,
    reach: u32,
}

/// The values and aggregates read of a field.
#[derive(Default)]
struct Read {
    buckets: Buckets,
    values: BTreeMap<i64, Vec<(i64, Value)>>,
}

/// The values and aggregates read of a group.
pub(super) struct Reads(BTreeMap<Source, Read>);

/// A function's result for an interval: the interval's number, a time if the value has one, and the
/// value, if any.
pub(super) type IntervalResult = (i64, Option<i64>, Option<Value>);

impl Evaluator<'_> {
    /// Reads the data that the functions need, of all members.
    pub(super) fn read(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Reads, Error> {
        let plan = grouping.plan;
        let mut needs: BTreeMap<Source, Vec<Need>> = BTreeMap::new();
        for call in &plan.calls {
            if let Some((function, field)) = call.function() {
                let entry = needs.entry(source(plan, function, field, call.reach()));
                entry.or_default().push(function.need());
            }
        }
        let mut reads = BTreeMap::new();
        for (source, needs) in needs {
            let mut read = Read::default();
            let windows = grouping.reaching(source.reach);
            for member in members {
                self.read_member(plan, &windows, (member, source), &needs, &mut read)?;
            }
            for values in read.values.values_mut() {
                values.sort_by_key(|(time, _)| *time);
            }
            reads.insert(source, read);
        }
        Ok(Reads(reads))
    }

    fn read_member(
        &self,
        plan: &Plan,
        windows: &Windows,
        (member, source): (&Member, Source),
        needs: &[Need],
        read: &mut Read,
    ) -> Result<(), Error> {
        let needs_values = needs.contains(&Need::Values);
        let needs_buckets = needs.iter().any(|n| *n != Need::Values);
        let Some(field) = plan.read.get(source.field) else {
            return Ok(());
        };
        let ends = match needs.contains(&Need::Ends) {
            true => first_and_last(&field.name),
            false => Vec::new(),
        };
        let fold = Fold {
            fields: vec![field.name.clone()],
            ends,
            ..Fold::default()
        };
        let mut buckets_by_rows = needs_buckets;
        if needs_buckets && member.is_as_stored() && !source.as_numbers && !field.is_cast() {
            let stream = (&member.stream, member.extent);
            let buckets = &mut read.buckets;
            fold.add_named(self.snapshot, stream, windows, self.budget, buckets)?;
            buckets_by_rows = false;
        }
        if !needs_values && !buckets_by_rows {
            return Ok(());
        }
        let mut pieces = Buckets::default();
        let range = windows.range;
        self.each_chunk(member, &plan.read, range, &[], &mut |chunk, rows| {
            let (times, mut column) = chosen(chunk, rows, source.field);
            if source.as_numbers {
                column = numbers(&column);
            }
            if buckets_by_rows {
                fold.fold_rows(&times, &column, windows, &mut pieces);
                self.budget.check_fits(pieces.len() * BUCKET_VALUES)?;
            }
            if needs_values {
                for (row, time) in times.iter().enumerate() {
                    if let Some(value) = column.get(row) {
                        self.budget.take_values(1)?;
                        let values = read.values.entry(windows.number(*time)).or_default();
                        values.push((*time, value.to_owned()));
                    }
                }
            }
            Ok(true)
        })?;
        fold.take(pieces, self.budget, &mut read.buckets)
    }
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        let mut reads = self.0.values();
        reads.all(|r| r.buckets.is_empty() && r.values.is_empty())
    }

    /// The first non-empty interval, within `reach` additional intervals.
    pub(super) fn first(&self, reach: u32) -> Option<i64> {
        let first_of = |(_, read): (&Source, &Read)| {
            let bucket = read.buckets.first().map(narrow);
            let value = read.values.keys().next().copied();
            bucket.into_iter().chain(value).min()
        };
        let of_reach = self.0.iter().filter(|(source, _)| source.reach == reach);
        of_reach.filter_map(first_of).min()
    }

    /// The results of a call's function for each non-empty interval.
    pub(super) fn interval_results(
        &self,
        grouping: &Grouping<'_>,
        call: &Call,
    ) -> Vec<IntervalResult> {
        let plan = grouping.plan;
        let Some((function, field)) = call.function() else {
            return Vec::new();
        };
        let Some(read) = self.0.get(&source(plan, function, field, call.reach())) else {
            return Vec::new();
        };
        if let Function::Integral(unit_ns) = function {
            return integral(grouping.windows, read, unit_ns);
        }
        if function.need() == Need::Values {
            let mut out = Vec::new();
            for (place, values) in &read.values {
                let found = function.of_values(&mut values.clone());
                out.extend(found.into_iter().map(|(time, v)| (*place, time, Some(v))));
            }
            return out;
        }
        let field_type = plan
            .read
            .get(field)
            .map_or(FieldType::F64, |f| f.field_type());
        let time = |bucket: &Bucket| match function {
            Function::First => first(bucket).map(|e| e.time),
            Function::Last => last(bucket).map(|e| e.time),
            _ => None,
        };
        let of = |(place, bucket): (i128, &Bucket)| {
            let value = function.of_bucket(bucket, field_type);
            // One value has no deviation, but the interval is not empty.
            let is_there = value.is_some()
                || function == Function::Stddev && bucket.aggregate(0).sample_stddev().is_none();
            is_there.then(|| (narrow(place), time(bucket), value))
        };
        read.buckets.iter().filter_map(of).collect()
    }
}

fn integral(windows: &Windows, read: &Read, unit_ns: i64) -> Vec<IntervalResult> {
    let interval = |at: i64| {
        let number = windows.number(at);
        if !windows.is_divided() {
            return (number, i64::MIN, i64::MAX);
        }
        let end = windows.start(number.saturating_add(1));
        (number, windows.start(number), end)
    };
    let points = read.values.values().flatten();
    let points = points.filter_map(|(t, v)| Some((*t, number(v.as_ref())?)));
    let found = areas(points, unit_ns, &interval);
    found.into_iter().map(|(n, v)| (n, None, v)).collect()
}

fn source(plan: &Plan, function: Function, field: usize, reach: u32) -> Source {
    Source {
        field,
        as_numbers: plan.reads_text(field) && !function.accepts_any_type(),
        reach,
    }
}

/// Texts converted to numbers; other values are left out.
fn numbers(column: &Column) -> Column {
    let mut out = Column::with_capacity(FieldType::F64, column.len());
    for row in 0..column.len() {
        match column.get(row).and_then(number) {
            Some(value) => {
                out.push(ValueRef::F64(value));
            }
            None => out.push_absent(1),
        }
    }
    out
}
