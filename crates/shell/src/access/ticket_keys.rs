//! Trusted keys of tickets, each with its databases.
//!
//! Invariants: a key is trusted because a setting names it, or because a client with a token that
//! reads everything presented it: such a token could read everything anyway. Concurrency: plain
//! data.

use super::ticket::{Audience, PublicKey};

/// Maximum keys that are trusted because of a token.
const SHOWN_MAX: usize = 16;

/// A key that was presented with a token.
#[derive(Debug, PartialEq, Eq)]
struct PresentedKey {
    key: PublicKey,
    /// The id of the token.
    by: String,
}

/// Trusted keys of tickets, each with its databases.
#[derive(Debug, Default)]
pub(super) struct TicketKeys {
    pub(super) audience: Option<Audience>,
    /// Keys trusted by a setting.
    pub(super) set: Vec<PublicKey>,
    /// Keys trusted because of tokens, the oldest first.
    shown: Vec<PresentedKey>,
}

impl TicketKeys {
    /// Trusts a key that was presented with a token.
    pub(super) fn show(&mut self, key: PublicKey, by: &str) {
        let shown = PresentedKey {
            key,
            by: by.to_owned(),
        };
        if self.shown.last() == Some(&shown) {
            return;
        }
        self.shown.retain(|other| other.key != key);
        if self.shown.len() >= SHOWN_MAX {
            self.shown.remove(0);
        }
        self.shown.push(shown);
    }

    /// Keys that are trusted; `holds` tells whether a token is valid.
    pub(super) fn trusted(&self, holds: impl Fn(&str) -> bool) -> Vec<PublicKey> {
        let shown = self.shown.iter().filter(|shown| holds(&shown.by));
        let shown = shown.map(|shown| shown.key);
        self.set.iter().copied().chain(shown).collect()
    }
}
