//! Handles: numbers by which callers refer to objects.
//!
//! A handle is the slot of its object and the generation of that slot, which rises with every
//! object that leaves it. So a released handle is recognised, however often its slot was taken
//! since, and one of another kind too: undefined behaviour with pointers is an error here.
//!
//! Invariants: 0 is no handle. A slot whose generation is used up is not used again. An object
//! lives while its handle is not released, and then while calls that began before use it.
//! Concurrency: [`SHELVES`] locks, each locked for a read or a change of one slot.
//! Failure: `HW_HANDLE`.

use crate::status::{Failure, HW_HANDLE, Outcome, guard, hw_error};
use std::any::Any;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Locks over which the objects are spread.
const SHELVES: u32 = 16;
const SHELF_BITS: u32 = SHELVES.trailing_zeros();
/// Slots of a shelf.
const SLOTS_MAX: usize = 1 << (32 - SHELF_BITS);

/// Object behind a handle, one type for each kind.
pub(crate) trait Handled: Any + Send + Sync {
    /// The kind with its article, for messages.
    const KIND: &'static str;
    /// Whether `hw_close` takes it, and `hw_release` does not.
    const IS_DATABASE: bool = false;
}

/// Object of one handle.
pub(crate) struct Object {
    kind: &'static str,
    is_database: bool,
    object: Arc<dyn Any + Send + Sync>,
}

impl Object {
    /// Whether it is of a kind.
    pub(crate) fn is<T: Handled>(&self) -> bool {
        self.object.is::<T>()
    }

    /// The object as a type, unless it is of another kind.
    pub(crate) fn into<T: Handled>(self) -> Option<Arc<T>> {
        self.object.downcast().ok()
    }
}

struct Slot {
    generation: u32,
    object: Option<Object>,
}

struct Shelf {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

static TABLE: [RwLock<Shelf>; SHELVES as usize] = [const {
    RwLock::new(Shelf {
        slots: Vec::new(),
        free: Vec::new(),
    })
}; SHELVES as usize];
static NEXT_SHELF: AtomicU32 = AtomicU32::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

/// The parts of a handle: its shelf, its slot there, its generation.
fn split(handle: u64) -> (usize, usize, u32) {
    let slot = handle as u32;
    let shelf = slot & (SHELVES - 1);
    (
        shelf as usize,
        (slot >> SHELF_BITS) as usize,
        (handle >> 32) as u32,
    )
}

fn refused(handle: u64, expected: &str, found: &str) -> Failure {
    Failure::new(
        HW_HANDLE,
        format!("handle {handle:#x}: expected {expected}, found {found}"),
    )
}

/// The description of a handle without an object.
fn absence(handle: u64) -> &'static str {
    if handle == 0 {
        "0, which is not a handle"
    } else {
        "a handle that was released or never created"
    }
}

/// Keeps an object; gives its handle.
fn insert(object: Object) -> u64 {
    let shelf = NEXT_SHELF.fetch_add(1, Ordering::Relaxed) % SHELVES;
    // Nothing panics while a shelf is being changed, so that it is whole even if the lock says
    // otherwise.
    let mut held = TABLE[shelf as usize]
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    let index = match held.free.pop() {
        Some(index) => index,
        None => {
            // A handle has no bits for more.
            assert!(
                held.slots.len() < SLOTS_MAX,
                "more than 4 billion handles are open: release some"
            );
            held.slots.push(Slot {
                generation: 1,
                object: None,
            });
            (held.slots.len() - 1) as u32
        }
    };
    let slot = &mut held.slots[index as usize];
    slot.object = Some(object);
    let handle = u64::from(slot.generation) << 32 | u64::from(index << SHELF_BITS | shelf);
    drop(held);
    LIVE.fetch_add(1, Ordering::Relaxed);
    handle
}

/// Keeps an object; gives its handle and the object.
pub(crate) fn register<T: Handled>(object: T) -> (u64, Arc<T>) {
    let object = Arc::new(object);
    let handle = insert(Object {
        kind: T::KIND,
        is_database: T::IS_DATABASE,
        object: Arc::clone(&object) as _,
    });
    (handle, object)
}

/// Keeps a result that is only released by its handle; gives its handle and the result.
pub(crate) fn register_result<T: Any + Send + Sync>(result: T) -> (u64, Arc<T>) {
    let result = Arc::new(result);
    let handle = insert(Object {
        kind: "a result",
        is_database: false,
        object: Arc::clone(&result) as _,
    });
    (handle, result)
}

/// The object behind a handle.
pub(crate) fn get<T: Handled>(handle: u64) -> Outcome<Arc<T>> {
    let (shelf, index, generation) = split(handle);
    let held = TABLE[shelf].read().unwrap_or_else(PoisonError::into_inner);
    let object = held
        .slots
        .get(index)
        .filter(|slot| slot.generation == generation)
        .and_then(|slot| slot.object.as_ref());
    match object {
        None => Err(refused(handle, T::KIND, absence(handle))),
        Some(object) => Arc::clone(&object.object)
            .downcast()
            .map_err(|_| refused(handle, T::KIND, object.kind)),
    }
}

/// Takes the object from behind a handle, if it is one that the caller wants.
pub(crate) fn remove(
    handle: u64,
    expected: &str,
    is_wanted: impl FnOnce(&Object) -> bool,
) -> Outcome<Object> {
    let (shelf, index, generation) = split(handle);
    let mut held = TABLE[shelf].write().unwrap_or_else(PoisonError::into_inner);
    let slot = held
        .slots
        .get_mut(index)
        .filter(|slot| slot.generation == generation);
    let Some(slot) = slot else {
        return Err(refused(handle, expected, absence(handle)));
    };
    let object = match slot.object.take() {
        None => return Err(refused(handle, expected, absence(handle))),
        Some(object) if is_wanted(&object) => object,
        Some(object) => {
            let found = object.kind;
            slot.object = Some(object);
            return Err(refused(handle, expected, found));
        }
    };
    if let Some(next) = slot.generation.checked_add(1) {
        slot.generation = next;
        held.free.push(index as u32);
    }
    drop(held);
    LIVE.fetch_sub(1, Ordering::Relaxed);
    Ok(object)
}

/// Releases a handle of any kind but a database's, which hw_close takes, and what its result points
/// to. Calls that other threads have begun with it end well. A handle that was released already is
/// HW_HANDLE, never a crash.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_release(handle: u64, error: *mut hw_error) -> i32 {
    guard(error, || {
        let expected = "an open handle (a database is closed with hw_close)";
        let object = remove(handle, expected, |object| !object.is_database)?;
        // Outside of the lock: the last user of a snapshot or a scan does some work.
        drop(object);
        Ok(())
    })
}

/// Handles that were given out and not released, databases included: for tests of leaks.
#[unsafe(no_mangle)]
pub extern "C" fn hw_handle_count() -> u64 {
    LIVE.load(Ordering::Relaxed)
}
