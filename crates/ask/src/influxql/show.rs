//! `SHOW`: lists names, as far as the client may read them.
//!
//! Invariant: a tag, a value or a series is listed only if a readable stream has it; a field, only
//! if the client may know of it ([`crate::Access::typed_fields`]).

use super::arithmetic::type_name;
use super::condition::{Condition, compile_regex};
use super::measurements::{Measurement, Member, count};
use super::{Cell, Evaluator, POLICY, Series, invalid};
use crate::error::Error;
use crate::streams;
use headwater_wire::influxql::{Expression, KeyFilter, Operator, Show, ShowKind};
use regex::Regex;
use std::collections::BTreeSet;

enum Keys {
    All,
    Some(Vec<String>),
    Not(String),
    Matching(Regex, bool),
}

impl Keys {
    fn new(filter: Option<&KeyFilter>) -> Result<Keys, Error> {
        Ok(match filter {
            None => Keys::All,
            Some(KeyFilter::Equal(key)) => Keys::Some(vec![key.clone()]),
            Some(KeyFilter::In(keys)) => Keys::Some(keys.clone()),
            Some(KeyFilter::NotEqual(key)) => Keys::Not(key.clone()),
            Some(KeyFilter::Matching(p)) => Keys::Matching(compile_regex(p)?, true),
            Some(KeyFilter::NotMatching(p)) => Keys::Matching(compile_regex(p)?, false),
        })
    }

    fn contains(&self, key: &str) -> bool {
        match self {
            Keys::All => true,
            Keys::Some(keys) => keys.iter().any(|k| k == key),
            Keys::Not(other) => other != key,
            Keys::Matching(regex, wanted) => regex.is_match(key) == *wanted,
        }
    }
}

