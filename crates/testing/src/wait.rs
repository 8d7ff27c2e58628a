//! Waiting for something that happens elsewhere, and free ports.

use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Waits for something that happens elsewhere; far longer than it takes, because a test reports the
/// outcome, not the speed of the machine.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        let waited = begun.elapsed();
        assert!(
            waited < Duration::from_secs(180),
            "waited {waited:?} until {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A loopback port that nobody listens at now. Somebody else may take it before the caller does:
/// then the caller's start fails.
pub fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}
