//! `SELECT`: its measurements one after another, each in its groups.
//!
//! Invariant: with newest rows first, measurements and groups are in descending order too.

use super::columns::Columns;
use super::condition::{Condition, time_zone};
use super::measurements::{GroupKeys, Measurement, Member, count};
use super::plan::{Every, Plan, plan, reach};
use super::raw::RowRequest;
use super::reading::Grouping;
use super::scope::Scope;
use super::taker::Taker;
use super::times::check_times;
use super::{Cell, Evaluator, Series, cells_bytes, invalid};
use crate::error::Error;
use crate::windows::Windows;
use headwater::{ClosedRange, Timestamp};
use headwater_wire::influxql::{Dimension, Fill, Select};
use headwater_wire::zone::Zone;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};

/// Offset and limit of the rows of a series.
#[derive(Clone, Copy)]
struct Limits {
    offset: usize,
    limit: usize,
}

impl Limits {
    fn new(offset: Option<u64>, limit: Option<u64>, what: &str) -> Result<Limits, Error> {
        Ok(Limits {
            offset: count(offset, what)?.unwrap_or(0),
            // 0 means no limit, as in InfluxDB.
            limit: match count(limit, what)? {
                None | Some(0) => usize::MAX,
                Some(limit) => limit,
            },
        })
    }

    fn row_limit(self) -> Option<usize> {
        (self.limit < usize::MAX).then(|| self.offset.saturating_add(self.limit))
    }
}

/// Number of series that were skipped and taken.
struct Counted {
    passed: usize,
    selected: usize,
    limits: Limits,
}

impl Counted {
    /// Counts one more series with rows, whichever of these are selected; returns whether it is
    /// selected.
    fn select_next(&mut self) -> bool {
        self.passed += 1;
        let is_wanted = self.passed > self.limits.offset;
        if is_wanted {
            self.selected += 1;
        }
        is_wanted
    }
}

/// The parts of a statement that do not depend on its measurements, resolved.
pub(super) struct ResolvedSelect {
    pub(super) condition: Condition,
    pub(super) windows: Windows,
    fill: Fill,
    /// The dimensions, including those of the outer queries.
    pub(super) dimensions: Vec<Dimension>,
    /// The scope for its subqueries.
    pub(super) own: Scope,
}

impl ResolvedSelect {
    fn grouping<'a>(&'a self, plan: &'a Plan) -> Grouping<'a> {
        Grouping {
            plan,
            condition: &self.condition,
            windows: &self.windows,
            fill: self.fill,
            descending: self.own.descending,
        }
    }
}

