//! A cloud that keeps its copies in a bucket: it takes its group, makes its copies anew from what
//! is there, and puts into it what comes.
//!
//! Invariants: copies of this node are used only where no other node has held the group since; else
//! they are put aside and made anew. What is confirmed to edges is in the bucket (`cloud.confirm`).
//! A node that lost its group stops.
//! Concurrency: one task asks for the lease and carries out commits ([`lease`]); one finds out what
//! is to be committed ([`keeper`]); what a store or a medium takes runs on threads that may wait.
//! Failure: a store that does not answer costs time; nothing is confirmed meanwhile.

mod gather;
mod keeper;
mod lease;
mod restore;

pub use gather::ROSTER;
pub(crate) use keeper::Keeper;
pub(crate) use lease::Bucket;
