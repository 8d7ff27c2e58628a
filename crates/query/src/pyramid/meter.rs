//! Memory and cancellation of the threads of a grouped query.
//!
//! Failure: `memory_limit` when a thread's buckets do not fit into the statement's memory.

use crate::error::external;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use headwater_ask::{CancelToken, Meter};

/// Meter of a thread: reserves its memory, and stops it when the answer is dropped.
#[derive(Debug)]
pub(super) struct PartMeter {
    pub(super) reserved: MemoryReservation,
    pub(super) bucket_bytes: usize,
    pub(super) cancel: CancelToken,
}

impl Meter for PartMeter {
    type Error = DataFusionError;

    fn goes_on(&self) -> Result<bool> {
        Ok(!self.cancel.is_cancelled())
    }

    fn reserve(&self, buckets: usize) -> Result<()> {
        self.reserved.try_grow(buckets * self.bucket_bytes)
    }

    fn settle(&self, reserved: usize, kept: usize) -> Result<()> {
        self.reserved.shrink((reserved - kept) * self.bucket_bytes);
        Ok(())
    }

    fn refused(error: headwater::Error) -> DataFusionError {
        external(error)
    }
}
