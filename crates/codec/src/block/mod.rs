//! Bucket blocks: up to 64 buckets of one level of the pyramid, all fields.
//!
//! Invariants: decoding restores every aggregate bit for bit, except its
//! [`headwater_types::aggregate::Carry`], which is not stored; settled aggregates
//! ([`Aggregate::settled`]) need the fewest bytes. Sums of decimals are integers, so mean and M2
//! are stored as the integers from which they are derived, with the difference in units of the last
//! place, and only if that is smaller. Failure: any damage is a [`DecodeError`], detected by the
//! checksum of the whole block; memory is bounded by [`BLOCK_BUCKETS_MAX`] and [`FIELDS_MAX`].
//! Format: docs/format/block.md. `moments` derives mean and M2 from integers, `field` contains both
//! directions of a field, `wide` and `plain` the encodings that need 128 bits.

mod field;
mod moments;
mod plain;
mod wide;

use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::checksum::crc32c;
use crate::pack::{put_integers, take_integers};
use headwater_types::Aggregate;
use headwater_types::Level;
use headwater_types::{FieldId, FieldType};
use std::ops::{Range, RangeInclusive};

/// Buckets in a full block.
pub const BLOCK_BUCKETS: usize = 64;
/// Maximum number of buckets of a block.
pub const BLOCK_BUCKETS_MAX: usize = 256;
/// Maximum number of fields of a block.
pub const FIELDS_MAX: usize = 4_096;

const ALL_BUCKETS: RangeInclusive<i64> = i64::MIN..=i64::MAX;
const MAGIC: u8 = 0xb5;
const VERSION: u8 = 1;
/// Added to a level, so that it is not negative.
const LEVEL_BASE: i32 = 20;

/// Buckets of one level, only those that contain a row, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketBlock {
    /// The level.
    pub level: Level,
    /// Bucket numbers, strictly ascending.
    pub buckets: Vec<i64>,
    /// Rows in each bucket, absent fields included.
    pub rows: Vec<u64>,
    /// For each field that has a value in any of the buckets, in ascending order: one aggregate per
    /// bucket ([`Aggregate::EMPTY`] if the field is absent).
    pub fields: Vec<(FieldId, FieldType, Vec<Aggregate>)>,
}