/// One series of the answer with these rows.
fn table(name: &str, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Series {
    let cells = rows.into_iter().flatten().map(Cell::text);
    Series {
        name: name.to_owned(),
        tags: Vec::new(),
        columns: columns.iter().map(|c| (*c).to_owned()).collect(),
        cells: cells.collect(),
        ..Series::default()
    }
}

impl Evaluator<'_> {
    pub(super) fn show(&self, show: &Show) -> Result<Vec<Series>, Error> {
        if show.kind == ShowKind::Databases {
            return Ok(vec![self.databases_shown()]);
        }
        self.check_sources(&show.sources)?;
        let database = self.database.unwrap_or(self.names.main());
        match show.kind {
            ShowKind::RetentionPolicies => return Ok(vec![policies()]),
            ShowKind::ContinuousQueries => {
                return Ok(vec![table(database, &["name", "query"], [])]);
            }
            ShowKind::Users => return Ok(vec![table("", &["user", "admin"], [])]),
            ShowKind::Queries => {
                let columns = ["qid", "query", "database", "duration", "status"];
                return Ok(vec![table("", &columns, [])]);
            }
            ShowKind::Diagnostics => return Ok(self.diagnostics()),
            ShowKind::Shards => return Ok(self.shards()),
            ShowKind::ShardGroups => return Ok(vec![self.shard_groups()]),
            _ => self.must_read()?,
        }
        let condition = Condition::new(show.condition.as_ref(), self.now, None)?;
        condition.must_be_one_range("SHOW", "ask once for each range")?;
        if condition.rest.iter().any(is_ordered) {
            return Err(invalid("invalid tag comparison operator"));
        }
        let names = self.measurement_names(&show.sources)?;
        let mut out = match show.kind {
            ShowKind::Stats => return self.stats(database, &names),
            ShowKind::TagKeyCardinality => {
                let listed = self.tag_keys(show, &names, &condition)?;
                counted(listed)
            }
            ShowKind::TagValuesCardinality => {
                let listed = self.tag_values(show, &names, &condition)?;
                counted(listed)
            }
            ShowKind::FieldKeyCardinality => counted(self.field_keys(&names, &condition)?),
            ShowKind::Measurements | ShowKind::MeasurementCardinality => {
                let rows = self.measurements(show, &names, &condition)?;
                if show.kind == ShowKind::Measurements {
                    return self.one(show, table("measurements", &["name"], rows));
                }
                return Ok(vec![number("", estimated(show), rows.len())]);
            }
            ShowKind::SeriesCardinality => {
                let mut counts = Vec::new();
                self.each(&names, &condition, &mut |measurement| {
                    let count = measurement.members.len();
                    counts.push(number(&measurement.name, "count", count));
                    Ok(())
                })?;
                if estimated(show) != "count" {
                    let all = counts.iter().flat_map(|series| &series.cells);
                    let count = all.filter_map(|cell| match cell {
                        Cell::Value(headwater::Value::I64(count)) => usize::try_from(*count).ok(),
                        _ => None,
                    });
                    return Ok(vec![number("", estimated(show), count.sum())]);
                }
                counts.retain(|series| series.cells != [Cell::Value(headwater::Value::I64(0))]);
                counts
            }
            ShowKind::Series => {
                let mut rows = Vec::new();
                self.each(&names, &condition, &mut |measurement| {
                    self.budget.take_values(measurement.members.len())?;
                    let members = measurement.members.iter();
                    let key = |m: &Member| m.stream.in_table(&measurement.name).to_string();
                    let mut keys: Vec<String> = members.map(key).collect();
                    keys.sort_unstable();
                    rows.extend(keys.into_iter().map(|key| vec![key]));
                    Ok(())
                })?;
                return self.one(show, table("", &["key"], rows));
            }
            ShowKind::TagKeys => self.tag_keys(show, &names, &condition)?,
            ShowKind::TagValues => self.tag_values(show, &names, &condition)?,
            _ => self.field_keys(&names, &condition)?,
        };
        for series in &mut out {
            order_and_limit(show, series)?;
        }
        out.retain(|series| !series.cells.is_empty());
        let passed = count(show.soffset, "SOFFSET")?.unwrap_or(0);
        out.drain(..passed.min(out.len()));
        if let Some(limit @ 1..) = count(show.slimit, "SLIMIT")? {
            out.truncate(limit);
        }
        Ok(out)
    }

    /// The databases that the client may know of.
    fn databases_shown(&self) -> Series {
        let others = self
            .names
            .others()
            .filter(|name| self.may_see_database(name));
        let names = std::iter::once(self.names.main()).chain(others);
        let rows = names.map(|name| vec![name.to_owned()]);
        table("databases", &["name"], rows)
    }

    /// Statistics of the data that the client may read.
    fn stats(&self, database: &str, names: &[String]) -> Result<Vec<Series>, Error> {
        let (mut measurements, mut series) = (0_i64, 0_i64);
        for name in names {
            let mut is_there = false;
            streams::walk(self.snapshot, self.access, name, self.budget, &mut |_| {
                is_there = true;
                series += 1;
                Ok(true)
            })?;
            measurements += i64::from(is_there);
        }
        let counts = [measurements, series].map(|n| Cell::Value(headwater::Value::I64(n)));
        Ok(vec![Series {
            name: "database".to_owned(),
            tags: vec![("database".to_owned(), database.to_owned())],
            columns: ["numMeasurements", "numSeries"].map(str::to_owned).to_vec(),
            cells: counts.to_vec(),
            ..Series::default()
        }])
    }

    fn diagnostics(&self) -> Vec<Series> {
        let version = concat!("headwater-", env!("CARGO_PKG_VERSION"));
        let build = [["", "", "", version].map(str::to_owned).to_vec()];
        let columns = ["Branch", "Build Time", "Commit", "Version"];
        vec![
            table("build", &columns, build),
            Series {
                name: "system".to_owned(),
                tags: Vec::new(),
                columns: vec!["currentTime".to_owned()],
                cells: vec![Cell::Time(self.now.as_nanos())],
                ..Series::default()
            },
        ]
    }

    /// An answer of one series, or without series if it does not have rows.
    fn one(&self, show: &Show, mut series: Series) -> Result<Vec<Series>, Error> {
        order_and_limit(show, &mut series)?;
        Ok(if series.cells.is_empty() {
            Vec::new()
        } else {
            vec![series]
        })
    }

    fn each(
        &self,
        names: &[String],
        condition: &Condition,
        then: &mut dyn FnMut(&Measurement) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for name in names {
            if let Some(measurement) = self.measurement(name, condition, condition.range, &[])? {
                then(&measurement)?;
            }
        }
        Ok(())
    }

    fn measurements(
        &self,
        show: &Show,
        names: &[String],
        condition: &Condition,
    ) -> Result<Vec<Vec<String>>, Error> {
        let mut rows = Vec::new();
        for name in names {
            // Without a condition one readable stream suffices.
            let is_there = if show.condition.is_none() {
                let mut found = false;
                streams::walk(self.snapshot, self.access, name, self.budget, &mut |_| {
                    found = true;
                    Ok(false)
                })?;
                found
            } else {
                let measurement = self.measurement(name, condition, condition.range, &[])?;
                measurement.is_some_and(|m| !m.members.is_empty())
            };
            if is_there {
                rows.push(vec![self.names.shown(name).to_owned()]);
            }
        }
        Ok(rows)
    }

    fn tag_keys(
        &self,
        show: &Show,
        names: &[String],
        condition: &Condition,
    ) -> Result<Vec<Series>, Error> {
        let keys = Keys::new(show.key.as_ref())?;
        let mut out = Vec::new();
        self.each(names, condition, &mut |measurement| {
            let mut found = BTreeSet::new();
            for member in &measurement.members {
                for (key, _) in member.stream.tags() {
                    if keys.contains(key) && !found.contains(key) {
                        self.budget.take_values(1)?;
                        found.insert(key.clone());
                    }
                }
            }
            let rows = found.into_iter().map(|key| vec![key]);
            out.push(table(&measurement.name, &["tagKey"], rows));
            Ok(())
        })?;
        Ok(out)
    }

    fn tag_values(
        &self,
        show: &Show,
        names: &[String],
        condition: &Condition,
    ) -> Result<Vec<Series>, Error> {
        let keys = Keys::new(show.key.as_ref())?;
        let mut out = Vec::new();
        self.each(names, condition, &mut |measurement| {
            let mut found: BTreeSet<(String, String)> = BTreeSet::new();
            for member in &measurement.members {
                for tag in member.stream.tags() {
                    if keys.contains(&tag.0) && !found.contains(tag) {
                        self.budget.take_values(2)?;
                        found.insert(tag.clone());
                    }
                }
            }
            let rows = found.into_iter().map(|(key, value)| vec![key, value]);
            out.push(table(&measurement.name, &["key", "value"], rows));
            Ok(())
        })?;
        Ok(out)
    }

    fn field_keys(&self, names: &[String], condition: &Condition) -> Result<Vec<Series>, Error> {
        let mut out = Vec::new();
        self.each(names, condition, &mut |measurement| {
            if measurement.members.is_empty() {
                return Ok(());
            }
            let mut fields = measurement.fields.clone();
            fields.sort();
            let rows = fields
                .into_iter()
                .map(|(name, t)| vec![name, type_name(t).to_owned()]);
            out.push(table(&measurement.name, &["fieldKey", "fieldType"], rows));
            Ok(())
        })?;
        Ok(out)
    }
}

