//! Source of a connection to a cloud: the node's own database, or its copy of an edge.
//!
//! Invariants: a copy is opened for the duration of a request, and no reference to it is retained.
//! Only an edge's copy is relayed, under the name of the edge. Concurrency: as in the database and
//! the copies. Failure: `not_found` if no data of the edge is here.

use crate::copies::Fleet;
use crate::edge_copy::FURTHER;
use crate::error::{FleetError, medium};
use headwater_engine::Database;
use headwater_protocol::replication::Source;
use std::sync::Arc;

/// Name under which a database registers the cloud's copy.
const COPY: &str = "cloud";

/// The source.
#[derive(Debug)]
pub(crate) enum Origin {
    Database(Database),
    Copy(Arc<Fleet>, String),
}

impl Origin {
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self, Origin::Copy(..))
    }

    /// Whether the source cannot have changed: a closed copy receives no messages.
    pub(crate) fn rests(&self) -> bool {
        match self {
            Origin::Database(_) => false,
            Origin::Copy(fleet, name) => fleet.held(name).open_copy().is_none(),
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
    ) -> Result<T, FleetError> {
        match self {
            Origin::Database(db) => ask(db).map_err(medium),
            Origin::Copy(fleet, name) => {
                let (_, copy) = fleet.copy_of(name)?;
                ask(&copy).map_err(medium)
            }
        }
    }

    /// Registers the copy at the cloud, which has to receive every delete from now on.
    pub(crate) fn add_copy(&self) -> Result<(), FleetError> {
        match self {
            Origin::Database(db) => db.add_copy(COPY).map_err(medium),
            Origin::Copy(fleet, name) => {
                fleet.held(name).set_relayed(true);
                Ok(())
            }
        }
    }

    /// Unregisters the copy, which does not have to receive deletes any more.
    pub(crate) fn remove_copy(&self) -> Result<(), FleetError> {
        match self {
            Origin::Database(db) => db.remove_copy(COPY).map_err(medium),
            Origin::Copy(fleet, name) => {
                fleet.held(name).set_relayed(false);
                Ok(())
            }
        }
    }

    /// Number of the served state; 0 if there is no state.
    pub(crate) fn number(&self) -> headwater_engine::Result<u64> {
        match self {
            Origin::Database(db) => db.state_number(),
            Origin::Copy(fleet, name) => {
                let held = fleet.held(name);
                let live = held.live.lock();
                Ok(live.progress.as_ref().map_or(0, |p| p.state.number))
            }
        }
    }

    /// Flushes events that wait in memory, so that a copy receives them.
    pub(crate) fn flush(&self) -> Result<(), FleetError> {
        match self {
            Origin::Database(db) => match db.stats().map_err(medium)?.events_in_memory {
                0 => Ok(()),
                _ => db.flush().map_err(medium),
            },
            Origin::Copy(..) => Ok(()),
        }
    }

    /// Bytes that there are, and bytes that were written for them since the start.
    pub(crate) fn sizes(&self) -> Result<(u64, u64), FleetError> {
        match self {
            Origin::Database(db) => {
                let stats = db.stats().map_err(medium)?;
                let written = stats.bulk_written_bytes + stats.fast_written_bytes;
                Ok((stats.disk_bytes, written))
            }
            Origin::Copy(fleet, name) => {
                let held = fleet.held(name);
                let live = held.live.lock();
                Ok((live.progress.as_ref().map_or(0, |p| p.bytes), 0))
            }
        }
    }

    /// Nodes through which the relayed data has passed, this node last; empty for a node's own
    /// data.
    pub(crate) fn path(&self) -> Vec<u64> {
        match self {
            Origin::Database(_) => Vec::new(),
            Origin::Copy(fleet, name) => {
                let mut path = fleet.held(name).live.lock().path.clone();
                path.push(fleet.node());
                path
            }
        }
    }
}

/// Maximum number of nodes through which data may have passed.
const PATH_MAX: usize = 8;

/// Reason to refuse data that passed through these nodes, if any.
pub(crate) fn refuses(fleet: &Fleet, path: &[u64]) -> Option<String> {
    let node = fleet.node();
    if node != 0 && path.contains(&node) {
        return Some(
            "it has come through this node before: that is a circle; stop one of its relays (`headwater edges relay NAME --stop`)"
                .to_owned(),
        );
    }
    (path.len() > PATH_MAX).then(|| {
        format!(
            "it has come through {} nodes, and {PATH_MAX} are the most",
            path.len()
        )
    })
}