impl BucketBlock {
    /// The bytes of the block, checksum included.
    ///
    /// # Panics
    /// If there are more than [`BLOCK_BUCKETS_MAX`] buckets or [`FIELDS_MAX`] fields, buckets or
    /// fields are not strictly ascending, or a list differs in length from the buckets.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = self.buckets.len();
        assert!(count <= BLOCK_BUCKETS_MAX, "at most 256 buckets");
        assert!(self.fields.len() <= FIELDS_MAX, "at most 4,096 fields");
        assert!(self.buckets.is_sorted_by(|a, b| a < b), "buckets rise");
        assert!(self.rows.len() == count, "a row count for each bucket");
        let mut out = Vec::with_capacity(64 + self.fields.len() * count * 12);
        out.put_u8(MAGIC);
        out.put_u8(VERSION);
        out.put_u8((self.level.get() + LEVEL_BASE) as u8);
        out.put_varint(count as u64);
        out.put_varint(self.fields.len() as u64);
        put_integers(&self.buckets, &mut out);
        let rows: Vec<i64> = self.rows.iter().map(|r| *r as i64).collect();
        put_integers(&rows, &mut out);
        let middles = self.middles();
        let mut next = 0u64;
        let mut before = None;
        for (FieldId(field), field_type, aggregates) in &self.fields {
            let field = u64::from(*field);
            assert!(field >= next, "fields rise");
            assert!(aggregates.len() == count, "an aggregate for each bucket");
            out.put_varint(field - next);
            next = field + 1;
            field::put(
                *field_type,
                aggregates,
                &self.rows,
                &middles,
                before,
                &mut out,
            );
            before = Some(aggregates.as_slice());
        }
        let checksum = crc32c(&out);
        out.put_u32(checksum);
        out
    }

    /// Decodes the bytes of [`BucketBlock::encode`], bit for bit.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<BucketBlock, DecodeError> {
        Self::decode_some(bytes, None, ALL_BUCKETS)
    }

    /// As [`BucketBlock::decode`], with these fields only: other fields are decoded as absent. A
    /// reader of one field of many saves most of the work.
    ///
    /// ```
    /// use headwater_codec::block::BucketBlock;
    /// use headwater_types::{Aggregate, FieldId, FieldType, Level};
    /// let one = Aggregate { count: 1, time_sum: 7, ..Aggregate::EMPTY };
    /// let block = BucketBlock {
    ///     level: Level::clamped(0),
    ///     buckets: vec![0],
    ///     rows: vec![1],
    ///     fields: vec![(FieldId(2), FieldType::String, vec![one]), (FieldId(5), FieldType::Bytes, vec![one])],
    /// };
    /// let some = BucketBlock::decode_fields(&block.encode(), &[FieldId(5)]).unwrap();
    /// assert_eq!(some.fields, block.fields[1..]);
    /// ```
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn decode_fields(bytes: &[u8], fields: &[FieldId]) -> Result<BucketBlock, DecodeError> {
        Self::decode_some(bytes, Some(fields), ALL_BUCKETS)
    }

    /// As [`BucketBlock::decode_fields`], or with all fields for `None`, and with these buckets
    /// only. A reader of a few buckets saves most of the work.
    ///
    /// ```
    /// use headwater_codec::block::BucketBlock;
    /// use headwater_types::Level;
    /// let block = BucketBlock { level: Level::clamped(0), buckets: vec![3, 4, 9], rows: vec![5, 6, 7], fields: vec![] };
    /// let part = BucketBlock::decode_part(&block.encode(), None, 4..=8).unwrap();
    /// assert_eq!((part.buckets, part.rows), (vec![4], vec![6]));
    /// ```
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn decode_part(
        bytes: &[u8],
        fields: Option<&[FieldId]>,
        buckets: RangeInclusive<i64>,
    ) -> Result<BucketBlock, DecodeError> {
        Self::decode_some(bytes, fields, buckets)
    }

    fn decode_some(
        bytes: &[u8],
        only: Option<&[FieldId]>,
        wanted: RangeInclusive<i64>,
    ) -> Result<BucketBlock, DecodeError> {
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(DecodeError {
                expected: "a block checksum",
                offset: 0,
            });
        };
        if crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError {
                expected: "a block that matches its checksum",
                offset: body.len(),
            });
        }
        let mut cursor = Cursor::new(body);
        let block = Self::read(&mut cursor, only, wanted)?;
        cursor.finish()?;
        Ok(block)
    }

    fn read(
        cursor: &mut Cursor<'_>,
        only: Option<&[FieldId]>,
        wanted: RangeInclusive<i64>,
    ) -> Result<BucketBlock, DecodeError> {
        if cursor.u8("the block magic")? != MAGIC {
            return Err(cursor.expected("the block magic 0xb5"));
        }
        if cursor.u8("the block version")? != VERSION {
            return Err(cursor.expected("block version 1"));
        }
        let level = Level::new(i32::from(cursor.u8("a level")?) - LEVEL_BASE)
            .ok_or_else(|| cursor.expected("a level from -20 to 40"))?;
        let count = cursor.varint_up_to(BLOCK_BUCKETS_MAX as u64, "at most 256 buckets")?;
        let fields = cursor.varint_up_to(FIELDS_MAX as u64, "at most 4,096 fields")?;
        let buckets = take_integers(cursor, count)?;
        if !buckets.is_sorted_by(|a, b| a < b) {
            return Err(cursor.expected("ascending buckets"));
        }
        let all_rows = take_integers(cursor, count)?;
        let all_rows: Vec<u64> = all_rows.into_iter().map(|r| r as u64).collect();
        let from = buckets.partition_point(|b| b < wanted.start());
        let to = buckets.partition_point(|b| b <= wanted.end()).max(from);
        let part = from..to;
        let mut block = BucketBlock {
            level,
            buckets: cut(buckets, &part),
            rows: inside(&all_rows, &part).to_vec(),
            fields: Vec::with_capacity(only.map_or(fields, |only| only.len().min(fields))),
        };
        let middles = block.middles();
        let mut next = 0u64;
        // The field before, if it is not selected.
        let mut passed: Option<Vec<Aggregate>> = None;
        for _ in 0..fields {
            let field = next
                .checked_add(cursor.varint("a field")?)
                .and_then(|f| u32::try_from(f).ok())
                .ok_or_else(|| cursor.expected("a field below 2^32"))?;
            next = u64::from(field) + 1;
            let newest = block.fields.last().map(|(_, _, a)| a.as_slice());
            let before = passed.as_deref().or(newest);
            let wanted = only.is_none_or(|only| only.contains(&FieldId(field)));
            let shape = field::Shape {
                rows: &all_rows,
                part: &part,
                middles: &middles,
            };
            let (field_type, aggregates) = field::take(cursor, &shape, before, wanted)?;
            if wanted {
                block.fields.push((FieldId(field), field_type, aggregates));
                passed = None;
            } else {
                passed = Some(aggregates);
            }
        }
        Ok(block)
    }

    /// The instant in the middle of each bucket, which may be outside the range of instants.
    fn middles(&self) -> Vec<i128> {
        self.buckets
            .iter()
            .map(|bucket| {
                let first = self.level.bucket_start_wide(*bucket);
                let next = self.level.bucket_start_wide(bucket.saturating_add(1));
                first.wrapping_add(next).div_euclid(2)
            })
            .collect()
    }
}

/// Values of a list in the range `part`, which is inside the list.
fn cut<T>(mut values: Vec<T>, part: &Range<usize>) -> Vec<T> {
    values.truncate(part.end);
    values.drain(..part.start.min(values.len()));
    values
}

/// As [`cut`], of a borrowed list.
fn inside<'a, T>(values: &'a [T], part: &Range<usize>) -> &'a [T] {
    values.get(part.clone()).unwrap_or_default()
}