impl Evaluator<'_> {
    /// Passes the series of an answer to a taker; `scope` is the restriction by the outer query.
    pub(super) fn select(
        &self,
        select: &Select,
        scope: Option<&Scope>,
        taker: &mut dyn Taker,
    ) -> Result<(), Error> {
        let resolved = self.resolve(select, scope)?;
        let rows = Limits::new(select.offset, select.limit, "LIMIT or OFFSET")?;
        let mut counted = Counted {
            passed: 0,
            selected: 0,
            limits: Limits::new(select.soffset, select.slimit, "SLIMIT or SOFFSET")?,
        };
        if resolved.condition.range.is_empty() {
            return Ok(());
        }
        let all = self.names_of(select)?;
        let united = self.united(select, &all)?;
        for name in names_in(all, scope, resolved.own.descending) {
            let before = self.budget.bytes_in_use();
            let Some(measurement) =
                self.source(select, &name, &resolved.condition, &resolved.own)?
            else {
                continue;
            };
            // Memory in use while the measurement is processed.
            let held = self.budget.bytes_in_use().saturating_sub(before);
            let own_columns = Columns::of(&measurement);
            let columns = united.as_deref().unwrap_or(&own_columns);
            let keys = GroupKeys::new(&resolved.dimensions, &columns.tag_keys)?;
            let Some(plan) = plan(select, &measurement, columns, &keys, resolved.own.every)? else {
                continue;
            };
            let grouping = resolved.grouping(&plan);
            for (values, members) in groups(&measurement, &keys, resolved.own.descending) {
                let head = Head {
                    name: &measurement.name,
                    keys: &keys,
                    values,
                    limits: rows,
                };
                self.group(&grouping, &members, &head, &mut counted, taker)?;
                if counted.selected >= counted.limits.limit {
                    return Ok(());
                }
            }
            self.budget.give_bytes(held);
        }
        Ok(())
    }

    /// Resolves the parts of a statement that do not depend on a measurement.
    pub(super) fn resolve(
        &self,
        select: &Select,
        scope: Option<&Scope>,
    ) -> Result<ResolvedSelect, Error> {
        check_times(select)?;
        let own_zone = select.time_zone.as_deref().map(time_zone).transpose()?;
        let zone = own_zone.or_else(|| scope?.zone.clone());
        let every = self.every(select, scope)?;
        let condition = self.condition(select, scope, every, zone.as_ref())?;
        let fill = match (select.fill, scope) {
            // Empty rows are not visible in the outer query.
            (Fill::Null, Some(_)) => Fill::None,
            (fill, _) => fill,
        };
        let descending = scope.map_or(select.descending, |scope| scope.descending);
        let mut dimensions = select.group_by.clone();
        let inherited = scope.into_iter().flat_map(|scope| &scope.keys);
        dimensions.extend(inherited.cloned().map(Dimension::Tag));
        let windows = windows(condition.range, every, zone.as_ref());
        // The range that includes the intervals that others are compared with.
        let looked_at = match descending {
            _ if condition.range.is_empty() => windows.clone(),
            true => windows.ending_later(reach(select)),
            false => windows.beginning_earlier(reach(select)),
        };
        let own = Scope {
            range: looked_at.range,
            has_start: condition.has_start,
            has_end: condition.has_end,
            keys: named(&dimensions),
            every,
            descending,
            zone,
            only: None,
        };
        Ok(ResolvedSelect {
            condition,
            windows,
            fill,
            dimensions,
            own,
        })
    }

    /// The condition on the rows, including those of the outer query.
    fn condition(
        &self,
        select: &Select,
        scope: Option<&Scope>,
        every: Option<Every>,
        zone: Option<&TimeZone>,
    ) -> Result<Condition, Error> {
        let mut condition = Condition::new(select.condition.as_ref(), self.now, zone)?;
        if every.is_some() && !condition.has_end {
            let until_now = ClosedRange::new(Timestamp::MIN, self.now);
            condition.range = condition.range.intersect(&until_now);
        }
        if let Some(scope) = scope {
            condition.narrow(scope.range, scope.has_start, scope.has_end);
        }
        Ok(condition)
    }

    fn every(&self, select: &Select, scope: Option<&Scope>) -> Result<Option<Every>, Error> {
        if scope.is_some_and(|scope| select.descending && !scope.descending) {
            return Err(invalid(
                "subqueries must be ordered in the same direction as the query itself",
            ));
        }
        let own = select.group_by.iter().find_map(|d| match d {
            Dimension::Time {
                every_ns,
                offset_ns,
                from_now,
            } => Some(Every {
                width_ns: *every_ns,
                offset_ns: match from_now {
                    true => self.now.as_nanos().rem_euclid(*every_ns),
                    false => *offset_ns,
                },
                is_inherited: false,
            }),
            _ => None,
        });
        Ok(own.or_else(|| {
            let every = scope?.every?;
            Some(Every {
                is_inherited: true,
                ..every
            })
        }))
    }

    /// The rows of a group, passed to the taker.
    fn group(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
        head: &Head<'_>,
        counted: &mut Counted,
        taker: &mut dyn Taker,
    ) -> Result<(), Error> {
        let (plan, limits) = (grouping.plan, head.limits);
        let before = self.budget.bytes_in_use();
        let hands_on = taker.hands_on();
        let mut wanted = RowRequest {
            range: grouping.condition.range,
            descending: grouping.descending,
            limit: limits.row_limit(),
        };
        if hands_on && plan.calls.is_empty() && limits.row_limit().is_none_or(|k| k > FEW_ROWS) {
            wanted.limit = None;
            let (mut offset, mut left) = (limits.offset, limits.limit);
            let (mut is_counted, mut goes_on) = (false, false);
            return self.in_stretches(plan, members, wanted, &mut |rows| {
                // A series that has rows counts, whichever of them are selected.
                if !is_counted && !rows.is_empty() {
                    is_counted = true;
                    if !counted.select_next() {
                        return Ok(false);
                    }
                }
                let passed = offset.min(rows.len());
                offset -= passed;
                let rows: Vec<_> = rows.into_iter().skip(passed).take(left).collect();
                if rows.is_empty() {
                    return Ok(true);
                }
                left -= rows.len();
                let cells = flat(plan, rows.into_iter().map(|r| (r.time, r.cells)), ALL);
                taker.take(head.series(plan, cells), goes_on)?;
                goes_on = true;
                Ok(left > 0)
            });
        }
        let (has_rows, cells) = if plan.calls.is_empty() {
            let rows = self.raw(plan, members, wanted)?;
            let has_rows = !rows.is_empty();
            let rows = rows.into_iter().map(|r| (r.time, r.cells));
            (has_rows, flat(plan, rows, limits))
        } else {
            let rows = self.computed(grouping, members)?;
            let has_rows = !rows.is_empty();
            let rows = rows.into_iter().map(|r| (r.time, r.cells));
            (has_rows, flat(plan, rows, limits))
        };
        // The inputs of the computation are released.
        let is_told = has_rows && counted.select_next() && !cells.is_empty();
        let is_kept = is_told && !hands_on;
        self.budget
            .keep_only(before, if is_kept { cells_bytes(&cells) } else { 0 })?;
        if is_told {
            taker.take(head.series(plan, cells), false)?;
        }
        Ok(())
    }
}

