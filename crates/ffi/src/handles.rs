//! Handles: numbers behind which the objects stand that callers hold.
//!
//! A handle is the place of its object and the generation of that place, which rises with every
//! object that leaves it. So a handle that was released is known as such, however often its place
//! was taken since, and one of another kind too: what would be undefined behaviour with pointers is
//! an error here.
//!
//! Invariants: 0 is no handle. A place whose generation is used up is not used again. An object
//! lives while its handle is not released, and then while calls that began before use it.
//! Concurrency: [`SHELVES`] locks, each held for a look or a change of one place.
//! Failure: `HW_HANDLE`.

use crate::status::{Failure, HW_HANDLE, Outcome, guard, hw_error};
use std::any::Any;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Locks over which the objects are spread.
const SHELVES: u32 = 16;
const SHELF_BITS: u32 = SHELVES.trailing_zeros();
/// Places of a shelf.
const PLACES_MAX: usize = 1 << (32 - SHELF_BITS);

/// What may stand behind handles, one type for each kind.
pub(crate) trait Handled: Any + Send + Sync {
    /// The kind with its article, for messages.
    const KIND: &'static str;
    /// Whether `hw_close` takes it, and `hw_release` does not.
    const IS_DATABASE: bool = false;
}

/// What one handle stands for.
pub(crate) struct Object {
    kind: &'static str,
    is_database: bool,
    kept: Arc<dyn Any + Send + Sync>,
}

impl Object {
    /// Whether it is of a kind.
    pub(crate) fn is<T: Handled>(&self) -> bool {
        self.kept.is::<T>()
    }

    /// It as what it is, unless it is of another kind.
    pub(crate) fn into<T: Handled>(self) -> Option<Arc<T>> {
        self.kept.downcast().ok()
    }
}

struct Place {
    generation: u32,
    object: Option<Object>,
}

struct Shelf {
    places: Vec<Place>,
    free: Vec<u32>,
}

static TABLE: [RwLock<Shelf>; SHELVES as usize] = [const {
    RwLock::new(Shelf {
        places: Vec::new(),
        free: Vec::new(),
    })
}; SHELVES as usize];
static NEXT_SHELF: AtomicU32 = AtomicU32::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

/// Where a handle points: its shelf, its place there, its generation.
fn split(handle: u64) -> (usize, usize, u32) {
    let place = handle as u32;
    let shelf = place & (SHELVES - 1);
    (
        shelf as usize,
        (place >> SHELF_BITS) as usize,
        (handle >> 32) as u32,
    )
}

fn refused(handle: u64, expected: &str, found: &str) -> Failure {
    Failure::new(
        HW_HANDLE,
        format!("handle {handle:#x}: expected {expected}, found {found}"),
    )
}

/// What there is instead of the object.
fn absence(handle: u64) -> &'static str {
    if handle == 0 {
        "0, which is no handle"
    } else {
        "one that was released, or never given out"
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
            // A handle has no room for more.
            assert!(
                held.places.len() < PLACES_MAX,
                "more than 4 billion handles are out: release some"
            );
            held.places.push(Place {
                generation: 1,
                object: None,
            });
            (held.places.len() - 1) as u32
        }
    };
    let place = &mut held.places[index as usize];
    place.object = Some(object);
    let handle = u64::from(place.generation) << 32 | u64::from(index << SHELF_BITS | shelf);
    drop(held);
    LIVE.fetch_add(1, Ordering::Relaxed);
    handle
}

/// Keeps an object; gives its handle and the object.
pub(crate) fn put<T: Handled>(object: T) -> (u64, Arc<T>) {
    let object = Arc::new(object);
    let handle = insert(Object {
        kind: T::KIND,
        is_database: T::IS_DATABASE,
        kept: Arc::clone(&object) as _,
    });
    (handle, object)
}

/// Keeps a result that nobody asks for again; gives its handle and the result.
pub(crate) fn put_result<T: Any + Send + Sync>(result: T) -> (u64, Arc<T>) {
    let result = Arc::new(result);
    let handle = insert(Object {
        kind: "a result",
        is_database: false,
        kept: Arc::clone(&result) as _,
    });
    (handle, result)
}

/// The object behind a handle.
pub(crate) fn get<T: Handled>(handle: u64) -> Outcome<Arc<T>> {
    let (shelf, index, generation) = split(handle);
    let held = TABLE[shelf].read().unwrap_or_else(PoisonError::into_inner);
    let object = held
        .places
        .get(index)
        .filter(|place| place.generation == generation)
        .and_then(|place| place.object.as_ref());
    match object {
        None => Err(refused(handle, T::KIND, absence(handle))),
        Some(object) => Arc::clone(&object.kept)
            .downcast()
            .map_err(|_| refused(handle, T::KIND, object.kind)),
    }
}

/// Takes the object from behind a handle, if it is one that the caller wants.
pub(crate) fn take(
    handle: u64,
    expected: &str,
    is_wanted: impl FnOnce(&Object) -> bool,
) -> Outcome<Object> {
    let (shelf, index, generation) = split(handle);
    let mut held = TABLE[shelf].write().unwrap_or_else(PoisonError::into_inner);
    let place = held
        .places
        .get_mut(index)
        .filter(|place| place.generation == generation);
    let Some(place) = place else {
        return Err(refused(handle, expected, absence(handle)));
    };
    let object = match place.object.take() {
        None => return Err(refused(handle, expected, absence(handle))),
        Some(object) if is_wanted(&object) => object,
        Some(object) => {
            let found = object.kind;
            place.object = Some(object);
            return Err(refused(handle, expected, found));
        }
    };
    if let Some(next) = place.generation.checked_add(1) {
        place.generation = next;
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
        let expected = "one that is open (a database is closed with hw_close)";
        let object = take(handle, expected, |object| !object.is_database)?;
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
