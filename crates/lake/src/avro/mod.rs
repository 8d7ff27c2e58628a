//! Files of Avro (object container files, version 1): records in, records out.
//!
//! Purpose: manifests of Iceberg, which need only a part of Avro. Writes files with a given schema,
//! without compression ([`file()`]); reads files of any schema that does not contain itself, plain
//! or deflated ([`records`]), with fields looked up by name.
//!
//! Invariants: no input causes a panic, or needs more memory than a multiple of the file's size,
//! which is [`read::INFLATED_MAX`] for deflated files. Integers, dates and enumerations are one
//! kind of number here. Concurrency: functions over bytes; no shared state. Failure: a file that is
//! cut, or does not match its schema, is an error that names the expected content.

mod read;
mod schema;
mod write;

use std::sync::Arc;

pub(crate) use read::records;
pub(crate) use write::file;

const MAGIC: &[u8] = b"Obj\x01";
/// Separator of blocks in the files that we write; readers read it from the header.
const SYNC: &[u8; 16] = b"headwater lake 1";

/// A parsed part of a file, or a description of the expected content.
type Parsed<T> = Result<T, String>;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Number(i64),
    Bytes(Vec<u8>),
    Text(String),
    Array(Vec<Value>),
    Record(Record),
}

/// Named values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record(Vec<(Arc<str>, Value)>);

/// A record for a file.
pub(crate) fn record(fields: Vec<(&str, Value)>) -> Value {
    let named = fields.into_iter();
    let named = named.map(|(name, value)| (Arc::from(name), value));
    Value::Record(Record(named.collect()))
}

/// A value that may be absent.
pub(crate) fn optional(value: Option<Value>) -> Value {
    value.unwrap_or(Value::Null)
}

impl Record {
    fn get(&self, name: &str) -> Option<&Value> {
        let (_, value) = self.0.iter().find(|(known, _)| **known == *name)?;
        Some(value)
    }

    pub(crate) fn long(&self, name: &str) -> Option<i64> {
        number(self.get(name)?)
    }

    pub(crate) fn int(&self, name: &str) -> Option<i32> {
        i32::try_from(self.long(name)?).ok()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn record(&self, name: &str) -> Option<&Record> {
        match self.get(name)? {
            Value::Record(record) => Some(record),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        bytes(self.get(name)?)
    }

    fn items(&self, name: &str) -> &[Value] {
        match self.get(name) {
            Some(Value::Array(items)) => items,
            _ => &[],
        }
    }

    /// The first of several records.
    pub(crate) fn first(&self, name: &str) -> Option<&Record> {
        match self.items(name).first()? {
            Value::Record(record) => Some(record),
            _ => None,
        }
    }

    pub(crate) fn longs(&self, name: &str) -> Vec<i64> {
        self.items(name).iter().filter_map(number).collect()
    }

    /// Pairs of a number and something.
    pub(crate) fn pairs<T>(&self, name: &str, of: impl Fn(&Value) -> Option<T>) -> Vec<(i32, T)> {
        let pair = |item: &Value| match item {
            Value::Record(record) => Some((record.int("key")?, of(record.get("value")?)?)),
            _ => None,
        };
        self.items(name).iter().filter_map(pair).collect()
    }
}

pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(value) => Some(*value),
        _ => None,
    }
}

