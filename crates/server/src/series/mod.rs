//! Reading many streams as one series: what the query languages of other databases have in common.
//!
//! Invariants: every loop over streams, chunks or rows asks the [`Budget`], so that a question ends when its time is over, when it
//! became too large, and soon after its asker went away; only streams that the asker may read are walked.

mod buckets;
mod budget;
mod streams;
mod windows;

pub(crate) use buckets::{Bucket, Buckets, Reading, take_rows};
pub(crate) use budget::{Budget, Present};
pub(crate) use streams::{extent, tables, walk};
pub(crate) use windows::Windows;
