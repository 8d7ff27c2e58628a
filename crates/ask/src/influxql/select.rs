//! `SELECT`: its measurements one after another, each in its groups.

use super::aggregate::Grouping;
use super::condition::{Condition, time_zone};
use super::measurements::{GroupKeys, Measurement, Member, count};
use super::plan::{Plan, plan};
use super::raw::Wanted;
use super::{Asker, Cell, Series};
use crate::error::Error;
use crate::windows::Windows;
use headwater::{ClosedRange, Timestamp};
use headwater_wire::influxql::{Dimension, Select};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;

/// Rows of a series that are passed over, and taken.
#[derive(Clone, Copy)]
struct Limits {
    offset: usize,
    limit: usize,
}

impl Limits {
    fn new(offset: Option<u64>, limit: Option<u64>, what: &str) -> Result<Limits, Error> {
        Ok(Limits {
            offset: count(offset, what)?.unwrap_or(0),
            // 0 is no limit, as in InfluxDB.
            limit: match count(limit, what)? {
                None | Some(0) => usize::MAX,
                Some(limit) => limit,
            },
        })
    }

    fn keep(self) -> Option<usize> {
        (self.limit < usize::MAX).then(|| self.offset.saturating_add(self.limit))
    }
}

impl Asker<'_> {
    pub(super) fn select(&self, select: &Select) -> Result<Vec<Series>, Error> {
        let zone = select.time_zone.as_deref().map(time_zone).transpose()?;
        let mut condition = Condition::new(select.condition.as_ref(), self.now, zone.as_ref())?;
        let every = select.group_by.iter().find_map(|d| match d {
            Dimension::Time {
                every_ns,
                offset_ns,
            } => Some((*every_ns, *offset_ns)),
            _ => None,
        });
        if every.is_some() && !condition.has_end {
            let until_now = ClosedRange::new(Timestamp::MIN, self.now);
            condition.range = condition.range.intersect(&until_now);
        }
        let rows = Limits::new(select.offset, select.limit, "LIMIT or OFFSET")?;
        let series = Limits::new(select.soffset, select.slimit, "SLIMIT or SOFFSET")?;
        let mut out = Vec::new();
        let mut passed = 0;
        if condition.range.is_empty() {
            return Ok(out);
        }
        for name in self.measurement_names(&select.sources)? {
            let Some(measurement) = self.measurement(&name, &condition)? else {
                continue;
            };
            let keys = GroupKeys::new(&select.group_by, &measurement.tag_keys)?;
            let every_ns = every.map(|(every_ns, _)| every_ns);
            let Some(plan) = plan(select, &measurement, &keys, every_ns)? else {
                continue;
            };
            let windows = match every {
                None => Windows::whole(condition.range),
                Some((every_ns, offset_ns)) => {
                    Windows::every(condition.range, every_ns, offset_ns, zone.clone())
                }
            };
            let grouping = Grouping {
                plan: &plan,
                condition: &condition,
                windows: &windows,
                fill: select.fill,
            };
            for (values, members) in groups(&measurement, &keys) {
                let before = self.budget.values_left();
                let cells = self.group(&grouping, &members, select.descending, rows)?;
                if !cells.is_empty() {
                    passed += 1;
                }
                // What it was computed from is not kept.
                let is_told = !cells.is_empty() && passed > series.offset;
                let kept = if is_told { cells.len() } else { 0 };
                self.budget.keep_only(before, kept)?;
                if !is_told {
                    continue;
                }
                let mut columns = vec!["time".to_owned()];
                columns.extend(plan.names.iter().cloned());
                out.push(Series {
                    name: name.clone(),
                    tags: keys.0.iter().cloned().zip(values).collect(),
                    columns,
                    cells,
                });
                if out.len() >= series.limit {
                    return Ok(out);
                }
            }
        }
        Ok(out)
    }

    /// The cells of a group's rows, times first.
    fn group(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
        descending: bool,
        limits: Limits,
    ) -> Result<Vec<Cell>, Error> {
        let Grouping {
            plan, condition, ..
        } = grouping;
        if plan.calls.is_empty() {
            let wanted = Wanted {
                range: condition.range,
                descending,
                keep: limits.keep(),
            };
            let rows = self.raw(plan, members, wanted)?;
            return Ok(flat(
                plan,
                rows.into_iter().map(|r| (r.time, r.cells)),
                limits,
            ));
        }
        let mut rows = self.computed(grouping, members)?;
        if descending {
            rows.reverse();
        }
        Ok(flat(
            plan,
            rows.into_iter().map(|r| (r.time, r.cells)),
            limits,
        ))
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

/// The members of a measurement by the values of the tags they are put together by.
fn groups<'a>(
    measurement: &'a Measurement,
    keys: &GroupKeys,
) -> BTreeMap<Vec<String>, Vec<&'a Member>> {
    let mut groups: BTreeMap<Vec<String>, Vec<&Member>> = BTreeMap::new();
    for member in &measurement.members {
        groups
            .entry(keys.of(&member.stream))
            .or_default()
            .push(member);
    }
    groups
}

/// The zone in which times are written.
pub(super) fn written_in(select: &Select) -> Option<TimeZone> {
    select
        .time_zone
        .as_deref()
        .and_then(|name| time_zone(name).ok())
}
