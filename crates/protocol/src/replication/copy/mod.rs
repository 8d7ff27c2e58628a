//! Copy side of replication: which missing ranges are requested, in which order, and whether the
//! arrived ones are those of the source.
//!
//! Invariants: a range is confirmed after the copy's own sync; a state of another history is not
//! taken. Concurrency: plain data, one owner. Failure: a failure of the device is an error of the
//! call; a message of the source never is.

mod challenge;
mod fill;
mod pace;
mod planner;
mod policy;
mod proof;
mod score;
mod shares;
mod source_missing;
mod stats;
mod tail_requester;
mod verify;
mod window;

pub use planner::{ExplainedSegment, Planner, PlannerLimits};
pub use policy::Policy;
pub use score::{ScoreBy, score};
pub use shares::{TrafficShare, Weights};
pub use stats::{PlannerStats, RequestedRange, ShareStats};
pub use verify::{ProvenStats, Verified};
