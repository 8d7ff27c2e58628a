//! Closed parts, and the changes by which copies become closed parts and edges again.
//!
//! Invariants: a copy of a closed part receives no data; it is opened like the copy of an edge, and
//! closed when it is not in use. A folder is deleted after the list no longer names it, and at the
//! next opening if the process ended in between; a copy in the directory that no list names is
//! taken up as a closed part. Concurrency: as [`EdgeCopies`]. Failure: a change is made in the list
//! first; what follows is repeated at the next opening.

use super::EdgeCopies;
use crate::edge_copy::{CopyLocation, EdgeCopy, Shows};
use crate::edges::{
    ChangeRecord, ClosedPart, Edges, FoundCopy, Roster, RosterAnswer, RosterCopy, hexed,
    name_of_folder,
};
use crate::error::{ClusterError, ClusterErrorKind, of_device};
use crate::invite::{Invite, check_url};
use crate::subscription::StreamShare;
use headwater_types::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// File that every copy has.
const INDEX: &str = "copy.redb";
/// Folder in which earlier versions put copies aside.
const ASIDE: &str = "copies-aside";

/// Status of a copy: of an edge, or a closed part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStatus {
    /// Name of the part: the edge, or for a closed part the edge, `@`, and a number.
    pub part: String,
    /// The edge in whose place it is; missing = that edge was removed.
    pub edge: Option<String>,
    /// True when it receives no more data.
    pub is_closed: bool,
    /// Reason why it is closed.
    pub why: Option<String>,
    /// When it was closed.
    pub closed_ns: Option<i64>,
    /// Identity of the database, in hexadecimal digits.
    pub identity: Option<String>,
    /// Incarnation of the database, in hexadecimal digits.
    pub incarnation: Option<String>,
    /// Bytes here.
    pub bytes: u64,
    /// Subscribed bytes that are not here.
    pub missing_bytes: u64,
    /// Number of streams.
    pub streams: u64,
    /// Rows; missing = they cannot be counted, since data that is needed is not here.
    pub rows: Option<u64>,
    /// Earliest instant.
    pub first_ns: Option<i64>,
    /// Latest instant.
    pub last_ns: Option<i64>,
    /// Reason why it cannot be read.
    pub error: Option<String>,
}

/// A stream of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamContents {
    /// Name of the stream.
    pub stream: String,
    /// Its rows.
    pub rows: u64,
    /// Earliest instant.
    pub first_ns: Option<i64>,
    /// Latest instant.
    pub last_ns: Option<i64>,
    /// Other copies with the stream in this span.
    pub also_in: Vec<String>,
}

/// Streams of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStreams {
    /// Number of all streams.
    pub count: u64,
    /// Rows of all streams.
    pub rows: u64,
    /// Number of streams that no other copy has in their span.
    pub only_here: u64,
    /// Rows of these.
    pub only_here_rows: u64,
    /// The first streams, by name.
    pub streams: Vec<StreamContents>,
}

/// Result of comparing a copy with the hashes that its edge sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedPart {
    /// Segments that are equal to their hashes.
    pub equal: u64,
    /// Their bytes.
    pub equal_bytes: u64,
    /// Segments that differ, or cannot be read.
    pub different: u64,
    /// Segments that are not whole here, or whose hashes are not known.
    pub unproven: u64,
}

/// Brings the folders of copies and the list of edges into agreement: deletes what is to be
/// deleted, and takes up copies that no list names.
pub(super) fn settle_folders(
    dir: &Path,
    edges: &mut Edges,
    now: Timestamp,
) -> Result<(), ClusterError> {
    let copies = dir.join("copies");
    delete_dropped(&copies, edges)?;
    take_from_aside(dir, edges)?;
    let mut found = Vec::new();
    for folder in folders_in(&copies)? {
        let is_known = edges.list().folders().any(|known| known == folder);
        if let Some(name) = name_of_folder(&folder).filter(|_| !is_known) {
            found.push(FoundCopy {
                name: name.to_owned(),
                modified_ns: modified(&copies.join(&folder), now),
                folder,
            });
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => edges.take_up(found, now),
    }
}

/// Deletes the folders that are to be deleted.
fn delete_dropped(copies: &Path, edges: &mut Edges) -> Result<(), ClusterError> {
    let dropped = edges.list().dropped.clone();
    if dropped.is_empty() {
        return Ok(());
    }
    for folder in &dropped {
        let path = copies.join(folder);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(ClusterError::io(&path, &error));
            }
            _ => {}
        }
    }
    edges.set_deleted(&dropped)
}

