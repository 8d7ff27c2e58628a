//! Where the rows of a `SELECT` come from: what is stored, and what questions within it answer.
//!
//! Invariants: what a question within another one answers is asked of one measurement at a time,
//! and held while that measurement is worked on; its columns are fields, and the tags it was
//! grouped by are tags, also those that only the question around it groups by, which nothing but
//! the grouping sees.

use super::arithmetic::number;
use super::condition::{Compiler, Condition, compile_regex};
use super::held::HeldRows;
use super::measurements::{Measurement, Member};
use super::predicate::Predicate;
use super::scope::Scope;
use super::sources::{queries, stored};
use super::{Asker, Cell, Series};
use crate::error::Error;
use headwater::{ClosedRange, Column, FieldType, ScanChunk, StreamName, ValueRef};
use headwater_wire::influxql::{Dimension, Select};
use std::collections::BTreeSet;

impl Asker<'_> {
    /// The names of the measurements that a question is about, in order.
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

    /// A measurement of a question: its stored series, and those that questions within it answer.
    pub(super) fn source(
        &self,
        select: &Select,
        name: &str,
        condition: &Condition,
        scope: &Scope,
    ) -> Result<Option<Measurement>, Error> {
        let mut held: Vec<Series> = Vec::new();
        let mut unseen: BTreeSet<&String> = scope.keys.iter().collect();
        for query in queries(select) {
            let within = Scope {
                only: Some(name.to_owned()),
                ..scope.clone()
            };
            self.select(query, Some(&within), &mut held)?;
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
        let fields = fields(&held);
        let stored = stored(select);
        // Without questions the name comes from these.
        let is_stored = stored.len() == select.sources.len()
            || !stored.is_empty() && !self.names_among(vec![name.to_owned()], stored)?.is_empty();
        let mut out = match is_stored {
            true => self.measurement(name, condition, scope.range, &fields)?,
            false => None,
        };
        if held.is_empty() {
            return Ok(out);
        }
        let measurement = out.get_or_insert_with(|| Measurement {
            name: self.names.shown(name).to_owned(),
            fields,
            ..Measurement::default()
        });
        let mut compiler = Compiler {
            known: &measurement.fields,
            read: measurement.read.clone(),
        };
        let predicate = compiler.all(&condition.rest)?;
        measurement.read = compiler.read;
        for series in held {
            let tags = series.tags.iter();
            let seen = tags.filter(|(key, _)| !unseen.contains(key));
            for (key, _) in seen {
                measurement.tag_keys.insert(key.clone());
                measurement.answered_tags.insert(key.clone());
            }
            let since = scope.range.first.as_nanos();
            let member = member(series, &measurement.fields, &predicate, since);
            let is_let_in = !matches!(member.rest, Predicate::Constant(false));
            if is_let_in {
                measurement.members.push(member);
            }
        }
        Ok(out)
    }
}

/// The columns of series as fields. Numbers of several types are floats; of other types the first
/// one counts.
fn fields(held: &[Series]) -> Vec<(String, FieldType)> {
    let mut out: Vec<(String, FieldType)> = Vec::new();
    for series in held {
        let width = series.columns.len().max(1);
        for (at, name) in series.columns.iter().enumerate().skip(1) {
            let cells = series.cells.iter().skip(at).step_by(width);
            let mut types = cells.filter_map(|cell| match cell {
                Cell::Value(value) => Some(value.as_ref().field_type()),
                Cell::Null | Cell::Time(_) => None,
            });
            let wide = |a: FieldType, b: FieldType| match a != b && is_number(a) && is_number(b) {
                true => FieldType::F64,
                false => a,
            };
            let found = types.next().map(|first| types.fold(first, wide));
            match (out.iter_mut().find(|(n, _)| n == name), found) {
                (_, None) => {}
                (Some((_, known)), Some(found)) => *known = wide(*known, found),
                (None, Some(found)) => out.push((name.clone(), found)),
            }
        }
    }
    out
}

fn is_number(field_type: FieldType) -> bool {
    matches!(field_type, FieldType::F64 | FieldType::I64 | FieldType::U64)
}

fn member(
    series: Series,
    fields: &[(String, FieldType)],
    predicate: &Predicate,
    since: i64,
) -> Member {
    let width = series.columns.len().max(1);
    let time = |row: &&[Cell]| match row.first() {
        Some(Cell::Time(time)) => *time,
        _ => 0,
    };
    let mut rows: Vec<&[Cell]> = series.cells.chunks(width).collect();
    rows.sort_by_key(time);
    let times: Vec<i64> = rows.iter().map(time).collect();
    let mut names: Vec<String> = Vec::with_capacity(width);
    let mut columns = Vec::with_capacity(width);
    for (at, name) in series.columns.iter().enumerate().skip(1) {
        let field = fields.iter().find(|(n, _)| n == name);
        // Of columns of one name the first one counts.
        if let Some((_, field_type)) = field.filter(|_| !names.contains(name)) {
            let mut column = Column::with_capacity(*field_type, rows.len());
            for row in &rows {
                let value = match row.get(at) {
                    Some(Cell::Value(value)) => value.as_ref(),
                    _ => {
                        column.push_absent(1);
                        continue;
                    }
                };
                let value = match (value, field_type) {
                    (ValueRef::I64(_) | ValueRef::U64(_), FieldType::F64) => {
                        number(value).map_or(value, ValueRef::F64)
                    }
                    (value, _) => value,
                };
                if !column.push(value) {
                    column.push_absent(1);
                }
            }
            names.push(name.clone());
            columns.push(column);
        }
    }
    let extent = match (times.first(), times.last()) {
        (Some(first), Some(last)) => ClosedRange::nanos((*first).max(since), (*last).max(since)),
        _ => ClosedRange::EMPTY,
    };
    let (tags, empty): (Vec<_>, Vec<_>) = series
        .tags
        .into_iter()
        .partition(|(_, value)| !value.is_empty());
    let stream = StreamName::new(series.name, tags.clone());
    Member {
        rest: predicate.on_stream(&stream),
        stream,
        extent,
        held: Some(HeldRows {
            names,
            rows: ScanChunk { times, columns },
            tags,
            empty_tags: empty.into_iter().map(|(key, _)| key).collect(),
            since,
        }),
    }
}
