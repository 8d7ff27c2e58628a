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

mod agent;
mod allowance;
mod budget;
mod fill;
mod message;
mod missing_ranges;
mod missing_reports;
mod planner;
mod policy;
mod proof;
mod ranges;
mod score;
mod shares;
mod source;
mod source_missing;
mod spent;
mod stats;
mod tail;
mod verify;
mod window;

pub use agent::{Agent, Confirmed};
pub use budget::{Budget, BudgetLimits, QuietHours};
pub use headwater_types::Now;
pub use message::{Digest, Message, REFUSED_HISTORY, SegmentRange, decode, encode};
pub use missing_ranges::{LackingPart, Outlook};
pub use planner::{Planner, PlannerLimits};
pub use policy::Policy;
pub use score::{ScoreBy, score};
pub use shares::{Share, Weights};
pub use source::Source;
pub use spent::{Period, Spent};
pub use stats::{Asking, PlannerStats, ShareStats};
pub use verify::{ProvenStats, Verified};
