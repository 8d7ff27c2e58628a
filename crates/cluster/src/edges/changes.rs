//! Changes of which copy belongs to which edge: removal, renaming, replacement, and their undoing.
//!
//! Invariants: no change takes a copy out of the list, except those that are to delete it; each
//! change is stored with its record in one replacement of the file. Concurrency: plain data.
//! Failure: a refused change leaves the list unchanged.

use super::list::{ClosedPart, ClosedReason, List, RecordedChange, numbered};
use super::{Edge, Edges, check_name, secret};
use crate::error::{ClusterError, ClusterErrorKind};
use crate::invite::SECRET_PREFIX;
use headwater_shell::access::token::{hash, hex};
use headwater_types::Timestamp;
use std::time::Duration;

/// A copy in the directory that no list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundCopy {
    pub(crate) folder: String,
    /// Name of the edge that it was made for.
    pub(crate) name: String,
    pub(crate) modified_ns: i64,
}

/// A replacement that is to be undone.
#[derive(Debug)]
struct Replaced {
    /// Number of its change.
    number: u64,
    /// The replaced edge.
    before: Edge,
    /// Folder of its successor's copy.
    folder: String,
    /// The successor before the replacement; `None` = it was invited by that.
    by_before: Option<Edge>,
    /// Parts that were closed.
    parts: Vec<u64>,
    at_ns: i64,
}

fn taken(name: &str) -> ClusterError {
    ClusterError::new(
        ClusterErrorKind::NameExists,
        format!("the edge `{name}` already exists; `headwater edges` lists all of them"),
    )
}

fn no_part(label: &str) -> ClusterError {
    ClusterError::new(
        ClusterErrorKind::NotFound,
        format!("there is no closed part `{label}`; list them with `headwater edges parts`"),
    )
}

fn cannot_undo(number: u64, reason: &str) -> ClusterError {
    ClusterError::invalid(format!("change {number} cannot be undone: {reason}"))
}

impl List {
    fn has_edge(&self, name: &str) -> bool {
        self.edges.iter().any(|edge| edge.name == name)
    }

    /// Numbers of the closed parts of an edge.
    fn parts_of(&self, name: &str) -> Vec<u64> {
        // Numbers of parts that follow another node's were given out there.
        let parts = self.parts.iter().filter(|part| part.follows.is_none());
        let own = parts.filter(|part| part.edge.as_deref() == Some(name));
        own.map(|part| part.number).collect()
    }

    /// Sets the edge that goes on in the place of some parts.
    fn link(&mut self, parts: &[u64], edge: Option<&str>) {
        for part in &mut self.parts {
            if part.follows.is_none() && parts.contains(&part.number) {
                part.edge = edge.map(str::to_owned);
            }
        }
    }

    /// Adds the copy of an edge as a closed part with the number of a change.
    pub(super) fn close(&mut self, edge: &Edge, number: u64, now: Timestamp, why: ClosedReason) {
        self.parts.push(ClosedPart {
            number,
            name: edge.name.clone(),
            edge: None,
            folder: edge.folder().to_owned(),
            rank: edge.rank(),
            closed_ns: now.as_nanos(),
            why,
            identity: edge.identity,
            want: edge.want,
            rules: edge.rules.clone(),
            tags: edge.tags.clone(),
            follows: None,
            key: None,
        });
    }

    /// Takes the closed part of a change from the list, where there was one.
    fn reopen(&mut self, number: u64, parts: &[u64]) -> Result<(), ClusterError> {
        let is_it = |part: &ClosedPart| part.follows.is_none() && part.number == number;
        let at = self.parts.iter().position(is_it);
        match at {
            Some(at) => drop(self.parts.remove(at)),
            None if parts.contains(&number) => {
                return Err(cannot_undo(number, "the closed part was removed since"));
            }
            None => {}
        }
        Ok(())
    }

    /// Gives an edge the next folder, and no database.
    pub(super) fn start_over(edge: &mut Edge, folder: String) {
        edge.folder = Some(folder);
        edge.identity = None;
        edge.closed_before = edge.closed_before.saturating_add(1);
    }

