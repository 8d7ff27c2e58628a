//! The turn of who defines tables and fields, and the looks at integers that become floats.
//!
//! Invariants: one at a time defines. A look that is under way ends with the turn of who began it.
//! Concurrency: the turn is a lock that is waited for; writers ask for looks without it.

use crate::common::ids::TableId;
use crate::{Error, ErrorKind, Result};
use headwater_types::FieldId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who makes tables, adds fields or widens them, holds this from the first look at what there is
/// until the definitions are in force.
#[derive(Debug, Default)]
pub(crate) struct Defining {
    lock: Mutex<()>,
    /// Some field is being looked at: writers check their integers at the door.
    any: AtomicBool,
    state: Mutex<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    under_way: HashSet<(TableId, FieldId)>,
    inexact: HashSet<(TableId, FieldId)>,
}

/// What is being defined: until it is dropped, nobody else defines.
pub(crate) struct Turn<'a> {
    defining: &'a Defining,
    _guard: MutexGuard<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.defining.state.lock().under_way.clear();
        self.defining.any.store(false, Ordering::Release);
    }
}

impl Defining {
    /// Waits for one's turn, for so long at most.
    pub(crate) fn begin(&self, patience: Duration) -> Result<Turn<'_>> {
        let guard = self.lock.try_lock_for(patience);
        let guard = guard.ok_or_else(|| {
            Error::new(
                ErrorKind::Busy,
                "other writers are defining tables and fields, and do not get on: try again later",
            )
        })?;
        Ok(Turn {
            defining: self,
            _guard: guard,
        })
    }

    /// Begins a look at a field: from now on writers check their integers for it at the door.
    pub(crate) fn begin_look(&self, table: TableId, field: FieldId) {
        self.state.lock().under_way.insert((table, field));
        self.any.store(true, Ordering::Release);
    }

    /// Remembers what a look found.
    pub(crate) fn end_look(&self, table: TableId, field: FieldId, is_exact: bool) {
        let key = (table, field);
        let mut state = self.state.lock();
        if is_exact {
            state.inexact.remove(&key);
        } else {
            state.inexact.insert(key);
            state.under_way.remove(&key);
        }
    }

    /// True when a look found an integer in the field that a float does not hold.
    pub(crate) fn was_inexact(&self, table: TableId, field: FieldId) -> bool {
        self.state.lock().inexact.contains(&(table, field))
    }

    /// True while a look at the field is not followed by its definition.
    pub(crate) fn is_under_way(&self, table: TableId, field: FieldId) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().under_way.contains(&(table, field))
    }

    /// True while integers are checked at the door.
    pub(crate) fn any_look(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}
