//! Definition of a watch, as a database stores it.
//!
//! Invariants: ids are never reused, so that events of an earlier watch of the same name are not
//! taken for events of this one. A definition is the statement that created it, and is parsed again
//! at each use.
//! Concurrency: plain data.
//! Failure: invalid bytes are an error that says where.

use crate::event::text;
use headwater_codec::{Cursor, DecodeError, PutBytes, checksum::crc32c};
use sha2::{Digest, Sha256};

const VERSION: u8 = 1;
const WATCHES_MAX: u64 = 100_000;

/// A watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Permanent id; never reused.
    pub id: u64,
    /// Name of the watch.
    pub name: String,
    /// Id of the token that created the watch; `None` if tokens were not in use.
    pub owner: Option<String>,
    /// Wall-clock time of the creation.
    pub created_ns: i64,
    /// Matches that begin before this time are not reported.
    pub since_ns: i64,
    /// The table whose rows the watch reads.
    pub table: String,
    /// Hash of the owner's read rights when the watch was created.
    pub rights: String,
    /// The statement that created the watch.
    pub statement: String,
}

/// Hash of a session's read rights, given their key as text; changes when the rights change.
#[must_use]
pub fn rights_of(key: Option<&str>) -> String {
    let hash = key.map(|key| Sha256::digest(key.as_bytes()));
    hash.map_or_else(String::new, |hash| crate::signature::hex(&hash))
}

/// Encodes definitions as bytes.
#[must_use]
pub fn encode_definitions(all: &[Definition]) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.put_varint(u64::try_from(all.len()).unwrap_or(u64::MAX));
    for one in all {
        out.put_u64(one.id);
        out.put_prefixed(one.name.as_bytes());
        match &one.owner {
            None => out.push(0),
            Some(owner) => {
                out.push(1);
                out.put_prefixed(owner.as_bytes());
            }
        }
        out.put_i64(one.created_ns);
        out.put_i64(one.since_ns);
        out.put_prefixed(one.table.as_bytes());
        out.put_prefixed(one.rights.as_bytes());
        out.put_prefixed(one.statement.as_bytes());
    }
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

/// Decodes bytes that [`encode_definitions`] wrote.
///
/// # Errors
/// When the bytes are not valid definitions.
pub fn decode_definitions(bytes: &[u8]) -> Result<Vec<Definition>, DecodeError> {
    let body = bytes.len().saturating_sub(4);
    let (body, crc) = bytes.split_at(body);
    if Cursor::new(crc).u32("a checksum")? != crc32c(body) {
        return Err(Cursor::new(body).expected("bytes that match their checksum"));
    }
    let mut from = Cursor::new(body);
    if from.u8("a version")? != VERSION {
        return Err(from.expected("version 1"));
    }
    let count = from.varint_up_to(WATCHES_MAX, "the number of watches")?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(Definition {
            id: from.u64("an id")?,
            name: text(&mut from, "a name")?,
            owner: match from.u8("the flag of an owner")? {
                0 => None,
                1 => Some(text(&mut from, "an owner")?),
                _ => return Err(from.expected("0 or 1")),
            },
            created_ns: from.i64("the creation time of a watch")?,
            since_ns: from.i64("the start time of a watch")?,
            table: text(&mut from, "a table")?,
            rights: text(&mut from, "rights")?,
            statement: text(&mut from, "a statement")?,
        });
    }
    from.finish()?;
    Ok(all)
}