    fn undo_remove(
        &mut self,
        number: u64,
        before: Edge,
        parts: &[u64],
    ) -> Result<(), ClusterError> {
        if self.has_edge(&before.name) {
            return Err(taken(&before.name));
        }
        self.reopen(number, parts)?;
        self.link(parts, Some(&before.name));
        self.put_back(before);
        Ok(())
    }

    /// Adds an edge again. One that had no copy gets another folder, if its folder is in use since.
    fn put_back(&mut self, mut edge: Edge) {
        if self.folders().any(|folder| folder == edge.folder()) {
            edge.folder = self.free_folder(&edge.name);
        }
        self.edges.push(edge);
    }

    fn undo_replace(&mut self, replaced: Replaced) -> Result<(), ClusterError> {
        let Replaced {
            number,
            before,
            folder,
            by_before,
            parts,
            at_ns,
        } = replaced;
        let at = self.edges.iter().position(|edge| edge.folder() == folder);
        let at = at.ok_or_else(|| {
            cannot_undo(
                number,
                "the successor was removed or replaced since; undo that first",
            )
        })?;
        let mut by = self.edges.remove(at);
        if self.has_edge(&before.name) || (by.name == before.name && by.identity.is_some()) {
            return Err(cannot_undo(
                number,
                &format!(
                    "the name `{}` is in use; rename that edge first (`headwater edges rename`)",
                    before.name
                ),
            ));
        }
        self.reopen(number, &parts)?;
        self.link(&parts, Some(&before.name));
        match by_before {
            Some(was) => {
                (by.created_ns, by.closed_before) = (was.created_ns, was.closed_before);
                self.edges.push(by);
            }
            // An edge that has not come goes with its invitation.
            None if by.identity.is_none() => {}
            None => {
                (by.created_ns, by.closed_before) = (at_ns, 0);
                self.edges.push(by);
            }
        }
        self.put_back(before);
        Ok(())
    }
}

impl Edges {
    /// The next database of an edge is another one. Where it has a copy, that becomes a closed
    /// part.
    pub(crate) fn start_over(
        &mut self,
        name: &str,
        now: Timestamp,
        has_copy: bool,
    ) -> Result<(), ClusterError> {
        if !has_copy {
            return self.update(name, |edge| edge.identity = None);
        }
        self.change(|list| {
            let before = list.edge_mut(name)?.clone();
            let change = RecordedChange::NewIncarnation {
                edge: name.to_owned(),
            };
            let number = list.record(now.as_nanos(), change);
            list.close(&before, number, now, ClosedReason::NewIncarnation);
            list.link(&[number], Some(name));
            List::start_over(list.edge_mut(name)?, numbered(name, number));
            Ok(())
        })
    }

    /// Removes an edge: its key is invalid from then on. Its copy, where there is one, becomes a
    /// closed part. Returns the number of the change.
    pub(crate) fn remove(
        &mut self,
        name: &str,
        now: Timestamp,
        has_copy: bool,
    ) -> Result<u64, ClusterError> {
        self.change(|list| {
            let before = list.take_edge(name)?;
            let mut parts = list.parts_of(name);
            list.link(&parts, None);
            let number = list.last_number + 1;
            if has_copy {
                parts.push(number);
            }
            let change = RecordedChange::Remove {
                before: Box::new(before.clone()),
                parts,
            };
            let number = list.record(now.as_nanos(), change);
            if has_copy {
                list.close(&before, number, now, ClosedReason::Removed);
            }
            Ok(number)
        })
    }

    /// Removes an edge and its copy, whose folder is to be deleted. Returns the number of the
    /// change.
    pub(crate) fn remove_with_history(
        &mut self,
        name: &str,
        now: Timestamp,
    ) -> Result<u64, ClusterError> {
        self.change(|list| {
            let before = list.take_edge(name)?;
            let parts = list.parts_of(name);
            list.link(&parts, None);
            list.dropped.push(before.folder().to_owned());
            let change = RecordedChange::RemoveWithHistory {
                edge: name.to_owned(),
                folder: Some(before.folder().to_owned()),
                identity: before.identity,
            };
            Ok(list.record(now.as_nanos(), change))
        })
    }

