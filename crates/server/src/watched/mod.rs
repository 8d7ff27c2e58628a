//! The watches that are followed, each with its file.
//!
//! Invariant: nobody is told of an event before it is in the file of its watch.
//! Concurrency: a lock for each watch, held while its file is written, which is done on threads
//! that may wait.
//! Failure: what cannot be written is told by nobody, and is an error to who found it.

mod figures;
mod followed;

pub(crate) use figures::Figures;
pub(crate) use followed::{Followed, Stopped, event_json};

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The watches that are followed, by name.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: RwLock<BTreeMap<String, Arc<Followed>>>,
    pub(crate) figures: Figures,
}

impl Watches {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Followed>> {
        self.all.read().get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Followed>> {
        self.all.read().values().cloned().collect()
    }

    pub(crate) fn put(&self, followed: Arc<Followed>) {
        let name = followed.watch().definition().name.clone();
        self.all.write().insert(name, followed);
        self.count();
    }

    /// Takes out those that are not wanted any more.
    pub(crate) fn retain(&self, wanted: impl Fn(&Followed) -> bool) -> Vec<Arc<Followed>> {
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
        self.figures.watches.set(count);
    }
}