/// The names of the measurements of a statement, in the order of the answer.
pub(super) fn names_in(
    names: BTreeSet<String>,
    scope: Option<&Scope>,
    descending: bool,
) -> Vec<String> {
    let wanted = scope.and_then(|scope| scope.only.as_ref());
    let names = names.into_iter();
    let mut names: Vec<String> = names.filter(|n| wanted.is_none_or(|w| w == n)).collect();
    if descending {
        names.reverse();
    }
    names
}

/// The tags by which rows are grouped.
fn named(dimensions: &[Dimension]) -> Vec<String> {
    let tags = dimensions.iter().filter_map(|dimension| match dimension {
        Dimension::Tag(key) => Some(key.clone()),
        _ => None,
    });
    tags.collect()
}

/// Up to this many rows are read at once.
const FEW_ROWS: usize = 10_000;

const ALL: Limits = Limits {
    offset: 0,
    limit: usize::MAX,
};

/// The name of a group, and the selected rows of it.
struct Head<'a> {
    name: &'a str,
    keys: &'a GroupKeys,
    values: Vec<String>,
    limits: Limits,
}

impl Head<'_> {
    fn series(&self, plan: &Plan, cells: Vec<Cell>) -> Series {
        let time = plan.time_name.clone();
        let mut columns = vec![time.unwrap_or_else(|| "time".to_owned())];
        columns.extend(plan.names.iter().cloned());
        Series {
            name: self.name.to_owned(),
            tags: self
                .keys
                .0
                .iter()
                .cloned()
                .zip(self.values.clone())
                .collect(),
            columns,
            cells,
            tag_columns: plan.tag_columns.clone(),
        }
    }
}

fn flat(
    plan: &Plan,
    rows: impl ExactSizeIterator<Item = (i64, Vec<Cell>)>,
    limits: Limits,
) -> Vec<Cell> {
    let count = rows.len().min(limits.limit);
    let mut cells = Vec::with_capacity(count.saturating_mul(plan.nodes.len() + 1));
    for (time, row) in rows.skip(limits.offset).take(limits.limit) {
        cells.push(Cell::Time(time));
        cells.extend(row);
    }
    cells
}

/// The members of a measurement by the values of the grouping tags, in the order of the answer.
pub(super) fn groups<'a>(
    measurement: &'a Measurement,
    keys: &GroupKeys,
    descending: bool,
) -> Vec<(Vec<String>, Vec<&'a Member>)> {
    let mut groups: BTreeMap<Vec<String>, Vec<&Member>> = BTreeMap::new();
    for member in &measurement.members {
        groups
            .entry(keys.of(&member.stream))
            .or_default()
            .push(member);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    if descending {
        groups.reverse();
    }
    groups
}

fn windows(range: ClosedRange, every: Option<Every>, zone: Option<&TimeZone>) -> Windows {
    match every {
        None => Windows::whole(range),
        Some(every) => {
            let name = zone.and_then(TimeZone::iana_name);
            let zone = name.and_then(|name| Zone::read(name).ok());
            Windows::every(range, every.width_ns, every.offset_ns, zone)
        }
    }
}

/// The zone in which times are written.
pub(super) fn written_in(select: &Select) -> Option<TimeZone> {
    select
        .time_zone
        .as_deref()
        .and_then(|name| time_zone(name).ok())
}
