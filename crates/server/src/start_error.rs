//! Reason why a server does not start.

#[cfg(feature = "sql")]
use std::net::SocketAddr;

/// Reason why a server did not start, or could not stop cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address may not or cannot be listened on, or tokens or certificates cannot be read.
    #[error(transparent)]
    Shell(#[from] headwater_shell::StartError),
    /// The database cannot be opened, or not be closed.
    #[error("the database {dir}: {source}")]
    Database {
        /// Directory of the database.
        dir: String,
        /// Error of the engine.
        source: headwater::Error,
    },
    /// The files of the database may not be written.
    #[error(
        "the database {dir}: {source}; what lies where nothing can be written is served with --read-only"
    )]
    Unwritable {
        /// Directory of the database.
        dir: String,
        /// Error of the engine.
        source: headwater::Error,
    },
    /// The names of databases cannot be read or stored.
    #[error("the names of databases, which InfluxDB's clients use: {source}")]
    Names {
        /// Cause of the failure.
        source: headwater_ask::Error,
    },
    /// The address for clients of PostgreSQL cannot be listened on.
    #[cfg(feature = "sql")]
    #[error(
        "cannot listen on {addr} for clients of PostgreSQL: {source}; name another with --postgres-addr"
    )]
    ListenPostgres {
        /// The requested address.
        addr: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Stored state of other nodes cannot be read.
    #[error("other nodes: {0}")]
    Fleet(#[from] headwater_fleet::FleetError),
    /// The bucket of a cloud cannot be used, or its lease is lost.
    #[error("the bucket: {0}")]
    Bucket(String),
    /// The lake cannot be used at its configured location.
    #[error("the lake: {0}")]
    Lake(String),
    /// A dispatcher cannot start with these settings.
    #[error("dispatch: {0}")]
    Dispatch(String),
    /// Notices cannot be published or received with these settings.
    #[error("notices: {0}")]
    Notices(String),
    /// Messages cannot be received from a broker with these settings.
    #[error("mqtt: {0}")]
    Mqtt(String),
    /// The system refused a resource that serving needs.
    #[error("serving failed: {0}")]
    Serve(#[from] std::io::Error),
}
