//! Watches: what is told of patterns and absences as rows come, late or not.
//!
//! Somebody else looks at the rows, again and again, and says what is found by now ([`Round`]). The
//! [`State`] of a watch knows what was told, and says which [`Event`]s follow from the difference:
//! matches that are new, and retractions of those that are not there any more. So what was told and
//! not taken back equals what is found, whatever came late, was replaced or deleted, and whatever
//! was forgotten in between.
//!
//! From bottom to top: `event` what is told, and its number; `state` what was told, and what has to
//! be; `journal` the events that are kept for who comes back; `delivery` when who gets which event;
//! `kept` all of a watch that outlives a process; `store` its file; `definition` what a watch is;
//! `address` where a web hook may go; `signature` what proves that one came from here.
//!
//! Invariants: state machines without sockets, clocks and threads. An event is in the file before
//! anybody is told of it; its sequence number and its id are never used for another one.
//! Concurrency: plain data, one owner each.
//! Failure: bytes that are none are an error that says where. What could not be written changes
//! nothing, and is written by the next step.
//! Format: docs/format/watch.md.

pub mod address;
mod definition;
mod delivery;
mod event;
mod journal;
mod kept;
mod signature;
mod state;
mod store;

pub use definition::{Definition, decode_definitions, encode_definitions, rights_of};
pub use delivery::{ATTEMPTS_MAX, DEAD_MAX, Dead, Delivery, Failure, Next};
pub use event::{Event, Key, Kind, Position, id_of};
pub use journal::{Behind, EVENTS_MAX, Journal};
pub use kept::{Change, Kept};
pub use signature::{hex, sign};
pub use state::{Begin, Bounds, Found, MATCHES_MAX, Round, State, Step, TooMany};
pub use store::{Decoded, Opened, Store, decode};
