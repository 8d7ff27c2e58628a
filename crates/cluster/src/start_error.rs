//! Reason why a node's part in a cluster does not start.

use crate::error::ClusterError;

/// Reason why the dispatcher, the notices or the bucket of a node did not start, or could not stop
/// cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Stored state of other nodes cannot be read.
    #[error("cannot read the stored state of other nodes: {0}")]
    Fleet(#[from] ClusterError),
    /// The bucket of a cloud cannot be used, or its lease is lost.
    #[error("cannot use the bucket of copies: {0}")]
    Bucket(String),
    /// A dispatcher cannot start with these settings.
    #[error("cannot start the dispatcher: {0}")]
    Dispatch(String),
    /// Notices cannot be published or received with these settings.
    #[error("cannot start notices: {0}")]
    Notices(String),
    /// The system refused a resource.
    #[error("cannot start a connection or thread of the cluster: {0}")]
    Serve(#[from] std::io::Error),
}
