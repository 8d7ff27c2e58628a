//! Notices: a few bytes that say that something has changed, and who follows them.
//!
//! A node tells, over a [`Bus`], that there is a newer version of what it holds. Who follows it
//! keeps a [`Follower`], which says when the node is to be asked. What has changed is in the answer
//! and never in a notice.
//!
//! From bottom to top: `notice` what is told, as bytes; `seal` the signature under it; `hub` the
//! bus inside a process; `bus` the trait of all that carry notices; `follower` what is made of
//! notices that come; `access` who may tell and hear, and the rules that a broker has of it.
//!
//! Invariants: no sockets, clocks and threads. A notice that is lost, late, doubled, out of order
//! or forged costs time and nothing else: it makes somebody ask sooner, or it does not. One that
//! the node has not signed makes nobody ask.
//! Concurrency: a hub is shared, its lock is held for a look at its list; the rest is plain data.
//! Failure: bytes that are none are an error that says what was expected.
//! Format: docs/format/notice.md.

mod access;
mod bus;
mod follower;
mod hub;
mod notice;
mod seal;

pub use access::{
    AccessError, Lists, May, Subject, TABLE, Topics, is_node_name, mosquitto, whitelist_text,
    whitelists,
};
pub use bus::Bus;
pub use follower::{Due, Follower, Heard, Told, Why};
pub use hub::{Event, Hub, Subscription, TOPICS_MAX};
pub use notice::{Kind, NOTICE_BYTES_MAX, Notice};
pub use seal::{NoticeError, NoticeKey, PublicKey, Sealed};
