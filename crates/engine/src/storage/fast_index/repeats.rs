//! All parts of segments that the fast tier repeats: their index, and the newest segments.
//!
//! Invariants: the index of a kind is only replaced as a whole, by a change of the layout.
//! Concurrency: a lock for each kind, held to look up the current index. Failure: none.

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

    /// Replaces the index of a kind, and returns the previous one.
    pub(crate) fn set(
        &self,
        what: RepeatKind,
        now: Option<Arc<FastIndex>>,
    ) -> Option<Arc<FastIndex>> {
        std::mem::replace(&mut *self.slot(what).write(), now)
    }

    /// The indexes of all kinds.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<FastIndex>> {
        RepeatKind::ALL
            .into_iter()
            .filter_map(|what| self.get(what))
    }
}
