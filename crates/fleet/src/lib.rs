//! Nodes that copy one another: the registry of edges, the connection of an edge to its cloud, and
//! the copies of a cloud node.
//!
//! An *edge* owns its database; it connects to its cloud and answers requests over that connection.
//! A *cloud* node has a copy of each of its edges, and requests its missing ranges.
//! `headwater_protocol::replication` decides which messages to request and send, without sockets,
//! clocks and threads; this crate adds these.
//!
//! From bottom to top: `error`; `waiting` for a device or the stop; `private` files that only their
//! owner may read; [`invite`] the text that lets an edge join; `uplink_file` an edge's settings of
//! its cloud; `subscription` the subscription of an edge; `edges` the registry of a cloud; `frame`
//! the frames of a connection; `dial` connecting; `status` the status of nodes, as reported;
//! `follow` a copy from its first state on; `edge_copy` the copy of one edge; `copies` all copies;
//! `carry` their persistence beyond this node; `views` the facts that decide where a query is
//! answered; `origin` the source of a connection to a cloud; `session` a connection at the cloud;
//! `uplink` the connection at the edge; `relays` connections for edges that a cloud node passes on.
//!
//! Invariants: keys and invitations are stored as hashes by the node that verifies them, and as
//! text, in a file that only its owner may read, by the node that presents them. An edge can access
//! only its own copy. Messages of a connection are bounded in size before they are stored.
//! Concurrency: a task for each connection; calls of a device run on threads that may wait.
//! Failure: the edge reconnects after a connection ends, at growing intervals; no state depends on
//! a connection. Formats: docs/format/fleet.md. Protocol: docs/cluster/protocol.md.
#![allow(
    clippy::disallowed_methods,
    reason = "its connections and its files of keys are of a process, not of a database"
)]

mod carry;
mod copies;
mod dial;
mod edge_copy;
mod edges;
mod error;
mod follow;
mod frame;
pub mod invite;
mod origin;
mod prefetch;
mod private;
mod relays;
mod session;
mod status;
mod subscription;
mod uplink;
mod uplink_file;
mod views;
mod waiting;

pub use carry::{Carry, CarryMark, put_copies_aside, restore_copy, restore_roster};
pub use copies::{Fleet, OWN};
pub use dial::{Transport, connect};
pub use edges::{EDGES_MAX, Edge, EdgeAddress};
pub use error::{FleetError, FleetErrorKind};
pub use frame::{About, MESSAGE_MAX};
pub use headwater_engine::{CarriedCopy, CopyRestoration, Rules};
pub use headwater_protocol::replication::{BudgetLimits, QuietHours};
pub use prefetch::{Prefetch, PrefetchPolicy, PrefetchScore};
pub use relays::{RelaySpec, Relays};
pub use session::accept_key;
pub use status::{
    CopyStatus, EdgeState, EdgeStatus, FreeStatus, FreedStatus, NodeStatus, ReasonStatus,
    RelayStatus, UplinkState, UplinkStatus, VerifiedStatus,
};
pub use subscription::{PinSpec, StreamShare, WantRule, withholding};
pub use uplink::{Uplink, UplinkSettings, join};
pub use uplink_file::{UPLINK_FILE, UplinkFile};
pub use views::{EdgeView, database_of};
