//! Files of Avro (object container files, version 1): records in, records out.
//!
//! Purpose: manifests of Iceberg, of which only a part of Avro is needed. Written are files with
//! the schema they are given, without compression; read are files of any schema that does not
//! contain itself, plain or deflated, and what is looked for is found by name.
//!
//! Invariants: no bytes make it panic, or take more memory than [`BLOCK_MAX`] and a multiple of
//! what the file has. Integers, dates and enumerations are one kind of number here.
//! Failure: a file that is cut, or of another shape than its schema says, is an error that names
//! what was expected.

use crate::error::{LakeError, Result};
use crate::wide::wide;
use flate2::read::DeflateDecoder;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

const MAGIC: &[u8] = b"Obj\x01";
/// Between the blocks of files that we write; readers take it from the head.
const SYNC: &[u8; 16] = b"headwater lake 1";
/// Bytes of a block, inflated.
const BLOCK_MAX: u64 = 1 << 28;

/// A type of a schema.
#[derive(Clone, Debug, PartialEq)]
enum Type {
    Null,
    Boolean,
    /// Integers of any width, dates, enumerations.
    Number,
    /// Numbers that nobody looks for, of so many bytes.
    Skipped(usize),
    Bytes,
    Text,
    Fixed(usize),
    Array(Box<Type>),
    Map(Box<Type>),
    Union(Vec<Type>),
    Record(Vec<(String, Type)>),
}

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
pub(crate) struct Record(Vec<(String, Value)>);

/// A record for a file.
pub(crate) fn record(fields: Vec<(&str, Value)>) -> Value {
    let named = fields.into_iter();
    let named = named.map(|(name, value)| (name.to_owned(), value));
    Value::Record(Record(named.collect()))
}

/// A value that may be absent.
pub(crate) fn optional(value: Option<Value>) -> Value {
    value.unwrap_or(Value::Null)
}

impl Record {
    fn get(&self, name: &str) -> Option<&Value> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
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

/// A file with these records, and what stands at its beginning.
pub(crate) fn file(schema: &str, head: &[(&str, String)], records: &[Value]) -> Result<Vec<u8>> {
    let failed = |what: String| LakeError::internal(format!("a file of Avro: {what}"));
    let json: Json = serde_json::from_str(schema).map_err(|e| failed(e.to_string()))?;
    let of = schema_type(&json, &mut BTreeMap::new()).map_err(failed)?;
    let mut body = Vec::new();
    for record in records {
        encode(&mut body, &of, record).map_err(failed)?;
    }
    let mut out = MAGIC.to_vec();
    let own = [
        ("avro.schema", json.to_string()),
        ("avro.codec", "null".to_owned()),
    ];
    put_count(&mut out, head.len() + own.len());
    for (key, value) in own.iter().chain(head) {
        put_bytes(&mut out, key.as_bytes());
        put_bytes(&mut out, value.as_bytes());
    }
    put_count(&mut out, 0);
    out.extend_from_slice(SYNC);
    if !records.is_empty() {
        put_count(&mut out, records.len());
        put_bytes(&mut out, &body);
        out.extend_from_slice(SYNC);
    }
    Ok(out)
}

/// The records of a file.
pub(crate) fn records(path: &Path, bytes: &[u8]) -> Result<Vec<Record>> {
    read(bytes).map_err(|e| LakeError::format(path, format!("a file of Avro: {e}"), "other bytes"))
}

type Read1<T> = std::result::Result<T, String>;

fn read(bytes: &[u8]) -> Read1<Vec<Record>> {
    let mut cursor = Cursor { left: bytes };
    if cursor.take(MAGIC.len())? != MAGIC {
        return Err("`Obj`, version 1, at the beginning".into());
    }
    let mut head = BTreeMap::new();
    while let Some(count) = cursor.block()? {
        for _ in 0..count {
            let key = cursor.text()?;
            head.insert(key, cursor.bytes()?.to_vec());
        }
    }
    let sync = cursor.take(SYNC.len())?;
    let schema = head.get("avro.schema").ok_or("a schema")?;
    let schema: Json = serde_json::from_slice(schema).map_err(|e| format!("a schema: {e}"))?;
    let of = schema_type(&schema, &mut BTreeMap::new())?;
    let codec = head
        .get("avro.codec")
        .map_or(b"null".as_slice(), Vec::as_slice);
    let mut out = Vec::new();
    while !cursor.left.is_empty() {
        let count = cursor.count()?;
        let stored = cursor.bytes()?;
        let inflated;
        let block = match codec {
            b"null" => stored,
            b"deflate" => {
                inflated = inflate(stored)?;
                &inflated
            }
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(format!("blocks that are plain or deflated, not `{other}`"));
            }
        };
        let mut block = Cursor { left: block };
        for _ in 0..count {
            match block.value(&of)? {
                Value::Record(record) => out.push(record),
                other => return Err(format!("records, not {other:?}")),
            }
        }
        if !block.left.is_empty() || cursor.take(SYNC.len())? != sync {
            return Err("the end of a block".into());
        }
    }
    Ok(out)
}

