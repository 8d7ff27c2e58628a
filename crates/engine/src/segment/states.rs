//! Keeps the states of segments that were used last.
//!
//! Invariants: at most `bytes_max` of them, but always those of `least` segments, however large: a step or a reader that
//! goes from stream to stream needs the same few states again and again, and to make one anew costs reading every footer.
//! Of a segment only the newest state that was asked for counts as used: older ones are what open snapshots see.
//! Concurrency: one lock, held for a look at a map.

use super::state::SegmentState;
use crate::ids::SegmentId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct States {
    bytes_max: usize,
    least: usize,
    inner: Mutex<Inner>,
}

/// A segment and the offset of the newest footer folded.
type Key = (SegmentId, u64);

#[derive(Debug, Default)]
struct Inner {
    states: HashMap<Key, Kept>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    state: Arc<SegmentState>,
    bytes: usize,
    used: u64,
}

impl States {
    pub(super) fn new(bytes_max: usize, least: usize) -> States {
        States {
            bytes_max,
            least,
            inner: Mutex::new(Inner::default()),
        }
    }

    pub(super) fn get(&self, key: Key) -> Option<Arc<SegmentState>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let kept = inner.states.get_mut(&key)?;
        kept.used = now;
        Some(Arc::clone(&kept.state))
    }

    /// Takes in a state. An older one of the segment is the next to go.
    pub(super) fn put(&self, key: Key, state: Arc<SegmentState>) {
        let bytes = state.weight() + 256;
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let used = inner.clock;
        for ((segment, footer), kept) in &mut inner.states {
            if *segment == key.0 && *footer < key.1 {
                kept.used = 0;
            }
        }
        let kept = Kept { state, bytes, used };
        if let Some(before) = inner.states.insert(key, kept) {
            inner.bytes -= before.bytes;
        }
        inner.bytes += bytes;
        self.evict(&mut inner);
    }

    /// Forgets the states of a segment that was replaced.
    pub(super) fn forget(&self, id: SegmentId) {
        let mut inner = self.inner.lock();
        let mut freed = 0;
        inner.states.retain(|(segment, _), kept| {
            if *segment == id {
                freed += kept.bytes;
            }
            *segment != id
        });
        inner.bytes -= freed;
    }

    /// Lets the longest unused go, down to seven eighths, so that not every insertion looks at all.
    fn evict(&self, inner: &mut Inner) {
        if inner.bytes <= self.bytes_max {
            return;
        }
        let mut all: Vec<(u64, Key, usize)> = inner
            .states
            .iter()
            .map(|(key, kept)| (kept.used, *key, kept.bytes))
            .collect();
        all.sort_unstable();
        let old = all.iter().take_while(|(used, ..)| *used == 0).count();
        let keep = self.least.min(all.len() - old);
        for (_, key, bytes) in all.iter().take(all.len() - keep) {
            if inner.bytes <= self.bytes_max / 8 * 7 {
                break;
            }
            inner.states.remove(key);
            inner.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_longest_unused_go_first_and_the_newest_few_stay() {
        let states = States::new(3000, 2);
        let one = SegmentState::default().weight() + 256;
        let put = |segment, footer| states.put((SegmentId(segment), footer), Arc::default());
        let is_there = |segment, footer| states.get((SegmentId(segment), footer)).is_some();
        let fit = 3000 / one;
        assert!(fit >= 4, "{one}");
        for segment in 0..fit as u64 {
            put(segment, 64);
        }
        assert!(is_there(0, 64));
        // One more than fits: an older version goes before anything else does, then what was not used.
        put(3, 99);
        assert!(!is_there(3, 64) && is_there(3, 99) && is_there(0, 64));
        put(100, 64);
        assert!(is_there(0, 64) && !is_there(1, 64) && is_there(100, 64));
        assert!(states.inner.lock().bytes <= 3000);
        states.forget(SegmentId(0));
        assert!(!is_there(0, 64));
        let tiny = States::new(1, 2);
        for segment in 0..5 {
            tiny.put((SegmentId(segment), 64), Arc::default());
        }
        let left = |s| tiny.get((SegmentId(s), 64)).is_some();
        assert_eq!([0, 1, 2, 3, 4].map(left), [false, false, false, true, true]);
        let inner = tiny.inner.lock();
        assert_eq!(
            inner.bytes,
            inner.states.values().map(|k| k.bytes).sum::<usize>()
        );
    }
}
