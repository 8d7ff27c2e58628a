//! Cache of totals of streams: the rows and aggregates of everything that a partition has for one,
//! which overviews of whole tables read again and again.
//!
//! Invariants: an entry depends on nothing but its key: a partition as a commit left it, which
//! never changes, and the definitions by which it was read. Nothing in memory, no delete and no
//! expiry is in it; the caller applies these. Copies with missing ranges cache none.
//! Concurrency, failure: as in [`super`]; a failed read is not cached.

use super::Store;
use crate::common::ids::{SegmentId, Sequence, StreamId};
use headwater_types::{Aggregate, FieldId, FieldType};
use std::sync::Arc;

/// Fields with the types in which they are read.
pub(crate) type WantedFields = Arc<[(FieldId, FieldType)]>;

/// Key of totals.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TotalsKey {
    pub(crate) segment: SegmentId,
    /// Of the commit: its end in the file, and its sequence.
    pub(crate) committed: (u64, Sequence),
    pub(crate) stream: StreamId,
    pub(crate) fields: WantedFields,
}

/// The rows of a stream in a partition, and the aggregates of the fields.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) rows: u64,
    pub(crate) aggregates: Vec<Aggregate>,
}

impl Totals {
    pub(super) fn weight(&self) -> u64 {
        let aggregates = self.aggregates.len() * size_of::<Aggregate>();
        headwater_types::invariant::wide(aggregates) + 192
    }
}

impl Store {
    pub(crate) fn totals(&self, key: &TotalsKey) -> Option<Arc<Totals>> {
        self.totals.get(key)
    }

    pub(crate) fn keep_totals(&self, key: TotalsKey, totals: Totals) {
        self.totals.insert(key, Arc::new(totals));
    }
}