fn inflate(stored: &[u8]) -> Read1<Vec<u8>> {
    let mut out = Vec::new();
    let mut limited = DeflateDecoder::new(stored).take(BLOCK_MAX + 1);
    limited
        .read_to_end(&mut out)
        .map_err(|e| format!("a deflated block: {e}"))?;
    match wide(out.len()) > BLOCK_MAX {
        true => Err(format!("a block of at most {BLOCK_MAX} bytes")),
        false => Ok(out),
    }
}

/// Bytes that are being read.
struct Cursor<'a> {
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Read1<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(count).ok_or("more bytes")?;
        self.left = left;
        Ok(taken)
    }

    /// A number in groups of seven bits, the sign in the lowest bit.
    fn long(&mut self) -> Read1<i64> {
        let mut raw: u64 = 0;
        for shift in (0..64).step_by(7) {
            let [byte, left @ ..] = self.left else {
                return Err("the rest of a number".into());
            };
            self.left = left;
            raw |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
            }
        }
        Err("a number of at most ten bytes".into())
    }

    fn count(&mut self) -> Read1<usize> {
        usize::try_from(self.long()?).map_err(|_| "a count".to_owned())
    }

    fn bytes(&mut self) -> Read1<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    fn text(&mut self) -> Read1<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| "text in UTF-8".into())
    }

    /// How many items the next block of an array or map has; `None` = there is none.
    fn block(&mut self) -> Read1<Option<usize>> {
        let count = self.long()?;
        if count < 0 {
            // Their bytes follow, for who would pass over them.
            self.count()?;
        }
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| "a count")?;
        // Items without bytes would take memory without end.
        match count {
            0 => Ok(None),
            _ if count > self.left.len() => Err("as many items as are said".into()),
            _ => Ok(Some(count)),
        }
    }

    fn value(&mut self, of: &Type) -> Read1<Value> {
        Ok(match of {
            Type::Null => Value::Null,
            Type::Boolean => Value::Boolean(self.take(1)? != [0]),
            Type::Number => Value::Number(self.long()?),
            Type::Skipped(count) => {
                self.take(*count)?;
                Value::Null
            }
            Type::Bytes => Value::Bytes(self.bytes()?.to_vec()),
            Type::Text => Value::Text(self.text()?),
            Type::Fixed(count) => Value::Bytes(self.take(*count)?.to_vec()),
            Type::Array(item) => {
                let mut items = Vec::new();
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        items.push(self.value(item)?);
                    }
                }
                Value::Array(items)
            }
            Type::Map(item) => {
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        self.bytes()?;
                        self.value(item)?;
                    }
                }
                Value::Null
            }
            Type::Union(types) => {
                let at = self.count()?;
                let of = types.get(at).ok_or("a type of a union")?;
                self.value(of)?
            }
            Type::Record(fields) => {
                let mut named = Vec::with_capacity(fields.len());
                for (name, of) in fields {
                    named.push((name.clone(), self.value(of)?));
                }
                Value::Record(Record(named))
            }
        })
    }
}

