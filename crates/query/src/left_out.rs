//! Parts of the data that a statement did not read, since they cannot be read and its client allows
//! a partial answer.
//!
//! Invariants: parts are named only to clients that may read everything. Concurrency: plain data.
//! Failure: none.

use std::fmt;
use std::sync::Arc;

/// The largest number of parts whose names are listed.
const NAMED_MAX: usize = 3;

/// Name of a part, and the reason why it cannot be read.
type NameAndReason = (Arc<str>, Arc<str>);

/// Parts that a statement did not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Names with the reasons; shared, since each answer has them.
    parts: Option<Arc<[NameAndReason]>>,
    is_named: bool,
}

impl LeftOut {
    pub(crate) fn new(parts: Vec<NameAndReason>, is_named: bool) -> LeftOut {
        LeftOut {
            parts: (!parts.is_empty()).then(|| parts.into()),
            is_named,
        }
    }

    /// True when the statement read everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_none()
    }

    /// Names and reasons of the parts; empty for a client that may not read everything.
    pub fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        let parts = self.parts.as_deref().filter(|_| self.is_named);
        let parts = parts.unwrap_or_default().iter();
        parts.map(|(name, reason)| (&**name, &**reason))
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.parts.as_deref().map_or(0, <[_]>::len);
        let named = self.named().take(NAMED_MAX);
        let named: Vec<String> = named
            .map(|(name, reason)| format!("`{name}` ({reason})"))
            .collect();
        if named.is_empty() {
            let copies = if count == 1 { "copy" } else { "copies" };
            return write!(f, "{count} {copies} of databases");
        }
        f.write_str(&named.join(", "))?;
        match count.saturating_sub(named.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_to_clients_that_may_read_everything() {
        let parts = |count: usize| {
            let part = |at| (Arc::from(format!("e{at}")), Arc::from("damaged"));
            (0..count).map(part).collect::<Vec<_>>()
        };
        assert!(LeftOut::new(parts(0), true).is_empty());
        let all = LeftOut::new(parts(5), true);
        assert_eq!(
            all.to_string(),
            "`e0` (damaged), `e1` (damaged), `e2` (damaged) and 2 more"
        );
        assert_eq!(all.named().count(), 5);
        let unnamed = LeftOut::new(parts(5), false);
        assert!(!unnamed.is_empty());
        assert_eq!(unnamed.to_string(), "5 copies of databases");
        assert_eq!(unnamed.named().count(), 0);
        assert_eq!(
            LeftOut::new(parts(1), false).to_string(),
            "1 copy of databases"
        );
    }
}
