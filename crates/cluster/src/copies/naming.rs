//! Names by which streams of several copies are told apart in the merged view: by tags that are
//! added to the streams of an edge, and by moves, which say whose rows of a stream count when.
//!
//! Invariants: each change is one record of the list of edges, and is shown by the next reader. A
//! tag that streams of the edge have already is refused; where such a stream comes later, its own
//! tag is shown as `exported_KEY` ([`AddedTags`]). Concurrency: as [`EdgeCopies`]. Failure: the
//! list's own errors, and those of a copy that cannot be read.

use super::EdgeCopies;
use crate::edges::{Tags, added};
use crate::error::{ClusterError, of_device};
use crate::subscription::StreamPattern;
use headwater_engine::{AddedTags, Snapshot, SnapshotPart};
use headwater_types::{StreamName, Timestamp};
use std::collections::BTreeMap;

/// Names that are read at once.
const NAMES_AT_ONCE: usize = 4_096;

impl EdgeCopies {
    /// Checks that tags can be added to the streams of an edge, which may be a new one.
    ///
    /// # Errors
    /// `invalid` for tags that no stream may have, and where a stream of the edge has one of them;
    /// the copy's own.
    pub fn check_tags(
        &self,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), ClusterError> {
        let tags = added(tags)?;
        for folder in self.folders_of(name) {
            let snapshot = self.own_snapshot_of_part(&folder)?;
            if let Some(snapshot) = snapshot
                && let Some((stream, key)) = stream_with(&snapshot, &tags).map_err(of_device)?
            {
                return Err(ClusterError::invalid(format!(
                    "the stream `{stream}` of `{name}` has a tag `{key}` of its own; choose another key"
                )));
            }
        }
        Ok(())
    }

    /// Folders of the copies of an edge: its own, and those of the closed parts before it.
    fn folders_of(&self, name: &str) -> Vec<String> {
        let edges = self.edges.lock();
        let copies = edges
            .get(name)
            .map(|edge| edges.list().copies_with(edge.folder()));
        let copies = copies.unwrap_or_default().into_iter();
        copies.map(|copy| copy.folder).collect()
    }

    /// Adds tags to the names of all streams of an edge, also of the closed parts before it,
    /// instead of those before. Returns the number of the change.
    ///
    /// # Errors
    /// As [`EdgeCopies::check_tags`], `not_found`, `invalid` for an edge of another cloud, `io`.
    pub fn tag(&self, name: &str, tags: BTreeMap<String, String>) -> Result<u64, ClusterError> {
        self.check_is_own(name)?;
        self.check_tags(name, &tags)?;
        let now = self.env.clock.now();
        let number = self.edges.lock().tag(name, tags, now)?;
        for folder in self.folders_of(name) {
            self.held(&folder)?.has_changed();
        }
        self.changes.add_other();
        Ok(number)
    }

    /// Declares that streams went from one edge or closed part to another at an instant, now unless
    /// given: where both have rows of a stream, those of the first count before it, and those of
    /// the second from it on. Returns the number of the change.
    ///
    /// # Errors
    /// `not_found`, `invalid` for two copies of one edge, `io`.
    pub fn move_streams(
        &self,
        pattern: StreamPattern,
        from: &str,
        to: &str,
        at: Option<Timestamp>,
    ) -> Result<u64, ClusterError> {
        let now = self.env.clock.now();
        let at = at.unwrap_or(now);
        let number = self
            .edges
            .lock()
            .move_streams(pattern, (from, to), at, now)?;
        self.changes.add_other();
        Ok(number)
    }

    /// Tags that are added to the streams of the copy in a folder.
    pub(super) fn tags_in(&self, folder: &str) -> Tags {
        let edges = self.edges.lock();
        let list = edges.list();
        let edge = list.edges.iter().find(|edge| edge.folder() == folder);
        let part = list.parts.iter().find(|part| part.folder == folder);
        let tags = edge.map(|edge| &edge.tags);
        tags.or_else(|| part.map(|part| &part.tags))
            .cloned()
            .unwrap_or_default()
    }

    /// The copy in a folder for a reader of its own, with the names under which its streams are
    /// shown.
    pub(super) fn part_snapshot(&self, folder: &str) -> Result<Option<Snapshot>, ClusterError> {
        let snapshot = self.own_snapshot_of_part(folder)?;
        let tags = added(&self.tags_in(folder))?;
        match snapshot {
            Some(snapshot) if !tags.is_empty() => {
                let part = SnapshotPart {
                    name: folder.into(),
                    rank: 0,
                    snapshot,
                    tags,
                };
                Ok(Some(Snapshot::of_parts(vec![part]).map_err(of_device)?))
            }
            snapshot => Ok(snapshot),
        }
    }
}

/// A stream that has one of the tags already, and the key.
fn stream_with(
    snapshot: &Snapshot,
    tags: &AddedTags,
) -> headwater_engine::Result<Option<(StreamName, String)>> {
    for table in snapshot.table_names() {
        let known = snapshot.table_info(&table)?.tags;
        let keys = tags.iter().map(|(key, _)| key);
        let keys: Vec<&str> = keys.filter(|key| known.iter().any(|k| k == key)).collect();
        let mut last: Option<StreamName> = None;
        while !keys.is_empty() {
            let page = snapshot.streams_after(&table, last.as_ref(), NAMES_AT_ONCE)?;
            for stream in &page {
                if let Some(key) = keys.iter().find(|key| stream.tag(key).is_some()) {
                    return Ok(Some((stream.clone(), (*key).to_owned())));
                }
            }
            if page.len() < NAMES_AT_ONCE {
                break;
            }
            last = page.into_iter().next_back();
        }
    }
    Ok(None)
}