/// Moves copies that earlier versions put aside to the other copies.
fn take_from_aside(dir: &Path, edges: &Edges) -> Result<(), ClusterError> {
    let (aside, copies) = (dir.join(ASIDE), dir.join("copies"));
    for folder in folders_in(&aside)? {
        let name = folder.rsplit_once('.').map_or(&*folder, |(name, _)| name);
        let is_known = |to: &str| edges.list().folders().any(|known| known == to);
        let free = (1..=u64::MAX)
            .map(|number| crate::edges::numbered(name, number))
            .find(|to| !is_known(to) && !copies.join(to).exists());
        if let Some(to) = free.map(|to| copies.join(to)) {
            let moved = std::fs::create_dir_all(&copies)
                .and_then(|()| std::fs::rename(aside.join(&folder), &to));
            moved.map_err(|e| ClusterError::io(&to, &e))?;
        }
    }
    // Without copies it is of no more use.
    let _ = std::fs::remove_dir(&aside);
    Ok(())
}

/// Names of the folders of copies in a directory, ascending.
fn folders_in(dir: &Path) -> Result<Vec<String>, ClusterError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ClusterError::io(dir, &error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| ClusterError::io(dir, &e))?;
        if entry.path().join(INDEX).exists()
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push(name);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// When the index of a copy was written last.
fn modified(copy: &Path, otherwise: Timestamp) -> i64 {
    let read = std::fs::metadata(copy.join(INDEX)).and_then(|found| found.modified());
    let since = read.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let nanos = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    nanos.unwrap_or(otherwise.as_nanos())
}

impl EdgeCopies {
    /// All closed parts.
    pub(crate) fn closed_parts(&self) -> Vec<ClosedPart> {
        self.edges.lock().list().parts.clone()
    }

    /// Folder of the copy of an edge or a closed part.
    pub(crate) fn folder_of(&self, name: &str) -> Option<String> {
        let edges = self.edges.lock();
        let list = edges.list();
        let edge = list.edges.iter().find(|edge| edge.name == name);
        let part = || list.parts.iter().find(|part| part.label() == name);
        let folder = edge.map(|edge| edge.folder().to_owned());
        folder.or_else(|| part().map(|part| part.folder.clone()))
    }

    /// Names of all edges and closed parts, by the folders of their copies.
    pub(crate) fn names_by_folder(&self) -> HashMap<String, String> {
        let edges = self.edges.lock();
        let list = edges.list();
        let parts = list.parts.iter();
        let parts = parts.map(|part| (part.folder.clone(), part.label()));
        let edges = list.edges.iter();
        let edges = edges.map(|edge| (edge.folder().to_owned(), edge.name.clone()));
        parts.chain(edges).collect()
    }

    /// Identity of the database of a copy, where there is a copy; `known` is that of the list.
    fn identity_of(
        &self,
        known: Option<u64>,
        folder: &str,
        part: Option<&ClosedPart>,
    ) -> Result<Option<u64>, ClusterError> {
        if !self.copies().join(folder).join(INDEX).exists() {
            return Ok(None);
        }
        let Some(part) = part.filter(|_| known.is_none()) else {
            return Ok(known);
        };
        // A part that was found in the directory: no connection changes its progress.
        let held = self.entry_at(folder, &part.label());
        if held.live.lock().progress.is_none()
            && let Some(progress) = held
                .glance(&self.location_of_part(part)?)
                .map_err(of_device)?
        {
            held.note(progress);
        }
        let live = held.live.lock();
        Ok(live.progress.as_ref().map(|p| p.state.identity))
    }

