//! The pyramid: buckets of powers of two seconds above the leaves of a stream in a partition.
//!
//! Source: the TAB+-tree of the EVENT paper (section 2), with its nodes aligned to powers of two
//! seconds as the tiles of the RESPAWN paper (section III-A) are, so that one node serves plots,
//! temporal aggregates and filters.
//!
//! Invariants: a stored bucket equals the aggregate of the main run's rows in it (law 3); base
//! blocks include every row of the main run, unless the base is [`headwater_types::Level::MAX`],
//! which means that the pyramid was given up.

mod bucket;
mod build;
mod erase;

pub(crate) use bucket::{Bucket, Buckets, add_rows, from_block, in_table_type};
pub(crate) use build::{
    PyramidTarget, PyramidWriter, append, build, choose_base, give_up, replace, rows_min,
};
pub(crate) use erase::{edge_buckets, erase};