    /// Removes a closed part, whose folder is to be deleted. Returns the number of the change.
    pub(crate) fn remove_part(&mut self, label: &str, now: Timestamp) -> Result<u64, ClusterError> {
        self.change(|list| {
            let at = list.parts.iter().position(|part| part.label() == label);
            let part = list.parts.remove(at.ok_or_else(|| no_part(label))?);
            list.dropped.push(part.folder.clone());
            let change = RecordedChange::RemovePart {
                part: label.to_owned(),
                folder: Some(part.folder),
                identity: part.identity,
            };
            Ok(list.record(now.as_nanos(), change))
        })
    }

    /// Renames an edge. Returns the number of the change.
    pub(crate) fn rename(
        &mut self,
        from: &str,
        to: &str,
        now: Timestamp,
    ) -> Result<u64, ClusterError> {
        check_name(to)?;
        self.change(|list| {
            rename(list, from, to)?;
            let change = RecordedChange::Rename {
                from: from.to_owned(),
                to: to.to_owned(),
            };
            Ok(list.record(now.as_nanos(), change))
        })
    }

    /// Puts an edge that has joined in the place of another one, which is removed; its copy becomes
    /// a closed part. Returns the number of the change.
    pub(crate) fn replace_by_edge(
        &mut self,
        name: &str,
        by: &str,
        now: Timestamp,
        has_copy: bool,
    ) -> Result<u64, ClusterError> {
        self.change(|list| {
            let by_before = list.edge_mut(by)?.clone();
            let before = list.take_edge(name)?;
            let mut parts = list.parts_of(name);
            let own = list.parts_of(by);
            let number = list.last_number + 1;
            if has_copy {
                parts.push(number);
            }
            let change = RecordedChange::Replace {
                before: Box::new(before.clone()),
                by: by.to_owned(),
                folder: by_before.folder().to_owned(),
                by_before: Some(Box::new(by_before)),
                parts: parts.clone(),
            };
            list.record(now.as_nanos(), change);
            if has_copy {
                list.close(&before, number, now, ClosedReason::Replaced);
            }
            list.link(&parts, Some(by));
            // The ranks of a place ascend: its parts, those of the successor, the successor.
            let mut rank = before.rank().saturating_add(u64::from(has_copy));
            let mut closed = before.closed_before.saturating_add(u32::from(has_copy));
            for part in &mut list.parts {
                if part.follows.is_none() && own.contains(&part.number) {
                    part.rank = rank;
                    (rank, closed) = (rank.saturating_add(1), closed.saturating_add(1));
                }
            }
            let edge = list.edge_mut(by)?;
            (edge.created_ns, edge.closed_before) = (before.created_ns, closed);
            Ok(number)
        })
    }

    /// Invites a machine in the place of an edge, whose key is invalid from then on; its copy
    /// becomes a closed part. Returns the number of the change and the secret of the invitation.
    pub(crate) fn replace_by_new(
        &mut self,
        name: &str,
        by: &str,
        now: Timestamp,
        valid: Duration,
        has_copy: bool,
    ) -> Result<(u64, String), ClusterError> {
        check_name(by)?;
        let secret = secret(SECRET_PREFIX)?;
        let valid = i64::try_from(valid.as_nanos()).unwrap_or(i64::MAX);
        let number = self.change(|list| {
            if by != name && list.has_edge(by) {
                return Err(taken(by));
            }
            let before = list.edge_mut(name)?.clone();
            let mut parts = list.parts_of(name);
            let number = list.last_number + 1;
            let mut after = before.clone();
            if has_copy {
                parts.push(number);
                List::start_over(&mut after, numbered(by, number));
            } else {
                after.folder = Some(before.folder().to_owned());
                after.identity = None;
            }
            after.name = by.to_owned();
            (after.key, after.is_redeemed) = (None, false);
            after.follows = None;
            after.invite = Some(hex(&hash(&secret)));
            after.invite_ends_ns = Some(now.as_nanos().saturating_add(valid));
            let change = RecordedChange::Replace {
                before: Box::new(before.clone()),
                by: by.to_owned(),
                folder: after.folder().to_owned(),
                by_before: None,
                parts: parts.clone(),
            };
            list.record(now.as_nanos(), change);
            if has_copy {
                list.close(&before, number, now, ClosedReason::Replaced);
            }
            list.link(&parts, Some(by));
            *list.edge_mut(name)? = after;
            Ok(number)
        })?;
        Ok((number, secret))
    }

