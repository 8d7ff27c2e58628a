//! Watches as the server follows them: who looks, who is told, who gets what.
//!
//! [`runner`] looks again whenever something was stored, and writes down what has to be told;
//! [`followed`] is a watch with its file; [`hook`] sends events to an address.
//!
//! Invariants: nobody is told of an event before it is in the file of its watch. A watch looks with
//! the rights that its owner has now, and stops when these are not those that it was made with. A
//! hook that does not answer keeps a place of [`hook::SENDING_MAX`] for a few seconds and nobody
//! else waiting.
//! Concurrency: one task looks, one watch after the other; a lock for each watch, held while its
//! file is written, which is done on threads that may wait.
//! Failure: a watch that cannot look, or whose file cannot be written, says why, tells nothing, and
//! tries again; what it did not tell then it finds again.

mod figures;
mod followed;
mod hook;
mod runner;

pub(crate) use figures::Figures;
pub(crate) use followed::{Followed, event_json};
pub(crate) use runner::{retry, run};

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

    fn put(&self, followed: Arc<Followed>) {
        let name = followed.watch().definition().name.clone();
        self.all.write().insert(name, followed);
        self.count();
    }

    /// Takes out those that are not wanted any more.
    fn retain(&self, wanted: impl Fn(&Followed) -> bool) -> Vec<Arc<Followed>> {
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
