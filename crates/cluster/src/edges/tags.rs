//! Tags that are added to the names of all streams of an edge, in the view of this node.
//!
//! Invariants: the copy of an edge and the closed parts before it get the same tags; a copy that
//! becomes a closed part has those of its edge. Concurrency: plain data. Failure: a refused change
//! leaves the list unchanged.

use super::list::{List, RecordedChange};
use super::tag_set::{Tags, added};
use super::{Edge, Edges};
use crate::error::ClusterError;
use headwater_engine::AddedTags;
use headwater_types::Timestamp;
use std::collections::BTreeMap;

impl Edge {
    /// Tags that are added to the names of its streams. Valid, since they are checked when they are
    /// set.
    pub(crate) fn added_tags(&self) -> AddedTags {
        added(&self.tags).unwrap_or_default()
    }
}

impl List {
    /// Sets the tags of a copy; returns those before.
    fn set_tags(&mut self, folder: &str, tags: &Tags) -> Tags {
        let edges = self.edges.iter_mut().filter(|edge| edge.folder() == folder);
        let edges = edges.map(|edge| &mut edge.tags);
        let parts = self.parts.iter_mut().filter(|part| part.folder == folder);
        let mut known = edges.chain(parts.map(|part| &mut part.tags));
        known
            .next()
            .map_or_else(Tags::new, |known| std::mem::replace(known, tags.clone()))
    }

    fn tags_of(&self, folder: &str) -> Option<&Tags> {
        let edge = self.edges.iter().find(|edge| edge.folder() == folder);
        let part = self.parts.iter().find(|part| part.folder == folder);
        let tags = edge.map(|edge| &edge.tags);
        tags.or_else(|| part.map(|part| &part.tags))
    }

    /// Gives the copies of an edge the tags of before a change; the reason if it has others since.
    pub(super) fn undo_tag(
        &mut self,
        folder: &str,
        tags: &Tags,
        before: &BTreeMap<String, Tags>,
    ) -> Result<(), &'static str> {
        if self.tags_of(folder) != Some(tags) {
            return Err("the edge has other tags since, or was removed; undo that first");
        }
        let of_edge = before.get(folder).map_or_else(Tags::new, Tags::clone);
        for copy in self.copies_with(folder) {
            if self.tags_of(&copy.folder) == Some(tags) {
                let tags = before.get(&copy.folder).unwrap_or(&of_edge);
                self.set_tags(&copy.folder, tags);
            }
        }
        Ok(())
    }
}

impl Edges {
    /// Adds tags to the names of all streams of an edge, instead of those before. Returns the
    /// number of the change.
    pub(crate) fn tag(
        &mut self,
        name: &str,
        tags: Tags,
        now: Timestamp,
    ) -> Result<u64, ClusterError> {
        added(&tags)?;
        self.change(|list| {
            let folder = list.edge_mut(name)?.folder().to_owned();
            let mut before = BTreeMap::new();
            for copy in list.copies_with(&folder) {
                before.insert(copy.folder.clone(), list.set_tags(&copy.folder, &tags));
            }
            let change = RecordedChange::Tag {
                edge: name.to_owned(),
                folder,
                tags,
                before,
            };
            Ok(list.record(now.as_nanos(), change))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::tag_set::{TAGS_MAX, TEXT_MAX};
    use super::*;
    use crate::error::ClusterErrorKind;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn tags(value: &str) -> Tags {
        match value {
            "" => Tags::new(),
            value => [("gateway".to_owned(), value.to_owned())].into(),
        }
    }

    /// Values of the tag of the edge and of its parts, oldest first.
    fn values(edges: &Edges, name: &str) -> Vec<String> {
        let value = |tags: &Tags| tags.get("gateway").map_or_else(String::new, String::clone);
        let parts = edges.list().parts.iter();
        let mut all: Vec<String> = parts.map(|part| value(&part.tags)).collect();
        all.push(value(&edges.get(name).unwrap().tags));
        all
    }

    #[test]
    fn tags_are_those_of_an_edge_and_its_closed_parts_and_are_undone() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = Edges::open(dir.path()).unwrap();
        edges.invite("a", None, NOW, HOUR, false).unwrap();
        let first = edges.tag("a", tags("x"), NOW).unwrap();
        edges.start_over("a", NOW, true).unwrap();
        assert_eq!(values(&edges, "a"), ["x", "x"]);
        let second = edges.tag("a", tags("y"), NOW).unwrap();
        assert_eq!(values(&edges, "a"), ["y", "y"]);
        edges.start_over("a", NOW, true).unwrap();
        assert_eq!(values(&edges, "a"), ["y", "y", "y"]);
        let early = edges.undo(first, NOW).unwrap_err();
        assert_eq!(early.kind(), ClusterErrorKind::Invalid);
        edges.undo(second, NOW).unwrap();
        assert_eq!(values(&edges, "a"), ["x", "x", "x"]);
        edges.undo(first, NOW).unwrap();
        assert_eq!(values(&edges, "a"), ["", "", ""]);
        // A successor goes on under the same names.
        edges.tag("a", tags("x"), NOW).unwrap();
        edges.replace_by_new("a", "b", NOW, HOUR, true).unwrap();
        assert_eq!(values(&edges, "b"), ["x", "x", "x", "x"]);
        let edges = Edges::open(dir.path()).unwrap();
        assert_eq!(values(&edges, "b"), ["x", "x", "x", "x"]);
    }

    #[test]
    fn tags_that_no_stream_may_have_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = Edges::open(dir.path()).unwrap();
        edges.invite("a", None, NOW, HOUR, false).unwrap();
        let long = "x".repeat(TEXT_MAX + 1);
        for wrong in [long.as_str(), "a\nb"] {
            let error = edges.tag("a", tags(wrong), NOW).unwrap_err();
            assert_eq!(error.kind(), ClusterErrorKind::Invalid, "{wrong}");
        }
        let many = (0..=TAGS_MAX).map(|n| (format!("t{n}"), "x".to_owned()));
        let error = edges.tag("a", many.collect(), NOW).unwrap_err();
        assert_eq!(error.kind(), ClusterErrorKind::Invalid);
        let empty = [("gateway".to_owned(), String::new())].into();
        assert!(edges.tag("a", empty, NOW).is_err());
        let unknown = edges.tag("b", tags("x"), NOW).unwrap_err();
        assert_eq!(unknown.kind(), ClusterErrorKind::NotFound);
    }
}
