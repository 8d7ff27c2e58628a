//! Queue sets: requests to a medium, divided over sets that each have queues and an owner.
//!
//! Purpose: several owners keep a medium with channels busy, and a read does not wait for
//! background work. A stream of requests is assigned to one set permanently, by a rule of
//! [`placement`]. An [`Order`] determines the order in which a set starts waiting requests.
//! Invariants: every request is carried out or refused, exactly once, also when the sets are shut
//! down or an owner panics. No request is started more than [`SetOptions::passes_max`] starts later
//! than in the order of arrival. Concurrency: [`schedule`] decides without threads or clocks;
//! [`Sets`] adds an owner thread to each schedule, and [`QueuedFiles`] wraps files with sets.
//! Requests of one set that overlap in time may be carried out in either order; a caller that needs
//! an order waits for the answer in between. Failure: errors of the medium, and one of our own: the
//! sets were shut down.

mod files;
mod order;
pub mod placement;
mod purpose;
mod request;
pub mod schedule;
mod sets;
mod transfer;

pub use files::{QueuedFiles, SetOfFile};
pub use order::Order;
pub use placement::{PlacementRule, Placements};
pub use purpose::PurposeGuard;
pub use request::{Direction, Purpose, Request, Work};
pub use schedule::Schedule;
pub use sets::{CallersTurn, SetOptions, Sets};
pub use transfer::Transfer;
