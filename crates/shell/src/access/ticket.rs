//! Tickets, with which a client is redirected from one node to another without a token, for five
//! minutes.
//!
//! Purpose: the node that decides where a query is answered signs the rights of the client there.
//! The page is `docs/cluster/tickets.md`, the bytes are `docs/format/ticket.md`.
//!
//! Invariants: a ticket allows reading only, on one route of one database, of the streams it names
//! (all if it does not name any), within the rules of its subject. A ticket is invalid without the
//! signature of a key that the checking node trusts, before its validity and after it. Concurrency:
//! plain data. Failure: a malformed ticket is refused; the reason is logged, not sent to the
//! client.

use data_encoding::BASE64URL_NOPAD;
pub use headwater_protocol::dispatch::{
    Database as Audience, SKEW_MAX, TICKET_STREAMS_MAX, TICKET_VALIDITY, Ticket,
};
pub use headwater_protocol::signature::PublicKey;
use headwater_protocol::signature::{self, SigningKey, is_signed_by};

/// Prefix of a ticket's text.
pub const TICKET_PREFIX: &str = "hwt1.";
/// Longest ticket as text, in bytes.
pub const TICKET_BYTES_MAX: usize = 16 << 10;

/// Prefix of the signed bytes, so that a signature of the key for another purpose is not valid for
/// a ticket.
const CONTEXT: &[u8] = b"headwater ticket 1\n";

/// Reason for refusing a ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// The text is not a ticket.
    #[error("not a valid ticket: {0}")]
    Garbled(String),
    /// The text is too long, or contains characters that tickets do not have.
    #[error("malformed ticket: too long, or invalid characters")]
    Text,
    /// No trusted key has signed it.
    #[error("the ticket is not signed by a trusted key")]
    Signature,
    /// Outside of its time, by the clock of this node.
    #[error("the ticket is not valid yet, or has expired")]
    Time,
    /// Issued for another database.
    #[error("the ticket is for another database")]
    Audience,
    /// Issued for another route.
    #[error("the ticket is for another route")]
    Route,
    /// The ticket's subject was revoked.
    #[error("the token of the ticket was revoked or has expired")]
    Revoked,
}

/// Key that signs tickets.
#[derive(Debug)]
pub struct TicketKey(SigningKey);

impl TicketKey {
    /// The key of a secret seed; `None` for an invalid seed.
    #[must_use]
    pub fn of_seed(seed: &[u8; 32]) -> Option<TicketKey> {
        SigningKey::of_seed(seed).map(TicketKey)
    }

    /// The key with which nodes check its signatures.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }

    /// The text of a ticket.
    #[must_use]
    pub fn sign(&self, ticket: &Ticket) -> String {
        let mut bytes = ticket.encode();
        self.0.sign(CONTEXT, &mut bytes);
        format!("{TICKET_PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

/// Verifies a ticket, and returns it with the key that signed it.
///
/// # Errors
/// [`TicketError::Text`], [`TicketError::Garbled`], [`TicketError::Signature`].
pub fn verified(text: &str, keys: &[PublicKey]) -> Result<(Ticket, PublicKey), TicketError> {
    let packed = text.strip_prefix(TICKET_PREFIX);
    let packed = packed.filter(|packed| packed.len() <= TICKET_BYTES_MAX);
    let bytes = packed.and_then(|packed| BASE64URL_NOPAD.decode(packed.as_bytes()).ok());
    let bytes = bytes.ok_or(TicketError::Text)?;
    let (body, signature) = signature::split(&bytes).ok_or(TicketError::Text)?;
    let is_of = |key: &&PublicKey| is_signed_by(key, CONTEXT, body, signature);
    let key = keys.iter().find(is_of).ok_or(TicketError::Signature)?;
    let ticket = Ticket::decode(body).map_err(|e| TicketError::Garbled(e.to_string()))?;
    Ok((ticket, *key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use headwater::{StreamName, Timestamp};

    fn ticket() -> Ticket {
        Ticket {
            issued_ns: 1_700_000_000_000_000_000,
            ends_ns: 1_700_000_300_000_000_000,
            audience: Audience {
                identity: 1,
                incarnation: 2,
            },
            route: "/api/v1/tiles".to_owned(),
            subject: "0a1b2c3d".to_owned(),
            list: 300,
            patterns: vec!["pumps,site=4".to_owned(), "*".to_owned()],
            streams: vec![StreamName::new("pumps", [("id", "7"), ("site", "4")])],
        }
    }

    fn key(seed: u8) -> TicketKey {
        TicketKey::of_seed(&[seed; 32]).unwrap()
    }

    #[test]
    fn a_ticket_has_the_text_it_always_had() {
        let text = key(1).sign(&ticket());
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ticket.txt");
        if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, format!("{text}\n")).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap().trim_end(), text);
        let (read, by) = verified(&text, &[key(2).public(), key(1).public()]).unwrap();
        assert_eq!((read, by), (ticket(), key(1).public()));
    }

    #[test]
    fn a_ticket_of_another_key_or_that_was_changed_is_refused() {
        let text = key(1).sign(&ticket());
        let keys = [key(1).public()];
        assert_eq!(
            verified(&text, &[key(2).public()]).unwrap_err(),
            TicketError::Signature
        );
        assert_eq!(verified(&text, &[]).unwrap_err(), TicketError::Signature);
        for at in TICKET_PREFIX.len()..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(verified(&changed, &keys).is_err(), "{at}");
        }
        for wrong in [
            "",
            "hwt1.",
            "hwt1.AAAA",
            "hwt2.AAAA",
            &text[..text.len() - 3],
        ] {
            assert!(verified(wrong, &keys).is_err(), "{wrong}");
        }
        let long = format!("{TICKET_PREFIX}{}", "A".repeat(TICKET_BYTES_MAX + 1));
        assert_eq!(verified(&long, &keys).unwrap_err(), TicketError::Text);
    }

    #[test]
    fn a_ticket_holds_for_its_time_and_two_minutes_of_other_clocks() {
        let at = |seconds: i64| {
            let ns = 1_700_000_000_000_000_000 + seconds * 1_000_000_000;
            ticket().is_valid_at(Timestamp::from_nanos(ns))
        };
        let holds = [-120, 0, 300, 420].map(at);
        assert_eq!(holds, [true; 4]);
        let holds = [-121, -600, 421, 900].map(at);
        assert_eq!(holds, [false; 4]);
        // A ticket with a longer validity than allowed is never valid.
        let long = Ticket {
            ends_ns: i64::MAX,
            ..ticket()
        };
        assert!(!long.is_valid_at(Timestamp::from_nanos(1_700_000_000_000_000_000)));
    }
}
