//! The present, as a caller gives it to a state machine that reads no clock.

use crate::Timestamp;
use std::time::Duration;

/// An instant by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since some instant of the past; never goes back.
    pub monotonic: Duration,
    /// The wall clock, which may jump.
    pub wall: Timestamp,
}
