//! Computed columns of a group: functions over intervals, and functions of their results.
//!
//! Invariants: what the pyramid knows is not read from rows; rows are read where a condition on
//! fields, or the function itself, asks for each value; a text that is a number counts as one for
//! functions of numbers.

use super::arithmetic::{number, operate};
use super::condition::Condition;
use super::fill::filled;
use super::functions::{Function, Need};
use super::measurements::Member;
use super::plan::{Call, Node, Plan};
use super::raw::{self, Wanted};
use super::rows::chosen;
use super::{Asker, Cell};
use crate::error::Error;
use crate::fold::{BUCKET_VALUES, Bucket, Buckets, Fold, first, first_and_last, last};
use crate::windows::{Windows, narrow};
use headwater::{ClosedRange, Column, Comparison, FieldType, Filter, Timestamp, Value, ValueRef};
use headwater_wire::influxql::Fill;
use std::collections::BTreeMap;

/// A field as functions read it: texts as numbers, or as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    field: usize,
    as_numbers: bool,
}

/// What was read of a field.
#[derive(Default)]
struct Read {
    buckets: Buckets,
    values: BTreeMap<i64, Vec<(i64, Value)>>,
}

/// One row of the answer: its time, and the values of the calls.
pub(super) struct Computed {
    pub(super) time: i64,
    pub(super) cells: Vec<Cell>,
}

/// How a group is computed.
pub(super) struct Grouping<'a> {
    pub(super) plan: &'a Plan,
    pub(super) condition: &'a Condition,
    pub(super) windows: &'a Windows,
    pub(super) fill: Fill,
}

/// A computed series: places on the time line, which are numbers of intervals or instants, and
/// values.
type Points = Vec<(i64, Option<Value>)>;

