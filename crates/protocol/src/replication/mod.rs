//! Replication of a database to a copy: the messages between the two, the planning of requests, and
//! the budget of the source.
//!
//! The copy requests ranges, the source answers within its budget, and the copy confirms the ranges
//! on its device. There is no queue: the copy's missing ranges are the pending work, and they are
//! requested until they are present. A source is a database, or a copy that passes on its ranges.
//!
//! Invariants: state machines without sockets, clocks and threads: messages and the time are
//! inputs, messages are outputs. A message that is lost, late, duplicated or damaged costs only
//! time. Concurrency: plain data, one owner each. Failure: a failure of the device is an error of
//! the call; a message of the other side never is.

mod copy;
mod digest;
mod message;
mod missing_ranges;
mod ranges;
mod source;

pub use copy::{
    ExplainedSegment, Planner, PlannerLimits, PlannerStats, Policy, ProvenStats, RequestedRange,
    ScoreBy, ShareStats, TrafficShare, Verified, Weights, score,
};
pub use digest::challenge_digest;
pub use headwater_types::Now;
pub use message::{Digest, Message, Nonce, REFUSED_HISTORY, SegmentRange, decode, encode};
pub use missing_ranges::{MissingRange, Outlook};
pub use source::{
    Agent, Budget, BudgetLimits, ChallengeStats, Confirmed, LiveTimes, Pause, PauseCause, Period,
    QuietHours, SendQueue, Source, Spent,
};
