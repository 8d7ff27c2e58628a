//! Pins: stretches of time whose rows are all subscribed, regardless of the rules.
//!
//! Format: docs/format/copy.md.

use crate::{Error, Result};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::wide;
use headwater_types::{ClosedRange, Timestamp};

const VERSION: u8 = 1;

/// A stretch of time of some streams, with a subscription to all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The table.
    pub table: String,
    /// Tags that a stream must have, all of them; empty = every stream.
    pub tags: Vec<(String, String)>,
    /// The instants, both ends included.
    pub range: ClosedRange,
    /// Instant at which it expires; `None` = it is valid until it is removed.
    pub until: Option<Timestamp>,
}

impl Pin {
    pub(crate) fn check(&self) -> Result<()> {
        match self.table.is_empty() || self.range.is_empty() {
            false => Ok(()),
            true => Err(Error::invalid(
                "a pin needs a table and a range that does not end before it begins",
            )),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_prefixed(self.table.as_bytes());
        out.put_varint(wide(self.tags.len()));
        for (key, value) in &self.tags {
            out.put_prefixed(key.as_bytes());
            out.put_prefixed(value.as_bytes());
        }
        out.put_i64(self.range.first.as_nanos());
        out.put_i64(self.range.last.as_nanos());
        out.put_u8(u8::from(self.until.is_some()));
        if let Some(until) = self.until {
            out.put_i64(until.as_nanos());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Pin, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of a pin")? != VERSION {
            return Err(cursor.expected("a pin of version 1"));
        }
        let table = cursor.text("table of a pin")?.to_owned();
        let count = cursor.varint_up_to(wide(cursor.remaining()), "number of tags")?;
        let mut tags = Vec::new();
        for _ in 0..count {
            let key = cursor.text("tag key")?.to_owned();
            tags.push((key, cursor.text("tag value")?.to_owned()));
        }
        let first = cursor.i64("first instant of a pin")?;
        let last = cursor.i64("last instant of a pin")?;
        let until = match cursor.u8("end flag of a pin")? {
            0 => None,
            1 => Some(Timestamp::from_nanos(cursor.i64("end of a pin")?)),
            _ => return Err(cursor.expected("0 or 1")),
        };
        cursor.finish()?;
        Ok(Pin {
            table,
            tags,
            range: ClosedRange::nanos(first, last),
            until,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn pins_come_back_from_their_bytes_which_do_not_change() {
        let pin = Pin {
            table: "pumps".into(),
            tags: vec![("site".into(), "north".into())],
            range: ClosedRange::nanos(-5, 1 << 60),
            until: Some(Timestamp::from_nanos(77)),
        };
        let bytes = pin.encode();
        crate::golden::check("pin", &bytes);
        for pin in [
            &pin,
            &Pin {
                until: None,
                ..pin.clone()
            },
        ] {
            assert_eq!(Pin::decode(&pin.encode()).unwrap(), *pin);
        }
        for at in 0..bytes.len() {
            assert!(Pin::decode(&bytes[..at]).is_err());
        }
    }
}
