//! The end in order: requests that have begun, then the work in the background, then the role.

use crate::role::AdderError;
use crate::support::{Running, client};
use headwater_testing::until;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn what_has_begun_ends_and_what_was_taken_in_is_dealt_with_before_the_role_closes() {
    let server = Running::start(|_, _| {});
    let tally = Arc::clone(&server.tally);
    let waiting = {
        let url = format!("http://{}/wait", server.addr);
        std::thread::spawn(move || client().get(url).call().unwrap().status().as_u16())
    };
    until("a request is being worked on", || {
        tally.waits.load(Ordering::SeqCst)
    });
    for _ in 0..100 {
        assert_eq!(server.post("/add", None, "1").0, 200);
    }
    server.begin_to_stop();
    until("no more connections are accepted", || {
        TcpStream::connect(server.addr).is_err()
            && TcpStream::connect(server.listener_addr).is_err()
    });
    assert!(!tally.closed.load(Ordering::SeqCst));
    tally.go_on.notify_waiters();
    assert_eq!(waiting.join().unwrap(), 200);
    server.stopped().unwrap();
    assert!(tally.closed.load(Ordering::SeqCst));
    assert_eq!(tally.sum.load(Ordering::SeqCst), 100);
}

#[test]
fn the_error_of_a_roles_end_is_told() {
    let server = Running::start(|_, _| {});
    server.tally.fails.store(true, Ordering::SeqCst);
    let told = AdderError("the sum is lost".to_owned());
    assert_eq!(server.stopped(), Err(told));
}
