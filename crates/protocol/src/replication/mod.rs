//! How a copy of a database gets what it wants of its source: what the two say to each other, who
//! decides what travels, and what it may cost.
//!
//! The far side orders, the source answers within its budget, and what the far side confirms is on
//! its medium. Nothing is queued: what is not there yet is what a copy lacks, and that is asked for
//! again until it is there. A source is a database, or a copy that passes on what it has.
//!
//! Invariants: state machines without sockets, clocks and threads: messages and the time go in,
//! messages come out. A message that is lost, late, doubled or damaged costs time and nothing else.
//! Concurrency: plain data, one owner each.
//! Failure: what a medium refuses is an error of the call; what the other side says is never.

mod agent;
mod allowance;
mod budget;
mod figures;
mod fill;
mod holes;
mod lacking;
mod message;
mod now;
mod planner;
mod policy;
mod proof;
mod ranges;
mod score;
mod shares;
mod source;
mod spent;
mod tail;
mod told;
mod verify;
mod window;

pub use agent::{Agent, Confirmed};
pub use budget::{Budget, BudgetLimits, QuietHours};
pub use figures::{Asking, PlannerFigures, ShareFigures};
pub use holes::{LackingPart, Outlook};
pub use message::{Digest, Message, Piece, REFUSED_HISTORY, decode, encode};
pub use now::Now;
pub use planner::{Planner, PlannerLimits};
pub use policy::Policy;
pub use score::{ScoreBy, score};
pub use shares::{Share, Weights};
pub use source::Source;
pub use spent::{Period, Spent};
pub use verify::{ProvenFigures, Verified};
