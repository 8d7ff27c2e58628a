//! Lives of a schedule from seeds: requests arrive and end in random order, and after each step the
//! laws are checked against a plain list of what waits.

use headwater_io::queue::{Direction, Order, Purpose, Request, Schedule};
use headwater_io::{Chance, SeededChance};

/// What a list without queues knows of a request that waits.
struct Waiting {
    number: u64,
    rank: usize,
    /// Requests that came later and were started before it.
    passed: u64,
}

struct Simulated {
    chance: SeededChance,
    order: Order,
    passes_max: u64,
    capacity: usize,
    schedule: Schedule<u64>,
    waiting: Vec<Waiting>,
    next: u64,
    started: Vec<u64>,
}

impl Simulated {
    fn new(seed: u64) -> Simulated {
        let chance = SeededChance::new(seed);
        let order = [Order::ReadsFirst, Order::WritesFirst, Order::Arrival]
            [(chance.next_u64() % 3) as usize];
        let passes_max = chance.next_u64() % 12;
        let capacity = 1 + (chance.next_u64() % 40) as usize;
        Simulated {
            schedule: Schedule::new(order, passes_max, capacity),
            chance,
            order,
            passes_max,
            capacity,
            waiting: Vec::new(),
            next: 0,
            started: Vec::new(),
        }
    }

    fn below(&self, limit: u64) -> u64 {
        self.chance.next_u64() % limit
    }

    fn request(&self) -> Request {
        let direction = [Direction::Read, Direction::Write][self.below(2) as usize];
        Request {
            purpose: [
                Purpose::Log,
                Purpose::Caller,
                Purpose::Caller,
                Purpose::Flush,
                Purpose::Compaction,
            ][self.below(5) as usize],
            ..Request::of_caller(self.below(3), 0, 1, direction)
        }
    }

    fn arrive(&mut self) {
        let request = self.request();
        let taken = self.schedule.push(&request, self.next);
        assert_eq!(taken.is_ok(), self.waiting.len() < self.capacity);
        if taken.is_ok() {
            self.waiting.push(Waiting {
                number: self.next,
                rank: self.order.rank(&request),
                passed: 0,
            });
            self.next += 1;
        }
    }

    fn start(&mut self) {
        let was_busy = self.schedule.is_busy();
        let Some(number) = self.schedule.begin_next() else {
            assert!(was_busy || self.waiting.is_empty(), "it could have worked");
            return;
        };
        assert!(!was_busy);
        let at = self.waiting.iter().position(|w| w.number == number);
        let started = self.waiting.remove(at.expect("it waited"));
        let is_overdue = self.waiting.iter().any(|w| w.passed >= self.passes_max)
            || started.passed >= self.passes_max;
        for other in &mut self.waiting {
            assert!(
                other.rank >= started.rank || is_overdue,
                "a lower rank went first without need"
            );
            assert!(
                other.rank != started.rank || other.number > started.number,
                "equals go as they came"
            );
            if other.number < started.number {
                other.passed += 1;
                assert!(other.passed <= self.passes_max, "passed too often");
            }
        }
        self.started.push(number);
    }

    fn step(&mut self) {
        match self.below(5) {
            0 | 1 => self.arrive(),
            2 | 3 => self.start(),
            _ if self.schedule.is_busy() => self.schedule.done(),
            _ => {
                let was_idle = self.waiting.is_empty();
                assert_eq!(self.schedule.begin_if_idle(), was_idle);
            }
        }
        assert_eq!(self.schedule.waiting(), self.waiting.len());
    }
}

#[test]
fn no_life_breaks_a_law_of_the_schedule() {
    for seed in 0..400 {
        let mut life = Simulated::new(seed);
        for _ in 0..500 {
            life.step();
        }
        // In the end everything was started once.
        while !life.waiting.is_empty() {
            if life.schedule.is_busy() {
                life.schedule.done();
            }
            life.start();
        }
        life.started.sort_unstable();
        assert!(life.started.iter().copied().eq(0..life.next), "seed {seed}");
    }
}

/// The worst for a request of the lowest rank: reads without end.
#[test]
fn compaction_goes_on_under_reads_without_end() {
    let mut schedule = Schedule::new(Order::ReadsFirst, 8, 64);
    let compaction = Request {
        purpose: Purpose::Compaction,
        ..Request::of_caller(0, 0, 1, Direction::Write)
    };
    let read = Request::of_caller(0, 0, 1, Direction::Read);
    let mut compacted = 0;
    schedule.push(&compaction, 0).unwrap();
    for _ in 0..9_000 {
        while schedule.push(&read, 1).is_ok() {}
        if schedule.begin_next() == Some(0) {
            compacted += 1;
            // What comes in its place waits behind the reads that are there.
        }
        schedule.done();
        if schedule.waiting() < 63 || compacted > 0 {
            let _ = schedule.push(&compaction, 0);
        }
    }
    assert!(compacted > 100, "{compacted}");
}
