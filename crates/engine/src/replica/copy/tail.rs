//! The newest events of the source, which are not in a state yet: [`crate::Tail`].
//!
//! Concurrency and failure: as for the copy; the tail is not stored on the disk.

use super::RemoteCopy;
use crate::replication::tail::{ReceivedTail, Tail, TailPoint};

/// Progress of the newest events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailProgress {
    /// Sequence of the newest reported record of the source; 0 = no report yet.
    pub until: u64,
    /// True when no record is missing between the partitions shown and that record, and it was the
    /// newest when it was sent.
    pub is_whole: bool,
    /// Approximate memory of the tail, in bytes.
    pub bytes: usize,
}

impl TailProgress {
    pub(super) fn of(tail: &ReceivedTail) -> TailProgress {
        TailProgress {
            until: tail.until().0,
            is_whole: tail.is_complete(),
            bytes: tail.bytes(),
        }
    }
}

impl RemoteCopy {
    /// Accepts the newest events of the source: later readers see them after the partitions shown,
    /// until the copy has the events itself. As long as it goes on from what is shown, a state does
    /// not take away what the tail shows: a partition in a stretch where nothing was shown before
    /// is left out until it is complete. A tail that does not continue the known one replaces it.
    /// False, without a change, when it is of another history than the copy.
    #[must_use]
    pub fn take_tail(&self, tail: Tail) -> bool {
        let mut receiving = self.inner.receiving.lock();
        let receiving = &mut *receiving;
        let is_taken = receiving.tail.take(tail, &receiving.state);
        if is_taken {
            receiving.tail_changed();
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
        self.inner.receiving.lock().drop_tail();
    }
}
