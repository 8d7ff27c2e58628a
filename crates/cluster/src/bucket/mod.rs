//! Cloud that keeps its copies in a bucket: it acquires its group, restores its copies from the
//! bucket, and uploads new data.
//!
//! Invariants: local copies are used only where no other node has owned the group since; otherwise
//! they are moved aside and restored. Data that is confirmed to edges is in the bucket
//! (`cloud.confirm`). A node that lost its group stops. Concurrency: one task renews the lease and
//! carries out commits (`lease`); one collects their contents (`keeper`); accesses to a store
//! or a disk run on threads that may block. Failure: a store that does not answer costs time;
//! nothing is confirmed meanwhile.

mod gather;
mod keeper;
mod lease;
mod metrics;
mod restore;

pub use gather::ROSTER;
pub use keeper::Keeper;
pub use lease::Bucket;
pub use metrics::BucketMetrics;
