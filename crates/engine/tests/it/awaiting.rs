//! Writes that are awaited: no thread a write, the same promises.

use crate::support::{Run, small_options};
use headwater_engine::{Database, ErrorKind, Options, ScanSpec, Ticket, Written};
use headwater_io::{Env, FaultKind, FaultyFiles, SystemThreads};
use headwater_types::{Batch, StreamName};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

fn stream() -> StreamName {
    StreamName::new("t", [("device", "1")])
}

fn batch(time: i64) -> Batch {
    let mut batch = Batch::new();
    batch
        .stream(&stream())
        .row(time, [("v", time.into())])
        .unwrap();
    batch
}

fn rows(db: &Database) -> usize {
    let scan = db.snapshot().unwrap().scan(&stream(), &ScanSpec::default());
    scan.unwrap().map(|chunk| chunk.unwrap().times.len()).sum()
}

/// Wakes this thread, and counts.
struct Unpark {
    thread: Thread,
    woken: AtomicU64,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Awaits all of them on this thread; gives the results and how often it was woken.
fn await_all(mut tickets: Vec<Ticket>) -> (Vec<Result<Written, headwater_engine::Error>>, u64) {
    let unpark = Arc::new(Unpark {
        thread: std::thread::current(),
        woken: AtomicU64::new(0),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    let mut results = Vec::new();
    while !tickets.is_empty() {
        tickets.retain_mut(|ticket| match Pin::new(ticket).poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                results.push(result);
                false
            }
        });
        if !tickets.is_empty() {
            std::thread::park();
        }
    }
    (results, unpark.woken.load(Ordering::SeqCst))
}

fn threaded(disk: &FaultyFiles) -> Database {
    let options = small_options();
    let mut env = Run::new(Arc::new(disk.clone()), &options).env;
    env.threads = Arc::new(SystemThreads);
    Database::open_in(env, options).unwrap()
}

#[test]
fn awaited_writes_share_syncs_and_are_seen_when_they_are_ready() {
    let db = threaded(&FaultyFiles::new(3));
    let before = db.stats().unwrap().log_syncs;
    let tickets: Vec<Ticket> = (0..500)
        .map(|time| db.write(batch(time)).unwrap())
        .collect();
    let (results, woken) = await_all(tickets);
    assert_eq!(results.len(), 500);
    assert!(results.into_iter().all(|r| r.unwrap().accepted == 1));
    assert_eq!(rows(&db), 500);
    let syncs = db.stats().unwrap().log_syncs - before;
    assert!((1..=500).contains(&syncs), "{syncs}");
    assert!(woken <= 500, "{woken}");
}

#[test]
fn an_awaited_write_that_fails_says_so() {
    let disk = FaultyFiles::new(4);
    let db = threaded(&disk);
    db.commit(batch(1)).unwrap();
    disk.fail_next(FaultKind::SyncError, 0);
    let tickets: Vec<Ticket> = (2..20).filter_map(|t| db.write(batch(t)).ok()).collect();
    assert!(!tickets.is_empty());
    let (results, _) = await_all(tickets);
    assert!(
        results
            .iter()
            .any(|r| matches!(r, Err(e) if e.kind() == ErrorKind::Closed)),
        "{results:?}"
    );
    assert_eq!(db.write(batch(30)).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn closing_answers_whoever_still_waits() {
    for round in 0..20 {
        let db = threaded(&FaultyFiles::new(round));
        let tickets: Vec<Ticket> = (0..50).map(|time| db.write(batch(time)).unwrap()).collect();
        let closing = std::thread::spawn({
            let db = db.clone();
            move || db.close()
        });
        let (results, _) = await_all(tickets);
        assert!(results.into_iter().all(|r| r.is_ok()));
        closing.join().unwrap().unwrap();
    }
}

#[test]
fn without_threads_polling_does_the_waiting() {
    let db = Database::open_in(Env::memory(), Options::new("/db")).unwrap();
    let mut ticket = db.write(batch(1)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(written) = Pin::new(&mut ticket).poll(&mut context) else {
        panic!("not ready");
    };
    assert_eq!(written.unwrap().accepted, 1);
    assert_eq!(rows(&db), 1);
}

#[test]
fn a_batch_that_requires_all_is_stored_whole_or_not_at_all() {
    let db = Database::open_in(Env::memory(), Options::new("/db")).unwrap();
    db.commit(batch(1)).unwrap();
    let mut mixed = batch(2);
    let other = StreamName::new("t", [("device", "2")]);
    let bad = mixed.stream(&other);
    bad.row(3, [("v", "text".into())]).unwrap();
    mixed.require_all();
    let written = db.commit(mixed.clone()).unwrap();
    assert_eq!((written.accepted, written.refused.len()), (0, 1));
    assert_eq!(rows(&db), 1);
    let mut good = batch(2);
    good.require_all();
    assert_eq!(db.commit(good).unwrap().accepted, 1);
    assert_eq!(rows(&db), 2);
}