/// The type that a schema says; `known` are those with names.
fn schema_type(schema: &Json, known: &mut BTreeMap<String, Type>) -> Read1<Type> {
    let unknown = || format!("a schema, not {schema}");
    match schema {
        Json::String(name) => Ok(match name.as_str() {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "int" | "long" => Type::Number,
            "float" => Type::Skipped(4),
            "double" => Type::Skipped(8),
            "bytes" => Type::Bytes,
            "string" => Type::Text,
            other => return known.get(other).cloned().ok_or_else(unknown),
        }),
        Json::Array(types) => {
            let types = types.iter().map(|of| schema_type(of, known));
            Ok(Type::Union(types.collect::<Read1<_>>()?))
        }
        Json::Object(parts) => {
            let part = |name: &str| parts.get(name).ok_or_else(unknown);
            let of = match part("type")?.as_str() {
                Some("array") => Type::Array(Box::new(schema_type(part("items")?, known)?)),
                Some("map") => Type::Map(Box::new(schema_type(part("values")?, known)?)),
                Some("enum") => Type::Number,
                Some("fixed") => {
                    let size = part("size")?.as_u64().ok_or_else(unknown)?;
                    Type::Fixed(usize::try_from(size).map_err(|_| unknown())?)
                }
                Some("record") => {
                    let mut fields = Vec::new();
                    for field in part("fields")?.as_array().ok_or_else(unknown)? {
                        let of = field.get("type").ok_or_else(unknown)?;
                        let name = field.get("name").and_then(Json::as_str);
                        let name = name.ok_or_else(unknown)?.to_owned();
                        fields.push((name, schema_type(of, known)?));
                    }
                    Type::Record(fields)
                }
                // A type with attributes.
                _ => schema_type(part("type")?, known)?,
            };
            if let Some(name) = parts.get("name").and_then(Json::as_str) {
                known.insert(name.to_owned(), of.clone());
            }
            Ok(of)
        }
        _ => Err(unknown()),
    }
}

fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut raw = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    while raw >= 0x80 {
        let [low, ..] = raw.to_le_bytes();
        out.push(low | 0x80);
        raw >>= 7;
    }
    let [low, ..] = raw.to_le_bytes();
    out.push(low);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    put_long(out, crate::wide::signed(wide(count)));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a value of a type. Of a union it is the first type that is not null, or null.
fn encode(out: &mut Vec<u8>, of: &Type, value: &Value) -> Read1<()> {
    match (of, value) {
        (Type::Null, Value::Null) => {}
        (Type::Boolean, Value::Boolean(value)) => out.push(u8::from(*value)),
        (Type::Number, Value::Number(value)) => put_long(out, *value),
        (Type::Bytes, Value::Bytes(bytes)) => put_bytes(out, bytes),
        (Type::Text, Value::Text(text)) => put_bytes(out, text.as_bytes()),
        (Type::Array(of), Value::Array(items)) => {
            if !items.is_empty() {
                put_count(out, items.len());
                for item in items {
                    encode(out, of, item)?;
                }
            }
            put_count(out, 0);
        }
        (Type::Union(types), value) => {
            let is_null = *value == Value::Null;
            let at = types.iter().position(|of| (*of == Type::Null) == is_null);
            let at = at.ok_or("a value of one of the types of a union")?;
            put_count(out, at);
            let of = types.get(at).ok_or("a type of a union")?;
            encode(out, of, value)?;
        }
        (Type::Record(fields), Value::Record(record)) => {
            for (name, of) in fields {
                let value = record
                    .get(name)
                    .ok_or_else(|| format!("a value of `{name}`"))?;
                encode(out, of, value)?;
            }
        }
        (of, value) => return Err(format!("a value of {of:?}, not {value:?}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
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
            assert_eq!(Cursor { left: &out }.long(), Ok(number));
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
        // As others write it: deflated, in two blocks, the head in a block with its length.
        let of = schema_type(&serde_json::from_str(SCHEMA).unwrap(), &mut BTreeMap::new());
        let of = of.unwrap();
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
        // A schema of an array of nothing, and a count beyond all bounds.
        let schema = r#"{"type":"record","name":"r","fields":[{"name":"a",
            "type":{"type":"array","items":"null"}}]}"#;
        let mut bytes = file(schema, &[], &[]).unwrap();
        let mut body = Vec::new();
        put_long(&mut body, 1 << 40);
        put_count(&mut bytes, 1);
        put_bytes(&mut bytes, &body);
        bytes.extend_from_slice(SYNC);
        assert!(read(&bytes).is_err());
    }
}