/// Orders and limits the rows of a series.
fn order_and_limit(show: &Show, series: &mut Series) -> Result<(), Error> {
    let width = series.columns.len().max(1);
    let mut rows: Vec<Vec<Cell>> = series.cells.chunks(width).map(<[Cell]>::to_vec).collect();
    if show.descending {
        rows.reverse();
    }
    let offset = count(show.offset, "OFFSET")?.unwrap_or(0);
    rows.drain(..offset.min(rows.len()));
    if let Some(limit @ 1..) = count(show.limit, "LIMIT")? {
        rows.truncate(limit);
    }
    series.cells = rows.concat();
    Ok(())
}

fn number(name: &str, column: &str, count: usize) -> Series {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Series {
        name: name.to_owned(),
        tags: Vec::new(),
        columns: vec![column.to_owned()],
        cells: vec![Cell::Value(headwater::Value::I64(count))],
        ..Series::default()
    }
}

/// Replaces lists by the numbers of their rows.
fn counted(lists: Vec<Series>) -> Vec<Series> {
    let rows = |list: &Series| list.cells.len() / list.columns.len().max(1);
    let lists = lists.iter().filter(|list| rows(list) > 0);
    lists
        .map(|list| number(&list.name, "count", rows(list)))
        .collect()
}

/// The name of a count: InfluxDB estimates if all rows are counted, and not exactly.
fn estimated(show: &Show) -> &'static str {
    let is_about_all = show.sources.is_empty() && show.condition.is_none();
    match is_about_all && !show.exact {
        true => "cardinality estimation",
        false => "count",
    }
}

/// Whether a condition compares names with `<`, `<=`, `>` or `>=`, which match no name.
fn is_ordered(condition: &Expression) -> bool {
    match condition {
        Expression::All(parts) | Expression::Any(parts) => parts.iter().any(is_ordered),
        Expression::Binary { operator, .. } => matches!(
            operator,
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual
        ),
        _ => false,
    }
}

fn policies() -> Series {
    let texts = [POLICY, "0s", "168h0m0s"].map(Cell::text);
    let rest = [
        Cell::Value(headwater::Value::I64(1)),
        Cell::Value(headwater::Value::Bool(true)),
    ];
    let columns = [
        "name",
        "duration",
        "shardGroupDuration",
        "replicaN",
        "default",
    ];
    Series {
        columns: columns.map(str::to_owned).to_vec(),
        cells: texts.into_iter().chain(rest).collect(),
        ..Series::default()
    }
}
