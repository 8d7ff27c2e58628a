//! Files of Avro written: one block, not compressed.

use super::schema::{Type, parse};
use super::{MAGIC, Parsed, SYNC, Value};
use crate::error::{LakeError, Result};
use headwater_types::invariant::wide;
use serde_json::Value as Json;

/// A file with these records, and with `head` as metadata of its header.
pub(crate) fn file(schema: &str, head: &[(&str, String)], records: &[Value]) -> Result<Vec<u8>> {
    let failed = |what: String| LakeError::internal(format!("a file of Avro: {what}"));
    let json: Json = serde_json::from_str(schema).map_err(|e| failed(e.to_string()))?;
    let schema = json.to_string();
    let of = parse(schema.as_bytes()).map_err(failed)?;
    let mut body = Vec::new();
    for record in records {
        encode(&mut body, &of, record).map_err(failed)?;
    }
    let mut out = MAGIC.to_vec();
    let own = [("avro.schema", schema), ("avro.codec", "null".to_owned())];
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

pub(super) fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut raw = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    while raw >= 0x80 {
        let [low, ..] = raw.to_le_bytes();
        out.push(low | 0x80);
        raw >>= 7;
    }
    let [low, ..] = raw.to_le_bytes();
    out.push(low);
}

pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    put_long(out, crate::lengths::signed(wide(count)));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a value of a type. Of a union it is the first type that is not null, or null.
pub(super) fn encode(out: &mut Vec<u8>, of: &Type, value: &Value) -> Parsed<()> {
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
            for (name, of) in fields.iter() {
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
