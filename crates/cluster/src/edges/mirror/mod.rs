//! Following another cloud: the edges and closed parts that follow the copies in a peer's roster
//! become what these are there, and the copy of a relayed edge a closed part as it is there.
//!
//! Invariants: only edges and parts that follow a copy of the sending node are changed; a copy is
//! deleted only where the roster names it as removed. A folder keeps its copy while its edge
//! becomes a part, or a part an edge, and its key goes on. Applying a roster twice changes nothing.
//! Concurrency: plain data; one replacement of the file. Failure: a copy whose name is in use here
//! is left as it is, with the reason in the answer; the others are applied.

use super::list::{ClosedPart, ClosedReason, List, RecordedChange};
use super::roster::{Roster, RosterAnswer, RosterClosed, RosterCopy};
use super::tag_set::{Tags, added};
use super::{
    EDGES_MAX, Edge, Edges, KEY_PREFIX, PART, PeerCopy, VERSION, check_name, numbered, secret,
};
use crate::error::{ClusterError, ClusterErrorKind};
use crate::prefetch::Prefetch;
use headwater_shell::access::token::{hash, hex};
use headwater_types::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

impl Edges {
    /// Applies the roster of a peer; `own` is the identity of this node.
    pub(crate) fn mirror(
        &mut self,
        roster: &Roster,
        own: u64,
        now: Timestamp,
    ) -> Result<RosterAnswer, ClusterError> {
        let before = List {
            version: VERSION,
            ..self.list.clone()
        };
        let mut list = before.clone();
        let answer = list.mirror(roster, now)?;
        list.set_told_moves(roster, own);
        if list != before {
            self.change(|stored| {
                *stored = list;
                Ok(())
            })?;
        }
        Ok(answer)
    }

    /// The copy of an edge that another node relays is a closed part there, and becomes one here,
    /// with its key. Where another copy goes on in its place there, the edge here gets another
    /// folder and a key for it, which is returned; again, until it has connected.
    pub(crate) fn close_followed(
        &mut self,
        name: &str,
        is_succeeded: bool,
        now: Timestamp,
    ) -> Result<Option<String>, ClusterError> {
        if name.contains(PART) {
            return self.successor_again(name, is_succeeded);
        }
        if self.get(name)?.follows.is_some() {
            // Its node sends a roster.
            return Ok(None);
        }
        let key = is_succeeded.then(|| secret(KEY_PREFIX)).transpose()?;
        let hashed = key.as_ref().map(|key| hex(&hash(key)));
        self.change(|list| {
            let before = list.take_edge(name)?;
            let number = list.last_number.saturating_add(1);
            let why = match is_succeeded {
                true => ClosedReason::Replaced,
                false => ClosedReason::Removed,
            };
            list.close(&before, number, now, why);
            let label = list.parts.last_mut().map(|part| {
                part.key.clone_from(&before.key);
                part.edge = is_succeeded.then(|| name.to_owned());
                part.label()
            });
            let change = RecordedChange::Follow {
                from: name.to_owned(),
                to: label.unwrap_or_default(),
            };
            list.record(now.as_nanos(), change);
            if hashed.is_some() {
                let mut after = before;
                List::start_over(&mut after, numbered(name, number));
                (after.key, after.invite, after.invite_ends_ns) = (hashed, None, None);
                list.edges.push(after);
            }
            Ok(())
        })?;
        Ok(key)
    }

    fn successor_again(
        &mut self,
        label: &str,
        is_succeeded: bool,
    ) -> Result<Option<String>, ClusterError> {
        let part = self.list.parts.iter().find(|part| part.label() == label);
        let part = part.filter(|part| is_succeeded && part.follows.is_none());
        let Some(edge) = part.and_then(|part| part.edge.clone()) else {
            return Ok(None);
        };
        if self.get(&edge)?.identity.is_some() {
            return Ok(None);
        }
        let key = secret(KEY_PREFIX)?;
        let hashed = hex(&hash(&key));
        self.update(&edge, |edge| edge.key = Some(hashed))?;
        Ok(Some(key))
    }
}

/// Where a copy of a peer is in the list.
enum ListSlot {
    Edge(usize),
    Part(usize),
    Nowhere,
}

