//! Facts of each edge's copy that decide where a query is answered.
//!
//! Invariants: addresses are taken from the list of edges, never from reports of an edge. Only the
//! state of copies in memory is read. Concurrency: acquires the locks of the list and of one copy,
//! one after the other.

use crate::copies::{Fleet, is_current};
use crate::edges::{Edge, EdgeAddress};
use crate::error::FleetError;
use crate::subscription::StreamShare;
use headwater_engine::{Database, Snapshot};
use headwater_types::StreamName;
use std::sync::Arc;

/// An edge, as of now.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeView {
    edge: Edge,
    /// The edge is connected to this node.
    pub is_connected: bool,
    /// Every subscribed range of its newest state is here.
    pub is_current: bool,
    /// Incremented when the visible content of the edge may have changed.
    pub changes: u64,
    /// Identity and incarnation of its database, once something of it is here.
    pub database: Option<(u64, u64)>,
}

impl EdgeView {
    /// Name of the edge.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.edge.name
    }

    /// Rank of the edge: of several edges with a stream, the one with the lowest rank is shown.
    #[must_use]
    pub fn rank(&self) -> u64 {
        self.edge.created_ns.max(0).unsigned_abs()
    }

    /// Address at which clients reach the edge directly.
    #[must_use]
    pub fn address(&self) -> Option<&EdgeAddress> {
        self.edge.address.as_ref()
    }

    /// The subscription where no rule fits.
    #[must_use]
    pub fn want(&self) -> StreamShare {
        self.edge.want
    }

    /// The subscription of a stream: the first rule that fits decides.
    #[must_use]
    pub fn want_of(&self, stream: &StreamName) -> StreamShare {
        let rule = self.edge.rules.iter().find(|rule| rule.fits(stream));
        rule.map_or(self.edge.want, |rule| rule.want)
    }

    /// Whether the rules differ between streams of the edge.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        !self.edge.rules.is_empty()
    }
}

impl Fleet {
    /// All edges, as of now, sorted by name.
    #[must_use]
    pub fn views(&self) -> Vec<EdgeView> {
        let mut edges = self.all_edges();
        edges.sort_by(|a, b| a.name.cmp(&b.name));
        let views = edges.into_iter().map(|edge| {
            let held = self.held(&edge.name);
            // Read first: later changes are then noticed at the next look.
            let changes = held.changes();
            let live = held.live.lock();
            let progress = live.progress.as_ref();
            EdgeView {
                edge,
                is_connected: live.session != 0,
                is_current: progress.is_some_and(is_current),
                changes,
                database: progress.map(|p| (p.state.identity, p.state.incarnation)),
            }
        });
        views.collect()
    }

    /// Snapshot of an edge; `None` if no data of it is here, or it was removed.
    ///
    /// # Errors
    /// An error of the device.
    pub fn shown_of_edge(&self, name: &str) -> Result<Option<Snapshot>, FleetError> {
        let Some(edge) = self.edge(name) else {
            return Ok(None);
        };
        let held = self.held(name);
        let snapshot = self.snapshot_of(&edge, &held)?;
        if held.live.lock().progress.is_none() {
            self.look_once(&edge, &Arc::clone(&held));
        }
        Ok(snapshot)
    }
}

/// Identity and incarnation of a database, which are assigned if necessary.
///
/// # Errors
/// When the metadata cannot be read or written.
pub fn database_of(db: &Database) -> headwater_engine::Result<(u64, u64)> {
    db.history()
}
