//! Status of a copy, from the state of the engine and the planner.

use crate::status::{CopyStatus, ReasonStatus};
use headwater_engine::{CopyProgress, Reason, Tally};

pub(super) fn reason_status(tally: Tally) -> ReasonStatus {
    let reason = match tally.reason {
        Reason::Asked => "asked",
        Reason::Summaries => "summaries",
        Reason::Pinned => "pinned",
        Reason::Rows => "rows",
        Reason::Ahead => "ahead",
    };
    ReasonStatus {
        reason: reason.to_owned(),
        wanted_bytes: tally.wanted,
        missing_bytes: tally.missing,
    }
}

pub(super) fn copy_status(progress: &CopyProgress, proven_bytes: u64) -> CopyStatus {
    CopyStatus {
        identity: format!("{:016x}", progress.state.identity),
        incarnation: format!("{:016x}", progress.state.incarnation),
        state: progress.state.number,
        bytes: progress.bytes,
        missing_bytes: progress.missing_bytes,
        proven_bytes,
        shown: progress.shown,
        shown_older: progress.shown_older,
        kept: progress.kept,
        is_live: progress.tail.is_whole,
    }
}
