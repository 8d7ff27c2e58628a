//! The time, as given by the caller.

use headwater_types::Timestamp;
use std::time::Duration;

/// An instant by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since some instant of the past; never goes back.
    pub monotonic: Duration,
    /// Of the wall, which may jump.
    pub wall: Timestamp,
}
