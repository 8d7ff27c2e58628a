//! Computed columns of a group: functions over intervals, and functions of their results.
//!
//! Invariants: each call is computed over the intervals it needs, which may begin before the range;
//! a missing value of a column in a row of another column is filled as empty intervals are.

use super::arithmetic::{compare, number};
use super::fill::{filled, number_among};
use super::functions::Function;
use super::measurements::Member;
use super::plan::{Call, Node};
use super::points::value;
use super::raw::{Computed, RowRequest};
use super::reading::{Grouping, Reads};
use super::rows::chosen;
use super::{Cell, Evaluator};
use crate::error::Error;
use crate::windows::Windows;
use headwater::{ClosedRange, Comparison, Filter, Timestamp, Value};
use headwater_wire::influxql::Fill;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A computed series: positions on the time line, which are numbers of intervals or instants, and
/// values.
type Points = Vec<(i64, Option<Value>)>;

impl Evaluator<'_> {
    /// The rows of a group, in the order of the answer.
    pub(super) fn computed(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Vec<Computed>, Error> {
        let (plan, windows) = (grouping.plan, grouping.windows);
        if plan.chooses_rows && plan.calls.len() > 1 {
            let series = self.samples(grouping, members)?;
            return self.assemble(grouping, series, &|time| time);
        }
        if plan.chooses_rows {
            let mut rows = self.points(grouping, members)?;
            if grouping.descending {
                rows.reverse();
            }
            return Ok(rows);
        }
        if plan.calls.iter().all(|c| c.function().is_none()) {
            return self.of_rows(grouping, members);
        }
        let reads = self.read(grouping, members)?;
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        if let ([call @ Call::Function(..)], false) = (plan.calls.as_slice(), windows.is_divided())
        {
            return self.single(grouping, members, call, &reads);
        }
        let mut series: Vec<Points> = Vec::with_capacity(plan.calls.len());
        for call in &plan.calls {
            let grid = match reads.first(call.reach()) {
                Some(first) => grouping.grid(&grouping.reaching(call.reach()), first),
                None => (0, 0),
            };
            series.push(self.series(call, grouping, &reads, grid)?);
        }
        let own_times = |place: i64| windows.start(place);
        let mut rows = self.assemble(grouping, series, &own_times)?;
        if !windows.is_divided() && !grouping.condition.has_start {
            // Without a beginning the time is 1970.
            rows.iter_mut().for_each(|row| row.time = 0);
        }
        Ok(rows)
    }

    /// Functions of raw rows, such as `derivative(v)`.
    fn of_rows(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Vec<Computed>, Error> {
        let mut series = Vec::with_capacity(grouping.plan.calls.len());
        for call in &grouping.plan.calls {
            let range = grouping.reaching(call.reach()).range;
            series.push(self.row_series(call, grouping, range, members)?);
        }
        self.assemble(grouping, series, &|time| time)
    }

    fn row_series(
        &self,
        call: &Call,
        grouping: &Grouping<'_>,
        range: ClosedRange,
        members: &[&Member],
    ) -> Result<Points, Error> {
        let descending = grouping.descending;
        match call {
            Call::Function(..) => Ok(Vec::new()),
            Call::Transform(transform, inner) => {
                let inner = self.row_series(inner, grouping, range, members)?;
                let points = transform.apply(&present(inner), descending);
                Ok(points.into_iter().map(|(t, v)| (t, Some(v))).collect())
            }
            Call::Field(field) => {
                let alone = grouping.plan.of_field(*field);
                let wanted = RowRequest {
                    range,
                    descending,
                    limit: None,
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

    /// The values of a call for the intervals of the grid, in the order of the answer.
    fn series(
        &self,
        call: &Call,
        grouping: &Grouping<'_>,
        reads: &Reads,
        grid: (i64, i64),
    ) -> Result<Points, Error> {
        let windows = grouping.reaching(call.reach());
        let mut points = match call.function() {
            None => return Ok(Vec::new()),
            Some((function, _)) => {
                let given = reads.interval_results(grouping, call);
                let values = given.into_iter().map(|(n, _, v)| (n, v));
                // The results of these functions are not filled.
                let is_list = matches!(function, Function::Distinct | Function::Integral(_));
                if is_list || !windows.is_divided() {
                    values.collect()
                } else {
                    let fill = match (function, grouping.fill) {
                        // The count of an empty interval is zero.
                        (Function::Count | Function::CountDistinct, Fill::Null) => Fill::Integer(0),
                        (_, fill) => fill,
                    };
                    if fill != Fill::None {
                        let width = i128::from(grid.1) - i128::from(grid.0) + 1;
                        self.budget
                            .take_values(usize::try_from(width).unwrap_or(usize::MAX))?;
                    }
                    filled(values.collect::<BTreeMap<_, _>>(), grid, fill)
                }
            }
        };
        if grouping.descending {
            points.reverse();
        }
        Ok(transformed(call, points, &windows, grouping.descending))
    }

    /// One function over the whole range. If it selects a value, the row has the time of that
    /// value.
    fn single(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
        call: &Call,
        reads: &Reads,
    ) -> Result<Vec<Computed>, Error> {
        let plan = grouping.plan;
        let start = match grouping.condition.has_start {
            true => grouping.windows.range.first.as_nanos(),
            false => 0,
        };
        let mut rows = Vec::new();
        for (_, time, value) in reads.interval_results(grouping, call) {
            let time = match (time, call.function(), &value) {
                (Some(time), ..) => Some(time),
                (None, Some((Function::Min | Function::Max, field)), Some(value)) => {
                    self.first_with(grouping, members, field, value)?
                }
                _ => None,
            };
            let cells = plan.nodes.iter().map(|n| cell(n, &|_| value.clone()));
            rows.push(Computed {
                time: time.unwrap_or(start),
                cells: cells.collect(),
            });
        }
        if grouping.descending {
            rows.reverse();
        }
        Ok(rows)
    }

    /// The first instant at which a field has a value. A range of which only aggregates are left
    /// does not have such an instant.
    fn first_with(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
        field: usize,
        value: &Value,
    ) -> Result<Option<i64>, Error> {
        let plan = grouping.plan;
        let Some(read) = plan.read.get(field) else {
            return Ok(None);
        };
        let as_numbers = plan.reads_text(field);
        let filter = Filter {
            field: read.name.clone(),
            comparison: Comparison::Equal,
            value: value.clone(),
        };
        let filters = if as_numbers || read.is_cast() {
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
                    Some(found) => compare(found, value.as_ref()) == Some(Ordering::Equal),
                    None => false,
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

    /// Rows of the calls' values: one for each slot where a call has a value, or that is filled.
    fn assemble(
        &self,
        grouping: &Grouping<'_>,
        series: Vec<Points>,
        time_of: &dyn Fn(i64) -> i64,
    ) -> Result<Vec<Computed>, Error> {
        let plan = grouping.plan;
        let count = series.len();
        let given: Vec<Option<Value>> = series
            .iter()
            .map(|points| {
                number_among(grouping.fill, points.iter().filter_map(|(_, v)| v.as_ref()))
            })
            .collect();
        let mut rows: Vec<(i64, Vec<Option<Value>>)> = Vec::new();
        if let ([_], [_]) = (plan.nodes.as_slice(), series.as_slice()) {
            // One slot may have several values.
            let points = series.into_iter().flatten();
            rows.extend(points.map(|(place, value)| (place, vec![value])));
        } else {
            let mut places: BTreeMap<i64, Vec<Option<Value>>> = BTreeMap::new();
            for (index, points) in series.into_iter().enumerate() {
                for (place, value) in points {
                    let row = match places.entry(place) {
                        Entry::Occupied(entry) => entry.into_mut(),
                        Entry::Vacant(entry) => {
                            self.budget.take_values(count + plan.nodes.len())?;
                            entry.insert(vec![None; count])
                        }
                    };
                    if let Some(slot) = row.get_mut(index) {
                        *slot = value;
                    }
                }
            }
            rows.extend(places);
            if grouping.descending {
                rows.reverse();
            }
        }
        let mut before: Vec<Option<Value>> = vec![None; count];
        let mut out = Vec::with_capacity(rows.len());
        for (place, mut values) in rows {
            for ((value, given), before) in values.iter_mut().zip(&given).zip(&mut before) {
                if value.is_none() {
                    *value = match grouping.fill {
                        Fill::Previous => before.clone(),
                        _ => given.clone(),
                    };
                }
                before.clone_from(value);
            }
            let of = |call: usize| values.get(call).cloned().flatten();
            out.push(Computed {
                time: time_of(place),
                cells: plan.nodes.iter().map(|n| cell(n, &of)).collect(),
            });
        }
        Ok(out)
    }
}

/// Applies a function of other series to one.
fn transformed(call: &Call, points: Points, windows: &Windows, descending: bool) -> Points {
    let Call::Transform(transform, inner) = call else {
        return points;
    };
    let points = transformed(inner, points, windows, descending);
    // A change between intervals has the times of their beginnings.
    let starts: BTreeMap<i64, i64> = points
        .iter()
        .map(|(n, _)| (windows.start(*n), *n))
        .collect();
    let there = present(points)
        .into_iter()
        .map(|(n, v)| (windows.start(n), v));
    let there: Vec<(i64, Value)> = there.collect();
    let made = transform.apply(&there, descending).into_iter();
    made.filter_map(|(time, v)| Some((*starts.get(&time)?, Some(v))))
        .collect()
}

fn present(points: Points) -> Vec<(i64, Value)> {
    let there = points.into_iter().filter_map(|(t, v)| Some((t, v?)));
    there.collect()
}

impl Grouping<'_> {
    /// The first and the last interval of an answer over these intervals; `first` is the first
    /// non-empty one.
    pub(super) fn grid(&self, windows: &Windows, first: i64) -> (i64, i64) {
        if !windows.is_divided() {
            return (0, 0);
        }
        if self.fill == Fill::None {
            return (first, first);
        }
        let (start, end) = (
            windows.range.first.as_nanos(),
            windows.range.last.as_nanos(),
        );
        if self.condition.has_start {
            return windows.numbers(start, end);
        }
        windows.numbers(windows.start(first).max(start), end)
    }
}

fn cell(node: &Node, call: &dyn Fn(usize) -> Option<Value>) -> Cell {
    value(node, call, &|_| None).into()
}
