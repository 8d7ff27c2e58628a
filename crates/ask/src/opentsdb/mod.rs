//! Queries of OpenTSDB's clients: series of a metric, selected by tags, downsampled and aggregated.
//!
//! Invariants: an interval's value is from the pyramid and not from rows, except first and last
//! values; only streams that the client may read are counted, listed or aggregated; memory in use
//! is counted by a `Budget`. Page: docs/http/opentsdb.md.

mod combine;
mod filters;
mod series;

use crate::access::Access;
use crate::budget::{Budget, VALUE_BYTES};

use crate::error::Error;
use crate::streams::{extent, tables, walk};
use combine::{Number, combine};
use filters::Filters;
use headwater::{ClosedRange, FieldType, Snapshot, StreamName};
use headwater_wire::json::{push_f64, push_i64, push_i128, push_str};
use headwater_wire::opentsdb::{Aggregator, Question, SubQuestion, VALUE};
use std::collections::{BTreeMap, BTreeSet};

/// A client of OpenTSDB's queries, and the snapshot that it queries.
pub struct Evaluator<'a> {
    /// The snapshot to read.
    pub snapshot: &'a Snapshot,
    /// The rights of the client.
    pub access: &'a dyn Access,
    /// The limits of the answer.
    pub budget: &'a Budget,
}

/// A selected stream.
struct Member {
    stream: StreamName,
    extent: ClosedRange,
}

/// Series grouped by the values of some tags; with aggregator `none` one series each.
type Groups = BTreeMap<Vec<String>, Vec<Member>>;

/// Kind of the names of a metric that a client lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The names of metrics.
    Metrics,
    /// The keys of their tags.
    TagKeys,
    /// The values of their tags.
    TagValues,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::query(message)
}

/// The same error as for a metric that was never written, whatever the reason.
fn no_metric(name: &str) -> Error {
    invalid(format!("No such name for 'metrics': '{name}'"))
}

impl Evaluator<'_> {
    /// The type of a metric's value; `None` when a numeric metric of this name does not exist.
    fn value_type(&self, table: &str) -> Result<Option<FieldType>, Error> {
        let fields = self
            .access
            .typed_fields(self.snapshot, table)?
            .unwrap_or_default();
        let value = fields.into_iter().find(|(name, _)| name == VALUE);
        Ok(value.map(|(_, t)| t).filter(|t| t.is_numeric()))
    }

    /// The names of the metrics.
    fn metrics(&self) -> Result<Vec<String>, Error> {
        let mut out = Vec::new();
        for table in tables(self.snapshot, self.access) {
            if self.value_type(&table)?.is_some() {
                let mut is_seen = false;
                walk(self.snapshot, self.access, &table, self.budget, &mut |_| {
                    is_seen = true;
                    Ok(false)
                })?;
                if is_seen {
                    out.push(table);
                }
            }
        }
        Ok(out)
    }

    /// Answers a query as JSON.
    ///
    /// # Errors
    /// [`crate::QueryErrorKind::Query`] for a metric that does not exist, and when the budget is
    /// exhausted.
    pub fn answer(&self, question: &Question) -> Result<Vec<u8>, Error> {
        let mut out = b"[".to_vec();
        for query in &question.queries {
            self.sub_answer(question, query, &mut out)?;
        }
        out.push(b']');
        Ok(out)
    }

    fn sub_answer(
        &self,
        question: &Question,
        query: &SubQuestion,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        for members in self.groups(query, question.range)?.into_values() {
            let before = self.budget.bytes_in_use();
            let mut names = Vec::new();
            let mut series = Vec::new();
            for member in &members {
                let points = self.points(question.range, query, member)?;
                if !points.is_empty() {
                    names.push(&member.stream);
                    series.push(points);
                }
            }
            if series.is_empty() {
                continue;
            }
            let has_fill = query
                .downsample
                .is_some_and(|d| d.fill != headwater_wire::opentsdb::DownsampleFill::None);
            let points = combine(series, query.aggregator, !has_fill, self.budget)?;
            if out.len() > 1 {
                out.push(b',');
            }
            push_result(out, question, query, &names, &points);
            // The inputs of the computation are released, only the text stays.
            self.budget.keep_only(before, points.len() * VALUE_BYTES)?;
        }
        Ok(())
    }

    /// The streams of a metric that satisfy the filters, grouped.
    fn groups(&self, query: &SubQuestion, range: ClosedRange) -> Result<Groups, Error> {
        let filters = Filters::new(query)?;
        let mut groups = Groups::new();
        let mut is_seen = false;
        if tables(self.snapshot, self.access).contains(&query.metric)
            && self.value_type(&query.metric)?.is_some()
        {
            walk(
                self.snapshot,
                self.access,
                &query.metric,
                self.budget,
                &mut |stream| {
                    is_seen = true;
                    if !filters.matches(&stream) {
                        return Ok(true);
                    }
                    self.budget.take_stream()?;
                    let extent = extent(self.snapshot, &stream)?;
                    if extent.overlaps(&range) {
                        let key = match query.aggregator {
                            Aggregator::None => vec![stream.to_string()],
                            _ => filters.group(&stream),
                        };
                        groups
                            .entry(key)
                            .or_default()
                            .push(Member { stream, extent });
                    }
                    Ok(true)
                },
            )?;
        }
        if is_seen {
            Ok(groups)
        } else {
            Err(no_metric(&query.metric))
        }
    }

    /// Names that begin with a text, at most `max` of them.
    ///
    /// # Errors
    /// When the budget is exhausted.
    pub fn suggest(&self, names: Names, begin: &str, max: usize) -> Result<Vec<String>, Error> {
        let metrics = self.metrics()?;
        if names == Names::Metrics {
            let metrics = metrics.into_iter().filter(|m| m.starts_with(begin));
            return Ok(metrics.take(max).collect());
        }
        let mut found: BTreeSet<String> = BTreeSet::new();
        for metric in metrics {
            walk(
                self.snapshot,
                self.access,
                &metric,
                self.budget,
                &mut |stream| {
                    for (key, value) in stream.tags() {
                        let name = if names == Names::TagKeys { key } else { value };
                        if name.starts_with(begin) && !found.contains(name) {
                            found.insert(name.clone());
                            if found.len() > max {
                                found.pop_last();
                            }
                        }
                    }
                    Ok(true)
                },
            )?;
        }
        Ok(found.into_iter().take(max).collect())
    }

    /// The series of a metric, at most `limit`, and their total number.
    ///
    /// # Errors
    /// As [`Evaluator::answer`].
    pub fn lookup(
        &self,
        query: &SubQuestion,
        limit: usize,
    ) -> Result<(Vec<StreamName>, usize), Error> {
        let groups = self.groups(query, ClosedRange::ALL)?;
        let mut streams: Vec<StreamName> =
            groups.into_values().flatten().map(|m| m.stream).collect();
        streams.sort();
        let total = streams.len();
        streams.truncate(limit);
        Ok((streams, total))
    }
}

