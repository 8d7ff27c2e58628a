//! A client of XMPP (RFC 6120) for publish-subscribe (XEP-0060): its requests, and the answers.
//!
//! From bottom to top: `element` an XML element and its text form; `reader` an incremental parser
//! of the server's stream; `jid` addresses; `scram` proof of a password without revealing it;
//! `session` a connection from its first byte to the requests and answers over it; `pubsub` the
//! requests of publish-subscribe and the interpretation of their answers.
//!
//! Invariants: no sockets, clocks, threads and random numbers: the caller of a [`Session`] supplies
//! bytes. Input is bounded in size, depth and number before it is buffered, and constructs that
//! XMPP forbids in XML (document type declarations, comments, instructions, user-defined entities)
//! end the session. A password is never sent without TLS. Concurrency: plain data, one owner.
//! Failure: [`XmppError`]; a failed session cannot be used further.

mod element;
mod jid;
pub mod pubsub;
mod reader;
mod scram;
mod session;

pub use element::{Element, Node, is_xml_text};
pub use jid::{Jid, JidError};
pub use reader::{Limits, Read, Reader, XmlError};
pub use scram::{Hash, Scram, ScramError};
pub use session::{Happened, IqKind, Login, Refusal, Session, XmppError};
