//! A client of XMPP (RFC 6120) for publish-subscribe (XEP-0060): what is sent and what comes.
//!
//! From bottom to top: `element` a piece of XML, and how it is written; `reader` the stream that a
//! server sends, in pieces; `jid` addresses; `scram` proof of a password without telling it;
//! `session` a connection from its first byte to what is asked and answered over it; `pubsub` the
//! questions of publish-subscribe and what their answers say.
//!
//! Invariants: no sockets, clocks, threads and chance: who drives a [`Session`] brings bytes. What
//! comes is bounded in size, depth and number before it is kept, and what XMPP forbids in XML
//! (declarations of types, comments, instructions, entities of one's own) ends the session. A
//! password is told to nobody without TLS.
//! Concurrency: plain data, one owner.
//! Failure: [`XmppError`]; a session that has failed is of no more use.

mod element;
mod jid;
pub mod pubsub;
mod reader;
mod scram;
mod session;

pub use element::{Element, Node};
pub use jid::{Jid, JidError};
pub use reader::{Limits, Read, Reader, XmlError};
pub use scram::{Hash, Scram, ScramError};
pub use session::{Happened, Kind, Login, Refusal, Session, XmppError};
