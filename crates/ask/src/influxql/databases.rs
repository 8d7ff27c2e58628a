//! The names under which clients made the one database there is.
//!
//! Invariants: a name is listed, and means nothing else; so many are remembered, for as long as the
//! process runs.
//! Concurrency: shared by all askers.

use std::collections::BTreeSet;
use std::sync::Mutex;

/// Names that are remembered.
const NAMES_MAX: usize = 256;
/// Bytes of one of them.
const NAME_BYTES_MAX: usize = 255;

/// Names that were given to the database.
#[derive(Debug, Default)]
pub struct Names(Mutex<BTreeSet<String>>);

impl Names {
    /// Remembers one more name, as long as there is room.
    pub(super) fn add(&self, name: &str) {
        let mut names = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if names.len() < NAMES_MAX && name.len() <= NAME_BYTES_MAX {
            names.insert(name.to_owned());
        }
    }

    /// All of them, in order.
    pub(super) fn list(&self) -> Vec<String> {
        let names = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        names.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_names_is_remembered() {
        let names = Names::default();
        names.add(&"x".repeat(NAME_BYTES_MAX + 1));
        for number in 0..NAMES_MAX + 5 {
            names.add(&format!("n{number}"));
            names.add("n0");
        }
        assert_eq!(names.list().len(), NAMES_MAX);
        assert!(names.list().contains(&"n0".to_owned()));
    }
}
