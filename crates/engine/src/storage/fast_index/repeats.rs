//! All that the fast tier repeats of segments: their index, and the newest of them whole.
//!
//! Invariants: what is repeated of a part changes with the layout only, and as one.
//! Concurrency: a lock for each part, held to look which one there is.
//! Failure: none.

use super::{FastIndex, What};
use parking_lot::RwLock;
use std::sync::Arc;

/// What the fast tier repeats of segments.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    index: RwLock<Option<Arc<FastIndex>>>,
    newest: RwLock<Option<Arc<FastIndex>>>,
}

impl Repeats {
    fn slot(&self, what: What) -> &RwLock<Option<Arc<FastIndex>>> {
        match what {
            What::Index => &self.index,
            What::Newest => &self.newest,
        }
    }

    /// What there is of a part.
    pub(crate) fn get(&self, what: What) -> Option<Arc<FastIndex>> {
        self.slot(what).read().clone()
    }

    /// Puts something else in the place of a part, and gives what was there.
    pub(crate) fn set(&self, what: What, now: Option<Arc<FastIndex>>) -> Option<Arc<FastIndex>> {
        std::mem::replace(&mut *self.slot(what).write(), now)
    }

    /// All that there is.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<FastIndex>> {
        What::ALL.into_iter().filter_map(|what| self.get(what))
    }
}
