//! Snapshots: consistent views that never change.

use crate::database::{Store, hw_db, open_still};
use crate::handles::{self, Handled};
use crate::status::{Outcome, guard, hw_error, invalid, out, write_result};
use headwater::Snapshot;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A snapshot: everything acknowledged before it was taken, for any number of reads. Files and
/// memory stay in use while it lives, so hold it for a query and not for a day. To end with
/// hw_release. Where a function takes one, 0 = a new one for this call.
pub type hw_snapshot = u64;

/// A snapshot behind a handle.
pub(crate) struct View {
    snapshot: Snapshot,
    store: Weak<Store>,
}

impl View {
    pub(crate) fn new(snapshot: Snapshot, store: Weak<Store>) -> View {
        View { snapshot, store }
    }
}

impl Handled for View {
    const KIND: &'static str = "a snapshot";
}

/// The snapshot that a call reads: one that has a handle, or one of its own.
pub(crate) enum Sight {
    Shared(Arc<View>),
    Own(Snapshot),
}

impl Deref for Sight {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        match self {
            Sight::Shared(view) => &view.snapshot,
            Sight::Own(snapshot) => snapshot,
        }
    }
}

/// The snapshot behind a handle, or with 0 a new one, of the database `store`.
pub(crate) fn view_of(store: &Weak<Store>, handle: hw_snapshot) -> Outcome<Sight> {
    if handle == 0 {
        return Ok(Sight::Own(open_still(store)?.snapshot()?));
    }
    let view = handles::get::<View>(handle)?;
    if !Weak::ptr_eq(&view.store, store) {
        return Err(invalid("the snapshot belongs to another database"));
    }
    Ok(Sight::Shared(view))
}

/// A snapshot of everything acknowledged so far; of a database opened read only: as it was looked
/// at last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_snapshot_open(
    db: hw_db,
    snapshot: *mut hw_snapshot,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(snapshot, "snapshot")?;
        let store = handles::get::<Store>(db)?;
        let view = View::new(store.snapshot()?, Arc::downgrade(&store));
        write_result(snapshot, handles::register(view).0, "snapshot")
    })
}

/// The number of the newest record that a snapshot sees: it rises with every write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_snapshot_sequence(
    snapshot: hw_snapshot,
    sequence: *mut u64,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let view = handles::get::<View>(snapshot)?;
        write_result(sequence, view.snapshot.sequence(), "sequence")
    })
}
