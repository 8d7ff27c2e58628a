//! Order in which a set starts waiting requests.
//!
//! Invariants: ranks are below [`RANKS`]; rank 0 is served first. Concurrency and failure: a plain
//! function of plain values.

use crate::queue::request::{Direction, Purpose, Request};

/// Most ranks that an order may have.
pub(crate) const RANKS: usize = 4;

/// Order of the requests of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The log, then reads with a waiting caller, then flushes, then compaction.
    #[default]
    ReadsFirst,
    /// The paper's: every write before every read, whatever their purpose.
    WritesFirst,
    /// In the order of arrival, like a single queue.
    Arrival,
}

impl Order {
    /// The rank of a request: smaller ranks are served first, equal ones in the order of arrival.
    #[must_use]
    pub fn rank(self, request: &Request) -> usize {
        match (self, request.purpose, request.direction) {
            (Order::Arrival, _, _) => 0,
            (Order::WritesFirst, _, Direction::Write) => 0,
            (Order::WritesFirst, _, Direction::Read) => 1,
            (Order::ReadsFirst, Purpose::Log, _) => 0,
            (Order::ReadsFirst, Purpose::Caller, Direction::Read) => 1,
            (Order::ReadsFirst, Purpose::Caller | Purpose::Flush, _) => 2,
            (Order::ReadsFirst, Purpose::Compaction, _) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURPOSES: [Purpose; 4] = [
        Purpose::Log,
        Purpose::Caller,
        Purpose::Flush,
        Purpose::Compaction,
    ];

    fn request(purpose: Purpose, direction: Direction) -> Request {
        Request {
            purpose,
            ..Request::of_caller(0, 0, 0, direction)
        }
    }

    #[test]
    fn the_engine_has_log_reads_flush_compaction() {
        let rank = |purpose, direction| Order::ReadsFirst.rank(&request(purpose, direction));
        let ranks = [
            rank(Purpose::Log, Direction::Write),
            rank(Purpose::Caller, Direction::Read),
            rank(Purpose::Caller, Direction::Write),
            rank(Purpose::Flush, Direction::Write),
            rank(Purpose::Compaction, Direction::Read),
            rank(Purpose::Compaction, Direction::Write),
        ];
        assert_eq!(ranks, [0, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn the_paper_has_writes_before_reads() {
        for purpose in PURPOSES {
            let write = Order::WritesFirst.rank(&request(purpose, Direction::Write));
            let read = Order::WritesFirst.rank(&request(purpose, Direction::Read));
            assert_eq!((write, read), (0, 1));
        }
    }

    #[test]
    fn every_rank_has_a_queue() {
        for order in [Order::ReadsFirst, Order::WritesFirst, Order::Arrival] {
            for purpose in PURPOSES {
                for direction in [Direction::Read, Direction::Write] {
                    assert!(order.rank(&request(purpose, direction)) < RANKS);
                }
            }
        }
    }
}
