//! The merged view of a node: its own database and its copies, as readers see them.
//!
//! Invariants: only copies that have changed are looked at again, or all of them after an error or
//! a change of the list of edges. An answer that an unreadable copy could change is refused.
//! Concurrency: one lock, held while copies are looked at. Failure: an unreadable copy is reported
//! in the status of its edge, and looked at again by the next reader.

use super::EdgeCopies;
use crate::edge_copy::{EdgeCopy, Shows};
use crate::edges::OWN;
use crate::edges::{Edge, PartsMove, added, owners};
use crate::error::ClusterError;
use headwater_engine::{Across, AddedTags, Snapshot, SnapshotPart};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The own database and the visible content of all copies, merged.
#[derive(Debug, Default)]
pub(super) struct MergedView {
    merged: Across,
    /// The edges and closed parts that are among them.
    names: BTreeSet<String>,
    /// Their ranks, and the tags that are added to their streams, when they were last looked at.
    places: BTreeMap<String, PartView>,
    /// Which changes they show.
    changes: Option<u64>,
    /// Version of the list of edges that they show.
    list: Option<u64>,
    /// The moves that they show.
    moves: Vec<PartsMove>,
    /// Number of copies that were looked at.
    looks: u64,
}

/// Rank of a part, and the tags that are added to its streams.
type PartView = (u64, AddedTags);

impl MergedView {
    /// Records the place of a part. A part with another place than before is put again, even if its
    /// copy is unchanged.
    fn place(&mut self, name: &str, place: &PartView, held: &EdgeCopy) {
        let before = self.places.insert(name.to_owned(), place.clone());
        if before.is_some_and(|before| before != *place) {
            held.has_changed();
        }
    }
}

impl EdgeCopies {
    /// The node's own database and all copies merged: the own database first, then the edges in the
    /// order of their addition, each after its closed parts. Answers that an unreadable copy could
    /// change are refused.
    ///
    /// # Errors
    /// The database's own.
    pub fn across(&self, own: Snapshot) -> headwater_engine::Result<Snapshot> {
        let mut shown = self.shown.lock();
        shown.merged.replace(SnapshotPart {
            name: OWN.into(),
            rank: 0,
            snapshot: own,
            tags: AddedTags::default(),
        })?;
        let changes = self.changes.count();
        if shown.changes != Some(changes) {
            // After an error all copies are looked at.
            let list = shown.list.take();
            shown.changes = None;
            self.show(&mut shown, list)?;
            shown.changes = Some(changes);
        }
        shown.merged.snapshot()
    }

    /// Releases the node's own database, which is to be closed.
    ///
    /// # Errors
    /// The engine's own.
    pub fn let_go(&self) -> headwater_engine::Result<()> {
        self.shown.lock().merged.remove(OWN)
    }

    /// Looks at the copies that have changed, or at all if the list of edges is another than
    /// `list`.
    fn show(&self, shown: &mut MergedView, list: Option<u64>) -> headwater_engine::Result<()> {
        let changed = self.changes.take();
        let (version, mut edges, mut parts, moves) = {
            let known = self.edges.lock();
            let is_same = list == Some(known.version());
            let moves = (!is_same).then(|| known.list().moves_of_parts());
            let is_shown = |folder: &str| !is_same || changed.contains(folder);
            let edges = known.all().iter().filter(|edge| is_shown(edge.folder()));
            let parts = known.list().parts.iter();
            let parts = parts.filter(|part| is_shown(&part.folder));
            let (edges, parts): (Vec<Edge>, Vec<_>) =
                (edges.cloned().collect(), parts.cloned().collect());
            (known.version(), edges, parts, moves)
        };
        if let Some(moves) = moves.filter(|moves| *moves != shown.moves) {
            shown.merged.set_owners(owners(&moves));
            shown.moves = moves;
        }
        let mut names = BTreeSet::new();
        let mut unread = Vec::new();
        let mut looked = BTreeSet::new();
        for part in parts.drain(..) {
            let label = part.label();
            let held = self.entry_at(&part.folder, &label);
            let at = (part.rank, added(&part.tags).unwrap_or_default());
            shown.place(&label, &at, &held);
            let shows = self.shown_of_part(&part, &held);
            unread.extend(shows.is_err().then(|| part.folder.clone()));
            put_shown(shown, &mut names, &label, at, &held, shows)?;
            looked.insert(label);
        }
        edges.sort_by(|a, b| a.created_ns.cmp(&b.created_ns).then(a.name.cmp(&b.name)));
        for edge in &edges {
            let held = self.entry_at(edge.folder(), &edge.name);
            let at = (edge.rank(), edge.added_tags());
            shown.place(&edge.name, &at, &held);
            let shows = self.shown_of(edge, &held);
            unread.extend(shows.is_err().then(|| edge.folder().to_owned()));
            put_shown(shown, &mut names, &edge.name, at, &held, shows)?;
            looked.insert(edge.name.clone());
        }
        shown.looks += u64::try_from(looked.len()).unwrap_or(0);
        let before = std::mem::take(&mut shown.names);
        let is_same = list == Some(version);
        for name in before.difference(&names) {
            // What was not looked at is as it was.
            match is_same && !looked.contains(name) {
                true => drop(shown.names.insert(name.clone())),
                false => {
                    shown.places.remove(name);
                    shown.merged.remove(name)?;
                }
            }
        }
        shown.names.append(&mut names);
        self.changes.again(unread);
        shown.list = Some(version);
        Ok(())
    }

    /// Number of copies that readers have looked at for changes since the start.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.shown.lock().looks
    }

    fn shown_of(&self, edge: &Edge, held: &Arc<EdgeCopy>) -> Result<Shows, ClusterError> {
        held.shows(|| self.copy(held, edge), &self.readers)
    }
}

/// Puts what a copy shows among the others, and its name among theirs.
fn put_shown(
    shown: &mut MergedView,
    names: &mut BTreeSet<String>,
    name: &str,
    (rank, tags): PartView,
    held: &EdgeCopy,
    shows: Result<Shows, ClusterError>,
) -> headwater_engine::Result<()> {
    match shows {
        Ok(Shows::NoCopy) => return Ok(()),
        Ok(Shows::Unchanged) => {}
        Ok(Shows::Snapshot(snapshot)) => {
            let put = shown.merged.replace(SnapshotPart {
                name: name.into(),
                rank,
                snapshot,
                tags,
            });
            if let Err(error) = put {
                cannot_be_read(shown, name, held, &error)?;
            }
        }
        Err(error) => cannot_be_read(shown, name, held, &error)?,
    }
    names.insert(name.to_owned());
    Ok(())
}

/// Marks a copy as unreadable: answers that it could change are refused until it can be read again,
/// or is removed. Requests that allow a partial answer read `Snapshot::allowing_partial`.
fn cannot_be_read(
    shown: &mut MergedView,
    edge: &str,
    held: &EdgeCopy,
    error: &impl std::fmt::Display,
) -> headwater_engine::Result<()> {
    tracing::error!(edge, %error, "the copy of an edge cannot be read");
    let reason = error.to_string();
    shown.merged.set_unreadable(edge, &reason)?;
    held.live.lock().failed = Some(reason);
    Ok(())
}
