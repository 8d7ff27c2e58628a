//! Sources of the rows of a `SELECT`: stored rows, and answers of subqueries.
//!
//! Invariants: a subquery is evaluated for one measurement at a time; rows that it passes on one by
//! one are read as the outer query needs them, other rows are buffered while that measurement is
//! processed; its columns are fields, and the tags by which it was grouped are tags, including tags
//! that only the outer query groups by, which are visible only to the grouping.

use super::Evaluator;
use super::buffered::{BufferedRows, BufferedSeries, SeriesBuffer, as_floats, wider};
use super::columns::Columns;
use super::condition::{Compiler, Condition, compile_regex};
use super::measurements::{GroupKeys, Measurement, Member, Rows};
use super::passed::{self, PassedRows};
use super::plan::{Node, plan};
use super::predicate::Predicate;
use super::scope::Scope;
use super::sources::{queries, stored};
use crate::error::Error;
use headwater::{ClosedRange, Column, FieldType, ScanChunk, StreamName};
use headwater_wire::influxql::{Dimension, Select};
use std::collections::BTreeSet;
use std::rc::Rc;

impl Evaluator<'_> {
    /// The names of the measurements of a query, sorted.
    pub(super) fn names_of(&self, select: &Select) -> Result<BTreeSet<String>, Error> {
        let mut names = BTreeSet::new();
        let stored = stored(select);
        if !stored.is_empty() {
            names.extend(self.measurement_names(stored)?);
        }
        for query in queries(select) {
            names.extend(self.names_of(query)?);
        }
        Ok(names)
    }

    /// A measurement of a query: its stored series, and the series of subqueries.
    pub(super) fn source(
        &self,
        select: &Select,
        name: &str,
        condition: &Condition,
        scope: &Scope,
    ) -> Result<Option<Measurement>, Error> {
        let mut buffer = SeriesBuffer::new(self.budget);
        let mut passed: Vec<Answered> = Vec::new();
        let mut unseen: BTreeSet<&String> = scope.keys.iter().collect();
        for query in queries(select) {
            let within = Scope {
                only: Some(name.to_owned()),
                ..scope.clone()
            };
            match self.passed(query, name, &within)? {
                Some(series) => passed.extend(series),
                None => self.select(query, Some(&within), &mut buffer)?,
            }
            for dimension in &query.group_by {
                match dimension {
                    Dimension::Time { .. } => {}
                    Dimension::Tag(key) => drop(unseen.remove(key)),
                    Dimension::All => unseen.clear(),
                    Dimension::Matching(pattern) => {
                        let regex = compile_regex(pattern)?;
                        unseen.retain(|key| !regex.is_match(key));
                    }
                }
            }
        }
        let held = buffer.series;
        let fields = fields(&held, &passed);
        let stored = stored(select);
        // Without subqueries the stored measurements have the name.
        let is_stored = stored.len() == select.sources.len()
            || !stored.is_empty() && !self.names_among(vec![name.to_owned()], stored)?.is_empty();
        let mut out = match is_stored {
            true => self.measurement(name, condition, scope.range, &fields)?,
            false => None,
        };
        if held.is_empty() && passed.is_empty() {
            return Ok(out);
        }
        let measurement = out.get_or_insert_with(|| Measurement {
            name: self.names.shown(name).to_owned(),
            fields,
            ..Measurement::default()
        });
        let mut compiler = Compiler {
            table_fields: &measurement.fields,
            read: measurement.read.clone(),
        };
        let predicate = compiler.all(&condition.rest)?;
        measurement.read = compiler.read;
        let since = scope.range.first.as_nanos();
        let known = &measurement.fields;
        let held = held
            .into_iter()
            .map(|series| answered(series, known, since));
        let answered: Vec<Answered> = held.chain(passed).collect();
        for series in answered {
            for (key, _) in series.tags.iter().filter(|(key, _)| !unseen.contains(key)) {
                measurement.tag_keys.insert(key.clone());
                measurement.answered_tags.insert(key.clone());
            }
            let member = series.member(&predicate);
            if !matches!(member.rest, Predicate::Constant(false)) {
                measurement.members.push(member);
            }
        }
        Ok(out)
    }

    /// The series of a subquery that passes on the rows of a stored measurement unchanged, or
    /// computes each row by itself; `None` for any other subquery, whose rows must be buffered.
    fn passed(
        &self,
        query: &Select,
        name: &str,
        scope: &Scope,
    ) -> Result<Option<Vec<Answered>>, Error> {
        let limits = [query.limit, query.offset, query.slimit, query.soffset];
        let is_cut = limits.iter().flatten().any(|limit| *limit > 0);
        if is_cut || queries(query).next().is_some() {
            return Ok(None);
        }
        let names = self.names_of(query)?;
        if !names.contains(name) {
            return Ok(Some(Vec::new()));
        }
        let resolved = self.resolve(query, Some(scope))?;
        if resolved.condition.range.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let united = self.united(query, &names)?;
        let measurement = self.source(query, name, &resolved.condition, &resolved.own)?;
        let Some(measurement) = measurement else {
            return Ok(Some(Vec::new()));
        };
        let own = Columns::of(&measurement);
        let columns = united.as_deref().unwrap_or(&own);
        let keys = GroupKeys::new(&resolved.dimensions, &columns.tag_keys)?;
        let every = resolved.own.every;
        let Some(plan) = plan(query, &measurement, columns, &keys, every)? else {
            return Ok(Some(Vec::new()));
        };
        if !plan.calls.is_empty() {
            return Ok(None);
        }
        let nothing = |node: &Node| matches!(node, Node::Absent);
        let mut fields = Vec::new();
        for (name, node) in plan.names.iter().zip(&plan.nodes) {
            match passed::type_of(&plan, node) {
                Some(field_type) => fields.push((name.clone(), field_type)),
                None if nothing(node) => {}
                None => return Ok(None),
            }
        }
        let plan = Rc::new(plan);
        let series = measurement.members.into_iter().map(|stored| Answered {
            name: measurement.name.clone(),
            tags: keys
                .0
                .iter()
                .cloned()
                .zip(keys.of(&stored.stream))
                .collect(),
            extent: stored.extent.intersect(&resolved.condition.range),
            fields: fields.clone(),
            rows: Rows::Passed(Box::new(PassedRows {
                stored: Box::new(stored),
                plan: Rc::clone(&plan),
                range: resolved.condition.range,
            })),
        });
        Ok(Some(series.collect()))
    }
}

