//! Cache of the most recently used states and pages of segments.
//!
//! Invariants: at most `bytes_max` bytes, but always the `least` most recently used entries,
//! however large: a job or a reader that goes from stream to stream needs the same few again and
//! again, and rebuilding one costs a read of every footer. Of one key only the newest version
//! counts as used: older ones serve open snapshots. Concurrency: one lock, held for a map lookup.

use crate::common::ids::SegmentId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Recent<V> {
    bytes_max: usize,
    least: usize,
    inner: Mutex<Inner<V>>,
}

/// Number of a store, a segment of it and, for pages, the page number.
type PageKey = (u64, SegmentId, u32);

#[derive(Debug)]
struct Inner<V> {
    entries: HashMap<PageKey, Vec<RecentEntry<V>>>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
    /// Counts the insertions that were offered while the cache was full.
    in_vain: u64,
}

#[derive(Debug)]
struct RecentEntry<V> {
    /// The offset of the newest folded footer.
    version: u64,
    value: Arc<V>,
    bytes: usize,
    used: u64,
}

/// One in this number of values is inserted into a full cache; see [`Recent::admits`].
const SELDOM: u64 = 8;
/// Overhead of an entry, in bytes.
const OWN_BYTES: usize = 160;

impl<V> Recent<V> {
    pub(super) fn new(bytes_max: usize, least: usize) -> Recent<V> {
        Recent {
            bytes_max,
            least,
            inner: Mutex::new(Inner {
                entries: HashMap::new(),
                bytes: 0,
                clock: 0,
                in_vain: 0,
            }),
        }
    }

    pub(super) fn get(&self, place: PageKey, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let versions = inner.entries.get_mut(&place)?;
        let kept = versions.iter_mut().find(|k| k.version == version)?;
        kept.used = now;
        Some(Arc::clone(&kept.value))
    }

    /// True when a new value should be inserted: always while there is space, then one of
    /// [`SELDOM`]. In a cycle through more values than fit, the least recently used entry would
    /// always be the next one needed, and no lookup would ever succeed; so some entries stay
    /// (bimodal insertion: Qureshi et al., "Adaptive insertion policies for high performance
    /// caching", ISCA 2007).
    pub(super) fn admits(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.bytes < self.bytes_after_eviction() {
            return true;
        }
        inner.in_vain += 1;
        inner.in_vain.is_multiple_of(SELDOM)
    }

    /// The bytes that remain after an eviction.
    fn bytes_after_eviction(&self) -> usize {
        self.bytes_max / 8 * 7
    }

    /// Inserts a version. Older versions of its key are evicted next.
    pub(super) fn put(&self, place: PageKey, version: u64, value: Arc<V>, bytes: usize) {
        let bytes = bytes + OWN_BYTES;
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let used = inner.clock;
        let versions = inner.entries.entry(place).or_default();
        let mut before = 0;
        versions.retain_mut(|kept| {
            if kept.version < version {
                kept.used = 0;
            } else if kept.version == version {
                before = kept.bytes;
            }
            kept.version != version
        });
        versions.push(RecentEntry {
            version,
            value,
            bytes,
            used,
        });
        inner.bytes = inner.bytes + bytes - before;
        self.evict(&mut inner);
    }

    /// Removes all entries of a segment that was replaced.
    pub(super) fn forget(&self, store: u64, id: SegmentId) {
        let mut inner = self.inner.lock();
        let mut freed = 0;
        inner.entries.retain(|(of, segment, _), versions| {
            let is_of = (*of, *segment) == (store, id);
            if is_of {
                freed += versions.iter().map(|k| k.bytes).sum::<usize>();
            }
            !is_of
        });
        inner.bytes -= freed;
    }

