//! States of the past that named snapshots keep: reading them, and their ends.
//!
//! To a reader such a state looks like a separate database: its metadata are made from the state in
//! memory, like a copy's metadata; it has no log, and its segments are the files that the snapshot
//! keeps, up to their lengths at that time.
//!
//! Invariants: data and tables that users deleted since are not in it; data that ended
//! automatically since (retention, aging, expiry) still is. Every successful read is answered from
//! the complete state. An opened state stays readable when the snapshot ends meanwhile.
//! Concurrency: opening takes only the lock of that snapshot; an end takes `commits`. Failure:
//! `not_found`, `gone` for a snapshot that ended automatically, `corrupt`; a failed end latches.

mod end;
mod files;
mod open;
mod plan;

pub(crate) use end::{end, end_due};
pub(crate) use open::{open_complete, open_named, retained_segments};
