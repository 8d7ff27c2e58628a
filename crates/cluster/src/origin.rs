//! Source of a connection to a cloud: the node's own database, or its copy of an edge.
//!
//! Invariants: a copy is opened for the duration of a request, and no reference to it is retained.
//! A relayed copy is known by its folder, which stays when its edge is renamed or becomes a closed
//! part. Concurrency: as in the database and
//! the copies. Failure: `not_found` if no data of the edge is here.

use crate::copies::EdgeCopies;
use crate::edge_copy::{EdgeCopy, FURTHER};
use crate::error::{ClusterError, ClusterErrorKind, of_device};
use headwater_engine::Database;
use headwater_protocol::replication::Source;
use std::sync::Arc;

/// Name under which a database registers the cloud's copy.
const COPY: &str = "cloud";

/// The source.
#[derive(Debug)]
pub(crate) enum Origin {
    Database(Database),
    /// The copy in a folder, of an edge or a closed part.
    Copy(Arc<EdgeCopies>, String),
}

impl Origin {
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self, Origin::Copy(..))
    }

    /// Whether the source cannot have changed: a closed copy receives no messages.
    pub(crate) fn rests(&self) -> bool {
        match self {
            Origin::Database(_) => false,
            Origin::Copy(fleet, folder) => {
                let held = fleet.held(folder);
                held.is_ok_and(|held| held.open_copy().is_none())
            }
        }
    }

    /// Name under which the cloud's copy is registered.
    pub(crate) fn copy(&self) -> &'static str {
        match self {
            Origin::Database(_) => COPY,
            Origin::Copy(..) => FURTHER,
        }
    }

    /// Calls `ask` with the source.
    pub(crate) fn with<T>(
        &self,
        ask: &mut dyn FnMut(&dyn Source) -> headwater_engine::Result<T>,
    ) -> Result<T, ClusterError> {
        match self {
            Origin::Database(db) => ask(db).map_err(of_device),
            Origin::Copy(fleet, folder) => {
                let copy = fleet.part_copy(folder)?.ok_or_else(|| {
                    ClusterError::new(
                        ClusterErrorKind::NotFound,
                        "this node has no data of this edge yet",
                    )
                })?;
                ask(&copy).map_err(of_device)
            }
        }
    }

    /// Begins another incarnation of the database: copies of the states before do not continue
    /// with it. A relayed copy keeps the incarnation of its source.
    pub(crate) fn renew(&self) -> Result<(), ClusterError> {
        match self {
            Origin::Database(db) => db.begin_incarnation().map_err(of_device),
            Origin::Copy(..) => Ok(()),
        }
    }

    /// Registers the copy at the cloud, which has to receive every delete from now on.
    pub(crate) fn add_copy(&self) -> Result<(), ClusterError> {
        match self {
            Origin::Database(db) => db.add_copy(COPY).map_err(of_device),
            Origin::Copy(fleet, folder) => {
                fleet.held(folder)?.set_relayed(true);
                Ok(())
            }
        }
    }

    /// Unregisters the copy, which does not have to receive deletes any more.
    pub(crate) fn remove_copy(&self) -> Result<(), ClusterError> {
        match self {
            Origin::Database(db) => db.remove_copy(COPY).map_err(of_device),
            Origin::Copy(fleet, folder) => {
                fleet.held(folder)?.set_relayed(false);
                Ok(())
            }
        }
    }

    /// Number of the served state; 0 if there is no state.
    pub(crate) fn number(&self) -> headwater_engine::Result<u64> {
        match self {
            Origin::Database(db) => db.state_number(),
            Origin::Copy(fleet, folder) => {
                let held = fleet.held(folder).ok();
                let number = |held: Arc<EdgeCopy>| {
                    let live = held.live.lock();
                    live.progress.as_ref().map(|p| p.state.number)
                };
                Ok(held.and_then(number).unwrap_or(0))
            }
        }
    }

    /// Flushes events that wait in memory, so that a copy receives them.
    pub(crate) fn flush(&self) -> Result<(), ClusterError> {
        match self {
            Origin::Database(db) => match db.stats().map_err(of_device)?.events_in_memory {
                0 => Ok(()),
                _ => db.flush().map_err(of_device),
            },
            Origin::Copy(..) => Ok(()),
        }
    }

    /// Bytes that there are, and bytes that were written for them since the start.
    pub(crate) fn sizes(&self) -> Result<(u64, u64), ClusterError> {
        match self {
            Origin::Database(db) => {
                let stats = db.stats().map_err(of_device)?;
                let written = stats.bulk_written_bytes + stats.fast_written_bytes;
                Ok((stats.disk_bytes, written))
            }
            Origin::Copy(fleet, folder) => {
                let held = fleet.held(folder)?;
                let live = held.live.lock();
                Ok((live.progress.as_ref().map_or(0, |p| p.bytes), 0))
            }
        }
    }

    /// For a closed part the folder of the copy that goes on in its place, if one does; `None` for
    /// other sources.
    pub(crate) fn closed(&self) -> Option<Option<String>> {
        match self {
            Origin::Database(_) => None,
            Origin::Copy(fleet, folder) => fleet.closed_in(folder),
        }
    }

    /// Nodes through which the relayed data has passed, this node last; empty for a node's own
    /// data.
    pub(crate) fn path(&self) -> Vec<u64> {
        match self {
            Origin::Database(_) => Vec::new(),
            Origin::Copy(fleet, folder) => {
                let mut path = fleet.path_of(folder);
                path.push(fleet.node());
                path
            }
        }
    }
}

/// Maximum number of nodes through which data may have passed.
const PATH_MAX: usize = 8;

/// Reason to refuse data that passed through these nodes, if any.
pub(crate) fn refuses(fleet: &EdgeCopies, path: &[u64]) -> Option<String> {
    let node = fleet.node();
    if node != 0 && path.contains(&node) {
        return Some(
            "its relays form a loop through this node; stop one of them (`headwater edges relay NAME --stop`)"
                .to_owned(),
        );
    }
    (path.len() > PATH_MAX).then(|| {
        format!(
            "it is relayed through {} nodes; at most {PATH_MAX} are allowed",
            path.len()
        )
    })
}