    /// Evicts the least recently used entries, down to seven eighths, so that not every insertion
    /// searches all.
    fn evict(&self, inner: &mut Inner<V>) {
        if inner.bytes <= self.bytes_max {
            return;
        }
        let mut all: Vec<(u64, PageKey, u64)> = inner
            .entries
            .iter()
            .flat_map(|(place, versions)| versions.iter().map(|k| (k.used, *place, k.version)))
            .collect();
        all.sort_unstable();
        let old = all.iter().take_while(|(used, ..)| *used == 0).count();
        let keep = self.least.min(all.len() - old);
        for (_, place, version) in all.iter().take(all.len() - keep) {
            if inner.bytes <= self.bytes_after_eviction() {
                break;
            }
            let Some(versions) = inner.entries.get_mut(place) else {
                continue;
            };
            if let Some(at) = versions.iter().position(|k| k.version == *version) {
                inner.bytes -= versions.swap_remove(at).bytes;
            }
            if versions.is_empty() {
                inner.entries.remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ONE: usize = 40;

    #[test]
    fn the_longest_unused_go_first_and_the_newest_few_stay() {
        let fit = 10;
        let recent = Recent::new(fit * (ONE + OWN_BYTES), 2);
        let put = |segment, page, version| {
            recent.put(
                (0, SegmentId(segment), page),
                version,
                Arc::new(version),
                ONE,
            );
        };
        let is_there = |segment, page, version| {
            let found = recent.get((0, SegmentId(segment), page), version);
            found.is_some_and(|v| *v == version)
        };
        for page in 0..fit as u32 {
            put(7, page, 64);
        }
        assert!(is_there(7, 0, 64));
        // One more entry than fits: an older version is evicted before anything else, then the
        // least recently used.
        put(7, 3, 99);
        assert!(!is_there(7, 3, 64) && is_there(7, 3, 99) && is_there(7, 0, 64));
        put(8, 0, 64);
        assert!(is_there(7, 0, 64) && !is_there(7, 1, 64) && is_there(8, 0, 64));
        assert!(recent.inner.lock().bytes <= recent.bytes_max);
        recent.forget(0, SegmentId(7));
        assert!(!is_there(7, 0, 64) && is_there(8, 0, 64));
        put(8, 0, 64);
        assert_eq!(recent.inner.lock().bytes, ONE + OWN_BYTES);
    }

    #[test]
    fn of_rounds_through_more_than_there_is_room_for_a_part_is_found() {
        let fit = 80;
        let recent = Recent::new(fit * (ONE + OWN_BYTES), 2);
        let mut found = 0;
        let rounds = 10;
        for _ in 0..rounds {
            for page in 0..2 * fit as u32 {
                if recent.get((0, SegmentId(7), page), 64).is_some() {
                    found += 1;
                } else if recent.admits() {
                    recent.put((0, SegmentId(7), page), 64, Arc::new(()), ONE);
                }
            }
        }
        // More than a quarter in each round but the first.
        assert!(found > (rounds - 1) * fit / 2, "{found}");
        // A value that is offered repeatedly is inserted at last.
        let asked = (0..).find(|_| {
            if recent.admits() {
                recent.put((0, SegmentId(9), 0), 64, Arc::new(()), ONE);
            }
            recent.get((0, SegmentId(9), 0), 64).is_some()
        });
        assert!(asked.is_some_and(|times| times < SELDOM));
        assert!(recent.inner.lock().bytes <= recent.bytes_max);
    }

    #[test]
    fn a_few_stay_however_large() {
        let tiny = Recent::new(1, 2);
        for segment in 0..5 {
            tiny.put((0, SegmentId(segment), 0), 64, Arc::new(()), 1 << 20);
        }
        let left = |s| tiny.get((0, SegmentId(s), 0), 64).is_some();
        assert_eq!([0, 1, 2, 3, 4].map(left), [false, false, false, true, true]);
        let inner = tiny.inner.lock();
        let kept: usize = inner.entries.values().flatten().map(|k| k.bytes).sum();
        assert_eq!(inner.bytes, kept);
    }
}
