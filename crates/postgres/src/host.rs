//! Services of the server that the front end is part of.
//!
//! Invariant: the trait does not depend on HTTP, or on files of tokens or certificates: the server
//! chooses their storage. Concurrency: called from any task, at any time; a method must not block.

use headwater_query::{Access, Owner, Query, Slots, Threads};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The server that the front end is part of.
pub trait Host: Send + Sync + 'static {
    /// True when all clients are admitted without a token.
    fn is_open(&self) -> bool;

    /// Admits a client by its token, or without one; `None` = the client is refused.
    fn admit(&self, token: Option<String>) -> Option<Arc<dyn Grant>>;

    /// TLS for the next connection; `None` = without TLS.
    fn tls(&self) -> Option<Arc<rustls::ServerConfig>>;

    /// Fills the buffer with cryptographically random bytes.
    ///
    /// # Errors
    /// When the system cannot supply random bytes.
    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// Rights that one client was granted.
pub trait Grant: Send + Sync + 'static {
    /// True while the grant is valid: false after it has expired or was revoked.
    fn is_current(&self) -> bool;

    /// True when the grant allows any action.
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
    /// Threads that compute statements.
    pub threads: Arc<Threads>,
    /// A slot for each statement that may run.
    pub slots: Arc<Slots>,
}

/// Settings of the front end.
#[derive(Debug, Clone)]
pub struct FrontEndSettings {
    /// Serve other machines without tokens.
    pub allow_open: bool,
    /// Request tokens from other machines without TLS.
    pub allow_plaintext: bool,
    /// Maximum sessions at once.
    pub connections_max: usize,
    /// Longest time from a connection to its session, TLS and password included.
    pub startup_timeout: Duration,
    /// The time that a session may be silent, or not read.
    pub idle_timeout: Duration,
    /// Longest time of a statement, until its rows have been read.
    pub statement_timeout: Duration,
    /// Longest time that sessions have to end after a stop begins.
    pub shutdown_timeout: Duration,
    /// Largest message of a client in bytes.
    pub message_bytes_max: usize,
}
