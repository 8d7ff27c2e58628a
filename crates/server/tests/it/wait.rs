//! Waiting in tests.

use std::time::{Duration, Instant};

/// Waits for something that happens elsewhere; far longer than it takes, because a test tells what
/// is, not how fast the machine was.
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        let waited = begun.elapsed();
        assert!(
            waited < Duration::from_secs(120),
            "waited {waited:?} until {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
