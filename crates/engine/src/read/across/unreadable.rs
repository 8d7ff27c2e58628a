//! Parts that a node knows and cannot read.
//!
//! Invariants: an answer that such a part could change is an error that names the part.
//! Concurrency: immutable where it is shared.

use crate::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest number of parts that an error names.
const NAMED_MAX: usize = 3;

/// Names of the parts, with the reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadableParts(BTreeMap<Arc<str>, Arc<str>>);

impl UnreadableParts {
    pub(super) fn insert(&mut self, name: &str, reason: &str) {
        self.0.insert(name.into(), reason.into());
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let all = self.0.iter();
        all.map(|(name, reason)| (Arc::clone(name), Arc::clone(reason)))
            .collect()
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// The error of an answer that needs all parts; `None` where all can be read.
    pub(super) fn error(&self) -> Option<Error> {
        let named = self.0.iter().take(NAMED_MAX);
        let named: Vec<String> = named
            .map(|(name, reason)| format!("`{name}` ({reason})"))
            .collect();
        let more = match self.0.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| {
            Error::new(
                ErrorKind::Elsewhere,
                format!(
                    "the answer needs data that this node has and cannot read: {}{more}; repair them, or allow an answer without them",
                    named.join(", ")
                ),
            )
        })
    }
}
