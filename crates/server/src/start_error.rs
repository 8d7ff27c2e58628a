//! Reason why a server does not start.

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
        "the database {dir}: {source}; use --read-only to serve a database that cannot be written"
    )]
    Unwritable {
        /// Directory of the database.
        dir: String,
        /// Error of the engine.
        source: headwater::Error,
    },
    /// The names of databases cannot be read or stored.
    #[error("cannot read or store the database names of InfluxDB clients: {source}")]
    Names {
        /// Cause of the failure.
        source: headwater_ask::Error,
    },
    /// The address for clients of PostgreSQL cannot be listened on.
    #[error(
        "cannot listen on {addr} for PostgreSQL clients: {source}; choose another address with --postgres-addr"
    )]
    ListenPostgres {
        /// The requested address.
        addr: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The node's part in a cluster cannot start, or its lease of a bucket is lost.
    #[error(transparent)]
    Cluster(#[from] headwater_cluster::StartError),
    /// The lake cannot be used at its configured location.
    #[error("cannot use the lake: {0}")]
    Lake(String),
    /// Messages cannot be received from a broker with these settings.
    #[error("cannot connect to a broker with the mqtt settings: {0}")]
    Mqtt(String),
    /// The system refused a resource that serving needs.
    #[error("cannot start a thread or connection of the server: {0}")]
    Serve(#[from] std::io::Error),
}

impl From<headwater_cluster::ClusterError> for StartError {
    fn from(error: headwater_cluster::ClusterError) -> StartError {
        StartError::Cluster(error.into())
    }
}
