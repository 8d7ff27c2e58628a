//! Reading of Avro files.
//!
//! Invariants: a file has at most [`VALUES_A_BYTE`] values for each of its inflated bytes, and
//! [`VALUES_FREE`] more; its inflated size is at most [`INFLATED_MAX`]. Values without bytes, of
//! which a few bytes could announce any number, are an error beyond that.

use super::schema::{Type, parse};
use super::{MAGIC, Parsed, Record, SYNC, Value};
use crate::error::{LakeError, Result};
use flate2::read::DeflateDecoder;
use headwater_types::invariant::wide;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes that the blocks of a file inflate to, together. Manifests have some 8 MiB.
pub(super) const INFLATED_MAX: u64 = 1 << 26;
/// A record counts as a value besides its fields, and a null has no bytes except in a union.
const VALUES_A_BYTE: usize = 2;
/// For records without a byte.
const VALUES_FREE: usize = 1024;

/// The records of a file.
pub(crate) fn records(path: &Path, bytes: &[u8]) -> Result<Vec<Record>> {
    read(bytes).map_err(|e| LakeError::format(path, format!("a file of Avro: {e}"), "other bytes"))
}

pub(super) fn read(bytes: &[u8]) -> Parsed<Vec<Record>> {
    let mut cursor = Cursor::over(bytes);
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
    let of = parse(schema)?;
    let codec = head
        .get("avro.codec")
        .map_or(b"null".as_slice(), Vec::as_slice);
    let mut out = Vec::new();
    let mut room = INFLATED_MAX;
    while !cursor.remaining.is_empty() {
        let count = cursor.count()?;
        let stored = cursor.bytes()?;
        let inflated;
        let block = match codec {
            b"null" => stored,
            b"deflate" => {
                inflated = inflate(stored, room)?;
                room = room.saturating_sub(wide(inflated.len()));
                &inflated
            }
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(format!("blocks that are plain or deflated, not `{other}`"));
            }
        };
        let mut block = Cursor::over(block);
        for _ in 0..count {
            match block.value(&of)? {
                Value::Record(record) => out.push(record),
                other => return Err(format!("records, not {other:?}")),
            }
        }
        if !block.remaining.is_empty() || cursor.take(SYNC.len())? != sync {
            return Err("the end of a block".into());
        }
    }
    Ok(out)
}

/// The bytes of a deflated block, at most `room`.
fn inflate(stored: &[u8], room: u64) -> Parsed<Vec<u8>> {
    let mut out = Vec::new();
    let mut limited = DeflateDecoder::new(stored).take(room + 1);
    limited
        .read_to_end(&mut out)
        .map_err(|e| format!("a deflated block: {e}"))?;
    match wide(out.len()) > room {
        true => Err(format!("a file of at most {INFLATED_MAX} bytes, inflated")),
        false => Ok(out),
    }
}

/// Bytes that are being read.
pub(super) struct Cursor<'a> {
    pub(super) remaining: &'a [u8],
    /// Number of values that may still be read.
    values: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn over(bytes: &'a [u8]) -> Cursor<'a> {
        let values = bytes.len().saturating_mul(VALUES_A_BYTE);
        Cursor {
            remaining: bytes,
            values: values.saturating_add(VALUES_FREE),
        }
    }

    fn take(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let (taken, left) = self.remaining.split_at_checked(count).ok_or("more bytes")?;
        self.remaining = left;
        Ok(taken)
    }

    /// A number in groups of seven bits, the sign in the lowest bit.
    pub(super) fn long(&mut self) -> Parsed<i64> {
        let mut raw: u64 = 0;
        for shift in (0..64).step_by(7) {
            let [byte, left @ ..] = self.remaining else {
                return Err("the rest of a number".into());
            };
            self.remaining = left;
            raw |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
            }
        }
        Err("a number of at most ten bytes".into())
    }

    fn count(&mut self) -> Parsed<usize> {
        usize::try_from(self.long()?).map_err(|_| "a count".to_owned())
    }

    fn bytes(&mut self) -> Parsed<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    fn text(&mut self) -> Parsed<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| "text in UTF-8".into())
    }

    /// Number of items of the next block of an array or map; `None` = end.
    fn block(&mut self) -> Parsed<Option<usize>> {
        let count = self.long()?;
        if count < 0 {
            // Their length in bytes follows, for readers that skip them.
            self.count()?;
        }
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| "a count")?;
        // Items without bytes would need unbounded memory.
        match count {
            0 => Ok(None),
            _ if count > self.remaining.len() => Err("as many items as are said".into()),
            _ => Ok(Some(count)),
        }
    }

    fn value(&mut self, of: &Type) -> Parsed<Value> {
        // The index of a union's type has a byte, and is not a value.
        if !matches!(of, Type::Union(_)) {
            let left = self.values.checked_sub(1);
            self.values = left.ok_or("fewer values for so many bytes")?;
        }
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
                for (name, of) in fields.iter() {
                    named.push((Arc::clone(name), self.value(of)?));
                }
                Value::Record(Record(named))
            }
        })
    }
}
