//! Where a question about streams is answered: what nodes hold, as they tell it, and the decision.
//!
//! A node keeps a [`Registry`] of what it holds: edges, their streams, from which level on and up
//! to when everything of them is there, and single tiles below that. A dispatcher asks for what has
//! changed since the version that it knows, keeps it in [`Tables`], and decides by them alone
//! ([`Tables::place`]). It keeps nothing else: what it knows it can ask for again.
//!
//! From bottom to top: `keys` numbers that stand for streams and tiles; `filter` a static filter of
//! keys; `tiles` which tiles are held, as a dispatcher knows it; `held` what a node tells, as
//! bytes; `registry` what it tells that of; `tables` what a dispatcher knows; `place` the decision;
//! `ticket` what lets a client be answered where it is sent.
//!
//! Invariants: state machines without sockets, clocks and threads. A message that is lost, late,
//! doubled, out of order or damaged costs time and nothing else: one that does not follow on what
//! is known changes nothing, and all is asked for anew. A false hit of the filter costs a question
//! at a node, never a wrong answer. No names of streams are held, and none travel.
//! Concurrency: plain data, one owner each.
//! Failure: bytes that are none are an error that says where.
//! Format: docs/format/held.md.

mod filter;
mod held;
mod keys;
mod place;
mod registry;
mod tables;
mod ticket;
mod tiles;

pub use filter::Filter;
pub use held::{
    Address, Change, Database, EdgeFacts, Exception, FilterChange, Held, ShardChange, decode,
    encode,
};
pub use keys::{Reach, StreamKey, TileKey};
pub use place::{At, Client, Place, Question, Why};
pub use registry::Registry;
pub use tables::{Applied, NodeFigures, NodeIndex, Position, Tables};
pub use ticket::{SKEW_MAX, TICKET_HOLDS, TICKET_STREAMS_MAX, Ticket};
pub use tiles::{EXACT_MAX, TileSet};
