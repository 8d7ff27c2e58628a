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
//! the frames of a connection; `socket_bytes` its bytes; `proven_time` the time at which
//! certificates are validated; `dial` connecting; `status` the status of nodes, as reported;
//! `follow` a copy from its first state on; `edge_copy` the copy of one edge; `conflicts` streams
//! that several copies have; `fetch_budget` the budgets of readers for whom ranges are fetched;
//! `copies` all copies; `conflicts` streams that several of them have;
//! `carry` their persistence beyond this node; `lag` and `why` the lag of copies and its reasons;
//! `views` the facts that decide where a query is answered; `origin` the source of a connection to
//! a cloud; `partial_answer` answers that lack copies, as nodes and dispatchers mark them;
//! `rights`, `rights_source` and `session_rights` the list of rights on its way; `session` a
//! connection at the cloud; `uplink` the connection at the edge; `relays` connections for edges
//! that a cloud node passes on.
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

#[cfg(feature = "mqtt")]
pub mod broker;
mod broker_login;
#[cfg(feature = "bucket")]
pub mod bucket;
mod bus_budget;
mod ca_file;
mod carry;
mod conflicts;
mod copies;
mod dial;
pub mod dispatcher;
mod edge_copy;
mod edges;
mod error;
mod fetch_budget;
mod follow;
mod frame;
mod greeting;
pub mod inventory;
pub mod invite;
mod key_file;
mod lag;
mod node_client;
pub mod notices;
mod origin;
mod other_clock;
mod partial_answer;
mod peers;
mod prefetch;
mod private;
mod processes;
mod proven_time;
mod relays;
mod rights;
mod rights_source;
mod session;
mod session_rights;
pub mod settings;
mod socket_bytes;
mod start_error;
mod status;
mod subscription;
mod trust;
mod upgrade;
mod uplink;
mod uplink_file;
mod views;
mod waiting;
mod why;

pub use bus_budget::BusBudget;
pub use ca_file::CaFile;
pub use carry::{Carry, CarryMark, restore_copy, restore_roster, set_copies_aside};
pub use conflicts::ConflictReport;
pub use copies::{EdgeCopies, PartStatus, PartStreams, StreamContents, VerifiedPart};
pub use dial::{Transport, connect};
pub use edges::{
    ChangeRecord, ClosedPart, ClosedReason, EDGES_MAX, Edge, EdgeAddress, NewEdge, NewEdgeFault,
    OWN, PeerCopy, RecordedChange, Roster, RosterAnswer,
};
pub use error::{ClusterError, ClusterErrorKind};
pub use fetch_budget::{FetchReader, Fetched, OverBudget};
pub use frame::{About, EDGE_MESSAGE_MAX, MESSAGE_MAX, QuietCause};
pub use headwater_engine::{CarriedCopy, CopyRestoration, ReplicationRules};
pub use headwater_protocol::replication::{BudgetLimits, QuietHours};
pub use partial_answer::{LeftOutCopy, PARTIAL_PARAMETER, PartialUse, mark_answer};
pub use peers::Peers;
pub use prefetch::{Prefetch, PrefetchPolicy, PrefetchScore};
pub use relays::{RelaySpec, Relays};
pub use rights::{RIGHTS_PATH, RightsReceiver, RightsStatus, SignedRights};
pub use rights_source::{RightsSource, follow_rights};
pub use session::accept_key;
pub use start_error::StartError;
pub use status::{
    ChallengeStatus, ConflictCounts, CopyStatus, EdgeState, EdgeStatus, FetchStatus, FreeStatus,
    FreedStatus, LagCause, LagStatus, LostStatus, NextCaState, NodeStatus, PeerStatus, QuietStatus,
    RangeWhy, ReasonStatus, RelayStatus, StreamConflict, StreamWhy, TokenFetched, UplinkState,
    UplinkStatus, VerifiedStatus,
};
pub use subscription::{PinSpec, StreamPattern, StreamShare, WantRule, withholding};
pub use trust::is_announceable;
pub use upgrade::RequestHead;
pub use uplink::{MadeRoom, Uplink, UplinkSettings, join};
pub use uplink_file::{UPLINK_FILE, UplinkFile};
pub use views::{EdgeView, database_of};
