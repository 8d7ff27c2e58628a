//! Named snapshots: states of a database that last until they are dropped.
//!
//! Invariants: what is read as of a name is a snapshot as any other; its handle keeps what it
//! reads, also when the name is dropped meanwhile.
//! Concurrency: any number of threads; one is made at a time.
//! Failure: as the engine's; `HW_GONE` for one that ended by itself.

use crate::database::{Store, hw_db};
use crate::handles;
use crate::json;
use crate::snapshot::{View, hw_snapshot};
use crate::status::{guard, hw_error, out, write_result};
use crate::text::{hw_str, hw_text};
use std::sync::Arc;

/// Stores what memory holds and keeps the state of now under a name: it can be read until it is
/// dropped or ends by itself (hw_options.snapshot_age_max_ns, snapshot_bytes_max, a full disk).
/// text gets what it is as JSON, as in hw_snapshots; NULL = not returned. HW_INVALID for a bad
/// name, one that is taken, "now", and beyond 64 snapshots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_snapshot_create(
    db: hw_db,
    name: hw_str,
    text: *mut hw_text,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        if !text.is_null() {
            out(text, "text")?;
        }
        let store = handles::get::<Store>(db)?;
        let made = store.owner()?.create_snapshot(name.read("name")?)?;
        match text.is_null() {
            true => Ok(()),
            false => write_result(
                text,
                hw_text::make(json::snapshot(&made).to_string()),
                "text",
            ),
        }
    })
}

/// Drops the named snapshot; its files go when nobody reads them any more. HW_NOT_FOUND without it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_snapshot_drop(db: hw_db, name: hw_str, error: *mut hw_error) -> i32 {
    guard(error, || {
        let store = handles::get::<Store>(db)?;
        Ok(store.owner()?.drop_snapshot(name.read("name")?)?)
    })
}

/// The named snapshots as JSON: {"snapshots":[…],"ended":[…]}, each list with the oldest first. The
/// ones under "ended" ended by themselves, with the reason. Of a database opened read only: as of
/// the last look at it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_snapshots(db: hw_db, text: *mut hw_text, error: *mut hw_error) -> i32 {
    guard(error, || {
        out(text, "text")?;
        let (there, ended) = handles::get::<Store>(db)?.snapshots();
        let told = json::snapshots(&there, &ended).to_string();
        write_result(text, hw_text::make(told), "text")
    })
}

/// The state that a named snapshot keeps, to be read as any other snapshot. To end with hw_release,
/// which does not drop it. HW_NOT_FOUND without it, HW_GONE when it ended by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_snapshot_named(
    db: hw_db,
    name: hw_str,
    snapshot: *mut hw_snapshot,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(snapshot, "snapshot")?;
        let store = handles::get::<Store>(db)?;
        let found = store.snapshot_named(name.read("name")?)?;
        let view = View::new(found, Arc::downgrade(&store));
        write_result(snapshot, handles::register(view).0, "snapshot")
    })
}
