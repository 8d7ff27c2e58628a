//! Owners with threads: every request is answered once, whatever happens to the sets.

use headwater_io::queue::{
    Direction, Order, PlacementRule, Purpose, Request, SetOptions, Sets, Work,
};
use headwater_io::{NoThreads, SystemThreads};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What became of each request.
#[derive(Default)]
struct Outcomes {
    answers: Mutex<BTreeMap<u64, Vec<&'static str>>>,
    changed: Condvar,
}

impl Outcomes {
    fn record(&self, number: u64, what: &'static str) {
        self.answers.lock().entry(number).or_default().push(what);
        self.changed.notify_all();
    }

    fn wait_for(&self, count: usize) {
        let mut answers = self.answers.lock();
        while answers.len() < count {
            self.changed.wait(&mut answers);
        }
    }
}

/// A gate that work stands before until it is opened.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        while !state.0 {
            self.changed.wait(&mut state);
        }
    }

    fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        while state.1 < count {
            self.changed.wait(&mut state);
        }
    }

    fn open(&self) {
        self.state.lock().0 = true;
        self.changed.notify_all();
    }
}

struct Job {
    number: u64,
    outcomes: Arc<Outcomes>,
    gate: Option<Arc<Gate>>,
    panics: bool,
    is_answered: bool,
}

impl Job {
    fn new(number: u64, told: &Arc<Outcomes>) -> Job {
        Job {
            number,
            outcomes: Arc::clone(told),
            gate: None,
            panics: false,
            is_answered: false,
        }
    }

    fn behind(mut self, gate: &Arc<Gate>) -> Job {
        self.gate = Some(Arc::clone(gate));
        self
    }

    fn panicking(mut self) -> Job {
        self.panics = true;
        self
    }
}

impl Work for Job {
    fn carry_out(mut self) {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        if self.panics {
            // Not `panic!`, which would print: tests read easier without.
            std::panic::resume_unwind(Box::new("a defect of the medium"));
        }
        self.is_answered = true;
        self.outcomes.record(self.number, "done");
    }

    fn refuse(mut self, _: io::Error) {
        self.is_answered = true;
        self.outcomes.record(self.number, "refused");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.is_answered {
            self.outcomes.record(self.number, "dropped");
        }
    }
}

fn options(sets: usize) -> SetOptions {
    SetOptions {
        sets,
        order: Order::ReadsFirst,
        rule: PlacementRule::LeastLoad,
        passes_max: 4,
        capacity: 8,
        // Everything is handed over.
        small_bytes_max: 0,
    }
}

fn read(stream: u64) -> Request {
    Request::of_caller(stream, 0, 512, Direction::Read)
}

#[test]
fn many_callers_are_all_answered_once() {
    let sets = Arc::new(Sets::start(&options(3), &SystemThreads).unwrap());
    let told = Arc::new(Outcomes::default());
    std::thread::scope(|scope| {
        for caller in 0..8_u64 {
            let (sets, told) = (&sets, &told);
            scope.spawn(move || {
                for n in 0..200 {
                    sets.submit(&read(n % 5), Job::new(caller * 1000 + n, told));
                }
            });
        }
    });
    assert!(sets.shut_down());
    let answers = told.answers.lock();
    assert_eq!(answers.len(), 1600);
    assert!(answers.values().all(|told| told == &["done"]));
}

#[test]
fn shutting_down_carries_out_what_waits_and_refuses_what_comes_later() {
    let sets = Arc::new(Sets::start(&options(1), &SystemThreads).unwrap());
    let (told, gate) = (Arc::new(Outcomes::default()), Arc::new(Gate::default()));
    sets.submit(&read(0), Job::new(0, &told).behind(&gate));
    gate.wait_for(1);
    for n in 1..=8 {
        sets.submit(&read(0), Job::new(n, &told));
    }
    // The set is full: one caller waits outside, another is sent away.
    assert!(sets.try_submit_to(0, &read(0), Job::new(9, &told)).is_err());
    let outside = {
        let (sets, told) = (Arc::clone(&sets), Arc::clone(&told));
        std::thread::spawn(move || sets.submit(&read(0), Job::new(10, &told)))
    };
    let down = {
        let sets = Arc::clone(&sets);
        std::thread::spawn(move || sets.shut_down())
    };
    // Until the shut-down has begun, the set is full. Then work is refused.
    while told.answers.lock().get(&10).is_none() {
        std::thread::yield_now();
    }
    gate.open();
    assert!(down.join().unwrap());
    outside.join().unwrap();
    sets.submit(&read(0), Job::new(11, &told));
    let answers = told.answers.lock();
    for n in 0..=8 {
        assert_eq!(answers[&n], ["done"], "{n}");
    }
    assert_eq!(answers[&9], ["dropped"], "it was given back");
    assert_eq!(answers[&10], ["refused"]);
    assert_eq!(answers[&11], ["refused"]);
}

