//! Secondary indexes: the rows of a segment that have a value, wherever they are.
//!
//! An index has *runs*: files beside a segment, each with the sorted values of some of its leaves.
//! A run lists its leaves, so a lookup returns the candidates in the leaves that runs cover, and
//! reads all other leaves.
//!
//! Invariants: a run is valid as long as its segment exists, since committed leaves never change;
//! its results are *candidates*, which are read and filtered like any other rows, so that deletes,
//! expiry and later versions of a row need no special case here. A run counts from its commit in
//! the metadata to the commit that removes it; a file without a record in the metadata is not a
//! run. Concurrency: [`Indexes`] is shared; its lock is not held over I/O or while another lock is
//! taken. Files are removed when their last reader closes them. Failure: a missing or damaged run
//! is ignored, and its leaves are read; the builder creates it again. Format: docs/format/index.md.

mod cache;
mod definition;
mod demand;
mod file;
mod front;
mod key;
mod lookup;
mod policy;
mod set;

pub(crate) use definition::{FIELDS_MAX, IndexDefinition, IndexId, RunRecord, Types, types_in};
pub(crate) use file::{Run, RunWriter, parse_name};
#[cfg(test)]
pub(crate) use front::BlockLocation;
pub(crate) use front::{Front, LeafSlot};
pub(crate) use key::{FieldBounds, KeyRange, ValueBound, put_row_key};
pub(crate) use lookup::Lookup;
pub(crate) use policy::{AUTOMATIC_MAX, PolicyRecord};
pub use policy::{IndexBudget, IndexPolicy};
pub use set::IndexUse;
pub(crate) use set::{Indexes, SegmentRuns};
