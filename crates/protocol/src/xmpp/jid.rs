//! Addresses: `north@plant.example`, or a domain alone, with an optional resource after a slash.
//!
//! Invariants: an address needs no folding of letters beyond ASCII; so two that are equal to a
//! server are equal here. Concurrency: plain data. Failure: [`JidError`].

use std::fmt;
use std::str::FromStr;

const PART_MAX: usize = 255;

/// Reason why a text is not a valid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an XMPP address: expected NAME@DOMAIN, the name and the domain of letters a to z, digits, dots, dashes and underscores"
)]
pub struct JidError(String);

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jid {
    local: String,
    domain: String,
    resource: String,
}

fn is_part(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    (1..=PART_MAX).contains(&text.len()) && text.chars().all(is_plain)
}

impl FromStr for Jid {
    type Err = JidError;

    fn from_str(text: &str) -> Result<Jid, JidError> {
        let (bare, resource) = text.split_once('/').unwrap_or((text, ""));
        let (local, domain) = bare.split_once('@').unwrap_or(("", bare));
        let is_local = local.is_empty() != bare.contains('@');
        let is_resource = resource.len() <= 1023
            && resource.is_empty() != text.contains('/')
            && !resource.chars().any(char::is_control);
        let is_domain = is_part(domain.trim_start_matches('[').trim_end_matches(']'));
        let is_fine = is_local && is_domain && is_resource && (local.is_empty() || is_part(local));
        is_fine
            .then(|| Jid {
                local: local.to_ascii_lowercase(),
                domain: domain.to_ascii_lowercase(),
                resource: resource.to_owned(),
            })
            .ok_or_else(|| JidError(text.to_owned()))
    }
}

impl fmt::Display for Jid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.local.is_empty() {
            write!(f, "{}@", self.local)?;
        }
        f.write_str(&self.domain)?;
        if !self.resource.is_empty() {
            write!(f, "/{}", self.resource)?;
        }
        Ok(())
    }
}

impl Jid {
    /// Part before the @; empty for a domain alone.
    #[must_use]
    pub fn local(&self) -> &str {
        &self.local
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The same without a resource.
    #[must_use]
    pub fn bare(&self) -> Jid {
        Jid {
            resource: String::new(),
            ..self.clone()
        }
    }
}
