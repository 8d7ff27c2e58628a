//! Clocks, randomness and threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater_io::{
    Chance, Clock, Env, ManualClock, NoThreads, SeededChance, SystemChance, SystemClock,
    SystemThreads, Threads,
};
use headwater_types::Timestamp;

#[test]
fn the_system_clock_is_past_2024_and_monotonic() {
    let clock = SystemClock::new();
    assert!(clock.now() > Env::MEMORY_START);
    let first = clock.monotonic();
    assert!(clock.monotonic() >= first);
}

#[test]
fn a_manual_clock_moves_only_when_told() {
    let clock = ManualClock::new(Timestamp::from_nanos(100));
    assert_eq!(clock.now().as_nanos(), 100);
    clock.advance(Duration::from_nanos(50));
    assert_eq!(
        (clock.now().as_nanos(), clock.monotonic().as_nanos()),
        (150, 50)
    );
    clock.set(Timestamp::from_nanos(-7));
    assert_eq!(
        (clock.now().as_nanos(), clock.monotonic().as_nanos()),
        (-7, 50)
    );
    clock.set(Timestamp::MAX);
    clock.advance(Duration::MAX);
    assert_eq!(
        (clock.now(), clock.monotonic()),
        (Timestamp::MAX, Duration::MAX)
    );
}

#[test]
fn the_memory_environment_is_the_same_every_time() {
    let (first, second) = (Env::memory(), Env::memory());
    assert_eq!(first.clock.now(), second.clock.now());
    assert_eq!(first.chance.next_u64(), second.chance.next_u64());
    assert!(first.threads.spawn("x", Box::new(|| ())).unwrap().is_none());
}

#[test]
fn chances_differ_by_seed_and_from_number_to_number() {
    let (a, b) = (SeededChance::new(0), SeededChance::new(1));
    let first = a.next_u64();
    assert_ne!(first, b.next_u64());
    assert_ne!(first, a.next_u64());
    let system = SystemChance::new();
    assert_ne!(system.next_u64(), system.next_u64());
}

#[test]
fn a_thread_runs_its_body_under_its_name() {
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    let body = move || {
        seen.store(
            std::thread::current().name() == Some("flusher"),
            Ordering::SeqCst,
        )
    };
    let joiner = SystemThreads
        .spawn("flusher", Box::new(body))
        .unwrap()
        .unwrap();
    assert!(joiner.join());
    assert!(ran.load(Ordering::SeqCst));
}

#[test]
fn a_panic_shows_when_joining() {
    let joiner = SystemThreads
        .spawn(
            "unlucky",
            Box::new(|| std::panic::resume_unwind(Box::new(()))),
        )
        .unwrap();
    assert!(!joiner.unwrap().join());
}

#[test]
fn a_thread_name_with_a_nul_byte_is_refused() {
    let refused = SystemThreads.spawn("a\0b", Box::new(|| ()));
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
}

#[test]
fn without_threads_a_body_is_not_run() {
    let body = || panic!("there are no threads");
    assert!(NoThreads.spawn("x", Box::new(body)).unwrap().is_none());
}
