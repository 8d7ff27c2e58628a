//! Aggregates that remain after aging, as rows of a table of their own: for each stream, field and
//! bucket the number of values, and their least, greatest, mean and deviation.
//!
//! Invariants: all buckets of a stream are of one level, the coarsest that aging has used for it,
//! so that each of its values counts in exactly one bucket; a bucket belongs to the day in which it
//! starts. A bucket is present if it ends before the end of the last aged range. Memory: the
//! buckets of a stream, some thousands at a time.

use crate::columns::{Columns, Growth};
use crate::day::{Day, Days};
use crate::error::Result;
use crate::rows::{NeedsRest, Walk, WalkResult, sort_streams};
use arrow::array::RecordBatch;
use headwater::{
    Aggregate, Bins, ClosedRange, Column, FieldType, Level, ScanChunk, Snapshot, StreamName,
    Stretches, SummaryBin, SummarySpec, Timestamp, ValueRef,
};

/// Suffix of the names of a rollup's table and folder.
pub(crate) const SUFFIX: &str = "_rollup";
/// Buckets that are read at once.
const STEP: i64 = 8_192;

/// Rollup of a table: the aggregates that aging has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollup {
    /// Streams with aged data, and their levels, in the order of files.
    streams: Vec<(StreamName, Level)>,
    /// End of the last aged range. The ranges change with it, and so does the version of a day.
    horizon: Option<Timestamp>,
    /// The fields of the table.
    fields: Vec<String>,
}

