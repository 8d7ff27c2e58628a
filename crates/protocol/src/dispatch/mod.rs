//! Routing of queries about streams: the inventories that nodes report, and the decision.
//!
//! A node maintains a [`Registry`] of its inventory: edges, their streams, the level from which on
//! and the instant up to which they are complete, and single tiles below that. A dispatcher
//! requests the changes since the version that it knows, stores them in [`Tables`], and decides by
//! them alone ([`Tables::place`]). Nothing else is stored: all of it can be requested again.
//!
//! From bottom to top: `keys` the keys of streams and tiles, and reach; `filter` a static filter of
//! keys; `tiles` the tiles of a node, as a dispatcher knows them; `inventory` the inventory of a
//! node, as bytes; `registry` the state at a node from which it is made; `tables` the state of a
//! dispatcher; `decision` the decision; `ticket` the permission with which a redirected client is
//! answered.
//!
//! Invariants: state machines without sockets, clocks and threads. A message that is lost, late,
//! doubled, out of order or damaged costs time and nothing else: one that does not follow on the
//! known version changes nothing, and the whole inventory is requested again. A false hit of the
//! filter costs a query at a node, never a wrong answer. No names of streams are stored, and none
//! travel. Concurrency: plain data, one owner each. Failure: malformed bytes are an error with its
//! offset. Format: docs/format/held.md.

mod decision;
mod filter;
mod inventory;
mod keys;
mod registry;
mod tables;
mod ticket;
mod tiles;

pub use decision::{At, Client, Decision, Question, Why};
pub use filter::Filter;
pub use inventory::{
    Address, Change, Database, EdgeFacts, Exception, FilterChange, InventoryReport, ShardChange,
    decode, encode,
};
pub use keys::{Reach, StreamKey, TileKey};
pub use registry::Registry;
pub use tables::{Applied, NodeIndex, NodeStats, Position, Tables};
pub use ticket::{SKEW_MAX, TICKET_HOLDS, TICKET_STREAMS_MAX, Ticket};
pub use tiles::{EXACT_MAX, TileSet};