/// A series of a subquery's answer.
struct Answered {
    name: String,
    tags: Vec<(String, String)>,
    extent: ClosedRange,
    /// Fields, if known without reading the rows.
    fields: Vec<(String, FieldType)>,
    rows: Rows,
}

impl Answered {
    fn member(self, predicate: &Predicate) -> Member {
        let (tags, empty): (Vec<_>, Vec<_>) = self
            .tags
            .into_iter()
            .partition(|(_, value)| !value.is_empty());
        let stream = StreamName::new(self.name, tags);
        Member {
            rest: predicate.on_stream(&stream),
            stream,
            extent: self.extent,
            rows: self.rows,
            empty_tags: empty.into_iter().map(|(key, _)| key).collect(),
        }
    }
}

/// The columns of series as fields. Numbers of several types become floats; among other types the
/// first one is used.
fn fields(held: &[BufferedSeries], passed: &[Answered]) -> Vec<(String, FieldType)> {
    let mut out: Vec<(String, FieldType)> = Vec::new();
    let mut add = |name: &String, found: FieldType| match out.iter_mut().find(|(n, _)| n == name) {
        Some((_, known)) => *known = wider(*known, found),
        None => out.push((name.clone(), found)),
    };
    for (name, column) in held.iter().flat_map(|series| &series.columns) {
        if let Some(column) = column {
            add(name, column.field_type());
        }
    }
    // Passed series of one subquery have the same fields; several subqueries may differ.
    let mut last: Option<&[(String, FieldType)]> = None;
    for series in passed {
        if last != Some(series.fields.as_slice()) {
            series.fields.iter().for_each(|(name, t)| add(name, *t));
            last = Some(&series.fields);
        }
    }
    out
}

/// A buffered series, with its columns converted to these fields.
fn answered(mut series: BufferedSeries, fields: &[(String, FieldType)], since: i64) -> Answered {
    series.sort();
    let (mut names, mut columns): (Vec<String>, Vec<Column>) = (Vec::new(), Vec::new());
    for (name, column) in series.columns {
        let known = fields.iter().find(|(n, _)| *n == name);
        // Among columns of one name the first one is used.
        if let (Some(column), Some((_, wanted)), false) = (column, known, names.contains(&name)) {
            let is_other = column.field_type() != *wanted;
            let mut column = match is_other && *wanted == FieldType::F64 {
                true => as_floats(&column),
                false if is_other => Column::absent(*wanted, series.times.len()),
                false => column,
            };
            column.push_absent(series.times.len().saturating_sub(column.len()));
            let is_whole = column.len() == series.times.len();
            assert!(is_whole, "a column has a value or none for each row");
            names.push(name);
            columns.push(column);
        }
    }
    let extent = match (series.times.first(), series.times.last()) {
        (Some(first), Some(last)) => ClosedRange::nanos((*first).max(since), (*last).max(since)),
        _ => ClosedRange::EMPTY,
    };
    let times = series.times;
    Answered {
        name: series.name,
        tags: series.tags,
        extent,
        fields: Vec::new(),
        rows: Rows::Buffered(BufferedRows {
            names,
            rows: ScanChunk { times, columns },
            since,
        }),
    }
}
