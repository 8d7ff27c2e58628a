//! Memory that replays share: the rows that each of them has in memory at a time.
//!
//! Invariants: all replays of a database together use at most a quarter of the memory budget, plus
//! [`LEAST_BYTES`] that each of them gets in any case. Concurrency: one lock; no other is taken
//! under it, and it is never held over I/O.

use crate::Options;
use parking_lot::Mutex;
use std::sync::Arc;

/// Share (1/n) of the memory budget that replays may use together.
const BUDGET_SHARE: usize = 4;
/// Minimum bytes of a replay, regardless of their number: less would read each leaf again and
/// again.
const LEAST_BYTES: usize = 64 << 10;

/// Memory budget of the replays of a database.
#[derive(Debug)]
pub(crate) struct ReplayMemory {
    most: usize,
    granted: Mutex<Granted>,
}

#[derive(Debug, Default)]
struct Granted {
    bytes: usize,
    shares: usize,
}

/// Share of one replay, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReplayShare {
    memory: Arc<ReplayMemory>,
    bytes: usize,
}

impl ReplayMemory {
    pub(crate) fn new(options: &Options) -> Arc<ReplayMemory> {
        Arc::new(ReplayMemory {
            most: options.memory_budget_bytes / BUDGET_SHARE,
            granted: Mutex::default(),
        })
    }

    /// An equal share, and no more than three quarters of the free memory, so that some is left for
    /// the next one. Replays call this for each slab: soon all have the same.
    pub(crate) fn take(self: &Arc<Self>) -> ReplayShare {
        let mut taken = self.granted.lock();
        taken.shares += 1;
        let free = self.most.saturating_sub(taken.bytes);
        let equal = self.most / taken.shares;
        let bytes = equal.min(free - free / 4).max(LEAST_BYTES);
        taken.bytes += bytes;
        ReplayShare {
            memory: Arc::clone(self),
            bytes,
        }
    }
}

impl ReplayShare {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for ReplayShare {
    fn drop(&mut self) {
        let mut taken = self.memory.granted.lock();
        taken.bytes -= self.bytes;
        taken.shares -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_within_a_quarter_of_the_budget_and_become_equal() {
        let memory = ReplayMemory::new(&Options::new("/db"));
        let quarter = 16 << 20;
        assert_eq!(memory.take().bytes(), quarter / 4 * 3);
        let mut shares: Vec<Option<ReplayShare>> = (0..32).map(|_| Some(memory.take())).collect();
        for _ in 0..20 {
            for share in &mut shares {
                drop(share.take());
                *share = Some(memory.take());
                let taken = memory.granted.lock().bytes;
                assert!(taken <= quarter + 32 * LEAST_BYTES, "{taken}");
            }
        }
        let bytes = shares.iter().flatten().map(ReplayShare::bytes);
        let (least, most) = (bytes.clone().min(), bytes.clone().max());
        assert!(least > Some(quarter / 40), "{least:?}");
        assert!(most < Some(quarter / 20), "{most:?}");
        assert!(bytes.sum::<usize>() <= quarter);
        shares.clear();
        assert_eq!(memory.granted.lock().bytes, 0);
    }
}
