//! Files of Avro: records in, records out.
//!
//! Invariant: a file is written with the schema it is given, the attributes that Iceberg wants
//! included; read are files of any schema, and what is looked for is found by name.

use crate::error::{LakeError, Result};
use apache_avro::types::Value;
use apache_avro::{Reader, Schema, Writer};
use std::path::Path;

/// A file with these records, and what stands at its beginning.
pub(crate) fn file(schema: &str, head: &[(&str, String)], records: Vec<Value>) -> Result<Vec<u8>> {
    let failed = |e: apache_avro::Error| LakeError::internal(format!("a file of Avro: {e}"));
    let schema = Schema::parse_str(schema).map_err(failed)?;
    let mut writer = Writer::new(&schema, Vec::new());
    for (key, value) in head {
        let added = writer.add_user_metadata((*key).to_owned(), value);
        added.map_err(failed)?;
    }
    for record in records {
        writer.append(record).map_err(failed)?;
    }
    writer.into_inner().map_err(failed)
}

/// The records of a file.
pub(crate) fn records(path: &Path, bytes: &[u8]) -> Result<Vec<Record>> {
    let failed = |e: apache_avro::Error| LakeError::format(path, "a file of Avro", e);
    let mut out = Vec::new();
    for value in Reader::new(bytes).map_err(failed)? {
        match value.map_err(failed)? {
            Value::Record(fields) => out.push(Record(fields)),
            other => return Err(LakeError::format(path, "records", format!("{other:?}"))),
        }
    }
    Ok(out)
}

/// A record that was read.
#[derive(Debug)]
pub(crate) struct Record(Vec<(String, Value)>);

impl Record {
    fn get(&self, name: &str) -> Option<&Value> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        inner(value)
    }

    pub(crate) fn long(&self, name: &str) -> Option<i64> {
        number(self.get(name)?)
    }

    pub(crate) fn int(&self, name: &str) -> Option<i32> {
        i32::try_from(self.long(name)?).ok()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn record(&self, name: &str) -> Option<Record> {
        match self.get(name)? {
            Value::Record(fields) => Some(Record(fields.clone())),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        bytes(self.get(name)?)
    }

    /// The first of several records.
    pub(crate) fn first(&self, name: &str) -> Option<Record> {
        match self.get(name)? {
            Value::Array(items) => match items.first()? {
                Value::Record(fields) => Some(Record(fields.clone())),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn longs(&self, name: &str) -> Vec<i64> {
        match self.get(name) {
            Some(Value::Array(items)) => items.iter().filter_map(number).collect(),
            _ => Vec::new(),
        }
    }

    /// Pairs of a number and something.
    pub(crate) fn pairs<T>(&self, name: &str, of: impl Fn(&Value) -> Option<T>) -> Vec<(i32, T)> {
        let Some(Value::Array(items)) = self.get(name) else {
            return Vec::new();
        };
        let pair = |item: &Value| match item {
            Value::Record(fields) => {
                let record = Record(fields.clone());
                Some((record.int("key")?, of(record.get("value")?)?))
            }
            _ => None,
        };
        items.iter().filter_map(pair).collect()
    }
}

/// The value in a union; `None` for null.
fn inner(value: &Value) -> Option<&Value> {
    match value {
        Value::Union(_, value) => inner(value),
        Value::Null => None,
        other => Some(other),
    }
}

pub(crate) fn number(value: &Value) -> Option<i64> {
    match inner(value)? {
        Value::Int(value) | Value::Date(value) => Some(i64::from(*value)),
        Value::Long(value) => Some(*value),
        _ => None,
    }
}

pub(crate) fn bytes(value: &Value) -> Option<Vec<u8>> {
    match inner(value)? {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// A record for a file.
pub(crate) fn record(fields: Vec<(&str, Value)>) -> Value {
    let named = fields.into_iter();
    Value::Record(
        named
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

/// A value that may be absent.
pub(crate) fn optional(value: Option<Value>) -> Value {
    match value {
        Some(value) => Value::Union(1, Box::new(value)),
        None => Value::Union(0, Box::new(Value::Null)),
    }
}
