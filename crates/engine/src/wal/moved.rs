//! Moves the log to another location.
//!
//! Invariants: the log moves only while none of its records is needed, and no thread writes to it
//! meanwhile. Concurrency: acts as the leader. Failure: the error of `switch`; the location of the
//! log does not change then.

use super::{Log, StartRecorder};
use crate::Result;
use headwater_io::Files;
use std::path::Path;
use std::sync::Arc;

/// Result of a move of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    Yes,
    /// The log has needed records.
    No,
}

impl Log {
    /// Continues in another location, if no record in files is needed any more: `switch` makes it
    /// the location of the log from now on. No thread writes to the log meanwhile; waiting records
    /// go to the new location.
    pub(crate) fn move_to(
        &self,
        (files, dir): (&Arc<dyn Files>, &Path),
        make_known: StartRecorder,
        switch: impl FnOnce() -> Result<()>,
    ) -> Result<Moved> {
        let mut state = self.state.lock();
        loop {
            state.check_failed()?;
            if !state.leading {
                break;
            }
            self.changed.wait(&mut state);
        }
        state.leading = true;
        drop(state);
        let latch = self.latch_on_panic("moved the log");
        let moved = {
            let mut leader = self.leader.lock();
            match leader.files.live_bytes() {
                0 => switch().map(|()| {
                    leader.files.move_to(files, dir);
                    leader.record_start = make_known;
                    Moved::Yes
                }),
                _ => Ok(Moved::No),
            }
        };
        drop(latch);
        let mut state = self.state.lock();
        state.leading = false;
        drop(self.announce(state));
        moved
    }
}
