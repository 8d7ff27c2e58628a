//! `EXPLAIN`: the measurements of a statement, the parts that the pyramid answers, and the reads.
//!
//! Invariants: without `ANALYZE` no row is read and no value computed, not even of subqueries; data
//! are never written; only data that the client may read are reported.

use super::columns::Columns;
use super::functions::Need;
use super::measurements::{GroupKeys, Measurement, Member};
use super::plan::{Call, Plan, plan};
use super::scope::Scope;
use super::select::{ResolvedSelect, groups, names_in};
use super::sources::{all_sources, queries, stored};
use super::taker::Taker;
use super::{Answer, Cell, Evaluator, Series};
use crate::error::Error;
use headwater::{ClosedRange, Timestamp};
use headwater_wire::influxql::Select;
use headwater_wire::instant::format_instant;
use std::collections::BTreeSet;
use std::time::Instant;

/// Maximum number of measurements that are reported one by one.
const LISTED_MAX: usize = 100;

/// Counts the series, rows and values of an answer.
#[derive(Default)]
struct Counter {
    series: usize,
    rows: usize,
    values: usize,
}

impl Taker for Counter {
    fn take(&mut self, series: Series, goes_on: bool) -> Result<(), Error> {
        let width = series.columns.len().max(1);
        self.series += usize::from(!goes_on);
        self.rows += series.cells.len() / width;
        let there = series.cells.iter().filter(|c| matches!(c, Cell::Value(_)));
        self.values += there.count();
        Ok(())
    }

    fn hands_on(&self) -> bool {
        true
    }
}

/// Lines of a plan.
struct Lines(Vec<String>);

impl Lines {
    fn push(&mut self, depth: usize, line: impl Into<String>) {
        self.0
            .push(format!("{}{}", "  ".repeat(depth), line.into()));
    }
}

impl Evaluator<'_> {
    /// The plan of a statement; with `is_analyzed` also its measured work.
    pub(super) fn explain(&self, select: &Select, is_analyzed: bool) -> Result<Answer, Error> {
        self.must_read()?;
        self.check_sources(&all_sources(select))?;
        let mut lines = Lines(Vec::new());
        if let Some(target) = &select.into {
            lines.push(0, format!("writes into {target}; EXPLAIN does not"));
        }
        self.explained(select, None, 0, &mut lines)?;
        if is_analyzed {
            let begun = Instant::now();
            let mut counter = Counter::default();
            self.select(select, None, &mut counter)?;
            let took = begun.elapsed().as_secs_f64() * 1e3;
            let Counter {
                series,
                rows,
                values,
            } = counter;
            lines.push(
                0,
                format!(
                    "answered: {rows} rows of {series} series, {values} values, in {took:.3} ms"
                ),
            );
        }
        let cells = lines.0.into_iter().map(Cell::text);
        Ok(Answer {
            series: Some(vec![Series {
                columns: vec!["QUERY PLAN".to_owned()],
                cells: cells.collect(),
                ..Series::default()
            }]),
            ..Answer::default()
        })
    }

    fn explained(
        &self,
        select: &Select,
        scope: Option<&Scope>,
        depth: usize,
        lines: &mut Lines,
    ) -> Result<(), Error> {
        let resolved = self.resolve(select, scope)?;
        lines.push(depth, select.to_string());
        let depth = depth + 1;
        lines.push(
            depth,
            format!("range: {}", range_text(&resolved.condition.range)),
        );
        if let Some(every) = resolved.own.every {
            let width = jiff::SignedDuration::from_nanos(every.width_ns);
            lines.push(depth, format!("intervals: of {width:#} each"));
        }
        if resolved.condition.range.is_empty() {
            lines.push(depth, "nothing is read: the range is empty");
            return Ok(());
        }
        let names = self.names_of(select)?;
        let united = self.united(select, &names)?;
        let names = names_in(names, scope, resolved.own.descending);
        if names.is_empty() {
            lines.push(depth, "nothing is read: the measurement does not exist");
        }
        let more = names.len().saturating_sub(LISTED_MAX);
        let known: BTreeSet<String> = match stored(select) {
            sources if sources.is_empty() => BTreeSet::new(),
            sources => self.measurement_names(sources)?.into_iter().collect(),
        };
        for name in names.into_iter().take(LISTED_MAX) {
            if known.contains(&name) {
                self.measured(
                    select,
                    &name,
                    &resolved,
                    united.as_deref(),
                    (depth, &mut *lines),
                )?;
            }
        }
        if more > 0 {
            lines.push(depth, format!("and {more} more measurements"));
        }
        for query in queries(select) {
            lines.push(depth, "rows of the subquery, in memory or read on demand:");
            self.explained(query, Some(&resolved.own), depth + 1, lines)?;
        }
        Ok(())
    }

    /// The reads of one stored measurement.
    fn measured(
        &self,
        select: &Select,
        name: &str,
        resolved: &ResolvedSelect,
        united: Option<&Columns>,
        (depth, lines): (usize, &mut Lines),
    ) -> Result<(), Error> {
        let range = resolved.own.range;
        let Some(measurement) = self.measurement(name, &resolved.condition, range, &[])? else {
            return Ok(());
        };
        let own = Columns::of(&measurement);
        let columns = united.unwrap_or(&own);
        let keys = GroupKeys::new(&resolved.dimensions, &columns.tag_keys)?;
        let Some(plan) = plan(select, &measurement, columns, &keys, resolved.own.every)? else {
            let told = format!(
                "measurement {:?}: none of the fields exists",
                measurement.name
            );
            lines.push(depth, told);
            return Ok(());
        };
        let count = groups(&measurement, &keys, false).len();
        let by = match keys.0.is_empty() {
            true => String::new(),
            false => format!(" by {}", keys.0.join(", ")),
        };
        lines.push(
            depth,
            format!(
                "measurement {:?}: {} streams with rows in the range, {count} series{by}",
                measurement.name,
                measurement.members.len(),
            ),
        );
        let fields = plan.read.iter().map(|field| {
            let field_type = super::arithmetic::type_name(field.field_type());
            format!("{} ({field_type})", field.name)
        });
        let fields = Vec::from_iter(fields).join(", ");
        lines.push(depth + 1, format!("fields: {fields}"));
        if let Some(extent) = extent(&measurement, &range) {
            lines.push(depth + 1, format!("events: {}", range_text(&extent)));
        }
        for line in reads(&plan, &measurement.members, resolved.windows.is_divided()) {
            lines.push(depth + 1, line);
        }
        Ok(())
    }
}

