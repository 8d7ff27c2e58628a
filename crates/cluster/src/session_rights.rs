//! Rights and keys of one connection, at the cloud: the list of rights and the next key of the edge
//! that are due.
//!
//! Invariants: an edge is sent a list only after it has said that it takes lists, and only a list
//! that it does not have. The next key of an edge is valid at the cloud before it is sent, and the
//! key before is valid until the edge has stored the next one: a crash of either side leaves a key
//! that both have. Concurrency: owned by the task of the connection. Failure: a list of edges that
//! cannot be stored ends the connection.

use crate::copies::EdgeCopies;
use crate::error::ClusterError;
use crate::frame::{Note, note, rights};
use tokio_tungstenite::tungstenite::Message as Frame;

/// State of rights and keys of one connection, at the cloud.
#[derive(Debug, Default)]
pub(crate) struct SessionRights {
    /// Number and digest of the list that the edge has; `None` = it takes no lists.
    known: Option<(u64, String)>,
    /// Digest of the list that was sent last.
    sent: String,
    /// The next key of the edge, and the version of the list of edges that has it.
    issued: Option<(String, u64)>,
    is_key_sent: bool,
}

impl SessionRights {
    /// Records the list that the edge has.
    pub(crate) fn take_known(&mut self, number: u64, digest: String) {
        self.known = Some((number, digest));
        self.sent.clear();
    }

    /// Ends the key before: the edge has stored the next one.
    pub(crate) fn take_kept(&mut self, fleet: &EdgeCopies, edge: &str) -> Result<(), ClusterError> {
        if let Some((key, _)) = self.issued.take() {
            self.is_key_sent = false;
            if fleet.confirm_key(edge, &key)? {
                tracing::info!(edge, "an edge has its next key; the key before has ended");
            }
        }
        Ok(())
    }

    /// Frames that are due.
    pub(crate) fn frames(
        &mut self,
        fleet: &EdgeCopies,
        edge: &str,
    ) -> Result<Vec<Frame>, ClusterError> {
        let mut frames = Vec::new();
        if let (Some((number, digest)), Some(list)) = (&self.known, fleet.rights()) {
            let is_newer =
                list.number > *number || (list.number == *number && list.digest != *digest);
            if is_newer && self.sent != list.digest {
                frames.extend(rights(&list.bytes));
                self.sent.clone_from(&list.digest);
            }
        }
        frames.extend(self.next_key(fleet, edge)?);
        Ok(frames)
    }

    /// The next key of the edge, once a restart of this node cannot lose it.
    fn next_key(&mut self, fleet: &EdgeCopies, edge: &str) -> Result<Option<Frame>, ClusterError> {
        if self.issued.is_none() {
            if !fleet.edge(edge).is_some_and(|edge| edge.is_key_due) {
                return Ok(None);
            }
            let key = fleet.issue_key(edge)?;
            self.issued = Some((key, fleet.roster_version()));
        }
        let is_persisted =
            |version: u64| !fleet.waits() || *fleet.persisted_roster.borrow() >= version;
        match &self.issued {
            Some((key, version)) if !self.is_key_sent && is_persisted(*version) => {
                self.is_key_sent = true;
                Ok(Some(note(&Note::NewKey { key: key.clone() })))
            }
            _ => Ok(None),
        }
    }
}
