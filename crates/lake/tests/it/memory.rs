//! How much memory a write takes.

use crate::support::{Bench, Dice, START, options};
use headwater::{Batch, StreamName};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what each thread takes and gives back, and the most of it.
struct Counting;

thread_local! {
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that ends has no counter any more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

#[allow(
    unsafe_code,
    reason = "an allocator is unsafe; this one passes on to the system's"
)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that a thread held while it did something, beyond what it held before.
fn most_held(work: impl FnOnce()) -> isize {
    let before = HELD.get().0;
    HELD.set((before, before));
    work();
    HELD.get().1 - before
}

#[test]
fn a_day_of_a_million_rows_is_never_held_as_a_whole() {
    let bench = Bench::new();
    let mut dice = Dice(3);
    for part in 0..100i64 {
        let mut batch = Batch::new();
        let stream = StreamName::new("wide", [("id", (part % 4).to_string())]);
        let entry = batch.stream(&stream);
        for at in 0..10_000 {
            let time = START + (part * 10_000 + at) * 50_000;
            let text = format!(
                "{:016x}{:016x}{:016x}",
                dice.next(),
                dice.next(),
                dice.next()
            );
            let value = dice.next() as f64;
            let fields = [("v", value.into()), ("text", text.as_str().into())];
            entry.row(time, fields).unwrap();
        }
        bench.db().commit(batch).unwrap();
    }
    bench.db().flush().unwrap();
    let mut options = options();
    options.row_group_bytes = 1 << 20;
    let mut told = None;
    let most = most_held(|| told = Some(bench.write_with(&options).unwrap()));
    let told = told.unwrap();
    assert_eq!(
        (told.tables[0].rows, told.tables[0].files),
        (1_000_000, 1),
        "{told:?}"
    );
    // Its rows are 64 bytes each.
    assert!(most < 24 << 20, "{most} bytes at once");
    let snapshot = bench.db().snapshot().unwrap();
    let verified = headwater_lake::verify(&snapshot, &bench.lake(), false).unwrap();
    assert!(
        verified.is_sound() && verified.tables[0].days == 1,
        "{verified:?}"
    );
}