pub(crate) fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::read::{Cursor, read};
    use super::schema::parse;
    use super::write::{encode, put_bytes, put_count, put_long};
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use std::io::Write;

    const SCHEMA: &str = r#"{"type":"record","name":"r","fields":[
        {"name":"n","type":"long"},
        {"name":"t","type":["null","string"],"default":null},
        {"name":"d","type":["null",{"type":"int","logicalType":"date"}]},
        {"name":"b","type":"bytes"},
        {"name":"y","type":"boolean"},
        {"name":"a","type":{"type":"array","element-id":5,"items":
            {"type":"record","name":"kv","fields":[
                {"name":"key","type":"int"},{"name":"value","type":"long"}]}}},
        {"name":"again","type":["null","kv"]}]}"#;

    fn sample(n: i64) -> Value {
        let kv = |k, v| record(vec![("key", Value::Number(k)), ("value", Value::Number(v))]);
        record(vec![
            ("n", Value::Number(n)),
            ("t", optional((n > 0).then(|| Value::Text("ü".into())))),
            ("d", Value::Number(-3)),
            ("b", Value::Bytes(vec![0, 255])),
            ("y", Value::Boolean(n > 0)),
            ("a", Value::Array(vec![kv(1, n), kv(2, -n)])),
            ("again", kv(9, 9)),
        ])
    }

    #[test]
    fn numbers_are_written_as_the_format_says() {
        for (number, bytes) in [
            (0, vec![0]),
            (-1, vec![1]),
            (1, vec![2]),
            (-64, vec![0x7f]),
            (64, vec![0x80, 1]),
            (
                i64::MAX,
                vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
            (
                i64::MIN,
                vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
        ] {
            let mut out = Vec::new();
            put_long(&mut out, number);
            assert_eq!(out, bytes);
            assert_eq!(Cursor::over(&out).long(), Ok(number));
        }
    }

    #[test]
    fn records_read_back_as_they_were_written_also_deflated_by_others() {
        let all = [sample(7), sample(i64::MIN + 1)];
        let head = [("who", "we".to_owned())];
        let plain = file(SCHEMA, &head, &all).unwrap();
        let expected: Vec<Record> = all
            .iter()
            .map(|value| match value {
                Value::Record(record) => record.clone(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(read(&plain).unwrap(), expected);
        assert_eq!(read(&file(SCHEMA, &[], &[]).unwrap()).unwrap(), []);
        // As written by other programs: deflated, in two blocks, the header in a block with its
        // length.
        let of = parse(SCHEMA.as_bytes()).unwrap();
        let mut head = Vec::new();
        for (key, value) in [("avro.codec", "deflate"), ("avro.schema", SCHEMA)] {
            put_bytes(&mut head, key.as_bytes());
            put_bytes(&mut head, value.as_bytes());
        }
        let mut other = MAGIC.to_vec();
        put_long(&mut other, -2);
        put_count(&mut other, head.len());
        other.extend_from_slice(&head);
        other.push(0);
        other.extend_from_slice(&[7; 16]);
        for value in &all {
            let mut body = Vec::new();
            encode(&mut body, &of, value).unwrap();
            let mut deflater = DeflateEncoder::new(Vec::new(), Compression::default());
            deflater.write_all(&body).unwrap();
            put_count(&mut other, 1);
            put_bytes(&mut other, &deflater.finish().unwrap());
            other.extend_from_slice(&[7; 16]);
        }
        assert_eq!(read(&other).unwrap(), expected);
    }

    #[test]
    fn no_bytes_make_it_panic_or_take_memory_without_end() {
        let whole = file(SCHEMA, &[], &[sample(7), sample(-7)]).unwrap();
        let mut dice = 1u64;
        for cut in 0..whole.len() {
            assert!(
                read(&whole[..cut]).is_err() || cut > whole.len() / 2,
                "cut at {cut}"
            );
            let mut changed = whole.clone();
            for _ in 0..40 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let [a, ..] = (dice >> 33).to_le_bytes();
                changed[cut] = a;
                let _ = read(&changed);
            }
        }
    }

    /// A file of a schema, with blocks whose first number is a count, followed by the stored bytes.
    fn blocks(schema: &str, all: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = file(schema, &[], &[]).unwrap();
        for (count, body) in all {
            put_long(&mut bytes, i64::try_from(*count).unwrap());
            put_bytes(&mut bytes, body);
            bytes.extend_from_slice(SYNC);
        }
        bytes
    }

    #[test]
    fn values_that_take_no_bytes_are_not_read_without_end() {
        let nothing = r#"{"type":"record","name":"r","fields":[]}"#;
        assert_eq!(read(&blocks(nothing, &[(3, b"")])).unwrap().len(), 3);
        assert!(read(&blocks(nothing, &[(1 << 40, b"")])).is_err());
        let null = r#"{"type":"record","name":"r","fields":[{"name":"n","type":"null"}]}"#;
        assert!(read(&blocks(null, &[(1 << 40, b"")])).is_err());
        // An array without bytes: a count beyond all bounds, and many counts that are each within
        // bounds.
        let array = r#"{"type":"record","name":"r","fields":[{"name":"a",
            "type":{"type":"array","items":"null"}}]}"#;
        let mut body = Vec::new();
        put_long(&mut body, 1 << 40);
        assert!(read(&blocks(array, &[(1, &body)])).is_err());
        let mut body = Vec::new();
        for left in (1..4_000).rev() {
            put_long(&mut body, left);
        }
        body.push(0);
        assert!(read(&blocks(array, &[(1, &body)])).is_err());
    }

    #[test]
    fn types_that_name_each_other_grow_neither_the_schema_nor_its_values() {
        // Each type contains the previous one twice: the last would have 2^200 fields.
        let mut twice = r#"{"type":"record","name":"r0","fields":[]}"#.to_owned();
        let mut deep = twice.clone();
        for at in 1..60 {
            let within = at - 1;
            twice = format!(
                r#"{twice},{{"type":"record","name":"r{at}","fields":[
                {{"name":"a","type":"r{within}"}},{{"name":"b","type":"r{within}"}}]}}"#
            );
        }
        for at in 1..5_000 {
            let within = at - 1;
            deep = format!(
                r#"{deep},{{"type":"record","name":"r{at}","fields":[
                {{"name":"a","type":"r{within}"}}]}}"#
            );
        }
        let of = |named: &str| {
            format!(
                r#"{{"type":"record","name":"all","fields":[{{"name":"one","type":[{named}]}}]}}"#
            )
        };
        // The last type of the union.
        let mut body = Vec::new();
        put_long(&mut body, 59);
        let refused = read(&blocks(&of(&twice), &[(1, &body)]));
        assert_eq!(refused, Err("fewer values for so many bytes".into()));
        assert!(parse(of(&deep).as_bytes()).is_err());
    }

    #[test]
    fn blocks_that_inflate_take_no_more_than_is_said() {
        let mut deflater = DeflateEncoder::new(Vec::new(), Compression::best());
        let zeros = vec![0; 1 << 20];
        for _ in 0..40 {
            deflater.write_all(&zeros).unwrap();
        }
        let stored = deflater.finish().unwrap();
        let schema = r#"{"type":"record","name":"r","fields":[{"name":"n",
            "type":{"type":"fixed","name":"f","size":41943040}}]}"#;
        let head = [("avro.codec", "deflate".to_owned())];
        let mut bytes = file(schema, &head, &[]).unwrap();
        for _ in 0..2 {
            put_count(&mut bytes, 1);
            put_bytes(&mut bytes, &stored);
            bytes.extend_from_slice(SYNC);
        }
        let refused = read(&bytes).err();
        assert!(
            refused.as_ref().is_some_and(|e| e.contains("inflated")),
            "{refused:?}"
        );
    }
}
