//! The devices under a database: the locations of its parts, the fast tier, reserved space, write
//! guards and stalls.
//!
//! Invariant: this module does not depend on rows, streams or formats of segments.

pub(crate) mod guard;
pub(crate) mod layout;
pub(crate) mod reserve;
pub(crate) mod stall;
pub(crate) mod tiers;
