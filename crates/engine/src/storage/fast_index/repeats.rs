//! All that the fast tier repeats of segments: their index, and the newest of them whole.
//!
//! Invariants: the index of a kind changes with the layout only, and as one.
//! Concurrency: a lock for each kind, held to look up the current one.
//! Failure: none.

use super::{FastIndex, RepeatKind};
use parking_lot::RwLock;
use std::sync::Arc;

/// The fast indexes of a database, by kind.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    index: RwLock<Option<Arc<FastIndex>>>,
    newest: RwLock<Option<Arc<FastIndex>>>,
}

impl Repeats {
    fn slot(&self, what: RepeatKind) -> &RwLock<Option<Arc<FastIndex>>> {
        match what {
            RepeatKind::Index => &self.index,
            RepeatKind::Newest => &self.newest,
        }
    }

    /// The index of a kind, if there is one.
    pub(crate) fn get(&self, what: RepeatKind) -> Option<Arc<FastIndex>> {
        self.slot(what).read().clone()
    }

    /// Replaces the index of a kind, and returns the one before.
    pub(crate) fn set(
        &self,
        what: RepeatKind,
        now: Option<Arc<FastIndex>>,
    ) -> Option<Arc<FastIndex>> {
        std::mem::replace(&mut *self.slot(what).write(), now)
    }

    /// All that there is.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<FastIndex>> {
        RepeatKind::ALL
            .into_iter()
            .filter_map(|what| self.get(what))
    }
}
