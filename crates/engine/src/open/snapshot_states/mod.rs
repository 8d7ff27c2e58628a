//! States of the past that named snapshots keep: reading them, and their ends.
//!
//! To a reader such a state looks like a database of its own: its metadata are made of the state in
//! memory, as those of a copy are, it has no log, and its segments are the files that the snapshot
//! keeps, up to their lengths at that time.
//!
//! Invariants: data that users deleted since is not in it, and a table that was dropped since is
//! not there; data that ended by itself since (retention, aging, expiry) still is. Every read of
//! one that is answered is answered from the complete state. An opened state stays readable when
//! the snapshot ends meanwhile.
//! Concurrency: opening holds the lock of that one snapshot alone; an end takes `commits`.
//! Failure: `not_found`, `gone` for one that ended by itself, `corrupt`; a failed end latches.

mod end;
mod files;
mod open;
mod plan;

pub(crate) use end::{end, end_due};
pub(crate) use open::{open_named, open_whole, segments_kept};
