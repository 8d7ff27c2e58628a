//! Counting allocator of the process: the bytes that each thread has allocated and not freed.
//!
//! The memory that a function, a window or a join of the SQL library uses before its result is not
//! reported elsewhere. The allocator counts it, so that a statement ends before the machine's
//! memory is exhausted.
//!
//! Invariants: the counter of a thread is changed by that thread alone, and counting does not
//! change the behaviour of the inner allocator. Concurrency: no lock, no shared counter; a thread
//! that frees memory of another thread has a negative count.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    /// Must never allocate: it is used during allocations.
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
}

/// An allocator, for example the system's, with a counter for each thread. A program that serves
/// SQL installs it:
///
/// ```
/// use headwater_query::Counting;
/// use std::alloc::System;
/// #[global_allocator]
/// static ALLOCATOR: Counting<System> = Counting(System);
/// # fn main() {}
/// ```
///
/// Without it the memory of a statement is the sum of its operators' reservations and its
/// functions' results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting<A>(pub A);

fn count(bytes: usize, sign: i64) {
    // No allocation is larger than `isize::MAX`.
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    // A thread that ends may no longer have the counter; these bytes are not counted.
    let _ =
        ALLOCATED.try_with(|taken| taken.set(taken.get().wrapping_add(bytes.wrapping_mul(sign))));
}

// SAFETY: every call goes to the allocator within with the arguments that came, and its answer is
// given back as it is; counting takes no memory and cannot panic.
#[expect(unsafe_code, reason = "an allocator is unsafe by its nature")]
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of an allocator.
        let at = unsafe { self.0.alloc(layout) };
        if !at.is_null() {
            count(layout.size(), 1);
        }
        at
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let at = unsafe { self.0.alloc_zeroed(layout) };
        if !at.is_null() {
            count(layout.size(), 1);
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(at, layout) };
        count(layout.size(), -1);
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { self.0.realloc(at, layout, size) };
        if !moved.is_null() {
            count(layout.size(), -1);
            count(size, 1);
        }
        moved
    }
}

/// Bytes that this thread has allocated and not freed; zero if the allocator does not count.
pub(super) fn allocated() -> i64 {
    ALLOCATED.try_with(Cell::get).unwrap_or(0)
}