impl Asker<'_> {
    /// The rows of a group, in the order of time.
    pub(super) fn computed(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Vec<Computed>, Error> {
        let (plan, windows) = (grouping.plan, grouping.windows);
        if plan.calls.iter().all(|c| c.function().is_none()) {
            return self.of_rows(grouping, members);
        }
        let reads = self.read(grouping, members)?;
        if reads
            .values()
            .all(|r| r.buckets.is_empty() && r.values.is_empty())
        {
            return Ok(Vec::new());
        }
        if plan.has_plain {
            return self.points(grouping, members);
        }
        if let ([Call::Function(function, field)], false) =
            (plan.calls.as_slice(), windows.is_divided())
        {
            return self.single(grouping, members, *function, *field, &reads);
        }
        let grid = grid(grouping, &reads)?;
        let mut series: Vec<Points> = Vec::with_capacity(plan.calls.len());
        for call in &plan.calls {
            series.push(self.series(call, grouping, &reads, grid)?);
        }
        let own_times = |place: i64| windows.start(place);
        let mut rows = self.put_together(plan, series, &own_times)?;
        if !windows.is_divided() && !grouping.condition.has_start {
            // Without a beginning it is 1970.
            rows.iter_mut().for_each(|row| row.time = 0);
        }
        Ok(rows)
    }

    /// Functions of the rows as they are, such as `derivative(v)`.
    fn of_rows(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Vec<Computed>, Error> {
        let plan = grouping.plan;
        let mut series = Vec::with_capacity(plan.calls.len());
        for call in &plan.calls {
            series.push(self.row_series(call, grouping, members)?);
        }
        self.put_together(plan, series, &|time| time)
    }

    fn row_series(
        &self,
        call: &Call,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Points, Error> {
        match call {
            Call::Function(..) => Ok(Vec::new()),
            Call::Transform(transform, inner) => {
                let inner = self.row_series(inner, grouping, members)?;
                let there: Vec<(i64, Value)> = present(inner);
                let points = transform.apply(&there);
                Ok(points.into_iter().map(|(t, v)| (t, Some(v))).collect())
            }
            Call::Field(field) => {
                let alone = Plan {
                    names: Vec::new(),
                    nodes: vec![Node::Field(*field)],
                    calls: Vec::new(),
                    read: grouping.plan.read.clone(),
                    has_plain: true,
                };
                let wanted = Wanted {
                    range: grouping.condition.range,
                    descending: false,
                    keep: None,
                };
                let rows = self.raw(&alone, members, wanted)?;
                let value = |mut cells: Vec<Cell>| match cells.pop() {
                    Some(Cell::Value(value)) => Some(value),
                    _ => None,
                };
                Ok(rows.into_iter().map(|r| (r.time, value(r.cells))).collect())
            }
        }
    }

    /// Reads what the functions need of all members.
    fn read(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<BTreeMap<Source, Read>, Error> {
        let plan = grouping.plan;
        let mut needs: BTreeMap<Source, Vec<Need>> = BTreeMap::new();
        for (function, field) in plan.calls.iter().filter_map(Call::function) {
            let entry = needs.entry(source(plan, function, field)).or_default();
            entry.push(function.need());
        }
        let mut reads = BTreeMap::new();
        for (source, needs) in needs {
            let mut read = Read::default();
            for member in members {
                self.read_member(grouping, member, source, &needs, &mut read)?;
            }
            for values in read.values.values_mut() {
                values.sort_by_key(|(time, _)| *time);
            }
            reads.insert(source, read);
        }
        Ok(reads)
    }

    fn read_member(
        &self,
        grouping: &Grouping<'_>,
        member: &Member,
        source: Source,
        needs: &[Need],
        read: &mut Read,
    ) -> Result<(), Error> {
        let (plan, windows) = (grouping.plan, grouping.windows);
        let needs_values = needs.contains(&Need::Values);
        let needs_buckets = needs.iter().any(|n| *n != Need::Values);
        let Some((name, _)) = plan.read.get(source.field) else {
            return Ok(());
        };
        let ends = match needs.contains(&Need::Ends) {
            true => first_and_last(name),
            false => Vec::new(),
        };
        let fold = Fold {
            fields: vec![name.clone()],
            ends,
            ..Fold::default()
        };
        let mut buckets_by_rows = needs_buckets;
        if needs_buckets && member.takes_all_rows() && !source.as_numbers {
            let stream = (&member.stream, member.extent);
            fold.add_named(
                self.snapshot,
                stream,
                windows,
                self.budget,
                &mut read.buckets,
            )?;
            buckets_by_rows = false;
        }
        if !needs_values && !buckets_by_rows {
            return Ok(());
        }
        let mut pieces = Buckets::default();
        self.each_chunk(
            member,
            &plan.read,
            windows.range,
            &[],
            &mut |chunk, rows| {
                let (times, mut column) = chosen(chunk, rows, source.field);
                if source.as_numbers {
                    column = numbers(&column);
                }
                if buckets_by_rows {
                    fold.fold_rows(&times, &column, windows, &mut pieces);
                    self.budget.has_room_for(pieces.len() * BUCKET_VALUES)?;
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
            },
        )?;
        fold.take(pieces, self.budget, &mut read.buckets)
    }

    /// What a call gives for the intervals of the grid.
    fn series(
        &self,
        call: &Call,
        grouping: &Grouping<'_>,
        reads: &BTreeMap<Source, Read>,
        grid: (i64, i64),
    ) -> Result<Points, Error> {
        match call {
            Call::Field(_) => Ok(Vec::new()),
            Call::Transform(transform, inner) => {
                let inner = self.series(inner, grouping, reads, grid)?;
                let windows = grouping.windows;
                // Of what passed between intervals, their beginnings tell.
                let starts: BTreeMap<i64, i64> =
                    inner.iter().map(|(n, _)| (windows.start(*n), *n)).collect();
                let there: Vec<(i64, Value)> = present(inner)
                    .into_iter()
                    .map(|(n, v)| (windows.start(n), v))
                    .collect();
                let points = transform.apply(&there);
                Ok(points
                    .into_iter()
                    .filter_map(|(time, v)| Some((*starts.get(&time)?, Some(v))))
                    .collect())
            }
            Call::Function(function, field) => {
                let values = values(grouping.plan, *function, *field, reads);
                let mut one: BTreeMap<i64, Value> = BTreeMap::new();
                if *function == Function::Distinct {
                    return Ok(values.into_iter().map(|(n, _, v)| (n, Some(v))).collect());
                }
                one.extend(values.into_iter().map(|(n, _, v)| (n, v)));
                if !grouping.windows.is_divided() {
                    return Ok(one.into_iter().map(|(n, v)| (n, Some(v))).collect());
                }
                let fill = match (function, grouping.fill) {
                    // Nothing is none of them.
                    (Function::Count | Function::CountDistinct, Fill::Null) => Fill::Integer(0),
                    (_, fill) => fill,
                };
                if fill != Fill::None {
                    let width = i128::from(grid.1) - i128::from(grid.0) + 1;
                    self.budget
                        .take_values(usize::try_from(width).unwrap_or(usize::MAX))?;
                }
                Ok(filled(one, grid.0, grid.1, fill))
            }
        }
    }

    /// One function over the whole range. If it chooses a value, the row has the time of that
    /// value.
    fn single(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
        function: Function,
        field: usize,
        reads: &BTreeMap<Source, Read>,
    ) -> Result<Vec<Computed>, Error> {
        let plan = grouping.plan;
        let start = match grouping.condition.has_start {
            true => grouping.windows.range.first.as_nanos(),
            false => 0,
        };
        let mut rows = Vec::new();
        for (_, time, value) in values(plan, function, field, reads) {
            let time = match (time, function) {
                (Some(time), _) => Some(time),
                (None, Function::Min | Function::Max) => {
                    self.first_with(grouping, members, field, &value)?
                }
                _ => None,
            };
            let cells = plan.nodes.iter().map(|n| cell(n, &|_| Some(value.clone())));
            rows.push(Computed {
                time: time.unwrap_or(start),
                cells: cells.collect(),
            });
        }
        Ok(rows)
    }

    /// When a field first has a value. A part of which only aggregates are left has no such time.
    fn first_with(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
        field: usize,
        value: &Value,
    ) -> Result<Option<i64>, Error> {
        let plan = grouping.plan;
        let Some((name, field_type)) = plan.read.get(field) else {
            return Ok(None);
        };
        let as_numbers = *field_type == FieldType::String;
        let filter = Filter {
            field: name.clone(),
            comparison: Comparison::Equal,
            value: value.clone(),
        };
        let filters = if as_numbers {
            &[][..]
        } else {
            std::slice::from_ref(&filter)
        };
        let mut best: Option<i64> = None;
        for member in members {
            let until = best.map_or(Timestamp::MAX, Timestamp::from_nanos);
            let range = grouping
                .windows
                .range
                .intersect(&ClosedRange::new(Timestamp::MIN, until));
            self.each_chunk(member, &plan.read, range, filters, &mut |chunk, rows| {
                let (times, column) = chosen(chunk, rows, field);
                let same = |row: usize| match column.get(row) {
                    Some(found) if as_numbers => number(found) == number(value.as_ref()),
                    found => found.is_some(),
                };
                let first = (0..times.len()).find(|row| same(*row));
                match first.and_then(|row| times.get(row)) {
                    Some(time) => {
                        best = Some(best.map_or(*time, |b| b.min(*time)));
                        Ok(false)
                    }
                    None => Ok(true),
                }
            })?;
        }
        Ok(best)
    }

    /// The rows that a function chooses, with their other values: every row of the range is looked
    /// at.
    fn points(&self, grouping: &Grouping<'_>, members: &[&Member]) -> Result<Vec<Computed>, Error> {
        let (plan, windows) = (grouping.plan, grouping.windows);
        let Some((function, field)) = plan.calls.first().and_then(Call::function) else {
            return Ok(Vec::new());
        };
        let text = plan
            .read
            .get(field)
            .is_some_and(|(_, t)| *t == FieldType::String);
        let as_numbers = text && !function.takes_any();
        // For each interval the best value, its time, and the row.
        let mut best: BTreeMap<i64, (Value, i64, Vec<Cell>)> = BTreeMap::new();
        for member in members {
            self.each_chunk(
                member,
                &plan.read,
                windows.range,
                &[],
                &mut |chunk, rows| {
                    for row in rows {
                        let row = *row as usize;
                        let field_of = |c: usize| chunk.columns.get(c).and_then(|c| c.get(row));
                        let (Some(time), Some(mut value)) = (chunk.times.get(row), field_of(field))
                        else {
                            continue;
                        };
                        if as_numbers {
                            match number(value) {
                                Some(v) => value = ValueRef::F64(v),
                                None => continue,
                            }
                        }
                        let place = windows.number(*time);
                        let is_better = best.get(&place).is_none_or(|(held, at, _)| {
                            better(function, (value, *time), (held.as_ref(), *at))
                        });
                        if !is_better {
                            continue;
                        }
                        let cells = plan.nodes.iter().map(|node| match node {
                            Node::Call(_) => Cell::Value(value.to_owned()),
                            node => raw::value(node, &member.stream, &field_of).into(),
                        });
                        let cells: Vec<Cell> = cells.collect();
                        let count = cells.len() + 2;
                        if best
                            .insert(place, (value.to_owned(), *time, cells))
                            .is_none()
                        {
                            self.budget.take_values(count)?;
                        }
                    }
                    Ok(true)
                },
            )?;
        }
        let rows = best.into_iter().map(|(place, (_, time, cells))| Computed {
            time: match windows.is_divided() {
                true => windows.start(place),
                false => time,
            },
            cells,
        });
        Ok(rows.collect())
    }

    /// Rows of the calls' values: one for each place where a call has one, or stands empty.
    fn put_together(
        &self,
        plan: &Plan,
        series: Vec<Points>,
        time_of: &dyn Fn(i64) -> i64,
    ) -> Result<Vec<Computed>, Error> {
        if let ([_], [points]) = (plan.nodes.as_slice(), series.as_slice()) {
            // Several values may stand at one place.
            let mut rows = Vec::with_capacity(points.len());
            for (place, value) in points {
                let cells = plan.nodes.iter().map(|n| cell(n, &|_| value.clone()));
                rows.push(Computed {
                    time: time_of(*place),
                    cells: cells.collect(),
                });
            }
            return Ok(rows);
        }
        let mut places: BTreeMap<i64, Vec<Option<Value>>> = BTreeMap::new();
        let count = series.len();
        for (index, points) in series.into_iter().enumerate() {
            for (place, value) in points {
                let row = match places.entry(place) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        self.budget.take_values(count + plan.nodes.len())?;
                        entry.insert(vec![None; count])
                    }
                };
                if let Some(slot) = row.get_mut(index) {
                    *slot = value;
                }
            }
        }
        let rows = places.into_iter().map(|(place, values)| {
            let of = |call: usize| values.get(call).cloned().flatten();
            Computed {
                time: time_of(place),
                cells: plan.nodes.iter().map(|n| cell(n, &of)).collect(),
            }
        });
        Ok(rows.collect())
    }
}

fn present(points: Points) -> Vec<(i64, Value)> {
    let there = points.into_iter().filter_map(|(t, v)| Some((t, v?)));
    there.collect()
}

fn source(plan: &Plan, function: Function, field: usize) -> Source {
    let is_text = plan
        .read
        .get(field)
        .is_some_and(|(_, t)| *t == FieldType::String);
    Source {
        field,
        as_numbers: is_text && !function.takes_any(),
    }
}

/// What a function gives for each interval that has something: its number, a time if the value has
/// one, and the value.
fn values(
    plan: &Plan,
    function: Function,
    field: usize,
    reads: &BTreeMap<Source, Read>,
) -> Vec<(i64, Option<i64>, Value)> {
    let Some(read) = reads.get(&source(plan, function, field)) else {
        return Vec::new();
    };
    let field_type = plan.read.get(field).map_or(FieldType::F64, |(_, t)| *t);
    if function.need() == Need::Values {
        let mut out = Vec::new();
        for (place, values) in &read.values {
            let found = function.of_values(&mut values.clone());
            out.extend(found.into_iter().map(|(time, v)| (*place, time, v)));
        }
        return out;
    }
    let time = |bucket: &Bucket| match function {
        Function::First => first(bucket).map(|e| e.time),
        Function::Last => last(bucket).map(|e| e.time),
        _ => None,
    };
    let of = |(place, bucket): (i128, &Bucket)| {
        let value = function.of_bucket(bucket, field_type)?;
        Some((narrow(place), time(bucket), value))
    };
    read.buckets.iter().filter_map(of).collect()
}

/// The first and the last interval of the answer.
fn grid(grouping: &Grouping<'_>, reads: &BTreeMap<Source, Read>) -> Result<(i64, i64), Error> {
    let windows = grouping.windows;
    if !windows.is_divided() {
        return Ok((0, 0));
    }
    let first_of = |read: &Read| {
        let first = read.buckets.first().map(narrow);
        first
            .into_iter()
            .chain(read.values.keys().next().copied())
            .min()
    };
    let first = reads.values().filter_map(first_of).min().unwrap_or(0);
    if grouping.fill == Fill::None {
        return Ok((first, first));
    }
    let (start, end) = (
        windows.range.first.as_nanos(),
        windows.range.last.as_nanos(),
    );
    if grouping.condition.has_start {
        return windows.numbers(start, end);
    }
    windows.numbers(windows.start(first).max(start), end)
}

/// Whether a row is to be chosen instead of the one held. Of equal ones the earliest stays, and for
/// the last the one that comes later.
fn better(function: Function, new: (ValueRef<'_>, i64), held: (ValueRef<'_>, i64)) -> bool {
    use super::arithmetic::compare;
    use std::cmp::Ordering;
    let by_value = |wanted: Ordering| match compare(new.0, held.0) {
        Some(Ordering::Equal) => new.1 < held.1,
        ordering => ordering == Some(wanted),
    };
    match function {
        Function::First => new.1 < held.1,
        Function::Last => new.1 >= held.1,
        Function::Min => by_value(Ordering::Less),
        Function::Max => by_value(Ordering::Greater),
        _ => false,
    }
}

fn cell(node: &Node, call: &dyn Fn(usize) -> Option<Value>) -> Cell {
    value(node, call).into()
}

fn value(node: &Node, call: &dyn Fn(usize) -> Option<Value>) -> Option<Value> {
    match node {
        Node::Nothing | Node::Field(_) | Node::Tag(_) => None,
        Node::Value(value) => Some(value.clone()),
        Node::Call(index) => call(*index),
        Node::Operation(operator, left, right) => {
            let (left, right) = (value(left, call)?, value(right, call)?);
            operate(*operator, left.as_ref(), right.as_ref())
        }
        Node::Math(math, inner) => math.of(value(inner, call)?.as_ref()),
    }
}

/// Texts as the numbers they are; other values are left out.
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
