//! Tickets, with which a node answers a redirected client, as bytes without their signature.
//!
//! Invariants: an encoded ticket is decoded to an equal one; malformed bytes are refused. A ticket
//! allows reading only. Concurrency: plain data. Format: docs/format/ticket.md.

use crate::dispatch::inventory::Database;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{StreamName, Timestamp};
use std::time::Duration;

/// Validity of a ticket.
pub const TICKET_VALIDITY: Duration = Duration::from_secs(300);
/// Tolerated difference between the clocks of two nodes.
pub const SKEW_MAX: Duration = Duration::from_secs(120);
/// Most streams that a ticket names.
pub const TICKET_STREAMS_MAX: usize = 64;
/// Most patterns of a ticket.
const PATTERNS_MAX: u64 = 1_000;

const VERSION: u8 = 1;
const READ: u8 = 1;

/// The signed content of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Time of issue, in nanoseconds since 1970.
    pub issued_ns: i64,
    /// Expiry of the ticket.
    pub ends_ns: i64,
    /// Database for which the ticket is valid.
    pub audience: Database,
    /// Route for which the ticket is valid, as named in the list of routes.
    pub route: String,
    /// Id of the subject's token.
    pub subject: String,
    /// Version of the token list in which the subject's token was.
    pub list: u64,
    /// Streams that the subject may read: patterns.
    pub patterns: Vec<String>,
    /// Restriction to these streams, if any.
    pub streams: Vec<StreamName>,
}

impl Ticket {
    /// Encoded ticket: the bytes that are signed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, READ];
        out.put_i64(self.issued_ns);
        out.put_i64(self.ends_ns);
        out.put_u64(self.audience.identity);
        out.put_u64(self.audience.incarnation);
        out.put_varint(self.list);
        out.put_prefixed(self.route.as_bytes());
        out.put_prefixed(self.subject.as_bytes());
        let texts = self.streams.iter().map(ToString::to_string);
        for list in [self.patterns.clone(), texts.collect()] {
            out.put_varint(u64::try_from(list.len()).unwrap_or(u64::MAX));
            for text in list {
                out.put_prefixed(text.as_bytes());
            }
        }
        out
    }

    /// Decodes the bytes of [`Ticket::encode`].
    ///
    /// # Errors
    /// If the bytes are not a valid ticket.
    pub fn decode(body: &[u8]) -> Result<Ticket, DecodeError> {
        let mut from = Cursor::new(body);
        if from.u8("a version")? != VERSION {
            return Err(from.expected("version 1"));
        }
        if from.u8("the right of a ticket")? != READ {
            return Err(from.expected("right 1, which is reading"));
        }
        let issued_ns = from.i64("the creation time")?;
        let ends_ns = from.i64("the expiry")?;
        let audience = Database {
            identity: from.u64("a database")?,
            incarnation: from.u64("its incarnation")?,
        };
        let list = from.varint("the version of a list")?;
        let route = from.text("a route")?.to_owned();
        let subject = from.text("a subject")?.to_owned();
        let count = from.varint_up_to(PATTERNS_MAX, "the number of patterns")?;
        let mut patterns = Vec::new();
        for _ in 0..count {
            patterns.push(from.text("a pattern")?.to_owned());
        }
        let most = u64::try_from(TICKET_STREAMS_MAX).unwrap_or(0);
        let count = from.varint_up_to(most, "the number of streams")?;
        let mut streams = Vec::new();
        for _ in 0..count {
            let name = StreamName::parse(from.text("a stream")?);
            streams.push(name.ok_or_else(|| from.expected("the name of a stream"))?);
        }
        from.finish()?;
        Ok(Ticket {
            issued_ns,
            ends_ns,
            audience,
            route,
            subject,
            list,
            patterns,
            streams,
        })
    }

    /// Whether the ticket is valid by a clock that may be off by [`SKEW_MAX`], and its lifetime is
    /// not longer than allowed.
    #[must_use]
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        let skew = nanos(SKEW_MAX);
        let now = now.as_nanos();
        let lasts = self.ends_ns.saturating_sub(self.issued_ns);
        (0..=nanos(TICKET_VALIDITY)).contains(&lasts)
            && now >= self.issued_ns.saturating_sub(skew)
            && now <= self.ends_ns.saturating_add(skew)
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
