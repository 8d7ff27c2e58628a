//! Cache of totals of streams: the rows and aggregates of everything that a partition has for a
//! stream, which overviews of whole tables read again and again.
//!
//! Invariants: an entry depends only on its key: a partition at a commit, which never changes, and
//! the definitions used for reading it. Events in memory, deletes and expiry are not included; the
//! caller applies these. Copies with missing ranges cache no totals. Concurrency, failure: as in
//! [`super`]; a failed read is not cached.

use super::Store;
use crate::common::ids::{SegmentId, Sequence, StreamId};
use headwater_types::{Aggregate, FieldId, FieldType};
use std::sync::Arc;

/// Fields with the types in which they are read.
pub(crate) type TypedFields = Arc<[(FieldId, FieldType)]>;

/// Key of totals.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TotalsKey {
    pub(crate) segment: SegmentId,
    /// The end of the commit in the file, and its sequence.
    pub(crate) committed: (u64, Sequence),
    pub(crate) stream: StreamId,
    pub(crate) fields: TypedFields,
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
        self.cache.totals.get(key)
    }

    pub(crate) fn keep_totals(&self, key: TotalsKey, totals: Totals) {
        self.cache.totals.insert(key, Arc::new(totals));
    }
}
