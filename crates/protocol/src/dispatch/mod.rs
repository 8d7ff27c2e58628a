//! Routing of queries about streams: the inventories that nodes report, and the decision.
//!
//! A node maintains a [`Registry`] of its inventory: edges, their streams, the level from which on
//! and the instant up to which the streams are complete, stretches of which more is present
//! (spans), and single tiles below that level. A dispatcher requests the changes since its known
//! version, stores them in [`Tables`], and decides by the tables alone ([`Tables::decide`]). No
//! other state is stored: the whole inventory can be requested again.
//!
//! From bottom to top: `keys` the keys of streams and tiles, and reach; `filter` a static filter of
//! keys; `tiles` the tiles of a node, as a dispatcher knows them; `inventory` the encoding of a
//! node's inventory; `registry` the state of a node, from which inventories are made; `tables` the
//! state of a dispatcher; `decision` the decision; `ticket` the permission that a redirected client
//! presents.
//!
//! Invariants: state machines without sockets, clocks and threads. A message that is lost, late,
//! duplicated, reordered or damaged costs only time: a message that does not follow the known
//! version changes nothing, and the whole inventory is requested again. A false positive of the
//! filter costs a query at a node, never a wrong answer. Names of streams are neither stored nor
//! sent. Concurrency: plain data, one owner each. Failure: malformed bytes are an error with the
//! offset. Format: docs/format/held.md.

mod coverage;
mod decision;
mod filter;
mod inventory;
mod keys;
mod nodes;
mod registry;
mod tables;
mod ticket;
mod tiles;

pub use coverage::{Coverage, Missing};
pub use decision::{At, Client, Decision, Question, Why};
pub use filter::Filter;
pub use inventory::{
    Address, Change, Database, EdgeFacts, Exception, FilterChange, InventoryReport, SPANS_MAX,
    ShardChange, Span, decode, encode,
};
pub use keys::{Reach, StreamKey, TileKey};
pub use nodes::{Applied, NodeIndex, NodeStats, Position};
pub use registry::Registry;
pub use tables::Tables;
pub use ticket::{SKEW_MAX, TICKET_STREAMS_MAX, TICKET_VALIDITY, Ticket};
pub use tiles::{EXACT_MAX, TileSet};
