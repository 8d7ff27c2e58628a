//! A client of XMPP (RFC 6120) for publish-subscribe (XEP-0060): its requests, and the answers.
//!
//! From bottom to top: `element` an XML element, and its text; `reader` the stream that a server
//! sends, in parts; `jid` addresses; `scram` proof of a password without revealing it; `session` a
//! connection from its first byte to the requests and answers over it; `pubsub` the requests of
//! publish-subscribe and the meaning of their answers.
//!
//! Invariants: no sockets, clocks, threads and chance: the caller of a [`Session`] brings bytes.
//! Input is bounded in size, depth and number before it is buffered, and constructs that XMPP
//! forbids in XML (declarations of types, comments, instructions, entities of one's own) end the
//! session. A password is never sent without TLS. Concurrency: plain data, one owner. Failure:
//! [`XmppError`]; a session that has failed is of no more use.

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
