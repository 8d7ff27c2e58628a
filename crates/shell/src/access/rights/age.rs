//! Age of a received list: the time since its sender was known to have no newer one.
//!
//! Invariants: an age is never less than the time since the last confirmation of this run, by the
//! monotonic clock, so that a clock that leaps neither renews a list nor makes it old. Before the
//! first confirmation it is the time since the file was confirmed, by the wall clock, or the time
//! since the start, whichever is longer. The confirmation is stored as the modification time of the
//! file, at most once an hour. Concurrency: one lock, held for arithmetic. Failure: a file whose
//! time cannot be set counts by its last one after a restart.

use headwater_io::Clock;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time after which a confirmation is stored again.
const STORED_EACH: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
struct Confirmed {
    /// The last confirmation of this run, by the monotonic clock.
    at: Option<Duration>,
    /// The last one that was stored by this run.
    stored_at: Option<Duration>,
    /// The stored one, in nanoseconds since 1970.
    stored_ns: Option<i64>,
    /// The age was reported as too high.
    was_stale: bool,
}

/// Age of a list.
#[derive(Debug)]
pub(in crate::access) struct ListAge {
    clock: Arc<dyn Clock>,
    path: PathBuf,
    started: Duration,
    confirmed: Mutex<Confirmed>,
}

/// Modification time of a file, in nanoseconds since 1970.
fn modified(path: &Path) -> Option<i64> {
    let at = std::fs::metadata(path).and_then(|m| m.modified()).ok()?;
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

impl ListAge {
    pub(in crate::access) fn new(clock: &Arc<dyn Clock>, path: &Path) -> ListAge {
        let confirmed = Confirmed {
            stored_ns: modified(path),
            ..Confirmed::default()
        };
        ListAge {
            started: clock.monotonic(),
            clock: Arc::clone(clock),
            path: path.to_owned(),
            confirmed: Mutex::new(confirmed),
        }
    }

    /// The sender has no newer list now.
    pub(in crate::access) fn confirm(&self) {
        let now = self.clock.monotonic();
        let mut confirmed = self.confirmed.lock();
        confirmed.at = Some(now);
        let is_due = |at: Duration| now.saturating_sub(at) >= STORED_EACH;
        if confirmed.stored_at.is_none_or(is_due) {
            confirmed.stored_at = Some(now);
            let at = Duration::from_nanos(self.clock.now().as_nanos().max(0).unsigned_abs());
            let file = std::fs::File::options().write(true).open(&self.path);
            let stored = file.and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH + at));
            if let Err(error) = stored {
                let path = self.path.display();
                tracing::debug!(%path, %error, "the age of the list of rights is not stored");
            }
        }
    }

    /// The age.
    pub(in crate::access) fn age(&self) -> Duration {
        let now = self.clock.monotonic();
        let confirmed = self.confirmed.lock();
        match confirmed.at {
            Some(at) => now.saturating_sub(at),
            None => {
                let wall = self.clock.now().as_nanos();
                let since = confirmed.stored_ns.map_or(0, |at| wall.saturating_sub(at));
                let stored = Duration::from_nanos(since.max(0).unsigned_abs());
                stored.max(now.saturating_sub(self.started))
            }
        }
    }

    /// Records whether the age is too high; true if that has changed.
    pub(in crate::access) fn note(&self, is_stale: bool) -> bool {
        let was_stale = &mut self.confirmed.lock().was_stale;
        std::mem::replace(was_stale, is_stale) != is_stale
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater::Timestamp;
    use headwater_io::ManualClock;

    const DAY: Duration = Duration::from_secs(86_400);
    const START: i64 = 1_796_083_200_000_000_000;

    #[test]
    fn an_age_survives_a_restart_and_no_leap_changes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rights.list");
        std::fs::write(&path, "x").unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
        let open = || ListAge::new(&(Arc::clone(&clock) as Arc<dyn Clock>), &path);
        let age = open();
        age.confirm();
        assert_eq!(age.age(), Duration::ZERO);
        clock.advance(DAY);
        assert_eq!(age.age(), DAY);
        for wall in [
            0,
            START + 100 * 86_400_000_000_000,
            4_000_000_000_000_000_000,
        ] {
            clock.set(Timestamp::from_nanos(wall));
            assert_eq!(age.age(), DAY);
        }
        clock.set(Timestamp::from_nanos(START + 2 * 86_400_000_000_000));
        assert_eq!(open().age(), 2 * DAY);
        // A clock that has stopped does not renew it for good.
        clock.set(Timestamp::from_nanos(5));
        let stopped = open();
        assert_eq!(stopped.age(), Duration::ZERO);
        clock.advance(DAY);
        assert_eq!(stopped.age(), DAY);
        assert!(stopped.note(true) && !stopped.note(true) && stopped.note(false));
    }

    #[test]
    fn confirmations_are_stored_once_an_hour() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rights.list");
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
        let age = ListAge::new(&(Arc::clone(&clock) as Arc<dyn Clock>), &path);
        // Before the first list there is no file.
        age.confirm();
        std::fs::write(&path, "x").unwrap();
        clock.advance(STORED_EACH);
        age.confirm();
        let first = modified(&path).unwrap();
        assert_eq!(first, START + 3_600_000_000_000);
        clock.advance(STORED_EACH / 2);
        age.confirm();
        assert_eq!(modified(&path), Some(first));
        clock.advance(STORED_EACH / 2);
        age.confirm();
        assert!(modified(&path) > Some(first));
    }
}
