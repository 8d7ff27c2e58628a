//! Copy side of replication: which missing ranges are requested, in which order, and whether the
//! arrived ones are those of the source.
//!
//! Invariants: a range is confirmed after the copy's own sync; a state of another history is not
//! taken. Concurrency: plain data, one owner. Failure: a failure of the device is an error of the
//! call; a message of the source never is.

mod challenge;
mod pace;
mod planner;
mod proof;
mod request_order;
mod source_missing;

mod tail_requester;
mod verify;
mod window;

pub use planner::{ExplainedSegment, Planner, PlannerLimits};
pub use request_order::policy::Policy;
pub use request_order::score::{ScoreBy, score};
pub use request_order::shares::{TrafficShare, Weights};
pub use request_order::stats::{PlannerStats, RequestedRange, ShareStats};
pub use verify::{ProvenStats, Verified};
