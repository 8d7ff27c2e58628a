//! Services of the server that the front end is part of.
//!
//! Invariant: nothing here is about HTTP, files of tokens or certificates: the server stores them
//! as it likes.
//! Concurrency: called from any task, at any time; an answer must not block.

use headwater_query::{Access, Owner, Query, Slots, Threads};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The server that the front end is part of.
pub trait Host: Send + Sync + 'static {
    /// Whether everyone is let in without a token.
    fn is_open(&self) -> bool;

    /// Lets a client in by the token it gave, or without one; `None` = it is not let in.
    fn admit(&self, token: Option<String>) -> Option<Arc<dyn Grant>>;

    /// TLS for the next connection; `None` = none is spoken.
    fn tls(&self) -> Option<Arc<rustls::ServerConfig>>;

    /// Fills in random bytes that nobody can guess.
    ///
    /// # Errors
    /// When the system gives none.
    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// Rights that one client was granted.
pub trait Grant: Send + Sync + 'static {
    /// Whether it still holds: false once it has ended or was revoked.
    fn is_current(&self) -> bool;

    /// Whether it allows anything at all.
    fn allows_anything(&self) -> bool;

    /// The data that its statements may see and change.
    fn access(&self) -> Arc<dyn Access>;

    /// The owner of its statements, where each owner has a share of the slots.
    fn owner(&self) -> Owner;
}

/// Parts that run statements; shared with other front ends.
#[derive(Debug, Clone)]
pub struct Statements {
    /// SQL over the database.
    pub query: Query,
    /// Where statements are computed.
    pub threads: Arc<Threads>,
    /// A slot for each statement that may run.
    pub slots: Arc<Slots>,
}

/// Settings of the front end.
#[derive(Debug, Clone)]
pub struct FrontEndSettings {
    /// Serve other machines without tokens.
    pub allow_open: bool,
    /// Ask for tokens of other machines without TLS.
    pub allow_plaintext: bool,
    /// Most sessions at once.
    pub connections_max: usize,
    /// Longest time from a connection to its session, TLS and password included.
    pub startup_timeout: Duration,
    /// The time that a session may be silent, or not read.
    pub idle_timeout: Duration,
    /// Longest time of a statement, until its rows have been read.
    pub statement_timeout: Duration,
    /// Longest time that sessions may take to end once the server stops.
    pub shutdown_timeout: Duration,
    /// Largest message of a client in bytes.
    pub message_bytes_max: usize,
}
