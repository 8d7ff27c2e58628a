//! The measurements of a statement, and their series.

use super::buffered::{BufferedRows, constant};
use super::condition::{Compiler, Condition, compile_regex};
use super::field::ReadField;
use super::predicate::Predicate;
use super::{Evaluator, invalid};
use crate::databases::Space;
use crate::error::Error;
use crate::streams;
use headwater::{ClosedRange, Column, FieldType, ScanChunk, StreamName};
use headwater_wire::influxql::{Dimension, MeasurementName, Source};
use regex::Regex;
use std::collections::BTreeSet;

/// Receives a chunk and the numbers of its rows that satisfy the condition; returns false to end
/// the read.
pub(super) type ChunkVisitor<'a> = dyn FnMut(&ScanChunk, &[u32]) -> Result<bool, Error> + 'a;

/// Rows of a subquery that are passed on one by one.
pub(super) trait HandsOn: std::fmt::Debug {
    /// Passes chunks of a range to `each`, with the requested columns, for the given series.
    ///
    /// # Errors
    /// Errors of reading the rows, and of `each`.
    fn each_chunk(
        &self,
        asker: &Evaluator<'_>,
        member: &Member,
        wanted: (&[ReadField], ClosedRange),
        each: &mut ChunkVisitor<'_>,
    ) -> Result<(), Error>;
}

/// Source of the rows of a series.
#[derive(Debug)]
pub(super) enum Rows {
    /// In the snapshot.
    Stored,
    /// The answer of a subquery.
    Buffered(BufferedRows),
    /// Passed on by a subquery.
    Passed(Box<dyn HandsOn>),
}

/// A series that may have rows for the statement.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) stream: StreamName,
    /// The range of its events.
    pub(super) extent: ClosedRange,
    /// The condition on its rows.
    pub(super) rest: Predicate,
    pub(super) rows: Rows,
    /// Tags without a value by which a subquery grouped it.
    pub(super) empty_tags: Vec<String>,
}

impl Member {
    /// The value of a tag. A series of a subquery has every tag by which it was grouped, possibly
    /// with an empty value.
    pub(super) fn tag(&self, key: &str) -> Option<&str> {
        let empty = || {
            let mut keys = self.empty_tags.iter();
            keys.any(|empty| empty == key).then_some("")
        };
        self.stream.tag(key).or_else(empty)
    }

    /// A tag as a column of `rows` rows.
    pub(super) fn tag_column(&self, key: &str, rows: usize) -> Column {
        match self.tag(key) {
            Some(value) => constant(value, rows),
            None => Column::absent(FieldType::String, rows),
        }
    }

    /// Whether it is a series of a subquery.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.rows, Rows::Stored)
    }

    pub(super) fn matches_all_rows(&self) -> bool {
        matches!(self.rest, Predicate::Constant(true))
    }

    /// Whether the engine has the aggregates of the requested rows.
    pub(super) fn is_as_stored(&self) -> bool {
        self.matches_all_rows() && !self.is_answered()
    }
}

/// A measurement, with the requested parts of it.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    /// The name that clients see.
    pub(super) name: String,
    pub(super) fields: Vec<(String, FieldType)>,
    pub(super) tag_keys: BTreeSet<String>,
    pub(super) members: Vec<Member>,
    /// Tags of the answers of subqueries.
    pub(super) answered_tags: BTreeSet<String>,
    /// The fields that the condition reads.
    pub(super) read: Vec<ReadField>,
}

/// Tags by which rows are grouped.
#[derive(Debug, Default)]
pub(super) struct GroupKeys(pub(super) Vec<String>);

impl GroupKeys {
    /// The tags of a measurement that the dimensions select, sorted.
    pub(super) fn new(
        dimensions: &[Dimension],
        tag_keys: &BTreeSet<String>,
    ) -> Result<GroupKeys, Error> {
        let mut keys = BTreeSet::new();
        for dimension in dimensions {
            match dimension {
                Dimension::Time { .. } => {}
                Dimension::Tag(key) => {
                    keys.insert(key.clone());
                }
                Dimension::Matching(pattern) => {
                    let regex = compile_regex(pattern)?;
                    keys.extend(tag_keys.iter().filter(|k| regex.is_match(k)).cloned());
                }
                Dimension::All => keys.extend(tag_keys.iter().cloned()),
            }
        }
        Ok(GroupKeys(keys.into_iter().collect()))
    }