impl Rollup {
    /// Creates the rollup of a table. Columns are the rollup's.
    pub(crate) fn of(
        snapshot: &Snapshot,
        table: &str,
        stretches: &Stretches,
        columns: &Columns,
    ) -> Result<Rollup> {
        let aged = stretches.all.iter().filter(|stretch| stretch.is_aged);
        let Some(last) = aged.map(|stretch| stretch.range.last).max() else {
            return Ok(Rollup::default());
        };
        let behind = last.next().unwrap_or(last);
        let mut names = snapshot.streams(table, &[])?;
        sort_streams(&mut names, columns);
        let mut streams = Vec::new();
        for name in names {
            if let Some(level) = snapshot.aged_level(&name, &ClosedRange::ALL)? {
                streams.push((name, level));
            }
        }
        let fields = snapshot.fields(table)?;
        Ok(Rollup {
            streams,
            horizon: Some(behind),
            fields: fields.into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// Columns of a rollup besides the tags and the time, which is a bucket's start.
    pub(crate) fn columns() -> Vec<(String, FieldType)> {
        let all = [
            ("field", FieldType::String),
            ("level", FieldType::I64),
            ("count", FieldType::I64),
            ("min", FieldType::F64),
            ("max", FieldType::F64),
            ("mean", FieldType::F64),
            ("deviation", FieldType::F64),
        ];
        all.map(|(name, of)| (name.to_owned(), of)).into()
    }

    /// Whether the table has no aged data.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(crate) fn names(&self) -> Vec<StreamName> {
        self.streams.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Maximum extent of a bucket beyond the day in which it starts.
    fn reach(&self) -> i64 {
        let widest = self.streams.iter().map(|(_, level)| *level).max();
        let width = widest.map_or(0, |level| level.bucket_start_wide(1));
        i64::try_from(width).unwrap_or(i64::MAX)
    }

    /// Range of the values in the buckets of a day.
    pub(crate) fn range(&self, day: Day) -> ClosedRange {
        let range = day.range();
        let last = range.last.as_nanos().saturating_add(self.reach());
        ClosedRange::new(range.first, Timestamp::from_nanos(last))
    }

    /// Other inputs of the buckets: streams, levels and fields.
    pub(crate) fn salt(&self) -> Vec<u8> {
        let mut salt = Vec::new();
        let mut put = |text: &str| {
            salt.extend_from_slice(text.as_bytes());
            salt.push(0);
        };
        for (name, level) in &self.streams {
            put(&name.to_string());
            put(&level.get().to_string());
        }
        self.fields.iter().for_each(|field| put(field));
        salt
    }

    /// Days in which buckets may start.
    pub(crate) fn days(&self, stretches: &Stretches) -> Vec<Days> {
        let Some(horizon) = self.horizon.filter(|_| !self.is_empty()) else {
            return Vec::new();
        };
        let before = stretches.all.iter().filter(|s| s.range.first < horizon);
        let spans = before.map(|stretch| {
            let first = stretch.range.first.as_nanos().saturating_sub(self.reach());
            let last = stretch.range.last.min(horizon);
            Days::of(&ClosedRange::new(Timestamp::from_nanos(first), last))
        });
        Days::union(spans.collect())
    }

    /// First and last complete bucket of a level that start on a day; `None` = there are no such
    /// buckets.
    fn buckets(&self, level: Level, day: Day) -> Option<(i64, i64)> {
        let range = day.range();
        let first = level.bucket_of(range.first);
        let begins_before = level.bucket_start_wide(first) < i128::from(range.first.as_nanos());
        let first = first + i64::from(begins_before);
        let last = level.bucket_of(range.last);
        let last = last.min(level.bucket_of(self.horizon?) - 1);
        (first <= last).then_some((first, last))
    }

    /// Hands the rows of some streams on a day to `sink`, batch by batch.
    pub(crate) fn walk(
        &self,
        snapshot: &Snapshot,
        columns: &Columns,
        day: Day,
        sink: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<WalkResult> {
        let mut walk = Walk::new(columns, sink);
        for (stream, level) in &self.streams {
            if self
                .stream(snapshot, (stream, *level), day, &mut walk)?
                .is_err()
            {
                return Ok(Err(NeedsRest));
            }
        }
        walk.finish()?;
        Ok(Ok(()))
    }

    fn stream(
        &self,
        snapshot: &Snapshot,
        (stream, level): (&StreamName, Level),
        day: Day,
        walk: &mut Walk<'_>,
    ) -> Result<WalkResult> {
        let Some((mut from, last)) = self.buckets(level, day) else {
            return Ok(Ok(()));
        };
        while from <= last {
            let to = last.min(from + STEP - 1);
            let spec = SummarySpec {
                range: level.span(from, to),
                bins: Bins::Level(level),
                fields: self.fields.clone(),
            };
            let bins = snapshot.summary(stream, &spec)?;
            if walk.push(stream, &self.rows(level, &bins))?.is_err() {
                return Ok(Err(NeedsRest));
            }
            from = to + 1;
        }
        Ok(Ok(()))
    }

    /// Bins as rows: one for each field with values.
    fn rows(&self, level: Level, bins: &[SummaryBin]) -> ScanChunk {
        let mut rows = ScanChunk {
            times: Vec::new(),
            columns: Rollup::columns()
                .into_iter()
                .map(|(_, of)| Column::new(of))
                .collect(),
        };
        for bin in bins {
            // Bins of a level are numbered as its buckets are, which have 64 bits.
            let bucket = i64::try_from(bin.number).unwrap_or(i64::MAX);
            let begins = level.bucket_span(bucket).first.as_nanos();
            for (field, of) in self.fields.iter().zip(&bin.aggregates) {
                if of.count == 0 {
                    continue;
                }
                rows.times.push(begins);
                let values = values(field, level, of);
                for (column, value) in rows.columns.iter_mut().zip(values) {
                    put(column, value);
                }
            }
        }
        rows
    }
}

fn put(column: &mut Column, value: Option<ValueRef<'_>>) {
    // A value of another type than the column's would be a mistake here, and is absent.
    if !value.is_some_and(|value| column.push(value)) {
        column.push_absent(1);
    }
}

/// The values of a row, in the order of [`Rollup::columns`].
fn values<'a>(field: &'a str, level: Level, of: &Aggregate) -> [Option<ValueRef<'a>>; 7] {
    let float = |value: Option<f64>| value.map(ValueRef::F64);
    let (least, greatest) = of.extremes.as_f64().unzip();
    [
        Some(ValueRef::String(field)),
        Some(ValueRef::I64(i64::from(level.get()))),
        i64::try_from(of.count).ok().map(ValueRef::I64),
        float(least),
        float(greatest),
        float(of.mean()),
        float(of.stddev()),
    ]
}

/// Columns of a table, plus the missing ones of the database.
pub(crate) fn grown(
    snapshot: &Snapshot,
    (table, is_rollup): (&str, bool),
    known: &Columns,
) -> Result<Growth> {
    let tags = snapshot.table_info(table)?.tags;
    let fields = match is_rollup {
        true => Rollup::columns(),
        false => snapshot.fields(table)?,
    };
    Ok(known.grown(&tags, &fields))
}
