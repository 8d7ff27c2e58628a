//! The current time, passed by the caller to state machines that read no clock.

use crate::Timestamp;
use std::time::Duration;

/// An instant by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since some instant of the past; never decreases.
    pub monotonic: Duration,
    /// The wall clock, which may jump.
    pub wall: Timestamp,
}