    /// The values of a stream; an empty text for a missing tag.
    pub(super) fn of(&self, stream: &StreamName) -> Vec<String> {
        let value = |key: &String| stream.tag(key).unwrap_or("").to_owned();
        self.0.iter().map(value).collect()
    }
}

enum NamePattern {
    All,
    Exact(String),
    Matching(Regex),
}

impl Evaluator<'_> {
    /// The names of the selected tables, sorted; without sources all tables of the database.
    pub(super) fn measurement_names<'s>(
        &self,
        sources: impl IntoIterator<Item = &'s Source>,
    ) -> Result<Vec<String>, Error> {
        // A copy that cannot be read may have more of them: `partial=allow` leaves it out.
        self.snapshot.require_whole()?;
        self.names_among(streams::tables(self.snapshot, self.access), sources)
    }

    /// As [`Evaluator::measurement_names`], restricted to these names.
    pub(super) fn names_among<'s>(
        &self,
        mut names: Vec<String>,
        sources: impl IntoIterator<Item = &'s Source>,
    ) -> Result<Vec<String>, Error> {
        let mut wanted = sources
            .into_iter()
            .map(|source| {
                let name = match &source.name {
                    MeasurementName::Exact(name) => NamePattern::Exact(name.clone()),
                    MeasurementName::Matching(pattern) => {
                        NamePattern::Matching(compile_regex(pattern)?)
                    }
                };
                Ok((self.space_of(source)?, name))
            })
            .collect::<Result<Vec<(Space, NamePattern)>, Error>>()?;
        if wanted.is_empty() {
            wanted.push((self.space(self.database)?, NamePattern::All));
        }
        names.retain(|table| {
            wanted.iter().any(|(space, wanted)| {
                let name = self.names.measurement(space, table);
                name.is_some_and(|name| match wanted {
                    NamePattern::All => true,
                    NamePattern::Exact(exact) => exact == name,
                    NamePattern::Matching(regex) => regex.is_match(name),
                })
            })
        });
        Ok(names)
    }

    /// A measurement with its series that may have rows in a range; `None` when the client may not
    /// see any of it. Rows of subqueries may have more fields.
    pub(super) fn measurement(
        &self,
        name: &str,
        condition: &Condition,
        range: ClosedRange,
        more_fields: &[(String, FieldType)],
    ) -> Result<Option<Measurement>, Error> {
        let Some(mut fields) = self.access.typed_fields(self.snapshot, name)? else {
            return Ok(None);
        };
        for more in more_fields {
            if !fields.iter().any(|(name, _)| *name == more.0) {
                fields.push(more.clone());
            }
        }
        let mut compiler = Compiler {
            table_fields: &fields,
            read: Vec::new(),
        };
        let predicate = compiler.all(&condition.rest)?;
        let read = compiler.read;
        let (mut members, mut tag_keys) = (Vec::<Member>::new(), BTreeSet::new());
        let mut is_seen = false;
        streams::walk(
            self.snapshot,
            self.access,
            name,
            self.budget,
            &mut |stream| {
                is_seen = true;
                let rest = predicate.on_stream(&stream);
                for (key, _) in stream.tags() {
                    if !tag_keys.contains(key) {
                        tag_keys.insert(key.clone());
                    }
                }
                if matches!(rest, Predicate::Constant(false)) {
                    return Ok(true);
                }
                self.budget.take_stream()?;
                if members.len() % 256 == 255 {
                    self.budget.check()?;
                }
                let extent = streams::extent(self.snapshot, &stream)?;
                if extent.overlaps(&range) {
                    members.push(Member {
                        stream,
                        extent,
                        rest,
                        rows: Rows::Stored,
                        empty_tags: Vec::new(),
                    });
                }
                Ok(true)
            },
        )?;
        // Sorted by tags, which differs from the order of the catalog.
        members.sort_by(|a, b| a.stream.tags().cmp(b.stream.tags()));
        Ok(is_seen.then(|| Measurement {
            name: self.names.shown(name).to_owned(),
            fields,
            tag_keys,
            members,
            answered_tags: BTreeSet::new(),
            read,
        }))
    }
}

/// Converts a count to `usize`.
pub(super) fn count(value: Option<u64>, what: &str) -> Result<Option<usize>, Error> {
    value
        .map(|v| usize::try_from(v).map_err(|_| invalid(format!("{what} {v} is too large"))))
        .transpose()
}
