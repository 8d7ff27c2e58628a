//! Decides which request a set starts next: a state machine without threads and clocks.
//!
//! Law: an item is started at most `passes_max` starts later than in the order of arrival. So an
//! item of the lowest rank waits for the earlier items, at most as many as the queues have space
//! for, and for `passes_max` later ones; no rank starves another.
//!
//! Checking only the oldest item suffices: an item that overtakes a waiting item also overtakes all
//! older waiting items, so no item has been overtaken more often than the oldest one.
//!
//! Invariants: at most one item is in progress; items of one rank are started in the order of their
//! arrival; as long as an item waits and none is in progress, [`Schedule::begin_next`] returns an
//! item. Concurrency: a plain value, guarded by its owner. Failure: a full schedule returns the
//! item.

use std::collections::VecDeque;

use crate::queue::order::{Order, RANKS};
use crate::queue::request::Request;

/// Items that wait in a set, and whether one is on its way.
#[derive(Debug)]
pub struct Schedule<T> {
    order: Order,
    passes_max: u64,
    capacity: usize,
    /// One queue for each rank.
    queues: [VecDeque<Waiting<T>>; RANKS],
    waiting: usize,
    /// Number of items started so far; also the number of the next start.
    started: u64,
    is_busy: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    /// Number of the item's start if all were started in the order of arrival; larger for every
    /// later arrival.
    turn: u64,
    item: T,
}

impl<T> Schedule<T> {
    /// Empty queues for `capacity` items together, at least one.
    #[must_use]
    pub fn new(order: Order, passes_max: u64, capacity: usize) -> Schedule<T> {
        Schedule {
            order,
            passes_max,
            capacity: capacity.max(1),
            queues: std::array::from_fn(|_| VecDeque::new()),
            waiting: 0,
            started: 0,
            is_busy: false,
        }
    }

    /// Queues an item after the others of its rank.
    ///
    /// # Errors
    /// The item itself, if the queues are full.
    pub fn push(&mut self, request: &Request, item: T) -> Result<(), T> {
        if self.waiting >= self.capacity {
            return Err(item);
        }
        let rank = self.order.rank(request);
        let turn = self.started.saturating_add(number(self.waiting));
        let Some(queue) = self.queues.get_mut(rank) else {
            return Err(item);
        };
        queue.push_back(Waiting { turn, item });
        self.waiting += 1;
        Ok(())
    }

    /// Starts an item that did not wait, if no item waits or is in progress. [`Schedule::done`]
    /// ends it, too.
    pub fn begin_if_idle(&mut self) -> bool {
        let is_idle = !self.is_busy && self.waiting == 0;
        if is_idle {
            self.start();
        }
        is_idle
    }

    /// Starts the next item, if none is in progress.
    pub fn begin_next(&mut self) -> Option<T> {
        if self.is_busy {
            return None;
        }
        let rank = self.next_rank()?;
        let waiting = self.queues.get_mut(rank)?.pop_front()?;
        assert!(
            self.started <= waiting.turn.saturating_add(self.passes_max),
            "an item was passed more than {} times",
            self.passes_max
        );
        self.waiting -= 1;
        self.start();
        Some(waiting.item)
    }

    /// Ends the item that was started.
    pub fn done(&mut self) {
        assert!(self.is_busy, "nothing was on its way");
        self.is_busy = false;
    }

    /// Number of items that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// True while something was started and has not ended.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Removes all waiting items, in no particular order, without starting them.
    pub fn take_all(&mut self) -> Vec<T> {
        self.waiting = 0;
        let queues = self.queues.iter_mut();
        queues
            .flat_map(|queue| queue.drain(..).map(|waiting| waiting.item))
            .collect()
    }

    fn start(&mut self) {
        self.is_busy = true;
        self.started = self.started.saturating_add(1);
    }

