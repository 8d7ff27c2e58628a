//! Nodes that copy one another: who is joined to whom, the connection between the two, and the
//! copies that a cloud node holds.
//!
//! An *edge* owns its database; it dials its cloud once and answers what is asked over that
//! connection. A *cloud* node knows its edges, holds a copy of each, and asks for what it lacks.
//! `headwater_protocol::replication` decides what is requested and sent, without sockets, clocks and
//! threads; this crate gives it all three.
//!
//! From bottom to top: `error`; `waiting` for a medium or the stop;
//! `private` files that only their owner may read; [`invite`] the text
//! that lets an edge join; `uplink_file` what an edge knows of its cloud; `wants`
//! what is wanted of an edge; `edges` what a cloud knows of its edges; `frame` what goes over a
//! connection; `dial` making one; `status` how it stands, as it is told; `follow` a copy from its
//! first state on; `held` the copy of one edge; `copies` all of them; `kept` what of them survives
//! this node; `views` what others are told that decide where a question is answered; `origin` what
//! a connection to a cloud serves; `session` one connection at the cloud; `uplink` the one at the
//! edge; `relays` those of edges that a cloud node passes on.
//!
//! Invariants: keys and invitations are kept as hashes by who checks them, and as text, in a file
//! of its owner's, by who shows them. An edge reaches its own copy and nothing else. What is said
//! on a connection is bounded in size before it is held.
//! Concurrency: a task for each connection; what a medium is asked runs on threads that may wait.
//! Failure: a connection that ends is made again by the edge, later and later; nothing depends on
//! one staying.
//! Formats: docs/format/fleet.md. Protocol: docs/cluster/protocol.md.
#![allow(
    clippy::disallowed_methods,
    reason = "its connections and its files of keys are of a process, not of a database"
)]

mod copies;
mod dial;
mod edges;
mod error;
mod follow;
mod frame;
mod held;
pub mod invite;
mod kept;
mod migration;
mod origin;
mod private;
mod relays;
mod session;
mod status;
mod uplink;
mod uplink_file;
mod views;
mod waiting;
mod wants;

pub use copies::{Fleet, OWN};
pub use dial::{Transport, connect};
pub use edges::{EDGES_MAX, Edge, EdgeAddress};
pub use error::{FleetError, FleetErrorKind};
pub use frame::{About, MESSAGE_MAX};
pub use headwater_engine::{CarriedCopy, CopyRestoration, Rules};
pub use headwater_protocol::replication::{BudgetLimits, QuietHours};
pub use kept::{Carry, CarryMark, put_copies_aside, restore_copy, restore_roster};
pub use migration::{Migration, MigrationPolicy, MigrationScore};
pub use relays::{RelaySpec, Relays};
pub use session::accept_key;
pub use status::{
    CopyStatus, EdgeState, EdgeStatus, FreeStatus, FreedStatus, NodeStatus, ReasonStatus,
    RelayStatus, UplinkState, UplinkStatus, VerifiedStatus,
};
pub use uplink::{Uplink, UplinkSettings, join};
pub use uplink_file::{UPLINK_FILE, UplinkFile};
pub use views::{EdgeView, database_of};
pub use wants::{PinSpec, Want, WantRule, withholding};