#[test]
fn a_full_set_takes_more_when_there_is_room_again() {
    let sets = Arc::new(Sets::start(&options(1), &SystemThreads).unwrap());
    let (told, gate) = (Arc::new(Outcomes::default()), Arc::new(Gate::default()));
    sets.submit(&read(0), Job::new(0, &told).behind(&gate));
    gate.wait_for(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..40 {
                sets.submit(&read(0), Job::new(n, &told));
            }
        });
        gate.open();
        told.wait_for(40);
    });
    assert!(told.answers.lock().values().all(|told| told == &["done"]));
}

#[test]
fn work_that_panics_leaves_no_request_without_an_answer() {
    let sets = Sets::start(&options(2), &SystemThreads).unwrap();
    let (told, gate) = (Arc::new(Outcomes::default()), Arc::new(Gate::default()));
    sets.submit_to(0, &read(0), Job::new(0, &told).behind(&gate).panicking());
    gate.wait_for(1);
    for n in 1..5 {
        sets.submit_to(0, &read(0), Job::new(n, &told));
    }
    gate.open();
    told.wait_for(5);
    sets.submit_to(1, &read(0), Job::new(5, &told));
    sets.submit_to(0, &read(0), Job::new(6, &told));
    assert!(!sets.shut_down(), "an owner panicked");
    let answers = told.answers.lock();
    assert_eq!(answers[&0], ["dropped"]);
    for n in 1..5 {
        assert_eq!(answers[&n], ["refused"]);
    }
    assert_eq!(answers[&5], ["done"], "the other set goes on");
    assert_eq!(answers[&6], ["refused"]);
}

#[test]
fn a_small_request_of_an_idle_set_is_done_by_its_caller() {
    struct Where(Arc<Mutex<Vec<std::thread::ThreadId>>>);
    impl Work for Where {
        fn carry_out(self) {
            self.0.lock().push(std::thread::current().id());
        }
        fn refuse(self, why: io::Error) {
            panic!("{why}");
        }
    }
    let of = |small_bytes_max| {
        let options = SetOptions {
            small_bytes_max,
            ..options(1)
        };
        let sets = Sets::start(&options, &SystemThreads).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        sets.submit(&read(0), Where(Arc::clone(&seen)));
        let sync = Request {
            length: None,
            ..read(0)
        };
        sets.submit(&sync, Where(Arc::clone(&seen)));
        sets.shut_down();
        let seen = seen.lock();
        let here = std::thread::current().id();
        seen.iter().map(|id| *id == here).collect::<Vec<bool>>()
    };
    assert_eq!(of(512), [true, false], "a sync is never small");
    assert_eq!(of(511), [false, false]);
}

#[test]
fn without_threads_everything_is_called_directly() {
    let sets = Sets::start(&options(4), &NoThreads).unwrap();
    let told = Arc::new(Outcomes::default());
    for n in 0..100 {
        sets.submit(&read(n), Job::new(n, &told));
        assert_eq!(told.answers.lock()[&n], ["done"]);
    }
    assert!(sets.shut_down());
    sets.submit(&read(0), Job::new(100, &told));
    assert_eq!(told.answers.lock()[&100], ["refused"]);
}

/// Reads that come without end do not keep a flush from being carried out, with real owners.
#[test]
fn a_flush_is_carried_out_beside_readers_without_end() {
    let sets = Arc::new(Sets::start(&options(1), &SystemThreads).unwrap());
    let told = Arc::new(Outcomes::default());
    let running = AtomicUsize::new(1);
    std::thread::scope(|scope| {
        for reader in 0..3_u64 {
            let (sets, told, running) = (&sets, &told, &running);
            scope.spawn(move || {
                let mut n = 1;
                while running.load(Ordering::SeqCst) > 0 {
                    sets.submit(&read(0), Job::new(reader << 32 | n, told));
                    n += 1;
                }
            });
        }
        let flush = Request {
            purpose: Purpose::Flush,
            direction: Direction::Write,
            ..read(0)
        };
        for n in 0..20 {
            sets.submit(&flush, Job::new(1 << 60 | n, &told));
        }
        let mut answers = told.answers.lock();
        while !(0..20).all(|n| answers.contains_key(&(1 << 60 | n))) {
            told.changed.wait(&mut answers);
        }
        running.store(0, Ordering::SeqCst);
    });
}
