//! Buckets in memory, row by row, and their conversion to and from blocks.

use crate::metadata::catalog::Table;
use headwater_codec::block::{BLOCK_BUCKETS, BucketBlock};
use headwater_types::invariant::part_of;
use headwater_types::{Aggregate, Extremes, FieldId, FieldType, Level, Rows, Timestamp};
use std::collections::BTreeMap;

/// One bucket of one stream: its rows and an aggregate for each field that has a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) rows: u64,
    /// Sorted by field.
    pub(crate) fields: Vec<(FieldId, FieldType, Aggregate)>,
}

/// Buckets of one level by number.
pub(crate) type Buckets = BTreeMap<i64, Bucket>;

impl Bucket {
    /// Adds another bucket's events, which replace no event of this one.
    pub(crate) fn merge(&mut self, other: &Bucket) {
        self.rows += other.rows;
        for (field, field_type, aggregate) in &other.fields {
            self.merge_field(*field, *field_type, aggregate);
        }
    }

    /// The bucket without the events of `taken`, which it includes. The extremes stay, since the
    /// events that they came from are unknown.
    pub(crate) fn without(&self, taken: &Bucket) -> Bucket {
        let rest = |field: &FieldId, aggregate: &Aggregate| {
            let at = taken.fields.binary_search_by_key(field, |(f, ..)| *f);
            match at.ok().and_then(|at| taken.fields.get(at)) {
                Some((.., gone)) => difference(aggregate, gone),
                None => *aggregate,
            }
        };
        let fields = self.fields.iter();
        Bucket {
            rows: self.rows.saturating_sub(taken.rows),
            fields: fields
                .map(|(field, field_type, a)| (*field, *field_type, rest(field, a)))
                .filter(|(.., aggregate)| aggregate.count > 0)
                .collect(),
        }
    }

    fn merge_field(&mut self, field: FieldId, field_type: FieldType, aggregate: &Aggregate) {
        match self.fields.binary_search_by_key(&field, |(f, ..)| *f) {
            Ok(at) => {
                if let Some((_, mine_type, mine)) = self.fields.get_mut(at) {
                    if *mine_type == FieldType::I64 && field_type == FieldType::F64 {
                        *mine = mine.widened_to_f64();
                        *mine_type = FieldType::F64;
                    }
                    mine.merge(aggregate);
                }
            }
            Err(at) => self.fields.insert(at, (field, field_type, *aggregate)),
        }
    }

    fn add_rows(&mut self, rows: &Rows, range: std::ops::Range<usize>) {
        self.rows += range.len() as u64;
        for (field, column) in &rows.columns {
            let aggregate = Aggregate::of(&rows.times, column, range.clone());
            if aggregate.count > 0 {
                self.merge_field(*field, column.field_type(), &aggregate);
            }
        }
    }
}

fn difference(all: &Aggregate, gone: &Aggregate) -> Aggregate {
    let mut left = Aggregate {
        count: all.count.saturating_sub(gone.count),
        nan: all.nan.saturating_sub(gone.nan),
        positive_infinite: all.positive_infinite.saturating_sub(gone.positive_infinite),
        negative_infinite: all.negative_infinite.saturating_sub(gone.negative_infinite),
        sum: all.sum.saturating_sub(gone.sum),
        time_sum: all.time_sum.saturating_sub(gone.time_sum),
        ..*all
    };
    let (n, n_gone) = (left.finite() as f64, gone.finite() as f64);
    if n > 0.0 && n_gone > 0.0 {
        let mean = (all.mean * (n + n_gone) - gone.mean * n_gone) / n;
        left.mean = match all.extremes {
            Extremes::F64(low, high) => mean.clamp(low, high),
            _ => mean,
        };
        let apart = left.mean - gone.mean;
        left.m2 = (all.m2 - gone.m2 - apart * apart * n * n_gone / (n + n_gone)).max(0.0);
    }
    left.settled()
}

/// Adds rows, sorted by time, to the buckets of a level.
pub(crate) fn add_rows(buckets: &mut Buckets, level: Level, rows: &Rows) {
    let mut start = 0;
    while let Some(first) = rows.times.get(start) {
        let number = level.bucket_of(Timestamp::from_nanos(*first));
        let last = level.bucket_span(number).last.as_nanos();
        let rest = part_of(&rows.times, start.., "rows behind a bucket");
        let end = start + rest.partition_point(|t| *t <= last);
        buckets
            .entry(number)
            .or_default()
            .add_rows(rows, start..end);
        start = end;
    }
}

/// The buckets of a block, with aggregates in the current types of the table.
pub(crate) fn from_block(block: &BucketBlock, table: &Table) -> Buckets {
    let mut out = Buckets::new();
    for (index, number) in block.buckets.iter().enumerate() {
        let mut bucket = Bucket {
            rows: block.rows.get(index).copied().unwrap_or(0),
            fields: Vec::new(),
        };
        for (field, field_type, aggregates) in &block.fields {
            if let Some(aggregate) = aggregates.get(index).filter(|a| a.count > 0) {
                let (field_type, aggregate) = in_table_type(table, *field, *field_type, aggregate);
                bucket.fields.push((*field, field_type, aggregate));
            }
        }
        out.insert(*number, bucket);
    }
    out
}

pub(crate) fn in_table_type(
    table: &Table,
    field: FieldId,
    field_type: FieldType,
    aggregate: &Aggregate,
) -> (FieldType, Aggregate) {
    match table.field(field) {
        Some(f) if f.field_type == FieldType::F64 && field_type == FieldType::I64 => {
            (FieldType::F64, aggregate.widened_to_f64())
        }
        _ => (field_type, *aggregate),
    }
}

/// Divides buckets into blocks of at most 64; sizes are even when `balanced`, otherwise full from
/// the left.
pub(crate) fn to_blocks(level: Level, buckets: &Buckets, balanced: bool) -> Vec<BucketBlock> {
    let count = buckets.len();
    if count == 0 {
        return Vec::new();
    }
    let size = if balanced {
        count.div_ceil(count.div_ceil(BLOCK_BUCKETS))
    } else {
        BLOCK_BUCKETS
    };
    let all: Vec<(&i64, &Bucket)> = buckets.iter().collect();
    all.chunks(size)
        .map(|part| {
            let mut fields: BTreeMap<FieldId, (FieldType, Vec<Aggregate>)> = BTreeMap::new();
            for (index, (_, bucket)) in part.iter().enumerate() {
                for (field, field_type, aggregate) in &bucket.fields {
                    let slot = fields
                        .entry(*field)
                        .or_insert_with(|| (*field_type, vec![Aggregate::EMPTY; part.len()]));
                    // As many as there are buckets in this part.
                    if let Some(place) = slot.1.get_mut(index) {
                        *place = *aggregate;
                    }
                }
            }
            BucketBlock {
                level,
                buckets: part.iter().map(|(n, _)| **n).collect(),
                rows: part.iter().map(|(_, b)| b.rows).collect(),
                fields: fields.into_iter().map(|(f, (t, a))| (f, t, a)).collect(),
            }
        })
        .collect()
}