/// The range in which the streams to read have events.
fn extent(measurement: &Measurement, range: &ClosedRange) -> Option<ClosedRange> {
    let members = measurement.members.iter();
    let there = members
        .map(|m| m.extent.intersect(range))
        .filter(|r| !r.is_empty());
    there.reduce(|a, b| ClosedRange::new(a.first.min(b.first), a.last.max(b.last)))
}

/// The reads of the streams, and their reasons.
fn reads(plan: &Plan, members: &[Member], is_divided: bool) -> Vec<String> {
    if members.is_empty() {
        return vec!["reads: nothing".to_owned()];
    }
    if plan.calls.is_empty() {
        return vec!["reads: the rows, as they are".to_owned()];
    }
    let of_rows = |call: &Call| call.function().is_none();
    if plan.chooses_rows || plan.calls.iter().all(of_rows) {
        return vec![
            "reads: every row of the range, of which some are selected or compared".to_owned(),
        ];
    }
    let stored = members.iter().filter(|m| m.is_as_stored()).count();
    let calls = plan.calls.iter();
    let mut out: Vec<String> = calls
        .filter_map(|call| of_call(plan, call, stored > 0, is_divided))
        .collect();
    if stored > 0 && stored < members.len() {
        let others = members.len() - stored;
        out.push(format!(
            "rows of {others} streams, on which the condition depends"
        ));
    }
    out
}

/// The reads of a function, and their reasons; `is_known`: the pyramid has the rows of some stream.
fn of_call(plan: &Plan, call: &Call, is_known: bool, is_divided: bool) -> Option<String> {
    let (function, place) = call.function()?;
    let field = plan.read.get(place)?;
    let is_cast = field.is_cast() || plan.reads_text(place) && !function.accepts_any_type();
    let told = match function.need() {
        Need::Values => "every row, since it needs each value",
        _ if is_cast => "every row, since values are read as another type",
        Need::Aggregate | Need::Ends if !is_known => {
            "every row, since the condition is about more than tags and one range of time"
        }
        Need::Ends if is_divided => "rows at the ends of intervals",
        Need::Ends => "the first or last rows, found by the pyramid",
        Need::Aggregate => "answered by the pyramid, without rows",
    };
    Some(format!("{}({}): {told}", function.name(), field.name))
}

fn range_text(range: &ClosedRange) -> String {
    if range.is_empty() {
        return "empty".to_owned();
    }
    match (range.first == Timestamp::MIN, range.last == Timestamp::MAX) {
        (true, true) => "all time".to_owned(),
        (true, false) => format!("up to {}", format_instant(range.last)),
        (false, true) => format!("from {}", format_instant(range.first)),
        (false, false) => format!(
            "{} to {}",
            format_instant(range.first),
            format_instant(range.last)
        ),
    }
}
