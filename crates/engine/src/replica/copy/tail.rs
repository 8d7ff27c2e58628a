//! The newest events of the source, which are in no state yet: [`crate::Tail`].
//!
//! Concurrency and failure: as for the copy; nothing of it is on the disk.

use super::RemoteCopy;
use crate::replication::tail::{ReceivedTail, Tail, TailPoint};

/// Progress of the newest events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailProgress {
    /// The newest record of the source that was reported; 0 = none was.
    pub until: u64,
    /// Nothing is missing between the partitions shown and that record, and it was the newest when
    /// it was sent.
    pub is_whole: bool,
    /// The memory that it takes, about, in bytes.
    pub bytes: usize,
}

impl TailProgress {
    pub(super) fn of(tail: &ReceivedTail) -> TailProgress {
        TailProgress {
            until: tail.until().0,
            is_whole: tail.is_whole(),
            bytes: tail.bytes(),
        }
    }
}

impl RemoteCopy {
    /// Takes the newest events of the source: later readers see them behind what the copy shows,
    /// until that has them itself. A tail that does not continue the known one replaces it. False
    /// when it is of another history than the copy: nothing is taken then.
    #[must_use]
    pub fn take_tail(&self, tail: Tail) -> bool {
        let mut receiving = self.inner.receiving.lock();
        let receiving = &mut *receiving;
        let is_taken = receiving.tail.take(tail, &receiving.state);
        if is_taken {
            let shows_all = receiving.shows_all();
            receiving.tail.keep(&receiving.state, shows_all);
            receiving.changes += 1;
        }
        is_taken
    }

    /// The point up to which the newest events are known, to continue from there.
    #[must_use]
    pub fn tail_point(&self) -> Option<TailPoint> {
        self.inner.receiving.lock().tail.point()
    }

    /// Drops the newest events: their sender is not trusted any more.
    pub fn drop_tail(&self) {
        let mut receiving = self.inner.receiving.lock();
        receiving.tail.drop_all();
        receiving.changes += 1;
    }
}