    /// Undoes a change. Returns the number of this change.
    pub(crate) fn undo(&mut self, number: u64, now: Timestamp) -> Result<u64, ClusterError> {
        self.change(|list| {
            let found = list.records.iter().find(|record| record.number == number);
            let record = found.cloned().ok_or_else(|| {
                ClusterError::new(
                    ClusterErrorKind::NotFound,
                    format!(
                        "there is no change {number}; list them with `headwater edges log`"
                    ),
                )
            })?;
            if let Some(by) = record.undone_by {
                return Err(cannot_undo(number, &format!("change {by} has undone it")));
            }
            match record.change {
                RecordedChange::Rename { from, to } => rename(list, &to, &from)?,
                RecordedChange::Remove { before, parts } => {
                    list.undo_remove(number, *before, &parts)?;
                }
                RecordedChange::Replace {
                    before,
                    folder,
                    by_before,
                    parts,
                    ..
                } => {
                    list.undo_replace(Replaced {
                        number,
                        before: *before,
                        folder,
                        by_before: by_before.map(|edge| *edge),
                        parts,
                        at_ns: record.at_ns,
                    })?;
                }
                RecordedChange::Move { .. } => {
                    list.moves
                        .retain(|one| one.number != number || one.told.is_some());
                }
                RecordedChange::Tag {
                    folder,
                    tags,
                    before,
                    ..
                } => {
                    let undone = list.undo_tag(&folder, &tags, &before);
                    undone.map_err(|reason| cannot_undo(number, reason))?;
                }
                _ => {
                    let reason = "only `rename`, `replace`, `move`, `tag`, and `remove` without history are undone";
                    return Err(cannot_undo(number, reason));
                }
            }
            let undone_by = list.record(now.as_nanos(), RecordedChange::Undo { of: number });
            for record in &mut list.records {
                if record.number == number {
                    record.undone_by = Some(undone_by);
                }
            }
            Ok(undone_by)
        })
    }

    /// Takes up copies of the directory that no list names, as closed parts before the copy of the
    /// edge of their name.
    pub(crate) fn take_up(
        &mut self,
        found: Vec<FoundCopy>,
        now: Timestamp,
    ) -> Result<(), ClusterError> {
        self.change(|list| {
            for FoundCopy {
                folder,
                name,
                modified_ns,
            } in found
            {
                let number = list.last_number + 1;
                let edge = list.edges.iter_mut().find(|edge| edge.name == name);
                let (rank, want, rules) = match &edge {
                    Some(edge) => (edge.rank(), edge.want, edge.rules.clone()),
                    None => {
                        let rank = modified_ns.max(0).unsigned_abs();
                        (rank, Default::default(), Vec::new())
                    }
                };
                let tags = edge.as_ref().map(|edge| edge.tags.clone());
                let goes_on = edge.is_some();
                if let Some(edge) = edge {
                    edge.closed_before = edge.closed_before.saturating_add(1);
                }
                let part = ClosedPart {
                    number,
                    edge: goes_on.then(|| name.clone()),
                    name,
                    folder,
                    rank,
                    closed_ns: modified_ns,
                    why: ClosedReason::Found,
                    identity: None,
                    want,
                    rules,
                    tags: tags.unwrap_or_default(),
                    follows: None,
                    key: None,
                };
                let label = part.label();
                list.parts.push(part);
                list.record(now.as_nanos(), RecordedChange::TakeUp { part: label });
            }
            Ok(())
        })
    }

    /// Records that folders were deleted.
    pub(crate) fn set_deleted(&mut self, folders: &[String]) -> Result<(), ClusterError> {
        self.change(|list| {
            list.dropped.retain(|folder| !folders.contains(folder));
            Ok(())
        })
    }
}

fn rename(list: &mut List, from: &str, to: &str) -> Result<(), ClusterError> {
    if list.has_edge(to) {
        return Err(taken(to));
    }
    let edge = list.edge_mut(from)?;
    edge.folder = Some(edge.folder().to_owned());
    edge.name = to.to_owned();
    let parts = list.parts_of(from);
    list.link(&parts, Some(to));
    Ok(())
}