/// Tags with the same value in all series, and tags with different values.
fn tags<'a>(names: &[&'a StreamName]) -> (Vec<(&'a str, &'a str)>, Vec<&'a str>) {
    let Some((first, others)) = names.split_first() else {
        return (Vec::new(), Vec::new());
    };
    let (mut same, mut different) = (Vec::new(), Vec::new());
    for (key, value) in first.tags() {
        if others.iter().all(|o| o.tag(key) == Some(value)) {
            same.push((key.as_str(), value.as_str()));
        } else if others.iter().all(|o| o.tag(key).is_some()) {
            different.push(key.as_str());
        }
    }
    (same, different)
}

fn push_result(
    out: &mut Vec<u8>,
    question: &Question,
    query: &SubQuestion,
    names: &[&StreamName],
    points: &[(i64, Number)],
) {
    let (same, different) = tags(names);
    out.extend_from_slice(b"{\"metric\":");
    push_str(out, &query.metric);
    out.extend_from_slice(b",\"tags\":{");
    for (index, (key, value)) in same.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_str(out, key);
        out.push(b':');
        push_str(out, value);
    }
    out.extend_from_slice(b"},\"aggregateTags\":[");
    for (index, key) in different.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_str(out, key);
    }
    out.extend_from_slice(b"],\"dps\":");
    let unit = if question.milliseconds {
        1_000_000
    } else {
        1_000_000_000
    };
    out.push(if question.arrays { b'[' } else { b'{' });
    let mut is_first = true;
    let mut rest = points.iter().peekable();
    while let Some((time, value)) = rest.next() {
        let stamp = time.div_euclid(unit);
        // Among several points with the same timestamp the last one is used.
        if rest
            .peek()
            .is_some_and(|(next, _)| next.div_euclid(unit) == stamp)
        {
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        if question.arrays {
            out.push(b'[');
            push_i64(out, stamp);
            out.push(b',');
        } else {
            out.push(b'"');
            push_i64(out, stamp);
            out.extend_from_slice(b"\":");
        }
        push_value(out, *value);
        if question.arrays {
            out.push(b']');
        }
    }
    out.push(if question.arrays { b']' } else { b'}' });
    out.push(b'}');
}

fn push_value(out: &mut Vec<u8>, value: Number) {
    match value {
        Number::Integer(v) => push_i128(out, v),
        Number::Float(v) if v.is_nan() => out.extend_from_slice(b"\"NaN\""),
        Number::Float(v) => push_f64(out, v),
        Number::Null => out.extend_from_slice(b"null"),
    }
}
