//! Which database an edge may send.
//!
//! Invariants: a name belongs to the first database that connects as it, until its edge begins
//! anew. Two edges of this node never have one history, of which two copies could not be told apart
//! elsewhere. Concurrency and failure: as [`EdgeCopies`].

use super::EdgeCopies;
use crate::edges::ClosedReason;
use crate::error::ClusterError;
use headwater_engine::StateName;

/// Most closed parts that an edge leaves behind by itself.
const PARTS_MAX: usize = 64;

impl EdgeCopies {
    /// True when the database belongs to the name: the first database that connected.
    pub(crate) fn admit(&self, name: &str, state: &StateName) -> Result<bool, ClusterError> {
        let mut edges = self.edges.lock();
        let known = match edges.followed(name) {
            Some(edge) => edge.identity,
            None => edges.get(name)?.identity,
        };
        match known {
            Some(known) => Ok(known == state.identity),
            None => {
                edges.set_identity(name, state.identity)?;
                Ok(true)
            }
        }
    }

    /// Reason to refuse a database that another edge of this node has, with the same history, if
    /// one has. Edges that come from other nodes do not count: they may be relayed over several.
    pub(crate) fn is_of_another(&self, name: &str, state: &StateName) -> Option<String> {
        if !self.is_direct(name) {
            return None;
        }
        let all = self.all_edges();
        let others = all.iter().filter(|edge| edge.name != name);
        let mut same = others.filter(|edge| edge.identity == Some(state.identity));
        let other = same.find(|edge| {
            if !self.is_direct(&edge.name) {
                return false;
            }
            let held = self.entry(&edge.name);
            if held.live.lock().progress.is_none() {
                self.look_once(edge, &held);
            }
            let live = held.live.lock();
            let history = live.progress.as_ref().map(|p| p.state.incarnation);
            history == Some(state.incarnation)
        })?;
        let other = &other.name;
        Some(format!(
            "this database is that of the edge `{other}`, too, since its disk was copied, or it has joined again under another name: run `headwater join --new-incarnation` at the edge `{name}`, after which the two are different databases, or remove the other one (`headwater edges remove {other}`)"
        ))
    }

    /// True for an edge that connects to this node itself, as far as is known.
    fn is_direct(&self, name: &str) -> bool {
        let edge = self.edge(name);
        edge.is_some_and(|edge| edge.follows.is_none() && self.path_of(edge.folder()).is_empty())
    }

    /// Reason to refuse an edge that leaves one closed part after another behind, if it does.
    pub(crate) fn has_many_parts(&self, name: &str) -> Option<String> {
        let parts = self.closed_parts();
        let by_itself = parts.iter().filter(|part| {
            let is_by_itself = matches!(
                part.why,
                ClosedReason::NewIncarnation | ClosedReason::Replaced
            );
            is_by_itself && part.edge.as_deref() == Some(name)
        });
        let count = by_itself.count();
        (count >= PARTS_MAX).then(|| {
            format!(
                "the edge has begun anew too often: {count} closed parts are kept of it, {PARTS_MAX} are allowed; remove those that are not needed (`headwater edges parts` and `headwater edges parts remove` at the cloud)"
            )
        })
    }
}