    /// All copies with data, as a peer is told them, but under the names that they have here and
    /// without the path.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn roster_for(&self, peer: u64) -> Result<Roster, ClusterError> {
        let own = self.node();
        let (edges, parts, removed, moves) = {
            let edges = self.edges.lock();
            let list = edges.list();
            let moves = list.moves_for_peer(own, peer);
            (
                list.edges.clone(),
                list.parts.clone(),
                list.removed(),
                moves,
            )
        };
        let mut copies = Vec::new();
        for edge in &edges {
            if let Some(identity) = self.identity_of(edge.identity, edge.folder(), None)? {
                copies.push(RosterCopy::of_edge(edge, identity));
            }
        }
        for part in &parts {
            let found = self.identity_of(part.identity, &part.folder, Some(part))?;
            if let Some(identity) = found {
                copies.push(RosterCopy::of_part(part, identity));
            }
        }
        Ok(Roster {
            node: hexed(own),
            want: StreamShare::default(),
            copies,
            removed,
            moves,
        })
    }

    fn has_copy(&self, name: &str) -> bool {
        let edge = self.edge(name);
        edge.is_some_and(|edge| self.copies().join(edge.folder()).join(INDEX).exists())
    }

    fn location_of_part(&self, part: &ClosedPart) -> Result<CopyLocation, ClusterError> {
        Ok(CopyLocation {
            env: self.env.clone(),
            dir: self.copies().join(&part.folder),
            rules: part.subscription_rules()?,
        })
    }

    /// The copy in a folder, and its location.
    pub(crate) fn located(
        &self,
        folder: &str,
    ) -> Result<(Arc<EdgeCopy>, CopyLocation), ClusterError> {
        let (edge, part) = {
            let edges = self.edges.lock();
            let list = edges.list();
            let edge = list.edges.iter().find(|edge| edge.folder() == folder);
            let part = list.parts.iter().find(|part| part.folder == folder);
            (edge.cloned(), part.cloned())
        };
        if let Some(edge) = edge {
            let held = self.entry_at(folder, &edge.name);
            return Ok((held, self.location_of(&edge)?));
        }
        let part = part.ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!("there is no copy in the folder `{folder}`"),
            )
        })?;
        let held = self.entry_at(folder, &part.label());
        Ok((held, self.location_of_part(&part)?))
    }

    pub(super) fn shown_of_part(
        &self,
        part: &ClosedPart,
        held: &Arc<EdgeCopy>,
    ) -> Result<Shows, ClusterError> {
        let open = || self.copy_at(held, &self.location_of_part(part)?);
        held.shows(open, &self.readers)
    }

    /// Starts over with the copy of an edge, for a connection: what there is becomes a closed part.
    /// Returns the copy of the edge from now on.
    pub(crate) fn start_over(
        &self,
        before: &Arc<EdgeCopy>,
        session: u64,
    ) -> Result<Arc<EdgeCopy>, ClusterError> {
        let name = before.name();
        let has_copy = self.has_copy(&name);
        let now = self.env.clock.now();
        self.edges.lock().start_over(&name, now, has_copy)?;
        let after = self.entry(&name);
        if !Arc::ptr_eq(before, &after) {
            let (path, about, last_message, processes) = {
                let mut live = before.live.lock();
                let processes = std::mem::take(&mut live.processes);
                let (path, about) = (live.path.clone(), live.about.clone());
                (path, about, live.last_message, processes)
            };
            let mut live = after.live.lock();
            (live.session, live.processes) = (session, processes);
            (live.path, live.about, live.last_message) = (path, about, last_message);
            drop(live);
        } else {
            before.close();
            let mut live = before.live.lock();
            (live.progress, live.refused, live.failed) = (None, None, None);
            live.durable = None;
        }
        self.settle_copies();
        Ok(after)
    }

    /// Gives each open copy to the edge or closed part that the list names.
    fn settle_copies(&self) {
        let names: HashMap<String, (String, bool)> = {
            let edges = self.edges.lock();
            let list = edges.list();
            let parts = list.parts.iter();
            let parts = parts.map(|part| (part.folder.clone(), (part.label(), true)));
            let edges = list.edges.iter();
            let edges = edges.map(|edge| (edge.folder().to_owned(), (edge.name.clone(), false)));
            parts.chain(edges).collect()
        };
        let (held, gone): (Vec<_>, Vec<_>) = {
            let mut all = self.edge_copies.lock();
            let (here, gone): (HashMap<_, _>, HashMap<_, _>) = all
                .drain()
                .partition(|(folder, _)| names.contains_key(folder));
            all.extend(here.iter().map(|(f, held)| (f.clone(), Arc::clone(held))));
            (here.into_iter().collect(), gone.into_values().collect())
        };
        for held in gone {
            held.end_session();
            held.close();
        }
        for (folder, held) in held {
            if let Some((name, is_closed)) = names.get(&folder)
                && held.set_name(name)
            {
                if *is_closed {
                    held.end_session();
                }
                held.has_changed();
            }
        }
        // An edge or a part without an open copy may have another name, too.
        self.changes.add_other();
    }

    fn delete_dropped(&self) {
        if let Err(error) = delete_dropped(&self.copies(), &mut self.edges.lock()) {
            tracing::warn!(%error, "a copy that was removed cannot be deleted; it is tried again at the next start");
        }
    }

    /// Applies the roster of a peer: the edges and closed parts that follow its copies become what
    /// these are there.
    ///
    /// # Errors
    /// `invalid` for a roster with two edges of one name, `io`.
    pub fn mirror(&self, roster: &Roster) -> Result<RosterAnswer, ClusterError> {
        if roster.node == hexed(self.node()) {
            return Err(ClusterError::invalid(
                "the roster is of this node itself: name another cloud as `cloud.peer`",
            ));
        }
        let (before, answer) = {
            let mut edges = self.edges.lock();
            let before = edges.version();
            (
                before,
                edges.mirror(roster, self.node(), self.env.clock.now())?,
            )
        };
        if self.roster_version() != before {
            self.settle_copies();
            self.delete_dropped();
        }
        Ok(answer)
    }

    /// Makes the copy of an edge that another node relays a closed part, since it is one there; the
    /// part still receives what is not here yet. Returns the key for the copy that goes on in its
    /// place, where one does and has not connected.
    pub(crate) fn close_followed(
        &self,
        name: &str,
        is_succeeded: bool,
    ) -> Result<Option<String>, ClusterError> {
        let now = self.env.clock.now();
        let key = self.edges.lock().close_followed(name, is_succeeded, now)?;
        self.settle_copies();
        Ok(key)
    }

    /// For the folder of a closed part the folder of the copy that goes on in its place, if one
    /// does; `None` for other folders.
    pub(crate) fn closed_in(&self, folder: &str) -> Option<Option<String>> {
        let edges = self.edges.lock();
        let list = edges.list();
        let part = list.parts.iter().find(|part| part.folder == folder)?;
        let edge = part.edge.as_deref().and_then(|edge| edges.get(edge).ok());
        Some(edge.map(|edge| edge.folder().to_owned()))
    }

    /// Refuses changes of an edge or closed part that follows another cloud, while that is
    /// connected: it is changed there.
    pub(super) fn check_is_own(&self, name: &str) -> Result<(), ClusterError> {
        let (follows, folder) = {
            let edges = self.edges.lock();
            let list = edges.list();
            let edge = list.edges.iter().find(|edge| edge.name == name);
            let part = list.parts.iter().find(|part| part.label() == name);
            let edge = edge.map(|edge| (edge.follows.is_some(), edge.folder().to_owned()));
            let part = part.map(|part| (part.follows.is_some(), part.folder.clone()));
            edge.or(part).unwrap_or_default()
        };
        let is_connected = || self.entry_at(&folder, name).live.lock().session != 0;
        match follows && is_connected() {
            false => Ok(()),
            true => Err(ClusterError::invalid(format!(
                "`{name}` comes from another cloud, which is connected: change it there, and this node does the same"
            ))),
        }
    }

    /// Removes an edge: its key is invalid from then on, and its copy becomes a closed part.
    /// Returns the number of the change.
    ///
    /// # Errors
    /// `not_found`, `invalid` for an edge of another cloud, `io`.
    pub fn remove(&self, name: &str) -> Result<u64, ClusterError> {
        self.check_is_own(name)?;
        let (has_copy, now) = (self.has_copy(name), self.env.clock.now());
        let number = self.edges.lock().remove(name, now, has_copy)?;
        self.settle_copies();
        Ok(number)
    }

    /// Removes an edge and deletes its copy; its closed parts stay. Returns the number of the
    /// change.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn remove_with_history(&self, name: &str) -> Result<u64, ClusterError> {
        self.check_is_own(name)?;
        let now = self.env.clock.now();
        let number = self.edges.lock().remove_with_history(name, now)?;
        self.settle_copies();
        self.delete_dropped();
        Ok(number)
    }

    /// Removes a closed part and deletes its copy. Returns the number of the change.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn remove_part(&self, part: &str) -> Result<u64, ClusterError> {
        self.check_is_own(part)?;
        let now = self.env.clock.now();
        let number = self.edges.lock().remove_part(part, now)?;
        self.settle_copies();
        self.delete_dropped();
        Ok(number)
    }

    /// Renames an edge. Returns the number of the change.
    ///
    /// # Errors
    /// `not_found`, `taken`, `invalid` for a bad name or an edge of another cloud, `io`.
    pub fn rename(&self, from: &str, to: &str) -> Result<u64, ClusterError> {
        self.check_is_own(from)?;
        let now = self.env.clock.now();
        let number = self.edges.lock().rename(from, to, now)?;
        self.settle_copies();
        Ok(number)
    }

    /// Puts an edge in the place of another one, whose copy becomes a closed part. An edge that
    /// exists is put there; otherwise a machine is invited, with the settings of the replaced edge,
    /// and the text that lets it join is returned. Returns the number of the change, too.
    ///
    /// # Errors
    /// `not_found`, `invalid` for a bad name or address or an edge of another cloud, `io`.
    pub fn replace(
        &self,
        name: &str,
        by: &str,
        url: &str,
        ca: Option<String>,
        valid: Duration,
    ) -> Result<(u64, Option<String>), ClusterError> {
        self.check_is_own(name)?;
        let (has_copy, now) = (self.has_copy(name), self.env.clock.now());
        if by != name && self.edge(by).is_some() {
            self.check_is_own(by)?;
            let number = self.edges.lock().replace_by_edge(name, by, now, has_copy)?;
            self.settle_copies();
            return Ok((number, None));
        }
        check_url(url)?;
        let changed = self
            .edges
            .lock()
            .replace_by_new(name, by, now, valid, has_copy);
        let (number, secret) = changed?;
        self.settle_copies();
        let invite = Invite {
            url: url.to_owned(),
            edge: by.to_owned(),
            secret,
            ca,
        };
        Ok((number, Some(invite.encode()?)))
    }

    /// Undoes a renaming, a replacement, or a removal without history. Returns the number of this
    /// change.
    ///
    /// # Errors
    /// `not_found` for an unknown number, `invalid` when it cannot be undone, `taken`, `io`.
    pub fn undo(&self, number: u64) -> Result<u64, ClusterError> {
        let now = self.env.clock.now();
        let undone = self.edges.lock().undo(number, now)?;
        self.settle_copies();
        Ok(undone)
    }

    /// The newest changes, oldest first.
    #[must_use]
    pub fn change_records(&self) -> Vec<ChangeRecord> {
        self.edges.lock().list().records.clone()
    }
}
