//! Requests that are answered by others, and by their waiters.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

use std::collections::VecDeque;

use super::*;

#[test]
fn a_request_is_done_when_it_is_answered_and_fails_when_it_is_given_up() {
    let (request, medium) = Completion::pending();
    assert!(!request.is_done());
    medium.complete(Ok(7));
    assert!(request.is_done());
    assert_eq!(request.wait().unwrap(), 7);
    let (request, medium) = Completion::<()>::pending();
    drop(medium);
    assert!(request.wait().is_err());
}

#[test]
fn who_is_to_be_told_of_a_failure_is_told_once_and_in_order() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = |name: &'static str| {
        let told = Arc::clone(&told);
        move |error: &io::Error| told.lock().push((name, error.to_string()))
    };
    let well = Completion::done(Ok(1)).inspect_err(tell("never"));
    assert_eq!(well.wait().unwrap(), 1);
    let (request, medium) = Completion::<()>::pending();
    let request = request.inspect_err(tell("first")).inspect_err(tell("then"));
    medium.complete(Err(io::Error::other("a page")));
    assert!(told.lock().is_empty(), "nobody waited");
    assert!(request.wait().is_err());
    let expected = ["first", "then"].map(|name| (name, "a page".to_owned()));
    assert_eq!(*told.lock(), expected);
}

/// A medium that returns its answers only when polled: one at a time, the newest first. Polling
/// with waiting while no request is in flight would wait forever; it panics instead.
#[derive(Debug, Default)]
struct Lazy {
    turns: Turns,
    pending: Mutex<VecDeque<Completer<u64>>>,
    numbers: Mutex<Vec<u64>>,
}

impl Lazy {
    fn submit(self: &Arc<Self>, number: u64) -> Completion<u64> {
        let (completion, completer) = Completion::driven(Arc::clone(self) as Arc<dyn Driven>);
        let mut asked = self.pending.lock();
        asked.push_back(completer);
        self.numbers.lock().push(number);
        completion
    }
}

impl Driven for Lazy {
    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn usable(&self) -> io::Result<()> {
        Ok(())
    }

    fn answer(&self, _turn: &Turn<'_>, wait: bool) -> io::Result<()> {
        let newest = {
            let mut asked = self.pending.lock();
            asked
                .pop_back()
                .map(|completer| (completer, self.numbers.lock().pop()))
        };
        match newest {
            Some((completer, number)) => completer.complete(Ok(number.expect("one each"))),
            None => assert!(!wait, "somebody waits for what was answered"),
        }
        Ok(())
    }
}

#[test]
fn whoever_waits_answers_the_requests_of_others_too() {
    let medium = Arc::new(Lazy::default());
    let (first, second) = (medium.submit(1), medium.submit(2));
    assert_eq!(first.wait().unwrap(), 1);
    assert!(medium.pending.lock().is_empty());
    assert_eq!(second.wait().unwrap(), 2);
}

#[test]
fn looking_at_a_request_carries_the_medium_on() {
    let medium = Arc::new(Lazy::default());
    let (first, second) = (medium.submit(1), medium.submit(2));
    assert!(!first.is_done());
    assert!(first.is_done());
    assert!(second.is_done());
}

#[test]
fn many_who_wait_are_all_answered() {
    let medium = Arc::new(Lazy::default());
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let medium = &medium;
            scope.spawn(move || {
                for round in 0..2_000 {
                    let number = thread * 10_000 + round;
                    let (one, two) = (medium.submit(number), medium.submit(number + 5_000));
                    assert_eq!(two.wait().unwrap(), number + 5_000);
                    assert_eq!(one.wait().unwrap(), number);
                }
            });
        }
    });
    assert!(medium.pending.lock().is_empty());
}
