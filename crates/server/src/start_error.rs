//! Why a server does not start.

use crate::access::tokens::TokenError;
use std::net::SocketAddr;

/// Why a server did not start, or could not end in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The database cannot be opened, or not be closed.
    #[error("the database {dir}: {source}")]
    Database {
        /// Its directory.
        dir: String,
        /// What the engine says.
        source: headwater::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; name another with --http-addr, for example --http-addr {}:0 for any free port", addr.ip())]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The address for clients of PostgreSQL cannot be listened on.
    #[cfg(feature = "sql")]
    #[error(
        "cannot listen on {addr} for clients of PostgreSQL: {source}; name another with --postgres-addr"
    )]
    ListenPostgres {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others could reach the server, and nothing would keep them out.
    #[error(
        "{0} can be reached from other machines, and there are no tokens: make one with `headwater token create`, listen on 127.0.0.1, or say --allow-open if everyone may read and write everything"
    )]
    Open(SocketAddr),
    /// Others could read what is sent.
    #[error(
        "{0} can be reached from other machines, and there is no TLS: set tls.cert and tls.key, listen on 127.0.0.1, or say --allow-plaintext if others may read what is sent, tokens too, or a proxy does TLS"
    )]
    Plaintext(SocketAddr),
    /// A certificate or key cannot be used.
    #[error("{path}: {reason}")]
    Tls {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// Messages cannot be taken from a broker with these settings.
    #[error("mqtt: {0}")]
    Mqtt(String),
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The system denied something that serving needs.
    #[error("serving failed: {0}")]
    Serve(#[from] std::io::Error),
}

impl From<headwater_shell::StartError> for StartError {
    fn from(error: headwater_shell::StartError) -> StartError {
        use headwater_shell::StartError as Shell;
        match error {
            Shell::Listen { addr, source } => StartError::Listen { addr, source },
            Shell::Open(addr) => StartError::Open(addr),
            Shell::Plaintext(addr) => StartError::Plaintext(addr),
            Shell::Tls(error) => StartError::Tls {
                path: error.path,
                reason: error.reason,
            },
            Shell::Tokens(error) => StartError::Tokens(error),
            Shell::Serve(source) => StartError::Serve(source),
            other => StartError::Serve(std::io::Error::other(other)),
        }
    }
}
