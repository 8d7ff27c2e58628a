//! The turn to define tables and fields, and the checks of integers that become floats.
//!
//! Invariants: one thread defines at a time. A check in progress ends with the turn of its thread.
//! Concurrency: the turn is a lock that is waited for; writers read the checks without it.

use crate::common::ids::TableId;
use crate::{Error, ErrorKind, Result};
use headwater_types::FieldId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Lock of changes of definitions: taken by every thread that makes tables, adds fields or widens
/// them, from the first look at existing ones until the new definitions are in force.
#[derive(Debug, Default)]
pub(crate) struct Defining {
    lock: Mutex<()>,
    /// Some field is being checked: writers check their integers before they enter.
    any: AtomicBool,
    state: Mutex<FieldChecks>,
}

#[derive(Debug, Default)]
struct FieldChecks {
    in_progress: HashSet<(TableId, FieldId)>,
    inexact: HashSet<(TableId, FieldId)>,
}

/// The turn to define: until it is dropped, no other thread defines.
pub(crate) struct Turn<'a> {
    defining: &'a Defining,
    _guard: MutexGuard<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.defining.state.lock().in_progress.clear();
        self.defining.any.store(false, Ordering::Release);
    }
}

impl Defining {
    /// Waits for the turn, at most `patience`.
    pub(crate) fn begin(&self, patience: Duration) -> Result<Turn<'_>> {
        let guard = self.lock.try_lock_for(patience);
        let guard = guard.ok_or_else(|| {
            Error::new(
                ErrorKind::Busy,
                "other writers are defining tables and fields and have not finished: try again later",
            )
        })?;
        Ok(Turn {
            defining: self,
            _guard: guard,
        })
    }

    /// Begins the check of a field: from now on writers check their integers for it before they
    /// enter.
    pub(crate) fn begin_look(&self, table: TableId, field: FieldId) {
        self.state.lock().in_progress.insert((table, field));
        self.any.store(true, Ordering::Release);
    }

    /// Remembers the result of a check.
    pub(crate) fn end_look(&self, table: TableId, field: FieldId, is_exact: bool) {
        let key = (table, field);
        let mut state = self.state.lock();
        if is_exact {
            state.inexact.remove(&key);
        } else {
            state.inexact.insert(key);
            state.in_progress.remove(&key);
        }
    }

    /// True when a check found an integer in the field that a float cannot represent.
    pub(crate) fn was_inexact(&self, table: TableId, field: FieldId) -> bool {
        self.state.lock().inexact.contains(&(table, field))
    }

    /// True while a check of the field is not followed by its definition.
    pub(crate) fn is_in_progress(&self, table: TableId, field: FieldId) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().in_progress.contains(&(table, field))
    }

    /// True while writers check integers.
    pub(crate) fn any_look(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}
