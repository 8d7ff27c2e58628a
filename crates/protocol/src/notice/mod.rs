//! Notices: a few bytes that announce a change, and the nodes that follow them.
//!
//! A node publishes over a [`Bus`] that there is a newer version of its inventory. A node that
//! follows it has a [`Follower`], which decides when to query the node. The change itself is in the
//! answer, never in a notice.
//!
//! From bottom to top: `notice` the content of a notice, as bytes; `seal` the signature under it;
//! `hub` the bus inside a process; `bus` the trait of all transports of notices; `follower` the
//! handling of arriving notices; `access` the rights to publish and hear, and the rules of them for
//! a broker.
//!
//! Invariants: no sockets, clocks and threads. A notice that is lost, late, duplicated, reordered
//! or forged costs only time: it causes at most an earlier query. A notice that the node has not
//! signed causes no query. Concurrency: a hub is shared, with a lock on its list; all other types
//! are plain data. Failure: malformed bytes are an error that names the expected format. Format:
//! docs/format/notice.md.

mod access;
mod bus;
mod content;
mod follower;
mod hub;
mod seal;

pub use crate::signature::PublicKey;
pub use access::{
    AccessError, Lists, Subject, TABLE, TopicRight, Topics, is_node_name, mosquitto,
    whitelist_text, whitelists,
};
pub use bus::Bus;
pub use content::{NOTICE_BYTES_MAX, Notice, NoticeKind};
pub use follower::{Due, Follower, NodeVersion, NoticeOutcome, QueryReason};
pub use hub::{Event, Hub, Subscription, TOPICS_MAX};
pub use seal::{NoticeError, NoticeKey, Sealed};
