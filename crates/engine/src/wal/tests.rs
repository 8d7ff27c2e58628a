//! A thread that panics while it writes the log leaves no other thread waiting.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking, and panic on purpose"
)]

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// An empty log whose first file is announced to `record_start`.
fn log(record_start: StartRecorder) -> Log {
    let env = headwater_io::Env::memory();
    let dir = Path::new("/log");
    env.files.create_dir_all(dir).unwrap();
    let nothing = |_, _, _: &[u8], _: &Path, _| Ok(());
    let (needed, owner) = (Needed::default(), Access::Owner);
    let replayed = replay(&env.files, dir, 4096, needed, owner, nothing).unwrap();
    let durability = Durability::Synced;
    Log::new(replayed, Sequence(0), durability, record_start, env.clock)
}

#[test]
fn a_leader_that_panics_leaves_nobody_waiting() {
    let (begun, begins) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let log = log(Box::new(move |_| {
        begun.send(()).unwrap();
        goes_on.lock().recv().unwrap();
        panic!("an invariant does not hold");
    }));
    let first = log.enqueue(RecordKind::Write, vec![0; 8], false).unwrap();
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let lead = AssertUnwindSafe(|| log.wait_published(first));
            assert!(catch_unwind(lead).is_err());
        });
        begins.recv().unwrap();
        let second = log.enqueue(RecordKind::Write, vec![0; 8], false).unwrap();
        let follower = scope.spawn(|| log.wait_published(first));
        go_on.send(()).unwrap();
        leader.join().unwrap();
        let error = follower.join().unwrap().unwrap_err();
        assert!(
            error.to_string().contains("while it wrote the log"),
            "{error}"
        );
        assert!(log.wait_published(second).is_err());
    });
    assert!(log.enqueue(RecordKind::Write, vec![0; 8], false).is_err());
    assert!(!log.background_round(Duration::ZERO));
    assert_eq!(log.published(), Sequence(0), "nothing is acknowledged");
}

#[test]
fn a_writer_that_panics_before_its_events_are_in_memory_leaves_nobody_waiting() {
    let log = log(Box::new(|_| Ok(())));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _latch = log.latch_on_panic("put events into memory");
        log.enqueue(RecordKind::Write, vec![0; 8], true).unwrap();
        panic!("an invariant does not hold");
    }));
    assert!(panicked.is_err());
    assert!(log.wait_published(Sequence(1)).is_err());
    assert_eq!(log.published(), Sequence(0));
}
