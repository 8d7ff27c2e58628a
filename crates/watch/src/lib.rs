//! Watches: reports of patterns and absences as rows arrive, in order or late.
//!
//! The caller evaluates the statement of a watch repeatedly, and passes in all current matches
//! ([`Round`]). The [`State`] of a watch has the reported matches, and derives [`Event`]s from the
//! difference: new matches, and retractions of matches that no longer exist. So the matches that
//! are reported and not retracted equal the current matches, whatever rows arrived late, were
//! replaced or deleted, and whatever state was lost in between.
//!
//! From bottom to top: `event` are events and their numbers; `state` are the reported matches, and
//! derives the next events; `journal` are the newest events, for returning readers; `delivery`
//! decides when an event is sent again; `persisted` is everything of a watch that outlives a
//! process; `store` is its file; `definition` is the definition of a watch; `address` checks the
//! addresses of web hooks; `signature` signs their requests.
//!
//! Invariants: state machines without sockets, clocks and threads. An event is in the file before
//! it is reported; its sequence number and its id are never used for another event. Concurrency:
//! plain data, one owner each. Failure: invalid bytes are an error that names the offset. A change
//! whose write failed changes nothing, and is written with the next step. Format:
//! docs/format/watch.md.

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
pub use event::{Event, EventKind, Key, Position, id_of};
pub use journal::{Behind, EVENTS_MAX, Journal};
pub use persisted::{Change, Persisted};
pub use signature::{hex, sign};
pub use state::{Begin, Bounds, MATCHES_MAX, Match, Round, State, Step, TooMany};
pub use store::{Decoded, OpenWatch, Store, decode};
