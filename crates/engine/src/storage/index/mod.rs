//! Heavy indexes: which rows of a segment have a value, for values that may stand anywhere.
//!
//! An index has *runs*: files beside a segment, each with the values of some of its leaves in
//! order. A run says which leaves those are, so a lookup takes the candidates of the leaves that
//! runs cover, and reads all other leaves.
//!
//! Invariants: a run is true as long as its segment exists, since committed leaves never change;
//! its answers are *candidates*, which are read and filtered like any other rows, so that deletes,
//! expiry and later versions of a row need nothing here. A run counts from its commit in the
//! metadata to the one that forgets it; a file that the metadata do not name is no run.
//! Concurrency: [`Indexes`] is shared; its lock is held for no I/O and for no other lock. Files are
//! removed when their last reader closes them.
//! Failure: a run that is missing or damaged is passed over, and the leaves that it covers are
//! read; the builder makes it again. Format: docs/format/index.md.

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
pub(crate) use front::BlockPlace;
pub(crate) use front::{Front, LeafSlot};
pub(crate) use key::{FieldBounds, KeyRange, ValueBound, put_row_key};
pub(crate) use lookup::Lookup;
pub use policy::{IndexBudget, IndexPolicy};
pub(crate) use policy::{MADE_MAX, PolicyRecord};
pub use set::IndexUse;
pub(crate) use set::{Indexes, SegmentRuns};