impl List {
    fn mirror(&mut self, roster: &Roster, now: Timestamp) -> Result<RosterAnswer, ClusterError> {
        let mut answer = RosterAnswer::default();
        self.delete_removed(roster, now);
        answer.errors = self.refused(roster);
        for copy in &roster.copies {
            if answer.errors.contains_key(&copy.copy) {
                continue;
            }
            self.release_former(&roster.node, copy, now);
            self.put(roster, copy, now);
            if let Some(key) = self.key_for(&roster.node, copy)? {
                answer.keys.insert(copy.copy.clone(), key);
            }
        }
        let names: BTreeSet<&str> = self.edges.iter().map(|edge| edge.name.as_str()).collect();
        match names.len() == self.edges.len() {
            true => Ok(answer),
            false => Err(ClusterError::invalid(
                "the roster names two edges alike; rename one of them at the sending cloud",
            )),
        }
    }

    /// Copies that cannot be kept here as the roster has them, and why. Edges and parts that follow
    /// them keep their names, which others cannot have then.
    fn refused(&self, roster: &Roster) -> BTreeMap<String, String> {
        let mut refused: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let stays = |edge: &&Edge| {
                let follows = edge.follows.as_ref();
                let is_refused = follows.is_some_and(|f| refused.contains_key(&f.copy));
                is_refused || !roster.lists(follows, edge.identity)
            };
            let staying = self.edges.iter().filter(stays);
            let in_use: BTreeSet<String> = staying.map(|edge| edge.name.clone()).collect();
            let found: Vec<(String, String)> = roster
                .copies
                .iter()
                .filter(|copy| !refused.contains_key(&copy.copy))
                .filter_map(|copy| {
                    let error = self.refuses(&roster.node, &in_use, copy).err()?;
                    Some((copy.copy.clone(), error.to_string()))
                })
                .collect();
            if found.is_empty() {
                return refused;
            }
            refused.extend(found);
        }
    }

    /// Reason why a copy cannot be kept here.
    fn refuses(
        &self,
        node: &str,
        in_use: &BTreeSet<String>,
        copy: &RosterCopy,
    ) -> Result<(), ClusterError> {
        check_name(&copy.name)?;
        added(&copy.tags)?;
        if copy.database().is_none() {
            return Err(ClusterError::invalid(format!(
                "`{}`: its identity `{}` is not 16 hexadecimal digits",
                copy.name, copy.identity
            )));
        }
        if copy.closed.is_none() && in_use.contains(&copy.name) {
            return Err(ClusterError::new(
                ClusterErrorKind::NameExists,
                format!(
                    "the peer has another edge `{}`; rename that there (`headwater edges rename`)",
                    copy.name
                ),
            ));
        }
        let is_here = || !matches!(self.place_of(node, copy), ListSlot::Nowhere);
        match self.edges.len() < EDGES_MAX || is_here() {
            true => Ok(()),
            false => Err(ClusterError::new(
                ClusterErrorKind::NameExists,
                format!("there are {EDGES_MAX} edges, which is the maximum of one node"),
            )),
        }
    }

    /// Removes the copies that were deleted at the sending node.
    fn delete_removed(&mut self, roster: &Roster, now: Timestamp) {
        let is_removed = |follows: Option<&PeerCopy>, identity: Option<u64>| {
            let is_it = |follows: &PeerCopy| {
                follows.node == roster.node
                    && roster.removed.iter().any(|removed| {
                        removed.copy == follows.copy
                            && u64::from_str_radix(&removed.identity, 16).ok() == identity
                    })
            };
            follows.is_some_and(is_it) && !roster.lists(follows, identity)
        };
        let edges = std::mem::take(&mut self.edges).into_iter();
        let (gone, kept): (Vec<Edge>, Vec<Edge>) =
            edges.partition(|edge| is_removed(edge.follows.as_ref(), edge.identity));
        self.edges = kept;
        let parts = std::mem::take(&mut self.parts).into_iter();
        let (gone_parts, kept): (Vec<ClosedPart>, Vec<ClosedPart>) =
            parts.partition(|part| is_removed(part.follows.as_ref(), part.identity));
        self.parts = kept;
        for edge in gone {
            let folder = edge.folder().to_owned();
            self.dropped.push(folder.clone());
            let change = RecordedChange::RemoveWithHistory {
                edge: edge.name,
                folder: Some(folder),
                identity: edge.identity,
            };
            self.record(now.as_nanos(), change);
        }
        for part in gone_parts {
            self.dropped.push(part.folder.clone());
            let change = RecordedChange::RemovePart {
                part: part.label(),
                folder: Some(part.folder),
                identity: part.identity,
            };
            self.record(now.as_nanos(), change);
        }
    }

    fn place_of(&self, node: &str, copy: &RosterCopy) -> ListSlot {
        let is_it = |follows: Option<&PeerCopy>, identity: Option<u64>| {
            // A copy that starts over has no identity until it is known.
            follows.is_some_and(|follows| follows.node == node && follows.copy == copy.copy)
                && (identity.is_none() || identity == copy.database())
        };
        let edge = self.edges.iter();
        let mut edge = edge.map(|edge| is_it(edge.follows.as_ref(), edge.identity));
        let part = self.parts.iter();
        let mut part = part.map(|part| is_it(part.follows.as_ref(), part.identity));
        match (edge.position(|is_it| is_it), part.position(|is_it| is_it)) {
            (Some(at), _) => ListSlot::Edge(at),
            (None, Some(at)) => ListSlot::Part(at),
            (None, None) => ListSlot::Nowhere,
        }
    }

    /// Releases what followed another database under this name of a copy: it stays here as a
    /// closed part, and receives nothing more.
    fn release_former(&mut self, node: &str, copy: &RosterCopy, now: Timestamp) {
        let is_former = |follows: Option<&PeerCopy>, identity: Option<u64>| {
            follows.is_some_and(|follows| follows.node == node && follows.copy == copy.copy)
                && identity.is_some()
                && identity != copy.database()
        };
        for part in &mut self.parts {
            if is_former(part.follows.as_ref(), part.identity) {
                (part.follows, part.key) = (None, None);
            }
        }
        let edges = std::mem::take(&mut self.edges).into_iter();
        let (former, others): (Vec<Edge>, Vec<Edge>) =
            edges.partition(|edge| is_former(edge.follows.as_ref(), edge.identity));
        self.edges = others;
        for edge in former {
            let change = RecordedChange::NewIncarnation {
                edge: edge.name.clone(),
            };
            let number = self.record(now.as_nanos(), change);
            self.close(&edge, number, now, ClosedReason::NewIncarnation);
        }
    }

    /// Makes what follows a copy what that is at the sending node.
    fn put(&mut self, roster: &Roster, copy: &RosterCopy, now: Timestamp) {
        let follows = Some(PeerCopy {
            node: roster.node.clone(),
            copy: copy.copy.clone(),
            path: copy.path.clone(),
        });
        let before = match self.place_of(&roster.node, copy) {
            ListSlot::Edge(at) => self.edges.get(at).map(|edge| edge.name.clone()),
            ListSlot::Part(at) => self.parts.get(at).map(ClosedPart::label),
            ListSlot::Nowhere => None,
        };
        let after = match &copy.closed {
            None => self.put_edge(roster, copy, follows, now),
            Some(closed) => self.put_part(roster, copy, closed, follows, now),
        };
        if let Some(from) = before.filter(|before| *before != after) {
            let change = RecordedChange::Follow { from, to: after };
            self.record(now.as_nanos(), change);
        }
    }

    /// Puts an edge; returns its name.
    fn put_edge(
        &mut self,
        roster: &Roster,
        copy: &RosterCopy,
        follows: Option<PeerCopy>,
        now: Timestamp,
    ) -> String {
        let mut edge = match self.place_of(&roster.node, copy) {
            ListSlot::Edge(at) => {
                if let Some(edge) = self.edges.get_mut(at) {
                    // In its place, so that nothing changes where nothing is other.
                    set_edge(edge, copy, follows);
                }
                return copy.name.clone();
            }
            ListSlot::Part(at) => self.parts.remove(at).as_edge(),
            ListSlot::Nowhere => self.new_edge(roster, copy, now),
        };
        set_edge(&mut edge, copy, follows);
        self.edges.push(edge);
        copy.name.clone()
    }

    /// Puts a closed part; returns its name.
    fn put_part(
        &mut self,
        roster: &Roster,
        copy: &RosterCopy,
        closed: &RosterClosed,
        follows: Option<PeerCopy>,
        now: Timestamp,
    ) -> String {
        let place = self.place_of(&roster.node, copy);
        let is_own = |at: usize| matches!(place, ListSlot::Part(own) if own == at);
        let mut others = self.parts.iter().enumerate();
        let is_used = others.any(|(at, part)| {
            !is_own(at) && (part.number, &part.name) == (closed.number, &copy.name)
        });
        let number = match (is_used, &place) {
            (false, _) => closed.number,
            (true, ListSlot::Part(at)) => self.parts.get(*at).map_or(0, |part| part.number),
            (true, _) => self.last_number.saturating_add(1),
        };
        // A number of this node is never one that is in use.
        self.last_number = self.last_number.max(number);
        let edge = match place {
            ListSlot::Part(at) => {
                let Some(part) = self.parts.get_mut(at) else {
                    return String::new();
                };
                set_part(part, copy, closed, number);
                part.follows = follows;
                return part.label();
            }
            ListSlot::Edge(at) => self.edges.remove(at),
            ListSlot::Nowhere => self.new_edge(roster, copy, now),
        };
        let mut part = ClosedPart {
            number,
            name: String::new(),
            edge: None,
            folder: edge.folder().to_owned(),
            rank: 0,
            closed_ns: 0,
            why: closed.why,
            identity: copy.database(),
            want: edge.want,
            rules: edge.rules.clone(),
            tags: Tags::new(),
            follows,
            key: edge.key,
        };
        set_part(&mut part, copy, closed, number);
        let label = part.label();
        self.parts.push(part);
        label
    }

    fn new_edge(&mut self, roster: &Roster, copy: &RosterCopy, now: Timestamp) -> Edge {
        Edge {
            name: copy.name.clone(),
            created_ns: now.as_nanos(),
            folder: self.free_folder(&copy.name),
            closed_before: 0,
            want: roster.want,
            rules: Vec::new(),
            kept_seconds: None,
            migration: Prefetch::default(),
            is_paused: false,
            address: None,
            tags: Tags::new(),
            identity: copy.database(),
            follows: None,
            key: None,
            next_key: None,
            is_key_due: false,
            invite: None,
            invite_ends_ns: None,
            is_redeemed: false,
        }
    }

    /// A new key for the copy, where the sending node has none.
    fn key_for(&mut self, node: &str, copy: &RosterCopy) -> Result<Option<String>, ClusterError> {
        let hashed = match self.place_of(node, copy) {
            ListSlot::Edge(at) => self.edges.get_mut(at).map(|edge| &mut edge.key),
            ListSlot::Part(at) => self.parts.get_mut(at).map(|part| &mut part.key),
            ListSlot::Nowhere => None,
        };
        match hashed {
            Some(hashed) if hashed.is_none() || copy.needs_key => {
                let key = secret(KEY_PREFIX)?;
                *hashed = Some(hex(&hash(&key)));
                Ok(Some(key))
            }
            _ => Ok(None),
        }
    }
}

fn set_edge(edge: &mut Edge, copy: &RosterCopy, follows: Option<PeerCopy>) {
    if edge.folder.is_none() && edge.name != copy.name {
        edge.folder = Some(edge.name.clone());
    }
    edge.name.clone_from(&copy.name);
    edge.created_ns = copy.created_ns.unwrap_or(edge.created_ns);
    edge.closed_before = copy.closed_before;
    edge.tags.clone_from(&copy.tags);
    edge.identity = copy.database();
    edge.follows = follows;
}

fn set_part(part: &mut ClosedPart, copy: &RosterCopy, closed: &RosterClosed, number: u64) {
    (part.number, part.identity) = (number, copy.database());
    part.name.clone_from(&copy.name);
    part.edge.clone_from(&closed.edge);
    part.tags.clone_from(&copy.tags);
    (part.rank, part.closed_ns, part.why) = (closed.rank, closed.closed_ns, closed.why);
}

#[cfg(test)]
mod tests;
