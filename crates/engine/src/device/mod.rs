//! The devices under a database: where its parts lie, the fast tier, reserved space, write guards
//! and stalls.
//!
//! Invariant: nothing here knows rows, streams or formats of segments.

pub(crate) mod guard;
pub(crate) mod layout;
pub(crate) mod reserve;
pub(crate) mod stall;
pub(crate) mod tiers;