    /// Rank of the next item to start: the oldest item's if it was overtaken often enough,
    /// otherwise the first rank with an item.
    fn next_rank(&self) -> Option<usize> {
        let fronts = || {
            let queues = self.queues.iter().enumerate();
            queues.filter_map(|(rank, queue)| Some((rank, queue.front()?.turn)))
        };
        let (oldest_rank, turn) = fronts().min_by_key(|(_, turn)| *turn)?;
        if self.started >= turn.saturating_add(self.passes_max) {
            return Some(oldest_rank);
        }
        fronts().next().map(|(rank, _)| rank)
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::queue::request::{Direction, Purpose};

    fn of(purpose: Purpose) -> Request {
        let direction = match purpose {
            Purpose::Caller => Direction::Read,
            Purpose::Log | Purpose::Flush | Purpose::Compaction => Direction::Write,
        };
        Request {
            purpose,
            ..Request::of_caller(0, 0, 0, direction)
        }
    }

    fn started<T>(schedule: &mut Schedule<T>) -> Vec<T> {
        let mut out = Vec::new();
        while let Some(item) = schedule.begin_next() {
            schedule.done();
            out.push(item);
        }
        out
    }

    #[test]
    fn ranks_go_one_after_the_other_and_equals_as_they_came() {
        let mut schedule = Schedule::new(Order::ReadsFirst, 100, 100);
        for (purpose, name) in [
            (Purpose::Compaction, "c1"),
            (Purpose::Flush, "f1"),
            (Purpose::Caller, "r1"),
            (Purpose::Log, "l1"),
            (Purpose::Compaction, "c2"),
            (Purpose::Caller, "r2"),
        ] {
            schedule.push(&of(purpose), name).unwrap();
        }
        assert_eq!(started(&mut schedule), ["l1", "r1", "r2", "f1", "c1", "c2"]);
    }

    #[test]
    fn an_item_is_passed_only_so_many_times() {
        let mut schedule = Schedule::new(Order::ReadsFirst, 2, 100);
        schedule.push(&of(Purpose::Compaction), 100).unwrap();
        for read in 0..5 {
            schedule.push(&of(Purpose::Caller), read).unwrap();
        }
        assert_eq!(started(&mut schedule), [0, 1, 100, 2, 3, 4]);
    }

    #[test]
    fn without_passes_all_go_as_they_came() {
        let mut schedule = Schedule::new(Order::WritesFirst, 0, 100);
        for (name, purpose) in [Purpose::Caller, Purpose::Log, Purpose::Caller]
            .into_iter()
            .enumerate()
        {
            schedule.push(&of(purpose), name).unwrap();
        }
        assert_eq!(started(&mut schedule), [0, 1, 2]);
    }

    #[test]
    fn a_full_schedule_gives_the_item_back_and_takes_it_when_there_is_room() {
        let mut schedule = Schedule::new(Order::ReadsFirst, 4, 2);
        schedule.push(&of(Purpose::Flush), 'a').unwrap();
        schedule.push(&of(Purpose::Flush), 'b').unwrap();
        assert_eq!(schedule.push(&of(Purpose::Log), 'c'), Err('c'));
        assert_eq!(schedule.begin_next(), Some('a'));
        schedule.push(&of(Purpose::Log), 'c').unwrap();
        assert_eq!(schedule.begin_next(), None, "one is on its way");
        schedule.done();
        assert_eq!(started(&mut schedule), ['c', 'b']);
    }

    #[test]
    fn only_an_idle_schedule_lets_something_begin_that_never_waited() {
        let mut schedule = Schedule::new(Order::ReadsFirst, 4, 2);
        assert!(schedule.begin_if_idle());
        assert!(!schedule.begin_if_idle());
        schedule.push(&of(Purpose::Log), 1).unwrap();
        schedule.done();
        assert!(!schedule.begin_if_idle(), "one waits");
        assert_eq!(schedule.begin_next(), Some(1));
        schedule.done();
        assert!(schedule.begin_if_idle());
    }
}
