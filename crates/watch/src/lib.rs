//! Watches: reports of patterns and absences as rows come, late or not.
//!
//! The caller evaluates the statement of a watch again and again, and passes in all matches found
//! by now ([`Round`]). The [`State`] of a watch has the reported matches, and derives [`Event`]s
//! from the difference: new matches, and retractions of those that are not there any more. So the
//! reported and not retracted matches equal those found, whatever came late, was replaced or
//! deleted, and whatever was forgotten in between.
//!
//! From bottom to top: `event` are events and their numbers; `state` are the reported matches, and
//! derives the next events; `journal` are the newest events, for returning readers; `delivery`
//! decides when an event is sent again; `persisted` is everything of a watch that outlives a
//! process; `store` is its file; `definition` is the definition of a watch; `address` checks the
//! addresses of web hooks; `signature` signs their requests.
//!
//! Invariants: state machines without sockets, clocks and threads. An event is in the file before
//! it is reported; its sequence number and its id are never used for another one.
//! Concurrency: plain data, one owner each.
//! Failure: invalid bytes are an error that says where. A change that could not be written changes
//! nothing, and is written with the next step.
//! Format: docs/format/watch.md.

pub mod address;
mod definition;
mod delivery;
mod event;
mod journal;
mod persisted;
mod signature;
mod state;
mod store;

pub use definition::{Definition, decode_definitions, encode_definitions, rights_of};
pub use delivery::{ATTEMPTS_MAX, DEAD_MAX, Dead, Delivery, Failure, Next};
pub use event::{Event, Key, Kind, Position, id_of};
pub use journal::{Behind, EVENTS_MAX, Journal};
pub use persisted::{Change, Persisted};
pub use signature::{hex, sign};
pub use state::{Begin, Bounds, MATCHES_MAX, Match, Round, State, Step, TooMany};
pub use store::{Decoded, Opened, Store, decode};
