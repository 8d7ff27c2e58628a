//! Registry of the active watches, each with its file.
//!
//! Invariant: an event is in the file of its watch before any listener receives it. Concurrency: a
//! lock for each watch, locked while its file is written, on threads that may block. Failure: an
//! event that cannot be written is not delivered, and the match fails with the error.

mod active;
mod metrics;

pub(crate) use active::{ActiveWatch, Stopped, event_json};
pub(crate) use metrics::WatchMetrics;

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Active watches, by name.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: RwLock<BTreeMap<String, Arc<ActiveWatch>>>,
    pub(crate) metrics: WatchMetrics,
}

impl Watches {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<ActiveWatch>> {
        self.all.read().get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ActiveWatch>> {
        self.all.read().values().cloned().collect()
    }

    pub(crate) fn put(&self, followed: Arc<ActiveWatch>) {
        let name = followed.watch().definition().name.clone();
        self.all.write().insert(name, followed);
        self.count();
    }

    /// Removes the watches that are not selected, and returns them.
    pub(crate) fn retain(&self, wanted: impl Fn(&ActiveWatch) -> bool) -> Vec<Arc<ActiveWatch>> {
        let mut gone = Vec::new();
        self.all.write().retain(|_, followed| {
            let stays = wanted(followed);
            if !stays {
                gone.push(Arc::clone(followed));
            }
            stays
        });
        self.count();
        gone
    }

    fn count(&self) {
        let count = i64::try_from(self.all.read().len()).unwrap_or(i64::MAX);
        self.metrics.watches.set(count);
    }
}
