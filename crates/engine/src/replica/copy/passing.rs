//! The data that a copy passes on to its own copies, which are called *further* copies here: its
//! state, its bytes, and the deletes that further copies have not received yet.
//!
//! A state is passed on unchanged. Its source forgets deletes that this copy has confirmed; a
//! further copy may not have received them by then, so they are remembered here.
//!
//! Invariants: only data on the disk of this copy is passed on. Every delete that this copy has
//! received, and a further copy did not confirm, is part of the state, or the state records the
//! number above which its list of deletes is complete. Concurrency: as for the copy; passing on
//! does not keep a copy open. Failure: `gone` for bytes that this copy has released.

use super::receive::Receiving;
use super::{Inner, RemoteCopy};
use crate::common::ids::{SegmentId, Sequence};
use crate::replication::state::{State, StateName};
use crate::{Error, ErrorKind, Result};
use headwater_types::ByteRange;
use std::sync::{Arc, Weak};

/// Maximum deletes that are remembered for further copies.
const DELETES_MAX: usize = 10_000;

/// A copy that may be closed meanwhile.
#[derive(Debug)]
pub(crate) struct WeakCopy(Weak<Inner>);

fn no_longer_passed_on(segment: SegmentId) -> Error {
    Error::new(
        ErrorKind::Gone,
        format!(
            "this copy no longer serves segment {}: fetch the newest state",
            segment.0
        ),
    )
}

impl WeakCopy {
    fn copy(&self, segment: SegmentId) -> Result<RemoteCopy> {
        let inner = self
            .0
            .upgrade()
            .ok_or_else(|| no_longer_passed_on(segment))?;
        Ok(RemoteCopy { inner })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// The missing parts of a range; sorted, disjoint.
    pub(crate) fn missing(&self, segment: SegmentId, range: ByteRange) -> Result<Vec<ByteRange>> {
        let copy = self.copy(segment)?;
        let receiving = copy.inner.receiving.lock();
        let missing = receiving.pack(segment).missing(range);
        match missing.is_empty() || receiving.state.partition(segment).is_some() {
            true => Ok(missing),
            // It will not be fetched any more.
            false => Err(no_longer_passed_on(segment)),
        }
    }

    pub(crate) fn read(&self, segment: SegmentId, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        self.copy(segment)?.read(segment.0, offset, bytes)
    }
}

impl RemoteCopy {
    pub(crate) fn weak(&self) -> WeakCopy {
        WeakCopy(Arc::downgrade(&self.inner))
    }

    /// Registers a further copy under this name, which is sent every delete until it has
    /// [confirmed](RemoteCopy::confirm_further) it. Call this each time the copy is opened, before
    /// it receives any input. Does nothing when the name is known.
    pub fn add_further(&self, name: &str) {
        let mut receiving = self.inner.receiving.lock();
        receiving.further.entry(name.to_owned()).or_default();
    }

    /// Unregisters the further copy of this name.
    pub fn remove_further(&self, name: &str) {
        self.inner.receiving.lock().further.remove(name);
    }

    /// Confirms that the further copy of this name has a state on its disk: the deletes of that
    /// state need not be sent again.
    pub fn confirm_further(&self, name: &str, state: &StateName) {
        let mut receiving = self.inner.receiving.lock();
        if !receiving.state.descends_from(state) {
            return;
        }
        if let Some(told) = receiving.further.get_mut(name) {
            *told = Sequence(state.sequence).max(*told);
        }
    }
}

impl Receiving {
    /// A state that replaces the previous one, with the deletes that further copies have not
    /// received.
    pub(super) fn remembering(&self, state: State) -> State {
        let Some(told) = self.further.values().min() else {
            return state;
        };
        State {
            ends: state
                .ends
                .clone()
                .remembering(&self.state, *told, DELETES_MAX),
            ..state
        }
    }
}
