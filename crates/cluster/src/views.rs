//! Facts of each edge's copy that decide where a query is answered.
//!
//! Invariants: addresses are taken from the list of edges, never from reports of an edge. Only the
//! state of copies in memory is read. Concurrency: acquires the locks of the list and of one copy,
//! one after the other.

use crate::copies::{EdgeCopies, is_current};
use crate::edges::{ClosedPart, Edge, EdgeAddress};
use crate::error::ClusterError;
use crate::subscription::StreamShare;
use headwater_engine::{AddedTags, Database, Reason, Snapshot};
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
    /// Bytes of it that are here.
    pub bytes: u64,
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
        self.edge.rank()
    }

    /// Address at which clients reach the edge directly; `None` too for an edge whose streams are
    /// shown under names that they do not have there.
    #[must_use]
    pub fn address(&self) -> Option<&EdgeAddress> {
        let address = self.edge.address.as_ref();
        address.filter(|_| self.edge.tags.is_empty())
    }

    /// Tags that are added to the names of its streams.
    #[must_use]
    pub fn tags(&self) -> AddedTags {
        self.edge.added_tags()
    }

    /// The subscription where no rule fits.
    #[must_use]
    pub fn share(&self) -> StreamShare {
        self.edge.want
    }

    /// The subscription of a stream by the edge's own name of it: the first rule that fits decides.
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

impl EdgeCopies {
    /// All edges, as of now, and closed parts as edges that are not connected, sorted by name.
    #[must_use]
    pub fn views(&self) -> Vec<EdgeView> {
        let edges = self.all_edges().into_iter().map(|edge| (edge, false));
        let parts = self.closed_parts();
        let parts = parts.iter().map(|part| (part.as_edge(), true));
        let mut edges: Vec<(Edge, bool)> = edges.chain(parts).collect();
        edges.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let views = edges.into_iter().map(|(edge, is_closed)| {
            let held = self.entry_at(edge.folder(), &edge.name);
            // Read first: later changes are then noticed at the next look.
            let changes = held.changes();
            let live = held.live.lock();
            let progress = live.progress.as_ref();
            EdgeView {
                edge,
                // A closed part has nothing newer than its copy.
                is_connected: live.session != 0 && !is_closed,
                is_current: progress.is_some_and(is_current),
                changes,
                bytes: progress.map_or(0, |p| p.bytes),
                database: progress.map(|p| (p.state.identity, p.state.incarnation)),
            }
        });
        views.collect()
    }

    /// Whether the copy of an edge may have more than the data that tiles at the subscribed level
    /// need. Of a closed copy it is not known.
    pub(crate) fn may_have_more(&self, view: &EdgeView) -> bool {
        if view.share() == StreamShare::Full && !view.has_rules() {
            return false;
        }
        let held = self.entry_at(view.edge.folder(), view.name());
        let tallies = held.tallies();
        let summaries = tallies.iter().find(|of| of.reason == Reason::Summaries);
        let present = summaries.map(|of| of.subscribed_bytes.saturating_sub(of.missing));
        let bytes = held.live.lock().progress.as_ref().map(|p| p.bytes);
        present
            .zip(bytes)
            .is_none_or(|(present, bytes)| bytes > present)
    }

    /// Snapshot of an edge; `None` if no data of it is here, or it was removed.
    ///
    /// # Errors
    /// An error of the device.
    pub fn shown_of_edge(&self, name: &str) -> Result<Option<Snapshot>, ClusterError> {
        let part = || {
            let parts = self.closed_parts();
            let found = parts.iter().find(|part| part.label() == name);
            found.map(ClosedPart::as_edge)
        };
        let Some(edge) = self.edge(name).or_else(part) else {
            return Ok(None);
        };
        let held = self.entry_at(edge.folder(), name);
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
