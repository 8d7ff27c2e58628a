//! Detects a stalled medium: an access that has not returned for a while.
//!
//! Invariants: accesses behave as without monitoring; every entry is released automatically, also
//! after a panic. Writes and syncs of jobs are not monitored: they are large, and only jobs wait
//! for them. Read-ahead is not monitored either: its caller goes on meanwhile. Concurrency: no
//! lock. An access beyond the number of slots is not monitored: others stall with it. Failure:
//! none.

use headwater_io::{Clock, Completion, File, Files, OpenMode};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Time without an answer after which a medium counts as stalled.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum accesses monitored at once.
const MONITORED_MAX: usize = 64;

/// Monitors accesses to media.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Arc<dyn Clock>,
    /// Start times of accesses that have not returned, in ns; 0 = the slot is free.
    begun: [AtomicU64; MONITORED_MAX],
    /// The slot where the search for a free one begins.
    next: AtomicUsize,
    /// True while accesses are monitored.
    on: AtomicBool,
}

/// An access that has not returned.
struct PendingAccess<'a>(Option<&'a AtomicU64>);

impl Drop for PendingAccess<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

impl Watch {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Arc<Watch> {
        Arc::new(Watch {
            clock: Arc::clone(clock),
            begun: [const { AtomicU64::new(0) }; MONITORED_MAX],
            next: AtomicUsize::new(0),
            on: AtomicBool::new(true),
        })
    }

    /// Turns monitoring on or off.
    pub(crate) fn set_on(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// True when accesses are monitored.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        let now = self.clock.monotonic().as_nanos();
        // Never 0, which is a free slot.
        u64::try_from(now).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn begin(&self) -> PendingAccess<'_> {
        if !self.is_on() {
            return PendingAccess(None);
        }
        let now = self.now();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let free = (0..MONITORED_MAX)
            .filter_map(|at| self.begun.get(first.wrapping_add(at) % MONITORED_MAX))
            .find(|place| {
                place
                    .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            });
        PendingAccess(free)
    }

    /// True while an access has not returned for a while.
    pub(crate) fn is_stalled(&self) -> bool {
        let patience = u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
        let latest = self.now().saturating_sub(patience);
        self.begun.iter().any(|place| {
            let begun = place.load(Ordering::Relaxed);
            begun != 0 && begun <= latest
        })
    }
}

/// Files with monitored accesses.
#[derive(Debug)]
pub(crate) struct WatchedFiles {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) watch: Arc<Watch>,
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    watch: Arc<Watch>,
}

impl File for WatchedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let _looking = self.watch.begin();
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        let _looking = self.watch.begin();
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // A reader of the metadata waits while their file grows.
        let _looking = self.watch.begin();
        self.file.set_len(len)
    }

    fn try_read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.file.try_read_cached(offset, buf)
    }

    fn submit_read(&self, offset: u64, buf: Vec<u8>) -> Completion<Vec<u8>> {
        self.file.submit_read(offset, buf)
    }

    fn submit_sync(&self) -> Completion<()> {
        self.file.submit_sync()
    }
}

impl Files for WatchedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let _looking = self.watch.begin();
        Ok(Arc::new(WatchedFile {
            file: self.files.open(path, mode)?,
            watch: Arc::clone(&self.watch),
        }))
    }

    headwater_io::pass_on_files!(
        files; remove list create_dir_all sync_dir exists is_same_dir lock lock_file has_queue
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use headwater_io::{Env, ManualClock};

    #[test]
    fn a_look_that_does_not_come_back_is_a_stall_and_ends_with_it() {
        let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
        let as_clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let watch = Watch::new(&as_clock);
        let slow = watch.begin();
        assert!(!watch.is_stalled());
        clock.advance(PATIENCE);
        let young = watch.begin();
        assert!(watch.is_stalled());
        drop(slow);
        assert!(!watch.is_stalled());
        clock.advance(PATIENCE);
        assert!(watch.is_stalled());
        drop(young);
        // More accesses than slots: none waits, and each slot becomes free again.
        let many: Vec<PendingAccess<'_>> = (0..MONITORED_MAX * 2).map(|_| watch.begin()).collect();
        clock.advance(PATIENCE);
        assert!(watch.is_stalled());
        drop(many);
        assert!(!watch.is_stalled());
    }
}
